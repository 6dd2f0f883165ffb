//! Cline: seconds in `timeout`, and a URL without a `type` is SSE.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "cline",
    title: "Cline",
    root: "mcpServers",
    dialect: Dialect {
        timeout: Unit::Seconds,
        stdio_type: None,
        streamable: "streamableHttp",
        untyped: Untyped::Sse,
        http_member: None,
        tools: Tools::Unknown,
        dollar: false,
    },
    http: Http::Typed("streamableHttp"),
    endings: &["cline_mcp_settings.json"],
    places: |at| {
        let own = at.home.join(".cline/data/settings/cline_mcp_settings.json");
        let editor = at.config.join(
            "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        );
        vec![
            Place::new(Scope::User, editor, &["mcpServers"]),
            Place::new(Scope::User, own, &["mcpServers"]),
        ]
    },
};
