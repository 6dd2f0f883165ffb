//! Faults U1–U6, U8 and T4: who may come in, by which key, at which address.
//!
//! Every way to fail is a denial; the routes and who may use them stand in one table.

mod hidden;
mod keys;
pub(crate) mod locked;
mod memory;
mod no_oauth;
mod revoked;
mod routes;
mod sealed;
mod targets;

use gantry_testkit::wait::eventually;
use serde_json::Value;

use crate::faults_client::{Holdings, ROOM};
use crate::harness::{Answer, Gantry, LONG};

/// The time over which wrong keys of one address are counted, in seconds.
const WINDOW_SECONDS: u64 = 10;
/// What the record says of the first wrong key of an address and window.
const FIRST_GUESS: &str = "a wrong key from 127.0.0.1";
/// What it says of the last one before the address is told to wait.
const LAST_GUESS: &str = "20 wrong keys from 127.0.0.1 within 10s";

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

/// A row of the audit: status, code, surface, and what went wrong.
type Row<'r> = (&'r str, &'r str, &'r str, &'r str);

/// Returns the row of a call that went well.
const fn went_well(surface: &str) -> Row<'_> {
    ("ok", "", surface, "")
}

/// Returns the row of wrong keys.
const fn guessed<'r>(surface: &'r str, what: &'r str) -> Row<'r> {
    ("refused", "auth.wrong_key", surface, what)
}

/// Asserts that these are all rows of the audit, oldest first; those of wrong keys come a moment late.
fn audited(gantry: &Gantry, wanted: &[Row<'_>]) {
    let mut rows = Vec::new();
    let fits = |row: &Value, (status, code, surface, error): Row<'_>| {
        let told = ["status", "code", "surface", "error"]
            .map(|member| row[member].as_str().unwrap_or_default());
        told == [status, code, surface, error]
    };
    let all = eventually(LONG, || {
        rows = gantry.audit_rows("");
        rows.len() == wanted.len()
            && rows
                .iter()
                .zip(wanted)
                .all(|(row, wanted)| fits(row, *wanted))
    });
    assert!(all.is_some(), "{wanted:?} are not the rows {rows:#?}");
}

/// Asserts that whoever was refused has left nothing behind and broken nothing.
fn unharmed(gantry: &Gantry, at_first: &Holdings) {
    at_first.are_all(ROOM);
    let log = gantry.stderr();
    assert!(
        !log.contains("panicked"),
        "no key makes the gateway panic:\n{log}"
    );
}
