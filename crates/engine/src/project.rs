//! A project: everything that belongs to one tenant. It has its own keys and agents, servers and
//! catalog, secrets, events and topics; what it shares with others is the [`Machine`], whose budgets
//! are divided by project. A server, agent or event can only be named through its project.
//!
//! Callers reach it through `Engine`, which picks the caller's project. What administrators do is
//! here: `changes` and `files` (servers), `agents` (agents and keys), `grants`, `secrets`, `sign_in`, `record` (events
//! and administrative acts), `audit` (holds, erasure, the chain), `volumes`, `images`, `settings`, `suspend`,
//! `pins` (changed tools), `hooks`, `approvals`,
//! `policy` (the registration policy), `policy_test`, `products`. `follow` applies what other gateways that share the
//! store have changed.

mod agents;
mod approvals;
pub(crate) mod audit;
mod changes;
pub(crate) mod feed;
mod files;
mod follow;
pub(crate) mod grants;
mod hooks;
pub(crate) mod images;
pub(crate) mod pins;
pub(crate) mod policy;
pub(crate) mod policy_test;
pub(crate) mod products;
mod record;
mod second_person;
pub(crate) mod secrets;
mod settings;
mod sign_in;
mod suspend;
pub(crate) mod volumes;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gantry_model::caller::{Caller, KeyKind, KeyValidity, UserTrust};
use gantry_model::era::meta::Identity;
use gantry_model::event::ServerEvent;
use gantry_model::grant::GrantSet;
use gantry_model::id::{AgentName, CallId, KeyId, ProjectName};
use gantry_model::status::ServerState;
use gantry_store::{CallFilter, CallRow};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::settings::SettingsHolder;
use crate::access::Access;
use crate::acts::{Acts, Values};
use crate::approvals::Approvals;
use crate::audit::AuditHealth;
use crate::catalog::Catalog;
use crate::driver::ImageReport;
use crate::error::EngineError;
use crate::events::Events;
use crate::hooks::HookRunner;
use crate::image_store::ChangedTag;
use crate::machine::Machine;
use crate::native::NativeTool;
use crate::pins::Pins;
use crate::random::random;
use crate::router::{Links, Refreshes, Router};
use crate::secrets::Secrets;
use crate::server::handle::ServerHandle;
use crate::server::logs::LogLine;
use crate::server::runner::RunnerContext;
use crate::server::topics::TopicTable;
use crate::supervisor::{Supervisor, refresh};
use crate::suspended::Suspended;
use crate::telemetry::{ExportHealth, Metrics, ServerFigures};
use crate::view::{Health, HealthStatus, ServerView};

/// One tenant of an engine.
pub struct Project {
    name: ProjectName,
    pub(crate) machine: Arc<Machine>,
    pub(crate) access: Arc<Access>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) router: Router,
    pub(crate) acts: Acts,
    settings: SettingsHolder,
    /// One product is installed or removed at a time: a plan holds until it is carried out.
    changing_products: tokio::sync::Mutex<()>,
    suspended: Arc<Suspended>,
    pins: Arc<Pins>,
    /// Ends the project's own tasks, before the engine's.
    stop: CancellationToken,
    pub(crate) secrets: Secrets,
    metrics: Arc<Metrics>,
    /// Notices about the project's configuration.
    notices: Mutex<Vec<String>>,
}

impl Project {
    /// Loads a project's keys and creates its parts; starts no server yet.
    pub(crate) async fn open(
        machine: Arc<Machine>,
        name: ProjectName,
    ) -> Result<Arc<Self>, EngineError> {
        let store = machine.store.clone();
        let changed = machine.keys_changed.clone();
        let access = Arc::new(Access::load(store.clone(), name.clone(), changed).await?);
        let (audit, limits) = (machine.audit.clone(), access.limits());
        let settings = SettingsHolder::load(&store, &name, audit, limits).await?;
        let suspended = Arc::new(Suspended::load(&store, &name).await?);
        let pins = Pins::load(store.clone(), name.clone(), settings.now().tools.clone()).await?;
        let pins = Arc::new(pins);
        let hooks = Arc::new(HookRunner::new(
            name.clone(),
            settings.now().hooks.clone(),
            machine.drivers.clone(),
            Arc::clone(&machine.clients),
            Arc::clone(&machine.generations),
        ));
        machine.make_folders(&name)?;
        // From here on tasks run; nothing below fails before they can be ended.
        let (tracker, stop) = (&machine.tracker, machine.stop_tasks.child_token());
        let (events, queue) = Events::new(name.clone());
        tracker.spawn(events.clone().write(queue, store.clone(), stop.clone()));
        tracker.spawn(Arc::clone(&access).watch_expiry(stop.clone()));
        tracker.spawn(grants::write_uses(Arc::clone(&access), stop.clone()));
        let config = &machine.config;
        let checks = machine.checks.of_project();
        let catalog = Arc::new(Catalog::new(
            config.expose,
            config.on_collision,
            config.tool_name_length,
            &checks,
        ));
        let servers = Arc::new(Mutex::new(Vec::new()));
        let changed = {
            // Weak: the catalog holds handles, whose runners hold this.
            let (catalog, servers) = (Arc::downgrade(&catalog), Arc::downgrade(&servers));
            let (suspended, pins) = (Arc::clone(&suspended), Arc::clone(&pins));
            move || {
                if let (Some(catalog), Some(servers)) = (Weak::upgrade(&catalog), servers.upgrade())
                {
                    refresh(&catalog, &servers, &suspended, &pins);
                }
            }
        };
        let topics = Arc::new(TopicTable::default());
        let answers = machine.answers.of(&name);
        let vault = machine.vault.of(&name);
        let acts = Acts::new(
            (store.clone(), machine.audit.act_log()),
            name.clone(),
            Values::new(vault.clone()),
        );
        let secrets = Secrets::new(name.clone(), vault.clone(), store.clone());
        let context = Arc::new(RunnerContext {
            project: name.clone(),
            drivers: machine.drivers.clone(),
            generations: Arc::clone(&machine.generations),
            clients: Arc::clone(&machine.clients),
            store: store.clone(),
            secrets: secrets.clone(),
            vault,
            callback: machine.callback.clone(),
            events: events.clone(),
            tracker: tracker.clone(),
            limits: config.limits,
            first_id: machine.first_id,
            changed: Arc::new(changed),
            checks,
            topics: Arc::clone(&topics),
            answers: answers.clone(),
            kill_at: machine.kill_at.subscribe(),
            pins: Arc::clone(&pins),
        });
        let supervisor =
            Supervisor::new(name.clone(), store, context, Arc::clone(&catalog), servers);
        let supervisor = Arc::new(supervisor.heeding(Arc::clone(&suspended)));
        let metrics = Arc::new(Metrics::new(&name));
        let router = Router {
            catalog: Arc::clone(&catalog),
            supervisor: Arc::clone(&supervisor),
            audit: machine.audit.clone(),
            ids: Arc::clone(&machine.ids),
            events,
            metrics: Arc::clone(&metrics),
            identity: Identity::gantry(),
            listing_wait: config.limits.listing_wait,
            topics,
            answers,
            links: Links::default(),
            refreshes: Refreshes::default(),
            draining: machine.draining.clone(),
            suspended: Arc::clone(&suspended),
            callers: access.callers(),
            limits: access.limits(),
            pins: Arc::clone(&pins),
            hooks: Arc::clone(&hooks),
            begins_traces: machine.traces.is_some(),
            approvals: Arc::new(Approvals::new(settings.now().approvals.clone())),
            access: Arc::clone(&access),
        };
        Ok(Arc::new(Self {
            name,
            machine,
            access,
            catalog,
            supervisor,
            router,
            acts,
            settings,
            changing_products: tokio::sync::Mutex::default(),
            suspended,
            pins,
            stop,
            secrets,
            metrics,
            notices: Mutex::default(),
        }))
    }

    /// Stops its servers and its tasks; its record is written.
    pub(crate) async fn shut(&self) {
        self.supervisor.unload().await;
        self.acts.settle().await;
        self.write_key_uses().await;
        self.stop.cancel();
    }

    /// Writes the last uses of keys that are not written yet.
    pub(crate) async fn write_key_uses(&self) {
        if let Err(error) = self.access.write_key_uses().await {
            debug!(%error, "last uses of keys cannot be written");
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &ProjectName {
        &self.name
    }

    /// Returns whether it is the project of the data folder.
    pub fn is_default(&self) -> bool {
        self.machine.is_default(&self.name)
    }

    /// Returns a caller without a key, for embedding programs: this agent, with these grants.
    pub fn caller(&self, agent: AgentName, grants: GrantSet) -> Caller {
        Caller {
            project: self.name.clone(),
            agent,
            key: KeyId::from_random(u128::from_be_bytes(random())),
            kind: KeyKind::Agent,
            grants: Arc::new(grants),
            users: UserTrust::Trusted,
            validity: KeyValidity::default(),
            token: None,
            authenticated_in: Duration::ZERO,
        }
    }

    /// Registers a tool that runs inside the gateway.
    pub fn native(&self, tool: NativeTool) -> Result<(), EngineError> {
        self.catalog.add_native(tool)
    }

    /// Returns a counter that changes whenever lists may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.catalog.changes()
    }

    /// Waits until no eager server is starting, but not longer than `within`.
    pub async fn settled(&self, within: Duration) {
        self.supervisor.settled(within).await;
    }

    /// Returns the last log lines of a server.
    pub fn logs(&self, server: &str, lines: usize) -> Option<Vec<LogLine>> {
        let handle = self.supervisor.find(server)?;
        Some(handle.logs.last(lines))
    }

    /// Returns the newest events, or the newest before one; oldest first, each with its number.
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
            self.supervisor.find(name).ok_or_else(unknown)
        });
        let handle = handle.transpose()?;
        let name = handle.as_ref().map(|handle| &handle.name);
        let store = &self.machine.store;
        Ok(store.events_before(&self.name, name, before, limit).await?)
    }

    // ---- the record of calls ----

    /// Returns the project's calls, newest first, including everything recorded so far.
    pub async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>, EngineError> {
        Ok(self.machine.audit.calls(&self.own(filter)).await?)
    }

    /// Counts the project's calls, including everything recorded so far.
    pub async fn count_calls(&self, filter: &CallFilter) -> Result<u64, EngineError> {
        Ok(self.machine.audit.count(&self.own(filter)).await?)
    }

    /// Returns one call; a call of another project is treated as unknown. row 3.2
    pub async fn call(&self, id: CallId) -> Result<Option<CallRow>, EngineError> {
        let row = self.machine.audit.call(id).await?;
        Ok(row.filter(|row| row.project == self.name.as_str()))
    }

    fn own(&self, filter: &CallFilter) -> CallFilter {
        CallFilter {
            project: Some(self.name.to_string()),
            ..filter.clone()
        }
    }

    // ---- servers ----

    /// Returns all servers, in configuration order.
    pub fn servers(&self) -> Vec<ServerView> {
        self.views(&self.supervisor.all())
    }

    /// Returns a server by name or id.
    pub fn server(&self, server: &str) -> Option<ServerView> {
        self.views(&[self.supervisor.find(server)?]).pop()
    }

    fn views(&self, servers: &[Arc<ServerHandle>]) -> Vec<ServerView> {
        let (nameless, collisions) = (self.catalog.nameless(), self.catalog.collisions());
        let views = servers.iter().map(|handle| ServerView::of(handle));
        let views = views.map(|view| view.without(&nameless).beside(&collisions));
        let views = views.map(|view| view.with_pins(&self.pins));
        let changed = |image: &ImageReport| self.changed_tag(image);
        views.map(|view| view.with_changed_tag(changed)).collect()
    }

    /// Returns the new image of a tag, if it is known to differ.
    fn changed_tag(&self, image: &ImageReport) -> Option<ChangedTag> {
        let images = &self.machine.images;
        images.changed_tag(&self.name, &image.reference, &image.digest)
    }

    // ---- health and metrics ----

    /// Returns the health of the gateway and the project's servers.
    pub fn health(&self) -> Health {
        let mut servers = BTreeMap::new();
        let mut warnings = self.notices();
        warnings.extend(self.catalog.warnings());
        warnings.extend(self.machine.hosted.disks().warning());
        for handle in self.supervisor.all() {
            let status = handle.status.borrow();
            *servers.entry(status.state.as_str()).or_insert(0) += 1;
            // Rows 1.15 and 1.10.
            let what = if status.state == ServerState::Unresponsive {
                Some("is unresponsive")
            } else if status.state == ServerState::NeedsSignIn {
                Some("waits for a person")
            } else {
                status.health_warning.then_some("keeps crashing")
            };
            if let Some(what) = what {
                let reason = status.reason.clone().unwrap_or_default();
                warnings.push(format!("server `{}` {what}: {reason}", handle.name));
            }
            // fault L3
            let unapproved = self.pins.unapproved_of(handle.id);
            if self.pins.undecided_of(handle.id) > 0 {
                let name = &handle.name;
                warnings.push(format!(
                    "server `{name}` lists tools, prompts or templates that are not approved: {}; `gantry tools changes {name}` shows it",
                    few(&unapproved)
                ));
            }
            // fault C6
            let hosting = status.hosting.as_deref();
            if let Some(image) = hosting.and_then(|hosting| hosting.image.as_ref())
                && let Some(changed) = self.changed_tag(image)
            {
                warnings.push(format!(
                    "server `{name}`: `{}` is another image in its registry now, {}; `gantry restart {name} \
                     --pull` takes it",
                    image.reference,
                    changed.digest,
                    name = handle.name
                ));
            }
        }
        warnings.extend(self.ungranted().iter().map(|name| {
            format!("no agent may use server `{name}`: `gantry grant add {name}:*` grants it to `default`")
        }));
        let audit = self.machine.audit.health();
        let audit = match self.is_default() {
            true => audit,
            false => audit.of_other_project(),
        };
        warnings.extend(audit.clock_ahead.map(clock_is_ahead));
        let exports = match self.is_default() {
            true => self.machine.exports(),
            false => Vec::new(),
        };
        warnings.extend(exports.iter().filter_map(ExportHealth::warning));
        let status = self.machine.health_status();
        Health {
            ok: status == HealthStatus::Ok,
            status,
            reasons: reasons(&audit),
            draining: self.machine.draining.is_cancelled(),
            servers,
            audit,
            warnings,
            exports,
        }
    }

    /// Sets the notices about the configuration, which are shown first among the warnings.
    pub fn set_notices(&self, notices: Vec<String>) {
        *self.notices.lock() = notices;
    }

    fn notices(&self) -> Vec<String> {
        let notices = self.notices.lock();
        notices.clone()
    }

    /// Counts calls whose rows were stored.
    pub(crate) fn count_stored(&self, rows: &[CallRow<&str>]) {
        self.metrics.stored(self.name.as_str(), rows);
    }

    /// Returns the project's metrics as Prometheus text; includes those of the gateway for the
    /// project of its folder.
    pub fn metrics(&self) -> String {
        let all = self.supervisor.all();
        let servers = all.iter().map(|handle| {
            let queue = handle.queue();
            let status = handle.status.borrow();
            ServerFigures {
                name: handle.name.to_string(),
                state: status.state.as_str(),
                in_flight: queue.in_flight,
                waiting: queue.waiting,
                restarts: status.restarts,
            }
        });
        let figures = self.machine.figures();
        let gateway = (&self.machine.metrics, &figures);
        self.metrics
            .render(servers, self.is_default().then_some(gateway))
    }
}

/// Joins names, the first of them if there are many.
fn few(names: &[String]) -> String {
    const MOST: usize = 5;
    let first = names.iter().take(MOST).cloned().collect::<Vec<_>>();
    match names.len().saturating_sub(MOST) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Returns the problems of the call record.
fn reasons(audit: &AuditHealth) -> Vec<String> {
    let mut reasons: Vec<String> = audit.reason.iter().cloned().collect();
    let store = audit
        .store_error
        .as_ref()
        .or(audit.last_fold_error.as_ref());
    let waiting = audit.folded_lag_records;
    match (store, &audit.reason) {
        // The same trouble, said already.
        (Some(error), Some(reason)) if error.contains(reason) => {}
        (Some(error), Some(_)) => reasons.push(format!(
            "the database cannot be written: {error}; {waiting} records wait in the journal"
        )),
        (Some(error), None) => reasons.push(format!(
            "the database cannot be written: {error}; calls continue, {waiting} records wait in the journal"
        )),
        (None, _) => {}
    }
    reasons.extend(audit.damage.iter().map(ToString::to_string));
    reasons
}

/// Describes the effect of a clock that is too far ahead.
fn clock_is_ahead(by: Duration) -> String {
    let days = by.as_secs() / 86_400;
    format!(
        "the clock is {days} days ahead of what was recorded last: no call is dropped for its age; if the \
         clock is right, say so with `gantry audit confirm-clock`"
    )
}
