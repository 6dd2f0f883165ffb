//! Projects, for administrators of the installation: create, list, unload, load, delete. Each is an
//! act in the log of the folder's own project, written before its effect.
//!
//! An unloaded project runs nothing: its servers are stopped, its calls have ended, its keys are
//! known but refused. A deleted one leaves only its record of calls, events and acts (fault T9).
//! Changes by other gateways are followed by the revision of the installation.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::KeyEnd;
use gantry_model::id::ProjectName;
use gantry_model::suspension::Suspendable;
use gantry_store::ProjectRow;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::{Engine, Inner};
use crate::access::Access;
use crate::acts::{Actor, Draft};
use crate::error::{AdminError, EngineError};
use crate::project::Project;

/// How often to check for changes of other gateways.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The public view of a project.
#[derive(Debug, Clone)]
pub struct ProjectView {
    /// Its name.
    pub name: ProjectName,
    /// Its description.
    pub description: String,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// Whether it is the project of the data folder itself.
    pub is_default: bool,
    /// Whether its servers run.
    pub loaded: bool,
    /// Whether all access of its agents is suspended.
    pub suspended: bool,
    /// How many servers it has; unknown while it is not loaded.
    pub servers: Option<usize>,
}

impl Engine {
    /// Returns all projects, by name.
    pub async fn project_views(&self) -> Result<Vec<ProjectView>, EngineError> {
        let rows = self.inner.machine.store.project_rows().await?;
        Ok(rows.into_iter().map(|row| self.project_view(row)).collect())
    }

    fn project_view(&self, row: ProjectRow) -> ProjectView {
        let open = self.project(&row.name);
        let is_suspended =
            |project: &Arc<Project>| project.suspensions().of(&Suspendable::Project).is_some();
        ProjectView {
            is_default: self.inner.machine.is_default(&row.name),
            loaded: row.loaded,
            suspended: open.as_ref().is_some_and(is_suspended),
            servers: open.map(|project| project.supervisor.all().len()),
            name: row.name,
            description: row.description,
            created_ms: row.created_ms,
        }
    }

    /// Returns a project, loaded or not.
    pub async fn project_view_of(&self, name: &ProjectName) -> Result<ProjectView, EngineError> {
        let views = self.project_views().await?;
        let found = views.into_iter().find(|view| view.name == *name);
        found.ok_or_else(|| unknown(name))
    }

    /// Creates a project and opens it. The name of a deleted project whose record is kept is
    /// refused: its calls and acts would appear in the new one.
    pub async fn create_project(
        &self,
        by: impl Into<Actor>,
        name: ProjectName,
        description: &str,
    ) -> Result<Arc<Project>, EngineError> {
        let (by, engine, text) = (by.into(), self.clone(), description.to_owned());
        let default = self.default_project();
        default.admit()?;
        let acting = Arc::clone(&default);
        default
            .complete(async move {
                let draft = Draft::new("project.create", name.as_str());
                let draft = draft.after(json!({ "description": text }));
                acting
                    .acts
                    .run(&by, draft, engine.create(name, &text))
                    .await
            })
            .await
    }

    async fn create(
        &self,
        name: ProjectName,
        description: &str,
    ) -> Result<Arc<Project>, EngineError> {
        let store = &self.inner.machine.store;
        if store.has_record(&name).await? {
            return Err(AdminError::ProjectNameUsed { name }.into());
        }
        if !store.create_project(&name, description).await? {
            return Err(AdminError::ProjectExists { name }.into());
        }
        self.open(name, true).await
    }

    /// Changes the description of a project.
    pub async fn describe_project(
        &self,
        by: impl Into<Actor>,
        name: &ProjectName,
        description: &str,
    ) -> Result<(), EngineError> {
        let (by, engine) = (by.into(), self.clone());
        let (name, text) = (name.clone(), description.to_owned());
        let default = self.default_project();
        let acting = Arc::clone(&default);
        default
            .complete(async move {
                let known = engine.project_view_of(&name).await?;
                let draft = Draft::new("project.change", name.as_str());
                let draft = draft.before(json!({ "description": known.description }));
                let draft = draft.after(json!({ "description": text }));
                let describe = async {
                    let store = &engine.inner.machine.store;
                    store.describe_project(&name, &text).await?;
                    Ok(())
                };
                acting.acts.run(&by, draft, describe).await
            })
            .await
    }

    /// Stops everything of a project permanently, also over restarts. row 0.5
    pub async fn unload_project(
        &self,
        by: impl Into<Actor>,
        name: &ProjectName,
    ) -> Result<(), EngineError> {
        self.change_project(by, name, "project.unload", |engine, name| async move {
            let store = &engine.inner.machine.store;
            store.set_project_loaded(&name, false).await?;
            engine.shut(&name, KeyEnd::Suspended).await
        })
        .await
    }

    /// Loads an unloaded project again.
    pub async fn load_project(
        &self,
        by: impl Into<Actor>,
        name: &ProjectName,
    ) -> Result<(), EngineError> {
        self.change_project(by, name, "project.load", |engine, name| async move {
            let store = &engine.inner.machine.store;
            store.set_project_loaded(&name, true).await?;
            engine.open(name, true).await.map(drop)
        })
        .await
    }

    /// Deletes a project: ends its calls and processes, deletes its volumes, servers, agents, keys,
    /// grants, secrets and settings. Its record of calls, events and acts is kept. fault T9
    pub async fn delete_project(
        &self,
        by: impl Into<Actor>,
        name: &ProjectName,
    ) -> Result<(), EngineError> {
        self.change_project(by, name, "project.delete", |engine, name| async move {
            engine.shut(&name, KeyEnd::Revoked).await?;
            engine.remove_files(&name).await;
            engine.inner.machine.store.remove_project(&name).await?;
            engine.forget_unloaded(&name);
            Ok(())
        })
        .await
    }

    /// Changes another project than the folder's own, and records it.
    async fn change_project<F>(
        &self,
        by: impl Into<Actor>,
        name: &ProjectName,
        act: &'static str,
        change: impl FnOnce(Self, ProjectName) -> F + Send + 'static,
    ) -> Result<(), EngineError>
    where
        F: Future<Output = Result<(), EngineError>> + Send + 'static,
    {
        let (by, engine, name) = (by.into(), self.clone(), name.clone());
        let default = self.default_project();
        let acting = Arc::clone(&default);
        default
            .complete(async move {
                let known = engine.project_view_of(&name).await?;
                let draft = Draft::new(act, name.as_str());
                let draft = draft.before(json!({
                    "loaded": known.loaded, "description": known.description,
                }));
                let change = async {
                    match known.is_default {
                        true => Err(AdminError::ProjectOfFolder { name }.into()),
                        false => change(engine, name).await,
                    }
                };
                acting.acts.run(&by, draft, change).await
            })
            .await
    }

    /// Ends everything that a project runs: first its calls and streams, then its servers.
    async fn shut(&self, name: &ProjectName, how: KeyEnd) -> Result<(), EngineError> {
        let inner = &self.inner;
        let _one = inner.opening.lock().await;
        let Some(project) = self.project(name) else {
            // It is already unloaded; its keys may end permanently now.
            if let Some(access) = inner.unloaded.load().get(name) {
                access.close(how);
            }
            return Ok(());
        };
        let mut unloaded = HashMap::clone(&inner.unloaded.load());
        unloaded.insert(name.clone(), Arc::clone(&project.access));
        inner.unloaded.store(Arc::new(unloaded));
        let mut projects = HashMap::clone(&inner.projects.load());
        projects.remove(name);
        inner.projects.store(Arc::new(projects));
        project.access.close(how);
        project.shut().await;
        info!(project = %name, "the project is not loaded any more");
        Ok(())
    }

    fn forget_unloaded(&self, name: &ProjectName) {
        let mut unloaded = HashMap::clone(&self.inner.unloaded.load());
        unloaded.remove(name);
        self.inner.unloaded.store(Arc::new(unloaded));
    }

    /// Loads the keys of an unloaded project, so that their holders get a specific error.
    pub(super) async fn know_unloaded(&self, name: ProjectName) -> Result<(), EngineError> {
        let machine = &self.inner.machine;
        let changed = machine.keys_changed.clone();
        let access = Access::load(machine.store.clone(), name.clone(), changed).await?;
        access.close(KeyEnd::Suspended);
        let mut unloaded = HashMap::clone(&self.inner.unloaded.load());
        unloaded.insert(name, Arc::new(access));
        self.inner.unloaded.store(Arc::new(unloaded));
        Ok(())
    }

    /// Removes the files of a project's servers on this machine, and its images.
    async fn remove_files(&self, name: &ProjectName) {
        let (machine, name) = (Arc::clone(&self.inner.machine), name.clone());
        let removing = tokio::task::spawn_blocking(move || {
            let disks = machine.hosted.disks();
            if let Err(error) = disks.forget_project(&name) {
                let why = gantry_model::diagnose::chain(&error);
                warn!(project = %name, why, "volumes of a deleted project are still there");
            }
            machine.remove_folders(&name);
            if let Err(error) = machine.images.forget(&name) {
                let why = gantry_model::diagnose::chain(&error);
                warn!(project = %name, why, "images of a deleted project are still there");
            }
        });
        drop(removing.await);
    }

    /// Opens, unloads and closes projects as other gateways do, until the engine stops.
    pub(super) async fn follow_projects(inner: std::sync::Weak<Inner>) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = None;
        loop {
            let Some(stop) = inner
                .upgrade()
                .map(|inner| inner.machine.stop_tasks.clone())
            else {
                return;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            let Some(inner) = inner.upgrade() else {
                return;
            };
            let engine = Self { inner };
            let Ok(revision) = engine.inner.machine.store.projects_revision().await else {
                continue;
            };
            if seen == Some(revision) || engine.is_draining() {
                continue;
            }
            match engine.take_projects().await {
                Ok(()) => seen = Some(revision),
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "changes of projects cannot be followed"
                ),
            }
        }
    }

    async fn take_projects(&self) -> Result<(), EngineError> {
        let rows = self.inner.machine.store.project_rows().await?;
        for open in self.projects() {
            let name = open.name();
            match rows.iter().find(|row| row.name == *name) {
                _ if self.inner.machine.is_default(name) => {}
                Some(row) if row.loaded => {}
                Some(_) => self.shut(name, KeyEnd::Suspended).await?,
                None => {
                    self.shut(name, KeyEnd::Revoked).await?;
                    self.remove_files(name).await;
                    self.forget_unloaded(name);
                }
            }
        }
        for row in rows.into_iter().filter(|row| row.loaded) {
            if self.project(&row.name).is_none() {
                self.open_or_say(row.name).await;
            }
        }
        Ok(())
    }

    /// Opens a project; one that cannot be opened stays closed without affecting others.
    pub(super) async fn open_or_say(&self, name: ProjectName) {
        if let Err(error) = self.open(name.clone(), true).await {
            error!(
                project = %name,
                error = &error as &dyn std::error::Error,
                "the project cannot be opened and stays closed"
            );
        }
    }
}

fn unknown(name: &ProjectName) -> EngineError {
    AdminError::UnknownProject {
        name: name.to_string(),
    }
    .into()
}
