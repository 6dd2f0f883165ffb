//! The engine as a whole: started, asked, drained. What administrators change is in `changes`.

mod agents;
mod changes;
mod files;
mod guesses;
mod record;
mod shown;
mod sign_in;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::era::meta::Identity;
use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::id::{CallId, ProjectName, ServerName};
use gantry_model::status::State;
use gantry_sandbox::{HostReport, Sandbox, SandboxOptions};
use gantry_store::{CallFilter, CallRow, Store};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::access::{Access, random};
use crate::acts::{Acts, Values};
use crate::answers::AnswerBudget;
use crate::audit::{Audit, AuditHealth, CallIds};
use crate::catalog::{Catalog, ListedTool};
use crate::clock::unix_ms;
use crate::config::{EngineConfig, OnStartFailure, Startup, StopPolicy};
use crate::credentials::Vault;
use crate::driver::process::ProcessDriver;
use crate::error::{CallError, CallFailure, EngineError};
use crate::events::Events;
use crate::folder::DataFolder;
use crate::native::NativeTool;
use crate::request::{Announced, Reply, Request, Scope, Speaker};
use crate::router::{Links, Refreshes, Router};
use crate::server::logs::LogLine;
use crate::server::runner::Surroundings;
use crate::server::topics::{Hearer, Subscription, TopicTable};
use crate::supervisor::{Supervisor, refresh};
use crate::telemetry::Figures;
use crate::view::{Capabilities, Health, HealthStatus, ListMarks};

/// Everything that runs: servers, native tools, grants, the record of calls. Cheap to clone.
///
/// Who embeds it starts it, gives it servers ([`Engine::apply`]) and native tools
/// ([`Engine::native`]), makes a caller of an agent ([`Engine::caller`]), shows a model its tools
/// ([`Engine::tools_in`]), answers the model's calls ([`Engine::call_from`]), and drains it.
///
/// ```no_run
/// use gantry_engine::model::{grant::GrantSet, shape::Shape};
/// use gantry_engine::{CallOptions, Engine, EngineConfig, Scope};
///
/// # async fn run(message: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::start(EngineConfig::new("/var/lib/my-agent")).await?;
/// let agent = engine.caller("planner".parse()?, GrantSet::everything());
/// let tools = engine.tools_in(&agent, &Scope::All, Shape::Anthropic).await;
/// // … send `tools` to the model, get `message` back …
/// let options = CallOptions::default();
/// let answers = engine.call_from(&agent, Some(Shape::Anthropic), message, &options).await?;
/// println!("{} {}", tools.text(), answers.to_json());
/// engine.drain().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    project: ProjectName,
    folder: DataFolder,
    store: Store,
    sandbox: Sandbox,
    access: Arc<Access>,
    catalog: Arc<Catalog>,
    supervisor: Arc<Supervisor>,
    router: Router,
    audit: Audit,
    acts: Acts,
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
    /// What administrators change; run to its end, whoever waits for it.
    changes: TaskTracker,
    kill_at: watch::Sender<Option<Instant>>,
    /// What whoever configures the engine has to say of the configuration.
    notices: Mutex<Vec<String>>,
}

impl Engine {
    /// Takes the data folder, replays the audit, and starts what is registered.
    pub async fn start(config: EngineConfig) -> Result<Self, EngineError> {
        let folder = DataFolder::take(&config.data_dir)?;
        let instance = instance_name(folder.path());
        // What the host allows is found out while the database and the journal are opened.
        let probing = tokio::task::spawn_blocking(|| Sandbox::probe(SandboxOptions { instance }));
        Audit::make_room(&folder.path().join("journal"));
        let store = Store::open(&folder.path().join("gantry.db")).await?;
        let audit = Audit::open(
            &folder.inner("journal")?,
            store.clone(),
            config.audit.clone(),
        )
        .await?;
        let newest = CallFilter {
            limit: 1,
            ..CallFilter::default()
        };
        let newest = store.calls(&newest).await?.first().map(|row| row.id);
        let sandbox = probing.await.map_err(|_| EngineError::Stopping)??;
        let access = Access::load(store.clone(), config.project.clone()).await?;
        let access = Arc::new(access);
        let folders = folder.inner("servers")?;
        let hidden = folder.hidden(&config.hidden_folders);
        // From here on tasks run; nothing below fails before `finish` can end them.
        let tracker = TaskTracker::new();
        let stop_tasks = CancellationToken::new();
        let (events, queue) = Events::new(config.project.clone());
        tracker.spawn(
            events
                .clone()
                .write(queue, store.clone(), stop_tasks.clone()),
        );
        let told = events.clone();
        tracker.spawn(audit.clone().run(stop_tasks.clone(), move |damage| {
            let native = ServerName::native();
            told.report(&native, EventKind::JournalDamaged, damage.to_string());
        }));
        tracker.spawn(Arc::clone(&access).watch_expiry(stop_tasks.clone()));
        let catalog = Arc::new(Catalog::new(
            config.expose,
            config.on_collision,
            config.tool_name_length,
        ));
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
        let topics = Arc::new(TopicTable::default());
        let answers = AnswerBudget::new(config.project.clone(), config.limits.answer_bytes);
        let vault = Vault::open(folder.path(), config.project.clone(), store.clone());
        let acts = Acts::new(store.clone(), Values::new(vault.clone()));
        let around = Arc::new(Surroundings {
            driver: Arc::new(ProcessDriver::new(
                sandbox.clone().hiding(hidden),
                config.environment.clone(),
                folders,
            )),
            clients: Arc::default(),
            store: store.clone(),
            vault,
            callback: watch::Sender::new(None),
            events: events.clone(),
            tracker: tracker.clone(),
            limits: config.limits,
            first_id: first_id(),
            changed: Arc::new(changed),
            topics: Arc::clone(&topics),
            answers: answers.clone(),
            kill_at: kill_at_receiver,
        });
        let supervisor = Arc::new(Supervisor::new(
            config.project.clone(),
            store.clone(),
            around,
            Arc::clone(&catalog),
            servers,
        ));
        let figures = Arc::new(Figures::new(config.dropped_log_lines));
        let draining = CancellationToken::new();
        let router = Router {
            catalog: Arc::clone(&catalog),
            supervisor: Arc::clone(&supervisor),
            audit: audit.clone(),
            ids: CallIds::after(newest),
            events,
            figures: Arc::clone(&figures),
            identity: Identity::gantry(),
            listing_wait: config.limits.listing_wait,
            topics,
            answers,
            links: Links::default(),
            refreshes: Refreshes::default(),
            draining: draining.clone(),
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
                acts,
                figures,
                startup: config.startup,
                on_start_failure: config.on_start_failure,
                stop_policy: config.stop,
                requests: TaskTracker::new(),
                draining,
                tracker,
                stop_tasks,
                changes: TaskTracker::new(),
                kill_at,
                notices: Mutex::default(),
            }),
        };
        let booted = engine.inner.supervisor.boot().await;
        engine.note_start(&booted).await;
        if let Err(error) = booted {
            // Nothing of ours runs on without the folder's lock.
            engine.finish().await;
            return Err(error);
        }
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
        let stop = self.begin_stop().await;
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
            inner.audit.cut_off();
        }
        self.stop_all().await;
        stop.end(&Ok::<_, EngineError>(())).await;
        self.close().await;
        info!("stopped");
    }

    /// Has calls that are dropped from here on recorded as cut off, which is not known to have been
    /// undone: the process is about to end, whoever still waits.
    pub fn cut_off(&self) {
        self.inner.audit.cut_off();
    }

    /// Stops every server and every task, and lets go of the store.
    async fn finish(&self) {
        self.stop_all().await;
        self.close().await;
    }

    /// Stops every server and every task.
    async fn stop_all(&self) {
        let inner = &self.inner;
        inner.supervisor.stop_all().await;
        // Changes end with the servers that they wait for, and are recorded before the rest ends.
        inner.changes.close();
        drop(tokio::time::timeout(LAST_TASKS, inner.changes.wait()).await);
        inner.stop_tasks.cancel();
        inner.tracker.close();
        drop(tokio::time::timeout(LAST_TASKS, inner.tracker.wait()).await);
    }

    async fn close(&self) {
        self.inner.acts.settle().await;
        if let Err(error) = self.inner.store.close().await {
            warn!(
                error = &error as &dyn std::error::Error,
                "the store did not close cleanly"
            );
        }
    }

    // ---- keys ----

    /// Returns who a key speaks for, without any I/O.
    pub fn authenticate(&self, key: &str) -> Option<Caller> {
        self.inner.access.authenticate(key)
    }

    /// Returns what a caller's key stands for now, with the grants of this moment; nobody if it was
    /// revoked or has expired. Nothing is hashed.
    pub fn current(&self, caller: &Caller) -> Option<Caller> {
        self.inner.access.current(caller)
    }

    /// Returns a counter that moves whenever keys were made or changed, or one has ended.
    pub fn key_changes(&self) -> watch::Receiver<u64> {
        self.inner.access.changes()
    }

    // ---- servers ----

    /// Returns the last lines that a server wrote beside the protocol.
    pub fn logs(&self, server: &str, lines: usize) -> Option<Vec<LogLine>> {
        self.inner
            .supervisor
            .find(server)
            .map(|handle| handle.logs.last(lines))
    }

    /// Returns what happened to servers last, or last before an event; oldest first, each with its
    /// number.
    pub async fn events(
        &self,
        server: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, EngineError> {
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
            .events_before(&self.inner.project, name, before, limit)
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
        self.request_announced(caller, request, None).await
    }

    /// Gives out the id of a call that is to be made. What is returned beside it resolves when the
    /// call is on record, and fails if it ends without.
    pub fn announce(&self) -> (Announced, oneshot::Receiver<()>) {
        let (recorded, waiting) = oneshot::channel();
        let announced = Announced {
            id: self.inner.router.ids.next(unix_ms()),
            recorded: Some(recorded),
        };
        (announced, waiting)
    }

    /// Answers one request, under the id that was given out for it.
    pub async fn request_announced(
        &self,
        caller: &Caller,
        request: Request<'_>,
        announced: Option<Announced>,
    ) -> Result<Reply, CallFailure> {
        if self.inner.draining.is_cancelled() {
            return Err(CallFailure {
                call: None,
                error: CallError::Stopping,
            });
        }
        if let Some(ended) = key_end(caller) {
            return Err(ended);
        }
        let _under_way = self.inner.requests.token();
        let router = &self.inner.router;
        router.request(caller, request, announced).await
    }

    /// Tells a caller of changes of the resource that the params name, as long as the returned value
    /// is kept; recorded like any other request.
    pub async fn subscribe(
        &self,
        caller: &Caller,
        request: Request<'_>,
        hearer: Hearer,
    ) -> Result<Subscription, CallFailure> {
        let stopping = || CallFailure {
            call: None,
            error: CallError::Stopping,
        };
        self.admit().map_err(|_| stopping())?;
        if let Some(ended) = key_end(caller) {
            return Err(ended);
        }
        let _under_way = self.inner.requests.token();
        self.inner.router.subscribe(caller, request, hearer).await
    }

    /// Tells whether a client of a caller's may read a resource now.
    pub fn may_read(&self, caller: &Caller, scope: &Scope, who: Speaker, uri: &str) -> bool {
        self.inner.router.may_read(caller, scope, who, uri)
    }

    /// Tells the servers that ask a client for its roots that these have changed.
    pub fn roots_changed(&self, caller: &Caller, who: Speaker) {
        self.inner.router.roots_changed(caller, who);
    }

    /// Returns the tools of a caller's view.
    pub fn tools(&self, caller: &Caller, scope: &Scope) -> Vec<ListedTool> {
        self.inner.catalog.view(caller, scope).tools()
    }

    /// Returns what a caller's endpoint can do.
    pub fn capabilities(&self, caller: &Caller, scope: &Scope) -> Capabilities {
        self.inner.catalog.view(caller, scope).capabilities()
    }

    /// Returns which change was the last of each list that a client of a caller's sees.
    pub fn list_marks(&self, caller: &Caller, scope: &Scope, who: Speaker) -> ListMarks {
        self.inner.catalog.marks(caller, scope, who)
    }

    /// Returns a counter that moves whenever somebody's lists may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.catalog.changes()
    }

    /// Registers a tool that runs inside the gateway.
    pub fn native(&self, tool: NativeTool) -> Result<(), EngineError> {
        self.inner.catalog.add_native(tool)
    }

    /// Returns the way of requests.
    pub(crate) fn router(&self) -> &Router {
        &self.inner.router
    }

    /// Returns the project whose servers run.
    pub(crate) fn project(&self) -> &ProjectName {
        &self.inner.project
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
        let mut warnings = self.notices();
        warnings.extend(self.inner.catalog.warnings());
        for handle in self.inner.supervisor.all() {
            let status = handle.status.borrow();
            *servers.entry(status.state.as_str()).or_insert(0) += 1;
            // Rows 1.15 and 1.10.
            let what = if status.state == State::Unresponsive {
                Some("is unresponsive")
            } else if status.state == State::NeedsSignIn {
                Some("waits for a person")
            } else {
                status.health_warning.then_some("keeps crashing")
            };
            if let Some(what) = what {
                let reason = status.reason.clone().unwrap_or_default();
                warnings.push(format!("server `{}` {what}: {reason}", handle.name));
            }
        }
        let audit = self.inner.audit.health();
        warnings.extend(audit.clock_ahead.map(record::far_ahead));
        let draining = self.inner.draining.is_cancelled();
        let status = self.health_status();
        Health {
            ok: status == HealthStatus::Ok,
            status,
            reasons: reasons(&audit),
            draining,
            servers,
            audit,
            warnings,
        }
    }

    /// Returns how the engine is in one word; costs nothing.
    pub fn health_status(&self) -> HealthStatus {
        let audit = &self.inner.audit;
        if self.inner.draining.is_cancelled() {
            HealthStatus::Stopping
        } else if !audit.is_writable() {
            HealthStatus::Failing
        } else if audit.is_sound() {
            HealthStatus::Ok
        } else {
            HealthStatus::Degraded
        }
    }

    /// Replaces what an administrator should know of the configuration, shown first among the warnings.
    pub fn set_notices(&self, notices: Vec<String>) {
        *self
            .inner
            .notices
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = notices;
    }

    fn notices(&self) -> Vec<String> {
        let notices = self.inner.notices.lock();
        notices.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns figures as Prometheus text.
    pub fn metrics(&self) -> String {
        let all = self.inner.supervisor.all();
        self.inner.figures.render(
            all.iter()
                .map(|handle| handle.status.borrow().state.as_str()),
        )
    }

    /// Returns what answers may take until their clients have read them.
    pub fn answers(&self) -> &AnswerBudget {
        &self.inner.router.answers
    }

    /// Tells whether the engine is stopping.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.is_cancelled()
    }

    /// Returns what this host can enforce.
    pub fn host(&self) -> &HostReport {
        self.inner.sandbox.host()
    }
}

/// Says what is wrong with the record of calls.
fn reasons(audit: &AuditHealth) -> Vec<String> {
    let mut reasons: Vec<String> = audit.reason.iter().cloned().collect();
    let store = audit
        .store_error
        .as_ref()
        .or(audit.last_fold_error.as_ref());
    if let Some(error) = store {
        reasons.push(format!(
            "the database cannot be written: {error}; calls go on, {} records wait in the journal",
            audit.folded_lag_records
        ));
    }
    reasons.extend(audit.damage.iter().map(ToString::to_string));
    reasons
}

/// How long tasks that have nothing left to do are waited for.
const LAST_TASKS: Duration = Duration::from_secs(5);

/// Refuses who came with a key that has ended since it was shown.
fn key_end(caller: &Caller) -> Option<CallFailure> {
    let end = caller.validity.end_reason()?;
    Some(CallFailure {
        call: None,
        error: CallError::KeyEnded { end },
    })
}

/// Upstream ids begin at a random number of this boot, exact in every JSON library.
fn first_id() -> u64 {
    let random = u64::from(u32::from_le_bytes(random()));
    ((random & 0x000f_ffff) | 1 << 20) << 32
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
