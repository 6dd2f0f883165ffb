//! Administrative changes of servers, and how every change runs. Each change is recorded before its
//! effect (`acts`), and runs as its own task to its end, including its record, even if the caller
//! is gone (fault P10): dropping the future leaves nothing half-done. Changes by files are in
//! `files`. Entry point: `Project::complete`.

use std::io;
use std::sync::Arc;

use gantry_model::caller::Role;
use gantry_model::spec::ServerSpec;
use serde_json::json;

use super::Project;
use super::volumes::Volumes;
use crate::access::FirstKeys;
use crate::acts::values::{self, difference};
use crate::acts::{Actor, Draft, Values};
use crate::error::EngineError;
use crate::server::handle::ServerHandle;
use crate::server::logs::LogLine;
use crate::supervisor::of_api;
use crate::view::ServerView;

impl Project {
    /// Creates the first admin and agent key of a data folder; `None` if there are keys already.
    ///
    /// `keep` stores them for their owner before they are valid.
    pub async fn first_start(
        self: &Arc<Self>,
        keep: impl FnOnce(&FirstKeys) -> io::Result<()> + Send + 'static,
    ) -> Result<Option<FirstKeys>, EngineError> {
        let project = Arc::clone(self);
        self.complete(async move {
            let keep = |keys: &FirstKeys| {
                keep(keys).map_err(|source| EngineError::Folder {
                    folder: project.machine.folder.path().to_owned(),
                    source,
                })
            };
            let access = &project.access;
            let role = match project.is_default() {
                true => Role::Installation,
                false => Role::Admin,
            };
            if access.has_keys() {
                return access.first_start(role, &[], keep).await;
            }
            let grants = project.first_grants()?;
            let draft =
                Draft::new("key.create", "first start").detail("the first keys of the folder");
            let act = project.acts.begin(&Actor::gateway(), draft).await?;
            let made = access.first_start(role, &grants, keep).await;
            let keys = access.list().await.unwrap_or_default();
            let after = keys
                .iter()
                .map(|key| (key.id.to_string(), values::key(key)));
            let after = after.collect::<serde_json::Map<_, _>>();
            act.end_with(&made, None, Some(after.into())).await;
            made
        })
        .await
    }

    /// Registers a server and starts it, unless it is lazy.
    pub async fn register(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        spec: ServerSpec,
    ) -> Result<ServerView, EngineError> {
        let by = by.into();
        self.admit()?;
        let project = Arc::clone(self);
        self.complete(async move {
            let acts = &project.acts;
            let draft = Draft::new("server.register", spec.name.as_str());
            // What is refused shows no fingerprint, or values of the server that has this name could be
            // guessed without changing it.
            let after = match project.supervisor.find(spec.name.as_str()) {
                None => acts.values.spec(&spec),
                Some(_) => Values::asked(&spec),
            };
            let register = project.register_policed(&by, spec);
            let handle = acts.run(&by, draft.after(after), register).await?;
            project.offer(&handle.name).await;
            Ok(ServerView::of(&handle))
        })
        .await
    }

    async fn register_policed(
        &self,
        by: &Actor,
        spec: ServerSpec,
    ) -> Result<Arc<ServerHandle>, EngineError> {
        let spec = self.policed(by, spec)?;
        spec.check()?;
        if self.supervisor.find(spec.name.as_str()).is_none() {
            self.secrets_follow(by, &spec.name, Some(&spec)).await?;
            if by.may_bind_secrets() {
                self.secrets.bind_waiting(&spec).await?;
            }
        }
        self.supervisor.register(spec).await
    }

    /// Replaces the spec of a server that was registered over the API, and restarts it if it
    /// changed.
    pub async fn replace(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        spec: ServerSpec,
    ) -> Result<ServerView, EngineError> {
        let by = by.into();
        self.admit()?;
        let project = Arc::clone(self);
        self.complete(async move {
            let acts = &project.acts;
            let mut draft = Draft::new("server.replace", spec.name.as_str());
            let known = project.supervisor.find(spec.name.as_str());
            let checked = project.may_replace(&by, &spec).await;
            draft = match known.filter(|_| checked.is_ok()) {
                Some(known) => {
                    let before = acts.values.spec(&known.spec);
                    let (before, after) = difference(&before, &acts.values.spec(&spec));
                    draft.before(before).after(after)
                }
                // Refused: see `register`.
                None => draft.after(Values::asked(&spec)),
            };
            let replace = async { project.replace_checked(&by, checked?).await };
            let handle = acts.run(&by, draft, replace).await?;
            Ok(ServerView::of(&handle))
        })
        .await
    }

    /// Returns the spec as the policy has it, if it may take the place of the server's.
    async fn may_replace(&self, by: &Actor, spec: &ServerSpec) -> Result<ServerSpec, EngineError> {
        self.not_of_product(spec.name.as_str()).await?;
        let spec = self.policed(by, spec.clone())?;
        spec.check()?;
        if let Some(known) = self.supervisor.find(spec.name.as_str()) {
            of_api(&known.spec)?;
        }
        Ok(spec)
    }

    async fn replace_checked(
        &self,
        by: &Actor,
        spec: ServerSpec,
    ) -> Result<Arc<ServerHandle>, EngineError> {
        if self.supervisor.find(spec.name.as_str()).is_some() {
            self.secrets_follow(by, &spec.name, Some(&spec)).await?;
        }
        self.supervisor.replace(spec).await
    }

    /// Checks a spec without starting or storing anything, and records the preview. fault G8
    pub async fn preview(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        spec: &ServerSpec,
    ) -> Result<(), EngineError> {
        let by = by.into();
        self.admit()?;
        let (project, spec) = (Arc::clone(self), spec.clone());
        self.complete(async move {
            let acts = &project.acts;
            let draft = Draft::new("server.preview", spec.name.as_str());
            let draft = draft.after(json!({"asked": Values::asked(&spec)}));
            let check = async {
                spec.check()?;
                project.allowed(&spec)
            };
            acts.run(&by, draft, check).await?;
            project.supervisor.previewed(&spec.name);
            Ok(())
        })
        .await
    }

    /// Starts a server without registering it, lists its items, and stops it again. fault G8
    pub async fn try_out(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        spec: ServerSpec,
    ) -> Result<(ServerView, Vec<LogLine>), EngineError> {
        let by = by.into();
        self.admit()?;
        let project = Arc::clone(self);
        self.complete(async move {
            let acts = &project.acts;
            let asked = Values::asked(&spec);
            let draft = Draft::new("server.test", spec.name.as_str());
            let draft = draft.after(json!({"asked": asked.clone()}));
            let act = acts.begin(&by, draft).await?;
            let tried = project.try_policed(&by, spec).await;
            let after = tried
                .as_ref()
                .ok()
                .map(|(view, _)| json!({"asked": asked, "state": view.status.state.as_str()}));
            act.end_with(&tried, None, after).await;
            tried
        })
        .await
    }

    async fn try_policed(
        &self,
        by: &Actor,
        spec: ServerSpec,
    ) -> Result<(ServerView, Vec<LogLine>), EngineError> {
        let spec = self.policed(by, spec)?;
        spec.check()?;
        // It works where a server of that name would.
        if self.supervisor.find(spec.name.as_str()).is_none() {
            self.secrets_follow(by, &spec.name, Some(&spec)).await?;
        }
        self.supervisor.try_out(spec).await
    }

    /// Removes a registered server, by name or id, and waits until its process has ended; false if
    /// there was none. A server of a file is removed by changing the file.
    pub async fn remove(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        server: &str,
    ) -> Result<bool, EngineError> {
        self.remove_with(by, server, Volumes::Keep).await
    }

    /// Removes a server like [`Project::remove`], optionally with its volumes.
    pub async fn remove_with(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        server: &str,
        volumes: Volumes,
    ) -> Result<bool, EngineError> {
        let (by, project, server) = (by.into(), Arc::clone(self), server.to_owned());
        self.complete(async move {
            let (acts, supervisor) = (&project.acts, &project.supervisor);
            let Some(known) = supervisor.find(&server) else {
                // Waits for a server that is already being removed, too.
                return supervisor.remove(&server).await;
            };
            let draft = Draft::new("server.remove", known.name.as_str());
            let draft = draft.before(acts.values.spec(&known.spec));
            let remove = async {
                project.not_of_product(known.name.as_str()).await?;
                of_api(&known.spec)?;
                project.secrets_follow(&by, &known.name, None).await?;
                let removed = supervisor.remove(&server).await?;
                if removed {
                    project.clear_place(known.name.clone(), volumes).await;
                }
                Ok(removed)
            };
            acts.run(&by, draft, remove).await
        })
        .await
    }

    /// Restarts a server's process, its counters reset.
    pub async fn restart(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        server: &str,
    ) -> Result<ServerView, EngineError> {
        let by = by.into();
        self.admit()?;
        let (project, server) = (Arc::clone(self), server.to_owned());
        self.complete(async move {
            let state = |server: &str| {
                let handle = project.supervisor.find(server)?;
                let status = handle.status.borrow();
                Some(json!({"state": status.state.as_str(), "pid": status.pid}))
            };
            let mut draft = Draft::new("server.restart", server.as_str());
            draft.before = state(&server);
            // A server that hangs is restarted even if the database is unavailable.
            let act = project.acts.begin_anyway(&by, draft).await;
            let handle = project.supervisor.restart(&server).await;
            act.end_with(&handle, None, state(&server)).await;
            handle.map(|handle| ServerView::of(&handle))
        })
        .await
    }

    /// Runs a change to its end, even if the caller stops waiting.
    pub(crate) async fn complete<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        match self.machine.changes.spawn(change).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                // The caller gets the panic as if it had run the change itself.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => Err(EngineError::Stopping),
            },
        }
    }

    pub(crate) fn admit(&self) -> Result<(), EngineError> {
        if self.machine.draining.is_cancelled() {
            Err(EngineError::Stopping)
        } else {
            Ok(())
        }
    }
}
