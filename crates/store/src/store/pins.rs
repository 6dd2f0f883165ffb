//! Versions of tools, and their approval. Versions are written when a catalog is saved
//! (`store::catalog`), decisions here. Statements are in `sql::pins`.

use gantry_model::id::{ProjectName, ServerId};
use gantry_model::pin::{ChangeClass, PinState};
use sqlx::types::Json;

use super::Store;
use crate::clock::now_ms;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::{
    Row, column, narrow, narrow_option, parsed, unexpected, unsigned, unsigned_option,
};
use crate::error::StoreError;
use crate::pin::{ToolChangeRow, ToolVersionRow, UnapprovedRow};
use crate::sql::pins as sql;

impl Store {
    /// Returns everything that servers of a project list and that is not approved.
    pub async fn unapproved(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<UnapprovedRow>, StoreError> {
        let all = query(sql::UNAPPROVED).bind(project.as_str());
        let rows = self
            .database()
            .rows("read what is not approved", all, |row| {
                Ok(UnapprovedRow {
                    server: parsed(row, 0)?,
                    kind: column(row, 1)?,
                    name: column(row, 2)?,
                    state: state(row, 3)?,
                    change: change(row, 4)?,
                })
            });
        rows.await
    }

    /// Returns the versions that servers of a project list now and that are not approved, each with the
    /// one that is.
    pub async fn tool_changes(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<ToolChangeRow>, StoreError> {
        let all = query(sql::CHANGES).bind(project.as_str());
        let rows = self.database().rows("read changed tools", all, |row| {
            let (version, definition): (Option<u32>, Option<String>) =
                (narrow_option(row, 13)?, column(row, 14)?);
            Ok(ToolChangeRow {
                now: tool_version(row)?,
                approved: version.zip(definition),
            })
        });
        rows.await
    }

    /// Returns the versions of a tool, prompt or template that are remembered, the newest first.
    pub async fn tool_versions(
        &self,
        server: ServerId,
        kind: &str,
        name: &str,
    ) -> Result<Vec<ToolVersionRow>, StoreError> {
        let all = query(sql::VERSIONS)
            .bind(server.to_string())
            .bind(kind)
            .bind(name);
        let rows = self
            .database()
            .rows("read versions of a tool", all, tool_version);
        rows.await
    }

    /// Approves or refuses the listed version of an item; returns whether that version is still the
    /// listed one.
    pub async fn decide_on_tool(
        &self,
        (server, kind, name): (ServerId, &str, &str),
        version: u32,
        state: PinState,
        by: &str,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "decide on a tool";
        let server = server.to_string();
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        let decide = query(sql::DECIDE)
            .bind(&server)
            .bind(kind)
            .bind(name)
            .bind(version)
            .bind(state.as_str());
        if transaction.execute(decide).await? == 0 {
            transaction.rollback().await?;
            return Ok(false);
        }
        let decide = query(sql::DECIDE_VERSION)
            .bind(&server)
            .bind(kind)
            .bind(name)
            .bind(version)
            .bind(state.as_str())
            .bind(by)
            .bind(now_ms());
        transaction.execute(decide).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

pub(super) fn state(row: &Row, index: usize) -> Result<PinState, sqlx::Error> {
    let word: String = column(row, index)?;
    PinState::parse(&word).ok_or_else(|| unexpected("state of a tool", &word))
}

pub(super) fn change(row: &Row, index: usize) -> Result<ChangeClass, sqlx::Error> {
    let word: String = column(row, index)?;
    ChangeClass::parse(&word).ok_or_else(|| unexpected("class of a change", &word))
}

fn tool_version(row: &Row) -> Result<ToolVersionRow, sqlx::Error> {
    let Json(findings) = column(row, 8)?;
    Ok(ToolVersionRow {
        server: parsed(row, 0)?,
        kind: column(row, 1)?,
        name: column(row, 2)?,
        version: narrow(row, 3)?,
        hash: column(row, 4)?,
        definition: column(row, 5)?,
        change: change(row, 6)?,
        renamed_from: column(row, 7)?,
        findings,
        seen_ms: unsigned(row, 9)?,
        state: state(row, 10)?,
        decided_by: column(row, 11)?,
        decided_ms: unsigned_option(row, 12)?,
    })
}
