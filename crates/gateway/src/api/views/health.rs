//! The view of the gateway's own health and of what its host allows.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_engine::{CallUsage, Health, HostReport, JournalDamage};
use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339;

/// How the gateway is.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct HealthView {
    /// Whether the status is `ok`.
    ok: bool,
    /// `ok`, `degraded` (calls are taken, but somebody should look at the reasons), `failing` (calls
    /// cannot be recorded, and are refused) or `stopping`.
    status: &'static str,
    /// Why it is degraded or failing.
    reasons: Vec<String>,
    draining: bool,
    version: &'static str,
    servers: BTreeMap<&'static str, usize>,
    audit: AuditView,
    warnings: Vec<String>,
    host: Vec<FactView>,
}

#[derive(Serialize, ToSchema)]
struct AuditView {
    writable: bool,
    reason: Option<String>,
    journal_bytes: u64,
    unfolded_records: u64,
    last_fold_error: Option<String>,
    /// Why the database cannot be written, if it cannot; calls go on while the journal has room.
    store_error: Option<String>,
    /// Damage of the journal that nobody has acknowledged.
    damage: Vec<DamageView>,
    /// How many calls are kept; nothing if the database does not say.
    calls: Option<u64>,
    /// When the oldest of them came in.
    oldest: Option<String>,
    /// The same, in milliseconds since 1970.
    oldest_ms: Option<u64>,
    /// How long the database is, its log included.
    database_bytes: Option<u64>,
    /// How long calls are kept, in days.
    retention_days: u64,
    /// How many days the clock is ahead, if that is so far that no call is dropped for its age.
    clock_ahead_days: Option<u64>,
}

/// Something of the journal that is missing or damaged.
#[derive(Serialize, ToSchema)]
struct DamageView {
    /// `missing`, `truncated`, `unreadable`, `foreign`, `overwritten` or `no_mark`.
    kind: &'static str,
    /// Which segment.
    segment: u64,
    /// When it was found.
    found_ms: u64,
    /// At most so many recorded calls have no row because of it; null if that is not known.
    calls_at_most: Option<u64>,
    /// The file that was kept, in the folder `journal`.
    file: Option<String>,
    /// All of it in a sentence.
    detail: String,
}

/// How much damage was acknowledged.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct AcknowledgedView {
    /// How many segments.
    pub(in crate::api) acknowledged: u64,
}

impl DamageView {
    fn of(damage: &JournalDamage) -> Self {
        Self {
            kind: damage.kind.as_str(),
            segment: damage.segment,
            found_ms: damage.at_ms,
            calls_at_most: damage.calls,
            file: damage.file.clone(),
            detail: damage.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct FactView {
    name: &'static str,
    available: bool,
    detail: String,
}

impl HealthView {
    /// Shows how the gateway is and what its host allows.
    pub(in crate::api) fn of(
        health: &Health,
        usage: Option<CallUsage>,
        host: &HostReport,
        version: &'static str,
    ) -> Self {
        let days = |time: Duration| time.as_secs() / 86_400;
        let oldest_ms = usage.and_then(|usage| usage.oldest_ms);
        let facts = host.facts.iter().map(|fact| FactView {
            name: fact.name,
            available: fact.available,
            detail: fact.detail.clone(),
        });
        Self {
            ok: health.ok,
            status: health.status.as_str(),
            reasons: health.reasons.clone(),
            draining: health.draining,
            version,
            servers: health.servers.clone(),
            audit: AuditView {
                writable: health.audit.writable,
                reason: health.audit.reason.clone(),
                journal_bytes: health.audit.journal_bytes,
                unfolded_records: health.audit.folded_lag_records,
                last_fold_error: health.audit.last_fold_error.clone(),
                store_error: health.audit.store_error.clone(),
                damage: health.audit.damage.iter().map(DamageView::of).collect(),
                calls: usage.map(|usage| usage.rows),
                oldest: oldest_ms.map(rfc3339),
                oldest_ms,
                database_bytes: usage.map(|usage| usage.database_bytes),
                retention_days: days(health.audit.retention),
                clock_ahead_days: health.audit.clock_ahead.map(days),
            },
            warnings: health.warnings.clone(),
            host: facts.collect(),
        }
    }
}
