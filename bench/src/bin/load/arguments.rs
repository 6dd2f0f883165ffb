//! What the generator is told: one argument of JSON, written by `bench/harness`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::workload::Workload;

/// One run.
#[derive(Deserialize)]
pub(crate) struct Arguments {
    pub(crate) target: Target,
    pub(crate) plan: Plan,
}

/// What is called, and for how long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    /// Connections with a session each; on a pipe, calls in flight.
    pub(crate) connections: usize,
    pub(crate) seconds: u64,
    /// How long each connection rests between two calls.
    #[serde(default)]
    pub(crate) rest_ms: u64,
    /// Make one call only, and try for that time.
    pub(crate) first: bool,
}

/// Where the calls go.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    Http(Endpoint),
    Pipe(Pipe),
}

/// Streamable HTTP at `/mcp`.
#[derive(Deserialize)]
pub(crate) struct Endpoint {
    /// The port on 127.0.0.1.
    pub(crate) port: u16,
    /// The ports of the connections, one each, where they are not all the same.
    #[serde(default)]
    pub(crate) ports: Vec<u16>,
    /// The file with the agent's key.
    pub(crate) key: Option<PathBuf>,
    /// The file with the administrator's key: read the audit when the calls are done.
    pub(crate) admin_key: Option<PathBuf>,
}

/// Children whose pipes are the wire; a list asks all of them, a call the first.
#[derive(Deserialize)]
pub(crate) struct Pipe {
    pub(crate) command: Vec<String>,
    pub(crate) children: usize,
}

impl Endpoint {
    /// Returns the port of a connection.
    pub(crate) fn port(&self, connection: usize) -> u16 {
        self.ports.get(connection).copied().unwrap_or(self.port)
    }
}

impl Plan {
    /// Returns how long a connection rests between two calls.
    pub(crate) fn rest(&self) -> Duration {
        Duration::from_millis(self.rest_ms)
    }

    /// Returns for how long calls are made.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
