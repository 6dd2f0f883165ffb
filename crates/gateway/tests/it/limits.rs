//! What keys and agents may use, from where, and for how long: over REST, MCP and the command line, on a file
//! and on PostgreSQL.

mod keys;
mod rates;

use gantry_testkit::Evilpeer;
use gantry_testkit::postgres::PgDatabase;
use serde_json::{Value, json};

use crate::harness::{Answer, Gantry, LONG};

/// Does the same on a gateway with a file and on one with PostgreSQL; both have a server `a`.
fn on_each_store(test: impl Fn(&Gantry)) {
    let database = PgDatabase::new();
    let url = database.url();
    for flags in [&[][..], &["--store", &url]] {
        let peer = Evilpeer::new().name("a");
        let gantry = Gantry::builder().server("a", &peer).flags(flags).start();
        gantry.wait_state("a", "ready", LONG);
        test(&gantry);
    }
}

/// Asks and asserts the status.
fn done(gantry: &Gantry, method: &str, path: &str, body: &Value, status: u16) -> Value {
    let body = Some(body).filter(|body| !body.is_null());
    let answer = gantry.rest(method, path, body);
    assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    match answer.text().is_empty() {
        true => Value::Null,
        false => answer.json(),
    }
}

/// Makes a key and returns its id and text.
fn key(gantry: &Gantry, body: &Value) -> (String, String) {
    let made = done(gantry, "POST", "/api/v1/keys", body, 201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

/// Calls a tool over REST.
fn echo(gantry: &Gantry, key: &str, text: &str) -> Answer {
    let body = json!({"name": "a__echo", "arguments": {"text": text}});
    gantry.rest_as(key, "POST", "/api/v1/tools/call", Some(&body))
}

/// Asserts what was refused.
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.json()["code"], code);
}
