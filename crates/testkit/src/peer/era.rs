//! The two protocol generations: which one a request belongs to, and what a modern result carries
//! that a legacy one does not.

use serde_json::{Value, json};

use super::faults::Fault;
use super::message::{RpcError, Ticket};
use super::options::{Era, Options};

pub(crate) const LEGACY_VERSIONS: &[&str] =
    &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub(crate) const LATEST_LEGACY: &str = "2025-11-25";
pub(crate) const MODERN_VERSION: &str = "2026-07-28";

pub(crate) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
pub(crate) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Methods whose modern results say how long they may be kept.
pub(crate) const CACHED: &[&str] = &[
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

/// Returns whether a request is a modern one, or why it cannot be served at all.
pub(crate) fn is_modern(
    era: Era,
    initialized: bool,
    method: &str,
    params: &Value,
) -> Result<bool, RpcError> {
    let meta = &params["_meta"];
    let version = &meta[PROTOCOL_VERSION];
    let early = matches!(method, "initialize" | "ping");
    match era {
        // A legacy server has never heard of `server/discover`, whenever it is asked.
        Era::Legacy if initialized || early || method == "server/discover" => Ok(false),
        Era::Legacy => Err(RpcError::new(-32600, "server not initialized")),
        Era::Dual if version.is_null() && (initialized || early) => Ok(false),
        Era::Modern if version.is_null() && early => Err(RpcError::no_method(method)),
        Era::Modern | Era::Dual if version.is_null() => Err(RpcError::bad_params(format!(
            "missing _meta: {PROTOCOL_VERSION}"
        ))),
        Era::Modern | Era::Dual if version != MODERN_VERSION => {
            let data = json!({"supported": [MODERN_VERSION], "requested": version});
            Err(RpcError::new(-32022, "unsupported protocol version").with_data(data))
        }
        Era::Modern | Era::Dual if !meta[CLIENT_CAPABILITIES].is_object() => Err(
            RpcError::bad_params(format!("missing _meta: {CLIENT_CAPABILITIES}")),
        ),
        Era::Modern | Era::Dual => Ok(true),
    }
}

/// Adds what a modern result must carry; a legacy result stays as it is.
pub(crate) fn decorate(result: &mut Value, ticket: &Ticket, options: &Options) {
    if !ticket.modern {
        return;
    }
    result["resultType"] = json!("complete");
    result["_meta"][SERVER_INFO] = server_info(options);
    if CACHED.contains(&ticket.method.as_str()) {
        let ttl = options.faults.words(Fault::Ttl).next();
        let scope = if ttl.is_some() { "public" } else { "private" };
        let ttl = ttl.and_then(|ttl| serde_json::from_str(ttl).ok());
        result["ttlMs"] = ttl.unwrap_or_else(|| json!(1000));
        result["cacheScope"] = json!(scope);
    }
}

pub(crate) fn server_info(options: &Options) -> Value {
    json!({"name": options.name, "version": options.version})
}
