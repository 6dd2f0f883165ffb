//! The view of what is wanted of a server.

use gantry_model::spec::{Launch, ServerSpec, WhenUnresponsive, period};
use serde::Serialize;
use utoipa::ToSchema;

/// What is wanted of a server; of its environment only the names.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct SpecView {
    args: Vec<String>,
    env: Vec<String>,
    cwd: Option<String>,
    concurrency: u32,
    timeout: String,
    timeout_max: String,
    late_grace: String,
    ask_timeout: String,
    handshake_timeout: String,
    health_every: String,
    health_timeout: String,
    when_unresponsive: &'static str,
    stop_grace: String,
    restart: RestartView,
}

#[derive(Serialize, ToSchema)]
struct RestartView {
    at_once: u32,
    window: String,
    ladder: Vec<String>,
    reset_after: String,
}

impl SpecView {
    /// Shows what is in force, defaults included.
    pub(in crate::api) fn of(spec: &ServerSpec) -> Self {
        let Launch::Process(process) = &spec.launch;
        let restart = &spec.life.restart;
        Self {
            args: process.args.clone(),
            env: process.env.keys().cloned().collect(),
            cwd: process.cwd.as_ref().map(|cwd| cwd.display().to_string()),
            concurrency: spec.concurrency(),
            timeout: period::show(spec.calls.timeout),
            timeout_max: period::show(spec.calls.timeout_max),
            late_grace: period::show(spec.calls.late_grace),
            ask_timeout: period::show(spec.calls.ask_timeout),
            handshake_timeout: period::show(spec.life.handshake),
            health_every: period::show(spec.life.health_every),
            health_timeout: period::show(spec.life.health_timeout),
            when_unresponsive: match spec.when_unresponsive() {
                WhenUnresponsive::Keep => "keep",
                WhenUnresponsive::Reconnect => "reconnect",
            },
            stop_grace: period::show(spec.life.stop_grace),
            restart: RestartView {
                at_once: restart.at_once,
                window: period::show(restart.window),
                ladder: restart.ladder.iter().copied().map(period::show).collect(),
                reset_after: period::show(restart.reset_after),
            },
        }
    }
}
