//! Leases: which gateway runs a registered server. Statements are in `sql::leases`.
//!
//! They expire by the database's clock, which all gateways share. It is read within the
//! transaction, so that a lease never lasts longer than its holder assumes, who counts from an
//! earlier time.

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
    /// Takes the leases on the registered servers of a project that no other gateway holds, and
    /// returns all leases.
    ///
    /// A lease held by this start of the gateway is unchanged. One of another gateway is taken when
    /// it has expired, and not before this gateway has been registered for as long as `lasts`.
    pub async fn take_leases(
        &self,
        project: &ProjectName,
        lasts: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        // A lone holder does not renew its leases, but starts to as soon as it sees another
        // gateway. So the leases of others count as expired only after this gateway was present for
        // one lifetime.
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

    /// Returns after how long the first of these leases that another gateway holds can be taken, as
    /// [`Store::take_leases`] takes them, unless it is renewed; an estimate, without a query.
    pub fn ends_in(&self, leases: &[Lease], lasts: Duration) -> Option<Duration> {
        let is_other = |lease: &&Lease| lease.holder.is_some_and(|holder| holder != self.gateway());
        let ends = leases.iter().filter(is_other).map(|lease| lease.until_ms);
        let now = u64::try_from(self.database_ms()).unwrap_or(0);
        let left = Duration::from_millis(ends.min()?.saturating_sub(now));
        let unsettled = lasts.saturating_sub(self.shared.gateway.since.elapsed());
        Some(left.max(unsettled))
    }

    /// Releases the leases of a project held by this start of the gateway; their generations stay.
    pub async fn release_leases(&self, project: &ProjectName) -> Result<(), StoreError> {
        let release = query(sql::RELEASE)
            .bind(project.as_str())
            .bind(self.number())
            .bind(self.boot());
        let database = self.database();
        let released = database.execute("release leases", Durability::Process, release);
        released.await.map(drop)
    }

    /// Renews the leases held by this start of the gateway.
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

/// Returns the expiry of a lease that starts now.
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
