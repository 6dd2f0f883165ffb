//! Which registered servers this gateway runs if several gateways share one store.
//!
//! Each registered server is run by the gateway that holds its lease; on the others its status
//! names the holder. A gateway that is alone takes all leases with one statement and never renews
//! them. Servers of files belong to the gateway that reads the files and have no lease. Entry
//! point: [`Leases::holder`]. `project::follow` renews and takes them.
//!
//! In a store shared with other machines, any gateway may lose its connection to the store. There a
//! lease is always renewed, and its holder sends calls only while the lease is certainly valid:
//! [`Leases::may_run`] counts from before the renewal was sent, on a monotonic clock that goes on
//! while the machine is suspended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gantry_model::id::{GatewayId, ProjectName, ServerId};
use gantry_store::{Lease, Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tracing::{debug, warn};

/// The lifetime of a lease. A dead gateway is replaced after this time, and within ten seconds its
/// servers run elsewhere. A renewal every two seconds that waits for a lock of the store, at most
/// four, still comes in time.
const LASTS: Duration = Duration::from_secs(7);
/// The lifetime in a remote store while there is no other gateway: for so long calls continue when
/// the store is unreachable, and a later gateway waits for one that died.
const LASTS_ALONE: Duration = Duration::from_secs(60);
/// How long before its end a lease is no longer used: clocks differ between machines, and sending a
/// call takes a moment.
const MARGIN: Duration = Duration::from_millis(500);
/// How long after the end of another gateway's lease it is taken: by then it has ended by the
/// database's clock, too.
const AFTER_END: Duration = Duration::from_millis(20);

/// The leases of one project, as last read.
pub(crate) struct Leases {
    store: Store,
    project: ProjectName,
    known: Mutex<HashMap<ServerId, Option<GatewayId>>>,
    /// Whether any of them has changed its holder since the last check.
    moved: AtomicBool,
    /// When the first lease of another gateway ends, unless it is renewed.
    ends_at: Mutex<Option<Instant>>,
    /// Until when this gateway's leases are certainly valid, in milliseconds since `origin`; the
    /// maximum in a local store.
    until: AtomicU64,
    origin: Instant,
    /// How long the machine had been up at `origin`.
    up: Duration,
    /// Whether they are permanently released; locked while leases are taken or released.
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
            ends_at: Mutex::default(),
            until,
            origin: Instant::now(),
            up: uptime(),
            released: AsyncMutex::new(false),
        }
    }

    /// Returns the other gateway that runs a registered server, if there is one.
    ///
    /// For an unknown server, takes all free leases first.
    pub(crate) async fn holder(&self, server: ServerId) -> Option<GatewayId> {
        let known = self.known.lock().get(&server).copied();
        match known {
            Some(holder) => self.other(holder),
            None => {
                self.take().await;
                let holder = self.known.lock().get(&server).copied().flatten();
                self.other(holder)
            }
        }
    }

    /// Takes all free leases, unless this gateway is stopping and has released its own.
    pub(crate) async fn take(&self) {
        let released = self.released.lock().await;
        if *released {
            return;
        }
        let before = self.elapsed();
        let taken = match self.store.take_leases(&self.project, LASTS).await {
            Ok(leases) => {
                // The first leases are not renewed yet. Later ones are valid for longer than the
                // known time.
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
            Ok(leases) => {
                let left = self.store.ends_in(&leases, LASTS);
                // What has ended and was not taken is left to the next check.
                let left = left.filter(|left| !left.is_zero() && *left <= LASTS_ALONE);
                *self.ends_at.lock() = left.map(|left| Instant::now() + left + AFTER_END);
                self.learn(&leases);
            }
            // A failing database stops no server.
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "leases on servers cannot be read"
                );
            }
        }
    }

    /// Returns, once, when the first lease of another gateway ends, unless it is renewed.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends_at.lock().take()
    }

    /// Returns, once, whether any lease has changed its holder since the last call.
    pub(crate) fn have_moved(&self) -> bool {
        self.moved.swap(false, Ordering::AcqRel)
    }

    /// Returns whether another gateway runs a registered server of this project.
    pub(crate) fn any_elsewhere(&self) -> bool {
        let known = self.known.lock();
        known.values().any(|holder| self.other(*holder).is_some())
    }

    /// Renews this gateway's leases; for longer if there is no other gateway. In a remote store,
    /// then reads the holders before relying on them: an expired lease may have been taken.
    pub(crate) async fn renew(&self, is_alone: bool) -> Result<(), StoreError> {
        let lasts = match is_alone && self.store.is_remote() {
            true => LASTS_ALONE,
            false => LASTS,
        };
        let before = self.elapsed();
        self.store.renew_leases(lasts).await?;
        if self.store.is_remote() {
            self.learn(&self.store.leases(&self.project).await?);
            self.hold_from(before, lasts);
        }
        Ok(())
    }

    /// Returns whether calls may be sent to a registered server now: no other gateway can have its
    /// lease.
    pub(crate) fn may_run(&self, server: ServerId) -> bool {
        let until = self.until.load(Ordering::Acquire);
        if until == u64::MAX {
            return true;
        }
        let now = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        let holder = self.known.lock().get(&server).copied().flatten();
        now < until && self.other(holder).is_none()
    }

    /// Remembers until when leases are valid that were requested at `before`.
    fn hold_from(&self, before: Duration, lasts: Duration) {
        if !self.store.is_remote() {
            return;
        }
        let end = before + lasts - MARGIN;
        let until = u64::try_from(end.as_millis()).unwrap_or(u64::MAX - 1);
        self.until.store(until, Ordering::Release);
    }

    /// Returns the time since `origin`. The monotonic clock stands still while the machine is
    /// suspended, and other gateways do not; its uptime goes on.
    fn elapsed(&self) -> Duration {
        let up = uptime().saturating_sub(self.up);
        self.origin.elapsed().max(up)
    }

    /// Releases the leases to other gateways, once none of the servers runs here any more. Takes
    /// none afterwards.
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
        let mut known = self.known.lock();
        if *known != new {
            *known = new;
            self.moved.store(true, Ordering::Release);
        }
    }

    fn other(&self, holder: Option<GatewayId>) -> Option<GatewayId> {
        holder.filter(|holder| *holder != self.store.gateway())
    }
}

/// Returns how long the machine has been up, including the time it was suspended.
fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}
