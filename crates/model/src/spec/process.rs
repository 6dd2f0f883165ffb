//! A server that is a command on this machine: its command, environment, limits and options.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::hosting::Hosting;
use super::options::{Kind, ServerOption, limits, option, plain, process};
use super::{Launch, Written};

/// A command, its environment and its limits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessLaunch {
    /// The program, looked up on the gateway's `PATH` unless it contains a slash.
    pub command: String,
    /// Its arguments, passed unchanged, without a shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables in addition to the short documented list that every server gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working folder; by default a separate one under the data folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Its isolation profile.
    #[serde(default)]
    pub profile: Profile,
    /// Its resource limits; the profile's limits apply to missing ones.
    #[serde(default)]
    pub limits: ResourceLimits,
    /// Volumes, network, port and isolation of a hosted one.
    #[serde(default, skip_serializing_if = "Hosting::is_default")]
    pub hosting: Hosting,
    /// The texts before variables were expanded; never stored together with their values.
    #[serde(skip)]
    pub written: Written,
}

/// The isolation profile of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// A server from the user's own files: may use network and home, which the status shows.
    Local,
    /// A server hosted for others: strictly isolated.
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
    /// Bytes on disk: scratch and volumes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

impl ResourceLimits {
    /// Returns these limits, completed by others.
    pub fn or(self, others: Self) -> Self {
        Self {
            cpu: self.cpu.or(others.cpu),
            memory_bytes: self.memory_bytes.or(others.memory_bytes),
            pids: self.pids.or(others.pids),
            disk_bytes: self.disk_bytes.or(others.disk_bytes),
        }
    }
}

impl Profile {
    /// Returns its name in all inputs and outputs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Hosted => "hosted",
        }
    }

    /// Returns the default limits.
    pub const fn limits(self) -> ResourceLimits {
        match self {
            Self::Local => ResourceLimits {
                cpu: None,
                memory_bytes: None,
                pids: Some(1024),
                disk_bytes: None,
            },
            Self::Hosted => ResourceLimits {
                cpu: Some(0.5),
                memory_bytes: Some(512 << 20),
                pids: Some(128),
                disk_bytes: Some(1 << 30),
            },
        }
    }
}

impl ProcessLaunch {
    /// Returns the effective limits: as set, else the profile's.
    pub fn limits_in_force(&self) -> ResourceLimits {
        self.limits.or(self.profile.limits())
    }
}

/// What is refused for safety unless the user explicitly allows it.
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
        "Its arguments, one each. For an image: in the place of the image's own, if there are any.",
        |spec| match &mut spec.launch {
            Launch::Process(process) => plain(&mut process.args),
            Launch::Image(image) => plain(&mut image.args),
            Launch::Remote(_) => None,
        },
    ),
    option(
        "env",
        Kind::Pairs,
        "Variables of its environment, on top of the [short list](#the-environment) that every \
         server gets, or of the image's. Values are never shown.",
        |spec| match &mut spec.launch {
            Launch::Process(process) => plain(&mut process.env),
            Launch::Image(image) => plain(&mut image.env),
            Launch::Remote(_) => None,
        },
    )
    .spellings(&["environment"]),
    option(
        "cwd",
        Kind::Template,
        "The working folder. In a file: the folder of `gantry up` if this is left out; for servers \
         of your home's files once it is [trusted](#the-folder-as-a-working-folder). For an image: a \
         path inside it, and the image's own if this is left out.",
        |spec| match &mut spec.launch {
            Launch::Process(process) => plain(&mut process.cwd),
            Launch::Image(image) => plain(&mut image.cwd),
            Launch::Remote(_) => None,
        },
    )
    .absent("a folder of its own"),
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
        |spec| plain(&mut limits(spec)?.cpu),
    )
    .spellings(&["resource_limits.cpu"])
    .absent("unlimited"),
    option(
        "limits.memory",
        Kind::Size(4 << 20, 1 << 46),
        "How much memory it may use.",
        |spec| plain(&mut limits(spec)?.memory_bytes),
    )
    .spellings(&["resource_limits.memory"])
    .old_names(&["limits.memory_bytes"])
    .absent("unlimited"),
    option(
        "limits.pids",
        Kind::Whole(4, 1_000_000),
        "How many processes and threads it may have.",
        |spec| plain(&mut limits(spec)?.pids),
    )
    .spellings(&["resource_limits.pids"])
    .absent("unlimited"),
    option(
        "limits.disk",
        Kind::Size(4 << 20, 1 << 46),
        "How much it may write: its working folder, `/tmp` and volumes together.",
        |spec| plain(&mut limits(spec)?.disk_bytes),
    )
    .spellings(&["resource_limits.disk"])
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
            spec.launch.hosting()?;
            plain(&mut spec.allow.env)
        },
    )
    .absent("none"),
];
