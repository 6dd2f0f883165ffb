//! Settings of hosted servers, commands and images: volumes, network, a port, and their isolation.
//! Their options are here, too.
//!
//! Entry points: [`Hosting`], and [`Hosting::bridge`] for how messages reach the server.

mod check;
mod egress;
mod paths;
mod volume;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::options::{Field, Kind, ServerOption, hosting, option, plain};
use super::remote::TransportPreference;

pub use self::check::HostingError;
pub(super) use self::check::{check_image, check_process};
pub use self::egress::{EgressRule, EgressRuleError};
pub use self::paths::{Guarded, GuardedPath, WritableError};
pub use self::volume::{volume_fits, volume_name, volume_path};

/// The usual path of HTTP servers.
const PATH: &str = "/mcp";

/// The hosting settings of a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hosting {
    /// Paths inside that are volumes: their content survives restarts. row 1.19
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<PathBuf>,
    /// Its network access; none for a hosted server by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkGrant>,
    /// The isolation provider.
    pub provider: Provider,
    /// The weakest isolation in which it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation_floor: Option<Rung>,
    /// Whether messages use stdin and stdout; by default they do unless there is a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdio_bridge: Option<bool>,
    /// The port inside of its HTTP endpoint. row 1.2
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A loopback port of this machine that forwards to it and bypasses grants and audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_port: Option<u16>,
    /// The path at that port; `/mcp` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_path: Option<String>,
    /// The transport at the port.
    #[serde(skip_serializing_if = "is_auto")]
    pub transport: TransportPreference,
}

/// The network access of a hosted server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkGrant {
    /// No network.
    None,
    /// These hosts and ports only, through the gateway.
    Egress(Vec<EgressRule>),
    /// The network of this machine.
    Full,
}

/// The isolation provider. row 1.18
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// The strongest that this host has, in this order: gVisor, Firecracker, E2B, namespaces.
    #[default]
    Auto,
    /// gVisor.
    Gvisor,
    /// Firecracker.
    Firecracker,
    /// E2B.
    E2b,
    /// Namespaces on the image's root, with an allow list of system calls.
    Namespaces,
    /// A sandboxed process, for commands.
    Process,
}

/// A level of isolation; a greater one isolates better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// A sandboxed process on parts of the host's root.
    Process,
    /// Namespaces on the image's root.
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
        /// The loopback port of this machine that forwards to it, if there is one.
        published: Option<u16>,
        /// The path, with its leading slash.
        path: String,
    },
}

impl Provider {
    /// Returns the provider's name in all inputs and outputs.
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

    /// Returns the requested level; `None` for `auto`.
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
    /// The levels for an image, the best first. row 1.18
    pub const LADDER: [Self; 4] = [Self::Gvisor, Self::Firecracker, Self::E2b, Self::Namespaces];

    /// Returns the level's name in all inputs and outputs.
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

    /// Returns the effective network access: as set, else none.
    pub fn network_in_force(&self) -> NetworkGrant {
        self.network.clone().unwrap_or(NetworkGrant::None)
    }

    /// Fills in the defaults for display.
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
        "A port of 127.0.0.1 that is forwarded to `port`. Grants and audit do not apply to it.",
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
        "The isolation it runs in. `auto` takes the first that this host has: gVisor, Firecracker, E2B, \
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
