//! Further lives of a server, which speak the handshake and each belong to one client that can be
//! asked: such a server is told once, when its link is opened, what its client can do, and asks by
//! that.
//!
//! A life belongs to its client from its beginning to its end, and has as many of its calls at once as
//! the server takes: what the server asks is then asked of that client, whichever call it is for. A
//! client without a session is known by its key alone, so that such a life has one call at a time,
//! unless the server's requests say which call they are for. Lives begin before anybody waits and end
//! when idle; there are few, which agents share while they compete (`pool`). Entry point: [`Profiles::link`].

mod own;
mod pool;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::era::Era;
use gantry_model::mcp::ClientCan;
use gantry_model::spec::{ServerSpec, Start};
use gantry_model::status::State;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::pool::Party;
use self::pool::{Found, Pool, Wish};
use super::begins::Begins;
use super::catalog::ServerCatalog;
use super::handle::{Live, ServerHandle};
use super::handshake::Hello;
use super::link::Link;
use super::runner::RunnerContext;
use super::topics::Topics;
use crate::error::{CallError, Full};

/// The least and the most lives there may be at once; between them as many as calls.
const FEWEST: u32 = 4;
const MOST: u32 = 16;
/// How long a life that nobody uses goes on.
const IDLE: Duration = Duration::from_secs(300);

/// The further lives of one server.
#[derive(Default)]
pub(crate) struct Profiles {
    context: Weak<RunnerContext>,
    pool: Mutex<Pool<Arc<ServerHandle>>>,
    /// What clients want to hear of from their instances, as long as they do or have one.
    topics: Mutex<HashMap<Party, Weak<Topics>>>,
    /// Rings when a life has a place.
    changed: Notify,
    tasks: TaskTracker,
    /// The server is of the stateless era, and was found to know no other.
    refuses: Arc<AtomicBool>,
}

/// Who needs a life, and for what.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) can: ClientCan,
    pub(crate) party: &'a Party,
    /// The tool that is called, if it is one.
    pub(crate) tool: Option<&'a str>,
}

/// A link for a call, which has a place on its life until this is dropped.
pub(crate) struct Lease {
    pub(crate) link: Arc<Link>,
    /// What the server said on this link.
    pub(crate) hello: Option<Arc<Hello>>,
    place: Place,
}

/// A place on a life.
struct Place {
    profiles: Arc<Profiles>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.profiles.lock().leave(self.number, Instant::now());
        self.profiles.changed.notify_waiters();
    }
}

impl Lease {
    /// Runs something as long as it needs, at most as long as the link.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.place.profiles.tasks.spawn(work);
    }
}

/// A place on a life, or why there is none.
type Taken = Result<(Place, Arc<ServerHandle>), Full>;

impl Profiles {
    pub(crate) fn new(context: &Arc<RunnerContext>) -> Self {
        Self {
            context: Arc::downgrade(context),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool<Arc<ServerHandle>>> {
        self.pool.lock()
    }

    /// Returns a link for a client: of its own life, or of one that begins; none if the server knows
    /// no handshake. Waits for its turn no longer than a call may take, and for the link no longer
    /// than `within`.
    pub(crate) async fn link(
        self: &Arc<Self>,
        server: &ServerHandle,
        wanted: Wanted<'_>,
        within: Duration,
    ) -> Result<Option<Lease>, CallError> {
        let until = Instant::now() + server.spec.calls.timeout.min(within);
        let agent = &wanted.party.agent;
        let is_stateless = speaks(server) == Some(Era::Stateless);
        let mut seat = None;
        loop {
            if is_stateless && self.refuses.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let changed = self.changed.notified();
            let full = match self.take(server, wanted, is_stateless)? {
                Ok((place, handle)) => {
                    return match handle.link(agent, within).await {
                        Ok(link) => Ok(Some(Lease {
                            link,
                            hello: handle.catalog.load().hello.clone(),
                            place,
                        })),
                        // The server can be called all the same, as it wants to be.
                        Err(CallError::Down { .. }) if is_stateless => Ok(None),
                        Err(error) => Err(error),
                    };
                }
                Err(full) => full,
            };
            // Only who has to wait needs a place among those who do.
            let seat = match &mut seat {
                Some(seat) => seat,
                none => none.insert(server.seat(agent)?),
            };
            match seat.wait_for(timeout_at(until, changed)).await {
                Some(Ok(())) => {}
                Some(Err(_elapsed)) => return Err(server.full(full)),
                None => return Err(server.busy()),
            }
        }
    }

    /// Takes a place, if there is one now.
    fn take(
        self: &Arc<Self>,
        server: &ServerHandle,
        Wanted { can, party, tool }: Wanted<'_>,
        is_stateless: bool,
    ) -> Result<Taken, CallError> {
        let context = self.context.upgrade().ok_or(CallError::Stopping)?;
        if server.stop.is_cancelled() || self.tasks.is_closed() {
            return Err(CallError::Stopping);
        }
        let place = |number| Place {
            profiles: Arc::clone(self),
            number,
        };
        let mut pool = self.lock();
        // Where all list the same it is not looked for.
        let is_own = |life: &Arc<ServerHandle>| life.catalog.load().is_own;
        let tool = tool.filter(|_| pool.all().any(|(_, life)| is_own(life)));
        let common = server.catalog.load();
        let offers = |life: &Arc<ServerHandle>| {
            tool.is_none_or(|tool| own::lists(&life.catalog.load(), &common).has_tool(tool))
        };
        let concurrency = server.spec.concurrency();
        let wish = Wish {
            can,
            party,
            lanes: match party.session {
                Some(_) => concurrency,
                None => 1,
            },
            most: concurrency.clamp(FEWEST, MOST) as usize,
            shares: server.status.borrow().transport == Some("streamable-http"),
            offers: &offers,
            is_common: tool.is_none_or(|tool| common.has_tool(tool)),
        };
        let (number, instead_of) = match pool.find(&wish, Instant::now()) {
            Found::Free(number, handle) => {
                let handle = handle.clone();
                return Ok(Ok((place(number), handle)));
            }
            Found::Room(number, instead_of) => (number, instead_of),
            Found::Wait(full) => return Ok(Err(full)),
        };
        let handle = self.begin(&context, server, (can, party, number), is_stateless);
        pool.insert(number, (can, party), handle.clone(), Instant::now());
        drop(pool);
        if let Some(ended) = instead_of {
            ended.stop.cancel();
            self.left(&ended);
        }
        Ok(Ok((place(number), handle)))
    }

    /// Begins a life that declares what its client can do.
    fn begin(
        self: &Arc<Self>,
        context: &Arc<RunnerContext>,
        server: &ServerHandle,
        (can, party, number): (ClientCan, &Party, u64),
        is_stateless: bool,
    ) -> Arc<ServerHandle> {
        let topics = self.topics(party);
        let note = format!("for clients with {}: ", can.capabilities().text());
        let context = Arc::new(RunnerContext {
            events: context.events.noted(&note),
            ..RunnerContext::clone(context)
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
            refuses: is_stateless.then(|| Arc::clone(&self.refuses)),
            credentials: server.credentials.clone(),
            topics: Some(Arc::clone(&topics)),
        };
        let spec = ServerSpec {
            start: Start::Lazy,
            ..ServerSpec::clone(&server.spec)
        };
        let (handle, runner) = begins.assemble(&context, Arc::new(spec));
        self.tasks.spawn(runner.keep_running(true));
        let (profiles, life) = (Arc::downgrade(self), handle.clone());
        self.tasks
            .spawn(async move { end_when_idle(&profiles, (number, &life), &topics).await });
        handle
    }

    /// Tells whether a client has a life of its own.
    pub(crate) fn has(&self, party: &Party) -> bool {
        self.lock().all().any(|(whose, _)| whose == party)
    }

    /// Returns what a client wants to hear of from its lives, those to come too.
    pub(crate) fn topics(&self, party: &Party) -> Arc<Topics> {
        let mut all = self.topics.lock();
        if let Some(topics) = all.get(party).and_then(Weak::upgrade) {
            return topics;
        }
        all.retain(|_, topics| topics.strong_count() > 0);
        let topics = Arc::new(Topics::default());
        all.insert(party.clone(), Arc::downgrade(&topics));
        topics
    }

    /// Tells the lives of a client something.
    pub(crate) fn tell(&self, party: &Party, method: &str) {
        let lives = self.lock();
        let theirs = lives.all().filter(|(whose, _)| *whose == party);
        let theirs: Vec<Arc<ServerHandle>> = theirs.map(|(_, life)| life.clone()).collect();
        drop(lives);
        for life in theirs {
            if let Live::Ready(link) = &*life.live.borrow() {
                link.tell(method, None);
            }
        }
    }

    /// Has the catalog forget the lists of a life that ends, if it had its own.
    fn left(&self, life: &ServerHandle) {
        if let Some(context) = self.context.upgrade()
            && life.catalog.load().is_own
        {
            (context.changed)();
        }
    }

    /// Returns how many calls of all lives are in flight, and how many wait for a lane of theirs.
    pub(crate) fn calls(&self) -> (usize, usize) {
        let lives: Vec<Arc<ServerHandle>> =
            self.lock().all().map(|(_, life)| life.clone()).collect();
        lives.iter().fold((0, 0), |(in_flight, waiting), life| {
            let queue = life.own_queue();
            (in_flight + queue.in_flight, waiting + queue.waiting)
        })
    }

    /// Ends all lives; they begin anew when they are needed.
    pub(crate) fn end_all(&self) {
        let ended: Vec<Arc<ServerHandle>> = self.lock().drain().collect();
        for life in &ended {
            life.stop.cancel();
            self.left(life);
        }
        self.refuses.store(false, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Ends all lives for good, and waits until their processes are gone.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.end_all();
        self.tasks.wait().await;
    }
}

/// Returns the era of the server's own life.
fn speaks(server: &ServerHandle) -> Option<Era> {
    let catalog = server.catalog.load();
    catalog.hello.as_ref().map(|hello| hello.era)
}

/// Ends a life that nobody has used for a while, nor wants to hear of; one that was stopped has no
/// place any more.
async fn end_when_idle(
    profiles: &Weak<Profiles>,
    (number, life): (u64, &ServerHandle),
    topics: &Topics,
) {
    let stop: &CancellationToken = &life.stop;
    let mut until = Instant::now() + IDLE;
    loop {
        let waited = stop.run_until_cancelled(tokio::time::sleep_until(until));
        if waited.await.is_none() {
            return;
        }
        let Some(profiles) = profiles.upgrade() else {
            return;
        };
        let now = Instant::now();
        let next = match topics.is_empty() {
            true => profiles.lock().look(number, now, IDLE),
            false => Some(now + IDLE),
        };
        match next {
            Some(next) => until = next,
            None => {
                stop.cancel();
                return profiles.left(life);
            }
        }
    }
}
