//! What a person wants of a server: its *spec*. Stored as JSON in `kb.project_mcp_servers.config`.
//!
//! Every default is here, with the place in the design that names it, so that the status can show
//! what is in force. What was observed is in `status`, never here.

pub mod period;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::ServerName;
use crate::restart::{PolicyError, RestartPolicy};

/// Everything that is wanted of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Its name in the project.
    pub name: ServerName,
    /// What it is for, in a person's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How it comes to life.
    pub launch: Launch,
    /// When it comes to life.
    #[serde(default)]
    pub start: Start,
    /// How calls to it are let through and bounded.
    #[serde(default)]
    pub calls: CallPolicy,
    /// How its life is watched and bounded.
    #[serde(default)]
    pub life: LifePolicy,
    /// Where the spec came from, which decides what it may ask for.
    #[serde(default)]
    pub source: Source,
}

/// How a server comes to life. Containers and remote servers will stand beside processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launch {
    /// A command on this machine that talks over its stdin and stdout.
    Process(ProcessLaunch),
}

/// A command and what it is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessLaunch {
    /// The program, looked up on the gateway's `PATH` unless it contains a slash.
    pub command: String,
    /// Its arguments, passed as they are; no shell is involved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables on top of the short documented list that every child gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working folder; a folder of its own under the data folder if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// How strictly it is held.
    #[serde(default)]
    pub profile: Profile,
    /// What it may use at most; the profile's own limits where nothing is said.
    #[serde(default)]
    pub limits: ResourceLimits,
}

/// How strictly a process is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// A server from a person's own files: network and home allowed, and the status says so.
    Local,
    /// A server hosted for others: strict.
    #[default]
    Hosted,
}

/// Limits of one server; `None` leaves the profile's default.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimits {
    /// Processor cores, such as `0.5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

/// When a server comes to life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With the gateway.
    Eager,
    /// With the first call or listing that needs it.
    #[default]
    Lazy,
}

/// Where a spec came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A configuration file named by the person who runs the gateway.
    File,
    /// The admin API.
    #[default]
    Api,
    /// Gantry itself: the example server.
    Builtin,
}

/// How calls to a server are let through and bounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallPolicy {
    /// Calls in flight at once; 1 for hosted and 32 for other stdio servers if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Calls that may wait for a lane before the next is refused as busy.
    pub queue: u32,
    /// Longest silence of a call before it ends as timed out; progress starts it anew.
    #[serde(with = "period")]
    pub timeout: Duration,
    /// Longest life of a call, whatever progress it reports.
    #[serde(with = "period")]
    pub timeout_max: Duration,
    /// With one lane: how long it stays closed after a timeout, for the late answer.
    #[serde(with = "period")]
    pub late_grace: Duration,
    /// Whether user, session, run, step and trace are passed on in `_meta`.
    pub pass_context: bool,
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self {
            concurrency: None,
            queue: 256,
            timeout: Duration::from_secs(30),
            timeout_max: Duration::from_secs(600),
            late_grace: Duration::from_secs(10),
            pass_context: true,
        }
    }
}

/// How a server's life is watched and bounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifePolicy {
    /// Longest wait for `initialize` and the first listing: a first `npx` downloads.
    #[serde(with = "period")]
    pub handshake: Duration,
    /// How long `server/discover` may stay unanswered before `initialize` follows it.
    #[serde(with = "period")]
    pub probe: Duration,
    /// How often a quiet server is asked whether it is there.
    #[serde(with = "period")]
    pub health_every: Duration,
    /// How long it may take to answer that.
    #[serde(with = "period")]
    pub health_timeout: Duration,
    /// What follows when it does not answer; hosted servers are kept, others reconnected, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_unresponsive: Option<WhenUnresponsive>,
    /// Time between SIGTERM and SIGKILL when it is stopped or restarted.
    #[serde(with = "period")]
    pub stop_grace: Duration,
    /// When and how fast it is started again.
    pub restart: RestartSpec,
}

/// When and how fast a server is started again, as stored; `policy` turns it into decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestartSpec {
    /// How many ends within the window are followed by a start at once.
    pub at_once: u32,
    /// The time within which ends are counted.
    #[serde(with = "period")]
    pub window: Duration,
    /// The waits after that, one after the other; the last repeats.
    #[serde(with = "period::list")]
    pub ladder: Vec<Duration>,
    /// How long a server must have been healthy for the count to start anew.
    #[serde(with = "period")]
    pub reset_after: Duration,
}

impl Default for RestartSpec {
    fn default() -> Self {
        Self {
            at_once: 3,
            window: Duration::from_secs(60),
            ladder: [5, 15, 45, 120, 300].map(Duration::from_secs).to_vec(),
            reset_after: Duration::from_secs(600),
        }
    }
}

impl RestartSpec {
    /// Returns the policy that decides by these numbers.
    pub fn policy(&self) -> Result<RestartPolicy, PolicyError> {
        RestartPolicy::new(
            self.at_once,
            self.window,
            self.ladder.clone(),
            self.reset_after,
            0.1,
        )
    }
}

impl Default for LifePolicy {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(60),
            probe: Duration::from_millis(1500),
            health_every: Duration::from_secs(30),
            health_timeout: Duration::from_secs(10),
            when_unresponsive: None,
            stop_grace: Duration::from_secs(10),
            restart: RestartSpec::default(),
        }
    }
}

/// What follows when a running server does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUnresponsive {
    /// It is marked and left alone: it may be doing long work.
    Keep,
    /// It is marked, ended and started again.
    Reconnect,
}

impl ServerSpec {
    /// Makes a spec of a command with every default of its profile.
    pub fn process(name: ServerName, launch: ProcessLaunch) -> Self {
        Self {
            name,
            description: None,
            launch: Launch::Process(launch),
            start: Start::default(),
            calls: CallPolicy::default(),
            life: LifePolicy::default(),
            source: Source::default(),
        }
    }

    /// Returns how strictly the server is held.
    pub fn profile(&self) -> Profile {
        match &self.launch {
            Launch::Process(process) => process.profile,
        }
    }

    /// Returns how many calls may be in flight: as set, else 1 for hosted servers and 32 for others.
    pub fn concurrency(&self) -> u32 {
        let default = match self.profile() {
            Profile::Hosted => 1,
            Profile::Local => 32,
        };
        self.calls.concurrency.unwrap_or(default).max(1)
    }

    /// Returns what follows when the server does not answer: as set, else by its profile.
    pub fn when_unresponsive(&self) -> WhenUnresponsive {
        self.life.when_unresponsive.unwrap_or(match self.profile() {
            Profile::Hosted => WhenUnresponsive::Keep,
            Profile::Local => WhenUnresponsive::Reconnect,
        })
    }

    /// Tells two specs apart for everything that matters to a running server or a remembered catalog.
    pub fn fingerprint(&self) -> String {
        use sha2::{Digest, Sha256};
        let text = serde_json::to_vec(&(&self.name, &self.launch, &self.calls, &self.life))
            .expect("a spec is always expressible as JSON");
        Sha256::digest(&text)[..16]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }
}

/// Why a spec cannot be taken as it is.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// No command, or one with a NUL byte.
    #[error("server `{server}`: `command` must name a program")]
    Command {
        /// Whose spec it is.
        server: ServerName,
    },
    /// A shell line where a program and its arguments are expected.
    #[error("server `{server}`: `command` is `{command}`, which is a shell line")]
    Shell {
        /// Whose spec it is.
        server: ServerName,
        /// The command as given.
        command: String,
    },
    /// A variable that changes how programs load or run code.
    #[error("server `{server}`: variable `{variable}` is not allowed in `env`")]
    Variable {
        /// Whose spec it is.
        server: ServerName,
        /// Its name.
        variable: String,
    },
    /// A text with a NUL byte, which no program can be given.
    #[error("server `{server}`: {place} contains a NUL byte")]
    Nul {
        /// Whose spec it is.
        server: ServerName,
        /// Where it stands.
        place: String,
    },
    /// A number outside its range.
    #[error("server `{server}`: `{field}` is {given}, allowed is {range}")]
    Range {
        /// Whose spec it is.
        server: ServerName,
        /// Which field.
        field: &'static str,
        /// What was given.
        given: String,
        /// What is allowed.
        range: &'static str,
    },
    /// A restart policy that contradicts itself.
    #[error("server `{server}`: `life.restart` cannot be used")]
    Restart {
        /// Whose spec it is.
        server: ServerName,
        /// What is wrong with it.
        #[source]
        source: PolicyError,
    },
}

/// Variables that make a program load or run other code than its own. fault G4
const LOADER_VARIABLES: [&str; 9] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "NODE_OPTIONS",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "BASH_ENV",
    "GCONV_PATH",
];

impl ServerSpec {
    /// Checks what the types cannot say.
    pub fn check(&self) -> Result<(), SpecError> {
        let server = || self.name.clone();
        let Launch::Process(process) = &self.launch;
        if process.command.trim().is_empty() {
            return Err(SpecError::Command { server: server() });
        }
        if process
            .command
            .contains([' ', ';', '|', '&', '$', '`', '>', '<'])
            && !process.command.contains('/')
        {
            return Err(SpecError::Shell {
                server: server(),
                command: process.command.clone(),
            });
        }
        let nul = |place: String| {
            Err(SpecError::Nul {
                server: server(),
                place,
            })
        };
        if process.command.contains('\0') {
            return nul("`command`".into());
        }
        if let Some(index) = process.args.iter().position(|a| a.contains('\0')) {
            return nul(format!("argument {}", index + 1));
        }
        for (name, value) in &process.env {
            if name.is_empty()
                || name.contains(['=', '\0'])
                || LOADER_VARIABLES.contains(&name.as_str())
            {
                return Err(SpecError::Variable {
                    server: server(),
                    variable: name.clone(),
                });
            }
            if value.contains('\0') {
                return nul(format!("variable `{name}`"));
            }
        }
        let restart = self.life.restart.policy();
        restart.map_err(|source| SpecError::Restart {
            server: server(),
            source,
        })?;
        self.check_ranges()
    }

    fn check_ranges(&self) -> Result<(), SpecError> {
        let Launch::Process(process) = &self.launch;
        let out = |field, given: String, range| {
            Err(SpecError::Range {
                server: self.name.clone(),
                field,
                given,
                range,
            })
        };
        let limits = &process.limits;
        if let Some(cpu) = limits.cpu
            && !(cpu.is_finite() && (0.01..=1024.0).contains(&cpu))
        {
            return out("limits.cpu", cpu.to_string(), "0.01 to 1024 cores");
        }
        if let Some(bytes) = limits.memory_bytes
            && !(4 << 20..=1 << 46).contains(&bytes)
        {
            return out("limits.memory_bytes", bytes.to_string(), "4 MiB to 64 TiB");
        }
        if let Some(pids) = limits.pids
            && !(4..=1_000_000).contains(&pids)
        {
            return out("limits.pids", pids.to_string(), "4 to 1,000,000");
        }
        if let Some(lanes) = self.calls.concurrency
            && !(1..=1024).contains(&lanes)
        {
            return out("calls.concurrency", lanes.to_string(), "1 to 1024");
        }
        if !(1..=65_536).contains(&self.calls.queue) {
            return out("calls.queue", self.calls.queue.to_string(), "1 to 65,536");
        }
        let periods = [
            ("calls.timeout", self.calls.timeout),
            ("calls.timeout_max", self.calls.timeout_max),
            ("life.handshake", self.life.handshake),
            ("life.health_every", self.life.health_every),
            ("life.health_timeout", self.life.health_timeout),
        ];
        const DAY: Duration = Duration::from_secs(86_400);
        for (field, given) in periods {
            if !(Duration::from_millis(1)..=DAY).contains(&given) {
                return out(field, period::show(given), "1ms to 24h");
            }
        }
        // None at all is a wish of its own for these.
        let graces = [
            ("calls.late_grace", self.calls.late_grace),
            ("life.probe", self.life.probe),
            ("life.stop_grace", self.life.stop_grace),
        ];
        for (field, given) in graces {
            if given > DAY {
                return out(field, period::show(given), "0s to 24h");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(command: &str) -> ServerSpec {
        let launch = serde_json::from_value(serde_json::json!({ "command": command })).unwrap();
        ServerSpec::process("a".parse().unwrap(), launch)
    }

    #[test]
    fn the_defaults_are_those_of_the_design() {
        let spec = spec("x");
        assert_eq!(spec.calls.timeout, Duration::from_secs(30)); // row 1.6
        assert_eq!(spec.calls.timeout_max, Duration::from_secs(600)); // fault S12
        assert_eq!(spec.life.handshake, Duration::from_secs(60));
        assert_eq!(spec.concurrency(), 1); // row 1.7
        assert_eq!(spec.when_unresponsive(), WhenUnresponsive::Keep); // row 1.15
    }

    #[test]
    fn what_types_cannot_say_is_checked() {
        assert!(spec("npx").check().is_ok());
        assert!(matches!(spec("").check(), Err(SpecError::Command { .. })));
        assert!(matches!(
            spec("sh -c x").check(),
            Err(SpecError::Shell { .. })
        )); // fault G3
        let mut preload = spec("x");
        let Launch::Process(process) = &mut preload.launch;
        process.env.insert("LD_PRELOAD".into(), "/x.so".into());
        assert!(matches!(preload.check(), Err(SpecError::Variable { .. }))); // fault G4
        let mut small = spec("x");
        let Launch::Process(process) = &mut small.launch;
        process.limits.cpu = Some(f64::NAN);
        assert!(matches!(small.check(), Err(SpecError::Range { .. }))); // fault G6
        let mut patient = spec("x");
        (patient.calls.late_grace, patient.life.stop_grace) = (Duration::ZERO, Duration::ZERO);
        assert!(patient.check().is_ok());
        patient.life.stop_grace = Duration::from_secs(86_401);
        let error = patient.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "server `a`: `life.stop_grace` is 86401s, allowed is 0s to 24h"
        );
    }

    #[test]
    fn a_spec_survives_its_stored_form() {
        let spec = spec("npx");
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ServerSpec>(&text).unwrap(), spec);
    }
}
