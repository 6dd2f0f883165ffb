//! Projects, agents and servers. Statements are in `sql::servers`.

use gantry_model::id::{AgentName, ProjectName, ServerId};
use gantry_model::spec::{ServerSpec, Source, TransportPreference};
use sqlx::types::Json;

use super::Store;
use super::hosting::put_workspace;
use crate::clock::now_ms;
use crate::database::query::query;
use crate::database::row::{Row, column, parsed, unsigned};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::row::ServerRow;
use crate::sql::{secrets, servers as sql};

impl Store {
    /// Creates the project, if it does not exist.
    pub async fn ensure_project(&self, project: &ProjectName) -> Result<(), StoreError> {
        const WHAT: &str = "make a project known";
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        ensure_project(&mut transaction, project).await?;
        transaction.commit().await
    }

    /// Returns the names of all projects.
    pub async fn projects(&self) -> Result<Vec<ProjectName>, StoreError> {
        let all = query(sql::PROJECTS);
        let names = self
            .database()
            .rows("list projects", all, |row| parsed(row, 0));
        names.await
    }

    /// Registers a server; `Conflict` if its project has one of that name.
    pub async fn put_server(&self, row: &ServerRow) -> Result<(), StoreError> {
        let put = self.write_server("register a server", sql::PUT, row);
        put.await.map(drop)
    }

    /// Registers a server or replaces the one of that name in the project.
    ///
    /// The row's id becomes the server's; its position and creation time stay. If id, spec and
    /// `enabled` are unchanged, nothing is written.
    pub async fn replace_server(&self, row: &ServerRow) -> Result<(), StoreError> {
        let replace = self.write_server("replace a server", sql::REPLACE, row);
        let changed = replace.await?;
        // Only specs from the API are stored with their secrets.
        if changed && row.spec.source == Source::Api {
            self.database().removed().await;
        }
        Ok(())
    }

    async fn write_server(
        &self,
        what: &'static str,
        statement: &'static str,
        row: &ServerRow,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database().begin(what, Durability::Power).await?;
        let written = self.write_server_in(&mut transaction, statement, row);
        let written = written.await?;
        transaction.commit().await?;
        Ok(written)
    }

    /// Registers or replaces a server within a transaction.
    pub(super) async fn replace_server_in(
        &self,
        transaction: &mut Transaction<'_>,
        row: &ServerRow,
    ) -> Result<(), StoreError> {
        let replace = self.write_server_in(transaction, sql::REPLACE, row);
        replace.await.map(drop)
    }

    async fn write_server_in(
        &self,
        transaction: &mut Transaction<'_>,
        statement: &'static str,
        row: &ServerRow,
    ) -> Result<bool, StoreError> {
        ensure_project(transaction, &row.project).await?;
        let write = query(statement)
            .bind(row.id.to_string())
            .bind(row.project.as_str())
            .bind(row.spec.name.as_str())
            .bind(row.spec.description.as_deref())
            .bind(transport(&row.spec))
            .bind(Json(&row.spec))
            .bind(row.enabled)
            .bind(row.created_ms)
            .bind(row.updated_ms)
            .bind((row.spec.source != Source::Api).then_some(self.number()));
        let written = transaction.execute(write).await;
        let written = written.map_err(|error| {
            error.or_conflict(|| format!("server `{}` in project `{}`", row.spec.name, row.project))
        })?;
        if written > 0 {
            put_workspace(transaction, row).await?;
        }
        Ok(written > 0)
    }

    /// Removes a server with its catalog, lease and encrypted values; returns whether it existed.
    pub async fn remove_server(
        &self,
        project: &ProjectName,
        id: ServerId,
    ) -> Result<bool, StoreError> {
        let database = self.database();
        let mut transaction = database.begin("remove a server", Durability::Power).await?;
        let mut removed = 0;
        // Its tokens are removed first, whatever happens to the rest.
        for statement in [secrets::REMOVE_SCOPE, sql::REMOVE] {
            let remove = query(statement).bind(project.as_str()).bind(id.to_string());
            removed = transaction.execute(remove).await?;
        }
        transaction.commit().await?;
        database.removed().await;
        Ok(removed > 0)
    }

    /// Returns a project's servers in configuration order: the registered ones, and those of this
    /// gateway's files.
    ///
    /// An unreadable row is logged and skipped, so that it affects no other.
    pub async fn servers(&self, project: &ProjectName) -> Result<Vec<ServerRow>, StoreError> {
        let all = query(sql::OF_PROJECT)
            .bind(project.as_str())
            .bind(self.number());
        let rows = self
            .database()
            .rows("list servers", all, |row| Ok(readable(project, row)));
        Ok(rows.await?.into_iter().flatten().collect())
    }
}

/// Creates a project within a transaction, if it does not exist.
pub(super) async fn ensure_project(
    transaction: &mut Transaction<'_>,
    project: &ProjectName,
) -> Result<(), StoreError> {
    let insert = query(sql::ENSURE_PROJECT)
        .bind(project.as_str())
        .bind(now_ms());
    if transaction.execute(insert).await? > 0 {
        return Ok(());
    }
    let known = query(sql::HAS_PROJECT).bind(project.as_str());
    let known = transaction.optional(known, |row| column::<bool>(row, 0));
    match known.await? {
        Some(true) => Ok(()),
        Some(false) | None => Err(StoreError::NotFound {
            what: format!("project `{project}`"),
        }),
    }
}

/// Creates an agent and its project within a transaction, if they do not exist.
pub(super) async fn ensure_agent(
    transaction: &mut Transaction<'_>,
    project: &ProjectName,
    agent: &AgentName,
) -> Result<(), StoreError> {
    ensure_project(transaction, project).await?;
    let insert = query(sql::ENSURE_AGENT)
        .bind(project.as_str())
        .bind(agent.as_str())
        .bind(now_ms());
    transaction.execute(insert).await.map(drop)
}

fn transport(spec: &ServerSpec) -> &'static str {
    match spec.launch.transport() {
        // The transport actually used is in the server's status.
        "auto" => TransportPreference::StreamableHttp.as_str(),
        transport => transport,
    }
}

fn readable(project: &ProjectName, row: &Row) -> Option<ServerRow> {
    match server(project, row) {
        Ok(server) => Some(server),
        Err(error) => {
            let name = column(row, 1).unwrap_or_else(|_| "?".to_owned());
            tracing::error!(%project, server = name, %error, "left out a server that cannot be read");
            None
        }
    }
}

fn server(project: &ProjectName, row: &Row) -> Result<ServerRow, sqlx::Error> {
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
