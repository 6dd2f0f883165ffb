//! Resources that a result names and no list has, and URIs that two servers offer: whose they are.

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::entry;
use super::peer::{Peer, Reply, Seen, event, legacy};
use crate::eras::{Events, Older};
use crate::harness::{Gantry, LONG, modern};

/// What both servers offer.
const SAME: &str = "demo://same";

/// A server that reads whatever it is asked for, and says who it is.
fn server(name: &'static str) -> (Peer, Sender<String>) {
    let (changed, changes) = channel::<String>();
    let changes = Arc::new(Mutex::new(Some(changes)));
    let peer = Peer::start(move |seen| answer(name, seen, &changes));
    (peer, changed)
}

fn answer(name: &str, seen: &Seen, changes: &Mutex<Option<Receiver<String>>>) -> Reply {
    let uri = seen.body["params"]["uri"].clone();
    let link = |uri: String| json!({"type": "resource_link", "uri": uri, "name": "x"});
    let inner = json!({"type": "resource", "resource": {"uri": format!("demo://{name}/inner"), "text": "t"}});
    match (seen.verb.as_str(), seen.method()) {
        ("GET", _) => match changes.lock().unwrap().take() {
            Some(changes) => told(changes),
            None => Reply::status(405),
        },
        ("POST", "initialize") => {
            let capabilities =
                json!({"tools": {}, "prompts": {}, "resources": {"subscribe": true}});
            let hello = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {
                "protocolVersion": "2025-11-25", "serverInfo": {"name": name, "version": "1"},
                "capabilities": capabilities}});
            let kind = ("Content-Type", "application/json".to_owned());
            let session = ("Mcp-Session-Id", "s".to_owned());
            Reply::Status(200, vec![kind, session], hello.to_string())
        }
        ("POST", "tools/list") => {
            let schema = json!({"type": "object"});
            seen.result(json!({"tools": [{"name": "make", "inputSchema": schema}]}))
        }
        ("POST", "prompts/list") => seen.result(json!({"prompts": [{"name": "show"}]})),
        ("POST", "resources/list") => {
            seen.result(json!({"resources": [{"uri": SAME, "name": "same"}]}))
        }
        ("POST", "resources/templates/list") => seen.result(json!({"resourceTemplates": []})),
        ("POST", "tools/call") => seen.result(json!({"content": [
            {"type": "text", "text": "made"}, link(format!("demo://{name}/made")),
            link(SAME.to_owned()), inner]})),
        ("POST", "prompts/get") => {
            let content = link(format!("demo://{name}/shown"));
            seen.result(json!({"messages": [{"role": "user", "content": content}]}))
        }
        ("POST", "resources/read") => {
            let text = format!("{name}: {}", uri.as_str().unwrap());
            let beside = json!({"uri": format!("demo://{name}/beside"), "text": "b"});
            seen.result(json!({"contents": [{"uri": uri, "text": text}, beside]}))
        }
        ("POST", "resources/subscribe") => seen.result(json!({})),
        _ => legacy(seen),
    }
}

/// A stream on which the test tells of changed resources.
fn told(changes: Receiver<String>) -> Reply {
    Reply::Events(Box::new(move |to: &mut dyn Write| {
        for uri in changes {
            let params = json!({"uri": uri});
            let updated = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
                "params": params});
            event(to, &format!("data: {updated}\n\n"))?;
        }
        Ok(())
    }))
}

/// Two servers and their gateway; the first is first in order.
struct Two {
    gantry: Gantry,
    changed: Sender<String>,
    _peers: [Peer; 2],
}

fn two() -> Two {
    let ((one, _), (other, changed)) = (server("a"), server("b"));
    let gantry = Gantry::builder()
        .entry("a", entry(&one.url("/mcp")))
        .entry("b", entry(&other.url("/mcp")))
        .flags(&["--startup", "sequential"])
        .start();
    for name in ["a", "b"] {
        gantry.wait_state(name, "ready", LONG);
    }
    Two {
        gantry,
        changed,
        _peers: [one, other],
    }
}

/// Reads a resource and returns its text, or the code of the error.
fn read(gantry: &Gantry, key: &str, path: &str, uri: &str) -> Result<String, Value> {
    let mut connection = gantry.connect();
    let answer = modern(
        &mut connection,
        key,
        path,
        "resources/read",
        json!({"uri": uri}),
    )
    .message();
    match answer["result"]["contents"][0]["text"].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(answer["error"]["code"].clone()),
    }
}

fn call(gantry: &Gantry, key: &str, tool: &str) {
    let params = json!({"name": tool, "arguments": {}});
    let answer = modern(&mut gantry.connect(), key, "/mcp", "tools/call", params).message();
    assert_eq!(answer["result"]["content"][0]["text"], "made", "{answer:#}");
}

// row 2.21
#[test]
fn what_a_result_names_is_read_from_the_server_that_named_it() {
    let Two { gantry, .. } = &two();
    let key = &gantry.agent;
    let at = |uri: &str| read(gantry, key, "/mcp", uri);
    for unseen in [
        "demo://b/made",
        "demo://b/inner",
        "demo://b/shown",
        "demo://b/beside",
    ] {
        assert_eq!(at(unseen), Err(json!(-32602)), "{unseen}");
    }
    assert_eq!(at(SAME).as_deref(), Ok("a: demo://same"));
    call(gantry, key, "b__make");
    for named in ["demo://b/made", "demo://b/inner", "demo://b/beside"] {
        assert_eq!(at(named).unwrap(), format!("b: {named}"));
    }
    // Of equal URIs that of the server that named it last.
    assert_eq!(at(SAME).as_deref(), Ok("b: demo://same"));
    call(gantry, key, "a__make");
    assert_eq!(at(SAME).as_deref(), Ok("a: demo://same"));
    assert_eq!(at("demo://a/made").as_deref(), Ok("a: demo://a/made"));
    assert_eq!(at("demo://b/made").as_deref(), Ok("b: demo://b/made"));
    assert_eq!(at("demo://b/shown"), Err(json!(-32602)));
    let shown = gantry.mcp("prompts/get", json!({"name": "b__show"}));
    assert!(shown["result"].is_object(), "{shown:#}");
    assert_eq!(at("demo://b/shown").as_deref(), Ok("b: demo://b/shown"));
    let rows = gantry.audit_rows("server=b&status=ok");
    let reads = rows.iter().filter(|row| row["method"] == "resources/read");
    assert_eq!(reads.count(), 6, "{rows:#?}");
}

// row 2.21, row 2.16
#[test]
fn a_link_is_of_use_to_the_agent_that_was_given_it_and_within_its_grants() {
    let Two { gantry, .. } = &two();
    call(gantry, &gantry.agent, "b__make");
    let other = gantry.agent_with("other", &["*"]);
    assert_eq!(
        read(gantry, &other, "/mcp", "demo://b/made"),
        Err(json!(-32602))
    );
    // Who may call but not read, and who may read some.
    let caller = gantry.agent_with("caller", &["b:make", "a:resource:*"]);
    call(gantry, &caller, "b__make");
    assert_eq!(
        read(gantry, &caller, "/mcp", "demo://b/made"),
        Err(json!(-31403))
    );
    let grants = ["b:make", "b:resource:demo://b/inner", "a:resource:*"];
    let reader = gantry.agent_with("reader", &grants);
    call(gantry, &reader, "b__make");
    let inner = read(gantry, &reader, "/mcp", "demo://b/inner");
    assert_eq!(inner.as_deref(), Ok("b: demo://b/inner"));
    for other in ["demo://b/made", "demo://b/inner/../made"] {
        let text = read(gantry, &reader, "/mcp", other).unwrap_or_default();
        assert!(!text.starts_with("b:"), "{other}: {text}");
    }
    // What another server offers, too, is that one's if this one's is not granted.
    assert_eq!(
        read(gantry, &reader, "/mcp", SAME).as_deref(),
        Ok("a: demo://same")
    );
}

// row 2.21
#[test]
fn what_a_result_names_can_be_subscribed_to() {
    let Two {
        gantry, changed, ..
    } = &two();
    let session = Older::open(gantry, "/mcp", "2025-11-25");
    let params = json!({"uri": "demo://b/made"});
    let refused = session.send(json!(1), "resources/subscribe", params.clone());
    assert_eq!(refused.message()["error"]["code"], -32002);
    session.result("tools/call", json!({"name": "b__make", "arguments": {}}));
    session.result("resources/subscribe", params);
    let mut events = Events::of(session.listen());
    changed.send("demo://b/made".to_owned()).unwrap();
    let told = events.next().expect("the stream goes on");
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (
            &json!("notifications/resources/updated"),
            &json!("demo://b/made")
        )
    );
}

// row 2.15, row 2.21
#[test]
fn equal_uris_of_two_servers_are_shown_and_both_can_be_read() {
    let Two { gantry, .. } = &two();
    let list = gantry.mcp("resources/list", json!({}));
    assert_eq!(list["result"]["resources"].as_array().unwrap().len(), 1);
    let key = &gantry.agent;
    for name in ["a", "b"] {
        let text = read(gantry, key, &format!("/mcp/servers/{name}"), SAME);
        assert_eq!(text.unwrap(), format!("{name}: {SAME}"));
    }
    let hidden = json!([{"uri": SAME, "behind": "a"}]);
    gantry.wait_status("b", LONG, |status| status["hidden"] == hidden);
    assert_eq!(gantry.status("b")["hidden_resources"], 1);
    assert_eq!(gantry.status("a")["hidden"], json!([]));
    let health = gantry.rest("GET", "/api/v1/health", None).text();
    assert!(health.contains("`a` already offers it"), "{health}");
    let told = |arguments: &[&str]| String::from_utf8(gantry.cli(arguments).stdout).unwrap();
    for verb in ["status", "ls"] {
        let told = told(&[verb]);
        assert!(told.contains("1 resource of `b` not listed"), "{told}");
    }
    let told = told(&["status", "b"]);
    let place = "`a` offers the same URI; it is read at /mcp/servers/b";
    assert!(told.contains(place), "{told}");
    let up = eventually(LONG, || {
        gantry.stdout().contains("1 resource hidden behind `a`")
    });
    assert!(up.is_some(), "{}", gantry.stdout());
}
