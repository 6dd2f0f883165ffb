//! The body of a registration, and the spec it becomes.
//!
//! Flat and strict: an unknown field is an error, not a surprise later. Every default that differs
//! from the model's, or from a file's, is here, and stands in docs/configuration.md («Over REST»). Never reads a file or the environment. Entry points:
//! [`Register::into_spec`], and [`Register::of`] for what a patch changes.

mod remote;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use gantry_model::id::ServerName;
use gantry_model::spec::{
    Allowances, CallPolicy, Launch, LifePolicy, ProcessLaunch, Profile, RemoteLaunch,
    ResourceLimits, RestartSpec, ServerSpec, Source, SpecError, Start, ToolFilter,
    WhenUnresponsive, Written,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::remote::{AuthBody, ReconnectBody, ToolBody, TransportName};
use super::form::{Period, Size};

/// What an administrator sends to register a server.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "files", "command": "npx",
    "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"], "limits": {"memory": "512M"}}))]
pub(super) struct Register {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 64, without `__`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9](_?[A-Za-z0-9.-]){0,31}$", example = "files")]
    pub(super) name: ServerName,
    /// What a person says of it.
    description: Option<String>,
    /// The program; no shell is involved. A server has this or a `url`.
    #[schema(min_length = 1, example = "npx")]
    command: Option<String>,
    /// Its arguments, one each.
    #[serde(default)]
    args: Vec<String>,
    /// Variables of its environment; their values are never shown.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The folder it runs in.
    #[schema(value_type = Option<String>)]
    cwd: Option<PathBuf>,
    /// How strictly it is held: `hosted`, if this is left out. In a configuration file, and with
    /// `gantry add`, it is `local`.
    #[serde(default)]
    #[schema(default = "hosted")]
    profile: ProfileName,
    /// Where a remote server is.
    url: Option<String>,
    /// How a remote server's messages travel.
    #[serde(default)]
    transport: TransportName,
    /// Headers for a remote server; their values are never shown.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The HTTP proxy on the way to a remote server, as a URL.
    proxy: Option<String>,
    /// Whether the name in `url` may stand for a private address.
    #[serde(default)]
    allow_private: bool,
    /// Certificates, in a PEM file, that are trusted beside the system's.
    #[schema(value_type = Option<String>)]
    ca_file: Option<PathBuf>,
    /// How a remote server is signed in to.
    #[serde(default)]
    auth: AuthBody,
    /// When a remote server is reached for again.
    #[serde(default)]
    reconnect: ReconnectBody,
    /// When it starts, if this is left out: `eager` for a hosted one, `lazy` for a local or remote one.
    /// In a configuration file, and with `gantry add`, it is `eager` for all.
    start: Option<StartName>,
    /// Calls in flight at once; 1 for hosted ones, 32 for local ones, if this is left out.
    #[schema(minimum = 1)]
    concurrency: Option<u32>,
    /// Calls that may wait.
    queue: Option<u32>,
    /// How long a call may take.
    timeout: Option<Period>,
    /// How long a call may take whatever its caller asks for.
    timeout_max: Option<Period>,
    /// How long a lane stays closed for a late answer.
    late_grace: Option<Period>,
    /// How long a client may take to answer what the server asks of it during a call.
    ask_timeout: Option<Period>,
    /// Whether user, session, run and trace are passed on to it.
    pass_context: Option<bool>,
    /// How long it may take to come up.
    handshake_timeout: Option<Period>,
    /// How often a quiet server is asked whether it is there.
    health_every: Option<Period>,
    /// How long it may take to answer that.
    health_timeout: Option<Period>,
    /// What follows when it does not.
    when_unresponsive: Option<UnresponsiveName>,
    /// Time between the wish to end and force.
    stop_grace: Option<Period>,
    /// When and how fast it is started again.
    #[serde(default)]
    restart: RestartBody,
    /// What it may use.
    #[serde(default)]
    limits: LimitsBody,
    /// Which of its tools are offered.
    #[serde(default)]
    tools: ServerTools,
    /// Whether its command may be a shell with a script.
    #[serde(default)]
    allow_shell: bool,
    /// Variables that it may be given though they make programs load other code.
    #[serde(default)]
    allow_env: Vec<String>,
}

/// How strictly a server is held.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ProfileName {
    /// As a program of the person who runs the gateway: network and home are its own; the status says
    /// so.
    Local,
    /// Sandboxed: no network, and of the files only the system's, read-only, and its working folder. A
    /// program or script that lies elsewhere cannot be read.
    #[default]
    Hosted,
}

/// When a server starts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StartName {
    /// With the gateway.
    Eager,
    /// When it is first needed.
    Lazy,
}

/// What follows when a server runs but does not answer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum UnresponsiveName {
    /// It is marked and left alone.
    Keep,
    /// It is ended and started again.
    Reconnect,
}

/// When and how fast a server is started again.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RestartBody {
    /// How many ends within the window are followed by a start at once.
    at_once: Option<u32>,
    /// The time within which ends are counted.
    window: Option<Period>,
    /// The waits after that, one after the other; the last repeats.
    ladder: Option<Vec<Period>>,
    /// How long a server must have been healthy for the count to start anew.
    reset_after: Option<Period>,
}

/// What a server may use; the profile's own limits, if they are left out.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LimitsBody {
    /// Processors, such as 0.5.
    #[schema(exclusive_minimum = 0)]
    cpu: Option<f64>,
    /// Memory.
    memory: Option<Size>,
    /// Processes and threads.
    #[schema(minimum = 1)]
    pids: Option<u64>,
}

/// Which of a server's tools are offered, to anybody.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
struct ServerTools {
    /// Only tools that one of these names; `*` stands for any run of characters.
    include: Option<Vec<String>>,
    /// None of these, whatever `include` says.
    exclude: Vec<String>,
    /// What is said of single tools, by their own names.
    settings: BTreeMap<String, ToolBody>,
}

impl Register {
    /// Makes the spec of a server that was registered by API; hosted ones start with the gateway.
    pub(super) fn into_spec(self) -> Result<ServerSpec, SpecError> {
        let profile = match self.profile {
            ProfileName::Local => Profile::Local,
            ProfileName::Hosted => Profile::Hosted,
        };
        let launch = match (self.command, self.url) {
            (Some(_), Some(_)) => return Err(SpecError::Both { server: self.name }),
            (None, Some(url)) => Launch::Remote(RemoteLaunch {
                transport: self.transport.into(),
                headers: self.headers,
                proxy: self.proxy,
                allow_private: self.allow_private,
                ca_file: self.ca_file,
                auth: self.auth.into_spec(),
                reconnect: self.reconnect.into_spec(),
                ..RemoteLaunch::new(url)
            }),
            (command, None) => Launch::Process(ProcessLaunch {
                command: command.unwrap_or_default(),
                args: self.args,
                env: self.env,
                cwd: self.cwd,
                profile,
                limits: ResourceLimits {
                    cpu: self.limits.cpu,
                    memory_bytes: self.limits.memory.map(|size| size.0),
                    pids: self.limits.pids,
                },
                written: Written::default(),
            }),
        };
        let start = match (self.start, launch.process().map(|process| process.profile)) {
            (Some(StartName::Eager), _) => Start::Eager,
            (Some(StartName::Lazy), _) => Start::Lazy,
            (None, Some(Profile::Hosted)) => Start::Eager, // row 1.8
            (None, Some(Profile::Local) | None) => Start::Lazy, // row 0.10
        };
        let (calls, life) = (CallPolicy::default(), LifePolicy::of(&launch));
        let settings = self.tools.settings.into_iter();
        let settings = settings.map(|(name, tool)| (name, tool.into_spec()));
        Ok(ServerSpec {
            name: self.name,
            description: self.description,
            start,
            calls: CallPolicy {
                concurrency: self.concurrency,
                queue: self.queue.unwrap_or(calls.queue),
                timeout: or(self.timeout, calls.timeout),
                timeout_max: or(self.timeout_max, calls.timeout_max),
                late_grace: or(self.late_grace, calls.late_grace),
                ask_timeout: or(self.ask_timeout, calls.ask_timeout),
                pass_context: self.pass_context.unwrap_or(calls.pass_context),
            },
            life: LifePolicy {
                handshake: or(self.handshake_timeout, life.handshake),
                probe: life.probe,
                health_every: or(self.health_every, life.health_every),
                health_timeout: or(self.health_timeout, life.health_timeout),
                when_unresponsive: self.when_unresponsive.map(|then| match then {
                    UnresponsiveName::Keep => WhenUnresponsive::Keep,
                    UnresponsiveName::Reconnect => WhenUnresponsive::Reconnect,
                }),
                stop_grace: or(self.stop_grace, life.stop_grace),
                restart: self.restart.into_spec(),
            },
            launch,
            source: Source::Api,
            tools: ToolFilter {
                include: self.tools.include,
                exclude: self.tools.exclude,
                settings: settings.collect(),
            },
            allow: Allowances {
                shell: self.allow_shell,
                env: self.allow_env,
            },
            needs_approval: None,
            off: None,
            file: None,
        })
    }

    /// Returns the body that makes a spec, its secrets included: for patching, never for showing.
    pub(super) fn of(spec: &ServerSpec) -> Self {
        let (process, remote) = (spec.launch.process(), spec.launch.remote());
        let (calls, life) = (&spec.calls, &spec.life);
        let some = |period: Duration| Some(Period(period));
        let limits = process.map(|process| process.limits).unwrap_or_default();
        let settings = spec.tools.settings.iter();
        let settings = settings.map(|(name, tool)| (name.clone(), ToolBody::of(tool)));
        Self {
            name: spec.name.clone(),
            description: spec.description.clone(),
            command: process.map(|process| process.command.clone()),
            args: process
                .map(|process| process.args.clone())
                .unwrap_or_default(),
            env: process
                .map(|process| process.env.clone())
                .unwrap_or_default(),
            cwd: process.and_then(|process| process.cwd.clone()),
            profile: match spec.profile() {
                Some(Profile::Local) => ProfileName::Local,
                Some(Profile::Hosted) | None => ProfileName::Hosted,
            },
            url: remote.map(|remote| remote.url.clone()),
            transport: remote
                .map(|remote| remote.transport.into())
                .unwrap_or_default(),
            headers: remote
                .map(|remote| remote.headers.clone())
                .unwrap_or_default(),
            proxy: remote.and_then(|remote| remote.proxy.clone()),
            allow_private: remote.is_some_and(|remote| remote.allow_private),
            ca_file: remote.and_then(|remote| remote.ca_file.clone()),
            auth: remote
                .map(|remote| AuthBody::of(&remote.auth))
                .unwrap_or_default(),
            reconnect: remote
                .map(|remote| ReconnectBody::of(&remote.reconnect))
                .unwrap_or_default(),
            start: Some(match spec.start {
                Start::Eager => StartName::Eager,
                Start::Lazy => StartName::Lazy,
            }),
            concurrency: calls.concurrency,
            queue: Some(calls.queue),
            timeout: some(calls.timeout),
            timeout_max: some(calls.timeout_max),
            late_grace: some(calls.late_grace),
            ask_timeout: some(calls.ask_timeout),
            pass_context: Some(calls.pass_context),
            handshake_timeout: some(life.handshake),
            health_every: some(life.health_every),
            health_timeout: some(life.health_timeout),
            when_unresponsive: life.when_unresponsive.map(|then| match then {
                WhenUnresponsive::Keep => UnresponsiveName::Keep,
                WhenUnresponsive::Reconnect => UnresponsiveName::Reconnect,
            }),
            stop_grace: some(life.stop_grace),
            restart: RestartBody {
                at_once: Some(life.restart.at_once),
                window: some(life.restart.window),
                ladder: Some(life.restart.ladder.iter().copied().map(Period).collect()),
                reset_after: some(life.restart.reset_after),
            },
            limits: LimitsBody {
                cpu: limits.cpu,
                memory: limits.memory_bytes.map(Size),
                pids: limits.pids,
            },
            tools: ServerTools {
                include: spec.tools.include.clone(),
                exclude: spec.tools.exclude.clone(),
                settings: settings.collect(),
            },
            allow_shell: spec.allow.shell,
            allow_env: spec.allow.env.clone(),
        }
    }
}

impl RestartBody {
    fn into_spec(self) -> RestartSpec {
        let default = RestartSpec::default();
        let ladder = self
            .ladder
            .map(|ladder| ladder.into_iter().map(|period| period.0).collect());
        RestartSpec {
            at_once: self.at_once.unwrap_or(default.at_once),
            window: or(self.window, default.window),
            ladder: ladder.unwrap_or(default.ladder),
            reset_after: or(self.reset_after, default.reset_after),
        }
    }
}

fn or(given: Option<Period>, default: Duration) -> Duration {
    given.map_or(default, |period| period.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(body: serde_json::Value) -> Result<ServerSpec, String> {
        let body: Register = serde_json::from_value(body).map_err(|error| error.to_string())?;
        body.into_spec().map_err(|error| error.to_string())
    }

    // row 1.1, row 1.8
    #[test]
    fn a_short_body_gets_the_defaults_of_a_hosted_server() {
        let spec = spec(serde_json::json!({ "name": "a", "command": "npx" })).unwrap();
        assert_eq!(spec.start, Start::Eager);
        assert_eq!(spec.profile(), Some(Profile::Hosted));
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
            "concurrency": 4, "queue": 9, "timeout": "2s", "timeout_max": 5000, "late_grace": "1s", "ask_timeout": "1m",
            "handshake_timeout": "9s", "health_every": "1m", "health_timeout": "3s",
            "when_unresponsive": "reconnect", "stop_grace": "4s",
            "restart": { "at_once": 2, "window": "6s", "ladder": ["1s", 1500], "reset_after": "1m" },
            "limits": { "cpu": 0.25, "memory": "64M", "pids": 32 },
        });
        let spec = spec(body).unwrap();
        let process = spec.launch.process().unwrap();
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

    // What a patch starts from says the same as the spec that it is of.
    #[test]
    fn a_spec_survives_its_body() {
        let body = serde_json::json!({
            "name": "a", "command": "x", "args": ["-v"], "env": { "A": "1" }, "cwd": "/tmp",
            "profile": "local", "start": "eager", "concurrency": 4, "timeout": "2s",
            "when_unresponsive": "reconnect", "restart": { "at_once": 2, "ladder": ["1s", 1500] },
            "limits": { "cpu": 0.25, "memory": "64M" }, "pass_context": false,
        });
        let first = spec(body).unwrap();
        let again = serde_json::to_value(Register::of(&first)).unwrap();
        assert_eq!(spec(again).unwrap(), first);
    }

    // rows 0.6, 0.10, 3.1, 3.4
    #[test]
    fn a_remote_server_survives_its_body() {
        let body = serde_json::json!({
            "name": "far", "url": "https://example.com/sse", "transport": "sse",
            "headers": { "Authorization": "Bearer x" }, "proxy": "http://proxy:3128",
            "allow_private": true, "ca_file": "/etc/ca.pem", "timeout": "9s",
            "reconnect": { "first": "10ms", "away": "2s", "failures": 2 },
            "tools": { "settings": { "search": { "timeout": "5s", "idempotent": true } } },
        });
        let first = spec(body).unwrap();
        assert_eq!(first.start, Start::Lazy);
        assert!(first.tools.settings["search"].idempotent);
        let again = serde_json::to_value(Register::of(&first)).unwrap();
        assert_eq!(spec(again).unwrap(), first);
        let both = serde_json::json!({ "name": "a", "command": "x", "url": "https://x" });
        assert!(spec(both).unwrap_err().contains("exclude each other"));
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
