//! Agents and keys: made, changed, removed; grants and filters hold in listing and calling.

use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{items, problem, walk};
use crate::harness::{Gantry, LONG, modern, on_postgresql};

fn key_of(gantry: &Gantry, agent: &str) -> (String, String) {
    let body = json!({"kind": "agent", "agent": agent, "label": "test"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

fn tools(gantry: &Gantry, key: &str) -> Vec<String> {
    let answer = modern(&mut gantry.connect(), key, "/mcp", "tools/list", json!({})).message();
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}

fn call(gantry: &Gantry, key: &str, tool: &str) -> Value {
    let params = json!({"name": tool, "arguments": {"text": "x"}});
    modern(&mut gantry.connect(), key, "/mcp", "tools/call", params).message()
}

fn change(gantry: &Gantry, agent: &str, body: &Value) -> Value {
    let path = format!("/api/v1/agents/{agent}");
    let changed = gantry.rest("PATCH", &path, Some(body));
    assert_eq!(changed.status, 200, "{}", changed.text());
    changed.json()
}

// row 2.16
#[test]
fn an_agents_filter_holds_in_listing_and_calling() {
    let gantry = Gantry::start(&["a", "b"]);
    let made = gantry.rest("POST", "/api/v1/agents", Some(&json!({"name": "reader"})));
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header("location"), Some("/api/v1/agents/reader"));
    let (_, key) = key_of(&gantry, "reader");
    // Nothing was granted.
    assert_eq!(tools(&gantry, &key), [] as [&str; 0]);
    let refused = call(&gantry, &key, "a__echo");
    assert_eq!(refused["error"]["data"]["code"], "grant.unbound");
    // Everything is granted, but a filter shows one tool of one server.
    let filter = json!({"include": ["a:*", "b:slow"], "exclude": ["a:s*"]});
    let shown = change(
        &gantry,
        "reader",
        &json!({"grant": "all", "tools": filter, "label": "reads"}),
    );
    assert_eq!(shown["grants"], json!(["*"]));
    assert_eq!(shown["tools"]["exclude"], json!(["a:s*"]));
    assert_eq!(shown["label"], "reads");
    let seen = tools(&gantry, &key);
    assert!(seen.contains(&"a__echo".to_owned()) && seen.contains(&"b__slow".to_owned()));
    assert!(!seen.contains(&"b__echo".to_owned()) && !seen.contains(&"a__slow".to_owned()));
    assert!(call(&gantry, &key, "a__echo")["error"].is_null());
    for hidden in ["b__echo", "a__slow", "b:echo"] {
        let refused = call(&gantry, &key, hidden);
        assert_eq!(
            refused["error"]["data"]["code"], "grant.unbound",
            "{hidden}"
        );
    }
    let rest = gantry.rest_as(&key, "GET", "/api/v1/tools", None);
    let mut over_rest: Vec<_> = items(&rest)
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    over_rest.sort();
    assert_eq!(over_rest, seen);
    // It survives the gateway's death, and another agent is not touched by it.
    let mut gantry = gantry;
    gantry.kill();
    let gantry = gantry.again();
    gantry.wait_state("b", "ready", Duration::from_secs(20));
    gantry.wait_state("a", "ready", Duration::from_secs(20));
    assert_eq!(tools(&gantry, &key), seen);
    assert!(tools(&gantry, &gantry.agent).contains(&"b__echo".to_owned()));
    // Grants by pattern, without a filter.
    change(&gantry, "reader", &json!({"grant": ["b:e*"], "tools": {}}));
    assert!(
        tools(&gantry, &key)
            .iter()
            .all(|name| name.starts_with("b__e"))
    );
    assert_eq!(
        call(&gantry, &key, "a__echo")["error"]["data"]["code"],
        "grant.unbound"
    );
}

// row 2.16
#[test]
fn an_agents_filter_holds_in_listing_and_calling_on_postgresql() {
    on_postgresql(an_agents_filter_holds_in_listing_and_calling);
}

#[test]
fn an_agent_goes_with_its_keys() {
    let gantry = Gantry::start(&["a"]);
    let body = json!({"name": "passing", "grant": "all"});
    assert_eq!(
        gantry.rest("POST", "/api/v1/agents", Some(&body)).status,
        201
    );
    let twice = gantry.rest("POST", "/api/v1/agents", Some(&body));
    assert_eq!(problem(&gantry, &twice, 409), "agent.exists");
    let (id, key) = key_of(&gantry, "passing");
    let shown = gantry.rest("GET", "/api/v1/agents/passing", None).json();
    assert_eq!(shown["keys"][0]["id"], id);
    assert!(
        !shown.to_string().contains(&key),
        "a key's text is shown once"
    );
    assert!(call(&gantry, &key, "a__echo")["error"].is_null());
    for _ in 0..2 {
        let gone = gantry.rest("DELETE", "/api/v1/agents/passing", None);
        assert_eq!(gone.status, 204, "{}", gone.text());
    }
    let refused = gantry.rest_as(&key, "GET", "/api/v1/tools", None);
    assert_eq!(problem(&gantry, &refused, 401), "auth.wrong_key");
    let unknown = gantry.rest("GET", "/api/v1/agents/passing", None);
    assert_eq!(problem(&gantry, &unknown, 404), "agent.unknown");
    // One of the same name begins anew.
    key_of(&gantry, "passing");
    let shown = gantry.rest("GET", "/api/v1/agents/passing", None).json();
    assert_eq!(shown["grants"], json!([]));
}

#[test]
fn an_agent_goes_with_its_keys_on_postgresql() {
    on_postgresql(an_agent_goes_with_its_keys);
}

#[test]
fn what_cannot_be_granted_is_named() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let cases = [
        (json!({"name": "x", "grant": ["files"]}), "request.body"),
        (
            json!({"name": "x", "grant": ["no server:x"]}),
            "grant.server",
        ),
        (json!({"name": "x", "grant": ["files:"]}), "grant.item"),
        (json!({"name": "x", "grant": "some"}), "request.body"),
        (
            json!({"name": "x", "tools": {"include": ["files:"]}}),
            "grant.item",
        ),
        (json!({"name": "x", "tool": {}}), "request.body"),
        (json!({"name": "no name"}), "name.invalid"),
    ];
    for (body, code) in cases {
        let refused = gantry.rest("POST", "/api/v1/agents", Some(&body));
        assert_eq!(problem(&gantry, &refused, 422), code, "{body}");
    }
    let unknown = gantry.rest("PATCH", "/api/v1/agents/x", Some(&json!({})));
    assert_eq!(problem(&gantry, &unknown, 404), "agent.unknown");
}

// fault U6
#[test]
fn keys_end_by_themselves_or_at_once_but_never_the_last_admin_key() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let body = json!({"kind": "agent", "expires_in": "300ms"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    assert!(made["expires"].is_string(), "{made}");
    let key = made["key"].as_str().unwrap();
    let ended = eventually(Duration::from_secs(5), || {
        gantry.rest_as(key, "GET", "/api/v1/tools", None).status == 401
    });
    assert!(ended.is_some());
    let keys = items(&gantry.rest("GET", "/api/v1/keys", None));
    assert!(keys.iter().all(|one| one["id"] != made["id"]), "{keys:?}");
    let admin = keys.iter().find(|one| one["kind"] == "admin").unwrap();
    let (id, agent) = (
        admin["id"].as_str().unwrap(),
        admin["agent"].as_str().unwrap(),
    );
    for path in [
        format!("/api/v1/keys/{id}"),
        format!("/api/v1/agents/{agent}"),
    ] {
        let refused = gantry.rest("DELETE", &path, None);
        assert_eq!(problem(&gantry, &refused, 409), "key.last_admin");
    }
    // A stream that a key opened ends with it.
    let (id, key) = key_of(&gantry, "default");
    let mut stream = gantry.connect();
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": true}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    let bearer = format!("Bearer {key}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "subscriptions/listen"),
    ];
    stream
        .write("POST", "/mcp", &headers, listen.to_string().as_bytes())
        .unwrap();
    assert_eq!(stream.head().unwrap().status, 200);
    assert!(stream.chunk().unwrap().is_some());
    assert_eq!(
        gantry
            .rest("DELETE", &format!("/api/v1/keys/{id}"), None)
            .status,
        204
    );
    // The second runs from the answer on: until then nobody was told that the key is gone.
    let revoked = Stopwatch::start();
    while stream.chunk().unwrap().is_some() {}
    let took = revoked.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

// fault U6
#[test]
fn keys_end_by_themselves_or_at_once_but_never_the_last_admin_key_on_postgresql() {
    on_postgresql(keys_end_by_themselves_or_at_once_but_never_the_last_admin_key);
}

#[test]
fn lists_come_in_pages() {
    let gantry = Gantry::start(&["a", "b", "c"]);
    for n in 0..5 {
        let body = json!({"name": format!("agent-{n}")});
        assert_eq!(
            gantry.rest("POST", "/api/v1/agents", Some(&body)).status,
            201
        );
        key_of(&gantry, &format!("agent-{n}"));
    }
    gantry.call("a__echo", json!({"text": "x"}));
    gantry.call("b__echo", json!({"text": "x"}));
    for (path, key) in [
        ("/api/v1/agents", "name"),
        ("/api/v1/keys", "id"),
        ("/api/v1/mcp/servers", "name"),
        ("/api/v1/tools", "id"),
        ("/api/v1/calls", "id"),
        ("/api/v1/calls?server=b", "id"),
    ] {
        let names = |items: &[Value]| -> Vec<String> {
            items.iter().map(|item| item[key].to_string()).collect()
        };
        let whole = names(&items(&gantry.rest("GET", path, None)));
        assert!(!whole.is_empty(), "{path}");
        for limit in [1, 2, 1000] {
            assert_eq!(
                names(&walk(&gantry, path, limit)),
                whole,
                "{path} by {limit}"
            );
        }
        let join = if path.contains('?') { '&' } else { '?' };
        for bad in ["limit=0", "limit=1001", "limit=x", "cursor=%20", "wrong=1"] {
            let refused = gantry.rest("GET", &format!("{path}{join}{bad}"), None);
            assert_eq!(
                problem(&gantry, &refused, 400),
                "request.query",
                "{path} {bad}"
            );
        }
    }
    // An event may be written meanwhile.
    let mut counts = [0; 2];
    let agree = eventually(LONG, || {
        counts = [1000, 2].map(|limit| walk(&gantry, "/api/v1/events", limit).len());
        counts[0] == counts[1]
    });
    assert!(agree.is_some(), "{counts:?}");
    assert_eq!(
        items(&gantry.rest("GET", "/api/v1/keys?agent=agent-3", None)).len(),
        1
    );
}

#[test]
fn lists_come_in_pages_on_postgresql() {
    on_postgresql(lists_come_in_pages);
}
