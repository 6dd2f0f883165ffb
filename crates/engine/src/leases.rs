//! Which registered servers this gateway runs, where several gateways share one store.
//!
//! Each registered server is run by the gateway that holds its lease; to the others it is a server
//! that is held, with the holder in its reason. A gateway that is alone takes all leases with one
//! statement and never renews them. Servers of files belong to the gateway that reads the files and
//! have no lease. Entry point: [`Leases::holder`]. `project::follow` renews and takes them.
//!
//! In a store that gateways of other machines share, any of them may lose the store alone. There a
//! lease is always renewed, and its holder sends calls only while it cannot have ended: [`Leases::may_run`]
//! counts from before the renewal was sent, on a clock that nobody sets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gantry_model::id::{GatewayId, ProjectName, ServerId};
use gantry_store::{Lease, Store, StoreError};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tracing::{debug, warn};

/// How long a lease lasts. A gateway that dies is replaced after at most this long and one look.
const LASTS: Duration = Duration::from_secs(8);
/// How long it lasts in a remote store while no other gateway is there: so long calls go on when the store
/// is away, and so long a gateway that comes later waits for one that died.
const LASTS_ALONE: Duration = Duration::from_secs(60);
/// How much sooner than its end a lease is no longer used: clocks of machines do not run alike, and a call
/// takes a moment to be sent.
const MARGIN: Duration = Duration::from_millis(500);

/// The leases of one project as they were last read.
pub(crate) struct Leases {
    store: Store,
    project: ProjectName,
    known: Mutex<HashMap<ServerId, Option<GatewayId>>>,
    /// Whether any of them has another holder since somebody last asked.
    moved: AtomicBool,
    /// Until when those of this gateway certainly hold, in milliseconds from `origin` on; the end of time
    /// in a store of this machine alone.
    until: AtomicU64,
    origin: Instant,
    /// Whether they are released for good; held while leases are taken or released.
    released: AsyncMutex<bool>,
}

impl Leases {
    pub(crate) fn new(store: Store, project: ProjectName) -> Self {
        let until = AtomicU64::new(if store.is_remote() { 0 } else { u64::MAX });
        Self {
            store,
            project,
            known: Mutex::default(),
            moved: AtomicBool::new(false),
            until,
            origin: Instant::now(),
            released: AsyncMutex::new(false),
        }
    }

    /// Returns the other gateway that runs a registered server, if another one does.
    ///
    /// Takes all leases that are free when it is asked of a server that it does not know.
    pub(crate) async fn holder(&self, server: ServerId) -> Option<GatewayId> {
        let known = self.lock().get(&server).copied();
        match known {
            Some(holder) => self.other(holder),
            None => {
                self.take().await;
                let holder = self.lock().get(&server).copied().flatten();
                self.other(holder)
            }
        }
    }

    /// Takes all leases that are free, unless this gateway stops and has released its own.
    pub(crate) async fn take(&self) {
        let released = self.released.lock().await;
        if *released {
            return;
        }
        let before = Instant::now();
        let taken = match self.store.take_leases(&self.project, LASTS).await {
            Ok(leases) => {
                // The first ones are not renewed yet. Later ones hold for longer than what is known.
                if self.until.load(Ordering::Acquire) == 0 {
                    self.hold_from(before, LASTS);
                }
                Ok(leases)
            }
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "leases on servers cannot be taken"
                );
                self.store.leases(&self.project).await
            }
        };
        match taken {
            Ok(leases) => self.learn(&leases),
            // A database that cannot be used stops no server.
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "leases on servers cannot be read"
                );
            }
        }
    }

    /// Tells, once, whether any lease has another holder than when this was last asked.
    pub(crate) fn have_moved(&self) -> bool {
        self.moved.swap(false, Ordering::AcqRel)
    }

    /// Tells whether another gateway runs a registered server of this project.
    pub(crate) fn any_elsewhere(&self) -> bool {
        let known = self.lock();
        known.values().any(|holder| self.other(*holder).is_some())
    }

    /// Renews the leases that this gateway holds; for longer if there is no other. In a remote store it
    /// then reads who holds which, before it relies on them: one that had ended may be another's by now.
    pub(crate) async fn renew(&self, is_alone: bool) -> Result<(), StoreError> {
        let lasts = match is_alone && self.store.is_remote() {
            true => LASTS_ALONE,
            false => LASTS,
        };
        let before = Instant::now();
        self.store.renew_leases(lasts).await?;
        if self.store.is_remote() {
            self.learn(&self.store.leases(&self.project).await?);
            self.hold_from(before, lasts);
        }
        Ok(())
    }

    /// Tells whether a registered server may be sent calls now: no other gateway can have its lease.
    pub(crate) fn may_run(&self, server: ServerId) -> bool {
        let until = self.until.load(Ordering::Acquire);
        if until == u64::MAX {
            return true;
        }
        let now = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let holder = self.lock().get(&server).copied().flatten();
        now < until && self.other(holder).is_none()
    }

    /// Remembers until when leases hold that were asked for at `before`.
    fn hold_from(&self, before: Instant, lasts: Duration) {
        if !self.store.is_remote() {
            return;
        }
        let end = before + lasts - MARGIN;
        let until = end.saturating_duration_since(self.origin).as_millis();
        let until = u64::try_from(until).unwrap_or(u64::MAX - 1);
        self.until.store(until, Ordering::Release);
    }

    /// Lets other gateways run the servers; only when none of them runs here any more. None is taken
    /// after.
    pub(crate) async fn release(&self) {
        let mut released = self.released.lock().await;
        *released = true;
        if let Err(error) = self.store.release_leases(&self.project).await {
            debug!(%error, "leases on servers are not released and end by themselves");
        }
    }

    fn learn(&self, leases: &[Lease]) {
        let new: HashMap<_, _> = leases
            .iter()
            .map(|lease| (lease.server, lease.holder))
            .collect();
        let mut known = self.lock();
        if *known != new {
            *known = new;
            self.moved.store(true, Ordering::Release);
        }
    }

    fn other(&self, holder: Option<GatewayId>) -> Option<GatewayId> {
        holder.filter(|holder| *holder != self.store.gateway())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServerId, Option<GatewayId>>> {
        self.known.lock()
    }
}
