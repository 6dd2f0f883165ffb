//! What `[gateway]` of `gantry.toml` says about the gateway itself; a flag of `gantry up` wins over it.
//!
//! Entry point: [`read`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use gantry_engine::{Durability, OnStartFailure, Startup, StoreConfig, StoreConfigError};
use gantry_model::naming::{EXPOSED_LENGTHS, Expose, OnCollision};

use crate::http::{CONNECTIONS, NoOrigin, Origin};
use crate::mcp::Instructions;

use super::document::Document;
use super::entry::fields::Fields;
use super::entry::told::Told;
use super::entry::{Fill, Owner};
use super::mistake::{Kind, Mistake};

/// What the file says; nothing for what it does not mention.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Where to listen.
    pub listen: Option<SocketAddr>,
    /// Further names by which clients reach the gateway.
    pub hosts: Vec<String>,
    /// The origins whose web pages may use the MCP endpoint.
    pub pages: Vec<Origin>,
    /// What clients of the joined endpoint are told of what servers want models to know.
    pub instructions: Option<Instructions>,
    /// Whether servers start side by side.
    pub startup: Option<Startup>,
    /// What a server that does not start means.
    pub on_start_failure: Option<OnStartFailure>,
    /// When a call's record is safe.
    pub audit: Option<Durability>,
    /// How tools are named towards clients.
    pub expose: Option<Expose>,
    /// What happens when two tools have one bare name.
    pub on_collision: Option<OnCollision>,
    /// How long the name of a tool may be; longer ones are shortened.
    pub tool_name_length: Option<usize>,
    /// How long calls in flight may go on when the gateway stops.
    pub drain: Option<Duration>,
    /// When servers are killed that do not stop.
    pub kill_after: Option<Duration>,
    /// How many connections one address may hold.
    pub connections_per_address: Option<usize>,
    /// What answers may take together until their clients have read them.
    pub answer_memory: Option<usize>,
    /// Where rows are kept; a file is sought beside the configuration file.
    pub store: Option<StoreConfig>,
    /// Where each key stands, as `file:line`, and what is written there.
    pub origins: BTreeMap<&'static str, (String, String)>,
}

impl Settings {
    /// Tells whether two files say the same, wherever in them it stands.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let alone = |settings: &Self| Self {
            origins: BTreeMap::new(),
            ..settings.clone()
        };
        alone(self) == alone(other)
    }
}

/// The keys of `[gateway]`.
pub const KEYS: [&str; 16] = [
    "listen",
    "insecure_bind",
    "hosts",
    "origins",
    "instructions",
    "startup",
    "on_start_failure",
    "audit",
    "expose",
    "on_collision",
    "tool_name_length",
    "drain",
    "kill_after",
    "connections_per_address",
    "answer_memory",
    "store",
];

/// Reads `[gateway]`; everything that is wrong is told at once.
pub fn read(document: &Document) -> Result<Settings, Vec<Mistake>> {
    let mut told = Told::new(document, None, Owner::Gantry);
    let Some(root) = document.root.as_table() else {
        return Ok(Settings::default());
    };
    let folder = document.path.to_path_buf();
    let fill = Fill::AsWritten { folder: &folder };
    let mut settings = Settings::default();
    if let Some(mut gateway) = Fields::new(&mut told, root, "", fill).below("gateway", &KEYS) {
        settings = settle(&mut gateway);
        let origins = KEYS.iter().filter_map(|key| {
            let node = gateway.node(key)?;
            let line = document.line(&node.span);
            let written = document.text.get(node.span.clone())?.to_owned();
            let place = format!("{}:{line}", document.path.display());
            Some((*key, (place, written)))
        });
        settings.origins = origins.collect();
    }
    if told.mistakes.is_empty() {
        Ok(settings)
    } else {
        Err(told.mistakes)
    }
}

fn settle(gateway: &mut Fields<'_, '_>) -> Settings {
    let insecure = gateway.flag("insecure_bind").unwrap_or_default();
    Settings {
        listen: listen(gateway, insecure),
        hosts: gateway.names("hosts").unwrap_or_default(),
        pages: pages(gateway),
        instructions: gateway.choice(
            "instructions",
            &[
                ("joined", Instructions::Joined),
                ("none", Instructions::None),
            ],
        ),
        startup: gateway.choice(
            "startup",
            &[
                ("parallel", Startup::Parallel),
                ("sequential", Startup::Sequential),
            ],
        ),
        on_start_failure: gateway.choice(
            "on_start_failure",
            &[
                ("isolate", OnStartFailure::Isolate),
                ("abort", OnStartFailure::Abort),
            ],
        ),
        audit: gateway.choice(
            "audit",
            &[
                ("os", Durability::Os),
                ("disk", Durability::Disk),
                ("relaxed", Durability::Relaxed),
            ],
        ),
        expose: gateway.choice(
            "expose",
            &[("qualified", Expose::Qualified), ("bare", Expose::Bare)],
        ),
        on_collision: gateway.choice(
            "on_collision",
            &[
                ("refuse", OnCollision::Refuse),
                ("last_wins", OnCollision::LastWins),
            ],
        ),
        tool_name_length: gateway
            .whole("tool_name_length", name_lengths())
            .and_then(|length| usize::try_from(length).ok()),
        drain: gateway.period("drain"),
        kill_after: gateway.period("kill_after"),
        connections_per_address: gateway
            .whole("connections_per_address", 1..=CONNECTIONS as u64)
            .and_then(|count| usize::try_from(count).ok()),
        answer_memory: gateway
            .bytes("answer_memory", "4M and more")
            .and_then(|bytes| usize::try_from(bytes).ok()),
        store: store(gateway),
        origins: BTreeMap::new(),
    }
}

/// Reads where the store is.
fn store(gateway: &mut Fields<'_, '_>) -> Option<StoreConfig> {
    let text = gateway.plain("store")?;
    let node = gateway.node("store")?;
    match text.parse() {
        Ok(StoreConfig::Sqlite(path)) => {
            let folder = gateway.told.document.path.parent();
            let path = folder.map_or_else(|| path.clone(), |folder| folder.join(&path));
            Some(StoreConfig::Sqlite(path))
        }
        Ok(config @ StoreConfig::Postgres(_)) => Some(config),
        Err(error) => {
            let mistake = gateway.told.mistake(&node.span, Kind::Value);
            let mistake = mistake
                .say("`gateway.store` does not name a store")
                .label("neither a file nor a `postgres://` URL")
                .help(StoreConfigError::to_string(&error));
            gateway.told.push(mistake);
            None
        }
    }
}

/// Returns how long a name of a tool can be made at most.
fn name_lengths() -> RangeInclusive<u64> {
    *EXPOSED_LENGTHS.start() as u64..=*EXPOSED_LENGTHS.end() as u64
}

/// Reads the origins; a page is allowed by its whole origin and never by a pattern.
fn pages(gateway: &mut Fields<'_, '_>) -> Vec<Origin> {
    let mut pages = Vec::new();
    for text in gateway.names("origins").unwrap_or_default() {
        match text.parse() {
            Ok(origin) => pages.push(origin),
            Err(error @ NoOrigin) => {
                if let Some(node) = gateway.node("origins") {
                    let mistake = gateway.told.mistake(&node.span, Kind::Value);
                    let mistake = mistake
                        .say("`gateway.origins` has a text that is no origin of web pages")
                        .label("no patterns, no paths, not `null`")
                        .help(error.to_string());
                    gateway.told.push(mistake);
                }
            }
        }
    }
    pages
}

/// Reads the address; one that others can reach must be wished for in so many words.
fn listen(gateway: &mut Fields<'_, '_>, insecure: bool) -> Option<SocketAddr> {
    let text = gateway.plain("listen")?;
    let node = gateway.node("listen")?;
    let address: Result<SocketAddr, _> = text.parse();
    let mistake = gateway.told.mistake(&node.span, Kind::Value);
    let mistake = match address {
        Ok(address) if insecure || address.ip().is_loopback() => return Some(address),
        Ok(_) => mistake
            .say("`gateway.listen` is an address that others can reach, without TLS")
            .label("not this machine alone")
            .help("write `127.0.0.1:4180`, or add `insecure_bind = true`"),
        Err(_) => mistake
            .say("`gateway.listen` must be an address and a port")
            .label("no such thing")
            .help("write `listen = \"127.0.0.1:4180\"`"),
    };
    gateway.told.push(mistake);
    None
}
