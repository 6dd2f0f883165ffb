//! Times, wherever they stand: RFC 3339 in UTC, always to the millisecond.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gantry, LONG};

/// Collects every text that is a time.
fn times(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let is_time = text.len() >= 20
                && text.as_bytes()[10] == b'T'
                && text.ends_with('Z')
                && text[..4].bytes().all(|byte| byte.is_ascii_digit());
            if is_time {
                found.push(text.clone());
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| times(inner, found)),
        Value::Object(members) => members.values().for_each(|inner| times(inner, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_to_the_millisecond(time: &str) -> bool {
    let bytes = time.as_bytes();
    bytes.len() == "2026-11-16T09:30:00.000Z".len() && bytes[19] == b'.'
}

#[test]
fn every_time_has_the_same_form() {
    let gantry = Gantry::start(&["a"]);
    let key = json!({"kind": "agent", "expires_in": "1h"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&key));
    let mut found = Vec::new();
    times(&made.json(), &mut found);
    assert_eq!(found.len(), 1, "when it ends");
    // So many that some fall on whole hundredths, tenths and seconds.
    for _ in 0..60 {
        gantry.call("a__echo", json!({"text": "x"}));
        std::thread::sleep(Duration::from_millis(1));
    }
    gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    gantry.wait_state("a", "ready", LONG);
    for path in [
        "/api/v1/calls?limit=1000",
        "/api/v1/acts",
        "/api/v1/events",
        "/api/v1/mcp/servers/a/events",
        "/api/v1/mcp/servers/a/logs",
        "/api/v1/mcp/servers/a",
        "/api/v1/agents",
        "/api/v1/keys",
        "/api/v1/health",
    ] {
        times(&gantry.rest("GET", path, None).json(), &mut found);
    }
    let exported = gantry.rest("GET", "/api/v1/calls/export", None).text();
    for line in exported.lines() {
        times(&serde_json::from_str(line).unwrap(), &mut found);
    }
    for words in [
        &["calls", "--json"][..],
        &["status", "a", "--json"],
        &["key", "ls", "--json"],
    ] {
        let shown = gantry.cli(words).stdout;
        times(&serde_json::from_slice(&shown).unwrap(), &mut found);
    }
    assert!(found.len() > 150, "{}", found.len());
    let odd: Vec<_> = found
        .iter()
        .filter(|time| !is_to_the_millisecond(time))
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
}
