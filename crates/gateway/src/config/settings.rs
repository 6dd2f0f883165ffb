//! The `[gateway]` section of `gantry.toml`; flags of `gantry up` take precedence.
//!
//! Entry point: [`read`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use gantry_engine::{Durability, OnStartFailure, Startup, StoreConfig, StoreConfigError};
use gantry_model::naming::{EXPOSED_LENGTHS, Expose, OnCollision};
use gantry_model::spec::options::Kind as Form;
use gantry_model::spec::period;
use serde_json::Value as Json;

use crate::http::{CONNECTIONS, NoOrigin, Origin};
use crate::mcp::Instructions;

use super::diagnostic::{Diagnostic, Kind};
use super::document::Document;
use super::entry::diagnostics::Diagnostics;
use super::entry::fields::Fields;
use super::entry::{Fill, Owner};
use super::master_key::KeySource;
use super::otlp::{HeaderSource, OtlpChoice};

/// The settings; absent members are not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Where to listen.
    pub listen: Option<SocketAddr>,
    /// Further names by which clients reach the gateway.
    pub hosts: Vec<String>,
    /// The origins whose web pages may use the MCP endpoint.
    pub pages: Vec<Origin>,
    /// Whether clients of `/mcp` get the instructions of all servers.
    pub instructions: Option<Instructions>,
    /// Whether servers start in parallel.
    pub startup: Option<Startup>,
    /// The policy for start failures.
    pub on_start_failure: Option<OnStartFailure>,
    /// Audit durability.
    pub audit: Option<Durability>,
    /// How tools are exposed.
    pub expose: Option<Expose>,
    /// The policy for two tools with the same bare name.
    pub on_collision: Option<OnCollision>,
    /// Maximum length of a tool name; longer ones are shortened.
    pub tool_name_length: Option<usize>,
    /// Grace period for calls in flight when the gateway stops.
    pub drain: Option<Duration>,
    /// Grace period before servers are killed.
    pub kill_after: Option<Duration>,
    /// Maximum number of connections per address.
    pub connections_per_address: Option<usize>,
    /// The memory budget of unread responses.
    pub answer_memory: Option<usize>,
    /// How often the gateway checks whether images changed under their tags.
    pub image_checks: Option<Duration>,
    /// The MCP registry for `gantry search` and `gantry add --from NAME`.
    pub mcp_registry: Option<String>,
    /// The store; a file is relative to the configuration file.
    pub store: Option<StoreConfig>,
    /// The file of token issuers.
    pub issuers: Option<PathBuf>,
    /// Where to listen with TLS, besides `listen`.
    pub tls_listen: Option<SocketAddr>,
    /// The certificate of that listener.
    pub tls_cert: Option<PathBuf>,
    /// Its private key.
    pub tls_key: Option<PathBuf>,
    /// The authorities of required client certificates.
    pub tls_client_ca: Option<PathBuf>,
    /// The source of the master key; a file is relative to the configuration file.
    pub master_key: Option<KeySource>,
    /// Where traces are exported to.
    pub otlp: OtlpChoice,
    /// The position of each key, as `file:line`, and its text.
    pub origins: BTreeMap<&'static str, (String, String)>,
}

impl Settings {
    /// Returns whether two files have the same settings, regardless of position.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let alone = |settings: &Self| Self {
            origins: BTreeMap::new(),
            ..settings.clone()
        };
        alone(self) == alone(other)
    }
}

/// A key of `[gateway]`.
pub struct Setting {
    /// Its name; the flag of `gantry up` has dashes instead of underscores.
    pub name: &'static str,
    /// The form of its value.
    pub kind: Form,
    /// Its default, in Markdown.
    pub default: &'static str,
    /// Its description, in Markdown.
    pub doc: &'static str,
}

const fn setting(
    name: &'static str,
    kind: Form,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        kind,
        default,
        doc,
    }
}

/// The keys of `[gateway]`, each defined once.
pub static SETTINGS: &[Setting] = &[
    setting(
        "listen",
        Form::Text,
        "`127.0.0.1`, the last port, else 4180 or the next free",
        "`ADDRESS:PORT`; other than loopback only with `insecure_bind = true`.",
    ),
    setting(
        "insecure_bind",
        Form::Flag,
        "`false`",
        "`true`: an address that others can reach, without TLS.",
    ),
    setting(
        "hosts",
        Form::Texts,
        "none",
        "Further names by which clients reach the gateway.",
    ),
    setting(
        "origins",
        Form::Texts,
        "none",
        "The origins of web pages that may use the MCP endpoint, such as `[\"https://app.example.com\", \
         \"http://localhost:5173\"]`: scheme, host and port, no patterns; see [below](#web-pages).",
    ),
    setting(
        "instructions",
        Form::Choice(&["joined", "none"]),
        "`joined`",
        "`joined`: clients of `/mcp` get the instructions of the servers they may use, each \
         under its server's name, up to 4 KiB of one and 32 KiB of all; `none`: they are not. At \
         `/mcp/servers/{name}` a server's own are told as they are.",
    ),
    setting(
        "startup",
        Form::Choice(&["parallel", "sequential"]),
        "`parallel`",
        "Whether servers start in parallel or one after the other.",
    ),
    setting(
        "on_start_failure",
        Form::Choice(&["isolate", "abort"]),
        "`isolate`",
        "On start failure of a server: continue without it, or abort.",
    ),
    setting(
        "audit",
        Form::Choice(&["os", "disk", "relaxed"]),
        "`os`",
        "Audit durability: a call's record is handed to the system, synced to disk, or written soon.",
    ),
    setting(
        "expose",
        Form::Choice(&["qualified", "bare"]),
        "`qualified`",
        "Exposed tool names: `server__tool`, or the tool's own name.",
    ),
    setting(
        "on_collision",
        Form::Choice(&["refuse", "last_wins"]),
        "`refuse`",
        "Two tools with the same bare name: refuse the second, or the last wins.",
    ),
    setting(
        "tool_name_length",
        Form::Whole(
            *EXPOSED_LENGTHS.start() as u64,
            *EXPOSED_LENGTHS.end() as u64,
        ),
        "`64`",
        "How many characters the name of a tool may have. A longer one is cut and ends in `_` and eight \
         hex digits of its identity, always the same; a call by that name, by the full name or by \
         `server:tool` reaches the tool, and `gantry tools` shows both. Several clients and models' \
         APIs take 64 characters, and some count a prefix of their own (`mcp__gantry__`): set less for \
         those.",
    ),
    setting(
        "drain",
        Form::Period(Duration::ZERO),
        "`10s`",
        "Grace period for calls in flight when the gateway stops.",
    ),
    setting(
        "kill_after",
        Form::Period(Duration::ZERO),
        "`30s`",
        "Grace period before servers are killed, from the signal.",
    ),
    setting(
        "connections_per_address",
        Form::Whole(1, CONNECTIONS as u64),
        "`5120`",
        "How many connections one address (IPv6: one /64) may hold; the next one is answered 503. There \
         are 10,240 in all. The last eighth is for addresses with fewer than 64, and a newcomer for \
         whom there is no place gets that of an idle connection of the address that has the most; with \
         10240 nothing is reserved. Behind a proxy, and on loopback, everybody has one address.",
    ),
    setting(
        "answer_memory",
        Form::Size(4 << 20, 1 << 46),
        "`96M`",
        "How much memory answers may take together, from the moment a server has given them until their \
         clients have read them. An agent may hold as much as it leaves free for all others: one alone \
         half of it, two a third each. What does not fit is answered `call.undelivered`; answers up to \
         16 KiB always fit. One answer can be 8 MiB long.",
    ),
    setting(
        "image_checks",
        Form::Period(Duration::ZERO),
        "`6h`",
        "How often registries are asked whether the images of servers changed under their tags, which \
         fetches nothing; `0s`: never.",
    ),
    setting(
        "mcp_registry",
        Form::Text,
        "none",
        "The URL of the MCP registry that `gantry search` and `gantry add --from NAME` ask; `--registry` and \
         `GANTRY_MCP_REGISTRY` take precedence.",
    ),
    setting(
        "store",
        Form::Text,
        "`gantry.db` in the data folder",
        "Where the state is kept: a SQLite file, or a `postgres://` URL. Several gateways can \
         share it: those of one machine a file, others a database.",
    ),
    setting(
        "issuers",
        Form::Text,
        "none",
        "A JSON file of authorization servers whose tokens are accepted on `/mcp` beside keys. See \
         [docs/tokens.md](tokens.md).",
    ),
    setting(
        "tls_listen",
        Form::Text,
        "none",
        "`ADDRESS:PORT` of a second listener, with TLS, for other machines; `listen` stays for this one. \
         Needs `tls_cert` and `tls_key`. See [docs/tls.md](tls.md).",
    ),
    setting(
        "tls_cert",
        Form::Text,
        "none",
        "The certificate of that listener and of its authorities, in PEM form. Read again when it changes.",
    ),
    setting(
        "tls_key",
        Form::Text,
        "none",
        "The private key of the certificate, in PEM form; refused if every user can read it.",
    ),
    setting(
        "tls_client_ca",
        Form::Text,
        "none",
        "Authorities of client certificates, in PEM form: clients of that listener must have one of theirs, \
         besides their key.",
    ),
    setting(
        "master_key",
        Form::Text,
        "`data.key` in the data folder",
        "Where the key comes from that secrets are encrypted with: `file:PATH`, `env:NAME` or \
         `command:PROGRAM ARGUMENTS` (no shell), such as one of a key manager. It is 32 bytes, as they are, \
         in hexadecimal digits or in base64; see [secrets](secrets.md#the-master-key).",
    ),
    setting(
        "otlp",
        Form::Text,
        "none",
        "The URL of an OTLP endpoint over HTTP, such as `http://localhost:4318`: each call is exported to it as a \
         span. The variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like) do the same. See \
         [docs/tracing.md](tracing.md).",
    ),
    setting(
        "otlp_headers",
        Form::Text,
        "none",
        "Where the headers for that endpoint come from, such as its credentials: `file:PATH` with a line \
         `Name: value` for each, or `env:NAME` with `name=value,name=value`.",
    ),
];

/// Returns the names of the keys of `[gateway]`.
pub fn keys() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

/// Reads `[gateway]`; all errors are reported at once.
pub fn read(document: &Document) -> Result<Settings, Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::new(document, None, Owner::Gantry);
    let folder = document.path.to_path_buf();
    let fill = Fill::AsWritten { folder: &folder };
    let mut settings = Settings::default();
    if let Some(node) = document.root.find("gateway") {
        if node.as_table().is_none() {
            let help = "write its keys as lines under `[gateway]`";
            diagnostics.wrong(node, "gateway", "a table", help);
        }
        let mut gateway = Fields::new(&mut diagnostics, node, "gateway", fill);
        gateway.known(&keys());
        settings = settle(&mut gateway);
        let origins = keys().into_iter().filter_map(|key| {
            let node = gateway.node(key)?;
            let line = document.line(&node.span);
            let written = document.text.get(node.span.clone())?.to_owned();
            let place = format!("{}:{line}", document.path.display());
            Some((key, (place, written)))
        });
        settings.origins = origins.collect();
    }
    if diagnostics.mistakes.is_empty() {
        Ok(settings)
    } else {
        Err(diagnostics.mistakes)
    }
}

fn settle(gateway: &mut Fields<'_, '_>) -> Settings {
    let insecure = gateway.flag("insecure_bind").unwrap_or_default();
    Settings {
        listen: listen(gateway, insecure),
        hosts: gateway.names("hosts").unwrap_or_default(),
        pages: pages(gateway),
        instructions: chosen(
            gateway,
            "instructions",
            [Instructions::Joined, Instructions::None],
        ),
        startup: chosen(gateway, "startup", [Startup::Parallel, Startup::Sequential]),
        on_start_failure: chosen(
            gateway,
            "on_start_failure",
            [OnStartFailure::Isolate, OnStartFailure::Abort],
        ),
        audit: chosen(
            gateway,
            "audit",
            [Durability::Os, Durability::Disk, Durability::Relaxed],
        ),
        expose: chosen(gateway, "expose", [Expose::Qualified, Expose::Bare]),
        on_collision: chosen(
            gateway,
            "on_collision",
            [OnCollision::Refuse, OnCollision::LastWins],
        ),
        tool_name_length: whole(gateway, "tool_name_length"),
        drain: time(gateway, "drain"),
        kill_after: time(gateway, "kill_after"),
        connections_per_address: whole(gateway, "connections_per_address"),
        answer_memory: whole(gateway, "answer_memory"),
        image_checks: time(gateway, "image_checks"),
        mcp_registry: gateway.plain("mcp_registry"),
        store: store(gateway),
        issuers: file(gateway, "issuers"),
        tls_listen: secure_address(gateway),
        tls_cert: file(gateway, "tls_cert"),
        tls_key: file(gateway, "tls_key"),
        tls_client_ca: file(gateway, "tls_client_ca"),
        master_key: master_key(gateway),
        otlp: otlp(gateway),
        origins: BTreeMap::new(),
    }
}

/// Reads where the store is.
fn store(gateway: &mut Fields<'_, '_>) -> Option<StoreConfig> {
    let text = gateway.plain("store")?;
    let node = gateway.node("store")?;
    match text.parse() {
        Ok(StoreConfig::Sqlite(path)) => {
            let folder = gateway.diagnostics.document.path.parent();
            let path = folder.map_or_else(|| path.clone(), |folder| folder.join(&path));
            Some(StoreConfig::Sqlite(path))
        }
        Ok(config @ StoreConfig::Postgres(_)) => Some(config),
        Err(error) => {
            let mistake = gateway.diagnostics.diagnostic(&node.span, Kind::Value);
            let mistake = mistake
                .say("`gateway.store` does not name a store")
                .label("neither a file nor a `postgres://` URL")
                .help(StoreConfigError::to_string(&error));
            gateway.diagnostics.push(mistake);
            None
        }
    }
}

/// Reads the name of a file, relative to the configuration file.
fn file(gateway: &mut Fields<'_, '_>, key: &str) -> Option<PathBuf> {
    let path = PathBuf::from(gateway.plain(key)?);
    let folder = gateway.diagnostics.document.path.parent();
    Some(folder.map_or_else(|| path.clone(), |folder| folder.join(&path)))
}

/// Reads the address of the listener with TLS.
fn secure_address(gateway: &mut Fields<'_, '_>) -> Option<SocketAddr> {
    let text = gateway.plain("tls_listen")?;
    let node = gateway.node("tls_listen")?;
    let address = text.parse().ok();
    if address.is_none() {
        let diagnostic = gateway.diagnostics.diagnostic(&node.span, Kind::Value);
        let diagnostic = diagnostic
            .say("`gateway.tls_listen` must be an address and a port")
            .label("not an address and a port")
            .help("write `tls_listen = \"0.0.0.0:4443\"`")
            .show_value();
        gateway.diagnostics.push(diagnostic);
    }
    address
}

/// Reads where the master key comes from.
fn master_key(gateway: &mut Fields<'_, '_>) -> Option<KeySource> {
    let text = gateway.plain("master_key")?;
    let node = gateway.node("master_key")?;
    match text.parse::<KeySource>() {
        Ok(source) => {
            let folder = gateway.diagnostics.document.path.parent();
            Some(folder.map_or_else(|| source.clone(), |folder| source.clone().beside(folder)))
        }
        Err(error) => {
            let mistake = gateway.diagnostics.diagnostic(&node.span, Kind::Value);
            let mistake = mistake
                .say("`gateway.master_key` does not say where the key comes from")
                .label("no source")
                .help(error.to_string());
            gateway.diagnostics.push(mistake);
            None
        }
    }
}

/// Reads where traces are exported to.
fn otlp(gateway: &mut Fields<'_, '_>) -> OtlpChoice {
    let headers: Option<HeaderSource> = parsed(gateway, "otlp_headers", "no source of headers");
    let folder = gateway.diagnostics.document.path.parent();
    OtlpChoice {
        endpoint: parsed(gateway, "otlp", "no URL of an endpoint"),
        headers: headers.map(|source| match folder {
            Some(folder) => source.beside(folder),
            None => source,
        }),
    }
}

/// Reads a text of another form.
fn parsed<T>(gateway: &mut Fields<'_, '_>, key: &str, label: &str) -> Option<T>
where
    T: FromStr<Err: std::fmt::Display>,
{
    let text = gateway.plain(key)?;
    let node = gateway.node(key)?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let mistake = gateway.diagnostics.diagnostic(&node.span, Kind::Value);
            let mistake = mistake
                .say(format!("`gateway.{key}` cannot be used"))
                .label(label)
                .help(error.to_string());
            gateway.diagnostics.push(mistake);
            None
        }
    }
}

fn value(gateway: &mut Fields<'_, '_>, key: &str) -> Option<Json> {
    let setting = SETTINGS.iter().find(|setting| setting.name == key)?;
    gateway.value(setting.kind, key)
}

/// Reads a keyword; the choices are in the order of the keywords.
fn chosen<T: Copy, const N: usize>(
    gateway: &mut Fields<'_, '_>,
    key: &str,
    choices: [T; N],
) -> Option<T> {
    let setting = SETTINGS.iter().find(|setting| setting.name == key)?;
    let word = gateway.value(setting.kind, key)?;
    let Form::Choice(words) = setting.kind else {
        return None;
    };
    let at = words.iter().position(|known| word == *known)?;
    choices.get(at).copied()
}

fn whole(gateway: &mut Fields<'_, '_>, key: &str) -> Option<usize> {
    let number = value(gateway, key)?.as_u64()?;
    usize::try_from(number).ok()
}

fn time(gateway: &mut Fields<'_, '_>, key: &str) -> Option<Duration> {
    let time = value(gateway, key)?;
    period::parse(time.as_str()?)
}

/// Reads the origins; patterns are not supported.
fn pages(gateway: &mut Fields<'_, '_>) -> Vec<Origin> {
    let mut pages = Vec::new();
    for text in gateway.names("origins").unwrap_or_default() {
        match text.parse() {
            Ok(origin) => pages.push(origin),
            Err(error @ NoOrigin) => {
                if let Some(node) = gateway.node("origins") {
                    let diagnostic = gateway.diagnostics.diagnostic(&node.span, Kind::Value);
                    let diagnostic = diagnostic
                        .say("`gateway.origins` has a text that is not a web origin")
                        .label("no patterns, no paths, not `null`")
                        .help(error.to_string());
                    gateway.diagnostics.push(diagnostic);
                }
            }
        }
    }
    pages
}

/// Reads the address; one that other machines can reach must be allowed explicitly.
fn listen(gateway: &mut Fields<'_, '_>, insecure: bool) -> Option<SocketAddr> {
    let text = gateway.plain("listen")?;
    let node = gateway.node("listen")?;
    let address: Result<SocketAddr, _> = text.parse();
    let diagnostic = gateway.diagnostics.diagnostic(&node.span, Kind::Value);
    let diagnostic = match address {
        Ok(address) if insecure || address.ip().is_loopback() => return Some(address),
        Ok(_) => diagnostic
            .say("`gateway.listen` is an address that others can reach, without TLS")
            .label("not this machine alone")
            .help("write `127.0.0.1:4180`, or add `insecure_bind = true`")
            .show_value(),
        Err(_) => diagnostic
            .say("`gateway.listen` must be an address and a port")
            .label("no such thing")
            .help("write `listen = \"127.0.0.1:4180\"`")
            .show_value(),
    };
    gateway.diagnostics.push(diagnostic);
    None
}
