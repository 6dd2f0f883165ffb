//! The suspended servers and tools of a project, in memory: calls to them are refused, and running
//! ones end. Agents and projects are suspended through their keys (`access`).
//!
//! The store is written first, memory second; changes of other gateways are read by their revision.
//! Entry points: [`Suspended::check`] and [`Suspended::until`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::suspension::Suspensions;
use gantry_store::Store;
use tokio::sync::{Mutex, watch};

use crate::error::{CallError, EngineError};

/// The suspended servers and tools.
#[derive(Default)]
pub(crate) struct Suspended {
    now: ArcSwap<Suspensions>,
    /// Changes whenever the set of suspended items changes.
    changed: watch::Sender<u64>,
    /// The revision that was read last.
    revision: AtomicU64,
    /// Held while they are read.
    reading: Mutex<()>,
}

impl Suspended {
    /// Reads the suspensions of a project.
    pub(crate) async fn load(store: &Store, project: &ProjectName) -> Result<Self, EngineError> {
        let suspended = Self::default();
        suspended.reload(store, project).await?;
        Ok(suspended)
    }

    /// Returns the revision that was read last.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Reads them again, and ends the calls to suspended items.
    pub(crate) async fn reload(
        &self,
        store: &Store,
        project: &ProjectName,
    ) -> Result<(), EngineError> {
        let _one = self.reading.lock().await;
        // Read before the rows: a change in between is read again.
        let revision = store.changes(project).await?.suspensions;
        let rows = store.suspensions(project).await?;
        self.now.store(Arc::new(rows.into_iter().collect()));
        self.revision.store(revision, Ordering::Release);
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Returns everything that is suspended.
    pub(crate) fn now(&self) -> Arc<Suspensions> {
        self.now.load_full()
    }

    /// Refuses a call to a suspended server or tool.
    pub(crate) fn check(&self, server: &ServerName, item: &str) -> Result<(), CallError> {
        let now = self.now.load();
        match now.is_empty() {
            true => Ok(()),
            false => match now.of_call(server, item) {
                Some(what) => Err(CallError::Suspended { what }),
                None => Ok(()),
            },
        }
    }

    /// Waits until a server or its tool is suspended.
    pub(crate) async fn until(&self, server: &ServerName, item: &str) -> CallError {
        let mut changed = self.changed.subscribe();
        loop {
            if let Err(error) = self.check(server, item) {
                return error;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
