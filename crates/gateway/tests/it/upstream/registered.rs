//! Far servers that are registered over REST: what is kept of their tools, in memory and in the store,
//! and what becomes of it when the server changes or cannot be greeted any more.

use std::sync::{Arc, Mutex};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, legacy};
use super::sse_peer::SsePeer;
use super::{FAR, listed};
use crate::harness::{Gantry, LONG, on_postgresql};

/// What the store has of a server's tools: name, definition, version, and whether it is gone.
#[derive(Debug, PartialEq)]
struct Stored {
    name: String,
    definition: Value,
    hash: String,
    version: i64,
    is_gone: bool,
}

/// Reads the tools from the database of a gateway, as another program would.
fn stored(gantry: &Gantry) -> Vec<Stored> {
    let rows = gantry.asked(
        "SELECT name, hash, version, CASE WHEN gone_at IS NULL THEN 0 ELSE 1 END, definition \
         FROM kb.mcp_tools WHERE kind = 'tool' ORDER BY name",
    );
    let stored = rows.iter().map(|row| {
        let columns: Vec<&str> = row.splitn(5, '|').collect();
        Stored {
            name: columns[0].to_owned(),
            hash: columns[1].to_owned(),
            version: columns[2].parse().unwrap(),
            is_gone: columns[3] == "1",
            definition: serde_json::from_str(columns[4]).unwrap(),
        }
    });
    stored.collect()
}

/// Returns the tool that the far server has, whose schema changes with a number.
fn sums(length: u64) -> Value {
    json!({"name": "sum", "description": "Adds numbers up",
        "inputSchema": {"type": "object", "properties": {
            "numbers": {"type": "array", "maxItems": length}}},
        "outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}}})
}

/// What the far server does now: it offers this tool, or answers everything with this status.
#[derive(Clone)]
enum Now {
    Offers(Value),
    Refuses(u16),
}

/// Answers a request as the far server does now.
fn answer(now: &Mutex<Now>, seen: &Seen) -> Option<Reply> {
    match (now.lock().unwrap().clone(), seen.method()) {
        (Now::Refuses(status), _) => Some(Reply::status(status)),
        (Now::Offers(tool), "tools/list") => Some(seen.result(json!({"tools": [tool]}))),
        (Now::Offers(_), _) => None,
    }
}

/// Returns the tools of the server as REST shows them.
fn tools(gantry: &Gantry) -> Vec<Value> {
    let page = gantry.rest("GET", "/api/v1/tools?server=far", None).json();
    page["items"].as_array().unwrap().clone()
}

/// Registers a far server, and follows its tool through a change and a time away.
fn follow(kind: &str, path: &str, proxy: &Peer, now: &Mutex<Now>) {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let body = json!({"name": FAR, "url": format!("http://far.example{path}"), "transport": kind,
        "headers": {"Authorization": "Bearer registered-secret"}, "timeout": "7s",
        "proxy": format!("http://{}", proxy.address), "auth": {"kind": "none"}, "start": "eager",
        "reconnect": {"first": "50ms", "longest": "200ms", "away": "1s"}});
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].clone();
    let status = gantry.wait_state(FAR, "ready", LONG);
    assert_eq!((&status["id"], &status["tools"]), (&id, &json!(1)));
    assert_eq!(status["protocol_version"], "2025-06-18", "the handshake");
    assert_eq!(status["spec"]["timeout"], "7s");
    assert_eq!(status["spec"]["headers"], json!(["Authorization"]));
    assert_eq!(status["spec"]["proxy"], format!("http://{}", proxy.address));
    assert!(
        !status.to_string().contains("registered-secret"),
        "{status}"
    );
    for seen in proxy.seen() {
        assert_eq!(
            seen.header("authorization"),
            Some("Bearer registered-secret")
        );
    }
    let first = shown_and_stored(&gantry, &sums(10), 1);

    // Another schema is another version; the same again is the same.
    *now.lock().unwrap() = Now::Offers(sums(20));
    restart(&gantry);
    let second = shown_and_stored(&gantry, &sums(20), 2);
    assert_ne!(first.hash, second.hash);
    restart(&gantry);
    assert_eq!(shown_and_stored(&gantry, &sums(20), 2), second);

    // Who cannot be greeted is not offered, and what is known of it is kept.
    *now.lock().unwrap() = Now::Refuses(401);
    gantry.rest("POST", "/api/v1/mcp/servers/far/restart", None);
    let is_away = |status: &Value| {
        let reason = status["reason"].as_str().unwrap_or_default();
        reason.contains("answered 401") && status["next_try"].is_object()
    };
    gantry.wait_status(FAR, LONG, is_away);
    // The lists follow the status within a moment.
    let hidden = eventually(LONG, || {
        tools(&gantry).is_empty() && listed(&gantry).is_empty()
    });
    assert!(hidden.is_some(), "{:?}", tools(&gantry));
    assert_eq!(stored(&gantry), [second]);
    *now.lock().unwrap() = Now::Offers(sums(10));
    gantry.wait_state(FAR, "ready", LONG);
    let third = shown_and_stored(&gantry, &sums(10), 3);
    assert_eq!(
        third.hash, first.hash,
        "the hash is of the content, the counter moves on"
    );
}

/// Restarts the server.
fn restart(gantry: &Gantry) {
    let restarted = gantry.rest("POST", "/api/v1/mcp/servers/far/restart", None);
    assert!(restarted.status < 300, "{}", restarted.text());
    gantry.wait_state(FAR, "ready", LONG);
}

/// Waits until this definition is shown and stored in this version, and returns what is stored.
fn shown_and_stored(gantry: &Gantry, definition: &Value, version: i64) -> Stored {
    let mut last = (Vec::new(), Vec::new());
    let found = eventually(LONG, || {
        last = (tools(gantry), stored(gantry));
        let (shown, stored) = &last;
        let prefix = format!("{version}-");
        shown.len() == 1
            && shown[0]["definition"]["inputSchema"] == definition["inputSchema"]
            && shown[0]["version"]
                .as_str()
                .is_some_and(|shown| shown.starts_with(&prefix))
            && stored.len() == 1
            && stored[0].version == version
    });
    let (shown, mut stored) = last;
    assert!(found.is_some(), "{version}: {shown:#?} {stored:#?}");
    let shown = &shown[0];
    assert_eq!(
        (&shown["name"], &shown["tool"]),
        (&json!("far__sum"), &json!("sum"))
    );
    for member in ["description", "inputSchema", "outputSchema"] {
        assert_eq!(shown["definition"][member], definition[member], "{member}");
    }
    let stored = stored.remove(0);
    assert_eq!((stored.name.as_str(), stored.is_gone), ("sum", false));
    assert_eq!(stored.definition, *definition);
    let short = shown["version"]
        .as_str()
        .unwrap()
        .split_once('-')
        .unwrap()
        .1;
    assert!(stored.hash.contains(short), "{short} of {}", stored.hash);
    stored
}

#[test]
fn the_tools_of_a_registered_server_are_kept_in_versions_over_streamable_http() {
    // row 3.1
    let now = Arc::new(Mutex::new(Now::Offers(sums(10))));
    let current = Arc::clone(&now);
    let proxy = Peer::start(move |seen| answer(&current, seen).unwrap_or_else(|| legacy(seen)));
    follow("streamable-http", "/mcp", &proxy, &now);
}

#[test]
fn the_tools_of_a_registered_server_are_kept_in_versions_over_streamable_http_on_postgresql() {
    on_postgresql(the_tools_of_a_registered_server_are_kept_in_versions_over_streamable_http);
}

#[test]
fn the_tools_of_a_registered_server_are_kept_in_versions_over_sse() {
    // row 3.1
    let now = Arc::new(Mutex::new(Now::Offers(sums(10))));
    let current = Arc::clone(&now);
    let far = SsePeer::with(move |seen| answer(&current, seen));
    follow("sse", "/sse", &far.peer, &now);
}

#[test]
fn the_tools_of_a_registered_server_are_kept_in_versions_over_sse_on_postgresql() {
    on_postgresql(the_tools_of_a_registered_server_are_kept_in_versions_over_sse);
}
