//! Who a call is recorded for: what the gateway knows, and what an agent only says.

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use crate::faults_client::Posted;
use crate::harness::{Answer, Gantry, LONG, Session, on_postgresql};

const USER: &str = "io.gantry/user-id";
const ASSERTED: &str = "io.gantry/asserted-user-id";

fn start() -> Gantry {
    let entry = |era| Evilpeer::new().era(era);
    let gantry = Gantry::builder()
        .server("old", &entry(Era::Legacy))
        .server("new", &entry(Era::Modern))
        .server_with(
            "closed",
            &entry(Era::Modern),
            &json!({"calls": {"pass_context": false}}),
        )
        .start();
    for server in ["old", "new", "closed"] {
        gantry.wait_state(server, "ready", LONG);
    }
    gantry
}

/// Calls `whoami` of a server over REST and returns the `_meta` that it got.
fn over_rest(
    gantry: &Gantry,
    key: &str,
    server: &str,
    headers: &[(&str, &str)],
    meta: &Value,
) -> Value {
    let body = json!({"name": format!("{server}__whoami"), "arguments": {}, "_meta": meta});
    let mut posted = Posted::new(key, "/api/v1/tools/call", &body);
    for (name, value) in headers {
        posted = posted.header(name, value);
    }
    let answer = posted.send(gantry);
    assert_eq!(answer.status, 200, "{}", answer.text());
    meta_of(&answer.json()["result"])
}

/// Does the same over MCP, in the stateless generation.
fn over_mcp(
    gantry: &Gantry,
    key: &str,
    server: &str,
    headers: &[(&str, &str)],
    meta: &Value,
) -> Value {
    let params = json!({"name": format!("{server}__whoami"), "arguments": {}, "_meta": meta});
    let mut posted = Posted::stateless(key, "tools/call", params);
    for (name, value) in headers {
        posted = posted.header(name, value);
    }
    meta_of(&Answer::message(&posted.send(gantry))["result"])
}

fn meta_of(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("{result:#}"))).unwrap()
}

/// Returns user, trust and surface of the newest row.
fn newest(gantry: &Gantry) -> [Value; 3] {
    let rows = gantry.audit_rows("");
    let row = rows.iter().max_by_key(|row| row["id"].to_string()).unwrap();
    ["user", "user_trust", "surface"].map(|member| row[member].clone())
}

type Call = fn(&Gantry, &str, &str, &[(&str, &str)], &Value) -> Value;

const SURFACES: [(&str, Call); 2] = [("rest", over_rest), ("mcp", over_mcp)];

// fault T4: the surface is where the call came in, whatever a header says.
#[test]
fn no_header_changes_where_a_call_came_in() {
    let gantry = start();
    for (surface, call) in SURFACES {
        for claimed in ["cli", "mcp", "rest", "library", "operator"] {
            let headers = [("X-Gantry-Surface", claimed)];
            let meta = json!({"io.gantry/surface": claimed});
            let got = call(&gantry, &gantry.agent, "old", &headers, &meta);
            assert_eq!(got["io.gantry/surface"], Value::Null);
            assert_eq!(newest(&gantry)[2], surface, "{claimed}");
        }
    }
    let called = gantry.cli(&["call", "old__echo", "--text", "x"]);
    assert!(called.status.success());
    assert_eq!(newest(&gantry)[2], "rest");
}

// row 3.5, fault T4
#[test]
fn user_ids_of_an_agent_are_its_assertions() {
    let gantry = start();
    for (surface, call) in SURFACES {
        for server in ["old", "new"] {
            let by_header = [("X-Gantry-User-Id", "ceo"), ("X-Gantry-Run-Id", "r1")];
            let by_meta = json!({USER: "ceo", "io.gantry/run-id": "r1"});
            for (headers, meta) in [(&by_header[..], &json!({})), (&[], &by_meta)] {
                let got = call(&gantry, &gantry.agent, server, headers, meta);
                assert_eq!(got[USER], Value::Null, "{got:#}");
                assert_eq!(
                    (&got[ASSERTED], &got["io.gantry/run-id"]),
                    (&json!("ceo"), &json!("r1"))
                );
                let row = newest(&gantry);
                assert_eq!(row, [json!("ceo"), json!("asserted"), json!(surface)]);
            }
            // Our own words cannot be put into our mouth.
            let forged = json!({ASSERTED: "ceo", "vendor/own": 1, "io.gantry/approved-by": "ceo",
                                "IO.GANTRY/User-Id": "ceo", "io.gantry/agent": "admin"});
            let got = call(&gantry, &gantry.agent, server, &[], &forged);
            let ours = |name: &String| name.to_lowercase().starts_with("io.gantry/");
            assert!(!got.as_object().unwrap().keys().any(ours), "{got:#}");
            assert_eq!((&got[USER], &got[ASSERTED]), (&Value::Null, &Value::Null));
            assert_eq!(got["vendor/own"], 1, "what is not ours passes through");
            assert_eq!(newest(&gantry)[..2], [Value::Null, Value::Null]);
        }
        // A server that is to get no context gets none by another way.
        let meta = json!({USER: "ceo", ASSERTED: "ceo", "io.gantry/run-id": "r1"});
        let got = call(&gantry, &gantry.agent, "closed", &[], &meta);
        let ours = |name: &String| name.starts_with("io.gantry/");
        assert!(!got.as_object().unwrap().keys().any(ours), "{got:#}");
        assert_eq!(newest(&gantry)[..2], [json!("ceo"), json!("asserted")]);
    }
    // So it is in sessions of older generations.
    let mut session = Session::open(gantry.connect(), &gantry.agent, "2025-06-18");
    let params = json!({"name": "old__whoami", "arguments": {}, "_meta": {USER: "ceo"}});
    let got = meta_of(&session.request("tools/call", params)["result"]);
    assert_eq!((&got[USER], &got[ASSERTED]), (&Value::Null, &json!("ceo")));
    // And in what is exported.
    let csv = gantry.rest("GET", "/api/v1/calls/export?format=csv", None);
    let csv = csv.text();
    assert!(csv.contains(",user,user_trust,"), "{csv}");
    assert!(csv.contains(",ceo,asserted,"), "{csv}");
}

// row 3.5, fault T4
#[test]
fn user_ids_of_an_agent_are_its_assertions_on_postgresql() {
    on_postgresql(user_ids_of_an_agent_are_its_assertions);
}

// row 3.5
#[test]
fn an_agent_can_be_trusted_to_say_who_its_users_are() {
    let gantry = start();
    let made = gantry.cli(&[
        "agent",
        "new",
        "portal",
        "--grant",
        "all",
        "--trusted-user-ids",
    ]);
    assert!(made.status.success(), "{made:?}");
    let key = json!({"kind": "agent", "agent": "portal"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&key)).json();
    let key = made["key"].as_str().unwrap();
    let trusted = || {
        let shown = gantry.rest("GET", "/api/v1/agents/portal", None).json();
        shown["trusted_user_ids"].clone()
    };
    assert_eq!(trusted(), true);
    let header = [("X-Gantry-User-Id", "ann")];
    for (_, call) in SURFACES {
        for server in ["old", "new"] {
            let got = call(&gantry, key, server, &header, &json!({}));
            assert_eq!((&got[USER], &got[ASSERTED]), (&json!("ann"), &Value::Null));
            assert_eq!(newest(&gantry)[..2], [json!("ann"), json!("trusted")]);
        }
    }
    let listed = gantry.cli(&["agent", "ls"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let portal = listed.lines().find(|line| line.starts_with("portal"));
    assert!(portal.unwrap().ends_with("trusted user ids"), "{listed}");
    // Another change leaves it, and it can be taken back at once.
    let patch = |body: Value| {
        let answer = gantry.rest("PATCH", "/api/v1/agents/portal", Some(&body));
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    patch(json!({"label": "the portal"}));
    assert_eq!(trusted(), true);
    patch(json!({"trusted_user_ids": false}));
    let got = over_rest(&gantry, key, "old", &header, &json!({}));
    assert_eq!((&got[USER], &got[ASSERTED]), (&Value::Null, &json!("ann")));
    assert_eq!(newest(&gantry)[..2], [json!("ann"), json!("asserted")]);
}

// row 3.5
#[test]
fn an_agent_can_be_trusted_to_say_who_its_users_are_on_postgresql() {
    on_postgresql(an_agent_can_be_trusted_to_say_who_its_users_are);
}
