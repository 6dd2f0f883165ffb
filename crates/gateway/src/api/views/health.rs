//! The view of the gateway's own health and of what its host allows.

use std::collections::BTreeMap;

use gantry_engine::{Health, HostReport};
use serde::Serialize;
use utoipa::ToSchema;

/// How the gateway is.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct HealthView {
    ok: bool,
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
}

#[derive(Serialize, ToSchema)]
struct FactView {
    name: &'static str,
    available: bool,
    detail: String,
}

impl HealthView {
    /// Shows how the gateway is and what its host allows.
    pub(in crate::api) fn of(health: &Health, host: &HostReport, version: &'static str) -> Self {
        let facts = host.facts.iter().map(|fact| FactView {
            name: fact.name,
            available: fact.available,
            detail: fact.detail.clone(),
        });
        Self {
            ok: health.ok,
            draining: health.draining,
            version,
            servers: health.servers.clone(),
            audit: AuditView {
                writable: health.audit.writable,
                reason: health.audit.reason.clone(),
                journal_bytes: health.audit.journal_bytes,
                unfolded_records: health.audit.folded_lag_records,
                last_fold_error: health.audit.last_fold_error.clone(),
            },
            warnings: health.warnings.clone(),
            host: facts.collect(),
        }
    }
}
