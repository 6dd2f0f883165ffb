//! Grants, groups of servers, and when each grant was last used.
//!
//! The store is written first, memory second, as with keys. Calls record uses in memory, which are
//! written periodically ([`Access::write_uses`]). Entry points: [`PolicyRows`] computes what a
//! caller may use; [`Access::grants`] and the changes are for administrators.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gantry_model::caller::KeyKind;
use gantry_model::grant::{
    BoundGrant, Condition, Effect, Grant, GrantSet, GroupName, LastUse, MethodClass, Pattern,
    Policy, Principal, ServerGroup,
};
use gantry_model::id::{AgentName, GrantId, KeyId, ServerName};
use gantry_model::settings::ProjectSettings;
use gantry_store::{AgentRow, GrantRow, GroupRow, StoreError};
use serde_json::Value;

use super::Access;
use super::agents::filter_of;
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};
use crate::random::random;

/// The group of the servers in configuration files; it cannot be created or changed.
pub const FILES_GROUP: &str = "files";
/// Maximum number of grants of a project.
const MOST_GRANTS: usize = 5_000;
/// Maximum number of groups of a project.
const MOST_GROUPS: usize = 500;

/// The public view of a grant.
#[derive(Debug, Clone)]
pub struct GrantView {
    /// Its identity.
    pub id: GrantId,
    /// Who it applies to.
    pub principal: Principal,
    /// The grant; `None` if it can no longer be parsed.
    pub grant: Option<Grant>,
    /// Its text form, even if it cannot be parsed.
    pub text: String,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it last decided a call, in milliseconds since 1970.
    pub last_used_ms: Option<u64>,
}

/// The public view of a group of servers.
#[derive(Debug, Clone)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Its members: names of servers, and patterns.
    pub servers: Vec<String>,
    /// When it was created, in milliseconds since 1970; `None` for the group of files.
    pub created_ms: Option<u64>,
}

/// A change of the grants of a project.
#[derive(Debug, Clone, Default)]
pub struct PolicyChange {
    /// The grants to add.
    pub add: Vec<(Principal, Grant)>,
    /// The grants to remove.
    pub remove: Vec<GrantId>,
    /// Whether all existing grants are removed.
    pub replace: bool,
}

/// When a grant was last used, and which part of that is stored.
pub(super) struct TrackedUse {
    last: Arc<LastUse>,
    written_ms: u64,
}

/// Everything that decides about the callers of a project, as stored.
pub(crate) struct PolicyRows {
    pub(super) grants: Vec<GrantRow>,
    pub(super) agents: Vec<AgentRow>,
    groups: Vec<ServerGroup>,
    trusted: Vec<Pattern>,
    revision: u64,
    uses: HashMap<GrantId, Arc<LastUse>>,
}

impl PolicyRows {
    /// Returns what the keys or the tokens of an agent may use. An administrator may use
    /// everything; an agent what is granted to it, its key or its project, and only the tools that
    /// its filter shows. row 2.16
    pub(crate) fn set_of(&self, kind: KeyKind, key: Option<KeyId>, agent: &AgentName) -> GrantSet {
        if kind.is_admin() {
            return GrantSet::everything();
        }
        let known = self.agents.iter().find(|known| known.name == *agent);
        let filter = known.map_or_else(|| Some(Default::default()), |row| filter_of(&row.tools));
        let is_for = |principal: &Principal| match principal {
            Principal::Agent(name) => name == agent,
            Principal::Key(id) => Some(*id) == key,
            Principal::Project => true,
        };
        let mut grants = Vec::new();
        for row in self.grants.iter().filter(|row| is_for(&row.principal)) {
            match (read(row), row.effect) {
                (Some(grant), _) => grants.push(BoundGrant {
                    grant,
                    id: Some(row.id),
                    principal: row.principal.clone(),
                    last_use: self.uses.get(&row.id).cloned().unwrap_or_default(),
                }),
                // An unreadable grant allows nothing.
                (None, Effect::Allow) => {}
                // An unreadable deny or ask refuses everything.
                (None, Effect::Deny | Effect::Ask) => return GrantSet::default(),
            }
        }
        let Some(filter) = filter else {
            // An unreadable filter shows nothing.
            return GrantSet::default();
        };
        let policy = Policy {
            filter,
            groups: &self.groups,
            trusted: &self.trusted,
            revision: self.revision,
        };
        GrantSet::under(policy, grants)
    }
}

impl Access {
    /// Reads everything that decides about callers.
    pub(super) async fn policy_rows(&self, revision: u64) -> Result<PolicyRows, EngineError> {
        let (store, project) = (&self.store, &self.project);
        let grants = store.grants(project).await?;
        let agents = store.agents(project).await?;
        let mut groups: Vec<ServerGroup> = store
            .groups(project)
            .await?
            .iter()
            // An unreadable group is treated like a removed one.
            .filter_map(|row| ServerGroup::new(row.name.parse().ok()?, &row.servers).ok())
            .collect();
        groups.push(self.file_group());
        let settings = ProjectSettings::from_stored(store.settings(project).await?);
        let settings = settings.map_err(AdminError::from)?;
        let mut uses = self.uses.lock();
        uses.retain(|id, _| grants.iter().any(|row| row.id == *id));
        for row in &grants {
            uses.entry(row.id).or_insert_with(|| TrackedUse {
                last: Arc::new(LastUse::new(row.last_used_ms.unwrap_or(0))),
                written_ms: row.last_used_ms.unwrap_or(0),
            });
        }
        let uses = uses.iter().map(|(id, used)| (*id, Arc::clone(&used.last)));
        Ok(PolicyRows {
            uses: uses.collect(),
            grants,
            agents,
            groups,
            trusted: settings.trust_annotations.patterns().to_vec(),
            revision,
        })
    }

    /// Returns the policy after a change, without making it.
    pub(crate) async fn changed_policy(
        &self,
        change: PolicyChange,
    ) -> Result<PolicyRows, EngineError> {
        for (principal, grant) in &change.add {
            self.is_known(principal).await?;
            self.has_group(grant).await?;
        }
        let mut policy = self.policy_rows(0).await?;
        let stays = |row: &GrantRow| !change.replace && !change.remove.contains(&row.id);
        policy.grants.retain(stays);
        let added = change.add.into_iter();
        let added = added.map(|(principal, grant)| self.row(principal, &grant));
        policy.grants.extend(added);
        Ok(policy)
    }

    /// Returns the group of what files define, and of tools that run inside the gateway.
    fn file_group(&self) -> ServerGroup {
        let name = FILES_GROUP.parse().expect("it is the name of a group");
        let (native, servers) = (ServerName::native(), self.file_servers.lock());
        ServerGroup::of(name, servers.iter().chain([&native]))
    }

    /// Returns whether there are agents, and none of them may use a server.
    pub(crate) fn is_granted_to_nobody(&self, server: &ServerName) -> bool {
        let shows = |set: &GrantSet| set.shows(MethodClass::Lifecycle, server, None);
        let (agents, keys) = (self.agents.load(), self.keys.load());
        let mut of_keys = keys
            .all()
            .filter(|entry| entry.caller.kind == KeyKind::Agent);
        let is_used = agents.values().any(|set| shows(set))
            || of_keys.any(|entry| shows(&entry.caller.grants));
        !agents.is_empty() && !is_used
    }

    /// Sets the servers that configuration files define; grants on their group apply to them from
    /// now on.
    pub(crate) async fn set_file_servers(
        &self,
        mut servers: Vec<ServerName>,
    ) -> Result<(), EngineError> {
        servers.sort();
        let _one = self.changing.lock().await;
        if *self.file_servers.lock() == servers {
            return Ok(());
        }
        *self.file_servers.lock() = servers;
        self.reload().await
    }

    /// Returns what an agent may use with any of its keys; `None` for an unknown agent.
    pub(crate) fn set_of_agent(&self, agent: &AgentName) -> Option<Arc<GrantSet>> {
        self.agents.load().get(agent).cloned()
    }

    /// Returns what a key of an agent may use; `None` for an unknown key.
    pub(crate) fn set_of_key(&self, key: KeyId) -> Option<Arc<GrantSet>> {
        let keys = self.keys.load();
        let entry = keys.with_id(key)?;
        let is_agents = entry.caller.kind == KeyKind::Agent;
        is_agents.then(|| Arc::clone(&entry.caller.grants))
    }

    /// Returns the keys of administrators, who need no grants.
    pub(crate) fn admin_keys(&self) -> HashSet<KeyId> {
        let keys = self.keys.load();
        let admins = keys.all().filter(|entry| entry.caller.kind.is_admin());
        admins.map(|entry| entry.caller.key).collect()
    }

    /// Returns all grants.
    pub(crate) async fn grants(&self) -> Result<Vec<GrantView>, EngineError> {
        let rows = self.store.grants(&self.project).await?;
        let uses = self.uses.lock();
        let view = |row: GrantRow| {
            let noted = uses.get(&row.id).and_then(|used| used.last.at_ms());
            let grant = read(&row);
            GrantView {
                id: row.id,
                text: grant.as_ref().map_or_else(
                    || format!("{} {}:{}", row.effect, row.server, row.item),
                    Grant::pattern,
                ),
                grant,
                principal: row.principal,
                created_ms: row.created_ms,
                last_used_ms: noted.max(row.last_used_ms),
            }
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Stores a grant and returns its id.
    pub(crate) async fn add_grant(
        &self,
        principal: Principal,
        grant: &Grant,
    ) -> Result<GrantId, EngineError> {
        let _one = self.changing.lock().await;
        self.is_known(&principal).await?;
        let known = self.store.grants(&self.project).await?;
        if known.len() >= MOST_GRANTS {
            return Err(AdminError::TooManyGrants { most: MOST_GRANTS }.into());
        }
        self.has_group(grant).await?;
        let id = self.store.put_grant(&self.row(principal, grant)).await?;
        self.reload().await?;
        Ok(id)
    }

    /// Refuses a grant for an unknown agent or key.
    async fn is_known(&self, principal: &Principal) -> Result<(), EngineError> {
        match principal {
            Principal::Project => Ok(()),
            Principal::Agent(name) if self.set_of_agent(name).is_some() => Ok(()),
            Principal::Agent(name) => Err(EngineError::UnknownAgent {
                name: name.to_string(),
            }),
            Principal::Key(id) => {
                let keys = self.list().await?;
                let is_agents = keys
                    .iter()
                    .any(|key| key.id == *id && key.kind == KeyKind::Agent);
                match is_agents {
                    true => Ok(()),
                    false => Err(AdminError::UnknownKey { id: id.to_string() }.into()),
                }
            }
        }
    }

    /// Refuses a grant of an unknown group.
    pub(super) async fn has_group(&self, grant: &Grant) -> Result<(), EngineError> {
        let Some(name) = grant.group() else {
            return Ok(());
        };
        let groups = self.store.groups(&self.project).await?;
        let is_known = groups.iter().any(|group| group.name == name.as_str());
        match is_known || name.as_str() == FILES_GROUP {
            true => Ok(()),
            false => Err(AdminError::UnknownGroup {
                name: name.to_string(),
            }
            .into()),
        }
    }

    /// Stores grants of `server:*` for a new server.
    pub(crate) async fn offer(
        &self,
        server: &ServerName,
        to: Vec<Principal>,
    ) -> Result<(), EngineError> {
        let grant = Grant::new(server.as_str(), "*", None)?;
        let rows = to.into_iter().map(|principal| self.row(principal, &grant));
        let rows: Vec<_> = rows.collect();
        let _one = self.changing.lock().await;
        self.store.put_grants(&rows).await?;
        self.reload().await
    }

    /// Removes a grant; false if there was none.
    pub(crate) async fn remove_grant(&self, id: GrantId) -> Result<bool, EngineError> {
        let _one = self.changing.lock().await;
        let removed = self.store.remove_grant(&self.project, id).await?;
        self.reload().await?;
        Ok(removed)
    }

    pub(super) fn row(&self, principal: Principal, grant: &Grant) -> GrantRow {
        let conditions: Vec<Value> = grant.conditions().iter().map(Condition::to_json).collect();
        GrantRow {
            project: self.project.clone(),
            id: GrantId::from_random(u128::from_le_bytes(random())),
            principal,
            effect: grant.effect(),
            server: grant.server().to_owned(),
            item: grant.item().to_owned(),
            alias: grant.alias().map(str::to_owned),
            conditions: (!conditions.is_empty()).then(|| Value::Array(conditions).to_string()),
            created_ms: unix_ms(),
            last_used_ms: None,
        }
    }

    /// Returns all groups of servers, that of files first.
    pub(crate) async fn groups(&self) -> Result<Vec<GroupView>, EngineError> {
        let servers = self.file_servers.lock().clone();
        let files = GroupView {
            name: FILES_GROUP.to_owned(),
            servers: servers.iter().map(ToString::to_string).collect(),
            created_ms: None,
        };
        let rows = self.store.groups(&self.project).await?;
        let view = |row: GroupRow| GroupView {
            name: row.name,
            servers: row.servers,
            created_ms: Some(row.created_ms),
        };
        Ok([files]
            .into_iter()
            .chain(rows.into_iter().map(view))
            .collect())
    }

    pub(crate) async fn create_group(&self, group: &ServerGroup) -> Result<(), EngineError> {
        self.is_free(&group.name)?;
        let row = GroupRow {
            project: self.project.clone(),
            name: group.name.to_string(),
            servers: group.members().map(str::to_owned).collect(),
            created_ms: unix_ms(),
        };
        let _one = self.changing.lock().await;
        if self.store.groups(&self.project).await?.len() >= MOST_GROUPS {
            return Err(AdminError::TooManyGroups { most: MOST_GROUPS }.into());
        }
        self.store.put_group(&row).await.map_err(|error| {
            if matches!(error, StoreError::Conflict { .. }) {
                AdminError::GroupExists { name: row.name }.into()
            } else {
                EngineError::Store(error)
            }
        })?;
        self.reload().await
    }

    pub(crate) async fn change_group(&self, group: &ServerGroup) -> Result<(), EngineError> {
        self.is_free(&group.name)?;
        let servers: Vec<String> = group.members().map(str::to_owned).collect();
        let _one = self.changing.lock().await;
        let changed = self
            .store
            .change_group(&self.project, group.name.as_str(), &servers)
            .await?;
        if !changed {
            return Err(AdminError::UnknownGroup {
                name: group.name.to_string(),
            }
            .into());
        }
        self.reload().await
    }

    /// Removes a group; false if there was none. A group that a grant uses is refused.
    pub(crate) async fn remove_group(&self, name: &GroupName) -> Result<bool, EngineError> {
        self.is_free(name)?;
        let _one = self.changing.lock().await;
        let removed = self.store.remove_group(&self.project, name.as_str()).await;
        let removed = removed.map_err(|error| {
            if matches!(error, StoreError::Conflict { .. }) {
                let name = name.to_string();
                AdminError::GroupInUse { name }.into()
            } else {
                EngineError::Store(error)
            }
        })?;
        self.reload().await?;
        Ok(removed)
    }

    fn is_free(&self, name: &GroupName) -> Result<(), EngineError> {
        match name.as_str() {
            FILES_GROUP => Err(AdminError::FilesGroup.into()),
            _ => Ok(()),
        }
    }

    /// Writes the uses of grants that are not stored yet.
    pub(crate) async fn write_uses(&self) -> Result<(), EngineError> {
        let new: Vec<(GrantId, u64)> = {
            let uses = self.uses.lock();
            let new = uses.iter().filter_map(|(id, used)| {
                let at_ms = used.last.at_ms()?;
                (at_ms > used.written_ms).then_some((*id, at_ms))
            });
            new.collect()
        };
        if new.is_empty() {
            return Ok(());
        }
        self.store.note_grant_uses(&self.project, &new).await?;
        let mut uses = self.uses.lock();
        for (id, at_ms) in new {
            if let Some(used) = uses.get_mut(&id) {
                used.written_ms = used.written_ms.max(at_ms);
            }
        }
        Ok(())
    }
}

/// Parses a stored grant.
pub(super) fn read(row: &GrantRow) -> Option<Grant> {
    let conditions: Vec<Value> = match row.conditions.as_deref() {
        Some(text) => serde_json::from_str(text).ok()?,
        None => Vec::new(),
    };
    let conditions = conditions.iter().map(Condition::from_json);
    let conditions: Vec<Condition> = conditions.collect::<Result<_, _>>().ok()?;
    let grant = Grant::new(&row.server, &row.item, row.alias.as_deref()).ok()?;
    let grant = grant.with_effect(row.effect).ok()?;
    grant.when(conditions).ok()
}
