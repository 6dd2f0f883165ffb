//! Durability `database`: one task imports the journal for all calls that wait for it.
//!
//! A round stores what was recorded before it began, so that calls that wait together share its
//! transactions. While the database takes no rows, waiting fails with the reason. Entry points:
//! [`Rounds::wait`] and `Audit::store_rounds`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::error::AuditError;
use super::importer::RowPolicy;
use super::policy::Durability;
use super::segment::Segment;
use super::{Audit, chain};

/// How long a call waits for the database.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look whether records are written that others began to write before.
const LOOK: Duration = Duration::from_millis(1);

/// The requests for rounds, and the last ones.
#[derive(Debug)]
pub(super) struct Rounds {
    /// How many calls have asked to be stored.
    asked: AtomicU64,
    wake: Notify,
    last: watch::Sender<Round>,
}

/// What rounds have done.
#[derive(Debug, Clone, Default)]
struct Round {
    /// Requests up to this one are stored.
    stored: u64,
    /// Requests up to this one were tried.
    tried: u64,
    /// Why the last round failed.
    why: Option<Arc<str>>,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self {
            asked: AtomicU64::new(0),
            wake: Notify::new(),
            last: watch::Sender::new(Round::default()),
        }
    }

    /// Waits until everything recorded so far is in the database.
    pub(super) async fn wait(&self) -> Result<(), AuditError> {
        let own = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut last = self.last.subscribe();
        self.wake.notify_one();
        let waiting = timeout(PATIENCE, last.wait_for(|round| round.tried >= own));
        let why = match waiting.await {
            Ok(Ok(round)) if round.stored >= own => return Ok(()),
            Ok(Ok(round)) => round.why.as_deref().unwrap_or_default().to_owned(),
            Ok(Err(_)) => "the gateway is stopping".to_owned(),
            Err(_) => format!("it did not take the row within {PATIENCE:?}"),
        };
        Err(AuditError::NotStored { why })
    }

    /// Requests a round, without waiting.
    pub(super) fn request(&self) {
        self.wake.notify_one();
    }
}

impl Audit {
    /// Waits until the records appended to `segment` have the promised durability.
    pub(super) async fn settle(&self, segment: Arc<Segment>) -> Result<(), AuditError> {
        match self.shared.policy.durability {
            Durability::Database => self.shared.rounds.wait().await,
            Durability::Os | Durability::Disk | Durability::Relaxed => {
                self.shared.journal.settle(segment).await
            }
        }
    }

    /// Requests the promised durability, without waiting.
    pub(super) fn settle_soon(&self, segment: Arc<Segment>) {
        match self.shared.policy.durability {
            Durability::Database => self.shared.rounds.request(),
            Durability::Os | Durability::Disk | Durability::Relaxed => {
                self.shared.journal.settle_soon(segment);
            }
        }
    }

    /// Returns why the database takes no rows, if calls have to wait for it.
    pub(super) fn not_stored(&self) -> Option<AuditError> {
        let waits = self.shared.policy.durability == Durability::Database;
        let why = self.shared.import_error.lock().clone().filter(|_| waits)?;
        Some(AuditError::NotStored { why })
    }

    /// Runs rounds until `stop`.
    pub(crate) async fn store_rounds(self, stop: CancellationToken) {
        let rounds = &self.shared.rounds;
        while stop
            .run_until_cancelled(rounds.wake.notified())
            .await
            .is_some()
        {
            let asked = rounds.asked.load(Ordering::Acquire);
            // Who asked has written its record; another one before it may be under way.
            let end = self.shared.journal.tail();
            while self.shared.journal.stable() < end {
                sleep(LOOK).await;
            }
            let stored = self.import(RowPolicy::Open).await;
            rounds.last.send_modify(|round| {
                round.tried = asked;
                round.why = stored.as_ref().err().map(|error| chain(error).into());
                if stored.is_ok() {
                    round.stored = asked;
                }
            });
        }
    }
}
