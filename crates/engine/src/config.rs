//! The engine's configuration. Each module takes its own part, never the whole.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use gantry_model::id::ProjectName;
use gantry_model::naming::{Expose, OnCollision, Target};
use gantry_store::StoreConfig;

use crate::audit::AuditPolicy;
use crate::credentials::MasterKey;
use crate::siem::SiemTarget;
use crate::tokens::IssuerConfig;
use crate::traces::TracesConfig;

/// How often registries are checked for images that changed under their tags.
pub const IMAGE_CHECKS: Duration = Duration::from_secs(6 * 60 * 60);

/// The configuration of an engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The folder with all data of this gateway; one gateway per folder.
    pub data_dir: PathBuf,
    /// The store; `gantry.db` in the data folder by default. Gateways with separate data folders
    /// may share one store.
    pub store: StoreConfig,
    /// The project whose servers run.
    pub project: ProjectName,
    /// The variables that every child process gets.
    pub environment: Vec<(String, String)>,
    /// The form of tool names for clients.
    pub expose: Expose,
    /// The policy for two tools with the same bare name.
    pub on_collision: OnCollision,
    /// The maximum length of a tool name; longer ones are shortened.
    pub tool_name_length: usize,
    /// Whether servers start in parallel or one after the other.
    pub startup: Startup,
    /// The policy for a server that fails to start.
    pub on_start_failure: OnStartFailure,
    /// How calls are recorded.
    pub audit: AuditPolicy,
    /// Limits on reading and storing.
    pub limits: EngineLimits,
    /// Time limits of a shutdown.
    pub stop: StopPolicy,
    /// The key that secrets are encrypted with; `data.key` in the data folder by default.
    pub master_key: Option<MasterKey>,
    /// Additional folders that no server may see, such as those of other gateways.
    pub hidden_folders: Vec<PathBuf>,
    /// How often registries are checked for images that changed under their tags; never if `None`.
    pub image_checks: Option<Duration>,
    /// The authorization servers whose tokens are accepted besides keys.
    pub issuers: Vec<IssuerConfig>,
    /// Where spans of calls are exported to; nowhere if nothing is said.
    pub traces: Option<TracesConfig>,
    /// Where calls and administrative acts are pushed to; nowhere if nothing is said.
    pub siem: Option<SiemTarget>,
    /// How many log lines were dropped, counted by the log writer; shown in the metrics.
    pub dropped_log_lines: Arc<AtomicU64>,
}

impl EngineConfig {
    /// Returns the defaults for a data folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self {
            store: StoreConfig::in_folder(&data_dir),
            data_dir,
            project: ProjectName::local(),
            environment: Vec::new(),
            expose: Expose::default(),
            on_collision: OnCollision::default(),
            tool_name_length: Target::Mcp.limit(),
            startup: Startup::default(),
            on_start_failure: OnStartFailure::default(),
            audit: AuditPolicy::default(),
            limits: EngineLimits::default(),
            stop: StopPolicy::default(),
            master_key: None,
            hidden_folders: Vec::new(),
            image_checks: Some(IMAGE_CHECKS),
            issuers: Vec::new(),
            traces: None,
            siem: None,
            dropped_log_lines: Arc::default(),
        }
    }
}

/// Whether servers start in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Startup {
    /// All at once.
    #[default]
    Parallel,
    /// In configuration order, each after the one before is ready or has failed.
    Sequential,
}

/// The policy for a server that fails to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStartFailure {
    /// It is shown and retried; other servers are not affected.
    #[default]
    Isolate,
    /// The gateway does not start.
    Abort,
}

/// Limits on reading and storing.
#[derive(Debug, Clone, Copy)]
pub struct EngineLimits {
    /// The longest line from a server, in bytes.
    pub line_bytes: usize,
    /// The deepest nesting of a message.
    pub depth: usize,
    /// The maximum number of tools of one server, and the most prompts, resources and templates.
    pub tools: usize,
    /// The maximum number of pages of one listing; exceeded only for pages with many items.
    pub pages: usize,
    /// The longest definition of a tool, in bytes.
    pub definition_bytes: usize,
    /// How long a listing waits for servers that are not running yet.
    pub listing_wait: Duration,
    /// How long a server may leave its full input pipe unread.
    pub write: Duration,
    /// The memory for responses until their clients have read them.
    pub answer_bytes: usize,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            line_bytes: 8 << 20,
            depth: 64,
            tools: 10_000,
            pages: 64,
            definition_bytes: 256 << 10,
            listing_wait: Duration::from_secs(3),
            write: Duration::from_secs(5),
            answer_bytes: 96 << 20,
        }
    }
}

/// Time limits of a shutdown.
#[derive(Debug, Clone, Copy)]
pub struct StopPolicy {
    /// How long calls in flight may continue.
    pub drain: Duration,
    /// When remaining processes are killed, counted from the start of the shutdown.
    pub kill_after: Duration,
}

impl Default for StopPolicy {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(10),
            kill_after: Duration::from_secs(30),
        }
    }
}
