//! The engine: built, started, asked, drained. It owns what belongs to the machine and a map of
//! projects, and hands every request to its caller's project.

mod failed_logins;
pub(crate) mod inputs;
mod projects;
mod record;
pub(crate) mod rekey;
mod sampling;
mod stored_calls;
mod tag_checks;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use gantry_model::caller::{Caller, KeyEnd};
use gantry_model::event::EventKind;
use gantry_model::id::{AgentName, ProjectName, ServerName};
use gantry_store::{CallFilter, ProjectRow, Store, StoreConfig};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use self::projects::ProjectView;

use crate::access::{Access, SourceRefused, digest};
use crate::acts::Actor;
use crate::answers::AnswerPool;
use crate::audit::{Audit, CallIds};
use crate::catalog::{Capabilities, ListRevisions, ListedTool};
use crate::clock::unix_ms;
use crate::config::EngineConfig;
use crate::credentials::{SignInAnswer, SignInError, Vault};
use crate::driver::hosted::{Hosted, HostedOptions};
use crate::driver::image::ImageDriver;
use crate::driver::process::ProcessDriver;
use crate::driver::{Drivers, HostReport};
use crate::error::{CallError, CallFailure, EngineError};
use crate::folder::DataFolder;
use crate::http_client::Clients;
use crate::image_store::Images;
use crate::machine::{Machine, first_id};
use crate::project::Project;
use crate::request::{Announced, ClientIdentity, Reply, Request, Scope};
use crate::schema::CheckPermits;
use crate::server::topics::{Subscription, UpdateCallback};
use crate::telemetry::GatewayMetrics;
use crate::tokens::{TokenError, Tokens};
use crate::traces::Traces;
use crate::view::HealthStatus;

/// Everything that runs: projects, and what they share of the machine. Cheap to clone.
///
/// Who embeds it starts it, gives a [`Project`] of it servers ([`Project::apply`]) and native tools
/// ([`Project::native`]), makes a caller of an agent ([`Project::caller`]), shows a model its tools
/// ([`Engine::tools_in`]), answers the model's calls ([`Engine::call_from`]), and drains it. A caller
/// carries its project, so that whatever is asked for it is answered by that project alone.
///
/// ```no_run
/// use gantry_engine::model::{grant::GrantSet, shape::Shape};
/// use gantry_engine::{CallOptions, Engine, EngineConfig, Scope};
///
/// # async fn run(message: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::start(EngineConfig::new("/var/lib/my-agent")).await?;
/// let project = engine.default_project();
/// let agent = project.caller("planner".parse()?, GrantSet::everything());
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
    machine: Arc<Machine>,
    /// The project of the data folder itself.
    default: Arc<Project>,
    /// All projects that are open, the default one included.
    projects: ArcSwap<HashMap<ProjectName, Arc<Project>>>,
    /// The keys of projects that are not loaded.
    unloaded: ArcSwap<HashMap<ProjectName, Arc<Access>>>,
    /// One project is opened or closed at a time.
    opening: Mutex<()>,
}

impl Engine {
    /// Takes the data folder, replays the audit, opens the projects, and starts what is registered.
    pub async fn start(config: EngineConfig) -> Result<Self, EngineError> {
        let folder = DataFolder::take(&config.data_dir)?;
        let options = HostedOptions {
            project: config.project.clone(),
            gateway: instance_name(folder.path()),
            environment: config.environment.clone(),
            data_folder: folder.path().to_owned(),
            hidden: hidden_folders(&config),
        };
        // What the host offers is found out while the database and the journal are opened.
        let probing = tokio::task::spawn_blocking(|| Hosted::open(options));
        Audit::make_room(&folder.path().join("journal"));
        let gateway = folder.gateway()?;
        let store = Store::open(&config.store, &gateway).await?;
        let journal = folder.inner("journal")?;
        let audit = Audit::open(&journal, store.clone(), config.audit.clone()).await?;
        let newest = CallFilter {
            limit: 1,
            ..CallFilter::default()
        };
        let newest = store.calls(&newest).await?.first().map(|row| row.id);
        let hosted = Arc::new(probing.await.map_err(|_| EngineError::Stopping)??);
        hosted.use_store(store.clone());
        let given = config.master_key.clone();
        let vault = Vault::open(folder.path(), config.project.clone(), store.clone(), given);
        vault.prepare().await.map_err(SignInError::from)?;
        let images = Images::new(folder.path().join("images"), home(&config));
        images.use_vault(vault.clone());
        let drivers = Drivers::new(
            Arc::new(ProcessDriver::new(Arc::clone(&hosted))),
            Arc::new(ImageDriver::new(Arc::clone(&hosted), images.clone())),
        );
        for labels in drivers.recover().await? {
            info!(server = %labels.server, "ended an instance of an earlier gateway process");
        }
        let known = store.project_rows().await?;
        let clients: Arc<Clients> = Arc::default();
        let traces = config.traces.clone().map(|traces| {
            let id = gateway.id.to_string();
            Arc::new(Traces::new(traces, id, Arc::clone(&clients)))
        });
        let machine = Arc::new(Machine {
            answers: AnswerPool::new(config.limits.answer_bytes),
            checks: CheckPermits::default(),
            vault,
            metrics: GatewayMetrics::new(Arc::clone(&config.dropped_log_lines)),
            folder,
            store,
            drivers,
            hosted,
            images,
            audit,
            ids: Arc::new(CallIds::after(newest)),
            clients,
            traces,
            tokens: Arc::new(Tokens::new(config.issuers.clone())),
            callback: watch::Sender::new(None),
            keys_changed: watch::Sender::new(0),
            generations: Arc::default(),
            first_id: first_id(),
            requests: TaskTracker::new(),
            draining: CancellationToken::new(),
            tracker: TaskTracker::new(),
            stop_tasks: CancellationToken::new(),
            changes: TaskTracker::new(),
            kill_at: watch::Sender::new(None),
            config,
        });
        let default = Project::open(Arc::clone(&machine), machine.config.project.clone()).await?;
        let events = default.router.events.clone();
        let stop = machine.stop_tasks.clone();
        let watching = machine.audit.clone().run(stop, move |damage| {
            let native = ServerName::native();
            events.report(&native, EventKind::JournalDamaged, damage.to_string());
        });
        machine.tracker.spawn(watching);
        let projects = HashMap::from([(default.name().clone(), Arc::clone(&default))]);
        let engine = Self {
            inner: Arc::new(Inner {
                machine,
                default,
                projects: ArcSwap::from_pointee(projects),
                unloaded: ArcSwap::default(),
                opening: Mutex::default(),
            }),
        };
        engine.watch_hosted();
        engine.watch_tokens();
        let left = engine.feed_stored_calls().await;
        let booted = engine.boot(known).await;
        engine.export_traces(&left);
        engine.note_start(&booted).await;
        if let Err(error) = booted {
            // Nothing of ours runs on without the folder's lock.
            engine.finish().await;
            return Err(error);
        }
        Ok(engine)
    }

    /// Watches what hosted servers keep on disk and whether their images changed, and samples what all
    /// servers use.
    fn watch_hosted(&self) {
        let machine = &self.inner.machine;
        let (disks, stop) = (machine.hosted.disks().clone(), &machine.stop_tasks);
        machine.tracker.spawn(disks.watch(stop.clone()));
        let sampling = sampling::sample(Arc::downgrade(&self.inner), stop.clone());
        machine.tracker.spawn(sampling);
        if let Some(every) = machine.config.image_checks {
            let checks = tag_checks::watch(Arc::downgrade(&self.inner), every, stop.clone());
            machine.tracker.spawn(checks);
        }
    }

    /// Fetches the keys of token issuers, and ends tokens that expire or whose agent is gone
    /// or suspended.
    fn watch_tokens(&self) {
        let machine = &self.inner.machine;
        // Weak: the task must not keep the engine.
        let inner = Arc::downgrade(&self.inner);
        let end_of = move |project: &ProjectName, agent: &AgentName| {
            let projects = inner.upgrade().map(|inner| inner.projects.load_full());
            let project = projects.as_ref().and_then(|projects| projects.get(project));
            project.map_or(Some(KeyEnd::Revoked), |project| {
                project.access.token_end(agent)
            })
        };
        let (tokens, stop) = (Arc::clone(&machine.tokens), machine.stop_tasks.clone());
        let running = tokens.run(Arc::clone(&machine.clients), stop, end_of);
        machine.tracker.spawn(running);
    }

    /// Starts the registered servers of all projects that the store knows.
    async fn boot(&self, known: Vec<ProjectRow>) -> Result<(), EngineError> {
        let (machine, default) = (&self.inner.machine, &self.inner.default);
        default.supervisor.boot().await?;
        machine.tracker.spawn(Arc::clone(default).follow_store());
        for row in known {
            match row.loaded || machine.is_default(&row.name) {
                true => self.open_or_say(row.name).await,
                false => self.know_unloaded(row.name).await?,
            }
        }
        let following = Self::follow_projects(Arc::downgrade(&self.inner));
        machine.tracker.spawn(following);
        Ok(())
    }

    // ---- projects ----

    /// Returns a project that is open.
    pub fn project(&self, name: &ProjectName) -> Option<Arc<Project>> {
        self.inner.projects.load().get(name).cloned()
    }

    /// Returns every project that is open.
    pub fn projects(&self) -> Vec<Arc<Project>> {
        self.inner.projects.load().values().cloned().collect()
    }

    /// Returns the project of the data folder itself, which is always open.
    pub fn default_project(&self) -> Arc<Project> {
        Arc::clone(&self.inner.default)
    }

    /// Returns a project, after it was opened and made known to the store if need be.
    pub async fn open_project(&self, name: ProjectName) -> Result<Arc<Project>, EngineError> {
        self.open(name, false).await
    }

    async fn open(&self, name: ProjectName, is_known: bool) -> Result<Arc<Project>, EngineError> {
        let inner = &self.inner;
        let _one = inner.opening.lock().await;
        if let Some(open) = self.project(&name) {
            return Ok(open);
        }
        self.inner.default.admit()?;
        if !is_known {
            inner.machine.store.ensure_project(&name).await?;
        }
        let project = Project::open(Arc::clone(&inner.machine), name.clone()).await?;
        project.supervisor.boot().await?;
        inner
            .machine
            .tracker
            .spawn(Arc::clone(&project).follow_store());
        let mut projects = HashMap::clone(&inner.projects.load());
        projects.insert(name.clone(), Arc::clone(&project));
        inner.projects.store(Arc::new(projects));
        let mut unloaded = HashMap::clone(&inner.unloaded.load());
        unloaded.remove(&name);
        inner.unloaded.store(Arc::new(unloaded));
        Ok(project)
    }

    /// Returns the project of a caller; none if it is not open any more.
    fn of(&self, caller: &Caller) -> Option<Arc<Project>> {
        self.project(&caller.project)
    }

    /// Returns the folder everything is kept in.
    pub fn data_dir(&self) -> &Path {
        self.inner.machine.folder.path()
    }

    // ---- stopping ----

    /// Stops: no new requests, those under way for a while, then every server; the audit is whole.
    pub async fn drain(&self) {
        let machine = &self.inner.machine;
        if machine.draining.is_cancelled() {
            machine.tracker.wait().await;
            return;
        }
        info!("stopping");
        let stop = self.begin_stop().await;
        let policy = machine.config.stop;
        let kill_at = Instant::now() + policy.kill_after;
        machine.kill_at.send_replace(Some(kill_at));
        machine.draining.cancel();
        machine.requests.close();
        let waiting = machine.requests.wait();
        if tokio::time::timeout(policy.drain, waiting).await.is_err() {
            warn!(
                calls = machine.requests.len(),
                "calls are still under way and will be cut off"
            );
            machine.audit.cut_off();
        }
        self.stop_all().await;
        stop.end(&Ok::<_, EngineError>(())).await;
        self.close().await;
        info!("stopped");
    }

    /// Has calls that are dropped from here on recorded as cut off, which is not known to have been
    /// undone: the process is about to end, whoever still waits.
    pub fn cut_off(&self) {
        self.inner.machine.audit.cut_off();
    }

    /// Stops every server and every task, and lets go of the store.
    async fn finish(&self) {
        self.stop_all().await;
        self.close().await;
    }

    /// Stops every server and every task.
    async fn stop_all(&self) {
        let machine = &self.inner.machine;
        // A project that is being opened right now is then among them, and none is opened after.
        let _last = self.inner.opening.lock().await;
        let projects = self.inner.projects.load_full();
        let stopping = projects
            .values()
            .map(|project| project.supervisor.stop_all());
        join_all(stopping).await;
        // Changes end with the servers that they wait for, and are recorded before the rest ends.
        machine.changes.close();
        drop(tokio::time::timeout(LAST_TASKS, machine.changes.wait()).await);
        machine.stop_tasks.cancel();
        machine.tracker.close();
        drop(tokio::time::timeout(LAST_TASKS, machine.tracker.wait()).await);
    }

    async fn close(&self) {
        if let Some(traces) = &self.inner.machine.traces {
            // The audit is whole by now, and every call has its span.
            traces.finish(LAST_SPANS).await;
        }
        for project in self.inner.projects.load_full().values() {
            project.acts.settle().await;
            project.write_key_uses().await;
        }
        let disks = self.inner.machine.hosted.disks().clone();
        // What stays mounted is found by the next start.
        drop(tokio::task::spawn_blocking(move || disks.close()).await);
        if let Err(error) = self.inner.machine.store.close().await {
            warn!(
                error = &error as &dyn std::error::Error,
                "the store did not close cleanly"
            );
        }
    }

    // ---- keys ----

    /// Returns who a key of any project speaks for, without any I/O.
    pub fn authenticate(&self, key: &str) -> Option<Caller> {
        let digest = digest(key);
        let projects = self.inner.projects.load();
        let mut projects = projects.values();
        let found = projects.find_map(|project| project.access.authenticate(&digest));
        found.or_else(|| {
            // Known, and told that their project is not loaded.
            let unloaded = self.inner.unloaded.load();
            let mut unloaded = unloaded.values();
            unloaded.find_map(|access| access.authenticate(&digest))
        })
    }

    /// Returns the caller of a token, if the credential is one and issuers are configured: an error says
    /// why it is not accepted. Without any I/O.
    pub fn authenticate_token(&self, credential: &str) -> Option<Result<Caller, TokenError>> {
        let tokens = &self.inner.machine.tokens;
        if !tokens.is_token(credential) {
            return None;
        }
        let caller = tokens.verify(credential).and_then(|verified| {
            let project = self.project(&verified.project);
            let caller = project.and_then(|project| project.access.of_token(&verified));
            caller.ok_or(TokenError::NoAgent)
        });
        Some(caller)
    }

    /// Returns the audience that tokens must be for; that of the first issuer if they differ.
    pub fn token_audience(&self) -> Option<String> {
        let issuer = self.inner.machine.config.issuers.first()?;
        Some(issuer.audience.clone())
    }

    /// Returns the authorization servers whose tokens are accepted.
    pub fn issuers(&self) -> Vec<String> {
        self.inner.machine.tokens.issuers()
    }

    /// Tells whether the store has been away for so long that a key may have been revoked on another
    /// gateway: no key is to be believed until it is back. Never so for a file.
    pub fn keys_are_stale(&self) -> bool {
        self.inner.default.access.is_stale()
    }

    /// Returns what a caller's key stands for now, with the grants of this moment; nobody if it was
    /// revoked or has expired. Nothing is hashed.
    pub fn current(&self, caller: &Caller) -> Option<Caller> {
        self.of(caller)?.access.current(caller)
    }

    /// Notes that a caller's key is used from an address; refuses one that it may not be used from.
    pub fn enter(&self, caller: &Caller, from: Option<IpAddr>) -> Result<(), SourceRefused> {
        match self.of(caller) {
            Some(project) => project.access.enter(caller, from),
            // Who is in no open project is refused further on.
            None => Ok(()),
        }
    }

    /// Returns a counter that moves whenever keys were made or changed, or one has ended.
    pub fn key_changes(&self) -> watch::Receiver<u64> {
        self.inner.machine.keys_changed.subscribe()
    }

    // ---- the data path ----

    /// Answers one request. Dropping the future takes the call back: the server is told, its lane
    /// is freed, and the audit says `cancelled`.
    pub fn request(
        &self,
        caller: &Caller,
        request: Request<'_>,
    ) -> impl Future<Output = Result<Reply, CallFailure>> {
        self.request_announced(caller, request, None)
    }

    /// Gives out the id of a call that is to be made. What is returned beside it resolves when the
    /// call is on record, and fails if it ends without.
    pub fn announce(&self) -> (Announced, oneshot::Receiver<()>) {
        let (recorded, waiting) = oneshot::channel();
        let announced = Announced {
            id: self.inner.machine.ids.next(unix_ms()),
            recorded: Some(recorded),
        };
        (announced, waiting)
    }

    /// Answers one request, under the id that was given out for it.
    pub async fn request_announced(
        &self,
        caller: &Caller,
        mut request: Request<'_>,
        announced: Option<Announced>,
    ) -> Result<Reply, CallFailure> {
        let project = self.admitted(caller).map_err(not_recorded)?;
        let _under_way = self.inner.machine.requests.token();
        request.context.prove(caller);
        let router = &project.router;
        router.request(caller, &mut request, announced).await
    }

    /// Tells a caller of changes of the resource that the params name, as long as the returned value
    /// is kept; recorded like any other request.
    pub async fn subscribe(
        &self,
        caller: &Caller,
        mut request: Request<'_>,
        updated: UpdateCallback,
    ) -> Result<Subscription, CallFailure> {
        request.context.prove(caller);
        let project = self.admitted(caller).map_err(not_recorded)?;
        let _under_way = self.inner.machine.requests.token();
        project.router.subscribe(caller, request, updated).await
    }

    /// Returns the project that a caller's request goes to, unless nothing is taken any more.
    fn admitted(&self, caller: &Caller) -> Result<Arc<Project>, CallError> {
        if self.inner.machine.draining.is_cancelled() {
            return Err(CallError::Stopping);
        }
        // What keys of a project that is gone open is gone with it.
        let project = self.of(caller).ok_or(KeyEnd::Revoked);
        let ended = caller.validity.end_reason().map_or(Ok(()), Err);
        ended
            .and(project)
            .map_err(|end| CallError::KeyEnded { end })
    }

    /// Tells whether a client of a caller may read a resource now.
    pub fn may_read(&self, caller: &Caller, scope: &Scope, who: ClientIdentity, uri: &str) -> bool {
        let may_read = |project: Arc<Project>| project.router.may_read(caller, scope, who, uri);
        self.of(caller).is_some_and(may_read)
    }

    /// Tells the servers that ask a client for its roots that these have changed.
    pub fn roots_changed(&self, caller: &Caller, who: ClientIdentity) {
        if let Some(project) = self.of(caller) {
            project.router.roots_changed(caller, who);
        }
    }

    /// Returns the tools of a caller's view.
    pub fn tools(&self, caller: &Caller, scope: &Scope) -> Vec<ListedTool> {
        let tools = |project: Arc<Project>| project.catalog.view(caller, scope).tools();
        self.of(caller).map(tools).unwrap_or_default()
    }

    /// Returns what a caller's endpoint can do.
    pub fn capabilities(&self, caller: &Caller, scope: &Scope) -> Capabilities {
        let has = |project: Arc<Project>| project.catalog.view(caller, scope).capabilities();
        self.of(caller).map(has).unwrap_or_default()
    }

    /// Returns what the servers that a caller may use want models to know, each under its name.
    pub fn instructions(&self, caller: &Caller) -> Option<String> {
        let project = self.of(caller)?;
        project.catalog.view(caller, &Scope::All).instructions()
    }

    /// Returns which change was the last of each list that a client of a caller's sees.
    pub fn list_revisions(
        &self,
        caller: &Caller,
        scope: &Scope,
        who: ClientIdentity,
    ) -> ListRevisions {
        let revisions = |project: Arc<Project>| project.catalog.revisions(caller, scope, who);
        self.of(caller).map(revisions).unwrap_or_default()
    }

    /// Returns a counter that moves whenever lists of a caller's project may have changed; it ends with
    /// the project.
    pub fn changes(&self, caller: &Caller) -> watch::Receiver<u64> {
        let ended = || watch::channel(0).1;
        let changes = |project: Arc<Project>| project.changes();
        self.of(caller).map_or_else(ended, changes)
    }

    // ---- the gateway ----

    /// Says where browsers bring the answers of sign-ins that servers ask for by themselves, so
    /// that a status can show a link.
    pub fn set_callback(&self, redirect_uri: &str) {
        let known = &self.inner.machine.callback;
        known.send_replace(Some(redirect_uri.to_owned()));
    }

    /// Takes what a browser brought back, once, for the one server of any project that waits for it.
    pub async fn finish_sign_in(
        &self,
        by: impl Into<Actor>,
        answer: SignInAnswer,
    ) -> Result<ServerName, EngineError> {
        let projects = self.inner.projects.load_full();
        let mut projects = projects.values();
        let project = projects.find(|project| project.awaits_sign_in(&answer.state));
        project
            .ok_or(SignInError::Unknown)?
            .finish_sign_in(by, answer)
            .await
    }

    /// Returns how the engine is in one word; costs nothing.
    pub fn health_status(&self) -> HealthStatus {
        self.inner.machine.health_status()
    }

    /// Returns what answers may take until their clients have read them.
    pub fn answers(&self) -> &AnswerPool {
        &self.inner.machine.answers
    }

    /// Tells whether the engine is stopping.
    pub fn is_draining(&self) -> bool {
        self.inner.machine.draining.is_cancelled()
    }

    /// Returns the images of this gateway.
    pub fn images(&self) -> &Images {
        &self.inner.machine.images
    }

    /// Returns what this host can enforce.
    pub fn host(&self) -> HostReport {
        self.inner.machine.drivers.host()
    }
}

/// How long tasks that have nothing left to do are waited for.
const LAST_TASKS: Duration = Duration::from_secs(5);
/// How long the last spans may take.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// A failure of a request that is not on record.
fn not_recorded(error: CallError) -> CallFailure {
    CallFailure { call: None, error }
}

/// Returns the folders that are hidden from servers besides the data folder: what the configuration
/// names, and that of the database.
fn hidden_folders(config: &EngineConfig) -> Vec<PathBuf> {
    let database = match &config.store {
        StoreConfig::Sqlite(path) => path.parent().map(Path::to_owned),
        StoreConfig::Postgres(_) => None,
    };
    let hidden = config.hidden_folders.iter().cloned();
    hidden.chain(database).collect()
}

/// Returns the home of the person whose gateway this is, as servers of theirs are told it.
fn home(config: &EngineConfig) -> Option<PathBuf> {
    let home = config.environment.iter().find(|(name, _)| name == "HOME");
    home.map(|(_, home)| PathBuf::from(home))
}

/// Names the gateway's own cgroup: the same for the same folder, another for another.
fn instance_name(folder: &Path) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    gantry_model::hex::hex(&digest[..6])
}
