//! Leases: which gateway runs a registered server. Statements are in `sql::leases`.

use std::time::Duration;

use gantry_model::id::ProjectName;
use sqlx::sqlite::SqliteRow;

use super::value::{column, parsed, unsigned};
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::gateway::Lease;
use crate::sql::{gateways, leases as sql};

impl SqliteStore {
    pub(crate) async fn take_leases(
        &self,
        project: &ProjectName,
        lasts: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        const WHAT: &str = "take leases";
        let failed = |error| self.failed(WHAT, error);
        let until = self.until(lasts);
        // Who holds a lease and is alone does not renew it. It does so as soon as it sees us, so that
        // the leases of others count as ended only when we have been here for as long as one lasts.
        let now = now_ms();
        let is_settled = now - self.gateway.at_ms >= until - now;
        let ended_before = if is_settled { now } else { 0 };
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let take = sqlx::query(sql::TAKE)
            .bind(project.as_str())
            .bind(self.number())
            .bind(self.boot())
            .bind(until)
            .bind(ended_before);
        take.execute(turn.connection()?).await.map_err(failed)?;
        let rows = sqlx::query(sql::OF_PROJECT).bind(project.as_str());
        let rows = rows.fetch_all(turn.connection()?).await;
        let leases = self.decoded(WHAT, rows, lease)?;
        turn.done();
        Ok(leases)
    }

    pub(crate) async fn leases(&self, project: &ProjectName) -> Result<Vec<Lease>, StoreError> {
        const WHAT: &str = "list leases";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::OF_PROJECT).bind(project.as_str());
        let rows = query.fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, lease)
    }

    pub(crate) async fn release_leases(&self, project: &ProjectName) -> Result<(), StoreError> {
        const WHAT: &str = "release leases";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let release = sqlx::query(sql::RELEASE)
            .bind(project.as_str())
            .bind(self.number())
            .bind(self.boot());
        let released = release.execute(turn.connection()?).await;
        released.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn renew_leases(&self, lasts: Duration) -> Result<(), StoreError> {
        const WHAT: &str = "renew leases";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let mut transaction = turn.begin().await?;
        let renew = sqlx::query(sql::RENEW)
            .bind(self.number())
            .bind(self.boot())
            .bind(self.until(lasts));
        let renewed = renew.execute(&mut *transaction).await;
        renewed.map_err(|error| self.failed(WHAT, error))?;
        let seen = sqlx::query(gateways::SEEN)
            .bind(self.number())
            .bind(now_ms());
        let seen = seen.execute(&mut *transaction).await;
        seen.map_err(|error| self.failed(WHAT, error))?;
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(())
    }
}

fn lease(row: &SqliteRow) -> Result<Lease, sqlx::Error> {
    let is_held: Option<&str> = column(row, 1)?;
    Ok(Lease {
        server: parsed(row, 0)?,
        holder: is_held.map(|_| parsed(row, 1)).transpose()?,
        generation: unsigned(row, 2)?,
        until_ms: unsigned(row, 3)?,
    })
}
