//! A server that is a command on this machine: its command, environment, limits and options.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Written;
use super::options::{Kind, ServerOption, option, plain, process};

/// A command and what it is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// What stands in the file where variables were filled; never stored beside what they hold.
    #[serde(skip)]
    pub written: Written,
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

impl Profile {
    /// Returns the name as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Hosted => "hosted",
        }
    }

    /// Returns the limits of a server that sets none of its own.
    pub const fn limits(self) -> ResourceLimits {
        match self {
            Self::Local => ResourceLimits {
                cpu: None,
                memory_bytes: None,
                pids: Some(1024),
            },
            Self::Hosted => ResourceLimits {
                cpu: Some(0.5),
                memory_bytes: Some(512 << 20),
                pids: Some(128),
            },
        }
    }
}

impl ProcessLaunch {
    /// Returns the limits in force: as set, else the profile's.
    pub fn limits_in_force(&self) -> ResourceLimits {
        let default = self.profile.limits();
        ResourceLimits {
            cpu: self.limits.cpu.or(default.cpu),
            memory_bytes: self.limits.memory_bytes.or(default.memory_bytes),
            pids: self.limits.pids.or(default.pids),
        }
    }
}

/// What is refused for safety's sake unless a person allows it by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowances {
    /// A command that is a shell with a script, such as `sh -c`. fault G3
    pub shell: bool,
    /// Variables that make a program load or run other code. fault G4
    pub env: Vec<String>,
}

impl Allowances {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The options of a command.
pub(super) static OPTIONS: &[ServerOption] = &[
    option(
        "command",
        Kind::Template,
        "The program to run; no shell is involved. In a file a path counts from the folder.",
        |spec| plain(&mut process(spec)?.command),
    ),
    option(
        "args",
        Kind::Templates,
        "Its arguments, one each.",
        |spec| plain(&mut process(spec)?.args),
    ),
    option(
        "env",
        Kind::Pairs,
        "Variables of its environment, on top of the [short list](#the-environment) that every \
         server gets. Values are never shown.",
        |spec| plain(&mut process(spec)?.env),
    ),
    option(
        "cwd",
        Kind::Template,
        "The working folder. In a file: the folder of `gantry up` if this is left out; for servers \
         of your home's files once it is [trusted](#the-folder-as-a-working-folder).",
        |spec| plain(&mut process(spec)?.cwd),
    )
    .absent("a folder of its own in the data folder"),
    option(
        "profile",
        Kind::Choice(&["local", "hosted"]),
        "How strictly it is held, see [Profiles](#profiles). Over REST the default is `hosted`.",
        |spec| plain(&mut process(spec)?.profile),
    ),
    option(
        "limits.cpu",
        Kind::Cores(0.01, 1024.0),
        "How many processor cores it may use.",
        |spec| plain(&mut process(spec)?.limits.cpu),
    )
    .absent("unlimited"),
    option(
        "limits.memory",
        Kind::Size(4 << 20, 1 << 46),
        "How much memory it may use.",
        |spec| plain(&mut process(spec)?.limits.memory_bytes),
    )
    .old_names(&["limits.memory_bytes"])
    .absent("unlimited"),
    option(
        "limits.pids",
        Kind::Whole(4, 1_000_000),
        "How many processes and threads it may have.",
        |spec| plain(&mut process(spec)?.limits.pids),
    )
    .absent("unlimited"),
    option(
        "allow_shell",
        Kind::Flag,
        "Lets `command` be a shell with a script (`sh -c`), also behind `env`, `timeout`, `sudo`, `uv \
         run`, `npm exec`, `ssh` and their like.",
        |spec| {
            process(spec)?;
            plain(&mut spec.allow.shell)
        },
    ),
    option(
        "allow_env",
        Kind::Texts,
        "Names of variables in `env` that are refused otherwise, because they make programs load or \
         run other code: `PATH`, `LD_*`, `DYLD_*`, `DOCKER_*`, `NODE_OPTIONS`, `NODE_PATH`, \
         `PYTHONPATH`, `PYTHONSTARTUP`, `RUBYOPT`, `PERL5LIB`, `JAVA_TOOL_OPTIONS`, `npm_config_*`, \
         `GIT_CONFIG_*`, `GIT_SSH_COMMAND`, the package indexes of `PIP_*` and `UV_*`, `EDITOR` and \
         their like.",
        |spec| {
            process(spec)?;
            plain(&mut spec.allow.env)
        },
    )
    .absent("none"),
];
