//! The lifecycle of one server. Each state is one async method that publishes its status first and
//! returns the next state; a stop takes precedence over everything. Calls do not pass through here.

mod attempts;
mod health;
pub(crate) mod remote;
mod running;
mod secrets;
mod serving;
mod starting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::era::Era;
use gantry_model::event::EventKind;
use gantry_model::id::{ProjectName, ServerId};
use gantry_model::mcp::ClientCapabilities;
use gantry_model::restart::{History, RestartPolicy};
use gantry_model::spec::ServerSpec;
use gantry_model::status::{Crash, ServerState};
use gantry_store::Store;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::remote::RemoteState;
use self::running::Running;
use super::catalog::ServerCatalog;
use super::handle::{LinkState, RunnerCommand, SecretsUsed};
use super::link::Counters;
use super::listing::describe;
use super::logs::Logs;
use super::pending::Failure;
use super::status::ServerStatus;
use super::topics::{TopicTable, Topics};
use crate::answers::AnswerBudget;
use crate::clock::{Stopwatch, unix_ms};
use crate::config::EngineLimits;
use crate::credentials::{Credentials, Vault};
use crate::driver::{Drivers, ExitStatus, ReadUsage};
use crate::events::Events;
use crate::http_client::Clients;
use crate::known_secrets::KnownSecrets;
use crate::pins::Pins;
use crate::random::jitter;
use crate::schema::CheckPermits;
use crate::secrets::Secrets;

/// The name of a server whose runner panics on a restart, for tests. fault P12
#[cfg(test)]
pub(crate) const TRIPS: &str = "trips";

/// Shared by all runners of an engine.
#[derive(Clone)]
pub(crate) struct RunnerContext {
    pub(crate) project: ProjectName,
    pub(crate) drivers: Drivers,
    /// The generation of the newest instance.
    pub(crate) generations: Arc<AtomicU64>,
    /// HTTP clients for remote servers.
    pub(crate) clients: Arc<Clients>,
    pub(crate) store: Store,
    /// Stores the tokens of remote servers.
    pub(crate) vault: Vault,
    /// The secrets of the project.
    pub(crate) secrets: Secrets,
    /// The redirect URI of sign-ins, once the gateway listens.
    pub(crate) callback: watch::Sender<Option<String>>,
    pub(crate) events: Events,
    pub(crate) tracker: TaskTracker,
    pub(crate) limits: EngineLimits,
    /// The first upstream id of this boot.
    pub(crate) first_id: u64,
    /// Notifies the catalog that a server's tools or availability changed.
    pub(crate) changed: Arc<dyn Fn() + Send + Sync>,
    /// Permits for expensive checks of values.
    pub(crate) checks: CheckPermits,
    /// Resources that clients subscribe to.
    pub(crate) topics: Arc<TopicTable>,
    /// The memory budget of unread responses.
    pub(crate) answers: AnswerBudget,
    /// The deadline for SIGKILL; set when the engine drains.
    pub(crate) kill_at: watch::Receiver<Option<Instant>>,
    /// What of the servers' tools is approved.
    pub(crate) pins: Arc<Pins>,
}

pub(crate) struct ServerRunner {
    pub(crate) id: ServerId,
    /// The spec as given, which names secrets.
    pub(crate) wanted: Arc<ServerSpec>,
    /// The spec with the secret values of the newest instance.
    pub(crate) spec: Arc<ServerSpec>,
    /// The secrets to redact from everything the server sends.
    pub(crate) known: Arc<KnownSecrets>,
    pub(crate) secrets_used: SecretsUsed,
    pub(crate) context: Arc<RunnerContext>,
    pub(crate) live: watch::Sender<LinkState>,
    pub(crate) status: watch::Sender<ServerStatus>,
    pub(crate) wake: Arc<Notify>,
    pub(crate) commands: mpsc::Receiver<RunnerCommand>,
    pub(crate) stop: CancellationToken,
    pub(crate) catalog: Arc<ArcSwap<ServerCatalog>>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) usage: UsageCell,
    /// How the last instance ended.
    pub(crate) exit: ExitCell,
    pub(crate) policy: RestartPolicy,
    pub(crate) history: History,
    pub(crate) watch: Stopwatch,
    /// The era that worked last; only a hint, a mismatch drops it.
    pub(crate) era_hint: Option<Era>,
    /// The sign-in to a remote server.
    pub(crate) credentials: Option<Credentials>,
    /// The state of a remote server that is kept between connections.
    pub(crate) remote: Option<RemoteState>,
    /// Declared client capabilities. With any, the first lists are not fetched, and only this client
    /// sees the lists after `list_changed`.
    pub(crate) declares: ClientCapabilities,
    /// Set once a server of the stateless era turns out not to support the handshake.
    pub(crate) refuses: Option<Arc<AtomicBool>>,
    /// The subscriptions of its single client; `None` if it serves all clients.
    pub(crate) topics: Option<Arc<Topics>>,
}

/// How an instance ended, once it has.
pub(crate) type ExitCell = Arc<Mutex<Option<ExitStatus>>>;

/// Reads the usage of the running instance, if there is one.
pub(crate) type UsageCell = Arc<Mutex<Option<ReadUsage>>>;

/// The next state.
enum NextState {
    Hold,
    Rest,
    Start,
    Serve(Box<Running>),
    Crashed(FailedRun),
    SignIn(String),
    /// A secret is missing or not bound; why, and what to do.
    Unresolved(String),
    Restart(Box<Running>),
    Stop(Option<Box<Running>>),
    Done,
}

/// A failed start or run.
struct FailedRun {
    how: String,
    kind: EndKind,
    /// The `Retry-After` of a remote server.
    retry_after: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EndKind {
    /// It could not be started, or failed the handshake.
    Start,
    /// It ran and ended.
    Exit,
    /// It ran, stopped responding, and was stopped.
    Silence,
}

impl ServerRunner {
    /// Runs until the server is stopped.
    pub(crate) async fn run(&mut self, lazy: bool) {
        let mut next = match (self.spec.held(), lazy) {
            _ if self.stop.is_cancelled() => NextState::Stop(None),
            (Some(_), _) => NextState::Hold,
            (None, true) => NextState::Rest,
            (None, false) => NextState::Start,
        };
        loop {
            next = match next {
                NextState::Hold => self.holding().await,
                NextState::Rest => self.resting().await,
                NextState::Start => self.starting().await,
                NextState::Serve(running) => self.serving(*running).await,
                NextState::Crashed(ended) if self.remote.is_some() => {
                    self.reaching_again(ended).await
                }
                NextState::Crashed(ended) => self.backing_off(ended).await,
                NextState::SignIn(why) => self.awaiting_sign_in(why).await,
                NextState::Unresolved(why) => self.awaiting_secrets(why).await,
                NextState::Restart(running) => self.restarting(*running).await,
                NextState::Stop(running) => self.stopping(running).await,
                NextState::Done => return,
            };
        }
    }

    /// Waits to be stopped: its file is not approved, or disables it. A changed file creates a new
    /// spec, and with it a new runner. fault G5
    async fn holding(&mut self) -> NextState {
        if let Some((state, why)) = self.spec.held() {
            self.publish(state, Some(why.to_owned()));
            self.show(LinkState::Down(Arc::from(why), None));
        }
        self.stop.cancelled().await;
        NextState::Stop(None)
    }

    /// Waits for the first call or listing that needs the server (lazy start).
    async fn resting(&mut self) -> NextState {
        self.publish(ServerState::Idle, None);
        self.show(LinkState::Cold);
        tokio::select! {
            biased; // Stop overtakes everything.
            () = self.stop.cancelled() => NextState::Stop(None),
            () = self.wake.notified() => NextState::Start,
            order = self.commands.recv() => match order {
                Some(RunnerCommand::Restart) => NextState::Start,
                None => NextState::Stop(None),
            },
        }
    }

    /// Waits for the backoff of the restart policy, and reports why and how long.
    async fn backing_off(&mut self, mut ended: FailedRun) -> NextState {
        if let Some(exception) = self.logs.exception() {
            ended.how = format!("{}: {exception}", ended.how);
        }
        ended.how = self.logs.redactor().redact(&ended.how).into_owned();
        if let Some(rest) = self.not_restarted(&ended) {
            return rest.await;
        }
        self.history.record_exit(&self.policy, self.watch.now());
        let decision = self
            .policy
            .decide(&self.history, self.watch.now(), jitter());
        let told = decision.describe(&ended.how);
        let reason = if told.contains(&ended.how) {
            told
        } else {
            format!("{told}: {}", ended.how)
        };
        let (name, exit) = (self.spec.name.clone(), self.exit.lock().clone());
        let next_try = Instant::now() + decision.delay;
        let state = match ended.kind {
            EndKind::Start => ServerState::Failed,
            EndKind::Exit | EndKind::Silence if decision.delay.is_zero() => ServerState::Restarting,
            EndKind::Exit => ServerState::BackingOff,
            EndKind::Silence => ServerState::Disconnected,
        };
        let crash = Crash {
            at_ms: unix_ms(),
            how: ended.how.clone(),
            stderr_tail: self.logs.stderr_tail(),
        };
        let detail = match crash.stderr_tail.is_empty() {
            true => format!("{}; {}", ended.how, decision.reason),
            false => format!(
                "{}; {}; stderr: {}",
                ended.how, decision.reason, crash.stderr_tail
            ),
        };
        let kind = match ended.kind {
            EndKind::Start => EventKind::StartFailed,
            EndKind::Exit => EventKind::Exited,
            EndKind::Silence => EventKind::Disconnected,
        };
        self.context.events.report(&name, kind, detail);
        // Told once, until the server was healthy for long enough or is restarted by hand.
        let is_warned_of = self.status.borrow().health_warning;
        if decision.health_warning && !is_warned_of {
            self.context
                .events
                .report(&name, EventKind::HealthWarning, reason.clone());
        }
        self.status.send_modify(|status| {
            status.enter(state, Some(reason.clone()));
            status.restarts += 1;
            status.attempts.end(
                crash.at_ms,
                &crash.how,
                exit.as_ref(),
                crash.stderr_tail.clone(),
            );
            status.last_crash = Some(crash);
            status.health_warning = decision.health_warning;
            status.next_try = Some(next_try);
        });
        if state == ServerState::Restarting {
            self.show(LinkState::Starting);
        } else {
            self.show(LinkState::Down(Arc::from(reason), Some(next_try)));
        }
        self.next_try(next_try).await
    }

    /// Waits for the next attempt, or for a requested restart.
    async fn next_try(&mut self, at: Instant) -> NextState {
        tokio::select! {
            biased; // Stop, then a requested restart, then the wait.
            () = self.stop.cancelled() => NextState::Stop(None),
            order = self.commands.recv() => match order {
                Some(RunnerCommand::Restart) => {
                    self.forgive();
                    NextState::Start
                }
                None => NextState::Stop(None),
            },
            () = tokio::time::sleep_until(at) => NextState::Start,
        }
    }

    /// Stops the instance for a requested restart.
    async fn restarting(&mut self, running: Running) -> NextState {
        #[cfg(test)]
        assert_ne!(self.spec.name.as_str(), TRIPS, "a runner that panics");
        let why = "restart requested";
        self.context
            .events
            .report(&self.spec.name, EventKind::RestartRequested, why);
        self.publish(ServerState::Restarting, Some(why.into()));
        self.show(LinkState::Starting);
        let grace = self.spec.lifecycle.stop_grace;
        self.end(running, &Failure::Exited(why.into()), grace).await;
        self.forgive();
        if self.stop.is_cancelled() {
            NextState::Stop(None)
        } else {
            NextState::Start
        }
    }

    async fn stopping(&mut self, running: Option<Box<Running>>) -> NextState {
        self.publish(ServerState::Stopping, None);
        self.show(LinkState::Down(Arc::from("it is being stopped"), None));
        if let Some(running) = running {
            let kill_at = *self.context.kill_at.borrow();
            let grace = kill_at.map_or(self.spec.lifecycle.stop_grace, |at| {
                at.saturating_duration_since(Instant::now())
            });
            self.end(*running, &Failure::Exited("it was stopped".into()), grace)
                .await;
        }
        self.publish(ServerState::Stopped, None);
        self.show(LinkState::Down(Arc::from("it was stopped"), None));
        self.context
            .events
            .report(&self.spec.name, EventKind::Stopped, "stopped");
        NextState::Done
    }

    /// Closes stdin, sends SIGTERM, waits, kills. Every call on the link gets an error.
    async fn end(&self, mut running: Running, failure: &Failure, grace: Duration) {
        running.terminate();
        let kill_at = self.context.kill_at.clone();
        tokio::select! {
            biased; // An end of its own first.
            () = running.ended() => {}
            () = grace_over(grace, kill_at) => running.kill().await,
        }
        self.forget_usage();
        running.deliver().await;
        running.close(failure).await;
        self.end_attempt(&describe(failure));
    }

    /// Reports that a panic ended the instance and its calls.
    pub(crate) fn cut_short(&self, why: &str) {
        self.forget_usage();
        self.publish(ServerState::Restarting, Some(why.into()));
        self.show(LinkState::Starting);
    }

    fn forgive(&mut self) {
        self.history.reset();
        if let Some(remote) = &mut self.remote {
            remote.reconnect.forgive();
        }
        self.counters.rate_limit.forget();
        self.status.send_modify(|status| {
            status.restarts = 0;
            status.health_warning = false;
        });
    }

    fn publish(&self, state: ServerState, reason: Option<String>) {
        self.status
            .send_modify(|status| status.enter(state, reason));
    }

    fn show(&self, live: LinkState) {
        self.live.send_replace(live);
        (self.context.changed)();
    }

    fn forget_usage(&self) {
        *self.usage.lock() = None;
    }
}

/// Waits for the grace period, or until the stopping gateway kills everything.
async fn grace_over(grace: Duration, mut kill_at: watch::Receiver<Option<Instant>>) {
    let over = Instant::now() + grace;
    let all_killed = async {
        let said = kill_at.wait_for(Option::is_some).await.map(|at| *at);
        tokio::time::sleep_until(said.ok().flatten().unwrap_or(over)).await;
    };
    tokio::select! {
        () = tokio::time::sleep_until(over) => {}
        () = all_killed => {}
    }
}
