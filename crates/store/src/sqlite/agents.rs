//! Agents, and the grants that are changed with them. Statements are in `sql::agents`.

use gantry_model::id::{AgentName, ProjectName};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;

use super::SqliteStore;
use super::grants::principal_text;
use super::servers::ensure_project;
use super::value::{column, parsed, signed, unsigned};
use super::writer::Durability;
use crate::error::StoreError;
use crate::row::{AgentRow, GrantRow, Principal};
use crate::sql::{agents as sql, grants};

impl SqliteStore {
    pub(crate) async fn agents(&self, project: &ProjectName) -> Result<Vec<AgentRow>, StoreError> {
        const WHAT: &str = "list agents";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::OF_PROJECT).bind(project.as_str());
        let rows = query.fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, |row| agent(project, row))
    }

    pub(crate) async fn put_agent(
        &self,
        row: &AgentRow,
        grants: &[GrantRow],
    ) -> Result<(), StoreError> {
        const WHAT: &str = "store an agent";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        let known = ensure_project(&mut transaction, &row.project).await;
        known.map_err(|error| self.failed(WHAT, error))?;
        let insert = sqlx::query(sql::PUT)
            .bind(row.project.as_str())
            .bind(row.name.as_str())
            .bind(row.label.as_str())
            .bind(signed(row.created_ms))
            .bind(Json(&row.tools))
            .bind(row.users.is_trusted())
            .execute(&mut *transaction);
        insert
            .await
            .map_err(|error| match error.as_database_error() {
                Some(unique) if unique.is_unique_violation() => StoreError::Conflict {
                    what: format!("agent `{}` in project `{}`", row.name, row.project),
                },
                _ => self.failed(WHAT, error),
            })?;
        for grant in grants {
            self.insert_grant(&mut transaction, grant).await?;
        }
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn replace_agent(
        &self,
        row: &AgentRow,
        grants: &[GrantRow],
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "change an agent";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        let update = sqlx::query(sql::REPLACE)
            .bind(row.project.as_str())
            .bind(row.name.as_str())
            .bind(row.label.as_str())
            .bind(Json(&row.tools))
            .bind(row.users.is_trusted())
            .execute(&mut *transaction);
        let changed = update.await.map_err(|error| self.failed(WHAT, error))?;
        let dropped = drop_grants(&mut transaction, &row.project, &row.name).await;
        dropped.map_err(|error| self.failed(WHAT, error))?;
        for grant in grants {
            self.insert_grant(&mut transaction, grant).await?;
        }
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(changed.rows_affected() > 0)
    }

    pub(crate) async fn remove_agent(
        &self,
        project: &ProjectName,
        agent: &AgentName,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "remove an agent";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        let removed = remove(&mut transaction, project, agent).await;
        let removed = removed.map_err(|error| self.failed(WHAT, error))?;
        self.commit(WHAT, transaction).await?;
        turn.done();
        self.removed().await;
        Ok(removed)
    }
}

async fn drop_grants(
    connection: &mut SqliteConnection,
    project: &ProjectName,
    agent: &AgentName,
) -> Result<(), sqlx::Error> {
    let (kind, principal) = principal_text(&Principal::Agent(agent.clone()));
    let drop_all = sqlx::query(grants::REMOVE)
        .bind(project.as_str())
        .bind(kind)
        .bind(principal);
    drop_all.execute(connection).await.map(drop)
}

async fn remove(
    connection: &mut SqliteConnection,
    project: &ProjectName,
    agent: &AgentName,
) -> Result<bool, sqlx::Error> {
    drop_grants(connection, project, agent).await?;
    let of_agent = |statement| {
        sqlx::query(statement)
            .bind(project.as_str())
            .bind(agent.as_str())
    };
    of_agent(sql::REMOVE_KEY_GRANTS)
        .execute(&mut *connection)
        .await?;
    let removed = of_agent(sql::REMOVE).execute(connection).await?;
    Ok(removed.rows_affected() > 0)
}

fn agent(project: &ProjectName, row: &SqliteRow) -> Result<AgentRow, sqlx::Error> {
    let label: Option<String> = column(row, 1)?;
    let tools: Option<Json<_>> = column(row, 3)?;
    Ok(AgentRow {
        project: project.clone(),
        name: parsed(row, 0)?,
        label: label.unwrap_or_default(),
        tools: tools.map(|Json(tools)| tools).unwrap_or_default(),
        users: column::<bool, _>(row, 4)?.into(),
        created_ms: unsigned(row, 2)?,
    })
}
