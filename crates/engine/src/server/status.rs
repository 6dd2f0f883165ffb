//! What is observed of a server, as its runner publishes it.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::status::{Crash, State};
use gantry_sandbox::Report;
use tokio::time::Instant;

use crate::catalog::{ServerCatalog, Tool, UncheckedPart};
use crate::clock::unix_ms;

/// What is observed of a server.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Where it is in its life.
    pub state: State,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// Why it is there, in a sentence.
    pub reason: Option<String>,
    /// The same by the clock that nobody sets.
    pub(crate) since: Instant,
    /// When it is tried again.
    pub(crate) next_try: Option<Instant>,
    /// How often a start was begun, whatever came of it; never reset.
    pub(crate) starts: u64,
    /// How often it was started again since it was registered or restarted by hand.
    pub restarts: u32,
    /// The last time it ended by itself.
    pub last_crash: Option<Crash>,
    /// Since when it answers.
    pub(crate) ready_since: Option<Instant>,
    /// The process id of its command, as the host counts.
    pub pid: Option<u32>,
    /// The protocol version spoken with it.
    pub protocol_version: Option<String>,
    /// What it says of itself, raw JSON.
    pub server_info: Option<String>,
    /// What it wants clients to know.
    pub instructions: Option<String>,
    /// How many tools it offers.
    pub tools: usize,
    /// How many of them have parts that no value is checked against.
    pub unchecked_tools: usize,
    /// How many tools it listed that cannot be offered; `excluded` says why.
    pub refused_tools: usize,
    /// Parts of tools' schemas that no value is checked against, the first of them if there are many.
    pub unchecked: Vec<UncheckedPart>,
    /// How many prompts it offers.
    pub prompts: usize,
    /// How many resources and templates it offers.
    pub resources: usize,
    /// Tools that are not offered, and why.
    pub excluded: Vec<(String, String)>,
    /// Which isolation it was given, and which not.
    pub isolation: Option<Report>,
    /// It crashes again and again.
    pub health_warning: bool,
    /// How its messages travel: `stdio`, `sse` or `streamable-http`; nothing before that is known.
    pub transport: Option<&'static str>,
    /// How many connects to a remote server have failed in a row.
    pub failed_connects: u32,
    /// So many did that nobody tries before the next try is due.
    pub(crate) is_away: bool,
}

impl ServerStatus {
    pub(crate) fn new(state: State) -> Self {
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
            isolation: None,
            health_warning: false,
            transport: None,
            failed_connects: 0,
            is_away: false,
        }
    }

    /// Takes over what the server offers.
    pub(crate) fn count(&mut self, catalog: &ServerCatalog) {
        self.tools = catalog.tools.len();
        self.unchecked_tools = catalog.unchecked_tools;
        self.refused_tools = catalog.refused;
        self.unchecked.clone_from(&catalog.unchecked);
        self.prompts = catalog.prompts.len();
        self.resources = catalog.resources.len() + catalog.templates.len();
        self.excluded.clone_from(&catalog.excluded);
    }

    /// Adds the tools of which a pattern left values unjudged.
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

    /// Returns for how long it has answered, whatever became of the wall clock meanwhile.
    pub fn uptime(&self) -> Option<Duration> {
        self.ready_since.map(|since| since.elapsed())
    }

    /// Returns how long it is until the next try.
    pub fn next_try_in(&self) -> Option<Duration> {
        let at = self.next_try?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Enters a state; what belonged to the one before is cleared.
    pub(crate) fn enter(&mut self, state: State, reason: Option<String>) {
        self.state = state;
        if state == State::Starting {
            self.starts += 1;
        }
        self.since_ms = unix_ms();
        self.since = Instant::now();
        self.reason = reason;
        self.next_try = None;
        self.is_away = false;
        if !matches!(state, State::Ready | State::Unresponsive | State::Stopping) {
            self.ready_since = None;
            self.pid = None;
        }
    }
}
