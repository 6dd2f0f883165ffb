//! Faults U1–U5, U8 and T4: who may come in, by which key, at which address.
//!
//! Every way to fail is a denial; the routes and who may use them stand in one table.

mod keys;
mod routes;
mod sealed;
mod targets;

use serde_json::Value;

use crate::harness::Answer;

/// Returns the code that a refusal names, on `/mcp` or elsewhere.
fn code(answer: &Answer) -> String {
    let body = answer.json();
    let code = body.pointer("/error/data/code").unwrap_or(&body["code"]);
    code.as_str().unwrap_or_default().to_owned()
}

/// Asserts a refusal: status, code, and on `/mcp` the JSON-RPC code.
fn refused(what: &str, answer: &Answer, status: u16, name: &str) {
    assert_eq!(
        (answer.status, code(answer).as_str()),
        (status, name),
        "{what}: {}",
        answer.text()
    );
    if let Some(rpc) = answer.json().pointer("/error/code").and_then(Value::as_i64) {
        assert_eq!(rpc, -31000 - i64::from(status), "{what}");
    }
}
