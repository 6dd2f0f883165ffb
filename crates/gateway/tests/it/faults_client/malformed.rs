//! Messages that are none, methods that are none, forms that nobody takes.

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::{Posted, Rig};
use crate::harness::{Answer, Connection};

/// Asserts an answer: status, JSON-RPC code, code in its data.
fn told(what: &str, answer: &Answer, wanted: (u16, i64, &str)) {
    let body = answer.json();
    let error = &body["error"];
    let got = (
        answer.status,
        error["code"].as_i64().unwrap_or(0),
        error["data"]["code"].as_str(),
    );
    assert_eq!(
        got,
        (wanted.0, wanted.1, Some(wanted.2)),
        "{what}: {body:#}"
    );
    assert_eq!(body["jsonrpc"], "2.0", "{what}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/json"),
        "{what}"
    );
    assert_eq!(
        answer.header("x-content-type-options"),
        Some("nosniff"),
        "{what}"
    );
}

// fault A7
#[test]
fn what_is_no_message_is_refused_with_the_codes_of_the_specification() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"a":{}{}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let rows: [(&str, (i64, &str)); 20] = [
        ("", (-32700, "wire.truncated")),
        ("nonsense", (-32700, "wire.syntax")),
        ("{", (-32700, "wire.truncated")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#,
            (-32700, "wire.syntax"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#,
            (-32700, "wire.surrogate"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1e400x,"method":"ping"}"#,
            (-32700, "wire.syntax"),
        ),
        (r#""text""#, (-32600, "wire.envelope")),
        ("null", (-32600, "wire.envelope")),
        (r#"{"id":1,"method":"ping"}"#, (-32600, "wire.envelope")),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            (-32600, "wire.envelope"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            (-32600, "wire.envelope"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            (-32600, "wire.envelope"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            (-32600, "wire.envelope"),
        ),
        (r#"{"jsonrpc":"2.0","id":1}"#, (-32600, "wire.envelope")),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            (-32600, "wire.envelope"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#,
            (-32600, "wire.unknown_member"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#,
            (-32600, "wire.duplicate_key"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
            (-32602, "wire.params"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#,
            (-32602, "wire.params"),
        ),
        (&deep, (-32600, "wire.too_deep")),
    ];
    for (body, (code, name)) in rows {
        for path in ["/mcp", "/mcp/servers/far"] {
            let answer = Posted::new(&rig.gantry.agent, path, &Value::Null)
                .body(body)
                .send(&rig.gantry);
            told(body, &answer, (400, code, name));
            // A request of which only the params are wrong is answered under its id.
            let id = if name == "wire.params" {
                json!(1)
            } else {
                Value::Null
            };
            assert_eq!(answer.json()["id"], id, "{body}");
        }
    }
    let answer = Posted::new(&rig.gantry.agent, "/mcp", &Value::Null)
        .body(*b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}")
        .send(&rig.gantry);
    told("bad UTF-8", &answer, (400, -32700, "wire.utf8"));
    // Long ones are read to their end, and none is kept.
    let long = Posted::new(&rig.gantry.agent, "/mcp", &Value::Null).body("nonsense");
    let long = long.padded(1 << 20);
    for _ in 0..48 {
        let answer = long.send(&rig.gantry);
        told("long nonsense", &answer, (400, -32700, "wire.syntax"));
    }
    rig.neighbour_holds();
    rig.nothing_happened();
}

// fault A7
#[test]
fn batches_are_refused_but_in_the_one_version_that_has_them() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let params = json!({"name": "far__echo", "arguments": {"text": "x"}});
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}]);
    let bare = Posted::new(&rig.gantry.agent, "/mcp", &batch);
    let stateless = bare.clone().header("MCP-Protocol-Version", "2026-07-28");
    let session = rig.gantry.initialize().id.unwrap();
    let newer = Posted::in_session(&rig.gantry.agent, &session, &batch);
    for posted in [bare, stateless, newer] {
        told(
            "batch",
            &posted.send(&rig.gantry),
            (400, -32600, "wire.batch"),
        );
    }
    rig.nothing_happened();
}

// fault A7
#[test]
fn unknown_methods_are_told_as_their_generation_wants_it_and_recorded() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let agent = &rig.gantry.agent;
    let stateless = Posted::stateless(agent, "tools/destroy", json!({})).send(&rig.gantry);
    told("stateless", &stateless, (404, -32601, "method.unknown"));
    let message = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/destroy", "params": {}});
    let session = rig.gantry.initialize().id.unwrap();
    let older = Posted::in_session(agent, &session, &message).send(&rig.gantry);
    told("session", &older, (200, -32601, "method.unknown"));
    assert_eq!(older.json()["id"], 9);
    // Methods that another generation has are no methods here either.
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
    ] {
        let answer = Posted::stateless(agent, method, json!({})).send(&rig.gantry);
        told(method, &answer, (404, -32601, "era.method"));
    }
    for method in ["server/discover", "subscriptions/listen"] {
        let message = json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": {}});
        let answer = Posted::in_session(agent, &session, &message).send(&rig.gantry);
        told(method, &answer, (400, -32602, "era.meta"));
    }
    assert_eq!(rig.journal().calls(), 0);
    let rows = rig.gantry.audit_rows("");
    assert_eq!(rows.len(), 2, "{rows:#?}");
    for row in rows {
        let got = (&row["method"], &row["status"], &row["code"]);
        assert_eq!(
            got,
            (
                &json!("tools/destroy"),
                &json!("refused"),
                &json!("method.unknown")
            )
        );
    }
}

// fault A7
#[test]
fn wrong_forms_are_refused_before_anything_is_read() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let call = rig.call("echo", json!({"text": "x"}));
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonx",
        "",
    ] {
        let answer = call.clone().header("Content-Type", kind).send(&rig.gantry);
        told(kind, &answer, (415, -31415, "http.content_type"));
    }
    let twice = call
        .clone()
        .also("Content-Type", "text/plain")
        .send(&rig.gantry);
    told(
        "two content types",
        &twice,
        (415, -31415, "http.content_type"),
    );
    let none = call.clone().without("Content-Type").send(&rig.gantry);
    told("no content type", &none, (415, -31415, "http.content_type"));
    for accept in ["text/html", "application/json;q=0", "image/*"] {
        let answer = call.clone().header("Accept", accept).send(&rig.gantry);
        told(accept, &answer, (406, -31406, "http.accept"));
    }
    rig.nothing_happened();
    // A client that says nothing takes what there is.
    assert_eq!(call.without("Accept").send(&rig.gantry).status, 200);
    assert_eq!(rig.journal().calls(), 1);
    rig.audited(&[(1, "ok", None)]);
}

/// Asks without a body and returns what answers on a connection of its own.
fn bare(rig: &Rig, method: &str, headers: &[(&str, &str)]) -> Connection {
    let bearer = format!("Bearer {}", rig.gantry.agent);
    let mut all = vec![("Authorization", bearer.as_str())];
    all.extend_from_slice(headers);
    let mut connection = rig.gantry.connect();
    connection.write(method, "/mcp", &all, b"").unwrap();
    connection
}

// fault A7
#[test]
fn other_http_methods_are_answered_by_the_book() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let session = rig.gantry.initialize().id.unwrap();
    let of_session = ("Mcp-Session-Id", session.as_str());
    let stateless = ("MCP-Protocol-Version", "2026-07-28");
    let events = ("Accept", "text/event-stream");
    for (method, headers) in [
        ("GET", vec![events]),
        ("GET", vec![events, stateless, of_session]),
        ("DELETE", vec![stateless, of_session]),
        ("PUT", vec![]),
        ("PATCH", vec![of_session]),
        ("OPTIONS", vec![]),
    ] {
        let answer = bare(&rig, method, &headers).answer().unwrap();
        told(method, &answer, (405, -31405, "http.method"));
        assert_eq!(answer.header("allow"), Some("POST"), "{method}");
    }
    let none = bare(&rig, "DELETE", &[]).answer().unwrap();
    told("no session to end", &none, (400, -31400, "session.missing"));
    let never = "0123456789abcdef0123456789abcdef";
    for id in [never, "x", "", "0123456789ABCDEF0123456789ABCDEF"] {
        for method in ["GET", "DELETE"] {
            let answer = bare(&rig, method, &[events, ("Mcp-Session-Id", id)])
                .answer()
                .unwrap();
            told(id, &answer, (404, -31404, "session.unknown"));
        }
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let answer = Posted::in_session(&rig.gantry.agent, id, &ping).send(&rig.gantry);
        told(id, &answer, (404, -31404, "session.unknown"));
    }
    let two = bare(&rig, "DELETE", &[of_session, of_session])
        .answer()
        .unwrap();
    told("two sessions", &two, (404, -31404, "session.unknown"));
    let json_only = bare(&rig, "GET", &[of_session, ("Accept", "application/json")])
        .answer()
        .unwrap();
    told("GET for JSON", &json_only, (406, -31406, "http.accept"));
    // An event id of long ago: nothing can be told again, and the stream begins anew.
    let resumed = bare(&rig, "GET", &[of_session, events, ("Last-Event-ID", "41")])
        .head()
        .unwrap();
    assert_eq!(
        (resumed.status, resumed.header("content-type")),
        (200, Some("text/event-stream"))
    );
    assert_eq!(
        bare(&rig, "DELETE", &[of_session]).answer().unwrap().status,
        204
    );
    let ended = bare(&rig, "GET", &[of_session, events]).answer().unwrap();
    told("ended", &ended, (404, -31404, "session.unknown"));
    rig.nothing_happened();
}
