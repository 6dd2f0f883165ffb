//! Agents and keys, for administrators; each change is recorded before its effect (`acts`) and runs
//! to its end (`Project::complete`).

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::KeyKind;
use gantry_model::id::{AgentName, KeyId};
use gantry_model::limits::RateLimits;

use super::Project;
use crate::access::{AgentChange, AgentView, KeyChange, KeyView, MadeKey, NewAgent, NewKey};
use crate::acts::{Actor, Draft, values};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};

impl Project {
    /// Returns the public views of all valid keys, oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyView>, EngineError> {
        self.access.list().await
    }

    /// Makes a key that ends only when it is revoked, or when the project's policy says; its text is never
    /// shown again.
    pub async fn create_key(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        kind: KeyKind,
        agent: &AgentName,
        label: &str,
    ) -> Result<(KeyId, String), EngineError> {
        let new = NewKey {
            kind,
            agent: agent.clone(),
            label: label.to_owned(),
            expires_ms: None,
            sources: Vec::new(),
            limits: RateLimits::default(),
        };
        let made = self.make_key(by, new).await?;
        Ok((made.id, made.key))
    }

    /// Creates a key; its text is never shown again. An unknown agent is created, without grants.
    pub async fn make_key(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        mut new: NewKey,
    ) -> Result<MadeKey, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let allowed = project.settings().keys.end_of(unix_ms(), new.expires_ms);
            new.expires_ms = allowed.map_err(|longest| AdminError::KeyLifetime { longest })?;
            let draft = Draft::new("key.create", new.agent.as_str()).after(values::new_key(&new));
            let act = project.acts.begin(&by, draft).await?;
            let made = match by.over_key(new.kind) {
                Ok(()) => project.access.create(&new).await,
                Err(refused) => Err(refused),
            };
            // The key has an id only now.
            let target = made.as_ref().ok().map(|made| made.id.to_string());
            act.end_with(&made, target, None).await;
            made
        })
        .await
    }

    /// Changes the label, the sources or the limits of a key; every request from now on is judged by them.
    pub async fn change_key(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        id: KeyId,
        change: KeyChange,
    ) -> Result<KeyView, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let access = &project.access;
            let before = project.key(id).await?;
            let draft = Draft::new("key.change", id.to_string()).before(values::key(&before));
            let act = project
                .acts
                .begin(&by, draft.after(values::key_change(&change)))
                .await?;
            let changed = match by.over_key(before.kind) {
                Ok(()) => access.change_key(id, change).await,
                Err(refused) => Err(refused),
            };
            let after = project.key(id).await;
            act.end_with(&changed, None, after.as_ref().ok().map(values::key))
                .await;
            changed?;
            after
        })
        .await
    }

    /// Makes a key in the place of another, which ends after `overlap`: of the same agent, with the same
    /// grants, sources, limits and lifetime. Returns both; the text of the new one is never shown again.
    pub async fn rotate_key(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        id: KeyId,
        overlap: Duration,
    ) -> Result<(MadeKey, KeyView), EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let before = project.key(id).await?;
            let draft = Draft::new("key.rotate", id.to_string()).before(values::key(&before));
            let act = project.acts.begin(&by, draft).await?;
            let policy = &project.settings().keys;
            let rotated = match by.over_key(before.kind) {
                Ok(()) => project.access.rotate(id, overlap, policy).await,
                Err(refused) => Err(refused),
            };
            let done = rotated.as_ref().ok();
            // Who rotates a key has made the new one, which is what the act is about.
            let target = done.map(|(made, _)| made.id.to_string());
            let after = done.map(|(made, old)| values::rotated(made, old));
            act.end_with(&rotated, target, after).await;
            rotated
        })
        .await
    }

    /// Returns a valid key.
    pub async fn key(&self, id: KeyId) -> Result<KeyView, EngineError> {
        let keys = self.access.list().await?;
        let found = keys.into_iter().find(|key| key.id == id);
        let unknown = || AdminError::UnknownKey { id: id.to_string() };
        Ok(found.ok_or_else(unknown)?)
    }

    /// Revokes a key; false if there was none. The last valid admin key cannot be revoked.
    pub async fn revoke_key(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        id: KeyId,
    ) -> Result<bool, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let access = &project.access;
            let mut draft = Draft::new("key.revoke", id.to_string());
            let keys = access.list().await?;
            let known = keys.iter().find(|key| key.id == id);
            draft.before = known.map(values::key);
            let revoke = async {
                known.map_or(Ok(()), |key| by.over_key(key.kind))?;
                access.revoke(id).await
            };
            project.acts.run(&by, draft, revoke).await
        })
        .await
    }

    /// Returns all agents, by name.
    pub async fn agents(&self) -> Result<Vec<AgentView>, EngineError> {
        self.access.agents().await
    }

    /// Returns an agent.
    pub async fn agent(&self, name: &AgentName) -> Result<AgentView, EngineError> {
        let agents = self.access.agents().await?;
        let found = agents.into_iter().find(|agent| agent.name == *name);
        found.ok_or_else(|| EngineError::UnknownAgent {
            name: name.to_string(),
        })
    }

    /// Creates an agent, with its grants and filter.
    pub async fn create_agent(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        new: NewAgent,
    ) -> Result<AgentView, EngineError> {
        let (by, project, name) = (by.into(), Arc::clone(self), new.name.clone());
        self.complete(async move {
            let draft = Draft::new("agent.create", name.as_str()).after(values::new_agent(&new));
            let create = async {
                project.policed_grants(&by, &new.grants).await?;
                project.access.create_agent(new).await
            };
            project.acts.run(&by, draft, create).await?;
            project.agent(&name).await
        })
        .await
    }

    /// Changes an agent, its grants or its filter; effective for every later call.
    pub async fn change_agent(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &AgentName,
        change: AgentChange,
    ) -> Result<AgentView, EngineError> {
        let (by, project, name) = (by.into(), Arc::clone(self), name.clone());
        self.complete(async move {
            let mut draft = Draft::new("agent.change", name.as_str());
            draft = draft.after(values::change(&change));
            let before = project.agent(&name).await;
            draft.before = before.as_ref().ok().map(values::agent);
            let act = project.acts.begin(&by, draft).await?;
            let granted = change.grants.as_deref().unwrap_or_default();
            let changed = match project.policed_grants(&by, granted).await {
                Ok(()) => project.access.change_agent(&name, change).await,
                Err(refused) => Err(refused),
            };
            if changed.is_ok() {
                project.catalog.grants_changed(&name);
                project.regranted();
            }
            let after = project.agent(&name).await;
            act.end_with(&changed, None, after.as_ref().ok().map(values::agent))
                .await;
            changed?;
            after
        })
        .await
    }

    /// Removes an agent, its grants and its keys; false if there was none. The agent of the last
    /// valid admin key cannot be removed.
    pub async fn remove_agent(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &AgentName,
    ) -> Result<bool, EngineError> {
        let (by, project, name) = (by.into(), Arc::clone(self), name.clone());
        self.complete(async move {
            let known = match project.agent(&name).await {
                Err(EngineError::UnknownAgent { .. }) => return Ok(false),
                known => known?,
            };
            let draft = Draft::new("agent.remove", name.as_str()).before(values::agent(&known));
            let remove = async {
                let mut keys = known.keys.iter();
                keys.try_for_each(|key| by.over_key(key.kind))?;
                project.access.remove_agent(&name).await
            };
            project.acts.run(&by, draft, remove).await
        })
        .await
    }
}
