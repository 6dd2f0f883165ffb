//! Verbs that keep things: `add`, `ls`, `rm`, `key`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gantry_testkit::{Evilpeer, bin};
use insta::assert_snapshot;
use serde_json::Value;

use super::{run, settings, without_progress};
use crate::harness::{Gantry, LONG, PROGRAM};

#[test]
fn a_server_is_added_listed_and_removed() {
    // row 1.1
    let gantry = Gantry::start(&["a"]);
    let peer = bin::evilpeer();
    let peer = peer.to_str().unwrap();
    let added = run(
        &gantry,
        &["add", "mine", "--env", "A=1", "--", peer, "--name", "x"],
    );
    settings().bind(|| {
        assert_snapshot!(without_progress(&added), @"
        mine is ready, 19 tools
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["ls"]), @"
        SERVER  STATE  TOOLS  FROM  PROFILE  START  COMMAND
        a  ready  19  file  local  eager  [evilpeer]
        mine  ready  19  api  local  eager  [evilpeer]
        ! 3 resources of `mine` not listed at /mcp: another server offers the same URI (`gantry status mine`)
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["add", "mine", "--", peer]), @"
        --- stderr
        error: a server `mine` exists already
          because: code `server.exists`
        hint: remove it first: `gantry rm mine`, or DELETE /api/v1/mcp/servers/mine
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["add", "not a name", "--", peer]), @"
        --- stderr
        error: invalid value 'not a name' for '[NAME]': server name `not a name` contains ` `; allowed are letters, digits, `.`, `_` and `-`

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["add", "other", "--env", "=1", "--", peer]), @"
        --- stderr
        error: `=1` is not a variable
        hint: write `--env NAME=VALUE`
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["add", "other", "--env", "NOT_SET", "--", peer]), @"
        --- stderr
        error: there is no variable `NOT_SET` in the environment
        hint: set it first, or write `--env NOT_SET=VALUE`
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["add", "other"]), @"
        --- stderr
        error: the following required arguments were not provided:
          <URL>

        Usage: gantry add [OPTIONS] <NAME> -- <COMMAND> [ARGUMENT]...
          gantry add [OPTIONS] <NAME> <URL>
          gantry add [OPTIONS] <NAME> --image <IMAGE> [-- ARGUMENT...]
          gantry add [OPTIONS] [NAME] --from <FILE|URL|NAME[@VERSION]>

        For more information, try '--help'.
        --- exit 2
        ");
    });
    let status = gantry.status("mine");
    assert_eq!(status["spec"]["env"], serde_json::json!(["A"]));
    // A variable without a value has the one that it has here.
    let mut add = std::process::Command::new(PROGRAM);
    add.args(["add", "own", "--no-wait", "--env", "B", "--data"])
        .arg(gantry.data())
        .args(["--", peer])
        .env("B", "from here");
    assert!(add.output().unwrap().status.success());
    gantry.wait_state("own", "ready", LONG);
    let given = gantry.call("own__env", serde_json::json!({}));
    assert!(given.to_string().contains("from here"), "{given:#}");
    run(&gantry, &["rm", "own"]);
    let called = run(&gantry, &["call", "mine__env"]);
    assert!(called.ends_with("--- exit 0"), "{called}");
    let lazy = run(&gantry, &["add", "lazy", "--start", "lazy", "--", peer]);
    settings().bind(|| {
        assert_snapshot!(without_progress(&lazy), @"
        lazy is registered and starts with its first use
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["rm", "mine"]), @"
        mine is removed
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["rm", "mine"]), @"
        --- stderr
        error: no server `mine`
          because: code `server.unknown`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["rm", "lazy", "--json"]), @r#"
        {
          "removed": "lazy"
        }
        --- exit 0
        "#);
    });
    let list: Value = serde_json::from_slice(&gantry.cli(&["ls", "--json"]).stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_server_that_does_not_start_is_told_with_its_reason() {
    let gantry = Gantry::start(&[]);
    settings().bind(|| {
        let told = run(&gantry, &["add", "nowhere", "--", "/nowhere/at-all"]);
        assert_snapshot!(without_progress(&told), @"
        error: server `nowhere` is failed
          because: backing off 5s: 4 failures within 60s: program `/nowhere/at-all` not found (searched from `[home]/data/servers/nowhere`)
          because: next try in [duration]
          because: it stays registered and is tried again
        hint: `gantry logs nowhere` and `gantry status nowhere` say more
        --- exit 1
        ");
        let argv = Evilpeer::new().fault("crash-start=3").argv();
        let mut words = vec!["add", "crashing", "--"];
        words.extend(argv.iter().map(String::as_str));
        let told = without_progress(&run(&gantry, &words));
        assert!(told.contains("error: server `crashing` is "), "{told}");
        assert!(
            told.contains("it wrote: boom") && told.ends_with("--- exit 1"),
            "{told}"
        );
        assert_snapshot!(run(&gantry, &["ls"]).lines().next().unwrap(), @"SERVER  STATE  TOOLS  FROM  PROFILE  START  COMMAND");
    });
}

#[test]
fn a_remote_server_is_added_by_its_url() {
    let (far, gantry) = (Gantry::start(&["a"]), Gantry::start(&[]));
    let url = format!("http://{}/mcp", far.authority);
    let header = format!("Authorization=Bearer {}", far.agent);
    let words = ["add", "far", &url, "--header", &header];
    let mut settings = settings();
    // It may have been tried more than once.
    settings.add_filter(
        r"refused the connection; .*",
        "refused the connection; [next]",
    );
    settings.bind(|| {
        assert_snapshot!(without_progress(&run(&gantry, &words)), @"
        far is ready, 19 tools
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["ls"]), @"
        SERVER  STATE  TOOLS  FROM  PROFILE  START  COMMAND
        far  ready  19  api  remote  eager  http://[address]/mcp
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "far__a__echo", "text=hello"]), @"
        hello
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["add", "x", "example.com", "--no-wait"]), @"
        --- stderr
        error: invalid value 'example.com' for '[URL]': it has no scheme; a command goes after `--`: `gantry add NAME -- COMMAND`

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["add", "x", &url, "--header", "X"]), @"
        --- stderr
        error: `X` is not a header
        hint: write `--header NAME=VALUE`
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["add", "x", &url, "--", "true"]), @"
        --- stderr
        error: the argument '[URL]' cannot be used with '[COMMAND]...'

        Usage: gantry add [OPTIONS] <NAME> -- <COMMAND> [ARGUMENT]...
          gantry add [OPTIONS] <NAME> <URL>
          gantry add [OPTIONS] <NAME> --image <IMAGE> [-- ARGUMENT...]
          gantry add [OPTIONS] [NAME] --from <FILE|URL|NAME[@VERSION]>

        For more information, try '--help'.
        --- exit 2
        ");
        let nobody = without_progress(&run(&gantry, &["add", "nobody", "http://127.0.0.1:1/mcp"]));
        assert_snapshot!(nobody, @"
        error: server `nobody` is failed
          because: http://[address] refused the connection; [next]
          because: next try in [duration]
          because: it stays registered and is tried again
        hint: `gantry logs nobody` and `gantry status nobody` say more
        --- exit 1
        ");
    });
}

/// Lists the keys, with the address they were last used from as the other addresses.
fn keys_of(gantry: &Gantry) -> String {
    run(gantry, &["key", "ls"]).replace("127.0.0.1", "[address]")
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let gantry = Gantry::start(&["a"]);
    settings().bind(|| {
        assert_snapshot!(keys_of(&gantry), @"
        KEY  KIND  ROLE  AGENT  MADE  ENDS  LAST USED  FROM  LIMITS  LABEL
        [key]  admin  installation  operator  [time]  [time]  [address]  first start
        [key]  agent  default  [time]  first start
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["key", "new", "--label", "laptop"]), @"
        [agent key]
        --- stderr
        [key] for default
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["key", "new", "--agent", "not a name"]), @"
        --- stderr
        error: the name cannot be used: agent name `not a name` contains ` `; allowed are letters, digits, `.`, `_` and `-`
          because: code `name.invalid`
        --- exit 1
        ");
    });
    a_key_is_not_revoked(&gantry);
    let file = gantry.data().join("new.key");
    let made = gantry.cli(&["key", "new", "--json", "--out", file.to_str().unwrap()]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert!(made["key"].is_null(), "it is in the file only");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let with_key = ["tools", "--key-file", file.to_str().unwrap()];
    assert!(run(&gantry, &with_key).ends_with("--- exit 0"));
    // A file that is there is never written over, and no key is made in vain.
    let (out, other) = (file.to_str().unwrap(), gantry.data().join("other.key"));
    let other = other.to_str().unwrap();
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["key", "new", "--out", out]), @"
        --- stderr
        error: cannot write `[home]/data/new.key`
          because: File exists (os error 17)
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["key", "new", "--agent", "a b", "--out", other]), @"
        --- stderr
        error: the name cannot be used: agent name `a b` contains ` `; allowed are letters, digits, `.`, `_` and `-`
          because: code `name.invalid`
        --- exit 1
        ");
        assert!(
            !fs::exists(other).unwrap(),
            "no file is left where no key was made"
        );
        assert_snapshot!(run(&gantry, &["key", "new", "--label", "notebook", "--out", other]), @"
        [home]/data/other.key
        --- stderr
        [key] for default, written to
        --- exit 0
        ");
    });
    let id = made["id"].as_str().unwrap();
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["key", "revoke", id]), @"
        revoked [key]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["key", "revoke", id]), @"
        --- stderr
        error: no key `[key]`
        hint: `gantry key ls` lists the active keys by id
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &with_key), @"
        --- stderr
        error: this key is not known, has expired, or was revoked
          because: code `auth.wrong_key`
        --- exit 1
        ");
        assert_snapshot!(keys_of(&gantry), @"
        KEY  KIND  ROLE  AGENT  MADE  ENDS  LAST USED  FROM  LIMITS  LABEL
        [key]  admin  installation  operator  [time]  [time]  [address]  first start
        [key]  agent  default  [time]  first start
        [key]  agent  default  [time]  laptop
        [key]  agent  default  [time]  notebook
        --- exit 0
        ");
    });
}

/// Tries what no key is revoked by: what is no id, and the last key that can make others.
fn a_key_is_not_revoked(gantry: &Gantry) {
    let keys: Value = serde_json::from_slice(&gantry.cli(&["key", "ls", "--json"]).stdout).unwrap();
    let mut keys = keys["items"].as_array().unwrap().iter();
    let admin = keys.find(|key| key["kind"] == "admin").unwrap()["id"].as_str();
    settings().bind(|| {
        assert_snapshot!(run(gantry, &["key", "revoke", "laptop"]), @"
        --- stderr
        error: no key `laptop`
        hint: `gantry key ls` lists the active keys by id
        --- exit 1
        ");
        assert_snapshot!(run(gantry, &["key", "revoke", admin.unwrap()]), @"
        --- stderr
        error: this would end the last admin key
          because: code `key.last_admin`
        hint: make another admin key first: `gantry key new --admin`, or POST /api/v1/keys
        --- exit 1
        ");
    });
}
