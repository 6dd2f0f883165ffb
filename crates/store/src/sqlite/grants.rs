//! Grants. Statements are in `sql::grants`.

use gantry_model::id::ProjectName;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::servers::ensure_project;
use super::value::{column, parsed, unexpected};
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::row::{GrantRow, Principal};
use crate::sql::grants as sql;

impl SqliteStore {
    pub(super) async fn insert_grant(
        &self,
        connection: &mut SqliteConnection,
        row: &GrantRow,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "store a grant";
        let known = ensure_project(connection, &row.project).await;
        known.map_err(|error| self.failed(WHAT, error))?;
        let (kind, principal) = principal_text(&row.principal);
        let insert = sqlx::query(sql::PUT)
            .bind(row.project.as_str())
            .bind(kind)
            .bind(principal)
            .bind(row.server.as_str())
            .bind(row.item.as_str())
            .bind(row.alias.as_deref())
            .bind(now_ms())
            .execute(connection);
        insert
            .await
            .map(drop)
            .map_err(|error| self.failed(WHAT, error))
    }

    pub(crate) async fn grants(&self, project: &ProjectName) -> Result<Vec<GrantRow>, StoreError> {
        const WHAT: &str = "list grants";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::OF_PROJECT).bind(project.as_str());
        let rows = query.fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, |row| grant(project, row))
    }
}

pub(super) fn principal_text(principal: &Principal) -> (&'static str, String) {
    match principal {
        Principal::Agent(agent) => ("agent", agent.to_string()),
        Principal::Key(key) => ("api_key", key.to_string()),
        Principal::Project => ("project", String::new()),
    }
}

fn grant(project: &ProjectName, row: &SqliteRow) -> Result<GrantRow, sqlx::Error> {
    let principal = match column::<&str, _>(row, 0)? {
        "agent" => Principal::Agent(parsed(row, 1)?),
        "api_key" => Principal::Key(parsed(row, 1)?),
        "project" => Principal::Project,
        other => return Err(unexpected("kind of principal", other)),
    };
    Ok(GrantRow {
        project: project.clone(),
        principal,
        server: column(row, 2)?,
        item: column(row, 3)?,
        alias: column(row, 4)?,
    })
}
