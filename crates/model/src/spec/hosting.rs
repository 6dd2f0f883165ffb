//! What hosted servers are given beside their program, be it a command or an image: volumes, network, a
//! port, and which isolation they run in. Their options are here, too.
//!
//! Entry points: [`Hosting`], and [`Hosting::bridge`] for how messages reach the server.

mod check;
mod egress;
mod paths;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::options::{Field, Kind, ServerOption, hosting, option, plain};
use super::remote::TransportPreference;

pub use self::check::HostingError;
pub(super) use self::check::{check_image, check_process};
pub use self::egress::{EgressRule, EgressRuleError};
pub use self::paths::{Guarded, GuardedPath, WritableError};

/// The path that most HTTP servers answer at.
const PATH: &str = "/mcp";

/// What a hosted server is given beside its program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hosting {
    /// Paths inside that are volumes: they keep their content over restarts. row 1.19
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<PathBuf>,
    /// What it may reach; nothing for a hosted server if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkGrant>,
    /// Which isolation it runs in.
    pub provider: Provider,
    /// The weakest isolation in which it may run at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation_floor: Option<Rung>,
    /// Whether messages travel over stdin and stdout; without a word they do unless there is a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdio_bridge: Option<bool>,
    /// The port inside at which it answers over HTTP. row 1.2
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The port of this machine's loopback address that leads there past grants and audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_port: Option<u16>,
    /// The path at that port; `/mcp` if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_path: Option<String>,
    /// How messages travel over the port.
    #[serde(skip_serializing_if = "is_auto")]
    pub transport: TransportPreference,
}

/// What a hosted server may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkGrant {
    /// Nothing but itself.
    None,
    /// These hosts and ports, through the gateway's own dialler.
    Egress(Vec<EgressRule>),
    /// Whatever this machine reaches.
    Full,
}

/// Which isolation is wanted. row 1.18
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// The first of the ladder that this host has: gVisor, Firecracker, E2B, own namespaces.
    #[default]
    Auto,
    /// gVisor.
    Gvisor,
    /// Firecracker.
    Firecracker,
    /// E2B.
    E2b,
    /// Namespaces of its own on the image's root, with an allow list of system calls.
    Namespaces,
    /// A sandboxed process: how commands are hosted.
    Process,
}

/// A rung of the isolation ladder; a greater one isolates better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// A sandboxed process on parts of the host's root.
    Process,
    /// Own namespaces on the image's root.
    Namespaces,
    /// E2B.
    E2b,
    /// Firecracker.
    Firecracker,
    /// gVisor.
    Gvisor,
}

/// How messages reach a hosted server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bridge {
    /// Lines over its stdin and stdout.
    Stdio,
    /// HTTP to a port inside.
    Http {
        /// The port inside.
        port: u16,
        /// The loopback port of this machine that leads there, if there is one.
        published: Option<u16>,
        /// The path, with its leading slash.
        path: String,
    },
}

impl Provider {
    /// Returns the provider as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Gvisor => "gvisor",
            Self::Firecracker => "firecracker",
            Self::E2b => "e2b",
            Self::Namespaces => "namespaces",
            Self::Process => "process",
        }
    }

    /// Returns the rung that is asked for; nothing for `auto`.
    pub const fn rung(self) -> Option<Rung> {
        match self {
            Self::Auto => None,
            Self::Gvisor => Some(Rung::Gvisor),
            Self::Firecracker => Some(Rung::Firecracker),
            Self::E2b => Some(Rung::E2b),
            Self::Namespaces => Some(Rung::Namespaces),
            Self::Process => Some(Rung::Process),
        }
    }
}

impl Rung {
    /// The rungs that an image is tried on, the best first. row 1.18
    pub const LADDER: [Self; 4] = [Self::Gvisor, Self::Firecracker, Self::E2b, Self::Namespaces];

    /// Returns the rung as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Namespaces => "namespaces",
            Self::E2b => "e2b",
            Self::Firecracker => "firecracker",
            Self::Gvisor => "gvisor",
        }
    }
}

impl Hosting {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how messages reach the server.
    pub fn bridge(&self) -> Bridge {
        match self.port {
            Some(port) if self.stdio_bridge != Some(true) => Bridge::Http {
                port,
                published: self.published_port,
                path: self.http_path.clone().unwrap_or_else(|| PATH.to_owned()),
            },
            Some(_) | None => Bridge::Stdio,
        }
    }

    /// Returns what the server may reach: as set, else nothing.
    pub fn network_in_force(&self) -> NetworkGrant {
        self.network.clone().unwrap_or(NetworkGrant::None)
    }

    /// Fills in what holds where nothing is said.
    pub(super) fn show(&mut self, network: NetworkGrant) {
        self.network.get_or_insert(network);
        let is_stdio = self.bridge() == Bridge::Stdio;
        self.stdio_bridge = Some(is_stdio);
        if !is_stdio {
            self.http_path.get_or_insert_with(|| PATH.to_owned());
        }
    }
}

impl Serialize for NetworkGrant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Full => serializer.serialize_str("full"),
            Self::Egress(rules) => rules.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for NetworkGrant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "`none`, `full` or a list of `host:port` is expected"
        )]
        enum Written {
            Word(String),
            List(Vec<EgressRule>),
        }
        match Written::deserialize(deserializer)? {
            Written::Word(word) if word == "none" => Ok(Self::None),
            Written::Word(word) if word == "full" => Ok(Self::Full),
            Written::List(rules) => Ok(Self::Egress(rules)),
            Written::Word(_) => {
                let what = "`none`, `full` or a list of `host:port` is expected";
                Err(serde::de::Error::custom(what))
            }
        }
    }
}

fn is_auto(wish: &TransportPreference) -> bool {
    *wish == TransportPreference::Auto
}

/// The options of hosting.
pub(super) static OPTIONS: &[ServerOption] = &[
    option(
        "volumes",
        Kind::Texts,
        "Paths inside that keep their content: each is a volume of this server, which survives crashes, \
         restarts and `gantry rm`. Paths of this machine cannot be named.",
        |spec| plain(&mut hosting(spec)?.volumes),
    )
    .absent("none"),
    option(
        "network",
        Kind::WordOrTexts(&["none", "full"]),
        "What it may reach: nothing, everything, or a list of `host:port`, which the gateway dials for \
         it. Private addresses only if they are named as addresses.",
        |spec| plain(&mut hosting(spec)?.network),
    ),
    option(
        "stdio_bridge",
        Kind::Flag,
        "Whether its messages travel over stdin and stdout; `false` needs a `port`.",
        |spec| plain(&mut hosting(spec)?.stdio_bridge),
    ),
    option(
        "port",
        Kind::Whole(1, 65_535),
        "The port inside at which it answers over HTTP; it is reached through the gateway.",
        |spec| plain(&mut hosting(spec)?.port),
    )
    .absent("none"),
    option(
        "published_port",
        Kind::Whole(1, 65_535),
        "A port of 127.0.0.1 that leads there as well. Grants and audit do not apply to it.",
        |spec| plain(&mut hosting(spec)?.published_port),
    )
    .absent("none"),
    option(
        "http_path",
        Kind::Text,
        "The path of its endpoint at `port`.",
        |spec| plain(&mut hosting(spec)?.http_path),
    )
    .absent("`/mcp`"),
    option(
        "provider",
        Kind::Choice(&[
            "auto",
            "gvisor",
            "firecracker",
            "e2b",
            "namespaces",
            "process",
        ]),
        "Which isolation it runs in. `auto` takes the first that this host has: gVisor, Firecracker, E2B, \
         own namespaces; a command runs as a sandboxed `process`.",
        |spec| plain(&mut hosting(spec)?.provider),
    ),
    option(
        "isolation_floor",
        Kind::Choice(&["gvisor", "firecracker", "e2b", "namespaces", "process"]),
        "The weakest isolation in which it may run; where the host has nothing as good it does not start.",
        |spec| plain(&mut hosting(spec)?.isolation_floor),
    )
    .absent("none"),
];

/// Returns the transport of a hosted server: fixed for one over stdio.
pub(super) fn transport(hosting: &mut Hosting) -> Option<Field<'_>> {
    match hosting.bridge() {
        Bridge::Stdio => Some(Field::Fixed("stdio")),
        Bridge::Http { .. } => plain(&mut hosting.transport),
    }
}
