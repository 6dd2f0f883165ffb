//! Records how acts ended. Where the database cannot take that at once, it is tried again beside
//! what follows: the effect is done, and must not stay off the record. Entry points:
//! [`Endings::write`] and [`Endings::settle`].

use std::time::Duration;

use gantry_model::diagnose::chain;
use gantry_store::{ActRow, StoreError};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PATIENCE;
use crate::audit::{ActLog, RecordedAct};

/// The number of tries to record an end, and the wait after the first; each wait is twice as long as
/// the one before, nine minutes in all.
const TRIES: u32 = 11;
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The most ends that wait for the database.
const MOST_WAITING: usize = 1024;

/// The ends of a project's acts; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Endings {
    log: ActLog,
    waiting: TaskTracker,
    /// Ends the waits: the store is about to be closed.
    last: CancellationToken,
}

impl Endings {
    pub(super) fn new(log: ActLog) -> Self {
        Self {
            log,
            waiting: TaskTracker::new(),
            last: CancellationToken::new(),
        }
    }

    /// Writes the row of an act that ended; `act` is what is written of it so far. Returns after the
    /// first try, which a caller does not wait for long.
    pub(super) async fn write(&self, act: Option<Box<RecordedAct>>, row: ActRow) {
        if self.waiting.len() >= MOST_WAITING {
            tracing::error!("how an administrative act ended is not recorded: too many wait");
            return;
        }
        let (tried, first) = oneshot::channel();
        let ended = self.clone();
        self.waiting
            .spawn(async move { ended.keep_trying(act, row, tried).await });
        if timeout(PATIENCE, first).await.is_err() {
            tracing::error!(
                "how an administrative act ended could not be recorded within {PATIENCE:?}; it is tried again"
            );
        }
    }

    /// Tries the ends that wait a last time.
    pub(super) async fn settle(&self) {
        self.last.cancel();
        self.waiting.close();
        drop(timeout(PATIENCE, self.waiting.wait()).await);
    }

    async fn keep_trying(
        &self,
        act: Option<Box<RecordedAct>>,
        row: ActRow,
        tried: oneshot::Sender<()>,
    ) {
        let mut tried = Some(tried);
        let mut wait = FIRST_WAIT;
        for left in (0..TRIES).rev() {
            let is_last = left == 0 || self.last.is_cancelled();
            let written = self.put(act.as_deref(), &row).await;
            // It is written already, by a try whose answer was lost, or the act is gone.
            let is_last = is_last || matches!(written, Err(StoreError::NotFound { .. }));
            let is_first = tried.take().is_some_and(|tried| tried.send(()).is_ok());
            match written {
                Ok(()) => return,
                Err(error) if is_first || is_last => {
                    let error = chain(&error);
                    tracing::error!(
                        error,
                        act = row.act,
                        target = row.target,
                        is_last,
                        "how an administrative act ended could not be recorded"
                    );
                }
                Err(_) => {}
            }
            if is_last {
                return;
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = self.last.cancelled() => {}
            }
            wait *= 2;
        }
    }

    async fn put(&self, act: Option<&RecordedAct>, row: &ActRow) -> Result<(), StoreError> {
        let written = match act {
            Some(act) => self.log.change(act, row.clone(), false).await,
            None => self.log.put(row.clone()).await,
        };
        written.map(drop)
    }
}
