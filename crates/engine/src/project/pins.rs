//! New and changed tools: shown with their differences, approved or refused by an approver. A
//! decision applies to one version; it is never transferred to another version or name. Entry
//! points: [`Project::tool_changes`] and [`Project::decide_on_tool`].

use std::sync::Arc;

use gantry_model::event::EventKind;
use gantry_model::id::{ServerId, ServerName};
use gantry_model::pin::PinState;
use gantry_store::{ToolChangeRow, ToolVersionRow};
use serde_json::json;

use super::Project;
use crate::acts::{Actor, Draft};
use crate::error::{AdminError, EngineError};

/// A tool, prompt or template of a server.
#[derive(Debug, Clone)]
pub struct PinnedItem {
    /// The server, by name or id.
    pub server: String,
    /// `tool`, `prompt` or `template`.
    pub kind: String,
    /// The server's own name for it.
    pub name: String,
}

impl Project {
    /// Returns the listed items that are not approved, each with its server's name and whether it
    /// is withheld.
    pub async fn tool_changes(
        &self,
    ) -> Result<Vec<(ServerName, bool, ToolChangeRow)>, EngineError> {
        let rows = self.machine.store.tool_changes(&self.name).await?;
        let policy = self.pins.policy();
        let known = rows.into_iter().filter_map(|row| {
            let server = self.supervisor.find(&row.now.server.to_string())?;
            // A refusal keeps the class of the change.
            let is_withheld = policy.withholds(row.now.state, row.now.change);
            Some((server.name.clone(), is_withheld, row))
        });
        Ok(known.collect())
    }

    /// Returns the stored versions of a tool, prompt or template, newest first.
    pub async fn tool_versions(
        &self,
        item: &PinnedItem,
    ) -> Result<(ServerName, Vec<ToolVersionRow>), EngineError> {
        let (id, server) = self.pinned_server(&item.server)?;
        let store = &self.machine.store;
        let versions = store.tool_versions(id, &item.kind, &item.name).await?;
        match versions.is_empty() {
            true => Err(unknown(&server, item).into()),
            false => Ok((server, versions)),
        }
    }

    /// Approves or refuses the listed version of an item.
    pub async fn decide_on_tool(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        item: PinnedItem,
        version: u32,
        state: PinState,
    ) -> Result<(), EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let (id, server) = project.pinned_server(&item.server)?;
            let (_, versions) = project.tool_versions(&item).await?;
            let known = versions.iter().find(|row| row.version == version);
            let changed = || AdminError::ToolVersionChanged {
                tool: format!("{server}:{}", item.name),
            };
            let known = known.ok_or_else(changed)?;
            let verb = match state {
                PinState::Approved => "tool.approve",
                PinState::Unapproved | PinState::Refused => "tool.refuse",
            };
            let shown = |state: &str| {
                json!({"kind": item.kind, "version": version, "hash": known.hash, "state": state})
            };
            let draft = Draft::new(verb, format!("{server}:{}", item.name));
            let draft = draft.before(shown(known.state.as_str()));
            let draft = draft.after(shown(state.as_str()));
            let decide = async {
                match project.decide_in_store(id, &item, version, state, by.name()).await? {
                    true => Ok(()),
                    false => Err(changed().into()),
                }
            };
            project.acts.run(&by, draft, decide).await?;
            let (what, by) = (state.as_str(), by.name());
            let detail = format!("{} `{}` version {version} {what} by {by}", item.kind, item.name);
            project.router.events.report(&server, EventKind::ToolDecided, detail);
            Ok(())
        })
        .await
    }

    /// Writes the store first, memory second, lists last.
    async fn decide_in_store(
        &self,
        id: ServerId,
        item: &PinnedItem,
        version: u32,
        state: PinState,
        by: &str,
    ) -> Result<bool, EngineError> {
        let what = (id, item.kind.as_str(), item.name.as_str());
        let store = &self.machine.store;
        let is_listed = store.decide_on_tool(what, version, state, by).await?;
        self.follow_pins().await?;
        Ok(is_listed)
    }

    /// Applies the approvals in the store.
    pub(super) async fn follow_pins(&self) -> Result<(), EngineError> {
        self.pins.reload().await?;
        self.supervisor.publish();
        Ok(())
    }

    /// Applies the project's policy for tools, if it changed.
    pub(super) async fn follow_pin_policy(&self) -> Result<(), EngineError> {
        if self.pins.follow(&self.settings().tools).await? {
            self.supervisor.publish();
        }
        Ok(())
    }

    fn pinned_server(&self, server: &str) -> Result<(ServerId, ServerName), EngineError> {
        let found = self.supervisor.find(server);
        let found = found.ok_or_else(|| EngineError::UnknownServer {
            name: server.to_owned(),
        })?;
        Ok((found.id, found.name.clone()))
    }
}

fn unknown(server: &ServerName, item: &PinnedItem) -> AdminError {
    AdminError::ToolVersionUnknown {
        kind: item.kind.clone(),
        tool: format!("{server}:{}", item.name),
    }
}
