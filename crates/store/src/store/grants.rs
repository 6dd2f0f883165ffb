//! Grants. Statements are in `sql::grants`.

use gantry_model::id::ProjectName;

use super::Store;
use super::servers::ensure_project;
use crate::clock::now_ms;
use crate::database::Transaction;
use crate::database::query::query;
use crate::database::row::{Row, column, parsed, unexpected};
use crate::error::StoreError;
use crate::row::{GrantRow, Principal};
use crate::sql::grants as sql;

impl Store {
    /// Returns all grants of a project.
    pub async fn grants(&self, project: &ProjectName) -> Result<Vec<GrantRow>, StoreError> {
        let all = query(sql::OF_PROJECT).bind(project.as_str());
        let grants = self
            .database()
            .rows("list grants", all, |row| grant(project, row));
        grants.await
    }
}

/// Stores a grant within a transaction.
pub(super) async fn insert_grant(
    transaction: &mut Transaction<'_>,
    row: &GrantRow,
) -> Result<(), StoreError> {
    ensure_project(transaction, &row.project).await?;
    let (kind, principal) = principal_text(&row.principal);
    let put = query(sql::PUT)
        .bind(row.project.as_str())
        .bind(kind)
        .bind(principal)
        .bind(row.server.as_str())
        .bind(row.item.as_str())
        .bind(row.alias.as_deref())
        .bind(now_ms());
    transaction.execute(put).await.map(drop)
}

pub(super) fn principal_text(principal: &Principal) -> (&'static str, String) {
    match principal {
        Principal::Agent(agent) => ("agent", agent.to_string()),
        Principal::Key(key) => ("api_key", key.to_string()),
        Principal::Project => ("project", String::new()),
    }
}

fn grant(project: &ProjectName, row: &Row) -> Result<GrantRow, sqlx::Error> {
    let principal = match column::<&str>(row, 0)? {
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
