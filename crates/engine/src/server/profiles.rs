//! Further lives of a server of the handshake era, each for clients that can the same: such a server
//! is told once, when its link is opened, what its client can do, and asks by that.
//!
//! Where a request of the server's does not say which call it is for, a life has one call at a time.
//! A life whose call waits for its client is passed by: the next call gets another; one that still
//! owes an answer serves only whom it owes, lest it ask somebody else. Lives begin when they are
//! needed and end when idle; there are few, of which one agent has half at most. What the server
//! offers is not asked here. Entry point: [`Profiles::link`].

mod pool;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::mcp::ClientCan;
use gantry_model::spec::{ServerSpec, Start};
use gantry_model::status::State;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::pool::Party;
use self::pool::{Found, Pool};
use super::begins::Begins;
use super::handle::{Live, ServerHandle};
use super::link::Link;
use super::runner::Surroundings;
use crate::catalog::ServerCatalog;
use crate::error::CallError;

/// The least and the most lives there may be at once; between them as many as calls.
const FEWEST: u32 = 4;
const MOST: u32 = 16;
/// How long a life that nobody uses goes on.
const IDLE: Duration = Duration::from_secs(300);

/// The further lives of one server.
#[derive(Default)]
pub(crate) struct Profiles {
    around: Weak<Surroundings>,
    pool: Mutex<Pool<ServerHandle>>,
    /// Rings when a life is free, or passed by.
    changed: Notify,
    tasks: TaskTracker,
}

/// A link for a call, whose life is the call's until this is dropped.
pub(crate) struct Lease {
    pub(crate) link: Arc<Link>,
    place: Place,
}

/// A place on a life.
struct Place {
    profiles: Arc<Profiles>,
    number: u64,
    /// Whose call it is, until the server has answered it.
    unanswered: Mutex<Option<Party>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let unanswered = self.unanswered.get_mut();
        let unanswered = unanswered.unwrap_or_else(PoisonError::into_inner).take();
        let now = Instant::now();
        self.profiles.lock().leave(self.number, unanswered, now);
        self.profiles.changed.notify_waiters();
    }
}

impl Lease {
    /// Notes that the server was sent a call of this client's, and may ask for it.
    pub(crate) fn sent(&self, party: Party) {
        self.owes(Some(party));
    }

    /// Notes that the server has answered: it has nothing more to ask for this call.
    pub(crate) fn answered(&self) {
        self.owes(None);
    }

    fn owes(&self, party: Option<Party>) {
        let unanswered = self.place.unanswered.lock();
        *unanswered.unwrap_or_else(PoisonError::into_inner) = party;
    }

    /// Stops the clock of a call while its caller is asked, or starts it again.
    pub(crate) fn pause(&self, call: u64, asked: bool) {
        self.link.pause(call, asked);
        let profiles = &self.place.profiles;
        profiles.lock().asks(self.place.number, asked);
        profiles.changed.notify_waiters();
    }
}

impl Profiles {
    pub(crate) fn new(around: &Arc<Surroundings>) -> Self {
        Self {
            around: Arc::downgrade(around),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool<ServerHandle>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a link for clients that can do this: of a life that is free, or of one that begins.
    /// Waits for its turn no longer than a call may take, and for the link no longer than `within`.
    pub(crate) async fn link(
        self: &Arc<Self>,
        server: &ServerHandle,
        (can, party): (ClientCan, &Party),
        within: Duration,
    ) -> Result<Lease, CallError> {
        let until = Instant::now() + server.spec.calls.timeout.min(within);
        let mut seat = None;
        loop {
            let changed = self.changed.notified();
            if let Some((place, handle)) = self.take(server, (can, party))? {
                let link = handle.link(&party.agent, within).await?;
                return Ok(Lease { link, place });
            }
            // Only who has to wait needs a place among those who do.
            let seat = match &mut seat {
                Some(seat) => seat,
                none => none.insert(server.seat(&party.agent)?),
            };
            let Some(Ok(())) = seat.wait_for(timeout_at(until, changed)).await else {
                return Err(server.busy());
            };
        }
    }

    /// Takes a place, if there is one now.
    fn take(
        self: &Arc<Self>,
        server: &ServerHandle,
        (can, party): (ClientCan, &Party),
    ) -> Result<Option<(Place, ServerHandle)>, CallError> {
        let around = self.around.upgrade().ok_or(CallError::Stopping)?;
        if server.stop.is_cancelled() || self.tasks.is_closed() {
            return Err(CallError::Stopping);
        }
        let place = |number| Place {
            profiles: Arc::clone(self),
            number,
            unanswered: Mutex::default(),
        };
        let most = server.spec.concurrency().clamp(FEWEST, MOST) as usize;
        let mut pool = self.lock();
        let number = match pool.find(can, party, most, Instant::now()) {
            Found::Free(number, handle) => {
                let handle = handle.clone();
                return Ok(Some((place(number), handle)));
            }
            Found::Room(number, instead_of) => {
                if let Some(ended) = instead_of {
                    ended.stop.cancel();
                }
                number
            }
            Found::Wait => return Ok(None),
        };
        let handle = self.begin(&around, server, (can, number));
        let shares = server.status.borrow().transport == Some("streamable-http");
        let whose = (can, &party.agent);
        pool.insert(number, whose, shares, handle.clone(), Instant::now());
        Ok(Some((place(number), handle)))
    }

    /// Begins a life that declares what these clients can do.
    fn begin(
        self: &Arc<Self>,
        around: &Arc<Surroundings>,
        server: &ServerHandle,
        (can, number): (ClientCan, u64),
    ) -> ServerHandle {
        let note = format!("for clients with {}: ", can.capabilities().text());
        let around = Arc::new(Surroundings {
            events: around.events.noted(&note),
            changed: Arc::new(|| {}),
            ..Surroundings::clone(around)
        });
        let hello = server.catalog.load().hello.clone();
        let catalog = ServerCatalog::new(Default::default(), hello);
        let begins = Begins {
            id: server.id,
            created_ms: server.created_ms,
            first: State::Idle,
            live: Live::Cold,
            catalog: Arc::new(ArcSwap::from_pointee(catalog)),
            logs: Arc::clone(&server.logs),
            known: Arc::clone(&server.known),
            counters: Arc::clone(&server.counters),
            stop: server.stop.child_token(),
            declares: can,
            credentials: server.credentials.clone(),
        };
        let spec = ServerSpec {
            start: Start::Lazy,
            ..ServerSpec::clone(&server.spec)
        };
        let (handle, runner) = begins.assemble(&around, Arc::new(spec));
        self.tasks.spawn(runner.keep_running(true));
        let (profiles, stop) = (Arc::downgrade(self), handle.stop.clone());
        self.tasks
            .spawn(async move { end_when_idle(&profiles, number, &stop).await });
        handle
    }

    /// Returns how many calls of all lives are in flight, and how many wait for a lane of theirs.
    pub(crate) fn calls(&self) -> (usize, usize) {
        let lives: Vec<ServerHandle> = self.lock().all().cloned().collect();
        lives.iter().fold((0, 0), |(in_flight, waiting), life| {
            let queue = life.own_queue();
            (in_flight + queue.in_flight, waiting + queue.waiting)
        })
    }

    /// Ends all lives; they begin anew when they are needed.
    pub(crate) fn end_all(&self) {
        for handle in self.lock().drain() {
            handle.stop.cancel();
        }
        self.changed.notify_waiters();
    }

    /// Ends all lives for good, and waits until their processes are gone.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.end_all();
        self.tasks.wait().await;
    }
}

/// Ends a life that nobody has used for a while.
async fn end_when_idle(profiles: &Weak<Profiles>, number: u64, stop: &CancellationToken) {
    let mut until = Instant::now() + IDLE;
    loop {
        let waited = stop.run_until_cancelled(tokio::time::sleep_until(until));
        if waited.await.is_none() {
            return;
        }
        let Some(profiles) = profiles.upgrade() else {
            return;
        };
        match profiles.lock().look(number, Instant::now(), IDLE) {
            Some(next) => until = next,
            None => return stop.cancel(),
        }
    }
}
