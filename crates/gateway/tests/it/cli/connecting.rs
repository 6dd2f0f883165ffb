//! `gantry connect` without a client, and with `--stdio`; `gantry import --all`.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use super::told;
use crate::config::{Folder, servers};

fn run(folder: &Folder, arguments: &[&str]) -> String {
    told(&folder.run(arguments))
}

/// Makes the place of the program the same, too.
fn settings() -> insta::Settings {
    let mut settings = super::settings();
    settings.add_filter(r#"/[^ `"]*/gantry\b"#, "[gantry]");
    settings
}

/// Writes a file of a client in the person's home.
fn client(folder: &Folder, path: &str, text: &str) {
    let path = folder.home().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn connect_lists_the_clients_that_are_here() {
    let folder = Folder::new();
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["connect"]), @"
        no client is found; known are claude-desktop, claude-code, cursor, vscode, cline, roo, kilo, gemini, kode, copilot
        --- exit 0
        ");
        client(&folder, ".cursor/mcp.json", "{}");
        client(&folder, ".gemini/settings.json", "{\"mcpServers\": [");
        fs::create_dir_all(folder.home().join(".config/Claude")).unwrap();
        run(&folder, &["connect", "cursor", "--stdio"]);
        assert_snapshot!(run(&folder, &["connect"]), @"
        CLIENT  SCOPE  GANTRY  FILE
        claude-desktop  user  not connected  [home]/.config/Claude/claude_desktop_config.json
        cursor  user  `gantry`, stdio  [home]/.cursor/mcp.json
        gemini  user  cannot be read: [home]/.gemini/settings.json:1:16: unterminated array  [home]/.gemini/settings.json

        Connect one with `gantry connect CLIENT`; `--dry-run` shows what would change.
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["connect", "--json"]), @r#"
        {
          "items": [
          {
          "client": "claude-desktop",
          "title": "Claude Desktop",
          "scope": "user",
          "path": "[home]/.config/Claude/claude_desktop_config.json",
          "connections": [],
          "error": null
          },
          {
          "client": "cursor",
          "title": "Cursor",
          "scope": "user",
          "path": "[home]/.cursor/mcp.json",
          "connections": [
          {
          "name": "gantry",
          "way": "stdio",
          "args": [
          "stdio",
          "--folder",
          "[home]/shop",
          "--data",
          "[home]/data"
          ]
          }
          ],
          "error": null
          },
          {
          "client": "gemini",
          "title": "Gemini CLI",
          "scope": "user",
          "path": "[home]/.gemini/settings.json",
          "connections": [],
          "error": "[home]/.gemini/settings.json:1:16: unterminated array"
          }
          ]
        }
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["connect", "--stdio"]), @"
        --- stderr
        error: the following required arguments were not provided:
          <CLIENT>

        Usage: gantry connect --stdio <CLIENT>

        For more information, try '--help'.
        --- exit 2
        ");
    });
}

#[test]
fn connect_over_stdio_needs_no_gateway() {
    let folder = Folder::new();
    client(
        &folder,
        ".cursor/mcp.json",
        "{\n  // mine\n  \"mcpServers\": {}\n}\n",
    );
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["connect", "cursor", "--stdio", "--dry-run"]), @r#"
        --- [home]/.cursor/mcp.json
        +++ [home]/.cursor/mcp.json
        @@ -1,4 +1,9 @@
         {
          // mine
        -  "mcpServers": {}
        +  "mcpServers": {
        +  "gantry": {
        +  "command": "[gantry]",
        +  "args": ["stdio", "--folder", "[home]/shop", "--data", "[home]/data"]
        +  }
        +  }
         }
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["connect", "cursor", "--stdio"]), @"
        ✓ Cursor is connected by starting `gantry stdio`
          `gantry` is in `[home]/.cursor/mcp.json`; backup in `[home]/.cursor/mcp.json.bak`
          Restart Cursor to load the change.
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["connect", "cursor", "--stdio"]), @"
        Cursor is connected already by starting `gantry stdio`; nothing was changed
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["connect", "cursor", "--stdio", "--json"]), @r#"
        {
          "client": "cursor",
          "scope": "user",
          "path": "[home]/.cursor/mcp.json",
          "name": "gantry",
          "way": "stdio",
          "url": null,
          "written": false,
          "backup": null,
          "key_made": false,
          "closed_to_others": false,
          "copies_cleaned": [],
          "keys_revoked": null,
          "old_key": "none",
          "replaces": null,
          "also_direct": [],
          "diff": null
        }
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["connect", "cursor", "--remove", "--json"]), @r#"
        {
          "client": "cursor",
          "scope": "user",
          "path": "[home]/.cursor/mcp.json",
          "name": "gantry",
          "written": true,
          "backup": "[home]/.cursor/mcp.json.bak.1",
          "keys_revoked": null,
          "old_key": "none",
          "copies_cleaned": [],
          "diff": null
        }
        --- exit 0
        "#);
        client(&folder, ".cursor/mcp.json", "{\"mcpServers\": 5}");
        assert_snapshot!(run(&folder, &["connect", "cursor", "--stdio"]), @"
        --- stderr
        error: [home]/.cursor/mcp.json:1:1: the path to the servers is not an object
        hint: fix it there; nothing was written
        --- exit 1
        ");
    });
}

#[test]
fn import_takes_everything_that_is_found() {
    let folder = Folder::new();
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["import", "--all"]), @"
        --- stderr
        error: no client with servers is found on this machine
        hint: name a file: `gantry import FILE`
        --- exit 1
        ");
        let one = servers(&[("one", json!({"command": "npx", "args": ["-y", "one"]}))]);
        client(&folder, ".cursor/mcp.json", &one);
        let two = json!({"url": "https://example.com/mcp", "headers": {"X-Key": "hunter2"}});
        client(&folder, ".gemini/settings.json", &servers(&[("two", two)]));
        assert_snapshot!(run(&folder, &["import", "--all", "--dry-run"]), @r#"
        Cursor [home]/.cursor/mcp.json

          SERVER  COMMAND  VARIABLES
          one  added  npx -y one

        Gemini CLI [home]/.gemini/settings.json

          SERVER  COMMAND  VARIABLES
          two  added  https://example.com/mcp  X-Key

        --- gantry.toml
        +++ gantry.toml
        @@ -0,0 +1,10 @@
        +[servers.one]
        +command = "npx"
        +args = ["-y", "one"]
        +
        +[servers.two]
        +type = "sse"
        +url = "https://example.com/mcp"
        +
        +[servers.two.headers]
        +X-Key = "…"

        `gantry.toml` would be changed as shown; values of variables are hidden
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["import", "--all", "--json"]), @r#"
        {
          "file": "gantry.toml",
          "written": true,
          "backup": null,
          "sources": [
          {
          "client": "cursor",
          "scope": "user",
          "path": "[home]/.cursor/mcp.json"
          },
          {
          "client": "gemini",
          "scope": "user",
          "path": "[home]/.gemini/settings.json"
          }
          ],
          "servers": [
          {
          "name": "one",
          "original": "one",
          "outcome": "added",
          "reason": null,
          "source": 0,
          "command": "npx -y one",
          "variables": [],
          "notes": []
          },
          {
          "name": "two",
          "original": "two",
          "outcome": "added",
          "reason": null,
          "source": 1,
          "command": "https://example.com/mcp",
          "variables": [
          "X-Key"
          ],
          "notes": []
          }
          ],
          "diff": null
        }
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["import", "--all"]), @"
        Cursor [home]/.cursor/mcp.json

          SERVER  COMMAND  VARIABLES
          one  unchanged  npx -y one

        Gemini CLI [home]/.gemini/settings.json

          SERVER  COMMAND  VARIABLES
          two  unchanged  https://example.com/mcp  X-Key

        `gantry.toml` has all of it already; nothing was changed
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["import", "--all", "cursor"]), @"
        --- stderr
        error: the argument '--all' cannot be used with '[CLIENT|FILE]...'

        Usage: gantry import --all [CLIENT|FILE]...

        For more information, try '--help'.
        --- exit 2
        ");
        client(&folder, ".gemini/settings.json", "{");
        assert_snapshot!(run(&folder, &["import", "--all"]), @"
        --- stderr
        error: [home]/.gemini/settings.json:1:1: unterminated object
        hint: fix it there; nothing was written
        --- exit 1
        ");
    });
}
