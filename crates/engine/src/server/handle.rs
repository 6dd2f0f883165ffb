//! The handle of a server: its live link, or why there is none. Shared behind one `Arc`; every wait
//! here has the caller's deadline, and the number of waiting callers is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::id::{AgentName, ServerId, ServerName};
use gantry_model::secret::SecretName;
use gantry_model::spec::ServerSpec;
use gantry_model::status::ServerState;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::catalog::ServerCatalog;
use super::link::{BreakerView, Counters, Link};
use super::logs::Logs;
use super::pending::QueueView;
use super::profiles::Profiles;
use super::retry_budget::RetryBudget;
use super::status::ServerStatus;
use super::usage_history::UsageHistory;
use super::waiting::{WaitPermit, WaitingCallers};
use crate::credentials::Credentials;
use crate::driver::ReadUsage;
use crate::error::{CallError, Full};
use crate::known_secrets::KnownSecrets;
use crate::schema::Permits;

/// The open link while the server is ready, else why it is not.
#[derive(Clone)]
pub(crate) enum LinkState {
    /// Not needed yet (lazy start).
    Cold,
    /// It is being started.
    Starting,
    /// It is ready.
    Ready(Arc<Link>),
    /// It is down, for this reason; the second value is the time of the next attempt.
    Down(Arc<str>, Option<Instant>),
}

/// Secrets by name, with their versions.
pub(crate) type SecretsUsed = Arc<Mutex<BTreeMap<SecretName, u32>>>;

/// A command to a runner besides stopping, which has its own token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunnerCommand {
    /// Restart the process, counters reset.
    Restart,
}

/// A server, as used by all other parts than its runner.
pub(crate) struct ServerHandle {
    pub(crate) id: ServerId,
    pub(crate) name: ServerName,
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) created_ms: u64,
    pub(crate) live: watch::Receiver<LinkState>,
    pub(crate) status: watch::Receiver<ServerStatus>,
    /// Wakes a lazy server; callers then wait on `live` with their own deadline.
    pub(crate) wake: Arc<Notify>,
    pub(crate) commands: mpsc::Sender<RunnerCommand>,
    pub(crate) stop: CancellationToken,
    pub(crate) stopped: CancellationToken,
    pub(crate) catalog: Arc<ArcSwap<ServerCatalog>>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) usage: ReadUsage,
    /// Its resource usage during the last minutes.
    pub(crate) usage_history: Arc<UsageHistory>,
    /// The secrets to redact from everything the server sends.
    pub(crate) known: Arc<KnownSecrets>,
    /// The secrets passed to its newest instance.
    pub(crate) secrets_used: SecretsUsed,
    /// The credentials for a remote server, unless its spec has them.
    pub(crate) credentials: Option<Credentials>,
    /// Callers that wait until the server is ready.
    pub(crate) waiting: WaitingCallers,
    /// How many interrupted calls may be retried.
    pub(crate) retries: RetryBudget,
    /// Permits for expensive checks of arguments and results.
    pub(crate) permits: Permits,
    /// Its additional instances, each for one client with capabilities.
    pub(crate) profiles: Arc<Profiles>,
}

/// `Retry-After` of a call that is refused because the server is busy.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// Why no calls are sent to a running server.
pub(crate) const UNANSWERED: &str = "3 consecutive timeouts, circuit open";

impl ServerHandle {
    /// Returns the live link if there is one now.
    pub(crate) fn ready(&self) -> Option<Arc<Link>> {
        match &*self.live.borrow() {
            LinkState::Ready(link) => Some(Arc::clone(link)),
            LinkState::Cold | LinkState::Starting | LinkState::Down(..) => None,
        }
    }

    /// Returns the live link immediately if there is one; otherwise wakes the server or waits for
    /// it.
    pub(crate) async fn link(
        &self,
        agent: &AgentName,
        within: Duration,
    ) -> Result<Arc<Link>, CallError> {
        if let Some(link) = self.ready() {
            return Ok(link);
        }
        let _permit = self.wait_permit(agent)?;
        self.come_up(within).await
    }

    /// Returns whether there is room for a call of this agent now; another call may take it first.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        match &*self.live.borrow() {
            LinkState::Ready(link) => link.has_room(agent),
            LinkState::Cold | LinkState::Starting => self.waiting.has_room(agent),
            LinkState::Down(..) => true,
        }
    }

    /// Returns the error for a full queue.
    pub(crate) fn busy(&self) -> CallError {
        CallError::Busy {
            server: self.name.clone(),
            full: Full::Queue(self.spec.calls.queue),
            retry_after: COME_AGAIN,
        }
    }

    /// Returns the error for a call that no instance may serve.
    pub(crate) fn full(&self, full: Full) -> CallError {
        CallError::Busy {
            server: self.name.clone(),
            full,
            retry_after: COME_AGAIN,
        }
    }

    /// Returns the error for an open circuit breaker.
    pub(crate) fn silent(&self, retry_in: Duration) -> CallError {
        CallError::Down {
            server: self.name.clone(),
            reason: UNANSWERED.to_owned(),
            next_try: Some(retry_in),
        }
    }

    /// Returns the error for a remote server that is rate limiting, if it is.
    pub(crate) fn limited(&self) -> Option<CallError> {
        let error = self.counters.rate_limit.refusal()?;
        let server = self.name.clone();
        Some(CallError::Remote { server, error })
    }

    /// Returns the state of the live link's circuit breaker.
    pub(crate) fn breaker(&self) -> BreakerView {
        let (failed, is_away) = {
            let status = self.status.borrow();
            (status.failed_connects, status.is_away)
        };
        match &*self.live.borrow() {
            LinkState::Ready(link) => link.breaker.view(),
            LinkState::Down(_, next_try) if failed > 0 => BreakerView {
                unanswered: failed,
                refuses_for: next_try
                    .filter(|_| is_away)
                    .map(|at| at.saturating_duration_since(Instant::now())),
            },
            LinkState::Cold | LinkState::Starting | LinkState::Down(..) => BreakerView::default(),
        }
    }

    /// Returns a permit to wait until the server is ready, unless too many callers wait.
    pub(super) fn wait_permit(&self, agent: &AgentName) -> Result<WaitPermit<'_>, CallError> {
        self.waiting.permit(agent).ok_or_else(|| self.busy())
    }

    async fn come_up(&self, within: Duration) -> Result<Arc<Link>, CallError> {
        let mut live = self.live.clone();
        let until = Instant::now() + within;
        loop {
            let state = live.borrow_and_update().clone();
            match state {
                LinkState::Ready(link) => return Ok(link),
                LinkState::Down(reason, next_try) => return Err(self.down(&reason, next_try)),
                LinkState::Cold => self.wake.notify_one(),
                LinkState::Starting => {}
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

    /// Returns for how long it has been starting.
    pub(crate) fn coming_for(&self) -> Duration {
        let status = self.status.borrow();
        match status.state {
            ServerState::Starting | ServerState::Restarting => status.since.elapsed(),
            ServerState::Idle
            | ServerState::NeedsApproval
            | ServerState::Disabled
            | ServerState::Misconfigured
            | ServerState::Suspended
            | ServerState::NeedsSignIn
            | ServerState::Ready
            | ServerState::Unresponsive
            | ServerState::BackingOff
            | ServerState::Disconnected
            | ServerState::Failed
            | ServerState::Stopping
            | ServerState::Stopped => Duration::ZERO,
        }
    }

    /// Returns how many calls there are on the server, including those on its additional instances.
    pub(crate) fn queue(&self) -> QueueView {
        let mut queue = self.own_queue();
        let (in_flight, waiting) = self.profiles.calls();
        queue.in_flight += in_flight;
        queue.waiting += waiting;
        queue
    }

    /// Returns how many calls there are on the live link.
    pub(crate) fn own_queue(&self) -> QueueView {
        match &*self.live.borrow() {
            LinkState::Ready(link) => link.queue(),
            LinkState::Cold | LinkState::Starting | LinkState::Down(..) => QueueView {
                lanes: self.spec.concurrency(),
                ..QueueView::default()
            },
        }
    }
}
