//! The view of the gateway's health and of the host's capabilities.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_engine::{CallUsage, ExportHealth, Health, HostReport, JournalDamage};
use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339;

/// The gateway's health.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct HealthView {
    /// Whether the status is `ok`.
    ok: bool,
    /// `ok`, `degraded` (calls are accepted, see the reasons), `failing` (calls cannot be recorded
    /// and are refused) or `stopping`.
    status: &'static str,
    /// Why it is degraded or failing.
    reasons: Vec<String>,
    draining: bool,
    version: &'static str,
    servers: BTreeMap<&'static str, usize>,
    audit: AuditView,
    warnings: Vec<String>,
    /// The exports of traces and audit records.
    exports: Vec<ExportView>,
    host: Vec<FactView>,
}

/// One export of traces or audit records.
#[derive(Serialize, ToSchema)]
struct ExportView {
    /// What is exported, such as `traces`.
    what: &'static str,
    /// The endpoint, without credentials.
    target: String,
    /// How much it took since the start.
    sent: u64,
    /// How much was dropped since the start.
    dropped: u64,
    /// How much waits.
    waiting: u64,
    /// Why the last attempt failed, if it did.
    error: Option<String>,
}

impl ExportView {
    fn of(export: &ExportHealth) -> Self {
        Self {
            what: export.what,
            target: export.target.clone(),
            sent: export.sent,
            dropped: export.dropped,
            waiting: export.waiting,
            error: export.error.clone(),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct AuditView {
    writable: bool,
    reason: Option<String>,
    journal_bytes: u64,
    unfolded_records: u64,
    last_fold_error: Option<String>,
    /// Why the database cannot be written, if so; calls continue while the journal has room.
    store_error: Option<String>,
    /// Unacknowledged damage of the journal.
    damage: Vec<DamageView>,
    /// How many calls are kept; absent if the database does not answer.
    calls: Option<u64>,
    /// When the oldest of them was received.
    oldest: Option<String>,
    /// The same, in milliseconds since 1970.
    oldest_ms: Option<u64>,
    /// The size of the database, including its log.
    database_bytes: Option<u64>,
    /// How long calls are kept, in days.
    retention_days: u64,
    /// How many days the clock is ahead, if so far that deletion by age is paused.
    clock_ahead_days: Option<u64>,
}

/// A missing or damaged part of the journal.
#[derive(Serialize, ToSchema)]
struct DamageView {
    /// `missing`, `truncated`, `unreadable`, `foreign`, `overwritten`, `no_mark` or `new_database`.
    kind: &'static str,
    /// Which segment.
    segment: u64,
    /// When it was found.
    found_ms: u64,
    /// The maximum number of recorded calls without a row because of it; null if unknown.
    calls_at_most: Option<u64>,
    /// The kept file, in the folder `journal`.
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
    /// Shows the gateway's health and the host's capabilities.
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
            exports: health.exports.iter().map(ExportView::of).collect(),
            host: facts.collect(),
        }
    }
}
