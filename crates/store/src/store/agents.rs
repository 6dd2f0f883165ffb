//! Agents, and the grants that are changed with them. Statements are in `sql::agents`.

use gantry_model::grant::Principal;
use gantry_model::id::{AgentName, ProjectName};
use sqlx::types::Json;

use super::Store;
use super::grants::{insert_grant, principal_text, replace_grants};
use super::servers::ensure_project;
use crate::database::query::query;
use crate::database::row::{Row, column, parsed, unsigned};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::row::{AgentRow, GrantRow};
use crate::sql::{agents as sql, grants};

impl Store {
    /// Returns all agents of a project, by name.
    pub async fn agents(&self, project: &ProjectName) -> Result<Vec<AgentRow>, StoreError> {
        let all = query(sql::OF_PROJECT).bind(project.as_str());
        let agents = self
            .database()
            .rows("list agents", all, |row| agent(project, row));
        agents.await
    }

    /// Stores a new agent and its grants; `Conflict` if its project has one of that name.
    pub async fn put_agent(&self, row: &AgentRow, grants: &[GrantRow]) -> Result<(), StoreError> {
        let database = self.database();
        let mut transaction = database.begin("store an agent", Durability::Power).await?;
        ensure_project(&mut transaction, &row.project).await?;
        let put = query(sql::PUT)
            .bind(row.project.as_str())
            .bind(row.name.as_str())
            .bind(row.label.as_str())
            .bind(row.created_ms)
            .bind(Json(&row.tools))
            .bind(row.users.is_trusted())
            .bind(Json(&row.limits));
        let put = transaction.execute(put).await;
        put.map_err(|error| {
            error.or_conflict(|| format!("agent `{}` in project `{}`", row.name, row.project))
        })?;
        for grant in grants {
            insert_grant(&mut transaction, grant).await?;
        }
        transaction.commit().await
    }

    /// Changes an agent and replaces its grants; returns whether it existed.
    pub async fn replace_agent(
        &self,
        row: &AgentRow,
        grants: &[GrantRow],
    ) -> Result<bool, StoreError> {
        let database = self.database();
        let mut transaction = database.begin("change an agent", Durability::Power).await?;
        let update = query(sql::REPLACE)
            .bind(row.project.as_str())
            .bind(row.name.as_str())
            .bind(row.label.as_str())
            .bind(Json(&row.tools))
            .bind(row.users.is_trusted())
            .bind(Json(&row.limits));
        let changed = transaction.execute(update).await?;
        let principal = Principal::Agent(row.name.clone());
        replace_grants(&mut transaction, &row.project, &principal, grants).await?;
        transaction.commit().await?;
        Ok(changed > 0)
    }

    /// Removes an agent with its keys and grants; returns whether it existed.
    pub async fn remove_agent(
        &self,
        project: &ProjectName,
        agent: &AgentName,
    ) -> Result<bool, StoreError> {
        let database = self.database();
        let mut transaction = database.begin("remove an agent", Durability::Power).await?;
        drop_grants(&mut transaction, project, agent).await?;
        let of_agent = |statement| query(statement).bind(project.as_str()).bind(agent.as_str());
        transaction
            .execute(of_agent(sql::REMOVE_KEY_GRANTS))
            .await?;
        let removed = transaction.execute(of_agent(sql::REMOVE)).await?;
        transaction.commit().await?;
        database.removed().await;
        Ok(removed > 0)
    }
}

async fn drop_grants(
    transaction: &mut Transaction<'_>,
    project: &ProjectName,
    agent: &AgentName,
) -> Result<(), StoreError> {
    let (kind, principal) = principal_text(&Principal::Agent(agent.clone()));
    let drop_all = query(grants::REMOVE)
        .bind(project.as_str())
        .bind(kind)
        .bind(principal);
    transaction.execute(drop_all).await.map(drop)
}

fn agent(project: &ProjectName, row: &Row) -> Result<AgentRow, sqlx::Error> {
    let label: Option<String> = column(row, 1)?;
    let tools: Option<Json<_>> = column(row, 3)?;
    Ok(AgentRow {
        project: project.clone(),
        name: parsed(row, 0)?,
        label: label.unwrap_or_default(),
        tools: tools.map(|Json(tools)| tools).unwrap_or_default(),
        users: column::<bool>(row, 4)?.into(),
        limits: column::<Json<_>>(row, 5)?.0,
        created_ms: unsigned(row, 2)?,
    })
}
