//! The audit's background task: imports the journal, allocates segments ahead, writes counted
//! refusals, deletes expired rows, and checks that all files are still there.
//!
//! A database that fails is retried after 250 ms, doubling to 2 s; meanwhile the journal keeps
//! everything. If the database has no space, segments that were allocated ahead are given back. Entry
//! point: `Audit::run`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use gantry_store::{ClockRecord, DamageKind, JournalDamage, StoreError};

use super::chain::{Finding, SegmentCalls};
use super::error::AuditError;
use super::importer::RowPolicy;
use super::journal::Claim;
use super::retention::{ClockChange, Retention};
use super::{Audit, chain};
use crate::clock::unix_ms;

const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(2);
/// How often to check that folder, database and segment exist and can be written.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// After this time without space, the database gets the space that the journal allocated in
/// advance.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(10);
/// With less free space the database soon cannot be written.
const LITTLE_SPACE: u64 = 1 << 20;
/// A database that takes an import for longer is reported before the import's own deadline.
const SLOW_IMPORT: Duration = Duration::from_secs(5);
const RETENTION_EVERY: Duration = Duration::from_mins(10);
/// Few enough that an import never waits long for the writer.
const DROPPED_AT_ONCE: u32 = 1000;

/// The state of the task between two iterations.
pub(super) struct TaskState {
    retry_after: Duration,
    import_at: Instant,
    retention_at: Instant,
    check_at: Instant,
    refusing: bool,
    /// Since when the database has no space.
    full_since: Option<Instant>,
}

#[cfg(test)]
impl TaskState {
    /// Returns the state in which everything is due.
    pub(super) fn due() -> Self {
        let now = Instant::now();
        Self {
            retry_after: FIRST_RETRY,
            import_at: now,
            retention_at: now,
            check_at: now,
            refusing: false,
            full_since: None,
        }
    }
}

impl Audit {
    /// Runs until `stop`, then imports the rest; reports new damage.
    pub(crate) async fn run(self, stop: CancellationToken, tell: impl Fn(&JournalDamage)) {
        let now = Instant::now();
        let mut turn = TaskState {
            retry_after: FIRST_RETRY,
            import_at: now,
            retention_at: now,
            check_at: now,
            refusing: false,
            full_since: None,
        };
        loop {
            self.shared.damage.take_news().iter().for_each(&tell);
            // Stop first; a wake-up only makes the iteration earlier.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.shared.journal.wake.notified() => {}
                () = sleep(self.shared.policy.import_every) => {}
            }
            self.check(&mut turn).await;
            self.write_refusals();
            self.provide(&mut turn).await;
            self.shared.journal.mark_now();
            self.import_in_turn(&mut turn).await;
            self.drop_old(&mut turn).await;
            self.scrub().await;
        }
        if let Err(error) = self.finish().await {
            let error = chain(&error);
            tracing::warn!(
                error,
                "the rest of the audit stays in the journal for the next start"
            );
        }
    }

    /// Imports the rest before the end.
    async fn finish(&self) -> Result<(), AuditError> {
        self.import_now().await?;
        self.shared.importer.lock().await.retire().await
    }

    /// Writes the refusals counted since the last time.
    pub(super) fn write_refusals(&self) {
        let due = self.refusals().due(Instant::now());
        for mut encoded in due {
            match self.shared.journal.append(&mut encoded, Claim::Whole) {
                Ok(segment) => self.settle_soon(segment),
                Err(error) => {
                    tracing::debug!(error = chain(&error), "counted refusals wait");
                    self.refusals().put_back(encoded);
                }
            }
        }
    }

    /// Allocates the next segment in advance, and reports when calls are refused for lack of one.
    async fn provide(&self, turn: &mut TaskState) {
        if self.shared.journal.wants_segment() {
            let journal = Arc::clone(&self.shared.journal);
            let provided = tokio::task::spawn_blocking(move || journal.provide()).await;
            if let Ok(Err(error)) = provided {
                tracing::debug!(
                    error = chain(&error),
                    "no journal segment could be allocated"
                );
            }
        }
        let refusing = self.shared.journal.condition().refusing;
        match (&refusing, turn.refusing) {
            (Some(error), false) => {
                tracing::error!(
                    error = chain(error),
                    "calls are refused: they cannot be recorded"
                );
            }
            (None, true) => tracing::info!("calls are recorded and accepted again"),
            _ => {}
        }
        turn.refusing = refusing.is_some();
    }

    /// Checks that folder, database and segment exist and can be written.
    pub(super) async fn check(&self, turn: &mut TaskState) {
        if Instant::now() < turn.check_at {
            return;
        }
        turn.check_at = Instant::now() + CHECK_EVERY;
        let audit = self.clone();
        // File access blocks, if only for a moment.
        let found = tokio::task::spawn_blocking(move || {
            let shared = &audit.shared;
            let gone = shared.places.gone();
            shared.journal.set_gone(gone);
            shared.store.set_gone(gone.is_some());
            shared.journal.inspect_current()
        });
        if let Ok(Some((segment, kind))) = found.await {
            let journal = &self.shared.journal;
            let file = (kind != DamageKind::Missing).then(|| journal.keep_damaged(segment));
            let held = SegmentCalls {
                first: segment,
                last: segment,
                calls: journal.calls_in(segment),
            };
            self.shared.damage.add(Finding {
                kind,
                segment,
                file,
                held,
            });
        }
        if self.shared.journal.gone().is_none() {
            let error = self.probe_store().await;
            *self.shared.store_error.lock() = error;
        }
    }

    /// Returns why the database cannot be written, or soon cannot.
    async fn probe_store(&self) -> Option<String> {
        let store = &self.shared.store;
        if let Err(error) = store.probe_write().await {
            return Some(chain(&error));
        }
        let disk = rustix::fs::statvfs(store.file()?).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        (free < LITTLE_SPACE).then(|| {
            let kib = free >> 10;
            format!("only {kib} KiB are left on the disk of the database")
        })
    }

    /// Tracks since when the database has no space, and eventually frees some; returns whether it
    /// did.
    fn make_space(&self, turn: &mut TaskState, imported: &Result<(), AuditError>) -> bool {
        let full = matches!(imported, Err(AuditError::Store(StoreError::Full { .. })));
        if !full {
            turn.full_since = None;
            return false;
        }
        let since = *turn.full_since.get_or_insert_with(Instant::now);
        since.elapsed() >= GIVE_BACK_AFTER && self.shared.journal.give_back()
    }

    async fn import_in_turn(&self, turn: &mut TaskState) {
        if Instant::now() < turn.import_at {
            return;
        }
        let mut imported = self.import_or_report().await;
        if self.make_space(turn, &imported) {
            // Immediately: the released space is for the import.
            imported = self.import(RowPolicy::Ended).await;
        }
        match imported {
            Ok(()) if turn.retry_after > FIRST_RETRY => {
                tracing::info!("the audit's database takes rows again");
                turn.retry_after = FIRST_RETRY;
            }
            Ok(()) => {}
            Err(error) => {
                let (error, retry_after) = (chain(&error), turn.retry_after);
                tracing::warn!(
                    error,
                    ?retry_after,
                    "the audit journal waits for its database"
                );
                turn.import_at = Instant::now() + retry_after;
                turn.retry_after = (retry_after * 2).min(LAST_RETRY);
            }
        }
    }

    /// Imports; while that takes long, the audit's health says so.
    async fn import_or_report(&self) -> Result<(), AuditError> {
        let mut importing = std::pin::pin!(self.import(RowPolicy::Ended));
        let begun = Instant::now();
        while begun.elapsed() < SLOW_IMPORT {
            tokio::select! {
                biased;
                imported = &mut importing => return imported,
                // A burst of calls leaves a few that no mark covers yet.
                () = sleep(self.shared.policy.import_every) => drop(self.shared.journal.mark_now()),
            }
        }
        *self.shared.import_error.lock() = Some(format!(
            "the audit database has not taken the journal for {SLOW_IMPORT:?}"
        ));
        importing.await
    }

    /// Deletes rows that are too old, unless the clock is too far ahead. One run deletes a limited
    /// number.
    pub(super) async fn drop_old(&self, turn: &mut TaskState) {
        let now = Instant::now();
        self.look_at_clock(now);
        if now < turn.retention_at {
            return;
        }
        match self.drop_some(now).await {
            // There may be more: continue in the next iteration, after the import.
            Ok(true) => turn.retention_at = now,
            Ok(false) => {
                turn.retention_at = now + RETENTION_EVERY;
                self.retention().begin();
            }
            Err(error) => {
                turn.retention_at = now + RETENTION_EVERY;
                tracing::warn!(error = chain(&error), "old audit rows could not be dropped");
            }
        }
    }

    /// Reports when the clock becomes too far ahead, and when it no longer is.
    fn look_at_clock(&self, now: Instant) {
        let turned = self.retention().look(unix_ms(), now);
        match turned {
            ClockChange::Same => {}
            ClockChange::Doubtful(by) => tracing::warn!(
                hours = by.as_secs() / 3600,
                "the clock is ahead of the time that was seen to pass: calls are dropped by the latter \
                 until the gateway has run for a day, or `gantry audit confirm-clock`"
            ),
            ClockChange::Ahead(by) => tracing::warn!(
                days = by.as_secs() / 86_400,
                "the clock is far ahead of what was recorded last: no call is dropped for its age \
                 until `gantry audit confirm-clock`"
            ),
            ClockChange::Back => {
                tracing::info!("the clock is plausible again, old calls are dropped")
            }
        }
    }

    /// Deletes some of the rows that are too old; returns whether there may be more in this run.
    async fn drop_some(&self, now: Instant) -> Result<bool, StoreError> {
        let store = &self.shared.store;
        if !self.retention().is_known() {
            let believed = match store.clock().await? {
                Some(believed) => believed,
                None => {
                    let newest_ms = store.call_usage().await?.newest_ms;
                    let believed = ClockRecord::at(newest_ms.unwrap_or_else(unix_ms));
                    // Stored immediately: rows of a clock that jumped may be the newest at the next
                    // start.
                    store.put_clock(believed).await?;
                    believed
                }
            };
            self.retention().start(believed, now);
            self.look_at_clock(now);
        }
        // A gateway whose clock is ahead of the database's drops no more than the others would.
        let clock_ms = unix_ms().min(store.shared_clock_ms().await?);
        let Some(reached) = self.retention().advance(clock_ms, now) else {
            return Ok(false);
        };
        store.put_clock(reached).await?;
        let until_ms = reached.believed_ms.min(clock_ms);
        let step = self.drop_step(until_ms, DROPPED_AT_ONCE).await?;
        let may_go_on = self.retention().count(step.dropped);
        Ok(may_go_on && step.has_more)
    }

    /// Removes deleted secrets from the database's log, if a reader prevented that before.
    async fn scrub(&self) {
        if let Err(error) = self.shared.store.scrub().await {
            tracing::debug!(error = chain(&error), "the database's log is emptied later");
        }
    }

    fn retention(&self) -> MutexGuard<'_, Retention> {
        self.shared.retention.lock()
    }
}
