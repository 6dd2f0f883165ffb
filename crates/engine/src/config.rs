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
use crate::tokens::IssuerConfig;
use crate::traces::TracesConfig;

/// How often registries are asked whether images changed under their tags.
pub const IMAGE_CHECKS: Duration = Duration::from_secs(6 * 60 * 60);

/// Everything the engine is told at its start.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Where everything of this gateway is kept; one gateway per folder.
    pub data_dir: PathBuf,
    /// Where rows are kept; `gantry.db` in the data folder unless said otherwise. Gateways with data
    /// folders of their own may share one store.
    pub store: StoreConfig,
    /// The project whose servers run.
    pub project: ProjectName,
    /// The short list of variables that every child gets.
    pub environment: Vec<(String, String)>,
    /// How tools are named towards clients.
    pub expose: Expose,
    /// What happens when two tools have one bare name.
    pub on_collision: OnCollision,
    /// How long the name of a tool may be; longer ones are shortened.
    pub tool_name_length: usize,
    /// Whether servers start side by side or one after the other.
    pub startup: Startup,
    /// What a server that does not start means for the gateway.
    pub on_start_failure: OnStartFailure,
    /// How calls are recorded.
    pub audit: AuditPolicy,
    /// What is read and kept at most.
    pub limits: EngineLimits,
    /// How stopping is bounded.
    pub stop: StopPolicy,
    /// The key that secrets are encrypted with; `data.key` of the data folder unless it is given.
    pub master_key: Option<MasterKey>,
    /// Folders beside the data folder that no server's process may see, such as that of other gateways.
    pub hidden_folders: Vec<PathBuf>,
    /// How often registries are asked whether images changed under their tags; never if nothing is said.
    pub image_checks: Option<Duration>,
    /// The authorization servers whose tokens are accepted beside keys of ours.
    pub issuers: Vec<IssuerConfig>,
    /// Where spans of calls are exported to; nowhere if nothing is said.
    pub traces: Option<TracesConfig>,
    /// How many log lines were dropped, as whoever writes them counts; shown among the metrics.
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
            dropped_log_lines: Arc::default(),
        }
    }
}

/// Whether servers start side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Startup {
    /// All at once; none waits for another.
    #[default]
    Parallel,
    /// In configuration order, each after the one before is ready or has failed.
    Sequential,
}

/// What a server that does not start means for the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStartFailure {
    /// It is shown, tried again, and hurts nobody else.
    #[default]
    Isolate,
    /// The gateway does not start.
    Abort,
}

/// What is read and kept at most.
#[derive(Debug, Clone, Copy)]
pub struct EngineLimits {
    /// The longest line from a server.
    pub line_bytes: usize,
    /// The deepest nesting of a message.
    pub depth: usize,
    /// The most tools of one server, and the most prompts, resources and templates.
    pub tools: usize,
    /// The most pages of one listing, unless there is much on them.
    pub pages: usize,
    /// The longest definition of a tool.
    pub definition_bytes: usize,
    /// How long a listing waits for servers that are not running yet.
    pub listing_wait: Duration,
    /// How long a server may leave its full input pipe unread.
    pub write: Duration,
    /// What answers may take together until their clients have read them.
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

/// How stopping is bounded.
#[derive(Debug, Clone, Copy)]
pub struct StopPolicy {
    /// How long calls in flight may go on.
    pub drain: Duration,
    /// When what is left is killed, counted from the beginning.
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
