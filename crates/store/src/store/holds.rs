//! Legal holds on the audit. Statements are in `sql::holds`.

use super::Store;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::{Row, column, unsigned, unsigned_option};
use crate::error::StoreError;
use crate::hold::HoldRow;
use crate::sql::holds as sql;

impl Store {
    /// Places a hold.
    pub async fn put_hold(&self, hold: &HoldRow) -> Result<(), StoreError> {
        let put = query(sql::PUT)
            .bind(hold.id.as_str())
            .bind(hold.project.as_str())
            .bind(hold.agent.as_deref())
            .bind(hold.user.as_deref())
            .bind(hold.server.as_deref())
            .bind(hold.since_ms)
            .bind(hold.until_ms)
            .bind(hold.reason.as_str())
            .bind(hold.created_ms)
            .bind(hold.created_by.as_str());
        let database = self.database();
        let put = database.execute("place a hold on the audit", Durability::Power, put);
        put.await.map(drop)
    }

    /// Releases a hold of a project; returns whether it was active.
    pub async fn release_hold(
        &self,
        project: &str,
        id: &str,
        at_ms: u64,
        by: &str,
    ) -> Result<bool, StoreError> {
        let release = query(sql::RELEASE)
            .bind(project)
            .bind(id)
            .bind(at_ms)
            .bind(by);
        let database = self.database();
        let released = database.execute("release a hold", Durability::Power, release);
        Ok(released.await? > 0)
    }

    /// Returns the holds of a project, including released ones, oldest first.
    pub async fn holds(&self, project: &str) -> Result<Vec<HoldRow>, StoreError> {
        let all = query(sql::OF_PROJECT).bind(project);
        self.database().rows("list holds", all, hold).await
    }
}

fn hold(row: &Row) -> Result<HoldRow, sqlx::Error> {
    Ok(HoldRow {
        id: column(row, 0)?,
        project: column(row, 1)?,
        agent: column(row, 2)?,
        user: column(row, 3)?,
        server: column(row, 4)?,
        since_ms: unsigned_option(row, 5)?,
        until_ms: unsigned_option(row, 6)?,
        reason: column(row, 7)?,
        created_ms: unsigned(row, 8)?,
        created_by: column(row, 9)?,
        released_ms: unsigned_option(row, 10)?,
        released_by: column(row, 11)?,
    })
}
