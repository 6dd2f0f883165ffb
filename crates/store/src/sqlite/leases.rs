//! Leases: which gateway owns a server. Statements are in `sql::leases`.

use gantry_model::id::{ProjectName, ServerId};

use super::value::signed;
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::sql::leases as sql;

impl SqliteStore {
    pub(crate) async fn take_lease(
        &self,
        project: &ProjectName,
        server: ServerId,
        holder: &str,
        generation: u64,
        until_ms: u64,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "take a lease";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let take = sqlx::query(sql::TAKE)
            .bind(project.as_str())
            .bind(server.to_string())
            .bind(holder)
            .bind(signed(generation))
            .bind(signed(until_ms))
            .bind(now_ms())
            .execute(turn.connection()?);
        let taken = take
            .await
            .map_err(|error| match error.as_database_error() {
                Some(foreign) if foreign.is_foreign_key_violation() => StoreError::NotFound {
                    what: format!("server `{server}` in project `{project}`"),
                },
                _ => self.failed(WHAT, error),
            })?;
        turn.done();
        Ok(taken.rows_affected() > 0)
    }
}
