//! The observed status of a server, as its runner publishes it.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::pin::Finding;
use gantry_model::status::{Crash, ServerState};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::catalog::{ServerCatalog, UncheckedPart};
use crate::clock::unix_ms;
use crate::driver::{HostingReport, IsolationReport};
use crate::tool::Tool;

/// The observed status of a server.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its lifecycle state.
    pub state: ServerState,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// Why it is in this state, in a sentence.
    pub reason: Option<String>,
    /// The same by the monotonic clock.
    pub(crate) since: Instant,
    /// When the next attempt is due.
    pub(crate) next_try: Option<Instant>,
    /// How often it entered the state `starting`; never reset.
    pub(crate) starts: u64,
    /// Restarts since it was registered or restarted manually.
    pub restarts: u32,
    /// Its last failure.
    pub last_crash: Option<Crash>,
    /// Since when it is ready.
    pub(crate) ready_since: Option<Instant>,
    /// The process id of its command on this host.
    pub pid: Option<u32>,
    /// The negotiated protocol version.
    pub protocol_version: Option<String>,
    /// Its `serverInfo`, raw JSON.
    pub server_info: Option<String>,
    /// Its `instructions`.
    pub instructions: Option<String>,
    /// How many tools it offers.
    pub tools: usize,
    /// How many of them have schema parts that are not checked.
    pub unchecked_tools: usize,
    /// How many listed tools are not offered; `excluded` says why.
    pub refused_tools: usize,
    /// The first schema parts that are not checked.
    pub unchecked: Vec<UncheckedPart>,
    /// How many prompts it offers.
    pub prompts: usize,
    /// How many resources and templates it offers.
    pub resources: usize,
    /// Tools that are not offered, and why.
    pub excluded: Vec<(String, String)>,
    /// What in its texts a person should look at, with the name of what it was found in.
    pub findings: Vec<(String, Finding)>,
    /// What isolates it, and which protections are enforced.
    pub isolation: Option<IsolationReport>,
    /// The image, limits and network of a hosted server.
    pub hosting: Option<Arc<HostingReport>>,
    /// Its last starts, and how they ended.
    pub attempts: Attempts,
    /// The generation of the instance; increases with every start.
    pub generation: u64,
    /// Whether it crashes repeatedly.
    pub health_warning: bool,
    /// `stdio`, `sse` or `streamable-http`, once known.
    pub transport: Option<&'static str>,
    /// Failed connections to a remote server in a row.
    pub failed_connects: u32,
    /// Whether the circuit is open: no connection before the next attempt is due.
    pub(crate) is_away: bool,
}

impl ServerStatus {
    pub(crate) fn new(state: ServerState) -> Self {
        Self {
            state,
            since_ms: unix_ms(),
            since: Instant::now(),
            reason: None,
            next_try: None,
            starts: 0,
            restarts: 0,
            last_crash: None,
            ready_since: None,
            pid: None,
            protocol_version: None,
            server_info: None,
            instructions: None,
            tools: 0,
            unchecked_tools: 0,
            refused_tools: 0,
            unchecked: Vec::new(),
            prompts: 0,
            resources: 0,
            excluded: Vec::new(),
            findings: Vec::new(),
            isolation: None,
            hosting: None,
            attempts: Attempts::default(),
            generation: 0,
            health_warning: false,
            transport: None,
            failed_connects: 0,
            is_away: false,
        }
    }

    /// Sets the counts of a catalog.
    pub(crate) fn count(&mut self, catalog: &ServerCatalog) {
        self.tools = catalog.tools.len();
        self.unchecked_tools = catalog.unchecked_tools;
        self.refused_tools = catalog.refused;
        self.unchecked.clone_from(&catalog.unchecked);
        self.prompts = catalog.prompts.len();
        self.resources = catalog.resources.len() + catalog.templates.len();
        self.excluded.clone_from(&catalog.excluded);
        self.findings.clone_from(&catalog.findings);
    }

    /// Adds the tools whose patterns left values unchecked.
    pub(crate) fn count_unjudged(&mut self, tools: &[Arc<Tool>]) {
        for tool in tools {
            let mut parts = tool.unjudged().peekable();
            if parts.peek().is_some() && tool.unchecked().is_empty() {
                self.unchecked_tools += 1;
            }
            self.unchecked.extend(parts.map(|part| UncheckedPart {
                tool: tool.name.escape_debug().to_string(),
                part: part.part,
                reason: part.reason,
            }));
        }
    }

    /// Returns for how long it has been ready, by the monotonic clock.
    pub fn uptime(&self) -> Option<Duration> {
        self.ready_since.map(|since| since.elapsed())
    }

    /// Returns the time until the next attempt.
    pub fn next_try_in(&self) -> Option<Duration> {
        let at = self.next_try?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Enters a state; clears the fields of the previous one.
    pub(crate) fn enter(&mut self, state: ServerState, reason: Option<String>) {
        self.state = state;
        self.since_ms = unix_ms();
        if state == ServerState::Starting {
            self.starts += 1;
            self.attempts.begin(self.starts, self.since_ms);
        }
        self.since = Instant::now();
        self.reason = reason;
        self.next_try = None;
        self.is_away = false;
        if !matches!(
            state,
            ServerState::Ready | ServerState::Unresponsive | ServerState::Stopping
        ) {
            self.ready_since = None;
            self.pid = None;
        }
    }
}
