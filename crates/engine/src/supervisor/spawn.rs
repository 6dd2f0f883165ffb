//! Puts one server's runner on its way: remembers its catalog, makes its handle, tracks its task,
//! and starts the runner anew if it should ever panic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::restart::History;
use gantry_model::secret::Redactor;
use gantry_model::spec::{Launch, ServerSpec, Start};
use gantry_model::status::State;
use gantry_sandbox::Meter;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Supervisor;
use crate::catalog::ServerCatalog;
use crate::clock::Stopwatch;
use crate::server::handle::{Live, ServerHandle};
use crate::server::link::Counters;
use crate::server::listing::Listing;
use crate::server::logs::Logs;
use crate::server::runner::remote::Far;
use crate::server::runner::{ServerRunner, UsageCell};
use crate::server::status::ServerStatus;

/// How long a runner that panicked stays away.
const AFTER_PANIC: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Starts the runner of a server and returns its handle.
    pub(super) async fn launch(
        &self,
        id: ServerId,
        spec: ServerSpec,
        created_ms: u64,
    ) -> ServerHandle {
        let spec = Arc::new(spec);
        let lazy = spec.start == Start::Lazy;
        let (first, live, remembered) = match &spec.needs_approval {
            Some(why) => {
                let live = Live::Down(Arc::from(why.as_str()), None);
                (State::NeedsApproval, live, ServerCatalog::empty())
            }
            None if lazy => (State::Idle, Live::Cold, self.remembered(id, &spec).await),
            None => {
                let remembered = self.remembered(id, &spec).await;
                (State::Starting, Live::Starting, remembered)
            }
        };
        let (live_tx, live) = watch::channel(live);
        let mut status = ServerStatus::new(first);
        status.reason.clone_from(&spec.needs_approval);
        status.tools = remembered.tools.len();
        let (status_tx, status) = watch::channel(status);
        // One place: an order that was not taken yet is the same order as the next.
        let (orders_tx, orders) = mpsc::channel(1);
        let usage = UsageCell::default();
        let shown_usage = Arc::clone(&usage);
        let redactor = Arc::new(redactor(&spec));
        let handle = ServerHandle {
            id,
            name: spec.name.clone(),
            spec: Arc::clone(&spec),
            created_ms,
            live,
            status,
            wake: Arc::new(Notify::new()),
            orders: orders_tx,
            stop: self.stopping.child_token(),
            stopped: CancellationToken::new(),
            catalog: Arc::new(ArcSwap::from_pointee(remembered)),
            logs: Arc::new(Logs::new(Arc::clone(&redactor))),
            counters: Arc::new(Counters::default()),
            usage: Arc::new(move || {
                let cell = shown_usage.lock().ok()?;
                cell.as_ref().map(Meter::read)
            }),
            redactor,
            waiting: Arc::default(),
            retries: Arc::default(),
        };
        let policy = spec.life.restart.policy().unwrap_or_default();
        let far = match &spec.launch {
            Launch::Process(_) => None,
            Launch::Remote(remote) => Some(Far::new(remote)),
        };
        let runner = ServerRunner {
            id,
            spec,
            around: Arc::clone(&self.around),
            live: live_tx,
            status: status_tx,
            wake: Arc::clone(&handle.wake),
            orders,
            stop: handle.stop.clone(),
            catalog: Arc::clone(&handle.catalog),
            logs: Arc::clone(&handle.logs),
            counters: Arc::clone(&handle.counters),
            usage,
            policy,
            history: History::default(),
            watch: Stopwatch::start(),
            era_hint: handle.catalog.load().hello.as_ref().map(|hello| hello.era),
            far,
        };
        self.track(runner, lazy, &handle);
        handle
    }

    /// Runs the runner until the server is stopped, a panic of ours notwithstanding.
    fn track(&self, mut runner: ServerRunner, lazy: bool, handle: &ServerHandle) {
        let stopped = handle.stopped.clone();
        let around = Arc::clone(&self.around);
        self.around.tracker.spawn(async move {
            let mut lazy = lazy;
            loop {
                let run = AssertUnwindSafe(runner.run(lazy)).catch_unwind().await;
                match run {
                    Ok(()) => break,
                    Err(_panic) => {
                        error!(server = %runner.spec.name, "the server's runner panicked");
                        let what = "the runner failed inside the gateway and starts anew";
                        around
                            .events
                            .report(&runner.spec.name, EventKind::StartFailed, what);
                        // What panicked once may do so again; the next start sets it right then.
                        let cut = AssertUnwindSafe(|| runner.cut_short(what));
                        drop(std::panic::catch_unwind(cut));
                        if runner.stop.is_cancelled() {
                            break;
                        }
                        lazy = false;
                        tokio::time::sleep(AFTER_PANIC).await;
                    }
                }
            }
            stopped.cancel();
        });
    }

    /// Returns what the server offered when it last ran, if its spec is unchanged.
    async fn remembered(&self, id: ServerId, spec: &ServerSpec) -> ServerCatalog {
        match self.store.load_catalog(id).await {
            Ok(Some((fingerprint, hello, rows))) if fingerprint == spec.fingerprint() => {
                let hello = crate::server::handshake::Hello::from_json(&hello).map(Arc::new);
                let listing = Listing::from_rows(&rows).filtered(&spec.tools);
                ServerCatalog::new(listing, hello)
            }
            Ok(_) => ServerCatalog::empty(),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(server = %spec.name, error, "the remembered catalog cannot be read");
                ServerCatalog::empty()
            }
        }
    }
}

/// What a server is given may be a secret of its own.
fn redactor(spec: &ServerSpec) -> Redactor {
    match &spec.launch {
        Launch::Process(process) => Redactor::new(&process.secrets()),
        Launch::Remote(remote) => Redactor::new(&remote.secrets()),
    }
}
