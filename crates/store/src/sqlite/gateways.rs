//! The gateways that share the file, and what changed in it since it was last read. Statements are in
//! `sql::gateways`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_model::id::{GatewayId, ProjectName};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::value::{column, signed, unsigned_option};
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::gateway::{Changes, Gateway};
use crate::sql::gateways as sql;

/// A gateway that has not been seen for this long, and did not stop, has died.
const PRESENT_FOR: Duration = Duration::from_secs(60);

/// This gateway as rows name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registered {
    pub(super) id: GatewayId,
    pub(super) number: i64,
    /// Counts its starts.
    pub(super) boot: i64,
    pub(super) at_ms: i64,
}

/// Registers a start of the gateway. A full or locked file delays nobody who was registered before.
pub(super) async fn register(
    connection: &mut SqliteConnection,
    path: &Path,
    gateway: &Gateway,
) -> Result<Registered, StoreError> {
    const WHAT: &str = "register the gateway";
    let failed = |error| StoreError::from_sqlite(path, WHAT, error);
    let at_ms = now_ms();
    let row = match write(connection, path, gateway, at_ms).await {
        Ok(row) => row,
        Err(error) => {
            let error = failed(error);
            let known = sqlx::query(sql::KNOWN).bind(gateway.id.to_string());
            let known = known.fetch_optional(connection).await.map_err(failed)?;
            match known {
                Some(known) if error.is_passing() => known,
                _ => return Err(error),
            }
        }
    };
    Ok(Registered {
        id: gateway.id,
        number: column(&row, 0).map_err(failed)?,
        boot: column(&row, 1).map_err(failed)?,
        at_ms,
    })
}

async fn write(
    connection: &mut SqliteConnection,
    path: &Path,
    gateway: &Gateway,
    at_ms: i64,
) -> Result<SqliteRow, sqlx::Error> {
    let id = gateway.id.to_string();
    let mut transaction = sqlx::Connection::begin_with(connection, "BEGIN IMMEDIATE").await?;
    // Before gateways had ids, the file was always in the data folder.
    if path.parent() == absolute(&gateway.folder).as_deref() {
        let claim = sqlx::query(sql::CLAIM).bind(&id);
        claim.execute(&mut *transaction).await?;
    }
    let register = sqlx::query(sql::REGISTER)
        .bind(&id)
        .bind(gateway.folder.to_string_lossy())
        .bind(at_ms);
    let row = register.fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(row)
}

fn absolute(folder: &Path) -> Option<PathBuf> {
    std::path::absolute(folder).ok()
}

impl SqliteStore {
    pub(crate) async fn changes(&self, project: &ProjectName) -> Result<Changes, StoreError> {
        const WHAT: &str = "look for changes";
        let failed = |error| self.failed(WHAT, error);
        let mut reader = self.readers.take(WHAT).await?;
        let present_ms = i64::try_from(PRESENT_FOR.as_millis()).unwrap_or(i64::MAX);
        let query = sqlx::query(sql::CHANGES)
            .bind(project.as_str())
            .bind(self.gateway.number)
            .bind(now_ms().saturating_sub(present_ms));
        let row = query.fetch_one(reader.connection()).await.map_err(failed)?;
        Ok(Changes {
            access: unsigned_option(&row, 0).map_err(failed)?.unwrap_or(0),
            servers: unsigned_option(&row, 1).map_err(failed)?.unwrap_or(0),
            settings: unsigned_option(&row, 2).map_err(failed)?.unwrap_or(0),
            suspensions: unsigned_option(&row, 3).map_err(failed)?.unwrap_or(0),
            others: column(&row, 4).map_err(failed)?,
        })
    }

    /// Tells the other gateways that this one has stopped. One that cannot is missed after a while.
    pub(super) async fn stopped(&self) {
        const WHAT: &str = "record that the gateway stopped";
        let Ok(mut turn) = self.writer.turn(WHAT, Durability::Process).await else {
            return;
        };
        let Ok(connection) = turn.connection() else {
            return;
        };
        let stopped = sqlx::query(sql::STOPPED)
            .bind(self.number())
            .bind(now_ms())
            .bind(self.boot());
        match stopped.execute(connection).await {
            Ok(_) => turn.done(),
            Err(error) => tracing::debug!(%error, "not recorded that the gateway stopped"),
        }
    }

    pub(crate) const fn id(&self) -> GatewayId {
        self.gateway.id
    }

    pub(super) const fn number(&self) -> i64 {
        self.gateway.number
    }

    pub(super) const fn boot(&self) -> i64 {
        self.gateway.boot
    }

    /// Returns the end of a lease that begins now.
    pub(super) fn until(&self, lasts: Duration) -> i64 {
        let lasts = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        now_ms().saturating_add(signed(lasts))
    }
}
