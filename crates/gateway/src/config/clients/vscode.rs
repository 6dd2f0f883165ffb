//! VS Code: the servers stand under `servers`, beside the `inputs` that it asks a person for.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "vscode",
    title: "VS Code",
    root: "servers",
    dialect: Dialect {
        timeout: Unit::Unknown,
        stdio_type: Some("stdio"),
        streamable: "http",
        untyped: Untyped::Either,
        http_member: None,
        tools: Tools::Unknown,
        dollar: false,
    },
    http: Http::Typed("http"),
    endings: &[".vscode/mcp.json", "Code/User/mcp.json"],
    places: |at| {
        let folder = at.folder.join(".vscode/mcp.json");
        let own = at.config.join("Code/User/mcp.json");
        vec![
            Place::new(Scope::Project, folder, &["servers"]),
            Place::new(Scope::User, own, &["servers"]),
        ]
    },
};
