//! Builds the handle and the runner of one instance of a server from shared parts, and restarts the
//! runner if it panics. Starts nothing itself; the caller owns the task.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::mcp::ClientCapabilities;
use gantry_model::restart::History;
use gantry_model::spec::ServerSpec;
use gantry_model::status::ServerState;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::catalog::ServerCatalog;
use super::handle::{LinkState, SecretsUsed, ServerHandle};
use super::link::Counters;
use super::logs::Logs;
use super::profiles::Profiles;
use super::retry_budget::RetryBudget;
use super::runner::remote::RemoteState;
use super::runner::{ExitCell, RunnerContext, ServerRunner, UsageCell};
use super::status::ServerStatus;
use super::topics::Topics;
use super::waiting::WaitingCallers;
use crate::clock::Stopwatch;
use crate::credentials::Credentials;
use crate::known_secrets::KnownSecrets;
use crate::schema::Permits;

/// The delay before a runner that panicked is restarted.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The parts of an instance.
pub(crate) struct InstanceParts {
    pub(crate) id: ServerId,
    pub(crate) created_ms: u64,
    pub(crate) first: ServerState,
    pub(crate) live: LinkState,
    pub(crate) catalog: Arc<ArcSwap<ServerCatalog>>,
    pub(crate) logs: Arc<Logs>,
    /// The secrets to redact from everything the server sends.
    pub(crate) known: Arc<KnownSecrets>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: CancellationToken,
    /// The client capabilities that are declared to the server.
    pub(crate) declares: ClientCapabilities,
    /// Set when a server of the stateless era refuses the handshake.
    pub(crate) refuses: Option<Arc<AtomicBool>>,
    /// The credentials for a remote server.
    pub(crate) credentials: Option<Credentials>,
    /// The subscriptions of its single client; `None` if it serves all clients.
    pub(crate) topics: Option<Arc<Topics>>,
}

impl InstanceParts {
    /// Builds the handle and the runner.
    pub(crate) fn assemble(
        self,
        context: &Arc<RunnerContext>,
        spec: Arc<ServerSpec>,
    ) -> (Arc<ServerHandle>, ServerRunner) {
        let (live_tx, live) = watch::channel(self.live);
        let mut status = ServerStatus::new(self.first);
        status.reason = spec.held().map(|(_, why)| why.to_owned());
        let (status_tx, status) = watch::channel(status);
        // One slot: a pending command is equal to the next one.
        let (commands_tx, commands) = mpsc::channel(1);
        let usage = UsageCell::default();
        let secrets_used = SecretsUsed::default();
        let shown_usage = Arc::clone(&usage);
        let handle = ServerHandle {
            id: self.id,
            name: spec.name.clone(),
            spec: Arc::clone(&spec),
            created_ms: self.created_ms,
            live,
            status,
            wake: Arc::new(Notify::new()),
            commands: commands_tx,
            stop: self.stop,
            stopped: CancellationToken::new(),
            catalog: self.catalog,
            logs: self.logs,
            counters: self.counters,
            usage: Arc::new(move || {
                let cell = shown_usage.lock();
                cell.as_ref().and_then(|read| read())
            }),
            known: Arc::clone(&self.known),
            secrets_used: Arc::clone(&secrets_used),
            waiting: WaitingCallers::new(spec.calls.queue),
            credentials: self.credentials.clone(),
            retries: RetryBudget::default(),
            permits: Permits::new(&context.checks),
            profiles: Arc::new(Profiles::new(context)),
            usage_history: Arc::default(),
        };
        let remote = spec.launch.remote().map(RemoteState::new);
        let runner = ServerRunner {
            id: self.id,
            policy: spec.lifecycle.restart.policy().unwrap_or_default(),
            wanted: Arc::clone(&spec),
            spec,
            known: self.known,
            secrets_used,
            context: Arc::clone(context),
            live: live_tx,
            status: status_tx,
            wake: Arc::clone(&handle.wake),
            commands,
            stop: handle.stop.clone(),
            catalog: Arc::clone(&handle.catalog),
            logs: Arc::clone(&handle.logs),
            counters: Arc::clone(&handle.counters),
            usage,
            exit: ExitCell::default(),
            history: History::default(),
            watch: Stopwatch::start(),
            era_hint: handle
                .catalog
                .load()
                .handshake
                .as_ref()
                .map(|handshake| handshake.era),
            declares: self.declares,
            refuses: self.refuses,
            remote,
            credentials: self.credentials,
            topics: self.topics,
        };
        (Arc::new(handle), runner)
    }
}

impl ServerRunner {
    /// Runs until the server is stopped; restarts after a panic.
    pub(crate) async fn keep_running(mut self, mut lazy: bool) {
        loop {
            let run = AssertUnwindSafe(self.run(lazy)).catch_unwind().await;
            match run {
                Ok(()) => break,
                Err(_panic) => {
                    error!(server = %self.spec.name, "the server's runner panicked");
                    let what = "the runner failed inside the gateway and is restarted";
                    self.context
                        .events
                        .report(&self.spec.name, EventKind::StartFailed, what);
                    // The cleanup may panic again; then the next start cleans up.
                    let cut = AssertUnwindSafe(|| self.cut_short(what));
                    drop(std::panic::catch_unwind(cut));
                    if self.stop.is_cancelled() {
                        break;
                    }
                    lazy = false;
                    tokio::time::sleep(AFTER_PANIC).await;
                }
            }
        }
    }
}
