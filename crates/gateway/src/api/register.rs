//! The body of a registration, and the spec it becomes.
//!
//! Flat and strict: an unknown field is an error, not a surprise later. Every default that differs
//! from the model's is here. Never reads a file or the environment. Entry point:
//! [`Register::into_spec`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use gantry_model::id::ServerName;
use gantry_model::spec::{
    Allowances, CallPolicy, Launch, LifePolicy, ProcessLaunch, Profile, ResourceLimits,
    RestartSpec, ServerSpec, Source, Start, ToolFilter, WhenUnresponsive, period, size,
};
use serde::{Deserialize, Deserializer};

/// What an administrator sends to register a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Register {
    name: ServerName,
    description: Option<String>,
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    profile: Profile,
    start: Option<Start>,
    concurrency: Option<u32>,
    queue: Option<u32>,
    timeout: Option<Period>,
    timeout_max: Option<Period>,
    late_grace: Option<Period>,
    pass_context: Option<bool>,
    handshake_timeout: Option<Period>,
    health_every: Option<Period>,
    health_timeout: Option<Period>,
    when_unresponsive: Option<WhenUnresponsive>,
    stop_grace: Option<Period>,
    #[serde(default)]
    restart: RestartSpec,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    tools: ToolFilter,
    #[serde(default)]
    allow_shell: bool,
    #[serde(default)]
    allow_env: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Period(#[serde(deserialize_with = "period::deserialize")] Duration);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    cpu: Option<f64>,
    memory: Option<Bytes>,
    pids: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Bytes(u64);

impl Register {
    /// Makes the spec of a server that was registered by API; hosted ones start with the gateway.
    pub(super) fn into_spec(self) -> ServerSpec {
        let start = self.start.unwrap_or(match self.profile {
            Profile::Hosted => Start::Eager, // row 1.8
            Profile::Local => Start::Lazy,   // row 0.10
        });
        let (calls, life) = (CallPolicy::default(), LifePolicy::default());
        let or =
            |given: Option<Period>, default: Duration| given.map_or(default, |period| period.0);
        ServerSpec {
            name: self.name,
            description: self.description,
            start,
            calls: CallPolicy {
                concurrency: self.concurrency,
                queue: self.queue.unwrap_or(calls.queue),
                timeout: or(self.timeout, calls.timeout),
                timeout_max: or(self.timeout_max, calls.timeout_max),
                late_grace: or(self.late_grace, calls.late_grace),
                pass_context: self.pass_context.unwrap_or(calls.pass_context),
            },
            life: LifePolicy {
                handshake: or(self.handshake_timeout, life.handshake),
                probe: life.probe,
                health_every: or(self.health_every, life.health_every),
                health_timeout: or(self.health_timeout, life.health_timeout),
                when_unresponsive: self.when_unresponsive,
                stop_grace: or(self.stop_grace, life.stop_grace),
                restart: self.restart,
            },
            launch: Launch::Process(ProcessLaunch {
                command: self.command,
                args: self.args,
                env: self.env,
                cwd: self.cwd,
                profile: self.profile,
                limits: ResourceLimits {
                    cpu: self.limits.cpu,
                    memory_bytes: self.limits.memory.map(|bytes| bytes.0),
                    pids: self.limits.pids,
                },
            }),
            source: Source::Api,
            tools: self.tools,
            allow: Allowances {
                shell: self.allow_shell,
                env: self.allow_env,
            },
            needs_approval: None,
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => size::parse(&text).map(Self).ok_or_else(|| {
                let text: String = text.chars().take(32).collect();
                let what = format!("`{text}` is no size; write for example `512M`, `1G` or bytes");
                serde::de::Error::custom(what)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(body: serde_json::Value) -> Result<ServerSpec, String> {
        let body: Register = serde_json::from_value(body).map_err(|error| error.to_string())?;
        Ok(body.into_spec())
    }

    // row 1.1, row 1.8
    #[test]
    fn a_short_body_gets_the_defaults_of_a_hosted_server() {
        let spec = spec(serde_json::json!({ "name": "a", "command": "npx" })).unwrap();
        assert_eq!(spec.start, Start::Eager);
        assert_eq!(spec.profile(), Profile::Hosted);
        assert_eq!(
            (spec.calls, spec.life),
            (CallPolicy::default(), LifePolicy::default())
        );
        assert_eq!(spec.source, Source::Api);
    }

    // row 0.10
    #[test]
    fn a_local_one_is_lazy_unless_it_says_otherwise() {
        let of = |start: Option<&str>| {
            let mut body = serde_json::json!({ "name": "a", "command": "x", "profile": "local" });
            if let Some(start) = start {
                body["start"] = start.into();
            }
            spec(body).unwrap().start
        };
        assert_eq!((of(None), of(Some("eager"))), (Start::Lazy, Start::Eager));
    }

    #[test]
    fn everything_that_can_be_said_arrives() {
        let body = serde_json::json!({
            "name": "a", "command": "x", "args": ["-v"], "env": { "A": "1" }, "cwd": "/tmp",
            "concurrency": 4, "queue": 9, "timeout": "2s", "timeout_max": 5000, "late_grace": "1s",
            "handshake_timeout": "9s", "health_every": "1m", "health_timeout": "3s",
            "when_unresponsive": "reconnect", "stop_grace": "4s",
            "restart": { "at_once": 2, "window": "6s", "ladder": ["1s", 1500], "reset_after": "1m" },
            "limits": { "cpu": 0.25, "memory": "64M", "pids": 32 },
        });
        let spec = spec(body).unwrap();
        let Launch::Process(process) = &spec.launch;
        assert_eq!(
            (process.limits.memory_bytes, process.limits.pids),
            (Some(64 << 20), Some(32))
        );
        assert_eq!(spec.calls.timeout_max, Duration::from_secs(5));
        assert_eq!(spec.life.restart.ladder[1], Duration::from_millis(1500));
        assert_eq!(
            spec.life.when_unresponsive,
            Some(WhenUnresponsive::Reconnect)
        );
    }

    #[test]
    fn a_mistake_is_named() {
        let unknown = spec(serde_json::json!({ "name": "a", "command": "x", "image": "y" }));
        assert!(unknown.unwrap_err().contains("unknown field `image`"));
        let size =
            serde_json::json!({ "name": "a", "command": "x", "limits": { "memory": "1 lot" } });
        assert!(spec(size).unwrap_err().contains("`1 lot` is no size"));
        assert!(spec(serde_json::json!({ "name": "a__b", "command": "x" })).is_err());
    }
}
