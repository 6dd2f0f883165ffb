//! The view of what is wanted of a server.

use std::collections::BTreeMap;

use gantry_model::spec::{
    AuthKind, ProcessLaunch, RemoteLaunch, ServerSpec, WhenUnresponsive, period,
};
use serde::Serialize;
use utoipa::ToSchema;

/// What is wanted of a server; of its environment and its headers only the names, of its arguments
/// no secrets.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct SpecView {
    transport: &'static str,
    headers: Vec<String>,
    proxy: Option<String>,
    allow_private: bool,
    auth: Option<AuthView>,
    reconnect: Option<ReconnectView>,
    tools: BTreeMap<String, ToolSettingsView>,
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

/// How a remote server is signed in to; of its secret only whether there is one.
#[derive(Serialize, ToSchema)]
struct AuthView {
    kind: &'static str,
    client_id: Option<String>,
    has_secret: bool,
    issuer: Option<String>,
    client_metadata_url: Option<String>,
    scopes: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct ReconnectView {
    first: String,
    longest: String,
    failures: u32,
    away: String,
    steady: String,
}

/// What an administrator says of a tool.
#[derive(Serialize, ToSchema)]
struct ToolSettingsView {
    timeout: Option<String>,
    idempotent: bool,
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
        let (process, remote) = (spec.launch.process(), spec.launch.remote());
        let restart = &spec.life.restart;
        let reconnect = remote.map(|remote| &remote.reconnect);
        let tools = spec.tools.settings.iter();
        Self {
            transport: spec.launch.transport(),
            headers: remote
                .map_or_else(Vec::new, |remote| remote.headers.keys().cloned().collect()),
            proxy: remote.and_then(RemoteLaunch::shown_proxy),
            allow_private: remote.is_some_and(|remote| remote.allow_private),
            auth: remote.map(|remote| AuthView {
                kind: match remote.auth.kind {
                    AuthKind::Auto => "auto",
                    AuthKind::None => "none",
                    AuthKind::ClientCredentials => "client_credentials",
                },
                client_id: remote.auth.client_id.clone(),
                has_secret: remote.auth.client_secret.is_some(),
                issuer: remote.auth.issuer.clone(),
                client_metadata_url: remote.auth.client_metadata_url.clone(),
                scopes: remote.auth.scopes.clone(),
            }),
            reconnect: reconnect.map(|reconnect| ReconnectView {
                first: period::show(reconnect.first),
                longest: period::show(reconnect.longest),
                failures: reconnect.failures,
                away: period::show(reconnect.away),
                steady: period::show(reconnect.steady),
            }),
            tools: tools
                .map(|(name, tool)| {
                    let view = ToolSettingsView {
                        timeout: tool.timeout.map(period::show),
                        idempotent: tool.idempotent,
                    };
                    (name.clone(), view)
                })
                .collect(),
            args: process.map_or_else(Vec::new, ProcessLaunch::shown_args),
            env: process.map_or_else(Vec::new, |process| process.env.keys().cloned().collect()),
            cwd: process.and_then(ProcessLaunch::shown_cwd),
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
