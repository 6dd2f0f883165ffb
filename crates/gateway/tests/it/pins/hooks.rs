//! Content hooks: a command and an endpoint that see requests and results.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use gantry_testkit::journal::Journal;
use gantry_testkit::{Era, Evilpeer, fixture};
use serde_json::{Value, json};

use super::key_of;
use crate::faults_client::Posted;
use crate::harness::{Gantry, LONG};

/// Writes a program that reads its input and answers with what the shell makes of it.
fn program(folder: &Path, name: &str, script: &str) -> PathBuf {
    let path = folder.join(name);
    let text = format!("#!/bin/sh\ninput=$(cat)\n{script}\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn set(gantry: &Gantry, name: &str, hook: &Value) {
    let set = gantry.rest("PUT", &format!("/api/v1/hooks/{name}"), Some(hook));
    assert_eq!(set.status, 200, "{}", set.text());
}

fn echo(gantry: &Gantry, text: &str) -> crate::harness::Answer {
    let body = json!({"name": "a__echo", "arguments": {"text": text}});
    gantry.rest_as(&gantry.agent, "POST", "/api/v1/tools/call", Some(&body))
}

fn said(answer: &crate::harness::Answer) -> String {
    let text = answer.json()["result"]["content"][0]["text"].clone();
    text.as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_command_refuses_replaces_and_fails_closed_or_open() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let script = r#"case "$input" in
        *forbidden*) echo '{"decision":"refuse","reason":"not that word"}' ;;
        *change*) echo '{"decision":"replace","arguments":{"text":"changed"}}' ;;
        *spoil*) echo '{"decision":"replace","arguments":{"text":7}}' ;;
        *nonsense*) echo 'what?' ;;
        *crash*) exit 3 ;;
        *linger*) sleep 60 ;;
    esac"#;
    let check = program(folder.path(), "check", script);
    let hook = |failure: &str| {
        json!({"on": "request", "command": check, "tools": ["a:echo"], "timeout": "2s",
            "on_failure": failure})
    };
    set(&gantry, "check", &hook("refuse"));
    assert_eq!(said(&echo(&gantry, "hello")), "hello");
    assert_eq!(said(&echo(&gantry, "change")), "changed");
    let before = Journal::read(&journal).unwrap().calls();
    let refused = echo(&gantry, "forbidden");
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (403, Some("hook.refused"))
    );
    assert!(
        refused.text().contains("not that word"),
        "{}",
        refused.text()
    );
    let over_mcp = gantry.call("a__echo", json!({"text": "forbidden"}));
    assert_eq!(
        over_mcp["error"]["data"]["code"], "hook.refused",
        "{over_mcp}"
    );
    // What replaces arguments must fit the schema as well.
    let spoiled = echo(&gantry, "spoil");
    assert_eq!(spoiled.json()["code"], "schema.input", "{}", spoiled.text());
    for text in ["nonsense", "crash", "linger"] {
        let failed = echo(&gantry, text);
        assert_eq!(
            (failed.status, failed.json()["code"].as_str()),
            (502, Some("hook.failed")),
            "{text}"
        );
    }
    assert_eq!(
        Journal::read(&journal).unwrap().calls(),
        before,
        "nothing of that was sent"
    );
    let rows = gantry.audit_rows("tool=echo");
    let codes: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| {
            (
                row["status"].as_str().unwrap(),
                row["code"].as_str().unwrap_or(""),
            )
        })
        .collect();
    assert_eq!(
        codes,
        [
            ("ok", ""),
            ("ok", ""),
            ("refused", "hook.refused"),
            ("refused", "hook.refused"),
            ("refused", "schema.input"),
            ("refused", "hook.failed"),
            ("refused", "hook.failed"),
            ("refused", "hook.failed"),
        ]
    );
    // Other tools are not its business, and it may fail open.
    assert!(gantry.call("a__add", json!({"a": 1, "b": 2}))["result"].is_object());
    set(&gantry, "check", &hook("pass"));
    assert_eq!(said(&echo(&gantry, "crash")), "crash");
    // Who may not manage the project sets no hook, and the registration policy holds for it.
    let operator = key_of(&gantry, "operator");
    let denied = gantry.rest_as(&operator, "PUT", "/api/v1/hooks/x", Some(&hook("pass")));
    assert_eq!(denied.status, 403);
    let policy = json!({"registration.commands": ["/usr/bin/only"]});
    assert_eq!(
        gantry
            .rest("PATCH", "/api/v1/settings", Some(&policy))
            .status,
        200
    );
    let refused = gantry.rest("PUT", "/api/v1/hooks/x", Some(&hook("pass")));
    assert_eq!(
        refused.json()["code"],
        "registration.refused",
        "{}",
        refused.text()
    );
    assert_eq!(
        gantry.rest("DELETE", "/api/v1/hooks/check", None).status,
        204
    );
    assert_eq!(said(&echo(&gantry, "forbidden")), "forbidden");
}

/// Serves one answer for each connection, a body or all of it, and returns where.
fn endpoint(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let (mut request, mut buffer) = (String::new(), [0; 65_536]);
            loop {
                let read = connection.read(&mut buffer).unwrap_or(0);
                request.push_str(&String::from_utf8_lossy(&buffer[..read]));
                let body = request
                    .split_once("\r\n\r\n")
                    .map(|(_, body)| body.to_owned());
                if read == 0 || body.is_some_and(|body| body.ends_with('}')) {
                    break;
                }
            }
            let body = answer(&request);
            let head = match body.starts_with("HTTP/") {
                true => String::new(),
                false => format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                ),
            };
            connection
                .write_all(format!("{head}{body}").as_bytes())
                .ok();
        }
    });
    url
}

#[test]
fn an_endpoint_sees_results_and_may_replace_them() {
    let gantry = Gantry::builder().server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    let url = endpoint(|request| {
        if request.contains("4111") {
            r#"{"decision":"replace","result":{"content":[{"type":"text","text":"a card [hidden]"}]}}"#.to_owned()
        } else if request.contains("secret plan") {
            r#"{"decision":"refuse","reason":"not for you"}"#.to_owned()
        } else if request.contains("\"sum\"") {
            r#"{"decision":"replace","result":{"content":[],"structuredContent":{"sum":"x"}}}"#
                .to_owned()
        } else if request.contains("queued") {
            "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
        } else {
            String::new()
        }
    });
    set(&gantry, "mask", &json!({"on": "result", "url": url}));
    assert_eq!(said(&echo(&gantry, "plain")), "plain");
    assert_eq!(said(&echo(&gantry, "card 4111 1111")), "a card [hidden]");
    let refused = echo(&gantry, "the secret plan");
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (403, Some("hook.refused"))
    );
    assert!(!refused.text().contains("secret plan"));
    let rows = gantry.audit_rows("tool=echo&status=error");
    assert_eq!(rows.len(), 1, "the call was made: {rows:?}");
    // An endpoint that has only taken the question has decided nothing.
    let failed = echo(&gantry, "queued").json();
    assert_eq!(failed["code"], "hook.failed");
    assert!(
        failed["detail"].as_str().unwrap().contains("hook"),
        "{failed}"
    );
    // What replaces a result must fit the output schema as well.
    let spoiled = gantry.call("a__add", json!({"a": 1, "b": 2}));
    assert_eq!(
        spoiled["error"]["data"]["code"], "schema.output",
        "{spoiled}"
    );
    // The error of a server is another way to pass on the same.
    let error = gantry.call("a__rpc_error", json!({"code": 7, "message": "card 4111"}));
    assert_eq!(error["error"]["message"], "a card [hidden]", "{error}");
    assert!(!error.to_string().contains("as asked"), "{error}");
    let error = gantry.call(
        "a__rpc_error",
        json!({"code": 7, "message": "the secret plan"}),
    );
    assert_eq!(error["error"]["data"]["code"], "hook.refused", "{error}");
    assert!(!error.to_string().contains("secret plan"), "{error}");
    let error = gantry.call("a__rpc_error", json!({"code": 7, "message": "plain"}));
    assert_eq!(error["error"]["message"], "plain", "{error}");
    // An address of the machine itself is not reached, unless the URL names it.
    set(
        &gantry,
        "mask",
        &json!({"on": "result", "url": "http://169.254.169.254/x", "timeout": "1s"}),
    );
    let failed = echo(&gantry, "plain");
    assert_eq!(failed.json()["code"], "hook.failed", "{}", failed.text());
}

/// Returns the progress that a call of `a__slow` reported.
fn progress(gantry: &Gantry) -> Vec<Value> {
    let params = json!({"name": "a__slow", "arguments": {"ms": 50, "progress": 2}, "_meta": {"progressToken": 7}});
    let posted = Posted::stateless(&gantry.agent, "tools/call", params);
    let mut messages = posted.send(gantry).messages();
    let answer = messages.pop().unwrap();
    assert!(answer["result"]["content"].is_array(), "{answer:#}");
    messages
        .into_iter()
        .map(|mut message| message["params"].take())
        .collect()
}

/// Returns how many log messages a call gets.
fn logged(gantry: &Gantry) -> usize {
    let params = json!({"name": "f__test_tool_with_logging", "arguments": {}, "_meta": {"io.modelcontextprotocol/logLevel": "debug"}});
    let posted = Posted::stateless(&gantry.agent, "tools/call", params);
    posted.send(gantry).messages().len() - 1
}

// fault L8: no text of a server passes by a way that no hook sees.
#[test]
fn what_no_hook_sees_is_withheld_where_hooks_fail_closed() {
    let argv = fixture::argv(Era::Modern);
    let entry = json!({"command": argv[0], "args": argv[1..]});
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .entry("f", entry)
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry.wait_state("f", "ready", LONG);
    let whole = json!({"progressToken": 7, "progress": 1, "total": 2, "message": "step 1 of 2"});
    assert_eq!(progress(&gantry)[0], whole);
    assert_eq!(logged(&gantry), 3);
    let url = endpoint(|request| match request.contains("completion/complete") {
        true if request.contains("\"result\"") => {
            r#"{"decision":"replace","result":{"completion":{"values":["hidden"]}}}"#.to_owned()
        }
        true if request.contains("forbidden") => {
            r#"{"decision":"refuse","reason":"no"}"#.to_owned()
        }
        _ => String::new(),
    });
    let hook = |on: &str, failure: &str, tools: &[&str]| json!({"on": on, "url": url, "tools": tools, "on_failure": failure});
    // Requests, and results of other tools, are no reason.
    set(&gantry, "one", &hook("request", "refuse", &[]));
    set(&gantry, "two", &hook("result", "refuse", &["a:echo"]));
    set(&gantry, "three", &hook("result", "pass", &[]));
    assert_eq!(progress(&gantry)[0], whole);
    assert_eq!(logged(&gantry), 3);
    set(&gantry, "three", &hook("result", "refuse", &[]));
    let numbers = json!({"progressToken": 7, "progress": 1, "total": 2});
    assert_eq!(progress(&gantry)[0], numbers);
    assert_eq!(logged(&gantry), 0);
    // Completions are seen like results, and what is completed like arguments.
    let completed = |value: &str| {
        let params = json!({"ref": {"type": "ref/prompt", "name": "a__with_arguments"}, "argument": {"name": "a", "value": value}});
        gantry.mcp("completion/complete", params)
    };
    let hidden = completed("p");
    assert_eq!(
        hidden["result"]["completion"]["values"],
        json!(["hidden"]),
        "{hidden}"
    );
    let refused = completed("forbidden");
    assert_eq!(
        refused["error"]["data"]["code"], "hook.refused",
        "{refused}"
    );
}
