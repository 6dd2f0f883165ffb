//! Grants and groups of servers, for administrators, and the default grants of new servers. Each
//! change is recorded before its effect (`acts`) and runs to its end (`Project::complete`).

use std::sync::Arc;
use std::time::Duration;

use gantry_model::grant::{Grant, GrantSet, GroupName, Principal, ReadOnlyHint, ServerGroup};
use gantry_model::id::{AgentName, GrantId, KeyId, ServerName};
use gantry_model::jsonrpc::Raw;
use gantry_model::spec::{ServerSpec, Source};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Project;
use crate::access::{Access, FILES_GROUP, GrantView, GroupView};
use crate::acts::{Actor, Draft};
use crate::error::{AdminError, EngineError, Issue};

/// How often uses of grants are written.
const WRITE_USES: Duration = Duration::from_secs(30);

impl Project {
    /// Returns all grants, each with its last use.
    pub async fn grants(&self) -> Result<Vec<GrantView>, EngineError> {
        self.access.grants().await
    }

    /// Returns what an agent may use with any of its keys.
    pub fn grants_of(&self, agent: &AgentName) -> Result<Arc<GrantSet>, EngineError> {
        let set = self.access.set_of_agent(agent);
        set.ok_or_else(|| EngineError::UnknownAgent {
            name: agent.to_string(),
        })
    }

    /// Returns what an agent may use with one of its keys.
    pub fn grants_of_key(&self, key: KeyId) -> Result<Arc<GrantSet>, EngineError> {
        let set = self.access.set_of_key(key);
        set.ok_or_else(|| {
            AdminError::UnknownKey {
                id: key.to_string(),
            }
            .into()
        })
    }

    /// Returns the facts about a tool that decide besides the grants: its hint, and what is wrong
    /// with the arguments, if both are known.
    pub async fn tool_facts(
        &self,
        server: &ServerName,
        tool: &str,
        arguments: Option<Raw<'_>>,
    ) -> ToolFacts {
        let Some(handle) = self.supervisor.find(server.as_str()) else {
            return ToolFacts::default();
        };
        let offered = handle.catalog.load_full();
        let Some(tool) = offered.tools.iter().find(|known| *known.name == *tool) else {
            return ToolFacts::default();
        };
        let issues = match arguments {
            Some(arguments) => tool.issues(arguments, &handle.permits).await,
            None => None,
        };
        ToolFacts {
            is_offered: true,
            hint: tool.hint(),
            issues,
        }
    }

    /// Adds a grant; it applies to every later call. An equal grant of the same principal stays as
    /// it is.
    pub async fn add_grant(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        principal: Principal,
        grant: Grant,
    ) -> Result<GrantView, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("grant.add", principal.to_string())
                .after(json!({"to": principal.to_string(), "grant": grant.pattern()}));
            let act = project.acts.begin(&by, draft).await?;
            let added = match project
                .policed_grants(&by, std::slice::from_ref(&grant))
                .await
            {
                Ok(()) => project.access.add_grant(principal, &grant).await,
                Err(refused) => Err(refused),
            };
            project.regranted();
            let after = added
                .as_ref()
                .ok()
                .map(|id| json!({"id": id.to_string(), "grant": grant.pattern()}));
            act.end_with(&added, None, after).await;
            project.grant(added?).await
        })
        .await
    }

    /// Returns a grant.
    pub async fn grant(&self, id: GrantId) -> Result<GrantView, EngineError> {
        let grants = self.access.grants().await?;
        let found = grants.into_iter().find(|grant| grant.id == id);
        found.ok_or_else(|| AdminError::UnknownGrant { id: id.to_string() }.into())
    }

    /// Removes a grant; false if there was none.
    pub async fn remove_grant(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        id: GrantId,
    ) -> Result<bool, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let Ok(known) = project.grant(id).await else {
                return Ok(false);
            };
            let draft = Draft::new("grant.remove", known.principal.to_string());
            let draft = draft.before(json!({
                "id": id.to_string(), "to": known.principal.to_string(), "grant": known.text,
            }));
            let remove = async {
                let removed = project.access.remove_grant(id).await;
                project.regranted();
                removed
            };
            project.acts.run(&by, draft, remove).await
        })
        .await
    }

    /// Returns all groups of servers; the first is that of configuration files.
    pub async fn groups(&self) -> Result<Vec<GroupView>, EngineError> {
        self.access.groups().await
    }

    /// Returns a group of servers.
    pub async fn group(&self, name: &str) -> Result<GroupView, EngineError> {
        let groups = self.access.groups().await?;
        let found = groups.into_iter().find(|group| group.name == name);
        let name = || name.chars().take(64).flat_map(char::escape_debug).collect();
        found.ok_or_else(|| AdminError::UnknownGroup { name: name() }.into())
    }

    /// Creates a group of servers.
    pub async fn create_group(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        group: ServerGroup,
    ) -> Result<GroupView, EngineError> {
        self.put_group(by.into(), group, false).await
    }

    /// Replaces the members of a group; grants on it apply to the new members from now on.
    pub async fn change_group(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        group: ServerGroup,
    ) -> Result<GroupView, EngineError> {
        self.put_group(by.into(), group, true).await
    }

    async fn put_group(
        self: &Arc<Self>,
        by: Actor,
        group: ServerGroup,
        exists: bool,
    ) -> Result<GroupView, EngineError> {
        let project = Arc::clone(self);
        self.complete(async move {
            let name = group.name.as_str();
            let act = if exists {
                "group.change"
            } else {
                "group.create"
            };
            let mut draft = Draft::new(act, name).after(members(&group));
            if exists {
                let before = project.group(name).await.ok();
                draft.before = before.map(|before| json!({"servers": before.servers}));
            }
            let put = async {
                project.policed_group(&by, &group)?;
                let put = match exists {
                    true => project.access.change_group(&group).await,
                    false => project.access.create_group(&group).await,
                };
                project.regranted();
                put
            };
            project.acts.run(&by, draft, put).await?;
            project.group(name).await
        })
        .await
    }

    /// Removes a group that no grant uses; false if there was none.
    pub async fn remove_group(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &GroupName,
    ) -> Result<bool, EngineError> {
        let (by, project, name) = (by.into(), Arc::clone(self), name.clone());
        self.complete(async move {
            let Ok(known) = project.group(name.as_str()).await else {
                return Ok(false);
            };
            let draft = Draft::new("group.remove", name.as_str());
            let draft = draft.before(json!({"servers": known.servers}));
            let remove = async {
                let removed = project.access.remove_group(&name).await;
                project.regranted();
                removed
            };
            project.acts.run(&by, draft, remove).await
        })
        .await
    }

    /// Grants a new server according to the project's `default_grant`.
    pub(super) async fn offer(&self, server: &ServerName) {
        let to = self.settings().default_grant.principals();
        if to.is_empty() {
            return;
        }
        let is_known = |principal: &Principal| match principal {
            Principal::Agent(name) => self.access.set_of_agent(name).is_some(),
            Principal::Project | Principal::Key(_) => true,
        };
        let to: Vec<_> = to.into_iter().filter(is_known).collect();
        let names: Vec<String> = to.iter().map(ToString::to_string).collect();
        let draft = Draft::new("grant.add", server.as_str()).detail("default_grant");
        let draft = draft.after(json!({"to": names, "grant": format!("{server}:*")}));
        let offer = self.access.offer(server, to);
        let offered = self.acts.run(&Actor::gateway(), draft, offer).await;
        self.regranted();
        if let Err(error) = offered {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, %server, "a new server could not be granted as `default_grant` says");
        }
    }

    /// Returns what the first agent is granted: what the gateway's own configuration files define, also
    /// later, and the servers that are registered by now. What is registered later is granted by somebody,
    /// or by the project's `default_grant`.
    pub(super) fn first_grants(&self) -> Result<Vec<Grant>, EngineError> {
        let mut grants = vec![Grant::new(&format!("@{FILES_GROUP}"), "*", None)?];
        let servers = self.supervisor.all();
        let registered = servers.iter().filter(|server| !is_of_files(&server.spec));
        for server in registered {
            grants.push(Grant::new(server.name.as_str(), "*", None)?);
        }
        Ok(grants)
    }

    /// Returns the servers that run for nobody: there are agents, and none may use them.
    pub(super) fn ungranted(&self) -> Vec<ServerName> {
        let servers = self.supervisor.all();
        let names = servers.iter().filter(|server| server.spec.held().is_none());
        let names = names.map(|server| server.name.clone());
        names
            .filter(|name| self.access.is_granted_to_nobody(name))
            .collect()
    }

    /// Notifies clients whose grants have changed that their lists may have changed.
    pub(super) fn regranted(&self) {
        for agent in self.access.take_regranted() {
            self.catalog.grants_changed(&agent);
        }
    }
}

/// The facts about a tool that decide about a call besides the grants.
#[derive(Debug)]
pub struct ToolFacts {
    /// Whether its server offers it, though it may be suspended.
    pub is_offered: bool,
    /// The tool's hint.
    pub hint: ReadOnlyHint,
    /// What is wrong with the arguments; `None` if they were not checked.
    pub issues: Option<Vec<Issue>>,
}

impl Default for ToolFacts {
    fn default() -> Self {
        Self {
            is_offered: false,
            hint: ReadOnlyHint::NotKnown,
            issues: None,
        }
    }
}

/// Returns whether a server is defined by a file, or built in.
pub(super) fn is_of_files(spec: &ServerSpec) -> bool {
    match spec.source {
        Source::File | Source::Builtin => true,
        Source::Api => false,
    }
}

fn members(group: &ServerGroup) -> serde_json::Value {
    json!({"servers": group.members().collect::<Vec<_>>()})
}

/// Writes the uses of grants periodically, and once more when stopped.
pub(super) async fn write_uses(access: Arc<Access>, stop: CancellationToken) {
    loop {
        let is_last = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = tokio::time::sleep(WRITE_USES) => false,
        };
        if let Err(error) = access.write_uses().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "when grants were last used cannot be written; it is tried again"
            );
        }
        if is_last {
            return;
        }
    }
}
