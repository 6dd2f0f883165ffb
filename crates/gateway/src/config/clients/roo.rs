//! Roo Code and Kilo Code, which share a form: seconds in `timeout`, tools switched off by name.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

const DIALECT: Dialect = Dialect {
    timeout: Unit::Seconds,
    stdio_type: None,
    streamable: "streamable-http",
    untyped: Untyped::Either,
    http_member: None,
    tools: Tools::Lists {
        include: None,
        exclude: "disabledTools",
    },
    dollar: false,
};

pub(super) const ROO: Client = Client {
    id: "roo",
    title: "Roo Code",
    root: "mcpServers",
    dialect: DIALECT,
    http: Http::Typed("streamable-http"),
    endings: &[".roo/mcp.json", "roo-cline/settings/mcp_settings.json"],
    places: |at| {
        let own = at
            .config
            .join("Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json");
        vec![
            Place::new(
                Scope::Project,
                at.folder.join(".roo/mcp.json"),
                &["mcpServers"],
            ),
            Place::new(Scope::User, own, &["mcpServers"]),
        ]
    },
};

pub(super) const KILO: Client = Client {
    id: "kilo",
    title: "Kilo Code",
    root: "mcpServers",
    dialect: DIALECT,
    http: Http::Typed("streamable-http"),
    endings: &[".kilocode/mcp.json", "mcp_settings.json"],
    places: |at| {
        let own = at
            .config
            .join("Code/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json");
        vec![
            Place::new(
                Scope::Project,
                at.folder.join(".kilocode/mcp.json"),
                &["mcpServers"],
            ),
            Place::new(Scope::User, own, &["mcpServers"]),
        ]
    },
};
