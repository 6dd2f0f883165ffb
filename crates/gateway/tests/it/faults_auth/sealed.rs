//! What one key opened is nothing to another: sessions, streams, outcomes, rows.

use serde_json::json;

use super::refused;
use crate::faults_client::Posted;
use crate::harness::{Connection, Gantry};

/// Makes a second key for an agent and returns it.
fn second_key(gantry: &Gantry, agent: &str) -> String {
    let body = json!({"kind": "agent", "agent": agent});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["key"].as_str().unwrap().to_owned()
}

fn get(gantry: &Gantry, key: &str, path: &str, session: &str) -> Connection {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Accept", "text/event-stream"),
        ("Mcp-Session-Id", session),
    ];
    let mut connection = gantry.connect();
    connection.write("GET", path, &headers, b"").unwrap();
    connection
}

// fault T4
#[test]
fn a_session_is_unknown_to_every_other_key_and_endpoint() {
    let gantry = Gantry::start(&["a"]);
    let other = second_key(&gantry, "default");
    let session = gantry.initialize().id.unwrap();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let mine = Posted::in_session(&gantry.agent, &session, &ping);
    let theirs = Posted::in_session(&other, &session, &ping);
    assert_eq!(mine.send(&gantry).json()["result"], json!({}));
    let never = "0123456789abcdef0123456789abcdef";
    let unknown = Posted::in_session(&gantry.agent, never, &ping).send(&gantry);
    refused("never was", &unknown, 404, "session.unknown");
    for answer in [
        theirs.send(&gantry),
        mine.clone().at("/mcp/servers/a").send(&gantry),
    ] {
        assert_eq!(
            (answer.status, answer.text()),
            (unknown.status, unknown.text())
        );
    }
    for (key, path) in [(&other, "/mcp"), (&gantry.agent, "/mcp/servers/a")] {
        refused(
            path,
            &get(&gantry, key, path, &session).answer().unwrap(),
            404,
            "session.unknown",
        );
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Mcp-Session-Id", session.as_str()),
        ];
        let ended = gantry
            .connect()
            .request("DELETE", path, &headers, b"")
            .unwrap();
        refused(path, &ended, 404, "session.unknown");
    }
    assert_eq!(
        mine.send(&gantry).json()["result"],
        json!({}),
        "nobody else ended it"
    );
    assert_eq!(
        get(&gantry, &gantry.agent, "/mcp", &session)
            .head()
            .unwrap()
            .status,
        200
    );
}

// fault T4
#[test]
fn an_outcome_that_was_asked_for_later_is_for_its_own_key() {
    let gantry = Gantry::start(&["a"]);
    let other = second_key(&gantry, "other");
    let call = json!({"name": "a__echo", "arguments": {"text": "mine"}});
    let accepted = Posted::new(&gantry.agent, "/api/v1/tools/call", &call)
        .header("Prefer", "respond-async")
        .send(&gantry);
    assert_eq!(accepted.status, 202);
    let place = accepted.header("location").unwrap();
    let ask = |key: &str, path: &str| gantry.rest_as(key, "GET", path, None);
    let done = || ask(&gantry.agent, place).status == 200;
    assert!(gantry_testkit::wait::eventually(crate::harness::LONG, done).is_some());
    let outcome = ask(&gantry.agent, place).json();
    assert_eq!(outcome["result"]["content"][0]["text"], "mine");
    refused("outcome", &ask(&other, place), 404, "call.unknown");
    // The row too, and the list of rows.
    let row = format!("/api/v1/calls/{}", outcome["call"].as_str().unwrap());
    assert_eq!(ask(&gantry.agent, &row).status, 200);
    let unknown = ask(&other, "/api/v1/calls/none");
    assert_eq!(ask(&other, &row).text(), unknown.text());
    assert_eq!(
        ask(&other, "/api/v1/calls?agent=default").json()["items"],
        json!([])
    );
    assert_eq!(ask(&gantry.admin, &row).status, 200);
}
