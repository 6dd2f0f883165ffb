//! Additional instances of a server, one per client with capabilities. A server of the handshake
//! era learns its client's capabilities once, when its link is opened, and sends requests
//! accordingly; so such a client needs its own instance.
//!
//! An instance belongs to one client for its whole life and runs as many of its calls at once as
//! the server allows: a request from the server is then for that client, whichever call it
//! concerns. A client without a session is known by its key only, so its instance runs one call at
//! a time, unless the server's requests name their call. Instances are started on demand and
//! stopped when idle; their number is bounded and shared between agents (`pool`). Entry point:
//! [`Profiles::link`].

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

/// The minimum and maximum number of instances; in between, the concurrency of the server.
const FEWEST: u32 = 4;
const MOST: u32 = 16;
/// How long an idle instance is kept.
const IDLE: Duration = Duration::from_secs(300);

/// The additional instances of one server.
#[derive(Default)]
pub(crate) struct Profiles {
    context: Weak<RunnerContext>,
    pool: Mutex<Pool<Arc<ServerHandle>>>,
    /// The subscriptions of clients with their own instances.
    topics: Mutex<HashMap<InstanceOwner, Weak<Topics>>>,
    /// Notified when an instance has room.
    changed: Notify,
    tasks: TaskTracker,
    /// Whether the server is of the stateless era and does not support the handshake.
    refuses: Arc<AtomicBool>,
}

/// The parameters of an instance for a call.
#[derive(Clone, Copy)]
pub(crate) struct InstanceRequest<'a> {
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) owner: &'a InstanceOwner,
    /// The name of the called tool, if it is a tool call.
    pub(crate) tool: Option<&'a str>,
}

/// A link for a call, which occupies its instance until this is dropped.
pub(crate) struct InstanceLease {
    pub(crate) link: Arc<Link>,
    /// The result of the handshake on this link.
    pub(crate) handshake: Option<Arc<HandshakeInfo>>,
    place: InstanceSlot,
}

/// A call's slot on an instance.
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
    /// Runs a task that ends with the link at the latest.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.place.profiles.tasks.spawn(work);
    }
}

/// A slot on an instance, or why there is none.
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

    /// Returns a link for a client: of its own instance, or of a new one; `None` if the server does
    /// not support the handshake. Waits for a slot no longer than a call may take, and for the link
    /// no longer than `within`.
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
                        // The server can still be called in the stateless way.
                        Err(CallError::Down { .. }) if is_stateless => Ok(None),
                        Err(error) => Err(error),
                    };
                }
                Err(full) => full,
            };
            // A permit is needed only for waiting.
            if permit.is_none() {
                permit = Some(server.wait_permit(agent)?);
            }
            if timeout_at(until, changed).await.is_err() {
                return Err(server.full(full));
            }
        }
    }

    /// Takes a slot, if there is one now.
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
        // If all instances list the same, this search is skipped.
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

    /// Starts an instance that declares the client's capabilities.
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

    /// Returns whether a client has its own instance.
    pub(crate) fn has(&self, owner: &InstanceOwner) -> bool {
        self.lock().all().any(|(whose, _)| whose == owner)
    }

    /// Returns the subscriptions of a client at its instances, including future ones.
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

    /// Sends a notification to the instances of a client.
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

    /// Removes the lists of a stopped instance from the catalog, if it had its own.
    fn left(&self, instance: &ServerHandle) {
        if let Some(context) = self.context.upgrade()
            && instance.catalog.load().is_own
        {
            (context.changed)();
        }
    }

    /// Returns how many calls of all instances are in flight, and how many wait for a lane.
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

    /// Stops all instances; they are started again on demand.
    pub(crate) fn end_all(&self) {
        let ended: Vec<Arc<ServerHandle>> = self.lock().drain().collect();
        for instance in &ended {
            instance.stop.cancel();
            self.left(instance);
        }
        self.refuses.store(false, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Stops all instances permanently, and waits until their processes have ended.
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

/// Stops an instance that has been idle for a while and has no subscriptions; a stopped instance
/// leaves the pool.
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
