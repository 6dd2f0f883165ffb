//! Claude Desktop: starts commands only; remote servers are kept by the program itself, not its file.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "claude-desktop",
    title: "Claude Desktop",
    root: "mcpServers",
    dialect: Dialect {
        timeout: Unit::Unknown,
        stdio_type: None,
        streamable: "http",
        untyped: Untyped::Either,
        http_member: None,
        tools: Tools::Unknown,
        dollar: false,
    },
    http: Http::No,
    endings: &["claude_desktop_config.json"],
    places: |at| {
        let path = at.config.join("Claude/claude_desktop_config.json");
        vec![Place::new(Scope::User, path, &["mcpServers"])]
    },
};
