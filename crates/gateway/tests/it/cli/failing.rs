//! Verbs that cannot do what they are asked: what they say, and with which code they end.

use std::fs;

use gantry_testkit::Evilpeer;
use insta::assert_snapshot;

use super::{alone, run, settings, stays_down, without_progress};
use crate::harness::{Gantry, LONG};

#[test]
fn without_a_gateway_every_verb_says_so_and_exits_with_3() {
    // The default folder is named after the working folder, here a new one each time.
    settings().bind(|| {
        assert_snapshot!(alone(&["status"]), @"
        --- stderr
        error: no gateway is running in `[home]`
        hint: start it with `gantry up`, or name another with `--data DIR` or `--url URL`
        --- exit 3
        ")
    });
    for verb in [
        &["tools"][..],
        &["call", "a__echo"],
        &["calls"],
        &["logs", "a"],
        &["logs", "a", "-f"],
        &["calls", "-f"],
        &["restart", "a"],
        &["add", "a", "--", "x"],
        &["auth", "a"],
        &["auth", "a", "--remove"],
        &["ls"],
        &["rm", "a"],
        &["key", "ls"],
        &["key", "new"],
        &["key", "revoke", "x"],
        &["agent", "ls"],
        &["agent", "new", "x"],
        &["agent", "rm", "x"],
        &["bench", "a__echo"],
        &["why", "x", "a__echo"],
        &["stdio", "--no-start"],
    ] {
        let told = alone(verb);
        assert!(
            told.starts_with("--- stderr\nerror: no gateway is running in `/"),
            "{told}"
        );
        assert!(told.ends_with("--- exit 3"), "{told}");
    }
    // Nobody listens there.
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("key");
    fs::write(&key, "gantry_admin_x").unwrap();
    let key = key.to_str().unwrap();
    settings().bind(|| {
        assert_snapshot!(alone(&["status", "--url", "http://127.0.0.1:1", "--key-file", key]), @"
        --- stderr
        error: no gateway answers at `[address]`
          because: Connection refused (os error 111)
        hint: start it with `gantry up`, or name another with `--data DIR` or `--url URL`
        --- exit 3
        ");
        assert_snapshot!(alone(&["status", "--url", "http://127.0.0.1:1", "--key-file", "/nowhere/key"]), @"
        --- stderr
        error: cannot read the key in `/nowhere/key`
          because: No such file or directory (os error 2)
        hint: name another with `--key-file FILE`
        --- exit 1
        ");
        assert_snapshot!(alone(&["status", "--url", "https://example.com", "--key-file", key]), @"
        --- stderr
        error: `https://example.com` is not the URL of a gateway
        hint: write for example `http://[address]`
        --- exit 2
        ");
    });
    let told = alone(&["doctor"]);
    assert!(
        told.contains("not running; start it with `gantry up`"),
        "{told}"
    );
    assert!(told.ends_with("--- exit 0"), "{told}");
}

#[test]
fn wrong_usage_exits_with_2() {
    settings().bind(|| {
        assert_snapshot!(alone(&["call"]), @"
        --- stderr
        error: the following required arguments were not provided:
          <TOOL> [ARGUMENT]...

        Usage: gantry call [OPTIONS] <TOOL> [--ARGUMENT VALUE | NAME=VALUE]...

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(alone(&["calls", "-n", "0"]), @"
        --- stderr
        error: invalid value '0' for '--limit <LIMIT>': 0 is not in 1..=1000

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(alone(&["fly"]), @"
        --- stderr
        error: unrecognized subcommand 'fly'

        Usage: gantry [OPTIONS] <COMMAND>

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(alone(&["up", "--drain", "soon"]), @"
        --- stderr
        error: invalid value 'soon' for '--drain <TIME>': write for example `500ms`, `10s` or `2m`

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(alone(&["tools", "--shape", "x"]), @"
        --- stderr
        error: invalid value 'x' for '--shape <SHAPE>'
          [possible values: mcp, anthropic, openai, openai-responses, gemini]

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(alone(&["bench", "--for", "1h", "a__echo"]), @"
        --- stderr
        error: invalid value '1h' for '--for <TIME>': write a time up to `10m`

        For more information, try '--help'.
        --- exit 2
        ");
        assert_snapshot!(alone(&["auth", "a", "--remove", "--again"]), @"
        --- stderr
        error: the argument '--remove' cannot be used with '--again'

        Usage: gantry auth --remove <SERVER>

        For more information, try '--help'.
        --- exit 2
        ");
    });
    let gantry = Gantry::start(&["a"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["call", "a__echo", "hello"]), @"
        --- stderr
        error: `hello` is not an argument
        hint: write `--name value` or `name=value`
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["call", "a__echo", "--json-args", "[1]"]), @"
        --- stderr
        error: `--json-args` must be a JSON object
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["call", "a__echo", "--json-args", "{"]), @"
        --- stderr
        error: `--json-args` is not valid JSON
          because: EOF while parsing an object at line 1 column 1
        --- exit 2
        ");
    });
    assert_eq!(
        gantry.audit_rows("").len(),
        0,
        "nothing was asked of the gateway"
    );
}

#[test]
fn what_the_gateway_refuses_exits_with_1_and_names_the_reason() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .server_with(
            "down",
            &Evilpeer::new().fault("crash-start=7"),
            &stays_down(),
        )
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry.wait_state("down", "failed", LONG);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["call", "a__nothing"]), @"
        --- stderr
        error: Unknown tool: a__nothing
          because: code `tool.unknown`
        hint: `gantry tools` lists what there is
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["call", "a__add", "a=one"]), @"
        --- stderr
        error: arguments of `add` do not fit its schema
          because: `/b`: required field `b` is missing
          because: `/a`: must be a number, not a string
          because: code `schema.input`
        hint: correct the named fields and call again
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["call", "a__fail", "message=no such file"]), @"
        no such file
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["call", "a__rpc_error", "code=7", "message=out of paper"]), @"
        --- stderr
        error: server `a` answered with error 7: out of paper
          because: code `server.error`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["call", "a__crash", "code=9"]), @"
        --- stderr
        error: server `a` exited during the call (exit code 9)
          because: code `server.exited`
        hint: it is not known whether the call took effect; nothing was retried
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["call", "down__echo", "text=x"]), @"
        --- stderr
        error: server `down` is down: backing off 60s: 1 failure within 60s: ended during the handshake: exit code 7; next try in [duration]
          because: code `server.down`
        hint: retry after its next try, or continue without it; `gantry status down` and `gantry logs down` say more
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["status", "nobody"]), @"
        --- stderr
        error: no server `nobody`
          because: code `server.unknown`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["logs", "../keys"]), @"
        --- stderr
        error: no server `../keys`
          because: code `server.unknown`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["restart", "nobody"]), @"
        --- stderr
        error: no server `nobody`
          because: code `server.unknown`
        --- exit 1
        ");
        assert_snapshot!(without_progress(&run(&gantry, &["restart", "down"])), @"
        error: server `down` is failed
          because: backing off 60s: 1 failure within 60s: ended during the handshake: exit code 7
          because: next try in [duration]
          because: it wrote: boom
        hint: `gantry logs down` and `gantry status down` say more
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["calls", "--status", "splendid"]), @"
        --- stderr
        error: invalid value 'splendid' for '--status <STATUS>'
          [possible values: ok, error, timeout, cancelled, refused, unknown, running]

        For more information, try '--help'.
        --- exit 2
        ");
    });
}

#[test]
fn a_wrong_key_exits_with_1() {
    let gantry = Gantry::start(&["a"]);
    let wrong = gantry.data().join("wrong.key");
    fs::write(&wrong, "gantry_admin_wrong\n").unwrap();
    let agent = gantry.data().join("keys/agent.key");
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["status", "--key-file", wrong.to_str().unwrap()]), @"
        --- stderr
        error: this key is not known, has expired, or was revoked
          because: code `auth.wrong_key`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["open", "--key-file", wrong.to_str().unwrap()]), @"
        --- stderr
        error: this key is not known, has expired, or was revoked
          because: code `auth.wrong_key`
        --- exit 1
        ");
        insta::allow_duplicates! {
            for verb in [
                &["restart", "a"][..],
                &["events"],
                &["events", "-f"],
                &["ls"],
                &["rm", "a"],
                &["add", "b", "--", "true"],
                &["key", "ls"],
                &["key", "new"],
                &["agent", "ls"],
                &["agent", "new", "b"],
                &["agent", "rm", "b"],
                &["why", "default", "a__echo"],
                &["logs", "a"],
                &["logs", "a", "-f"],
                &["auth", "a"],
            ] {
                let words = [&["--key-file", agent.to_str().unwrap()], verb].concat();
                assert_snapshot!(run(&gantry, &words), @"
                --- stderr
                error: this route needs an admin key
                  because: code `auth.agent_key`
                hint: name the file of an admin key with `--key-file`
                --- exit 1
                ");
            }
        }
    });
    assert_eq!(gantry.status("a")["restart_count"], 0);
}
