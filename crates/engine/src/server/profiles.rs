//! Further lives of a server of the handshake era, each for all clients that can the same: such a
//! server is told once, when its link is opened, what its client can do, and asks by that.
//!
//! A life is begun by the first call that needs it and ended when it was idle for a while; there are
//! few at a time. What the server offers is not asked here. Entry point: [`Profiles::link`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::mcp::ClientCan;
use gantry_model::spec::{ServerSpec, Start};
use gantry_model::status::State;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::begins::Begins;
use super::handle::{Live, ServerHandle};
use super::link::Link;
use super::runner::Surroundings;
use crate::catalog::ServerCatalog;
use crate::error::CallError;

/// How many further lives a server may have.
const LIVES: usize = 4;
/// How long a life that nobody uses goes on.
const IDLE: Duration = Duration::from_secs(300);

/// The further lives of one server.
#[derive(Default)]
pub(crate) struct Profiles {
    around: Weak<Surroundings>,
    table: Mutex<HashMap<ClientCan, Profile>>,
    tasks: TaskTracker,
}

struct Profile {
    handle: ServerHandle,
    /// Held by every call on it.
    used: Arc<()>,
    last: Instant,
}

/// A link for a call, which keeps its life from being idle.
pub(crate) struct Lease {
    pub(crate) link: Arc<Link>,
    /// Held for its drop.
    _used: Arc<()>,
}

impl Profiles {
    pub(crate) fn new(around: &Arc<Surroundings>) -> Self {
        Self {
            around: Arc::downgrade(around),
            table: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientCan, Profile>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the link for clients that can do this, and begins a life if there is none.
    pub(crate) async fn link(
        self: &Arc<Self>,
        server: &ServerHandle,
        can: ClientCan,
        within: Duration,
    ) -> Result<Lease, CallError> {
        let (handle, used) = self.take(server, can)?;
        let link = handle.link(within).await?;
        Ok(Lease { link, _used: used })
    }

    fn take(
        self: &Arc<Self>,
        server: &ServerHandle,
        can: ClientCan,
    ) -> Result<(ServerHandle, Arc<()>), CallError> {
        let mut table = self.lock();
        if let Some(profile) = table.get_mut(&can) {
            profile.last = Instant::now();
            return Ok((profile.handle.clone(), Arc::clone(&profile.used)));
        }
        if server.stop.is_cancelled() || self.tasks.is_closed() {
            return Err(CallError::Stopping);
        }
        if table.len() >= LIVES {
            let idle = table.iter().filter(|(_, profile)| profile.is_idle());
            let oldest = idle.min_by_key(|(_, profile)| profile.last);
            let oldest = oldest.map(|(can, _)| *can).ok_or_else(|| server.busy())?;
            if let Some(profile) = table.remove(&oldest) {
                profile.handle.stop.cancel();
            }
        }
        let around = self.around.upgrade().ok_or(CallError::Stopping)?;
        let handle = self.begin(&around, server, can);
        let used = Arc::new(());
        let profile = Profile {
            handle: handle.clone(),
            used: Arc::clone(&used),
            last: Instant::now(),
        };
        table.insert(can, profile);
        Ok((handle, used))
    }

    /// Begins a life that declares what these clients can do.
    fn begin(
        self: &Arc<Self>,
        around: &Arc<Surroundings>,
        server: &ServerHandle,
        can: ClientCan,
    ) -> ServerHandle {
        let note = format!("for clients with {}: ", can.capabilities().text());
        let around = Arc::new(Surroundings {
            events: around.events.noted(&note),
            changed: Arc::new(|| {}),
            ..Surroundings::clone(around)
        });
        let hello = server.catalog.load().hello.clone();
        let begins = Begins {
            id: server.id,
            created_ms: server.created_ms,
            first: State::Idle,
            live: Live::Cold,
            catalog: Arc::new(ArcSwap::from_pointee(ServerCatalog::new(
                Default::default(),
                hello,
            ))),
            logs: Arc::clone(&server.logs),
            redactor: Arc::clone(&server.redactor),
            counters: Arc::clone(&server.counters),
            stop: server.stop.child_token(),
            declares: can,
        };
        let spec = Arc::new(spec(&server.spec, server.status.borrow().transport));
        let (handle, runner) = begins.assemble(&around, spec);
        self.tasks.spawn(runner.keep_running(true));
        let (profiles, stop) = (Arc::downgrade(self), handle.stop.clone());
        self.tasks
            .spawn(async move { end_when_idle(&profiles, can, &stop).await });
        handle
    }

    /// Ends all lives; they begin anew when they are needed.
    pub(crate) fn end_all(&self) {
        for (_, profile) in self.lock().drain() {
            profile.handle.stop.cancel();
        }
    }

    /// Ends all lives for good, and waits until their processes are gone.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.end_all();
        self.tasks.wait().await;
    }

    /// Returns when a life has been idle for long enough; none if it was ended just now.
    fn look(&self, can: ClientCan, stop: &CancellationToken) -> Option<Instant> {
        let mut table = self.lock();
        let profile = table.get_mut(&can)?;
        let now = Instant::now();
        if !profile.is_idle() {
            profile.last = now;
        }
        let until = profile.last + IDLE;
        if until <= now {
            table.remove(&can);
            stop.cancel();
            return None;
        }
        Some(until)
    }
}

impl Profile {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.used) == 1
    }
}

async fn end_when_idle(profiles: &Weak<Profiles>, can: ClientCan, stop: &CancellationToken) {
    let mut until = Instant::now() + IDLE;
    loop {
        let waited = stop.run_until_cancelled(tokio::time::sleep_until(until));
        if waited.await.is_none() {
            return;
        }
        let next = profiles
            .upgrade()
            .and_then(|profiles| profiles.look(can, stop));
        match next {
            Some(next) => until = next,
            None => return,
        }
    }
}

/// Returns the spec of a further life. Where a request of the server's does not say which call it
/// is for, there must be only one; over streamable HTTP it comes on that call's own stream.
fn spec(shared: &ServerSpec, transport: Option<&str>) -> ServerSpec {
    let mut spec = shared.clone();
    spec.start = Start::Lazy;
    if transport != Some("streamable-http") {
        spec.calls.concurrency = Some(1);
    }
    spec
}
