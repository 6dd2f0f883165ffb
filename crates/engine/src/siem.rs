//! Pushes every call and every administrative act to a SIEM: as syslog messages, or as log records
//! over OTLP.
//!
//! The database is the queue. The audit's chain names the rows that this gateway stored, in order,
//! and a file of the data folder says how far they were delivered: nothing piles up in memory, a
//! receiver that is away for hours costs no record, and what was not confirmed is sent again. No
//! call and no act waits for it. Entry points: [`Siem::open`], [`Siem::run`], [`Siem::finish`].

mod cursor;
mod feed;
mod message;
mod otlp_logs;
mod record;
mod syslog;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_model::diagnose::chain;
use gantry_store::{Store, StoreError};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::syslog::{SyslogTarget, SyslogTransport};

use self::cursor::{Cursor, MarkFile};
use self::feed::{AT_ONCE, Feed};
use self::otlp_logs::OtlpLogs;
use self::record::Record;
use self::syslog::{Syslog, UNCONFIRMED};
use crate::http_client::Clients;
use crate::otlp::{OtlpTarget, SendError};
use crate::random::jitter;
use crate::telemetry::{ExportHealth, ExportTrouble};

/// How long to wait for new events at most: new acts do not wake the task.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The initial and the maximum pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// How often the rows that wait are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Where audit records are pushed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiemTarget {
    /// A syslog receiver.
    Syslog(SyslogTarget),
    /// An endpoint for logs over OTLP, and `service.name` with further attributes of the resource.
    Otlp(OtlpTarget, Vec<(String, String)>),
}

/// Pushes the audit of this gateway.
pub(crate) struct Siem {
    shown: String,
    wake: Notify,
    sent: AtomicU64,
    dropped: AtomicU64,
    waiting: AtomicU64,
    trouble: ExportTrouble,
    worker: AsyncMutex<Worker>,
}

/// Where events go.
enum Outlet {
    Syslog(Syslog),
    Otlp(OtlpLogs),
}

struct Worker {
    store: Store,
    feed: Feed,
    outlet: Outlet,
    /// How many events of the chunk were delivered already.
    part: usize,
    /// How many events are sent at once: fewer after the receiver refused so many as too large.
    at_once: usize,
    mark: MarkFile,
    /// Everything up to here has arrived.
    confirmed: Cursor,
    /// What was written since, and when.
    unconfirmed: VecDeque<(Instant, Cursor)>,
    counted: Option<Instant>,
}

/// Why nothing could be sent for now.
enum Failure {
    Store(StoreError),
    Receiver {
        why: String,
        pause: Option<Duration>,
    },
}

/// What one turn has done.
enum Turn {
    Sent(u64),
    /// So many were sent, and so many refused for ever.
    Refused(u64, u64, String),
    /// The receiver takes only fewer at once.
    Smaller,
    /// There is nothing to send.
    Nothing,
}

impl Siem {
    /// Continues where the former process of this gateway stopped.
    pub(crate) async fn open(
        target: SiemTarget,
        gateway: String,
        store: Store,
        data_folder: &Path,
        clients: Arc<Clients>,
    ) -> Result<Self, StoreError> {
        let newest_act = store.newest_act().await?;
        let cursor = Cursor::of(&store, data_folder).await?;
        let (outlet, shown) = match target {
            SiemTarget::Syslog(target) => {
                let shown = target.to_string();
                (Outlet::Syslog(Syslog::new(target)), shown)
            }
            SiemTarget::Otlp(target, resource) => {
                let shown = target.shown();
                let logs = OtlpLogs::new(target, resource, gateway.clone(), clients);
                (Outlet::Otlp(logs), shown)
            }
        };
        let worker = Worker {
            feed: Feed::new(store.clone(), gateway, cursor, newest_act),
            store,
            outlet,
            part: 0,
            at_once: AT_ONCE,
            mark: MarkFile::open(data_folder, cursor),
            confirmed: cursor,
            unconfirmed: VecDeque::new(),
            counted: None,
        };
        Ok(Self {
            shown,
            wake: Notify::new(),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            trouble: ExportTrouble::default(),
            worker: AsyncMutex::new(worker),
        })
    }

    /// Says that calls were stored.
    pub(crate) fn stored(&self) {
        self.wake.notify_one();
    }

    /// Sends events until `stop`; what is left then is sent by [`Self::finish`].
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut worker = self.worker.lock().await;
        let mut pause = FIRST_PAUSE;
        loop {
            let turn = stop.run_until_cancelled(worker.turn(false)).await;
            let Some(turn) = turn else { return };
            self.count(&mut worker).await;
            let wait = match turn {
                Ok(Turn::Nothing) => {
                    self.recovered();
                    let idle = timeout(LOOK_EVERY, self.wake.notified());
                    if stop.run_until_cancelled(idle).await.is_none() {
                        return;
                    }
                    continue;
                }
                Ok(turn) => {
                    self.note(turn);
                    pause = FIRST_PAUSE;
                    continue;
                }
                Err(failure) => {
                    let asked = self.failed(failure);
                    asked.unwrap_or_else(|| pause.mul_f64(0.5 + jitter() / 2.0))
                }
            };
            pause = (2 * pause).min(LAST_PAUSE);
            if stop.run_until_cancelled(sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Sends what is left, within a time limit; the rest is sent after the next start.
    pub(crate) async fn finish(&self, within: Duration) {
        let until = Instant::now() + within;
        let Ok(mut worker) = timeout_at(until, self.worker.lock()).await else {
            return;
        };
        let all = async {
            loop {
                match worker.turn(true).await {
                    Ok(Turn::Nothing) => return worker.close().await,
                    Ok(turn) => self.note(turn),
                    Err(failure) => {
                        self.failed(failure);
                        return;
                    }
                }
            }
        };
        if timeout_at(until, all).await.is_err() {
            warn!(
                target = self.shown,
                "the last audit records are pushed after the next start"
            );
        }
    }

    fn note(&self, turn: Turn) {
        match turn {
            Turn::Nothing | Turn::Smaller => {}
            Turn::Sent(count) => {
                self.sent.fetch_add(count, Ordering::Relaxed);
                self.recovered();
            }
            Turn::Refused(sent, refused, why) => {
                self.sent.fetch_add(sent, Ordering::Relaxed);
                self.dropped.fetch_add(refused, Ordering::Relaxed);
                self.trouble(&why);
            }
        }
    }

    /// Counts what waits and what was lost.
    async fn count(&self, worker: &mut Worker) {
        let lost = std::mem::take(&mut worker.feed.dropped);
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        let is_due = |at: Instant| at.elapsed() >= COUNT_EVERY;
        if worker.counted.is_none_or(is_due) {
            worker.counted = Some(Instant::now());
            let after = worker.feed.cursor().block;
            if let Ok(waiting) = worker.store.rows_after_block(after).await {
                self.waiting.store(waiting, Ordering::Relaxed);
            }
        }
    }

    /// Records a failure; returns the pause that the receiver requested.
    fn failed(&self, failure: Failure) -> Option<Duration> {
        match failure {
            Failure::Store(error) => {
                self.trouble(&chain(&error));
                None
            }
            Failure::Receiver { why, pause } => {
                self.trouble(&why);
                pause
            }
        }
    }

    fn trouble(&self, error: &str) {
        if self.trouble.failed(error) {
            let (target, dropped) = (&self.shown, self.dropped.load(Ordering::Relaxed));
            warn!(
                target,
                error, dropped, "audit records cannot be pushed; calls continue"
            );
        }
    }

    fn recovered(&self) {
        if self.trouble.recovered() {
            let (target, dropped) = (&self.shown, self.dropped.load(Ordering::Relaxed));
            info!(target, dropped, "audit records are pushed again");
        }
    }

    /// Returns the state of the export.
    pub(crate) fn health(&self) -> ExportHealth {
        ExportHealth {
            what: "audit",
            target: self.shown.clone(),
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            error: self.trouble.error(),
        }
    }
}

impl Worker {
    /// Sends the next events. Cancel safe: what was being sent is sent again.
    async fn turn(&mut self, is_last: bool) -> Result<Turn, Failure> {
        self.confirm()?;
        let next = self.feed.next(is_last).await.map_err(Failure::Store)?;
        let Some(chunk) = next else {
            if self.unconfirmed.is_empty() {
                self.confirmed = self.feed.cursor();
                self.mark.write(self.confirmed);
            }
            return Ok(Turn::Nothing);
        };
        let all = chunk.records.len();
        let part = &chunk.records[self.part.min(all)..];
        let part = &part[..part.len().min(self.at_once)];
        let count = part.len() as u64;
        let turn = match self.outlet.send(part).await {
            Ok(0) => Turn::Sent(count),
            Ok(refused) => Turn::Refused(
                count.saturating_sub(refused),
                refused.min(count),
                format!("it rejected {refused} records"),
            ),
            Err(SendError::TooLarge { .. }) if count > 1 => {
                self.at_once = part.len() / 2;
                return Ok(Turn::Smaller);
            }
            Err(SendError::TooLarge { why }) => {
                let record = part.first().map(Record::name).unwrap_or_default();
                warn!(
                    record,
                    "an audit record is not pushed: it alone is too large for the receiver"
                );
                Turn::Refused(0, count, format!("{why} to the record of {record} alone"))
            }
            Err(SendError::Never { why }) => Turn::Refused(0, count, why),
            Err(SendError::Later { why, pause }) => return Err(self.cut(why, pause)),
            Err(SendError::Setup { why }) => return Err(self.cut(why, None)),
        };
        self.part += part.len();
        if self.part < all {
            return Ok(turn);
        }
        self.part = 0;
        self.at_once = (2 * self.at_once).min(AT_ONCE);
        self.feed.done();
        let reached = self.feed.cursor();
        match self.confirms_at_once() {
            true => {
                self.confirmed = reached;
                self.mark.write(reached);
            }
            false => self.unconfirmed.push_back((Instant::now(), reached)),
        }
        Ok(turn)
    }

    /// Notes what has arrived, as far as that can be known by now.
    fn confirm(&mut self) -> Result<(), Failure> {
        let Outlet::Syslog(syslog) = &mut self.outlet else {
            return Ok(());
        };
        match syslog.check() {
            // Nothing was lost with a connection that nothing waits for.
            Err(_) if self.unconfirmed.is_empty() => {}
            Err(error) => return Err(self.cut(error.to_string(), Some(FIRST_PAUSE))),
            Ok(()) => {}
        }
        let mut reached = None;
        while let Some((written, cursor)) = self.unconfirmed.front()
            && written.elapsed() >= UNCONFIRMED
        {
            reached = Some(*cursor);
            self.unconfirmed.pop_front();
        }
        if let Some(cursor) = reached {
            self.confirmed = cursor;
            self.mark.write(cursor);
        }
        Ok(())
    }

    /// Makes everything that may not have arrived be sent again.
    fn cut(&mut self, why: String, pause: Option<Duration>) -> Failure {
        if !self.unconfirmed.is_empty() {
            self.unconfirmed.clear();
            self.part = 0;
            self.feed.rewind(self.confirmed);
        }
        Failure::Receiver { why, pause }
    }

    fn confirms_at_once(&self) -> bool {
        match &self.outlet {
            Outlet::Otlp(_) => true,
            Outlet::Syslog(_) => false,
        }
    }

    /// Ends the connection, and notes what has arrived.
    async fn close(&mut self) {
        if let Outlet::Syslog(syslog) = &mut self.outlet
            && (syslog.close().await || self.unconfirmed.is_empty())
        {
            self.unconfirmed.clear();
            self.confirmed = self.feed.cursor();
        }
        self.mark.write(self.confirmed);
    }
}

impl Outlet {
    /// Sends events; returns how many were rejected.
    async fn send(&mut self, records: &[Record]) -> Result<u64, SendError> {
        if records.is_empty() {
            return Ok(0);
        }
        match self {
            Self::Otlp(logs) => logs.send(records).await,
            Self::Syslog(syslog) => {
                let sent = syslog.send(records).await;
                sent.map(|()| 0).map_err(|error| SendError::Later {
                    why: chain(&error),
                    pause: None,
                })
            }
        }
    }
}
