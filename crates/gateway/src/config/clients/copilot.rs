//! Copilot: a command is `local`, and every entry says which tools it offers, `*` for all.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "copilot",
    title: "Copilot",
    root: "mcpServers",
    dialect: Dialect {
        timeout: Unit::Milliseconds,
        stdio_type: Some("local"),
        streamable: "http",
        untyped: Untyped::Either,
        http_member: None,
        tools: Tools::Allowed,
        dollar: false,
    },
    http: Http::Typed("http"),
    endings: &[".copilot/mcp-config.json", ".github/mcp.json"],
    places: |at| {
        let folder = at.folder.join(".github/mcp.json");
        let own = at.copilot.join("mcp-config.json");
        vec![
            Place::new(Scope::Project, folder, &["mcpServers"]),
            Place::new(Scope::User, own, &["mcpServers"]),
        ]
    },
};
