//! Claude Code: `.mcp.json` of a folder, and `~/.claude.json` with servers for all folders and for one.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "claude-code",
    title: "Claude Code",
    root: "mcpServers",
    dialect: Dialect {
        timeout: Unit::LongMilliseconds,
        stdio_type: None,
        streamable: "http",
        untyped: Untyped::Either,
        http_member: None,
        tools: Tools::Policies,
        dollar: false,
    },
    http: Http::Typed("http"),
    endings: &[".claude.json", ".mcp.json"],
    places: |at| {
        let own = at.claude.join(".claude.json");
        let here = at.folder_name();
        vec![
            Place::new(
                Scope::Local,
                own.clone(),
                &["projects", &here, "mcpServers"],
            ),
            Place::new(Scope::Project, at.folder.join(".mcp.json"), &["mcpServers"]),
            Place::new(Scope::User, own, &["mcpServers"]),
        ]
    },
};
