//! The record of calls under harm: parts of the journal taken away, a database that cannot be written,
//! a small disk that is full, read-only or does not confirm, a data folder that is removed, and a gateway
//! that is told to stop twice.

mod damaged;
mod folder;
mod locked;
mod read_only;
mod refused;
mod small_disk;
mod twice;
mod unconfirmed;

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::harness::{Connection, Gantry, LONG, modern};

fn health(gantry: &Gantry) -> Value {
    gantry.rest("GET", "/api/v1/health", None).json()
}

/// Waits until the health has this status, and returns it.
fn wait_health(gantry: &Gantry, status: &str) -> Value {
    let mut last = Value::Null;
    let reached = eventually(LONG, || {
        last = health(gantry);
        last["status"] == status
    });
    assert!(reached.is_some(), "not {status}: {last:#}");
    last
}

/// Returns what anyone is told without a key.
fn healthz(gantry: &Gantry) -> (u16, String) {
    let answer = gantry.connect().request("GET", "/healthz", &[], b"");
    let answer = answer.expect("the gateway answers");
    (answer.status, answer.text().trim().to_owned())
}

/// Calls `a__echo` on a connection that is kept; tells whether it went well.
fn echo(connection: &mut Connection, gantry: &Gantry, text: &str) -> bool {
    let params = json!({"name": "a__echo", "arguments": {"text": text}});
    let answer = modern(connection, &gantry.agent, "/mcp", "tools/call", params);
    let answer = answer.message();
    answer["result"]["content"][0]["text"] == text
}

/// Makes so many calls that go well.
fn echoes(gantry: &Gantry, count: usize) {
    let mut connection = gantry.connect();
    for number in 0..count {
        assert!(echo(&mut connection, gantry, &number.to_string()));
    }
}

/// Asserts that an error code has its page.
fn has_page(gantry: &Gantry, code: &str) {
    let answer = gantry
        .connect()
        .request("GET", &format!("/errors/{code}"), &[], b"");
    let answer = answer.expect("the gateway answers");
    assert_eq!(answer.status, 200, "{code}");
}
