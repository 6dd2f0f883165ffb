//! What is suspended in a project, in memory: a call to a suspended server or tool is refused, and one
//! that is under way ends. Agents and projects are suspended through their keys (`access`).
//!
//! The store is written first, memory second; what another gateway has suspended is read again by its
//! revision. Entry points: [`Suspended::check`] and [`Suspended::until`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::suspension::Suspensions;
use gantry_store::Store;
use tokio::sync::{Mutex, watch};

use crate::error::{CallError, EngineError};

/// What is suspended now.
#[derive(Default)]
pub(crate) struct Suspended {
    now: ArcSwap<Suspensions>,
    /// Moves whenever something else is suspended than before.
    changed: watch::Sender<u64>,
    /// The revision in the store that was read last.
    revision: AtomicU64,
    /// One at a time reads.
    reading: Mutex<()>,
}

impl Suspended {
    /// Reads what is suspended in a project.
    pub(crate) async fn load(store: &Store, project: &ProjectName) -> Result<Self, EngineError> {
        let suspended = Self::default();
        suspended.reload(store, project).await?;
        Ok(suspended)
    }

    /// Returns the revision that was read last.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Reads it again, and ends the calls to what is suspended.
    pub(crate) async fn reload(
        &self,
        store: &Store,
        project: &ProjectName,
    ) -> Result<(), EngineError> {
        let _one = self.reading.lock().await;
        // Before the rows: what changes in between is read again.
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

    /// Refuses a call to a server or a tool that is suspended.
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
