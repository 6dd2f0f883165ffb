//! What `gantry stdio` says when something is wrong: with a line, with its gateway, with its key.

use std::fs;
use std::time::Duration;

use gantry_testkit::wait::eventually;
use insta::assert_snapshot;
use serde_json::json;
use tokio::time::Instant;

use super::{Client, let_go, text};
use crate::cli::{alone, run, settings};
use crate::harness::{Gantry, LONG};

#[test]
fn a_wrong_line_is_answered_and_costs_only_itself() {
    let gantry = Gantry::start(&["a"]);
    let mut client = Client::start(&gantry.data(), &[]);
    client.initialize("2025-11-25");
    client.line("");
    client.line("not json");
    assert_eq!(client.next(LONG).unwrap()["error"]["code"], -32700);
    client.line(r#"{"jsonrpc":"2.0","id":5,"method":"ping","id":5}"#);
    let twice = client.next(LONG).unwrap();
    assert_eq!(
        twice["error"]["data"]["code"], "wire.duplicate_key",
        "{twice:#}"
    );
    client.line(r#"{"jsonrpc":"2.0","id":6,"method":"ping","extra":1}"#);
    assert_eq!(client.next(LONG).unwrap()["id"], 6);
    let long = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"x": "y".repeat(5 << 20)}});
    let long = long
        .to_string()
        .replace(r#""id":7,"#, "")
        .replacen('{', r#"{"id":7,"#, 1);
    client.line(&long);
    let too_long = client.next(LONG).unwrap();
    assert_eq!(
        too_long["error"]["data"]["code"], "stdio.line",
        "{too_long:#}"
    );
    assert_eq!(too_long["id"], 7);
    assert_eq!(client.ask(json!(8), "ping", json!({}))["result"], json!({}));
}

#[test]
fn a_batch_goes_through_where_the_version_has_them() {
    let gantry = Gantry::start(&["a"]);
    let mut client = Client::start(&gantry.data(), &[]);
    client.initialize("2025-03-26");
    client.line(
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
    );
    let both = client.next(LONG).unwrap();
    assert_eq!(both.as_array().map(Vec::len), Some(2), "{both:#}");
}

#[test]
fn a_gateway_that_dies_is_told_at_once_and_found_again() {
    let mut gantry = Gantry::start(&["a"]);
    let data = gantry.data();
    let mut older = Client::start(&data, &[]);
    older.initialize("2025-11-25");
    let mut newer = Client::start(&data, &[]);
    let echo = |text: &str| json!({"name": "a__echo", "arguments": {"text": text}});
    assert_eq!(text(&older.ask(json!(1), "tools/call", echo("one"))), "one");
    // Who comes only after the death starts a gateway of its own.
    let first = newer.stateless(json!(1), "tools/call", echo("one"));
    assert_eq!(text(&first), "one");
    older.send(
        json!("cut"),
        "tools/call",
        json!({"name": "a__slow", "arguments": {"ms": 60_000}}),
    );
    gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
    gantry.kill();
    let cut = older.answer(&json!("cut"));
    assert_eq!(cut["error"]["data"]["code"], "stdio.cut", "{cut:#}");
    let_go(&gantry.authority);
    for client in [&mut older, &mut newer] {
        let asked = Instant::now();
        let down = client.stateless(json!(2), "tools/call", echo("two"));
        let took = asked.elapsed();
        assert_eq!(down["error"]["data"]["code"], "stdio.down", "{down:#}");
        // At once, and not after the time of a call or of a start.
        assert!(took < Duration::from_secs(5), "told after {took:?}");
    }
    // On another port, with sessions forgotten.
    let gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    assert_eq!(
        text(&older.ask(json!(3), "tools/call", echo("three"))),
        "three"
    );
    assert_eq!(
        text(&newer.stateless(json!(3), "tools/call", echo("three"))),
        "three"
    );
    assert_eq!(
        gantry.audit_rows("tool=echo&status=ok").len(),
        4,
        "nothing was sent twice"
    );
}

#[test]
fn a_wrong_key_is_an_answer_and_a_missing_gateway_an_exit_code() {
    let gantry = Gantry::start(&["a"]);
    let wrong = gantry.data().join("wrong.key");
    fs::write(&wrong, "gantry_agent_wrong\n").unwrap();
    let mut client = Client::start(&gantry.data(), &["--key-file", wrong.to_str().unwrap()]);
    let refused = client.stateless(json!("x"), "tools/list", json!({}));
    assert_snapshot!(refused, @r#"{"jsonrpc":"2.0","id":"x","error":{"code":-31401,"message":"this key is not known, has expired, or was revoked","data":{"code":"auth.wrong_key"}}}"#);
    assert!(client.close().success());
    fs::write(&wrong, "two\nlines\n").unwrap();
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["stdio", "--key-file", wrong.to_str().unwrap()]), @"
        --- stderr
        error: the key file does not contain a key
        hint: name another with `--key-file FILE`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["stdio", "--key-file", "/nowhere/key"]), @"
        --- stderr
        error: cannot read the key in `/nowhere/key`
          because: No such file or directory (os error 2)
        hint: name another with `--key-file FILE`
        --- exit 1
        ");
        assert_snapshot!(alone(&["stdio", "--no-start"]), @"
        --- stderr
        error: no gateway is running in `[home]`
        hint: start it with `gantry up`, or name another with `--data DIR` or `--url URL`
        --- exit 3
        ");
        assert_snapshot!(alone(&["stdio", "--folder", "/nowhere"]), @"
        --- stderr
        error: cannot use the folder `/nowhere`
          because: No such file or directory (os error 2)
        --- exit 2
        ");
        assert_snapshot!(alone(&["stdio", "--server", "a b"]), @"
        --- stderr
        error: invalid value 'a b' for '--server <NAME>': server name `a b` contains ` `; allowed are letters, digits, `.`, `_` and `-`

        For more information, try '--help'.
        --- exit 2
        ");
    });
}

#[test]
fn it_ends_when_it_is_told_to_and_takes_its_calls_back() {
    let gantry = Gantry::start(&["a"]);
    let mut client = Client::start(&gantry.data(), &[]);
    client.initialize("2025-11-25");
    client.send(
        json!(1),
        "tools/call",
        json!({"name": "a__slow", "arguments": {"ms": 60_000}}),
    );
    gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
    client.signal(rustix::process::Signal::TERM);
    assert!(client.ended(Duration::from_secs(5)).success());
    let free = || gantry.status("a")["queue"]["in_flight"] == 0;
    assert!(eventually(LONG, free).is_some());
}
