//! Cursor: a URL needs no `type`, since both transports are tried.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "cursor",
    title: "Cursor",
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
    http: Http::Untyped,
    endings: &[".cursor/mcp.json"],
    places: |at| {
        let path = ".cursor/mcp.json";
        vec![
            Place::new(Scope::Project, at.folder.join(path), &["mcpServers"]),
            Place::new(Scope::User, at.home.join(path), &["mcpServers"]),
        ]
    },
};
