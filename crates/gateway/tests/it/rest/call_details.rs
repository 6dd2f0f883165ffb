//! What the row of a call says beside how it ended: phases, attempts, checks, whose error it was, the
//! call it was made for, and who named the user. On SQLite and on PostgreSQL.

use gantry_testkit::Evilpeer;
use gantry_testkit::postgres::PgDatabase;
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG};

fn row(gantry: &Gantry, query: &str) -> Value {
    let mut rows = gantry.audit_rows(query);
    assert_eq!(rows.len(), 1, "{query}: {rows:#?}");
    rows.remove(0)
}

/// Returns the phases of a row that were reached, in order of the name.
fn reached(row: &Value) -> Vec<&str> {
    let phases = row["phases"].as_object().unwrap();
    phases.keys().map(String::as_str).collect()
}

// rows 0.9, 3.5
#[test]
fn a_row_says_where_the_time_went_and_whose_error_it_was() {
    says_everything(&[]);
}

// rows 0.9, 3.5
#[test]
fn a_row_in_postgresql_says_the_same() {
    let database = PgDatabase::new();
    says_everything(&["--store", &database.url()]);
}

fn says_everything(flags: &[&str]) {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .flags(flags)
        .start();
    gantry.wait_state("a", "ready", LONG);
    let called = |tool: &str, arguments: Value| {
        let params = json!({
            "name": tool,
            "arguments": arguments,
            "_meta": {"io.gantry/user-id": "ann", "io.gantry/parent-call-id": "call_7"},
        });
        gantry.mcp("tools/call", params)
    };
    called("a__slow", json!({"ms": 30, "nonce": "x"}));
    let slow = row(&gantry, "tool=slow");
    let every = [
        "auth_us",
        "grant_us",
        "output_us",
        "queue_us",
        "schema_us",
        "server_us",
    ];
    let mut all = reached(&slow);
    all.sort_unstable();
    assert_eq!(all, every);
    let server = slow["phases"]["server_us"].as_u64().unwrap();
    // The server may have begun before the gateway noticed that the line was written.
    assert!(server >= 20_000, "{slow:#}");
    let phases = slow["phases"].as_object().unwrap().values();
    let sum: u64 = phases.filter_map(Value::as_u64).sum();
    let whole = slow["duration_us"].as_u64().unwrap() + slow["phases"]["auth_us"].as_u64().unwrap();
    assert!(sum <= whole + 1000, "phases do not overlap: {slow:#}");
    assert_eq!(slow["attempts"], 1);
    assert_eq!(slow["input_check"], "passed");
    assert_eq!(slow["error_kind"], Value::Null);
    assert_eq!(
        (&slow["parent"], &slow["user_source"]),
        (&json!("call_7"), &json!("agent"))
    );
    assert_eq!(row(&gantry, "user=ann&tool=slow")["id"], slow["id"]);
    // Refused before it is sent.
    called("a__add", json!({"a": "no number"}));
    let refused = row(&gantry, "error_kind=schema");
    assert_eq!(
        (&refused["status"], &refused["input_check"]),
        (&json!("refused"), &json!("failed"))
    );
    assert_eq!(refused["attempts"], 0);
    assert!(!reached(&refused).contains(&"server_us"), "{refused:#}");
    // The tool's own error, the server's, and that of the connection.
    called("a__fail", json!({"message": "no"}));
    assert_eq!(row(&gantry, "error_kind=tool")["status"], "error");
    called("a__rpc_error", json!({"code": -32000, "message": "no"}));
    assert_eq!(row(&gantry, "error_kind=json_rpc")["status"], "error");
    called("a__crash", json!({}));
    let crashed = row(&gantry, "error_kind=transport");
    assert_eq!(
        (&crashed["status"], &crashed["attempts"]),
        (&json!("error"), &json!(1))
    );
    let exported = gantry.rest("GET", "/api/v1/calls/export?format=csv&user=ann", None);
    let text = exported.text();
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with(",grant,parent,user_source")
    );
    assert_eq!(text.matches("call_7").count(), 5, "{text}");
}
