//! Verbs about files: `config check`, `approve`, `import`, `connect`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::json;

use super::{settings, told};
use crate::config::{Folder, servers};

/// Runs a verb in a folder, and returns what it told.
pub(super) fn run(folder: &Folder, arguments: &[&str]) -> String {
    told(&folder.run(arguments))
}

/// A folder with a file of somebody else's, and one in the person's home.
pub(super) fn folder() -> Folder {
    let folder = Folder::new();
    let mine = servers(&[(
        "mine",
        json!({"command": "uvx", "args": ["mine"], "odd": 1}),
    )]);
    fs::write(folder.home().join(".kode.json"), mine).unwrap();
    folder.write(
        ".mcp.json",
        &servers(&[
            ("mine", json!({"command": "npx"})),
            (
                "theirs",
                json!({"command": "npx", "args": ["-y", "theirs", "a b"], "env": {"TOKEN": "hunter2"}, "cwd": "sub"}),
            ),
        ]),
    );
    folder
}

/// The person's file of another client.
fn cursor(folder: &Folder, text: &str) {
    let file = folder.home().join(".cursor/mcp.json");
    fs::create_dir_all(folder.home().join(".cursor")).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn config_check() {
    let folder = folder();
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["config", "check"]), @"
        warning: [home]/.kode.json:1:56: server `mine`: `odd` is not known and has no effect
        warning: `mine` at .mcp.json:1 is not approved and has no effect: the one at [home]/.kode.json:1 counts
        `.mcp.json` needs approval: run `gantry approve .mcp.json`
        2 servers in 2 files, no errors
        --- exit 0
        ");
        folder.write(
            "bad.json",
            "{\"mcpServers\": {\"a\": {\"comand\": \"npx\"}}}",
        );
        assert_snapshot!(run(&folder, &["config", "check", "--config", "bad.json"]), @r#"
        warning: bad.json:1:23: server `a`: `comand` is not known and has no effect; did you mean `command`?
        --- stderr
        config.value

          × server `a`: `command` is missing
          ╭─[bad.json:1:17]
         1 │ {"mcpServers": {"a": {"******": "***"}}}
          ·  ─┬─
          ·  ╰── this server
          ╰────
          help: a server needs `command`, the program to run, `image`, or the `url` of a remote one
        --- exit 2
        "#);
        assert_snapshot!(run(&folder, &["config", "check", "--config", "bad.json", "--json"]), @r#"
        {
          "ok": false,
          "files": [
          "bad.json"
          ],
          "servers": [],
          "mistakes": [
          {
          "file": "bad.json",
          "line": 1,
          "column": 17,
          "code": "config.value",
          "server": "a",
          "message": "bad.json:1:17: server `a`: `command` is missing",
          "help": "a server needs `command`, the program to run, `image`, or the `url` of a remote one"
          }
          ],
          "warnings": [
          "bad.json:1:23: server `a`: `comand` is not known and has no effect; did you mean `command`?"
          ]
        }
        --- exit 2
        "#);
        assert_snapshot!(run(&folder, &["config", "check", "--config", "none.json"]), @"
        --- stderr
        config.read

          × none.json: the configuration file cannot be read
          ╰─▶ No such file or directory (os error 2)
        --- exit 2
        ");
    });
}

#[test]
fn approve() {
    let folder = folder();
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["approve"]), @r#"
        .mcp.json asks for:
          mine: runs npx
          theirs: runs npx -y theirs 'a b', sets TOKEN, in sub
          env.TOKEN = "hunter2"
        this folder asks to be trusted:
          mine: would run in this folder and may execute code found in it (server from your home configuration)
        --- stderr
        error: not a terminal: pass `--yes`
        hint: to approve it, run `gantry approve --yes`
        --- exit 1
        "#);
        assert_snapshot!(run(&folder, &["approve", "other.json"]), @"
        --- stderr
        error: `other.json` is not one of the discovered files
        hint: name it with `gantry up --config FILE`, which needs no approval
        --- exit 2
        ");
        assert_snapshot!(run(&folder, &["approve", "--yes", ".mcp.json"]), @r#"
        .mcp.json asks for:
          mine: runs npx
          theirs: runs npx -y theirs 'a b', sets TOKEN, in sub
          env.TOKEN = "hunter2"
        this folder asks to be trusted:
          mine: would run in this folder and may execute code found in it (server from your home configuration)
        approved `.mcp.json`
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["approve"]), @"
        nothing needs approval
        --- exit 0
        ");
        folder.write("gantry.toml", "[servers");
        assert_snapshot!(run(&folder, &["approve", "--yes", "gantry.toml"]), @"
        --- stderr
        config.syntax

          × invalid TOML: unclosed table, expected `]`
          ╭─[gantry.toml:1:9]
         1 │ [servers
          ╰────
          help: write `key = value` lines under `[servers.NAME]` or `[gateway]`
        --- exit 2
        ");
    });
}

#[test]
fn import() {
    let folder = Folder::new();
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["import"]), @"
        no client with servers is found; name a file: `gantry import FILE`
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["import", "cursor"]), @"
        --- stderr
        error: no servers of Cursor are found
          because: there are none in `[home]/shop/.cursor/mcp.json`
          because: there are none in `[home]/.cursor/mcp.json`
        hint: name the file: `gantry import FILE`
        --- exit 1
        ");
        let entry = json!({"command": "npx", "args": ["-y", "x", "--token=hunter2"], "env": {"KEY": "hunter2"}});
        cursor(&folder, &servers(&[("a b", entry)]));
        assert_snapshot!(run(&folder, &["import"]), @"
        CLIENT  SCOPE  FILE  SERVERS
        cursor  user  [home]/.cursor/mcp.json  a b

        Take them over with `gantry import CLIENT` or `gantry import --all`; `--dry-run` shows what would change.
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["import", "cursor", "--dry-run"]), @r##"
        Cursor [home]/.cursor/mcp.json

          SERVER  COMMAND  VARIABLES
          a-b  added  npx -y x --token=…  KEY
          ! `a b`: it is called `a-b` here

        --- gantry.toml
        +++ gantry.toml
        @@ -0,0 +1,9 @@
        +[servers.a-b]
        +command = "npx"
        +args = ["-y", "x", "--token=…"]
        +
        +[servers.a-b.env]
        +KEY = "…"
        +
        +[servers.a-b.x-cursor]
        +"#name" = "a b"

        `gantry.toml` would be changed as shown; values of variables are hidden
        --- exit 0
        "##);
        assert_snapshot!(run(&folder, &["import", "cursor"]), @"
        Cursor [home]/.cursor/mcp.json

          SERVER  COMMAND  VARIABLES
          a-b  added  npx -y x --token=…  KEY
          ! `a b`: it is called `a-b` here

        `gantry.toml` is written
        ! `gantry.toml` contains the values of KEY as the clients had them: keep it to yourself, or write `${NAME}` for what is secret
        Start the servers with `gantry up`.
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["import", "cursor"]), @"
        Cursor [home]/.cursor/mcp.json

          SERVER  COMMAND  VARIABLES
          a-b  unchanged  npx -y x --token=…  KEY
          ! `a b`: it is called `a-b` here

        `gantry.toml` has all of it already; nothing was changed
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["import", "--back", "vscode"]), @r#"
        {
          "servers": {
          "a-b": {
          "type": "stdio",
          "command": "npx",
          "args": [
          "-y",
          "x",
          "--token=hunter2"
          ],
          "env": {
          "KEY": "hunter2"
          }
          }
          }
        }
        --- exit 0
        "#);
        cursor(&folder, "{\"mcpServers\": {\"a\": {\"env\": {\"KEY\": \"hunter2\" ]");
        assert_snapshot!(run(&folder, &["import", "cursor"]), @"
        --- stderr
        error: [home]/.cursor/mcp.json:1:48: unexpected token in object
        hint: fix it there; nothing was written
        --- exit 1
        ");
        assert_snapshot!(run(&folder, &["import", "nothing.json"]), @"
        --- stderr
        error: `nothing.json` is neither a client nor a file
        hint: the clients are claude-desktop, claude-code, cursor, vscode, cline, roo, kilo, gemini, kode, copilot
        --- exit 2
        ");
        assert_snapshot!(run(&folder, &["import", "--back", "emacs"]), @"
        --- stderr
        error: invalid value 'emacs' for '--back <CLIENT>': the clients are claude-desktop, claude-code, cursor, vscode, cline, roo, kilo, gemini, kode, copilot

        For more information, try '--help'.
        --- exit 2
        ");
    });
}

#[test]
fn connect() {
    let mut folder = Folder::new();
    cursor(&folder, "{\n  // mine\n  \"mcpServers\": {}\n}\n");
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["connect", "cursor"]), @"
        --- stderr
        error: no gateway is running in `[home]/data`
        hint: start it with `gantry up`, or connect with `--stdio`, which starts one when needed
        --- exit 3
        ");
        folder.up(&[]);
        folder.wait("example", "ready");
        assert_snapshot!(run(&folder, &["connect", "cursor", "--dry-run"]), @r#"
        --- [home]/.cursor/mcp.json
        +++ [home]/.cursor/mcp.json
        @@ -1,4 +1,11 @@
         {
          // mine
        -  "mcpServers": {}
        +  "mcpServers": {
        +  "gantry": {
        +  "url": "http://[address]/mcp",
        +  "headers": {
        +  "Authorization": "…"
        +  }
        +  }
        +  }
         }
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["connect", "cursor"]), @"
        ✓ Cursor is connected over HTTP at http://[address]/mcp
          `gantry` is in `[home]/.cursor/mcp.json`; backup in `[home]/.cursor/mcp.json.bak`
          Restart Cursor to load the change.
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["connect", "cursor"]), @"
        Cursor is connected already over HTTP at http://[address]/mcp; nothing was changed
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["connect", "claude-desktop", "--scope", "local"]), @"
        --- stderr
        error: Claude Desktop has no file for the scope `local`
        hint: leave out `--scope`
        --- exit 2
        ");
        assert_snapshot!(run(&folder, &["connect", "cursor", "--remove"]), @"
        `gantry` was removed from `[home]/.cursor/mcp.json`; backup in `[home]/.cursor/mcp.json.bak.1`
        ✓ its key is revoked
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["connect", "cursor", "--remove"]), @"
        there is no `gantry` in `[home]/.cursor/mcp.json`; nothing was changed
        --- exit 0
        ");
        cursor(
            &folder,
            "{\"mcpServers\": {\"gantry\": {\"command\": \"other\"}}}",
        );
        assert_snapshot!(run(&folder, &["connect", "cursor"]), @"
        --- stderr
        error: `gantry` in `[home]/.cursor/mcp.json` is another server
        hint: choose another with `--name NAME`
        --- exit 1
        ");
        cursor(&folder, "{\"mcpServers\": [");
        assert_snapshot!(run(&folder, &["connect", "cursor"]), @"
        --- stderr
        error: [home]/.cursor/mcp.json:1:16: unterminated array
        hint: fix it there; nothing was written
        --- exit 1
        ");
        assert_snapshot!(run(&folder, &["connect", "emacs"]), @"
        --- stderr
        error: invalid value 'emacs' for '[CLIENT]': the clients are claude-desktop, claude-code, cursor, vscode, cline, roo, kilo, gemini, kode, copilot

        For more information, try '--help'.
        --- exit 2
        ");
    });
}
