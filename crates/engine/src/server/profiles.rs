//! Additional instances of a server, one per client with capabilities. A server of the handshake era
//! learns its client's capabilities once, when its link is opened, and sends requests accordingly; so
//! such a client needs an instance of its own.
//!
//! An instance belongs to one client from start to end and runs as many of its calls at once as the
//! server allows: a request from the server is then for that client, whichever call it concerns. A
//! client without a session is known by its key only, so its instance runs one call at a time, unless
//! the server's requests name their call. Instances are started on demand and stopped when idle;
//! their number is bounded and shared between agents (`pool`). Entry point: [`Profiles::link`].

mod own;
mod pool;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::era::Era;
use gantry_model::mcp::ClientCapabilities;
use gantry_model::spec::{ServerSpec, Start};
use gantry_model::status::ServerState;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::pool::InstanceOwner;
use self::pool::{Allocation, Pool, PoolRequest};
use super::assemble::InstanceParts;
use super::catalog::ServerCatalog;
use super::handle::{LinkState, ServerHandle};
use super::handshake::HandshakeInfo;
use super::link::Link;
use super::runner::RunnerContext;
use super::topics::Topics;
use crate::error::{CallError, Full};

/// The least and the most instances there may be at once; between them as many as calls.
const FEWEST: u32 = 4;
const MOST: u32 = 16;
/// How long an instance that nobody uses goes on.
const IDLE: Duration = Duration::from_secs(300);

/// The further instances of one server.
#[derive(Default)]
pub(crate) struct Profiles {
    context: Weak<RunnerContext>,
    pool: Mutex<Pool<Arc<ServerHandle>>>,
    /// What clients want to hear of from their instances, as long as they do or have one.
    topics: Mutex<HashMap<InstanceOwner, Weak<Topics>>>,
    /// Rings when an instance has a place.
    changed: Notify,
    tasks: TaskTracker,
    /// The server is of the stateless era, and was found to know no other.
    refuses: Arc<AtomicBool>,
}

/// Who needs an instance, and for what.
#[derive(Clone, Copy)]
pub(crate) struct InstanceRequest<'a> {
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) owner: &'a InstanceOwner,
    /// The tool that is called, if it is one.
    pub(crate) tool: Option<&'a str>,
}

/// A link for a call, which has a place on its instance until this is dropped.
pub(crate) struct InstanceLease {
    pub(crate) link: Arc<Link>,
    /// What the server said on this link.
    pub(crate) handshake: Option<Arc<HandshakeInfo>>,
    place: InstanceSlot,
}

/// A place on an instance.
struct InstanceSlot {
    profiles: Arc<Profiles>,
    number: u64,
}

impl Drop for InstanceSlot {
    fn drop(&mut self) {
        self.profiles.lock().leave(self.number, Instant::now());
        self.profiles.changed.notify_waiters();
    }
}

impl InstanceLease {
    /// Runs something as long as it needs, at most as long as the link.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.place.profiles.tasks.spawn(work);
    }
}

/// A place on an instance, or why there is none.
type Taken = Result<(InstanceSlot, Arc<ServerHandle>), Full>;

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

    /// Returns a link for a client: of its own instance, or of one that begins; none if the server knows
    /// no handshake. Waits for its turn no longer than a call may take, and for the link no longer
    /// than `within`.
    pub(crate) async fn link(
        self: &Arc<Self>,
        server: &ServerHandle,
        wanted: InstanceRequest<'_>,
        within: Duration,
    ) -> Result<Option<InstanceLease>, CallError> {
        let until = Instant::now() + server.spec.calls.timeout.min(within);
        let agent = &wanted.owner.agent;
        let is_stateless = speaks(server) == Some(Era::Stateless);
        let mut permit = None;
        loop {
            if is_stateless && self.refuses.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let changed = self.changed.notified();
            let full = match self.take(server, wanted, is_stateless)? {
                Ok((place, handle)) => {
                    return match handle.link(agent, within).await {
                        Ok(link) => Ok(Some(InstanceLease {
                            link,
                            handshake: handle.catalog.load().handshake.clone(),
                            place,
                        })),
                        // The server can be called all the same, as it wants to be.
                        Err(CallError::Down { .. }) if is_stateless => Ok(None),
                        Err(error) => Err(error),
                    };
                }
                Err(full) => full,
            };
            // Only who has to wait needs a permit for it.
            if permit.is_none() {
                permit = Some(server.wait_permit(agent)?);
            }
            if timeout_at(until, changed).await.is_err() {
                return Err(server.full(full));
            }
        }
    }

    /// Takes a place, if there is one now.
    fn take(
        self: &Arc<Self>,
        server: &ServerHandle,
        InstanceRequest {
            capabilities,
            owner,
            tool,
        }: InstanceRequest<'_>,
        is_stateless: bool,
    ) -> Result<Taken, CallError> {
        let context = self.context.upgrade().ok_or(CallError::Stopping)?;
        if server.stop.is_cancelled() || self.tasks.is_closed() {
            return Err(CallError::Stopping);
        }
        let place = |number| InstanceSlot {
            profiles: Arc::clone(self),
            number,
        };
        let mut pool = self.lock();
        // Where all list the same it is not looked for.
        let is_own = |instance: &Arc<ServerHandle>| instance.catalog.load().is_own;
        let tool = tool.filter(|_| pool.all().any(|(_, instance)| is_own(instance)));
        let common = server.catalog.load();
        let offers = |instance: &Arc<ServerHandle>| {
            tool.is_none_or(|tool| own::lists(&instance.catalog.load(), &common).has_tool(tool))
        };
        let concurrency = server.spec.concurrency();
        let request = PoolRequest {
            capabilities,
            owner,
            lanes: match owner.session {
                Some(_) => concurrency,
                None => 1,
            },
            most: concurrency.clamp(FEWEST, MOST) as usize,
            shares: server.status.borrow().transport == Some("streamable-http"),
            offers: &offers,
            is_common: tool.is_none_or(|tool| common.has_tool(tool)),
        };
        let (number, instead_of) = match pool.find(&request, Instant::now()) {
            Allocation::Free(number, handle) => {
                let handle = handle.clone();
                return Ok(Ok((place(number), handle)));
            }
            Allocation::Room(number, instead_of) => (number, instead_of),
            Allocation::Wait(full) => return Ok(Err(full)),
        };
        let handle = self.begin(
            &context,
            server,
            (capabilities, owner, number),
            is_stateless,
        );
        pool.insert(
            number,
            (capabilities, owner),
            handle.clone(),
            Instant::now(),
        );
        drop(pool);
        if let Some(ended) = instead_of {
            ended.stop.cancel();
            self.left(&ended);
        }
        Ok(Ok((place(number), handle)))
    }

    /// Begins an instance that declares what its client can do.
    fn begin(
        self: &Arc<Self>,
        context: &Arc<RunnerContext>,
        server: &ServerHandle,
        (capabilities, owner, number): (ClientCapabilities, &InstanceOwner, u64),
        is_stateless: bool,
    ) -> Arc<ServerHandle> {
        let topics = self.topics(owner);
        let note = format!("for clients with {}: ", capabilities.to_json().text());
        let context = Arc::new(RunnerContext {
            events: context.events.noted(&note),
            ..RunnerContext::clone(context)
        });
        let handshake = server.catalog.load().handshake.clone();
        let catalog = ServerCatalog::new(Default::default(), handshake);
        let parts = InstanceParts {
            id: server.id,
            created_ms: server.created_ms,
            first: ServerState::Idle,
            live: LinkState::Cold,
            catalog: Arc::new(ArcSwap::from_pointee(catalog)),
            logs: Arc::clone(&server.logs),
            known: Arc::clone(&server.known),
            counters: Arc::clone(&server.counters),
            stop: server.stop.child_token(),
            declares: capabilities,
            refuses: is_stateless.then(|| Arc::clone(&self.refuses)),
            credentials: server.credentials.clone(),
            topics: Some(Arc::clone(&topics)),
        };
        let spec = ServerSpec {
            start: Start::Lazy,
            ..ServerSpec::clone(&server.spec)
        };
        let (handle, runner) = parts.assemble(&context, Arc::new(spec));
        self.tasks.spawn(runner.keep_running(true));
        let (profiles, instance) = (Arc::downgrade(self), handle.clone());
        self.tasks
            .spawn(async move { end_when_idle(&profiles, (number, &instance), &topics).await });
        handle
    }

    /// Tells whether a client has an instance of its own.
    pub(crate) fn has(&self, owner: &InstanceOwner) -> bool {
        self.lock().all().any(|(whose, _)| whose == owner)
    }

    /// Returns what a client wants to hear of from its instances, those to come too.
    pub(crate) fn topics(&self, owner: &InstanceOwner) -> Arc<Topics> {
        let mut all = self.topics.lock();
        if let Some(topics) = all.get(owner).and_then(Weak::upgrade) {
            return topics;
        }
        all.retain(|_, topics| topics.strong_count() > 0);
        let topics = Arc::new(Topics::default());
        all.insert(owner.clone(), Arc::downgrade(&topics));
        topics
    }

    /// Tells the instances of a client something.
    pub(crate) fn notify(&self, owner: &InstanceOwner, method: &str) {
        let instances = self.lock();
        let theirs = instances.all().filter(|(whose, _)| *whose == owner);
        let theirs: Vec<Arc<ServerHandle>> = theirs.map(|(_, instance)| instance.clone()).collect();
        drop(instances);
        for instance in theirs {
            if let LinkState::Ready(link) = &*instance.live.borrow() {
                link.notify(method, None);
            }
        }
    }

    /// Has the catalog forget the lists of an instance that ends, if it had its own.
    fn left(&self, instance: &ServerHandle) {
        if let Some(context) = self.context.upgrade()
            && instance.catalog.load().is_own
        {
            (context.changed)();
        }
    }

    /// Returns how many calls of all instances are in flight, and how many wait for a lane of theirs.
    pub(crate) fn calls(&self) -> (usize, usize) {
        let instances: Vec<Arc<ServerHandle>> = self
            .lock()
            .all()
            .map(|(_, instance)| instance.clone())
            .collect();
        instances
            .iter()
            .fold((0, 0), |(in_flight, waiting), instance| {
                let queue = instance.own_queue();
                (in_flight + queue.in_flight, waiting + queue.waiting)
            })
    }

    /// Stops all instances; they are started again when needed.
    pub(crate) fn end_all(&self) {
        let ended: Vec<Arc<ServerHandle>> = self.lock().drain().collect();
        for instance in &ended {
            instance.stop.cancel();
            self.left(instance);
        }
        self.refuses.store(false, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Ends all instances for good, and waits until their processes are gone.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.end_all();
        self.tasks.wait().await;
    }
}

/// Returns the era of the server's own instance.
fn speaks(server: &ServerHandle) -> Option<Era> {
    let catalog = server.catalog.load();
    catalog.handshake.as_ref().map(|handshake| handshake.era)
}

/// Ends an instance that nobody has used for a while, nor wants to hear of; one that was stopped has no
/// place any more.
async fn end_when_idle(
    profiles: &Weak<Profiles>,
    (number, instance): (u64, &ServerHandle),
    topics: &Topics,
) {
    let stop: &CancellationToken = &instance.stop;
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
                return profiles.left(instance);
            }
        }
    }
}
