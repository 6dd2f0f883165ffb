//! The hooks of a project, for administrators: set, change and remove, by name. They are part of
//! the project's settings. Entry point: [`Project::set_hook`].

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_model::hook::{Hook, Hooks};
use serde_json::Value;

use super::Project;
use crate::acts::Actor;
use crate::error::{AdminError, EngineError};

/// The name of the setting.
const SETTING: &str = "hooks";

impl Project {
    /// Returns the hooks of the project.
    pub fn hooks(&self) -> Hooks {
        self.settings().hooks.clone()
    }

    /// Sets or removes a hook. The registration policy for servers also applies to its command or
    /// URL.
    pub async fn set_hook(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &str,
        hook: Option<Hook>,
    ) -> Result<(), EngineError> {
        let by = by.into();
        let mut hooks: BTreeMap<String, Hook> = self.hooks().into();
        match hook {
            Some(hook) => {
                hooks.insert(name.to_owned(), hook);
            }
            None => {
                let removed = hooks.remove(name);
                removed.ok_or_else(|| AdminError::UnknownHook {
                    name: name.to_owned(),
                })?;
            }
        }
        let value = serde_json::to_value(hooks).unwrap_or(Value::Null);
        let changes = BTreeMap::from([(SETTING.to_owned(), value)]);
        self.change_settings(by, changes).await.map(drop)
    }

    /// Refuses hooks that the registration policy does not allow. fault G8
    pub(super) fn policed_hooks(&self, by: &Actor, hooks: &Hooks) -> Result<(), EngineError> {
        let known = self.hooks();
        let is_new = |(name, hook): &(&str, &Hook)| known.get(name) != Some(*hook);
        for (_, hook) in hooks.iter().filter(is_new) {
            let spec = hook.as_server();
            spec.check()?;
            self.policed(by, spec)?;
        }
        Ok(())
    }

    /// Applies the current settings for hooks and for how long calls wait for an approver.
    pub(super) fn follow_hooks(&self) {
        let settings = self.settings();
        self.router.hooks.follow(&settings.hooks);
        self.router.approvals.follow(settings.approvals.clone());
    }
}
