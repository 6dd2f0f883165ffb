//! `GET /api/v1/tools/why`: who may use what, and why, as `gantry why` tells it.

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::problem;
use crate::harness::{Gantry, LONG};

fn why(gantry: &Gantry, agent: &str, tool: &str) -> Value {
    let path = format!("/api/v1/tools/why?agent={agent}&tool={tool}");
    let answer = gantry.rest("GET", &path, None);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn who_may_use_what_is_told_with_every_reason() {
    let gantry = Gantry::builder()
        .server_with(
            "a",
            &Evilpeer::new().name("a"),
            &json!({"tools": {"exclude": ["slow"]}}),
        )
        .entry("asleep", json!({"command": "/bin/true", "start": "lazy"}))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let reader = json!({"name": "reader", "grant": ["a:e*", "a:slow", "a:add", "asleep:*"],
        "tools": {"exclude": ["a:add"]}});
    assert_eq!(
        gantry.rest("POST", "/api/v1/agents", Some(&reader)).status,
        201
    );
    let expected = [
        (
            "a__echo",
            true,
            vec!["granted by `a:e*`", "server `a` is ready and offers it"],
        ),
        (
            "a:add",
            false,
            vec![
                "granted by `a:add`",
                "hidden by the agent's filter: `a:add` is excluded",
                "server `a` is ready and offers it",
            ],
        ),
        (
            "a__crash",
            false,
            vec![
                "no grant of `reader` names it",
                "server `a` is ready and offers it",
            ],
        ),
        (
            "a:slow",
            false,
            vec![
                "granted by `a:slow`",
                "not offered: `tools.exclude` has `slow`",
            ],
        ),
        (
            "a:e-nothing",
            false,
            vec!["granted by `a:e*`", "server `a` has no tool `e-nothing`"],
        ),
        (
            "asleep__x",
            true,
            vec![
                "granted by `asleep:*`",
                "server `asleep` is idle; a call waits for it and finds out",
            ],
        ),
    ];
    for (tool, allowed, reasons) in expected {
        let told = why(&gantry, "reader", tool);
        let identity = tool.replace("__", ":");
        let decision = if allowed { "allow" } else { "deny" };
        assert_eq!(
            (&told["agent"], &told["tool"], &told["allowed"]),
            (&json!("reader"), &json!(identity), &json!(allowed)),
        );
        assert_eq!(
            (&told["reasons"], &told["decision"]),
            (&json!(reasons), &json!(decision))
        );
        // The steps say the same, and the one about grants names the one that decides.
        let steps = told["steps"].as_array().unwrap();
        assert_eq!(steps.len(), reasons.len());
        let stops = steps.iter().any(|step| step["result"] == "stops");
        assert_eq!(stops, !allowed, "{told:#}");
        let first = &steps[0];
        assert_eq!(first["check"], "grant");
        let is_granted = reasons[0].starts_with("granted");
        assert_eq!(first["grant"].is_string(), is_granted, "{told:#}");
        assert!(told["policy_revision"].as_u64().unwrap() > 0);
    }
}

#[test]
fn what_cannot_be_told_is_refused_with_its_code() {
    let gantry = Gantry::start(&["a"]);
    let asked = |query: &str| gantry.rest("GET", &format!("/api/v1/tools/why{query}"), None);
    for (query, status, code) in [
        ("", 400, "request.query"),
        ("?agent=default", 400, "request.query"),
        ("?agent=default&tool=a:echo&more=1", 400, "request.query"),
        ("?agent=nobody&tool=a:echo", 404, "agent.unknown"),
        ("?agent=default&tool=b:echo", 404, "server.unknown"),
        ("?agent=default&tool=echo", 404, "tool.unknown"),
        ("?agent=default&tool=a:", 404, "tool.unknown"),
        // Of other classes only tools are explained, and not as if they were one.
        ("?agent=default&tool=a:prompt:greet", 404, "tool.unknown"),
        (
            "?agent=default&tool=a:resource:file:///x",
            404,
            "tool.unknown",
        ),
    ] {
        assert_eq!(problem(&gantry, &asked(query), status), code, "{query}");
    }
    let path = "/api/v1/tools/why?agent=default&tool=a:echo";
    let refused = gantry.rest_as(&gantry.agent, "GET", path, None);
    assert_eq!(problem(&gantry, &refused, 403), "auth.agent_key");
}

#[test]
fn names_are_those_that_somebody_sees() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .flags(&["--expose", "bare"])
        .start();
    gantry.wait_state("a", "ready", LONG);
    for name in ["echo", "a:echo"] {
        let told = why(&gantry, "default", name);
        assert_eq!(
            (&told["tool"], &told["allowed"]),
            (&json!("a:echo"), &json!(true))
        );
    }
}

#[test]
fn of_equal_names_the_agents_own_is_meant() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .server("b", &Evilpeer::new().name("b"))
        .flags(&["--expose", "bare"])
        .start();
    for name in ["a", "b"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let narrow = json!({"name": "narrow", "grant": ["b:*"]});
    let made = gantry.rest("POST", "/api/v1/agents", Some(&narrow));
    assert_eq!(made.status, 201, "{}", made.text());
    for (agent, name, tool, allowed) in [
        ("narrow", "echo", "b:echo", true),
        ("narrow", "a:echo", "a:echo", false),
        ("default", "echo", "a:echo", true),
        // It has lost its bare name, and is reached by its identity.
        ("default", "b:echo", "b:echo", true),
    ] {
        let told = why(&gantry, agent, name);
        let found = (&told["tool"], &told["allowed"]);
        assert_eq!(found, (&json!(tool), &json!(allowed)), "{told:#}");
    }
}
