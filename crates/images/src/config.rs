//! How an image is to be run, from its configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part of an image's configuration that is needed to run it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `Entrypoint`: the program that is always run.
    pub entrypoint: Vec<String>,
    /// `Cmd`: its arguments, or the program if there is no entry point.
    pub command: Vec<String>,
    /// `User`: a name or number, with a group after a colon; empty is root.
    pub user: String,
    /// `WorkingDir`: absolute, or empty for `/`.
    pub working_dir: String,
    /// `Env`: names and values, in the image's order.
    pub env: Vec<(String, String)>,
    /// `Volumes`: paths for persistent data.
    pub volumes: Vec<String>,
    /// `ExposedPorts`: such as `8080/tcp`.
    pub exposed_ports: Vec<String>,
    /// `StopSignal`: a name or a number.
    pub stop_signal: Option<String>,
    /// `Labels`.
    pub labels: BTreeMap<String, String>,
}
