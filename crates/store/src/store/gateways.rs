//! The gateways that share the store, and counters of changes. Statements are in `sql::gateways`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_model::id::{CallId, GatewayId, ProjectName};
use tokio::time::Instant;

use super::Store;
use crate::clock::now_ms;
use crate::database::query::query;
use crate::database::row::{Row, column, unsigned_option};
use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::gateway::{Changes, Gateway};
use crate::sql::gateways as sql;

/// A gateway that was not seen for this long, and did not stop, has died.
const PRESENT_FOR: Duration = Duration::from_secs(60);

const REGISTER: &str = "register the gateway";

/// This gateway as identified in rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) id: GatewayId,
    pub(crate) number: i64,
    /// Counts its starts.
    pub(crate) boot: i64,
    pub(crate) since: Instant,
    /// How far the database's clock is ahead of this machine's.
    pub(crate) ahead_ms: i64,
}

/// Registers a start of the gateway. A full or locked file does not delay a gateway that was
/// registered before.
pub(super) async fn register(
    database: &Database,
    gateway: &Gateway,
) -> Result<Registered, StoreError> {
    let ((number, boot), ahead_ms) = match write(database, gateway).await {
        Ok(registered) => registered,
        Err(error) if !error.is_passing() => return Err(error),
        Err(error) => {
            let known = query(sql::KNOWN).bind(gateway.id.to_string());
            let known = database.optional(REGISTER, known, registered).await;
            (known?.ok_or(error)?, 0)
        }
    };
    Ok(Registered {
        id: gateway.id,
        number,
        boot,
        since: Instant::now(),
        ahead_ms,
    })
}

/// Returns number and boot, and how far the database's clock is ahead.
async fn write(database: &Database, gateway: &Gateway) -> Result<((i64, i64), i64), StoreError> {
    let id = gateway.id.to_string();
    let mut transaction = database.begin(REGISTER, Durability::Process).await?;
    let folder = database.file().and_then(Path::parent);
    // Before gateways had ids, the file was always in the data folder.
    if folder.is_some() && folder == absolute(&gateway.folder).as_deref() {
        transaction.execute(query(sql::CLAIM).bind(&id)).await?;
    }
    let now = transaction.now_ms().await?;
    let ahead_ms = now.saturating_sub(now_ms());
    let register = query(sql::REGISTER)
        .bind(&id)
        .bind(gateway.folder.to_string_lossy().into_owned())
        .bind(now);
    let row = transaction.one(register, registered).await?;
    transaction.commit().await?;
    Ok((row, ahead_ms))
}

fn registered(row: &Row) -> Result<(i64, i64), sqlx::Error> {
    Ok((column(row, 0)?, column(row, 1)?))
}

fn absolute(folder: &Path) -> Option<PathBuf> {
    std::path::absolute(folder).ok()
}

impl Store {
    /// Returns the counters of changes of a project.
    pub async fn changes(&self, project: &ProjectName) -> Result<Changes, StoreError> {
        let present_ms = i64::try_from(PRESENT_FOR.as_millis()).unwrap_or(i64::MAX);
        let changes = query(sql::CHANGES)
            .bind(project.as_str())
            .bind(self.number())
            .bind(self.database_ms().saturating_sub(present_ms));
        let changes = self.database().one("look for changes", changes, |row| {
            Ok(Changes {
                access: unsigned_option(row, 0)?.unwrap_or(0),
                servers: unsigned_option(row, 1)?.unwrap_or(0),
                settings: unsigned_option(row, 2)?.unwrap_or(0),
                suspensions: unsigned_option(row, 3)?.unwrap_or(0),
                policy: unsigned_option(row, 4)?.unwrap_or(0),
                pins: unsigned_option(row, 5)?.unwrap_or(0),
                others: column(row, 6)?,
            })
        });
        changes.await
    }

    /// Returns the id of the gateway at which a call of a project runs, if it is not this one.
    pub async fn runs_elsewhere(
        &self,
        project: &ProjectName,
        call: CallId,
    ) -> Result<Option<String>, StoreError> {
        let running = query(sql::RUNNING_AT)
            .bind(call.to_string())
            .bind(project.as_str())
            .bind(self.number());
        let gateway = |row: &Row| column::<Option<String>>(row, 0);
        let found = self
            .database()
            .optional("find the gateway of a call", running, gateway);
        Ok(found.await?.flatten())
    }

    /// Returns an estimate of the shared clock, without a query.
    pub(super) fn database_ms(&self) -> i64 {
        now_ms().saturating_add(self.shared.gateway.ahead_ms)
    }

    /// Records that this gateway has stopped. If that fails, the others notice after a while.
    pub(super) async fn stopped(&self) {
        const WHAT: &str = "record that the gateway stopped";
        let stopped = query(sql::STOPPED)
            .bind(self.number())
            .bind(self.database_ms())
            .bind(self.boot());
        let stopped = self.database().execute(WHAT, Durability::Process, stopped);
        if let Err(error) = stopped.await {
            tracing::debug!(%error, "not recorded that the gateway stopped");
        }
    }
}
