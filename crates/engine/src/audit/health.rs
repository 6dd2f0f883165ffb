//! The health of the audit, as it is shown.

use std::time::Duration;

use gantry_model::diagnose::chain;
use gantry_store::JournalDamage;

use super::Audit;

/// The health of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHealth {
    /// Whether calls can be recorded, and hence are accepted.
    pub writable: bool,
    /// Why they cannot.
    pub reason: Option<String>,
    /// The size of the journal on disk.
    pub journal_bytes: u64,
    /// How many records are not in the database yet.
    pub folded_lag_records: u64,
    /// Why the last import failed; `None` if it succeeded.
    pub last_fold_error: Option<String>,
    /// Why the database could not be written at the last attempt; `None` if it could.
    pub store_error: Option<String>,
    /// The unacknowledged damage of the journal.
    pub damage: Vec<JournalDamage>,
    /// How long rows are kept.
    pub retention: Duration,
    /// How far the clock is ahead, if that is too far to delete rows by age.
    pub clock_ahead: Option<Duration>,
}

impl AuditHealth {
    /// Returns the part that administrators of other projects may see: whether calls are recorded,
    /// and for how long they are kept. The journal and its figures belong to the whole gateway.
    pub(crate) fn of_other_project(self) -> Self {
        let reason = (!self.writable).then(|| "calls cannot be recorded".to_owned());
        Self {
            writable: self.writable,
            reason,
            journal_bytes: 0,
            folded_lag_records: 0,
            last_fold_error: None,
            store_error: None,
            damage: Vec::new(),
            retention: self.retention,
            clock_ahead: None,
        }
    }
}

impl Audit {
    /// Returns the health of the audit.
    pub(crate) fn health(&self) -> AuditHealth {
        let condition = self.shared.journal.condition();
        let refusing = condition.refusing.or_else(|| self.not_stored());
        AuditHealth {
            writable: refusing.is_none(),
            reason: refusing.map(|error| chain(&error)),
            journal_bytes: condition.bytes,
            folded_lag_records: condition.waiting,
            last_fold_error: self.shared.import_error.lock().clone(),
            store_error: self.shared.store_error.lock().clone(),
            damage: self.shared.damage.open(),
            retention: self.shared.policy.retention,
            clock_ahead: self.shared.retention.lock().ahead(),
        }
    }
}
