//! What callers hold of a server: its live link, or why there is none. Cheap to clone; every wait
//! here has a deadline of the caller's.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::id::{ServerId, ServerName};
use gantry_model::secret::Redactor;
use gantry_model::spec::ServerSpec;
use gantry_sandbox::Usage;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::link::{Counters, Link};
use super::logs::Logs;
use super::pending::QueueView;
use super::status::ServerStatus;
use crate::catalog::ServerCatalog;
use crate::error::CallError;

/// The open link while the server is ready, else the reason it is not.
#[derive(Clone)]
pub(crate) enum Live {
    /// Nobody has needed it yet.
    Cold,
    /// It is being started.
    Starting,
    /// It answers.
    Ready(Arc<Link>),
    /// It is down; the second is when it is tried again.
    Down(Arc<str>, Option<Instant>),
}

/// What a runner is asked to do besides stopping, which has a way of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// End the process and start it anew, counters reset.
    Restart,
}

/// A server, as seen by everyone but its runner.
#[derive(Clone)]
pub(crate) struct ServerHandle {
    pub(crate) id: ServerId,
    pub(crate) name: ServerName,
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) created_ms: u64,
    pub(crate) live: watch::Receiver<Live>,
    pub(crate) status: watch::Receiver<ServerStatus>,
    /// Wakes a lazy server; callers then wait on `live` with their own deadline.
    pub(crate) wake: Arc<Notify>,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) stop: CancellationToken,
    pub(crate) stopped: CancellationToken,
    pub(crate) catalog: Arc<ArcSwap<ServerCatalog>>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) usage: Arc<dyn Fn() -> Option<Usage> + Send + Sync>,
    pub(crate) redactor: Arc<Redactor>,
}

impl ServerHandle {
    /// Returns the live link at once if there is one; wakes or waits for a server that is coming.
    pub(crate) async fn link(&self, within: Duration) -> Result<Arc<Link>, CallError> {
        if let Live::Ready(link) = &*self.live.borrow() {
            return Ok(Arc::clone(link));
        }
        self.come_up(within).await
    }

    async fn come_up(&self, within: Duration) -> Result<Arc<Link>, CallError> {
        let mut live = self.live.clone();
        let until = Instant::now() + within;
        loop {
            let state = live.borrow_and_update().clone();
            match state {
                Live::Ready(link) => return Ok(link),
                Live::Down(reason, next_try) => return Err(self.down(&reason, next_try)),
                Live::Cold => self.wake.notify_one(),
                Live::Starting => {}
            }
            match tokio::time::timeout_at(until, live.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_gone)) => return Err(self.down("it was removed", None)),
                Err(_elapsed) => {
                    let reason = format!("still starting after {within:?}");
                    return Err(self.down(&reason, None));
                }
            }
        }
    }

    fn down(&self, reason: &str, next_try: Option<Instant>) -> CallError {
        CallError::Down {
            server: self.name.clone(),
            reason: reason.to_owned(),
            next_try: next_try.map(|at| at.saturating_duration_since(Instant::now())),
        }
    }

    /// Returns how many calls there are on the live link.
    pub(crate) fn queue(&self) -> QueueView {
        match &*self.live.borrow() {
            Live::Ready(link) => link.queue(),
            Live::Cold | Live::Starting | Live::Down(..) => QueueView {
                lanes: self.spec.concurrency(),
                ..QueueView::default()
            },
        }
    }
}
