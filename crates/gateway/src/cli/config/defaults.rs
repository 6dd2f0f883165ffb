//! What holds for a server where its entry says nothing, key by key as an entry would write it.
//!
//! Reads the spec that the entry became, so that what depends on the profile or on the kind of server
//! is told as it is. Entry point: [`of`].

use std::time::Duration;

use gantry_model::spec::{
    AuthKind, CallPolicy, Launch, LifePolicy, ProcessLaunch, Profile, RemoteLaunch, RestartSpec,
    ServerSpec, Start, WhenUnresponsive, period,
};

use super::super::format::bytes;

/// A key that may be left out, and what holds then.
pub(super) struct Unsaid {
    pub(super) key: &'static str,
    /// Other words that say the same in an entry.
    pub(super) also: &'static [&'static str],
    pub(super) value: String,
}

const NONE: &str = "none";

fn key(key: &'static str, value: impl Into<String>) -> Unsaid {
    alias(key, &[], value)
}

fn alias(key: &'static str, also: &'static [&'static str], value: impl Into<String>) -> Unsaid {
    let value = value.into();
    Unsaid { key, also, value }
}

/// Returns every key that an entry of this kind may leave out.
pub(super) fn of(spec: &ServerSpec) -> Vec<Unsaid> {
    let start = match spec.start {
        Start::Eager => "eager",
        Start::Lazy => "lazy",
    };
    let profile = spec.profile().map_or("remote", Profile::as_str);
    let mut defaults = match &spec.launch {
        Launch::Process(process) => of_process(process),
        Launch::Remote(remote) => of_remote(remote),
    };
    defaults.extend([key("start", start), key("profile", profile)]);
    defaults.extend(of_calls(spec, &spec.calls));
    defaults.extend(of_life(spec, &spec.life));
    if spec.launch.process().is_some() {
        defaults.extend(of_restarts(&spec.life.restart));
    }
    defaults.extend([key("tools.include", "all"), key("tools.exclude", NONE)]);
    if spec.tools.settings.is_empty() {
        defaults.push(key("tools.settings", NONE));
    }
    defaults
}

fn of_process(process: &ProcessLaunch) -> Vec<Unsaid> {
    let cwd = process.cwd.as_ref().map(|cwd| cwd.display().to_string());
    let limits = process.profile.limits();
    let bound = |bound: Option<String>| bound.unwrap_or_else(|| "unlimited".to_owned());
    vec![
        alias("type", &["transport"], "stdio"),
        key(
            "cwd",
            cwd.unwrap_or_else(|| "a folder of its own in the data folder".to_owned()),
        ),
        key(
            "limits.cpu",
            bound(limits.cpu.map(|cores| cores.to_string())),
        ),
        alias(
            "limits.memory",
            &["limits.memory_bytes"],
            bound(limits.memory_bytes.map(bytes)),
        ),
        key(
            "limits.pids",
            bound(limits.pids.map(|count| count.to_string())),
        ),
        key("allow_shell", "false"),
        key("allow_env", NONE),
    ]
}

fn of_remote(remote: &RemoteLaunch) -> Vec<Unsaid> {
    let auth = match remote.auth.kind {
        AuthKind::Auto => "auto",
        AuthKind::None => "none",
        AuthKind::ClientCredentials => "client_credentials",
    };
    let reconnect = &remote.reconnect;
    vec![
        alias("type", &["transport"], remote.transport.as_str()),
        key("proxy", NONE),
        key("allow_private", remote.allow_private.to_string()),
        key("ca_file", NONE),
        key("auth.kind", auth),
        key("reconnect.first", period::show(reconnect.first)),
        key("reconnect.longest", period::show(reconnect.longest)),
        key("reconnect.failures", reconnect.failures.to_string()),
        key("reconnect.away", period::show(reconnect.away)),
        key("reconnect.steady", period::show(reconnect.steady)),
    ]
}

fn of_calls(spec: &ServerSpec, calls: &CallPolicy) -> Vec<Unsaid> {
    vec![
        alias(
            "calls.concurrency",
            &["concurrency"],
            spec.concurrency().to_string(),
        ),
        key("calls.queue", calls.queue.to_string()),
        alias("calls.timeout", &["timeout"], period::show(calls.timeout)),
        key("calls.timeout_max", period::show(calls.timeout_max)),
        key("calls.late_grace", period::show(calls.late_grace)),
        key("calls.ask_timeout", period::show(calls.ask_timeout)),
        key("calls.pass_context", calls.pass_context.to_string()),
    ]
}

fn of_life(spec: &ServerSpec, life: &LifePolicy) -> Vec<Unsaid> {
    let unresponsive = match spec.when_unresponsive() {
        WhenUnresponsive::Keep => "keep",
        WhenUnresponsive::Reconnect => "reconnect",
    };
    let time = |time: Duration| period::show(time);
    vec![
        key("life.handshake", time(life.handshake)),
        key("life.probe", time(life.probe)),
        key("life.health_every", time(life.health_every)),
        key("life.health_timeout", time(life.health_timeout)),
        key("life.when_unresponsive", unresponsive),
        key("life.stop_grace", time(life.stop_grace)),
    ]
}

/// A process is started again by these; a remote server is reached again by `reconnect`.
fn of_restarts(restart: &RestartSpec) -> Vec<Unsaid> {
    let ladder = restart.ladder.iter().copied().map(period::show);
    let ladder: Vec<String> = ladder.collect();
    vec![
        key("life.restart.at_once", restart.at_once.to_string()),
        key("life.restart.window", period::show(restart.window)),
        key("life.restart.ladder", ladder.join(", ")),
        key(
            "life.restart.reset_after",
            period::show(restart.reset_after),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use gantry_model::spec::RemoteLaunch;

    use super::*;
    use crate::config::entry::{CALLS, KEYS, LIFE, LIMITS, RESTART, TOOLS};

    /// What an entry must say, or what there is nothing of until it says so.
    const WITHOUT: [&str; 12] = [
        "command",
        "args",
        "env",
        "url",
        "httpUrl",
        "serverUrl",
        "headers",
        "description",
        "disabled",
        "enabled",
        "inputs",
        "$schema",
    ];

    #[test]
    fn every_key_of_an_entry_is_explained() {
        let process = ProcessLaunch {
            command: "x".to_owned(),
            args: Vec::new(),
            env: std::collections::BTreeMap::new(),
            cwd: None,
            profile: Profile::Hosted,
            limits: gantry_model::spec::ResourceLimits::default(),
            written: gantry_model::spec::Written::default(),
        };
        let name = || "x".parse().unwrap();
        let near = of(&ServerSpec::process(name(), process));
        let far = of(&ServerSpec::remote(
            name(),
            RemoteLaunch::new("https://example.com".to_owned()),
        ));
        let explained: Vec<&str> = near
            .iter()
            .chain(&far)
            .flat_map(|unsaid| unsaid.also.iter().copied().chain([unsaid.key]))
            .collect();
        let below = |table: &str, keys: &[&str]| {
            let keys = keys.iter().map(|key| format!("{table}.{key}"));
            keys.collect::<Vec<String>>()
        };
        let top = KEYS.iter().filter(|key| !WITHOUT.contains(key));
        let mut wanted: Vec<String> = top.map(|key| (*key).to_owned()).collect();
        wanted.extend(below("limits", &LIMITS));
        wanted.extend(below("calls", &CALLS));
        wanted.extend(below("life", &LIFE));
        wanted.extend(below("life.restart", &RESTART));
        wanted.extend(below("tools", &TOOLS));
        for key in wanted {
            let part = format!("{key}.");
            let is_there = explained
                .iter()
                .any(|row| *row == key || row.starts_with(&part));
            assert!(is_there, "`{key}` is not explained");
        }
    }
}
