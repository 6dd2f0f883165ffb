//! The `[gateway]` section of `gantry.toml`; flags of `gantry up` take precedence.
//!
//! Entry point: [`read`].

mod definitions;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use gantry_engine::{Durability, OnStartFailure, Startup, StoreConfig, StoreConfigError};
use gantry_model::naming::{Expose, OnCollision};
use gantry_model::spec::options::Kind as Form;
use gantry_model::spec::period;
use serde_json::Value as Json;

use crate::http::{NoOrigin, Origin};
use crate::mcp::Instructions;

use super::diagnostic::{Diagnostic, Kind};
use super::document::{Document, Node};
use super::entry::diagnostics::Diagnostics;
use super::entry::fields::Fields;
use super::entry::{Fill, Owner};
use super::master_key::KeySource;
use super::otlp::{HeaderSource, OtlpChoice};
use super::siem::SiemChoice;

pub use self::definitions::{SETTINGS, Setting, keys};

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
    /// Where the audit is pushed to.
    pub siem: SiemChoice,
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

    /// Returns the files that say whom the gateway trusts, each after its setting.
    pub fn trusting(&mut self) -> [(&'static str, &mut Option<PathBuf>); 3] {
        let [issuers, siem_ca, tls_client_ca] = TRUSTING;
        [
            (issuers, &mut self.issuers),
            (siem_ca, &mut self.siem.ca),
            (tls_client_ca, &mut self.tls_client_ca),
        ]
    }
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
            [
                Durability::Os,
                Durability::Disk,
                Durability::Relaxed,
                Durability::Database,
            ],
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
        siem: siem(gateway),
        origins: BTreeMap::new(),
    }
}

/// Settings that name a file which says whom the gateway trusts.
const TRUSTING: [&str; 3] = ["issuers", "siem_ca", "tls_client_ca"];
/// Settings that can name a variable.
const READING: [&str; 3] = ["master_key", "otlp_headers", "siem_headers"];

/// Returns the files whose content is part of the approval of `[gateway]` in this file.
///
/// Certificates, keys and headers of the gateway itself are not: they are renewed, and trust nobody.
pub fn files(gateway: &Node, file: &Path) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(file);
    let named = TRUSTING.into_iter().filter_map(|key| gateway.find(key));
    let named = named.filter_map(Node::as_text);
    named.map(|path| folder.join(path)).collect()
}

/// Returns the variables that `[gateway]` reads, each after its setting.
pub fn variables(gateway: &Node) -> impl Iterator<Item = (&'static str, &str)> {
    READING.into_iter().filter_map(|key| {
        let text = gateway.find(key).and_then(Node::as_text)?;
        let name = text.strip_prefix("env:")?.trim();
        (!name.is_empty()).then_some((key, name))
    })
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
    OtlpChoice {
        endpoint: parsed(gateway, "otlp", "no URL of an endpoint"),
        headers: headers(gateway, "otlp_headers"),
    }
}

/// Reads where the audit is pushed to.
fn siem(gateway: &mut Fields<'_, '_>) -> SiemChoice {
    SiemChoice {
        receiver: parsed(gateway, "siem", "no URL of a receiver"),
        headers: headers(gateway, "siem_headers"),
        ca: file(gateway, "siem_ca"),
    }
}

/// Reads where headers come from.
fn headers(gateway: &mut Fields<'_, '_>, key: &str) -> Option<HeaderSource> {
    let source: HeaderSource = parsed(gateway, key, "unknown source of headers")?;
    let folder = gateway.diagnostics.document.path.parent();
    Some(folder.map_or_else(|| source.clone(), |folder| source.clone().beside(folder)))
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

/// Reads a keyword and returns its choice; `choices` are in the order of the setting's keywords.
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
