//! What an image says of how it wants to be run, as its configuration has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part of an image's configuration that matters to who runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `Entrypoint`: what is always run.
    pub entrypoint: Vec<String>,
    /// `Cmd`: its arguments, or what is run where there is no entry point.
    pub command: Vec<String>,
    /// `User`: a name or number, with a group after a colon; empty is root.
    pub user: String,
    /// `WorkingDir`: absolute, or empty for `/`.
    pub working_dir: String,
    /// `Env`: names and values, in the image's order.
    pub env: Vec<(String, String)>,
    /// `Volumes`: paths that want to be kept.
    pub volumes: Vec<String>,
    /// `ExposedPorts`: such as `8080/tcp`.
    pub exposed_ports: Vec<String>,
    /// `StopSignal`: a name or a number.
    pub stop_signal: Option<String>,
    /// `Labels`.
    pub labels: BTreeMap<String, String>,
}
