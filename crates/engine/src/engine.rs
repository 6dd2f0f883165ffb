//! The engine: start, handle requests, drain. It owns the shared machine and a map of projects, and
//! passes every request to its caller's project.

mod authentication;
mod failed_logins;
pub(crate) mod inputs;
mod projects;
mod record;
pub(crate) mod rekey;
mod sampling;
mod stop;
mod stored_calls;
mod tag_checks;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use gantry_model::caller::{Caller, KeyEnd};
use gantry_model::event::EventKind;
use gantry_model::id::{AgentName, ProjectName, ServerName};
use gantry_store::{CallFilter, ProjectRow, Store, StoreConfig};
use tokio::sync::{Mutex, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

pub use self::projects::ProjectView;

use crate::access::Access;
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
use crate::siem::Siem;
use crate::telemetry::GatewayMetrics;
use crate::tokens::Tokens;
use crate::traces::Traces;
use crate::view::HealthStatus;

/// Everything that runs: projects, and what they share of the machine. Cheap to clone.
///
/// Who embeds it starts it, gives a [`Project`] of it servers ([`Project::apply`]) and native tools
/// ([`Project::native`]), makes a caller of an agent ([`Project::caller`]), shows a model its tools
/// ([`Engine::tools_in`]), answers the model's calls ([`Engine::call_from`]), and drains it. A caller
/// carries its project, so that only that project answers its requests.
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
    /// The project of the data folder, which always exists.
    default: Arc<Project>,
    /// All open projects, including the default one.
    projects: ArcSwap<HashMap<ProjectName, Arc<Project>>>,
    /// The keys of projects that are not loaded.
    unloaded: ArcSwap<HashMap<ProjectName, Arc<Access>>>,
    /// Held while a project is opened or closed.
    opening: Mutex<()>,
}

impl Engine {
    /// Locks the data folder, replays the audit, opens the projects, and starts the registered
    /// servers.
    pub async fn start(config: EngineConfig) -> Result<Self, EngineError> {
        let folder = DataFolder::take(&config.data_dir)?;
        let options = HostedOptions {
            project: config.project.clone(),
            gateway: instance_name(folder.path()),
            environment: config.environment.clone(),
            data_folder: folder.path().to_owned(),
            hidden: hidden_folders(&config),
        };
        // The host is probed while the database and the journal are opened.
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
        let images = Images::new(
            folder.path().join("images"),
            config.project.clone(),
            home(&config),
        );
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
        let siem = match config.siem.clone() {
            Some(target) => {
                let (id, store) = (gateway.id.to_string(), store.clone());
                let (folder, clients) = (folder.path(), Arc::clone(&clients));
                let siem = Siem::open(target, id, store, folder, clients);
                Some(Arc::new(siem.await?))
            }
            None => None,
        };
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
            siem,
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
        let storing = machine
            .audit
            .clone()
            .store_rounds(machine.stop_tasks.clone());
        machine.tracker.spawn(storing);
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
        engine.push_audit();
        engine.note_start(&booted).await;
        if let Err(error) = booted {
            // No task continues without the folder's lock.
            engine.finish().await;
            return Err(error);
        }
        Ok(engine)
    }

    /// Watches the disk usage and the images of hosted servers, and samples the usage of all
    /// servers.
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

    /// Fetches the keys of token issuers, and ends tokens that expire or whose agent was removed or
    /// suspended.
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

    /// Starts the registered servers of all projects in the store.
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

    /// Returns an open project.
    pub fn project(&self, name: &ProjectName) -> Option<Arc<Project>> {
        self.inner.projects.load().get(name).cloned()
    }

    /// Returns all open projects.
    pub fn projects(&self) -> Vec<Arc<Project>> {
        self.inner.projects.load().values().cloned().collect()
    }

    /// Returns the project of the data folder, which is always open.
    pub fn default_project(&self) -> Arc<Project> {
        Arc::clone(&self.inner.default)
    }

    /// Returns a project; opens it, and registers it in the store, if necessary.
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

    /// Returns the project of a caller; `None` if it is no longer open.
    fn of(&self, caller: &Caller) -> Option<Arc<Project>> {
        self.project(&caller.project)
    }

    /// Returns the data folder.
    pub fn data_dir(&self) -> &Path {
        self.inner.machine.folder.path()
    }

    // ---- the data path ----

    /// Answers one request. Dropping the future cancels the call: the server is notified, its lane
    /// is released, and the audit says `cancelled`.
    pub fn request(
        &self,
        caller: &Caller,
        request: Request<'_>,
    ) -> impl Future<Output = Result<Reply, CallFailure>> {
        self.request_announced(caller, request, None)
    }

    /// Assigns the id of a future call. The receiver resolves when the call is recorded, and fails
    /// if it ends without a record.
    pub fn announce(&self) -> (Announced, oneshot::Receiver<()>) {
        let (recorded, waiting) = oneshot::channel();
        let announced = Announced {
            id: self.inner.machine.ids.next(unix_ms()),
            recorded: Some(recorded),
        };
        (announced, waiting)
    }

    /// Answers one request, under its preassigned id.
    pub fn request_announced(
        &self,
        caller: &Caller,
        mut request: Request<'_>,
        announced: Option<Announced>,
    ) -> impl Future<Output = Result<Reply, CallFailure>> {
        let under_way = self.inner.machine.requests.token();
        // No async function, whose future would hold the large request twice.
        async move {
            let _under_way = under_way;
            let project = self.admitted(caller).map_err(not_recorded)?;
            request.context.prove(caller);
            let router = &project.router;
            router.request(caller, &mut request, announced).await
        }
    }

    /// Notifies a caller of changes of the resource that the params name, as long as the returned
    /// value is held; recorded like any other request.
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

    /// Returns the project of a caller's request, unless the engine is draining.
    fn admitted(&self, caller: &Caller) -> Result<Arc<Project>, CallError> {
        if self.inner.machine.draining.is_cancelled() {
            return Err(CallError::Stopping);
        }
        // A deleted project's keys count as revoked.
        let project = self.of(caller).ok_or(KeyEnd::Revoked);
        let ended = caller.validity.end_reason().map_or(Ok(()), Err);
        ended
            .and(project)
            .map_err(|end| CallError::KeyEnded { end })
    }

    /// Returns whether a client of a caller may read a resource now.
    pub fn may_read(&self, caller: &Caller, scope: &Scope, who: ClientIdentity, uri: &str) -> bool {
        let may_read = |project: Arc<Project>| project.router.may_read(caller, scope, who, uri);
        self.of(caller).is_some_and(may_read)
    }

    /// Notifies servers that use a client's roots that these have changed.
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

    /// Returns the capabilities of a caller's endpoint.
    pub fn capabilities(&self, caller: &Caller, scope: &Scope) -> Capabilities {
        let has = |project: Arc<Project>| project.catalog.view(caller, scope).capabilities();
        self.of(caller).map(has).unwrap_or_default()
    }

    /// Returns the instructions of the servers that a caller may use, each under its server's name.
    pub fn instructions(&self, caller: &Caller) -> Option<String> {
        let project = self.of(caller)?;
        project.catalog.view(caller, &Scope::All).instructions()
    }

    /// Returns the last change of each list that a client of a caller sees.
    pub fn list_revisions(
        &self,
        caller: &Caller,
        scope: &Scope,
        who: ClientIdentity,
    ) -> ListRevisions {
        let revisions = |project: Arc<Project>| project.catalog.revisions(caller, scope, who);
        self.of(caller).map(revisions).unwrap_or_default()
    }

    /// Returns a counter that changes whenever lists of a caller's project may have changed; it
    /// ends with the project.
    pub fn changes(&self, caller: &Caller) -> watch::Receiver<u64> {
        let ended = || watch::channel(0).1;
        let changes = |project: Arc<Project>| project.changes();
        self.of(caller).map_or_else(ended, changes)
    }

    // ---- the gateway ----

    /// Sets the redirect URI of sign-ins that servers need, so that a status can show a link.
    pub fn set_callback(&self, redirect_uri: &str) {
        let known = &self.inner.machine.callback;
        known.send_replace(Some(redirect_uri.to_owned()));
    }

    /// Accepts a browser's answer, once, for the one server of any project that waits for it.
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

    /// Returns the health of the engine in one word; free of cost.
    pub fn health_status(&self) -> HealthStatus {
        self.inner.machine.health_status()
    }

    /// Returns the memory of unread responses.
    pub fn answers(&self) -> &AnswerPool {
        &self.inner.machine.answers
    }

    /// Returns whether the engine is stopping.
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

/// A failure of a request that is not on record.
fn not_recorded(error: CallError) -> CallFailure {
    CallFailure { call: None, error }
}

/// Returns the folders that are hidden from servers besides the data folder: those of the
/// configuration, and that of the database.
fn hidden_folders(config: &EngineConfig) -> Vec<PathBuf> {
    let database = match &config.store {
        StoreConfig::Sqlite(path) => folder_of(path),
        StoreConfig::Postgres(_) => None,
    };
    let hidden = config.hidden_folders.iter().cloned();
    hidden.chain(database).collect()
}

/// Returns the folder of a file, also of one that is named without it.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(file).ok()?;
    path.parent().map(Path::to_owned)
}

/// Returns the home of the gateway's user, from the environment of servers.
fn home(config: &EngineConfig) -> Option<PathBuf> {
    let home = config.environment.iter().find(|(name, _)| name == "HOME");
    home.map(|(_, home)| PathBuf::from(home))
}

/// Returns the name of the gateway's cgroup: unique for each folder.
fn instance_name(folder: &Path) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    gantry_model::hex::hex(&digest[..6])
}
