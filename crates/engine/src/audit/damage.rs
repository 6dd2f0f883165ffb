//! Unacknowledged damage of the journal, as shown by health and doctor.
//!
//! Found at the start or by the import, counted when the import has read everything that is left,
//! then stored and reported once. Entry point: `DamageLog`.

use std::sync::Arc;

use gantry_store::{JournalDamage, Store, StoreError};
use parking_lot::Mutex;

use super::chain::Finding;
use super::journal::Position;
use crate::clock::unix_ms;

/// The unacknowledged damage; shared by the import, which finds it, and the health report.
#[derive(Debug, Clone, Default)]
pub(super) struct DamageLog {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Found, but not counted and stored yet.
    found: Vec<Finding>,
    /// Stored and not acknowledged.
    open: Vec<JournalDamage>,
    /// Stored but not reported yet.
    news: Vec<JournalDamage>,
}

impl DamageLog {
    /// Starts with the known damage.
    pub(super) fn new(open: Vec<JournalDamage>) -> Self {
        let log = Self::default();
        log.shared.lock().open = open;
        log
    }

    /// Adds a finding; only the first one of a segment counts.
    pub(super) fn add(&self, finding: Finding) {
        let mut shared = self.shared.lock();
        let known = |segment: u64| {
            let found = shared.found.iter().map(|finding| finding.segment);
            found
                .chain(shared.open.iter().map(|damage| damage.segment))
                .any(|id| id == segment)
        };
        if known(finding.segment) {
            return;
        }
        let (segment, kind) = (finding.segment, finding.kind.as_str());
        tracing::error!(segment, kind, "the audit journal is damaged");
        shared.found.push(finding);
    }

    /// Returns all open damage; the number of calls is missing if not counted yet.
    pub(super) fn open(&self) -> Vec<JournalDamage> {
        let shared = self.shared.lock();
        let now = unix_ms();
        let found = shared
            .found
            .iter()
            .map(|finding| damage(finding, now, None));
        shared.open.iter().cloned().chain(found).collect()
    }

    /// Returns whether there is no open damage.
    pub(super) fn is_empty(&self) -> bool {
        let shared = self.shared.lock();
        shared.open.is_empty() && shared.found.is_empty()
    }

    /// Returns the damage stored since the last call.
    pub(super) fn take_news(&self) -> Vec<JournalDamage> {
        std::mem::take(&mut self.shared.lock().news)
    }

    /// Counts and stores the findings. Everything that is left must be imported before.
    pub(super) async fn settle(&self, store: &Store) -> Result<(), StoreError> {
        let found = self.shared.lock().found.clone();
        if found.is_empty() {
            return Ok(());
        }
        let now = unix_ms();
        let mut settled = Vec::with_capacity(found.len());
        for finding in &found {
            let calls = match finding.held.calls {
                None => None,
                Some(held) => {
                    let first = Position::first_sequence(finding.held.first);
                    let end = Position::first_sequence(finding.held.last.saturating_add(1));
                    let rows = store.count_rows_between(first, end).await?;
                    Some(held.saturating_sub(rows))
                }
            };
            settled.push(damage(finding, now, calls));
        }
        store.put_journal_damage(&settled).await?;
        let open = store.journal_damage().await?;
        let mut shared = self.shared.lock();
        shared.found.retain(|finding| !found.contains(finding));
        // Damage that was acknowledged before is not opened again.
        settled.retain(|damage| open.contains(damage));
        for damage in &settled {
            tracing::error!(segment = damage.segment, "{damage}");
        }
        shared.news.append(&mut settled);
        shared.open = open;
        Ok(())
    }

    /// Acknowledges all stored damage; returns how much there was.
    pub(super) async fn acknowledge(&self, store: &Store, by: &str) -> Result<u64, StoreError> {
        let count = store.acknowledge_journal_damage(by, unix_ms()).await?;
        let open = store.journal_damage().await?;
        self.shared.lock().open = open;
        Ok(count)
    }
}

fn damage(finding: &Finding, at_ms: u64, calls: Option<u64>) -> JournalDamage {
    JournalDamage {
        at_ms,
        segment: finding.segment,
        kind: finding.kind,
        calls,
        file: finding.file.clone(),
    }
}
