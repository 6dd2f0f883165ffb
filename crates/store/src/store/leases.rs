//! Leases: which gateway runs a registered server. Statements are in `sql::leases`.
//!
//! Their ends are by the clock that all gateways share, which is the database's. It is read within the
//! transaction, so that a lease never lasts longer than its holder, who counted from before, believes.

use std::time::Duration;

use gantry_model::id::ProjectName;

use super::Store;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::{Row, parsed, parsed_option, signed, unsigned};
use crate::error::StoreError;
use crate::gateway::Lease;
use crate::sql::{gateways, leases as sql};

impl Store {
    /// Takes the leases on the registered servers of a project that no other gateway holds, and returns
    /// the leases on all of them.
    ///
    /// A lease that this start of the gateway holds stays as it is. One of another gateway is taken when
    /// it has ended, and not before this gateway was registered for as long as `lasts`.
    pub async fn take_leases(
        &self,
        project: &ProjectName,
        lasts: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        // Who holds a lease and is alone does not renew it. It does so as soon as it sees us, so that
        // the leases of others count as ended only when we have been here for as long as one lasts.
        let is_settled = self.shared.gateway.since.elapsed() >= lasts;
        let database = self.database();
        let mut transaction = database.begin("take leases", Durability::Process).await?;
        let now = transaction.now_ms().await?;
        let take = query(sql::TAKE)
            .bind(project.as_str())
            .bind(self.number())
            .bind(self.boot())
            .bind(after(now, lasts))
            .bind(if is_settled { now } else { 0 });
        transaction.execute(take).await?;
        let all = query(sql::OF_PROJECT).bind(project.as_str());
        let leases = transaction.rows(all, lease).await?;
        transaction.commit().await?;
        Ok(leases)
    }

    /// Returns the leases on the registered servers of a project.
    pub async fn leases(&self, project: &ProjectName) -> Result<Vec<Lease>, StoreError> {
        let all = query(sql::OF_PROJECT).bind(project.as_str());
        self.database().rows("list leases", all, lease).await
    }

    /// Releases the leases of a project that this start of the gateway holds; their generations stay.
    pub async fn release_leases(&self, project: &ProjectName) -> Result<(), StoreError> {
        let release = query(sql::RELEASE)
            .bind(project.as_str())
            .bind(self.number())
            .bind(self.boot());
        let database = self.database();
        let released = database.execute("release leases", Durability::Process, release);
        released.await.map(drop)
    }

    /// Renews the leases that this start of the gateway holds.
    pub async fn renew_leases(&self, lasts: Duration) -> Result<(), StoreError> {
        let database = self.database();
        let mut transaction = database.begin("renew leases", Durability::Process).await?;
        let now = transaction.now_ms().await?;
        let renew = query(sql::RENEW)
            .bind(self.number())
            .bind(self.boot())
            .bind(after(now, lasts));
        transaction.execute(renew).await?;
        let seen = query(gateways::SEEN).bind(self.number()).bind(now);
        transaction.execute(seen).await?;
        transaction.commit().await
    }
}

/// Returns the end of a lease that begins now.
fn after(now: i64, lasts: Duration) -> i64 {
    let lasts = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
    now.saturating_add(signed(lasts))
}

fn lease(row: &Row) -> Result<Lease, sqlx::Error> {
    Ok(Lease {
        server: parsed(row, 0)?,
        holder: parsed_option(row, 1)?,
        generation: unsigned(row, 2)?,
        until_ms: unsigned(row, 3)?,
    })
}
