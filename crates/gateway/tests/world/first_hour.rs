//! Must show 3: the first hour of `docs/first-hour.md`, in a real terminal, with servers of other makers.

use serde_json::json;

use crate::harness::FirstHour;
use crate::parts::part;

// First hour 1 to 4
#[test]
fn the_first_hour_goes_as_it_is_told_with_servers_of_other_makers() {
    let node = part("node/node_modules/node/bin");
    let servers = part("servers/node_modules/.bin");
    let hour = FirstHour {
        files: (
            json!({"command": "mcp-server-filesystem", "args": ["."]}),
            "list_directory",
        ),
        extra: (
            json!({"command": "mcp-server-memory", "env": {"MEMORY_FILE_PATH": "${HOME}/memory.json"}}),
            "create_entities",
        ),
        notes: (json!({"command": "mcp-server-everything"}), "echo"),
        path: format!(
            "{}:{}:/usr/local/bin:/usr/bin:/bin",
            servers.display(),
            node.display()
        ),
    };
    hour.play();
}
