//! Agents: their keys, their grants, and the tools they see.
//!
//! The store is written first, memory second, as with keys. Removing an agent revokes its keys; the
//! last admin key cannot be removed this way. Entry points: `Access::agents` and the three changes.

use std::collections::HashMap;

use gantry_model::caller::UserTrust;
use gantry_model::grant::{Grant, Principal, ToolFilter};
use gantry_model::id::AgentName;
use gantry_model::limits::RateLimits;
use gantry_store::{AgentRow, AgentTools, GrantRow, StoreError};

use super::grants::read;
use super::{Access, KeyView};
use crate::clock::unix_ms;
use crate::error::EngineError;

/// The public view of an agent.
#[derive(Debug, Clone)]
pub struct AgentView {
    /// Its name.
    pub name: AgentName,
    /// Its label.
    pub label: String,
    /// When it was first known, in milliseconds since 1970.
    pub created_ms: u64,
    /// Its own grants, without those for its keys or for all agents.
    pub grants: Vec<Grant>,
    /// The filter over its granted tools.
    pub filter: ToolFilter,
    /// Whether its user ids are trusted.
    pub users: UserTrust,
    /// What all its keys together may use.
    pub limits: RateLimits,
    /// Its valid keys.
    pub keys: Vec<KeyView>,
}

/// An agent to create.
#[derive(Debug, Clone)]
pub struct NewAgent {
    /// Its name.
    pub name: AgentName,
    /// Its label.
    pub label: String,
    /// Its own grants; without any it may use only what is granted to all agents.
    pub grants: Vec<Grant>,
    /// The filter over its granted tools.
    pub filter: ToolFilter,
    /// Whether its user ids are trusted.
    pub users: UserTrust,
    /// What all its keys together may use.
    pub limits: RateLimits,
}

/// A change of an agent; members that are `None` stay.
#[derive(Debug, Clone, Default)]
pub struct AgentChange {
    /// Its label.
    pub label: Option<String>,
    /// Its own grants, replacing the current ones.
    pub grants: Option<Vec<Grant>>,
    /// The filter over its granted tools.
    pub filter: Option<ToolFilter>,
    /// Whether its user ids are trusted.
    pub users: Option<UserTrust>,
    /// What all its keys together may use.
    pub limits: Option<RateLimits>,
}

impl Access {
    /// Returns all agents, by name.
    pub(crate) async fn agents(&self) -> Result<Vec<AgentView>, EngineError> {
        let (grants, keys) = (self.store.grants(&self.project).await?, self.list().await?);
        let rows = self.store.agents(&self.project).await?;
        let view = |row: AgentRow| AgentView {
            grants: granted(&row.name, &grants),
            filter: filter_of(&row.tools).unwrap_or_default(),
            users: row.users,
            limits: row.limits,
            keys: keys
                .iter()
                .filter(|key| key.agent == row.name)
                .cloned()
                .collect(),
            name: row.name,
            label: row.label,
            created_ms: row.created_ms,
        };
        Ok(rows.into_iter().map(view).collect())
    }

    pub(crate) async fn create_agent(&self, new: NewAgent) -> Result<(), EngineError> {
        let row = AgentRow {
            project: self.project.clone(),
            tools: tools_of(&new.filter),
            users: new.users,
            limits: new.limits,
            name: new.name,
            label: new.label,
            created_ms: unix_ms(),
        };
        for grant in &new.grants {
            self.has_group(grant).await?;
        }
        let grants = self.grant_rows(&row.name, &new.grants);
        let _one = self.changing.lock().await;
        self.store.put_agent(&row, &grants).await.map_err(|error| {
            if matches!(error, StoreError::Conflict { .. }) {
                EngineError::AgentExists {
                    name: row.name.clone(),
                }
            } else {
                EngineError::Store(error)
            }
        })?;
        self.reload().await
    }

    pub(crate) async fn change_agent(
        &self,
        name: &AgentName,
        change: AgentChange,
    ) -> Result<(), EngineError> {
        let _one = self.changing.lock().await;
        let rows = self.store.agents(&self.project).await?;
        let row = rows.into_iter().find(|row| row.name == *name);
        let mut row = row.ok_or_else(|| EngineError::UnknownAgent {
            name: name.to_string(),
        })?;
        if let Some(label) = change.label {
            row.label = label;
        }
        if let Some(filter) = change.filter {
            row.tools = tools_of(&filter);
        }
        if let Some(users) = change.users {
            row.users = users;
        }
        if let Some(limits) = change.limits {
            row.limits = limits;
        }
        let grants = match change.grants {
            Some(grants) => {
                for grant in &grants {
                    self.has_group(grant).await?;
                }
                self.grant_rows(name, &grants)
            }
            None => {
                let all = self.store.grants(&self.project).await?;
                all.into_iter().filter(|row| is_of(row, name)).collect()
            }
        };
        self.store.replace_agent(&row, &grants).await?;
        self.reload().await
    }

    /// Removes an agent and its keys; false if there was none.
    pub(crate) async fn remove_agent(&self, name: &AgentName) -> Result<bool, EngineError> {
        let _one = self.changing.lock().await;
        self.keep_an_admin(|caller| caller.agent == *name)?;
        let known = self.store.remove_agent(&self.project, name).await?;
        self.forget(|caller| caller.agent == *name);
        self.agents.rcu(|agents| {
            let mut agents = HashMap::clone(agents);
            agents.remove(name);
            agents
        });
        self.count_callers();
        Ok(known)
    }

    fn grant_rows(&self, agent: &AgentName, grants: &[Grant]) -> Vec<GrantRow> {
        let row = |grant: &Grant| self.row(Principal::Agent(agent.clone()), grant);
        grants.iter().map(row).collect()
    }
}

/// Reads a stored filter; an unreadable one allows nothing.
pub(super) fn filter_of(tools: &AgentTools) -> Option<ToolFilter> {
    ToolFilter::new(&tools.include, &tools.exclude).ok()
}

fn tools_of(filter: &ToolFilter) -> AgentTools {
    AgentTools {
        include: filter.include().map(str::to_owned).collect(),
        exclude: filter.exclude().map(str::to_owned).collect(),
    }
}

fn is_of(row: &GrantRow, agent: &AgentName) -> bool {
    matches!(&row.principal, Principal::Agent(name) if name == agent)
}

fn granted(agent: &AgentName, rows: &[GrantRow]) -> Vec<Grant> {
    let mine = rows.iter().filter(|row| is_of(row, agent));
    mine.filter_map(read).collect()
}
