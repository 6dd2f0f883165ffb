//! The settings of a project in memory: read when it is opened, written to the store before memory,
//! and read again when another gateway has changed them. Entry points: [`Project::settings`] and
//! [`Project::change_settings`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use gantry_model::caller::Role;
use gantry_model::id::ProjectName;
use gantry_model::settings::{ProjectSettings, Setting};
use gantry_store::Store;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::Project;
use crate::acts::values::difference;
use crate::acts::{Actor, Draft};
use crate::audit::Audit;
use crate::error::{AdminError, EngineError};
use crate::limits::CallLimits;

/// The current settings.
pub(crate) struct SettingsHolder {
    now: ArcSwap<ProjectSettings>,
    /// The last read revision.
    revision: AtomicU64,
    /// Held during a change.
    changing: Mutex<()>,
    /// Records calls as the settings say.
    audit: Audit,
    /// Limits what all agents together may use.
    limits: Arc<CallLimits>,
}

impl SettingsHolder {
    /// Reads the settings of a project. An unreadable one is an error: a policy never falls back to
    /// a weaker one.
    pub(crate) async fn load(
        store: &Store,
        project: &ProjectName,
        audit: Audit,
        limits: Arc<CallLimits>,
    ) -> Result<Self, EngineError> {
        let holder = Self {
            now: ArcSwap::default(),
            revision: AtomicU64::new(0),
            changing: Mutex::default(),
            audit,
            limits,
        };
        holder.reload(store, project).await?;
        Ok(holder)
    }

    /// Returns them as they are now.
    pub(crate) fn now(&self) -> Arc<ProjectSettings> {
        self.now.load_full()
    }

    /// Reads them again if another gateway has changed them since.
    pub(crate) async fn refresh(
        &self,
        store: &Store,
        project: &ProjectName,
        revision: u64,
    ) -> Result<(), EngineError> {
        if self.revision.load(Ordering::Acquire) == revision {
            return Ok(());
        }
        let _one = self.changing.lock().await;
        self.reload(store, project).await
    }

    async fn reload(&self, store: &Store, project: &ProjectName) -> Result<(), EngineError> {
        // Read before the rows: a change in between is read again.
        let revision = store.changes(project).await?.settings;
        let stored = store.settings(project).await?;
        let settings = ProjectSettings::from_stored(stored).map_err(AdminError::from)?;
        self.hold(project, settings);
        self.revision.store(revision, Ordering::Release);
        Ok(())
    }

    /// Has settings hold from now on.
    fn hold(&self, project: &ProjectName, settings: ProjectSettings) {
        self.audit.set_project(project.as_str(), &settings.audit);
        self.limits.set_project(&settings.limits);
        self.now.store(Arc::new(settings));
    }
}

impl Project {
    /// Returns the current settings of the project.
    pub fn settings(&self) -> Arc<ProjectSettings> {
        self.settings.now()
    }

    /// Changes settings, all of them or none; `null` restores a default.
    pub async fn change_settings(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        changes: BTreeMap<String, Value>,
    ) -> Result<Arc<ProjectSettings>, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let (holder, store) = (&project.settings, &project.machine.store);
            let _one = holder.changing.lock().await;
            let before = project.settings();
            let mut after = ProjectSettings::clone(&before);
            let mut rows = Vec::new();
            for (name, value) in changes {
                after.set(&name, value).map_err(AdminError::from)?;
                let setting = Setting::named(&name).map_err(AdminError::from)?;
                let value = after.get(setting);
                let value = (value != setting.default()).then_some(value);
                rows.push((name, value));
            }
            project.policed_hooks(&by, &after.hooks)?;
            let shown = |settings: &ProjectSettings| {
                let settings = settings.shown();
                let values = rows.iter().filter_map(|(name, _)| {
                    let setting = Setting::named(name).ok()?;
                    Some((name.clone(), settings.get(setting)))
                });
                Value::Object(values.collect::<Map<_, _>>())
            };
            let (was, is) = difference(&shown(&before), &shown(&after));
            let draft = Draft::new("settings.change", project.name.as_str());
            let draft = draft.before(was).after(is);
            let act = project.acts.begin(&by, draft).await?;
            let changed = match may_change_policy(&by, &before, &after) {
                Ok(()) => store.change_settings(&project.name, &rows).await,
                Err(refused) => {
                    let refused = Err(EngineError::from(refused));
                    act.end(&refused).await;
                    return refused;
                }
            };
            if changed.is_ok() {
                holder.hold(&project.name, after);
                // Some settings decide what grants mean.
                if let Err(error) = project.access.reread().await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "grants could not be reloaded; it is retried at the next check"
                    );
                }
                project.regranted();
            }
            let changed = changed.map_err(EngineError::from);
            act.end(&changed).await;
            changed?;
            project.follow_pin_policy().await?;
            project.follow_hooks();
            Ok(project.settings())
        })
        .await
    }
}

/// Refuses a change of the registration policy by an administrator who is subject to a second
/// person: otherwise the policy could be weakened alone.
fn may_change_policy(
    by: &Actor,
    before: &ProjectSettings,
    after: &ProjectSettings,
) -> Result<(), AdminError> {
    let is_same = before.registration == after.registration;
    let is_asked = !before.registration.approve.is_empty();
    match by.role() {
        Some(role) if is_asked && !is_same && role != Role::Installation => {
            Err(AdminError::PolicyOfInstallation)
        }
        _ => Ok(()),
    }
}
