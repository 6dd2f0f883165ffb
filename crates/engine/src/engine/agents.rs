//! Agents and keys as administrators see and change them; each change runs to its end
//! (`Engine::complete`) and is recorded.

use gantry_model::caller::{Caller, KeyKind};
use gantry_model::id::{AgentName, KeyId};

use super::Engine;
use crate::access::{AgentChange, AgentView, KeyView, NewAgent, NewKey};
use crate::error::EngineError;

impl Engine {
    /// Returns all valid keys, oldest first, as they may be shown.
    pub async fn keys(&self) -> Result<Vec<KeyView>, EngineError> {
        self.inner.access.list().await
    }

    /// Makes a key that ends only when it is revoked; its text is never shown again.
    pub async fn create_key(
        &self,
        by: &Caller,
        kind: KeyKind,
        agent: &AgentName,
        label: &str,
    ) -> Result<(KeyId, String), EngineError> {
        let new = NewKey {
            kind,
            agent: agent.clone(),
            label: label.to_owned(),
            expires_ms: None,
        };
        self.make_key(by, new).await
    }

    /// Makes a key; its text is never shown again. An agent that is not known is made, without grants.
    pub async fn make_key(&self, by: &Caller, new: NewKey) -> Result<(KeyId, String), EngineError> {
        let (engine, by) = (self.clone(), by.clone());
        self.complete(async move {
            let (id, key) = engine.inner.access.create(&new).await?;
            let target = id.to_string();
            engine.note(&by, "key.create", &target, &new.label).await?;
            Ok((id, key))
        })
        .await
    }

    /// Revokes a key; false if there was none. The last valid admin key cannot be revoked.
    pub async fn revoke_key(&self, by: &Caller, id: KeyId) -> Result<bool, EngineError> {
        let (engine, by) = (self.clone(), by.clone());
        self.complete(async move {
            let known = engine.inner.access.revoke(id).await?;
            let target = id.to_string();
            engine.note(&by, "key.revoke", &target, "").await?;
            Ok(known)
        })
        .await
    }

    /// Returns all agents, by name.
    pub async fn agents(&self) -> Result<Vec<AgentView>, EngineError> {
        self.inner.access.agents().await
    }

    /// Returns an agent.
    pub async fn agent(&self, name: &AgentName) -> Result<AgentView, EngineError> {
        let agents = self.inner.access.agents().await?;
        let found = agents.into_iter().find(|agent| agent.name == *name);
        found.ok_or_else(|| EngineError::UnknownAgent {
            name: name.to_string(),
        })
    }

    /// Makes an agent, with its grants and filter.
    pub async fn create_agent(&self, by: &Caller, new: NewAgent) -> Result<AgentView, EngineError> {
        let (engine, by, name) = (self.clone(), by.clone(), new.name.clone());
        self.complete(async move {
            engine.inner.access.create_agent(new).await?;
            let target = name.as_str();
            engine.note(&by, "agent.create", target, "").await?;
            engine.agent(&name).await
        })
        .await
    }

    /// Changes an agent, its grants or its filter; every call from now on is judged by them.
    pub async fn change_agent(
        &self,
        by: &Caller,
        name: &AgentName,
        change: AgentChange,
    ) -> Result<AgentView, EngineError> {
        let (engine, by, name) = (self.clone(), by.clone(), name.clone());
        self.complete(async move {
            engine.inner.access.change_agent(&name, change).await?;
            engine.inner.catalog.granted_anew(&name);
            let target = name.as_str();
            engine.note(&by, "agent.change", target, "").await?;
            engine.agent(&name).await
        })
        .await
    }

    /// Removes an agent, its grants and its keys, which open nothing from now on; false if there
    /// was none. The agent of the last valid admin key cannot be removed.
    pub async fn remove_agent(&self, by: &Caller, name: &AgentName) -> Result<bool, EngineError> {
        let (engine, by, name) = (self.clone(), by.clone(), name.clone());
        self.complete(async move {
            let known = engine.inner.access.remove_agent(&name).await?;
            if known {
                let target = name.as_str();
                engine.note(&by, "agent.remove", target, "").await?;
            }
            Ok(known)
        })
        .await
    }
}
