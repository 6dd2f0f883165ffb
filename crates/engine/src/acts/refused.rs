//! Refused attempts: the first of a kind is written immediately, those that follow within a minute
//! are counted in its row. A kind is a key, an act and a code; the target is that of the first. The
//! count is written at every power of ten, when acts are listed, and at the end. Entry point:
//! `Refused::note`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::diagnose::chain;
use gantry_store::{ActOutcome, ActRow};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::audit::{ActLog, RecordedAct};
use crate::clock::unix_ms;

/// How long attempts of one kind are counted into one row.
const WINDOW: Duration = Duration::from_secs(60);
/// Kinds that are counted separately; all others share one.
const KINDS: usize = 512;

/// Key, act and code; all empty for the shared count.
type RefusalKey = (String, String, String);

pub(super) struct Refused {
    log: ActLog,
    kinds: Mutex<HashMap<RefusalKey, RefusalCount>>,
}

/// The row of a kind; one task writes its count at a time.
type CountedAct = Arc<tokio::sync::Mutex<RecordedAct>>;

struct RefusalCount {
    since: Instant,
    /// Its row, once written.
    row: Option<CountedAct>,
    /// The number of attempts.
    all: u64,
    /// Attempts that are not written yet.
    more: u64,
}

/// What to write for an attempt.
enum RefusalWrite {
    Row(RefusalKey),
    Count(CountedAct, u64),
    Nothing,
}

impl Refused {
    pub(super) fn new(log: ActLog) -> Self {
        Self {
            log,
            kinds: Mutex::default(),
        }
    }

    /// Records an attempt.
    pub(super) async fn note(&self, mut row: ActRow, code: &str) {
        let kind = (row.key.clone(), row.act.clone(), code.to_owned());
        match self.count(kind, Instant::now()) {
            RefusalWrite::Nothing => {}
            RefusalWrite::Count(act, more) => self.write(&act, more).await,
            RefusalWrite::Row(kind) => {
                (row.outcome, row.code) = (ActOutcome::Refused, Some(code.to_owned()));
                row.ended_ms = Some(row.at_ms);
                match self.log.put(row.clone()).await {
                    Ok(act) => {
                        if let Some(count) = self.kinds.lock().get_mut(&kind) {
                            count.row = Some(Arc::new(tokio::sync::Mutex::new(act)));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(
                            error = chain(&error),
                            act = row.act,
                            target = row.target,
                            key = row.key,
                            code,
                            "a refused attempt could not be recorded"
                        );
                        // The next one tries again.
                        self.kinds.lock().remove(&kind);
                    }
                }
            }
        }
    }

    fn count(&self, kind: RefusalKey, now: Instant) -> RefusalWrite {
        let mut kinds = self.kinds.lock();
        if kinds.len() >= KINDS && !kinds.contains_key(&kind) {
            // Expired and written counts are removed.
            kinds.retain(|_, count| now - count.since < WINDOW || count.more > 0);
        }
        let kind = match kinds.len() >= KINDS && !kinds.contains_key(&kind) {
            true => RefusalKey::default(),
            false => kind,
        };
        match kinds.get_mut(&kind) {
            Some(count) if now - count.since < WINDOW => {
                count.all = count.all.saturating_add(1);
                count.more = count.more.saturating_add(1);
                match &count.row {
                    Some(act) if is_tenfold(count.all) => {
                        RefusalWrite::Count(Arc::clone(act), std::mem::take(&mut count.more))
                    }
                    Some(_) | None => RefusalWrite::Nothing,
                }
            }
            Some(_) | None => {
                let left = kinds.get(&kind);
                let left = left.and_then(|count| Some((count.row.clone()?, count.more)));
                if let Some((act, more)) = left.filter(|(_, more)| *more > 0) {
                    // The row of the previous window gets its count; this attempt belongs to the
                    // next.
                    if let Some(count) = kinds.get_mut(&kind) {
                        (count.since, count.all, count.more) = (now, 1, 0);
                    }
                    return RefusalWrite::Count(act, more.saturating_add(1));
                }
                let count = RefusalCount {
                    since: now,
                    row: None,
                    all: 1,
                    more: 0,
                };
                kinds.insert(kind.clone(), count);
                RefusalWrite::Row(kind)
            }
        }
    }

    /// Writes every count that is not written yet.
    pub(super) async fn settle(&self) {
        let due: Vec<(CountedAct, u64)> = {
            let mut kinds = self.kinds.lock();
            let due = kinds.values_mut().filter(|count| count.more > 0);
            let due = due.filter_map(|count| {
                let act = count.row.clone()?;
                Some((act, std::mem::take(&mut count.more)))
            });
            due.collect()
        };
        for (act, more) in due {
            self.write(&act, more).await;
        }
    }

    async fn write(&self, act: &CountedAct, more: u64) {
        let mut written = act.lock().await;
        let row = ActRow {
            repeats: written.row.repeats.saturating_add(more),
            ended_ms: Some(unix_ms()),
            ..written.row.clone()
        };
        match self.log.change(&written, row, true).await {
            Ok(now) => *written = now,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "refused attempts could not be counted"
                );
                // What the row says now is not known: the next attempt writes another one.
                let is_other = |count: &RefusalCount| {
                    count.row.as_ref().is_none_or(|row| !Arc::ptr_eq(row, act))
                };
                self.kinds.lock().retain(|_, count| is_other(count));
            }
        }
    }
}

fn is_tenfold(mut count: u64) -> bool {
    while count >= 10 && count.is_multiple_of(10) {
        count /= 10;
    }
    count == 1
}

#[cfg(test)]
mod tests {
    use gantry_store::ActFilter;

    use super::*;

    #[tokio::test]
    async fn a_flood_of_refused_attempts_is_a_row_with_a_count() {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(folder.path()).await;
        let log = ActLog::open(folder.path(), store.clone()).unwrap();
        let refused = Refused::new(log.clone());
        for number in 0..2_500 {
            let row = ActRow {
                key: format!("key_{}", number % 2),
                act: "server.remove".into(),
                target: format!("server-{number}"),
                ..ActRow::default()
            };
            refused.note(row, "auth.agent_key").await;
        }
        let counts = |rows: Vec<ActRow>| rows.iter().map(|row| row.repeats).collect::<Vec<_>>();
        let rows = store.acts(&ActFilter::default()).await.unwrap();
        assert_eq!(counts(rows), [1_000, 1_000]);
        refused.settle().await;
        refused.settle().await;
        let rows = store.acts(&ActFilter::default()).await.unwrap();
        assert!(rows.iter().all(|row| row.outcome == ActOutcome::Refused));
        assert_eq!(counts(rows), [1_250, 1_250]);
        // Kinds without end share one row.
        for number in 0..2_000 {
            let row = ActRow {
                key: format!("key_{number}"),
                ..ActRow::default()
            };
            refused.note(row, "auth.agent_key").await;
        }
        let all = ActFilter {
            limit: 10_000,
            ..ActFilter::default()
        };
        assert_eq!(store.acts(&all).await.unwrap().len(), KINDS + 1);
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_minute_later_it_is_another_row() {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(folder.path()).await;
        let log = ActLog::open(folder.path(), store.clone()).unwrap();
        let refused = Refused::new(log.clone());
        let kind = || ("k".to_owned(), "a".to_owned(), "c".to_owned());
        let now = Instant::now();
        assert!(matches!(refused.count(kind(), now), RefusalWrite::Row(_)));
        let row = log.put(ActRow::default()).await.unwrap();
        let row = Arc::new(tokio::sync::Mutex::new(row));
        refused.kinds.lock().get_mut(&kind()).unwrap().row = Some(row);
        assert!(matches!(refused.count(kind(), now), RefusalWrite::Nothing));
        let later = now + WINDOW;
        // What was not said of the window before is said first.
        assert!(matches!(
            refused.count(kind(), later),
            RefusalWrite::Count(_, 2)
        ));
        let later = later + WINDOW;
        assert!(matches!(refused.count(kind(), later), RefusalWrite::Row(_)));
        store.close().await.unwrap();
    }
}
