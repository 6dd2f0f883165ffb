//! The engine as a whole: started, asked, drained.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gantry_model::caller::{Caller, KeyKind};
use gantry_model::era::meta::Identity;
use gantry_model::event::ServerEvent;
use gantry_model::id::{AgentName, CallId, KeyId, ProjectName};
use gantry_model::spec::ServerSpec;
use gantry_model::status::State;
use gantry_sandbox::{HostReport, Sandbox, SandboxOptions};
use gantry_store::{CallFilter, CallRow, Store};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::access::{Access, FirstKeys, KeyView, random};
use crate::audit::{Audit, CallIds};
use crate::catalog::{Catalog, ListedTool};
use crate::clock::unix_ms;
use crate::config::{EngineConfig, OnStartFailure, Startup, StopPolicy};
use crate::driver::process::ProcessDriver;
use crate::error::{CallError, CallFailure, EngineError};
use crate::events::Events;
use crate::folder::DataFolder;
use crate::native::NativeTool;
use crate::request::{Reply, Request, Scope};
use crate::router::Router;
use crate::server::handle::Live;
use crate::server::logs::LogLine;
use crate::server::runner::Surroundings;
use crate::supervisor::{Applied, Supervisor, refresh};
use crate::telemetry::Figures;
use crate::view::{Capabilities, Health, ServerView};

/// Everything that runs. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    project: ProjectName,
    folder: DataFolder,
    store: Store,
    sandbox: Sandbox,
    access: Access,
    catalog: Arc<Catalog>,
    supervisor: Arc<Supervisor>,
    router: Router,
    audit: Audit,
    figures: Arc<Figures>,
    startup: Startup,
    on_start_failure: OnStartFailure,
    stop_policy: StopPolicy,
    /// Requests under way; closed when the engine drains.
    requests: TaskTracker,
    draining: CancellationToken,
    /// Runners, links and the engine's own tasks.
    tracker: TaskTracker,
    stop_tasks: CancellationToken,
    kill_at: watch::Sender<Option<Instant>>,
}

impl Engine {
    /// Takes the data folder, replays the audit, and starts what is registered.
    pub async fn start(config: EngineConfig) -> Result<Self, EngineError> {
        let folder = DataFolder::take(&config.data_dir)?;
        let store = Store::open(&folder.path().join("gantry.db")).await?;
        let audit = Audit::open(
            &folder.inner("journal")?,
            store.clone(),
            config.audit.clone(),
        )
        .await?;
        let instance = instance_name(folder.path());
        let sandbox = Sandbox::probe(SandboxOptions { instance })?;
        let access = Access::load(store.clone(), config.project.clone()).await?;
        let tracker = TaskTracker::new();
        let stop_tasks = CancellationToken::new();
        let (events, queue) = Events::new(config.project.clone());
        tracker.spawn(
            events
                .clone()
                .write(queue, store.clone(), stop_tasks.clone()),
        );
        tracker.spawn(audit.clone().run(stop_tasks.clone()));
        let catalog = Arc::new(Catalog::new(config.expose, config.on_collision));
        let servers = Arc::new(Mutex::new(Vec::new()));
        let (kill_at, kill_at_receiver) = watch::channel(None);
        let changed = {
            // Weak: the catalog holds handles, whose runners hold this.
            let (catalog, servers) = (Arc::downgrade(&catalog), Arc::downgrade(&servers));
            move || {
                if let (Some(catalog), Some(servers)) = (Weak::upgrade(&catalog), servers.upgrade())
                {
                    refresh(&catalog, &servers);
                }
            }
        };
        let around = Arc::new(Surroundings {
            driver: ProcessDriver::new(
                sandbox.clone(),
                config.environment.clone(),
                folder.inner("servers")?,
            ),
            store: store.clone(),
            events: events.clone(),
            tracker: tracker.clone(),
            limits: config.limits,
            first_id: first_id(),
            changed: Arc::new(changed),
            kill_at: kill_at_receiver,
        });
        let supervisor = Arc::new(Supervisor::new(
            config.project.clone(),
            store.clone(),
            around,
            Arc::clone(&catalog),
            servers,
        ));
        let figures = Arc::new(Figures::new());
        let router = Router {
            catalog: Arc::clone(&catalog),
            supervisor: Arc::clone(&supervisor),
            audit: audit.clone(),
            ids: CallIds::new(),
            events,
            figures: Arc::clone(&figures),
            identity: Identity::gantry(),
            listing_wait: config.limits.listing_wait,
        };
        let engine = Self {
            inner: Arc::new(Inner {
                project: config.project,
                folder,
                store,
                sandbox,
                access,
                catalog,
                supervisor,
                router,
                audit,
                figures,
                startup: config.startup,
                on_start_failure: config.on_start_failure,
                stop_policy: config.stop,
                requests: TaskTracker::new(),
                draining: CancellationToken::new(),
                tracker,
                stop_tasks,
                kill_at,
            }),
        };
        engine.inner.supervisor.boot().await?;
        Ok(engine)
    }

    /// Returns the folder everything is kept in.
    pub fn data_dir(&self) -> &Path {
        self.inner.folder.path()
    }

    /// Stops: no new requests, those under way for a while, then every server; the audit is whole.
    pub async fn drain(&self) {
        let inner = &self.inner;
        if inner.draining.is_cancelled() {
            inner.tracker.wait().await;
            return;
        }
        info!("stopping");
        inner
            .kill_at
            .send_replace(Some(Instant::now() + inner.stop_policy.kill_after));
        inner.draining.cancel();
        inner.requests.close();
        if tokio::time::timeout(inner.stop_policy.drain, inner.requests.wait())
            .await
            .is_err()
        {
            warn!(
                calls = inner.requests.len(),
                "calls are still under way and will be cut off"
            );
        }
        inner.supervisor.stop_all().await;
        inner.stop_tasks.cancel();
        inner.tracker.close();
        // The tasks left end by themselves now; a lane's grace need not be waited for.
        drop(tokio::time::timeout(Duration::from_secs(5), inner.tracker.wait()).await);
        if let Err(error) = inner.store.close().await {
            warn!(
                error = &error as &dyn std::error::Error,
                "the store did not close cleanly"
            );
        }
        info!("stopped");
    }

    // ---- keys ----

    /// Makes the first admin and agent key of a data folder; `None` if there are keys already.
    pub async fn first_start(&self) -> Result<Option<FirstKeys>, EngineError> {
        self.inner.access.first_start().await
    }

    /// Returns who a key speaks for, without any I/O.
    pub fn authenticate(&self, key: &str) -> Option<Caller> {
        self.inner.access.authenticate(key)
    }

    /// Makes a key; its text is never shown again.
    pub async fn create_key(
        &self,
        by: &Caller,
        kind: KeyKind,
        agent: &AgentName,
        label: &str,
    ) -> Result<(KeyId, String), EngineError> {
        let (id, key) = self.inner.access.create(kind, agent, label).await?;
        self.note(by, "key.create", &id.to_string(), label).await?;
        Ok((id, key))
    }

    /// Returns all valid keys, as they may be shown.
    pub async fn keys(&self) -> Result<Vec<KeyView>, EngineError> {
        self.inner.access.list().await
    }

    /// Revokes a key; false if there was none.
    pub async fn revoke_key(&self, by: &Caller, id: KeyId) -> Result<bool, EngineError> {
        let known = self.inner.access.revoke(id).await?;
        self.note(by, "key.revoke", &id.to_string(), "").await?;
        Ok(known)
    }

    // ---- servers ----

    /// Registers a server and starts it, or leaves it asleep if it is lazy.
    pub async fn register(&self, by: &Caller, spec: ServerSpec) -> Result<ServerView, EngineError> {
        self.admit()?;
        let name = spec.name.clone();
        let handle = self.inner.supervisor.register(spec).await?;
        self.note(by, "server.register", name.as_str(), "").await?;
        Ok(ServerView::of(&handle))
    }

    /// Makes the servers of files what `specs` says, touching only those that changed.
    pub async fn apply(&self, specs: Vec<ServerSpec>) -> Result<Applied, EngineError> {
        self.admit()?;
        let inner = &self.inner;
        let abort = inner.on_start_failure == OnStartFailure::Abort;
        if inner.startup == Startup::Parallel {
            let names: Vec<_> = specs.iter().map(|spec| spec.name.clone()).collect();
            let applied = inner.supervisor.apply(specs).await?;
            if abort {
                inner.supervisor.settled(START_BOUND).await;
                for name in &names {
                    self.require_started(name.as_str())?;
                }
            }
            return Ok(applied);
        }
        let mut applied = Applied::default();
        for count in 1..=specs.len() {
            applied = inner.supervisor.apply(specs[..count].to_vec()).await?;
            inner.supervisor.settled(START_BOUND).await;
            if abort {
                self.require_started(specs[count - 1].name.as_str())?;
            }
        }
        if specs.is_empty() {
            applied = inner.supervisor.apply(specs).await?;
        }
        Ok(applied)
    }

    fn require_started(&self, name: &str) -> Result<(), EngineError> {
        let Some(handle) = self.inner.supervisor.find(name) else {
            return Ok(());
        };
        match &*handle.live.borrow() {
            Live::Ready(_) | Live::Cold => Ok(()),
            Live::Starting => Err(EngineError::StartFailed {
                server: handle.name.clone(),
                reason: "still starting".into(),
            }),
            Live::Down(reason, _) => Err(EngineError::StartFailed {
                server: handle.name.clone(),
                reason: reason.to_string(),
            }),
        }
    }

    /// Removes a server by name or id; false if there was none.
    pub async fn remove(&self, by: &Caller, server: &str) -> Result<bool, EngineError> {
        let removed = self.inner.supervisor.remove(server).await?;
        if removed {
            self.note(by, "server.remove", server, "").await?;
        }
        Ok(removed)
    }

    /// Ends a server's process and starts it anew, its counters reset.
    pub async fn restart(&self, by: &Caller, server: &str) -> Result<ServerView, EngineError> {
        self.admit()?;
        self.note(by, "server.restart", server, "").await?;
        let handle = self.inner.supervisor.restart(server).await?;
        Ok(ServerView::of(&handle))
    }

    /// Returns all servers, in configuration order.
    pub fn servers(&self) -> Vec<ServerView> {
        self.inner
            .supervisor
            .all()
            .iter()
            .map(ServerView::of)
            .collect()
    }

    /// Returns a server by name or id.
    pub fn server(&self, server: &str) -> Option<ServerView> {
        self.inner
            .supervisor
            .find(server)
            .as_ref()
            .map(ServerView::of)
    }

    /// Returns the last lines that a server wrote beside the protocol.
    pub fn logs(&self, server: &str, lines: usize) -> Option<Vec<LogLine>> {
        self.inner
            .supervisor
            .find(server)
            .map(|handle| handle.logs.last(lines))
    }

    /// Returns what happened to servers, oldest first.
    pub async fn events(
        &self,
        server: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ServerEvent>, EngineError> {
        let handle = server.map(|name| {
            let unknown = || EngineError::UnknownServer {
                name: name.to_owned(),
            };
            self.inner.supervisor.find(name).ok_or_else(unknown)
        });
        let handle = handle.transpose()?;
        let name = handle.as_ref().map(|handle| &handle.name);
        Ok(self
            .inner
            .store
            .events(&self.inner.project, name, limit)
            .await?)
    }

    /// Waits until no eager server is on its way up, but not longer than `within`.
    pub async fn settled(&self, within: Duration) {
        self.inner.supervisor.settled(within).await;
    }

    // ---- the data path ----

    /// Answers one request. Dropping the future takes the call back: the server is told, its lane
    /// is freed, and the audit says `cancelled`.
    pub async fn request(
        &self,
        caller: &Caller,
        request: Request<'_>,
    ) -> Result<Reply, CallFailure> {
        if self.inner.draining.is_cancelled() {
            return Err(CallFailure {
                call: None,
                error: CallError::Stopping,
            });
        }
        let _under_way = self.inner.requests.token();
        self.inner.router.request(caller, request).await
    }

    /// Returns the tools of a caller's view.
    pub fn tools(&self, caller: &Caller, scope: &Scope) -> Vec<ListedTool> {
        self.inner.catalog.view(caller, scope).tools()
    }

    /// Returns what a caller's endpoint can do.
    pub fn capabilities(&self, caller: &Caller, scope: &Scope) -> Capabilities {
        self.inner.catalog.view(caller, scope).capabilities()
    }

    /// Returns a counter that moves whenever somebody's lists may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.catalog.changes()
    }

    /// Registers a tool that runs inside the gateway.
    pub fn native(&self, tool: NativeTool) -> Result<(), EngineError> {
        self.inner.catalog.add_native(tool)
    }

    // ---- audit, health, figures ----

    /// Returns calls, newest first; everything recorded so far is in it.
    pub async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>, EngineError> {
        Ok(self.inner.audit.calls(filter).await?)
    }

    /// Returns one call.
    pub async fn call(&self, id: CallId) -> Result<Option<CallRow>, EngineError> {
        Ok(self.inner.audit.call(id).await?)
    }

    /// Counts calls; everything recorded so far is in it.
    pub async fn count_calls(&self, filter: &CallFilter) -> Result<u64, EngineError> {
        Ok(self.inner.audit.count(filter).await?)
    }

    /// Returns how the engine is.
    pub fn health(&self) -> Health {
        let mut servers = BTreeMap::new();
        let mut warnings = self.inner.catalog.warnings();
        for handle in self.inner.supervisor.all() {
            let status = handle.status.borrow();
            *servers.entry(status.state.as_str()).or_insert(0) += 1;
            // Rows 1.15 and 1.10.
            let what = if status.state == State::Unresponsive {
                Some("is unresponsive")
            } else {
                status.health_warning.then_some("keeps crashing")
            };
            if let Some(what) = what {
                let reason = status.reason.clone().unwrap_or_default();
                warnings.push(format!("server `{}` {what}: {reason}", handle.name));
            }
        }
        let audit = self.inner.audit.health();
        let draining = self.inner.draining.is_cancelled();
        Health {
            ok: audit.writable && !draining,
            draining,
            servers,
            audit,
            warnings,
        }
    }

    /// Returns figures as Prometheus text.
    pub fn metrics(&self) -> String {
        let all = self.inner.supervisor.all();
        self.inner.figures.render(
            all.iter()
                .map(|handle| handle.status.borrow().state.as_str()),
        )
    }

    /// Returns what this host can enforce.
    pub fn host(&self) -> &HostReport {
        self.inner.sandbox.host()
    }

    fn admit(&self) -> Result<(), EngineError> {
        if self.inner.draining.is_cancelled() {
            Err(EngineError::Stopping)
        } else {
            Ok(())
        }
    }

    /// Records what an administrator did.
    async fn note(
        &self,
        by: &Caller,
        act: &str,
        target: &str,
        detail: &str,
    ) -> Result<(), EngineError> {
        let key = by.key.to_string();
        Ok(self
            .inner
            .store
            .put_admin_act(unix_ms(), &key, act, target, detail)
            .await?)
    }
}

/// How long a start that must succeed is waited for; each server's own handshake bound is shorter.
const START_BOUND: Duration = Duration::from_secs(120);

/// Upstream ids begin at a random number of this boot, exact in every JSON library.
fn first_id() -> u64 {
    let random = u64::from(u32::from_le_bytes(random()));
    (random & 0x000f_ffff) << 32
}

/// Names the gateway's own cgroup: the same for the same folder, another for another.
fn instance_name(folder: &Path) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
