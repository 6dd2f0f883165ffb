//! Kode: `~/.kode.json` for all folders and for one, `.kode.json` and `.mcprc` in a folder. It sends
//! no headers, so that it reaches a server that wants a key only as a command.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Client, Http, Place, Scope};

pub(super) const CLIENT: Client = Client {
    id: "kode",
    title: "Kode",
    root: "mcpServers",
    dialect: Dialect {
        timeout: Unit::Milliseconds,
        stdio_type: None,
        streamable: "http",
        untyped: Untyped::Either,
        http_member: None,
        tools: Tools::Unknown,
        dollar: false,
    },
    http: Http::No,
    endings: &[".kode.json", ".mcprc"],
    places: |at| {
        let own = at.home.join(".kode.json");
        let here = at.folder_name();
        vec![
            Place::new(
                Scope::Local,
                own.clone(),
                &["projects", &here, "mcpServers"],
            ),
            Place::new(Scope::Project, at.folder.join(".mcprc"), &[]),
            Place::new(
                Scope::Project,
                at.folder.join(".kode.json"),
                &["mcpServers"],
            ),
            Place::new(Scope::User, own, &["mcpServers"]),
        ]
    },
};
