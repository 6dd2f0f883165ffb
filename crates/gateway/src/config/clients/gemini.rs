//! Gemini CLI: `httpUrl` is streamable HTTP and `url` is SSE, and variables may be written `$NAME`.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "gemini",
    title: "Gemini CLI",
    root: "mcpServers",
    dialect: Dialect {
        timeout: Unit::Milliseconds,
        stdio_type: None,
        streamable: "http",
        untyped: Untyped::Sse,
        http_member: Some("httpUrl"),
        tools: Tools::Lists {
            include: Some("includeTools"),
            exclude: "excludeTools",
        },
        dollar: true,
    },
    http: Http::Member("httpUrl"),
    endings: &[".gemini/settings.json"],
    places: |at| {
        let path = ".gemini/settings.json";
        vec![
            Place::new(Scope::Project, at.folder.join(path), &["mcpServers"]),
            Place::new(Scope::User, at.home.join(path), &["mcpServers"]),
        ]
    },
};
