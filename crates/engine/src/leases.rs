//! Which registered servers this gateway runs, where several gateways share one store.
//!
//! Each registered server is run by the gateway that holds its lease; to the others it is a server
//! that is held, with the holder in its reason. A gateway that is alone takes all leases with one
//! statement and never renews them. Servers of files belong to the gateway that reads the files and
//! have no lease. Entry point: [`Leases::holder`]. `project::follow` renews and takes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gantry_model::id::{GatewayId, ProjectName, ServerId};
use gantry_store::{Lease, Store, StoreError};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;
use tracing::{debug, warn};

/// How long a lease lasts. A gateway that dies is replaced after at most this long and one look.
const LASTS: Duration = Duration::from_secs(8);

/// The leases of one project as they were last read.
pub(crate) struct Leases {
    store: Store,
    project: ProjectName,
    known: Mutex<HashMap<ServerId, Option<GatewayId>>>,
    /// Whether any of them has another holder since somebody last asked.
    moved: AtomicBool,
    /// Whether they are released for good; held while leases are taken or released.
    released: AsyncMutex<bool>,
}

impl Leases {
    pub(crate) fn new(store: Store, project: ProjectName) -> Self {
        Self {
            store,
            project,
            known: Mutex::default(),
            moved: AtomicBool::new(false),
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
        let taken = match self.store.take_leases(&self.project, LASTS).await {
            Ok(leases) => Ok(leases),
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

    /// Renews the leases that this gateway holds.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        self.store.renew_leases(LASTS).await
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
