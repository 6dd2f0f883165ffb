//! Grants, when each was last used, and the groups of servers that they name. Statements are in
//! `sql::grants`.

use gantry_model::grant::{Effect, Principal};
use gantry_model::id::{GrantId, ProjectName};
use sqlx::types::Json;

use super::Store;
use super::servers::ensure_project;
use crate::database::query::query;
use crate::database::row::{Row, column, parsed, unexpected, unsigned, unsigned_option};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::row::{GrantRow, GroupRow};
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

    /// Stores a grant and returns its id; one that its principal has already keeps its id.
    pub async fn put_grant(&self, row: &GrantRow) -> Result<GrantId, StoreError> {
        let database = self.database();
        let mut transaction = database.begin("store a grant", Durability::Power).await?;
        let id = insert_grant(&mut transaction, row).await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// Stores grants, all of them or none.
    pub async fn put_grants(&self, rows: &[GrantRow]) -> Result<(), StoreError> {
        let database = self.database();
        let mut transaction = database.begin("store grants", Durability::Power).await?;
        for row in rows {
            insert_grant(&mut transaction, row).await?;
        }
        transaction.commit().await
    }

    /// Removes a grant; returns whether it existed.
    pub async fn remove_grant(
        &self,
        project: &ProjectName,
        id: GrantId,
    ) -> Result<bool, StoreError> {
        let remove = query(sql::REMOVE_ONE)
            .bind(project.as_str())
            .bind(id.to_string());
        let database = self.database();
        let removed = database.execute("remove a grant", Durability::Power, remove);
        Ok(removed.await? > 0)
    }

    /// Notes when grants last decided a call. One that is gone is left out.
    pub async fn note_grant_uses(
        &self,
        project: &ProjectName,
        uses: &[(GrantId, u64)],
    ) -> Result<(), StoreError> {
        const WHAT: &str = "note uses of grants";
        let mut transaction = self.database().begin(WHAT, Durability::Process).await?;
        for (id, at_ms) in uses {
            let note = query(sql::NOTE_USE)
                .bind(project.as_str())
                .bind(id.to_string())
                .bind(*at_ms);
            transaction.execute(note).await?;
        }
        transaction.commit().await
    }

    /// Returns the groups of servers of a project, by name.
    pub async fn groups(&self, project: &ProjectName) -> Result<Vec<GroupRow>, StoreError> {
        let all = query(sql::GROUPS).bind(project.as_str());
        let groups = self.database().rows("list groups", all, |row| {
            let Json(servers) = column(row, 1)?;
            Ok(GroupRow {
                project: project.clone(),
                name: column(row, 0)?,
                servers,
                created_ms: unsigned(row, 2)?,
            })
        });
        groups.await
    }

    /// Stores a new group; `Conflict` if its project has one of that name.
    pub async fn put_group(&self, row: &GroupRow) -> Result<(), StoreError> {
        let database = self.database();
        let mut transaction = database.begin("store a group", Durability::Power).await?;
        ensure_project(&mut transaction, &row.project).await?;
        let put = query(sql::PUT_GROUP)
            .bind(row.project.as_str())
            .bind(row.name.as_str())
            .bind(Json(&row.servers))
            .bind(row.created_ms);
        let put = transaction.execute(put).await;
        put.map_err(|error| {
            error.or_conflict(|| format!("group `{}` in project `{}`", row.name, row.project))
        })?;
        transaction.commit().await
    }

    /// Gives a group other members; returns whether it existed.
    pub async fn change_group(
        &self,
        project: &ProjectName,
        name: &str,
        servers: &[String],
    ) -> Result<bool, StoreError> {
        let change = query(sql::CHANGE_GROUP)
            .bind(project.as_str())
            .bind(name)
            .bind(Json(&servers));
        let database = self.database();
        let changed = database.execute("change a group", Durability::Power, change);
        Ok(changed.await? > 0)
    }

    /// Removes a group that no grant names; returns whether it existed. `Conflict` if a grant names it.
    pub async fn remove_group(
        &self,
        project: &ProjectName,
        name: &str,
    ) -> Result<bool, StoreError> {
        let database = self.database();
        let mut transaction = database.begin("remove a group", Durability::Power).await?;
        let named = query(sql::NAMES_GROUP)
            .bind(project.as_str())
            .bind(format!("@{name}"));
        let named: i64 = transaction.one(named, |row| column(row, 0)).await?;
        if named > 0 {
            return Err(StoreError::Conflict {
                what: format!("{named} grants of group `{name}`"),
            });
        }
        let remove = query(sql::REMOVE_GROUP).bind(project.as_str()).bind(name);
        let removed = transaction.execute(remove).await?;
        transaction.commit().await?;
        Ok(removed > 0)
    }
}

/// Stores a grant within a transaction, unless its principal has it already: then only its alias changes.
pub(super) async fn insert_grant(
    transaction: &mut Transaction<'_>,
    row: &GrantRow,
) -> Result<GrantId, StoreError> {
    ensure_project(transaction, &row.project).await?;
    let (kind, principal) = principal_text(&row.principal);
    let find = query(sql::FIND)
        .bind(row.project.as_str())
        .bind(kind)
        .bind(principal.clone())
        .bind(row.effect.as_str())
        .bind(row.server.as_str())
        .bind(row.item.as_str())
        .bind(row.conditions.as_deref());
    if let Some(id) = transaction.optional(find, |row| parsed(row, 0)).await? {
        let id: GrantId = id;
        let set = query(sql::SET_ALIAS)
            .bind(row.project.as_str())
            .bind(id.to_string())
            .bind(row.alias.as_deref());
        transaction.execute(set).await?;
        return Ok(id);
    }
    let put = query(sql::PUT)
        .bind(row.project.as_str())
        .bind(row.id.to_string())
        .bind(kind)
        .bind(principal)
        .bind(row.effect.as_str())
        .bind(row.server.as_str())
        .bind(row.item.as_str())
        .bind(row.alias.as_deref())
        .bind(row.conditions.as_deref())
        .bind(row.created_ms);
    transaction.execute(put).await?;
    Ok(row.id)
}

/// Makes the grants of a principal these; those that stay keep their ids.
pub(super) async fn replace_grants(
    transaction: &mut Transaction<'_>,
    project: &ProjectName,
    principal: &Principal,
    rows: &[GrantRow],
) -> Result<(), StoreError> {
    let (kind, text) = principal_text(principal);
    let of_principal = query(sql::OF_PRINCIPAL)
        .bind(project.as_str())
        .bind(kind)
        .bind(text);
    let before: Vec<GrantId> = transaction.rows(of_principal, |row| parsed(row, 0)).await?;
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        kept.push(insert_grant(transaction, row).await?);
    }
    for id in before.into_iter().filter(|id| !kept.contains(id)) {
        let remove = query(sql::REMOVE_ONE)
            .bind(project.as_str())
            .bind(id.to_string());
        transaction.execute(remove).await?;
    }
    Ok(())
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
    let effect: Effect = match column::<&str>(row, 6)? {
        "allow" => Effect::Allow,
        "ask" => Effect::Ask,
        "deny" => Effect::Deny,
        other => return Err(unexpected("effect of a grant", other)),
    };
    Ok(GrantRow {
        project: project.clone(),
        id: parsed(row, 5)?,
        principal,
        effect,
        server: column(row, 2)?,
        item: column(row, 3)?,
        alias: column(row, 4)?,
        conditions: column(row, 7)?,
        created_ms: unsigned(row, 8)?,
        last_used_ms: unsigned_option(row, 9)?,
    })
}
