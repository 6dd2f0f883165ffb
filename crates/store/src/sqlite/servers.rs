//! Projects, agents and servers. Statements are in `sql::servers`.

use gantry_model::id::{AgentName, ProjectName, ServerId};
use gantry_model::spec::{ServerSpec, Source, TransportPreference};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;

use super::hosting::put_workspace;
use super::value::{column, parsed, signed, unsigned};
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::row::ServerRow;
use crate::sql::{secrets, servers as sql};

impl SqliteStore {
    pub(crate) async fn ensure_project(&self, project: &ProjectName) -> Result<(), StoreError> {
        const WHAT: &str = "make a project known";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let done = ensure_project(turn.connection()?, project).await;
        done.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn projects(&self) -> Result<Vec<ProjectName>, StoreError> {
        const WHAT: &str = "list projects";
        let mut reader = self.readers.take(WHAT).await?;
        let rows = sqlx::query(sql::PROJECTS)
            .fetch_all(reader.connection())
            .await;
        self.decoded(WHAT, rows, |row| parsed(row, 0))
    }

    pub(crate) async fn put_server(&self, row: &ServerRow) -> Result<(), StoreError> {
        self.write_server("register a server", sql::PUT, row)
            .await
            .map(drop)
    }

    pub(crate) async fn replace_server(&self, row: &ServerRow) -> Result<(), StoreError> {
        let changed = self
            .write_server("replace a server", sql::REPLACE, row)
            .await?;
        // Only what the API brings is stored with its secrets.
        if changed && row.spec.source == Source::Api {
            self.removed().await;
        }
        Ok(())
    }

    async fn write_server(
        &self,
        what: &'static str,
        statement: &'static str,
        row: &ServerRow,
    ) -> Result<bool, StoreError> {
        let mut turn = self.writer.turn(what, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        let known = ensure_project(&mut transaction, &row.project).await;
        known.map_err(|error| self.failed(what, error))?;
        let write = sqlx::query(statement)
            .bind(row.id.to_string())
            .bind(row.project.as_str())
            .bind(row.spec.name.as_str())
            .bind(row.spec.description.as_deref())
            .bind(transport(&row.spec))
            .bind(Json(&row.spec))
            .bind(row.enabled)
            .bind(signed(row.created_ms))
            .bind(signed(row.updated_ms))
            .bind((row.spec.source != Source::Api).then_some(self.number()))
            .execute(&mut *transaction);
        let written = write
            .await
            .map_err(|error| match error.as_database_error() {
                Some(unique) if unique.is_unique_violation() => StoreError::Conflict {
                    what: format!("server `{}` in project `{}`", row.spec.name, row.project),
                },
                _ => self.failed(what, error),
            })?;
        if written.rows_affected() > 0 {
            let hosted = put_workspace(&mut transaction, row).await;
            hosted.map_err(|error| self.failed(what, error))?;
        }
        self.commit(what, transaction).await?;
        turn.done();
        Ok(written.rows_affected() > 0)
    }

    pub(crate) async fn remove_server(
        &self,
        project: &ProjectName,
        id: ServerId,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "remove a server";
        let mut removed = 0;
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        // Its tokens go with it, whatever becomes of the rest.
        for statement in [secrets::REMOVE_SCOPE, sql::REMOVE] {
            let remove = sqlx::query(statement)
                .bind(project.as_str())
                .bind(id.to_string());
            let done = remove.execute(&mut *transaction).await;
            removed = done
                .map_err(|error| self.failed(WHAT, error))?
                .rows_affected();
        }
        transaction
            .commit()
            .await
            .map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        self.removed().await;
        Ok(removed > 0)
    }

    pub(crate) async fn servers(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<ServerRow>, StoreError> {
        const WHAT: &str = "list servers";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::OF_PROJECT)
            .bind(project.as_str())
            .bind(self.number());
        let rows = query.fetch_all(reader.connection()).await;
        let rows = rows.map_err(|error| self.failed(WHAT, error))?;
        Ok(rows
            .iter()
            .filter_map(|row| readable(project, row))
            .collect())
    }
}

/// Makes a project known on a connection that has the turn.
pub(crate) async fn ensure_project(
    connection: &mut SqliteConnection,
    project: &ProjectName,
) -> Result<(), sqlx::Error> {
    let insert = sqlx::query(sql::ENSURE_PROJECT)
        .bind(project.as_str())
        .bind(now_ms());
    insert.execute(connection).await.map(drop)
}

/// Makes an agent and its project known within a transaction.
pub(crate) async fn ensure_agent(
    connection: &mut SqliteConnection,
    project: &ProjectName,
    agent: &AgentName,
) -> Result<(), sqlx::Error> {
    ensure_project(connection, project).await?;
    let insert = sqlx::query(sql::ENSURE_AGENT)
        .bind(project.as_str())
        .bind(agent.as_str());
    insert.bind(now_ms()).execute(connection).await.map(drop)
}

fn transport(spec: &ServerSpec) -> &'static str {
    match spec.launch.transport() {
        // What the server turns out to speak is in its status.
        "auto" => TransportPreference::StreamableHttp.as_str(),
        transport => transport,
    }
}

fn readable(project: &ProjectName, row: &SqliteRow) -> Option<ServerRow> {
    match server(project, row) {
        Ok(server) => Some(server),
        Err(error) => {
            let name = column(row, 1).unwrap_or_else(|_| "?".to_owned());
            tracing::error!(%project, server = name, %error, "left out a server that cannot be read");
            None
        }
    }
}

fn server(project: &ProjectName, row: &SqliteRow) -> Result<ServerRow, sqlx::Error> {
    let Json(spec) = column(row, 2)?;
    Ok(ServerRow {
        id: parsed(row, 0)?,
        project: project.clone(),
        spec,
        enabled: column(row, 3)?,
        created_ms: unsigned(row, 4)?,
        updated_ms: unsigned(row, 5)?,
    })
}
