//! The parts shared by all projects: the data folder, the store, the audit journal, the drivers,
//! HTTP clients, the memory for responses, and running tasks.
//!
//! Nothing here names a server, an agent or a session: those belong to a project.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gantry_model::id::ProjectName;
use gantry_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answers::AnswerPool;
use crate::audit::{Audit, CallIds};
use crate::config::EngineConfig;
use crate::credentials::Vault;
use crate::driver::Drivers;
use crate::driver::hosted::Hosted;
use crate::driver::process::folders;
use crate::error::EngineError;
use crate::folder::DataFolder;
use crate::http_client::Clients;
use crate::image_store::Images;
use crate::random::random;
use crate::schema::CheckPermits;
use crate::siem::Siem;
use crate::telemetry::{ExportHealth, GatewayFigures, GatewayMetrics};
use crate::tokens::Tokens;
use crate::traces::Traces;
use crate::view::HealthStatus;

/// What all projects of an engine share.
pub(crate) struct Machine {
    pub(crate) config: EngineConfig,
    pub(crate) folder: DataFolder,
    pub(crate) store: Store,
    pub(crate) drivers: Drivers,
    /// Shared by the drivers of hosted servers.
    pub(crate) hosted: Arc<Hosted>,
    pub(crate) images: Images,
    pub(crate) audit: Audit,
    pub(crate) ids: Arc<CallIds>,
    pub(crate) clients: Arc<Clients>,
    /// Callers with tokens of configured issuers.
    pub(crate) tokens: Arc<Tokens>,
    /// Opens the vault of each project.
    pub(crate) vault: Vault,
    pub(crate) answers: AnswerPool,
    pub(crate) checks: CheckPermits,
    pub(crate) metrics: GatewayMetrics,
    /// Exports spans of calls, if an endpoint is configured.
    pub(crate) traces: Option<Arc<Traces>>,
    /// Pushes the audit to a SIEM, if one is configured.
    pub(crate) siem: Option<Arc<Siem>>,
    /// The redirect URL of sign-ins, once the gateway listens.
    pub(crate) callback: watch::Sender<Option<String>>,
    /// Changes whenever keys of any project have changed or ended.
    pub(crate) keys_changed: watch::Sender<u64>,
    /// How many instances were started.
    pub(crate) generations: Arc<AtomicU64>,
    /// The first upstream id of this boot.
    pub(crate) first_id: u64,
    /// Running requests; closed when the engine drains.
    pub(crate) requests: TaskTracker,
    pub(crate) draining: CancellationToken,
    /// Runners, links and the engine's own tasks.
    pub(crate) tracker: TaskTracker,
    pub(crate) stop_tasks: CancellationToken,
    /// Administrative changes; they run to their end even if the caller is gone.
    pub(crate) changes: TaskTracker,
    /// When stopping processes are killed at the latest; set when the engine drains.
    pub(crate) kill_at: watch::Sender<Option<Instant>>,
}

impl Machine {
    /// Returns whether this is the project of the data folder, which shows the gateway's own acts,
    /// events and metrics.
    pub(crate) fn is_default(&self, project: &ProjectName) -> bool {
        self.config.project == *project
    }

    /// Returns the health of the engine in one word; free of cost.
    pub(crate) fn health_status(&self) -> HealthStatus {
        if self.draining.is_cancelled() {
            HealthStatus::Stopping
        } else if !self.audit.is_writable() {
            HealthStatus::Failing
        } else if self.audit.is_sound() {
            HealthStatus::Ok
        } else {
            HealthStatus::Degraded
        }
    }

    /// Returns how the exports are.
    pub(crate) fn exports(&self) -> Vec<ExportHealth> {
        let traces = self.traces.iter().map(|traces| traces.health());
        let siem = self.siem.iter().map(|siem| siem.health());
        traces.chain(siem).collect()
    }

    /// Returns how the gateway is, for its metrics.
    pub(crate) fn figures(&self) -> GatewayFigures {
        let audit = self.audit.health();
        GatewayFigures {
            audit_writable: audit.writable,
            audit_waiting: audit.folded_lag_records,
            journal_bytes: audit.journal_bytes,
            exports: self.exports(),
        }
    }

    /// Creates the parent folder of a project's working folders.
    pub(crate) fn make_folders(&self, project: &ProjectName) -> Result<(), EngineError> {
        let project = (!self.is_default(project)).then_some(project);
        let folders = folders(project);
        self.folder.inner(&folders.to_string_lossy()).map(drop)
    }

    /// Removes the parent folder of a deleted project's working folders.
    pub(crate) fn remove_folders(&self, project: &ProjectName) {
        if self.is_default(project) {
            return;
        }
        let folders = self.folder.path().join(folders(Some(project)));
        let Some(folder) = folders.parent() else {
            return;
        };
        match std::fs::remove_dir_all(folder) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%project, %error, "folders of a deleted project are still there");
            }
        }
    }
}

/// Returns a random start for upstream ids, exact in every JSON library.
pub(crate) fn first_id() -> u64 {
    let random = u64::from(u32::from_le_bytes(random()));
    ((random & 0x000f_ffff) | 1 << 20) << 32
}
