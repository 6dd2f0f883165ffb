//! Verbs about files: `config check`, `config explain`, `approve`, `import`, `connect`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gantry_engine::StopPolicy;
use gantry_model::spec::period;
use insta::assert_snapshot;
use serde_json::json;

use super::{settings, told};
use crate::config::{Folder, servers};

/// Runs a verb in a folder, and returns what it told.
fn run(folder: &Folder, arguments: &[&str]) -> String {
    told(&folder.run(arguments))
}

/// A folder with a file of somebody else's, and one in the person's home.
fn folder() -> Folder {
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
        warning: [home]/.kode.json:1: server `mine`: `odd` is not known and has no effect
        warning: `mine` at .mcp.json:1 is not approved and has no effect: the one at [home]/.kode.json:1 counts
        `.mcp.json` waits for approval: run `gantry approve .mcp.json`
        2 servers in 2 files, no mistakes
        --- exit 0
        ");
        folder.write(
            "bad.json",
            "{\"mcpServers\": {\"a\": {\"comand\": \"npx\"}}}",
        );
        assert_snapshot!(run(&folder, &["config", "check", "--config", "bad.json"]), @r#"
        warning: bad.json:1: server `a`: `comand` is not known and has no effect; did you mean `command`?
        --- stderr
        config.value

          × server `a`: `command` is missing
          ╭─[bad.json:1:17]
         1 │ {"mcpServers": {"a": {"comand": "***"}}}
          ·  ─┬─
          ·  ╰── this server
          ╰────
          help: a server over stdio needs `command`, the program to run; a remote one needs `url`
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
          "help": "a server over stdio needs `command`, the program to run; a remote one needs `url`"
          }
          ],
          "warnings": [
          "bad.json:1: server `a`: `comand` is not known and has no effect; did you mean `command`?"
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
fn config_explain() {
    let folder = folder();
    folder.write(
        "own.toml",
        "[gateway]\ndrain = \"5s\"\n[servers.a]\ncommand = \"npx\"\nargs = [\"--token\", \"hunter2\", \"${HOME}\"]\nenv = { A = \"hunter2\" }\n",
    );
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["config", "explain", "mine"]), @r#"
        mine
        KEY  VALUE  FROM
        shadow  needs_approval  `mine` at .mcp.json:1 is not approved and has no effect: the one at [home]/.kode.json:1 counts
        command  "uvx"  [home]/.kode.json:1
        args  ["mine"]  [home]/.kode.json:1
        odd  1  [home]/.kode.json:1
        type  stdio  default
        cwd  [home]/shop  default
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        allow_shell  false  default
        allow_env  none  default
        start  eager  default
        profile  local  default
        calls.concurrency  32  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  1m  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  reconnect  default
        life.stop_grace  10s  default
        life.restart.at_once  3  default
        life.restart.window  1m  default
        life.restart.ladder  5s, 15s, 45s, 2m, 5m  default
        life.restart.reset_after  10m  default
        tools.include  all  default
        tools.exclude  none  default
        tools.settings  none  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "--config", "own.toml", "--expose", "bare"]), @r#"
        gateway
        KEY  VALUE  FROM
        listen  [version].1  default
        port  the last one, else 4180 or the next free  default
        insecure_bind  false  default
        hosts  none beside the loopback names  default
        startup  parallel  default
        on_start_failure  isolate  default
        audit  os  default
        expose  bare  flag --expose
        on_collision  refuse  default
        drain  "5s"  own.toml:2
        kill_after  30s  default
        connections_per_address  5120  default

        a
        KEY  VALUE  FROM
        command  "npx"  own.toml:4
        args  ["--token","…","${HOME}"]  own.toml:5, variable `HOME` (set)
        env.A  (not shown)  own.toml:6
        type  stdio  default
        cwd  [home]/shop  default
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        allow_shell  false  default
        allow_env  none  default
        start  eager  default
        profile  local  default
        calls.concurrency  32  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  1m  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  reconnect  default
        life.stop_grace  10s  default
        life.restart.at_once  3  default
        life.restart.window  1m  default
        life.restart.ladder  5s, 15s, 45s, 2m, 5m  default
        life.restart.reset_after  10m  default
        tools.include  all  default
        tools.exclude  none  default
        tools.settings  none  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "nobody"]), @"
        --- stderr
        error: no server `nobody` in the files
        hint: `gantry config check` says what is wrong with a server that is left out
        --- exit 1
        ");
        folder.write("gantry.toml", "[servers");
        assert_snapshot!(run(&folder, &["config", "explain", "theirs"]), @r#"
        theirs
        KEY  VALUE  FROM
        state  needs_approval  `.mcp.json` is not approved; look at it and run `gantry approve .mcp.json`
        command  "npx"  .mcp.json:1
        args  ["-y","theirs","a b"]  .mcp.json:1
        env.TOKEN  (not shown)  .mcp.json:1
        cwd  "sub"  .mcp.json:1
        type  stdio  default
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        allow_shell  false  default
        allow_env  none  default
        start  eager  default
        profile  local  default
        calls.concurrency  32  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  1m  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  reconnect  default
        life.stop_grace  10s  default
        life.restart.at_once  3  default
        life.restart.window  1m  default
        life.restart.ladder  5s, 15s, 45s, 2m, 5m  default
        life.restart.reset_after  10m  default
        tools.include  all  default
        tools.exclude  none  default
        tools.settings  none  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "--config", "gantry.toml"]), @"
        --- stderr
        config.syntax

          × this is no TOML: unclosed table, expected `]`
          ╭─[gantry.toml:1:9]
         1 │ [servers
          ╰────
          help: write `key = value` lines under `[servers.NAME]` or `[gateway]`
        --- exit 2
        ");
    });
}

// fault P4
#[test]
fn config_explain_shows_how_stopping_is_bounded_by_default() {
    let told = run(&folder(), &["config", "explain"]);
    let words = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        words.map(str::to_owned).collect()
    };
    let stop = StopPolicy::default();
    for (key, time) in [("drain", stop.drain), ("kill_after", stop.kill_after)] {
        let row = told
            .lines()
            .map(words)
            .find(|row| row.first().is_some_and(|first| first == key));
        let wanted = [key, &period::show(time), "default"].map(str::to_owned);
        assert_eq!(row, Some(wanted.to_vec()), "{told}");
    }
}

#[test]
fn approve() {
    let folder = folder();
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["approve"]), @"
        .mcp.json asks for:
          mine: runs npx
          theirs: runs npx -y theirs 'a b', sets TOKEN, in sub
        --- stderr
        error: nobody is there to ask
        hint: if you want this to run, say `gantry approve --yes`
        --- exit 1
        ");
        assert_snapshot!(run(&folder, &["approve", "other.json"]), @"
        --- stderr
        error: `other.json` is no file that is found by itself
        hint: name it with `gantry up --config FILE`, which needs no approval
        --- exit 2
        ");
        assert_snapshot!(run(&folder, &["approve", "--yes", ".mcp.json"]), @"
        .mcp.json asks for:
          mine: runs npx
          theirs: runs npx -y theirs 'a b', sets TOKEN, in sub
        approved `.mcp.json`
        --- exit 0
        ");
        assert_snapshot!(run(&folder, &["approve"]), @"
        nothing waits for approval
        --- exit 0
        ");
        folder.write("gantry.toml", "[servers");
        assert_snapshot!(run(&folder, &["approve", "--yes", "gantry.toml"]), @"
        --- stderr
        config.syntax

          × this is no TOML: unclosed table, expected `]`
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
        ! `gantry.toml` holds the values of KEY as the clients had them: keep it to yourself, or write `${NAME}` for what is secret
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
        hint: mend it there; nothing was written
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
          `gantry` is in `[home]/.cursor/mcp.json`; what it was is in `[home]/.cursor/mcp.json.bak`
          Start Cursor anew, so that it reads its file.
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
        `gantry` is gone from `[home]/.cursor/mcp.json`; what it was is in `[home]/.cursor/mcp.json.bak.1`
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
        hint: mend it there; nothing was written
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
