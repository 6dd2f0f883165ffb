//! Suspending and resuming tools, servers, agents and the project.

use tokio::time::Instant;

use serde_json::{Value, json};

use super::{AT_ONCE, calling, is_gone, key, refused, under_way};
use crate::harness::{Gantry, LONG, modern, on_postgresql};

fn tools(gantry: &Gantry, key: &str) -> Vec<String> {
    let listed = modern(&mut gantry.connect(), key, "/mcp", "tools/list", json!({})).message();
    let tools = listed["result"]["tools"].as_array().cloned();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.unwrap_or_default().iter().map(name).collect()
}

fn suspend(gantry: &Gantry, kind: &str, name: &str) -> Instant {
    let begun = Instant::now();
    let body = json!({"kind": kind, "name": name, "reason": "incident 7"});
    let done = gantry.rest("POST", "/api/v1/suspensions", Some(&body));
    assert_eq!(done.status, 200, "{}", done.text());
    begun
}

fn resume(gantry: &Gantry, kind: &str, name: &str) {
    let path = format!("/api/v1/suspensions?kind={kind}&name={name}");
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
}

fn call(gantry: &Gantry, key: &str, tool: &str) -> crate::harness::Answer {
    let body = json!({"name": tool, "arguments": {"text": "x"}});
    gantry.rest_as(key, "POST", "/api/v1/tools/call", Some(&body))
}

// row 3.2, faults T1, U6
#[test]
fn what_is_suspended_ends_at_once_and_its_grants_are_kept() {
    let mut gantry = Gantry::start(&["a", "b"]);
    let agent = gantry.agent.clone();
    let all = tools(&gantry, &agent);
    // A tool: its calls end, it leaves the list, the rest goes on.
    let running = calling(&gantry, &agent, "a__slow");
    under_way(&gantry, "/api/v1/calls", 1);
    let begun = suspend(&gantry, "tool", "a:slow");
    let (status, code, ended) = running.join().unwrap();
    assert_eq!((status, code.as_str()), (403, "tool.suspended"));
    assert!(ended - begun < AT_ONCE, "{:?}", ended - begun);
    let left: Vec<_> = all
        .iter()
        .filter(|tool| *tool != "a__slow")
        .cloned()
        .collect();
    assert_eq!(tools(&gantry, &agent), left);
    refused(&call(&gantry, &agent, "a__slow"), 403, "tool.suspended");
    assert_eq!(call(&gantry, &agent, "a__echo").status, 200);
    let why = gantry.rest("GET", "/api/v1/tools/why?agent=default&tool=a:slow", None);
    assert!(why.text().contains("suspended"), "{}", why.text());
    assert!(
        why.text().contains("is ready and offers it"),
        "{}",
        why.text()
    );
    // A server: its process stops, and its status says by whom and why.
    let pid = gantry.status("b")["pid"].clone();
    let running = calling(&gantry, &agent, "b__slow");
    under_way(&gantry, "/api/v1/calls", 1);
    let begun = suspend(&gantry, "server", "b");
    let (status, code, ended) = running.join().unwrap();
    assert_eq!((status, code.as_str()), (403, "server.suspended"));
    assert!(ended - begun < AT_ONCE, "{:?}", ended - begun);
    assert!(is_gone(&pid));
    let shown = gantry.wait_state("b", "suspended", LONG);
    assert!(
        shown["reason"].as_str().unwrap().contains("incident 7"),
        "{shown}"
    );
    assert!(
        tools(&gantry, &agent)
            .iter()
            .all(|tool| tool.starts_with("a__"))
    );
    refused(&call(&gantry, &agent, "b__echo"), 403, "server.suspended");
    let restart = gantry.rest("POST", "/api/v1/mcp/servers/b/restart", None);
    refused(&restart, 409, "server.suspended");
    // An agent: its key opens nothing, its session and its call end.
    let other = gantry.agent_with("other", &["a:*"]);
    resume(&gantry, "tool", "a:slow");
    let running = calling(&gantry, &agent, "a__slow");
    under_way(&gantry, "/api/v1/calls", 1);
    let mut session = gantry.initialize();
    let begun = suspend(&gantry, "agent", "default");
    let (status, _, ended) = running.join().unwrap();
    assert_ne!(status, 200);
    assert!(ended - begun < AT_ONCE * 2, "{:?}", ended - begun);
    refused(&call(&gantry, &agent, "a__echo"), 403, "auth.suspended");
    let answer = session.send("tools/list", json!({}));
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(call(&gantry, &other, "a__echo").status, 200);
    suspend(&gantry, "tool", "a:slow");
    // All of it holds over a restart.
    gantry.stop();
    let gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    gantry.wait_state("b", "suspended", LONG);
    refused(&call(&gantry, &agent, "a__echo"), 403, "auth.suspended");
    refused(&call(&gantry, &other, "a__slow"), 403, "tool.suspended");
    let listed = gantry.rest("GET", "/api/v1/suspensions", None).json();
    let kinds = listed["items"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["agent", "server", "tool"], "{listed}");
    // Resumed, everything is as it was.
    for (kind, name) in [("agent", "default"), ("server", "b"), ("tool", "a:slow")] {
        resume(&gantry, kind, name);
    }
    gantry.wait_state("b", "ready", LONG);
    assert_eq!(tools(&gantry, &agent), all);
    // The whole project: every agent, and no administrator.
    suspend(&gantry, "project", "");
    for key in [&agent, &other] {
        refused(&call(&gantry, key, "a__echo"), 403, "auth.suspended");
    }
    assert_eq!(gantry.status("a")["state"], "ready");
    resume(&gantry, "project", "");
    assert_eq!(call(&gantry, &other, "a__echo").status, 200);
    let acts = gantry.rest("GET", "/api/v1/acts?act=suspend", None).json();
    assert_eq!(acts["items"].as_array().unwrap().len(), 5, "{acts}");
}

// row 3.2, faults T1, U6
#[test]
fn what_is_suspended_ends_at_once_and_its_grants_are_kept_on_postgresql() {
    on_postgresql(what_is_suspended_ends_at_once_and_its_grants_are_kept);
}

// row 3.2
#[test]
fn operators_suspend_servers_and_administrators_agents() {
    let gantry = Gantry::start(&["a"]);
    let body = json!({"kind": "admin", "role": "operator"});
    let operator = key(&gantry, "/api/v1/keys", &body);
    let suspend = |key: &str, kind: &str, name: &str| {
        let body = json!({"kind": kind, "name": name});
        gantry.rest_as(key, "POST", "/api/v1/suspensions", Some(&body))
    };
    assert_eq!(suspend(&operator, "tool", "a:echo").status, 200);
    assert_eq!(suspend(&operator, "server", "a").status, 200);
    refused(&suspend(&operator, "agent", "default"), 403, "auth.role");
    refused(&suspend(&operator, "project", ""), 403, "auth.role");
    refused(
        &suspend(&gantry.admin, "agent", "nobody"),
        404,
        "agent.unknown",
    );
    refused(
        &suspend(&gantry.admin, "server", "nobody"),
        404,
        "server.unknown",
    );
    refused(&suspend(&gantry.admin, "key", "x"), 422, "request.body");
    refused(&suspend(&gantry.admin, "tool", "echo"), 422, "request.body");
}

// row 3.2
#[test]
fn operators_suspend_servers_and_administrators_agents_on_postgresql() {
    on_postgresql(operators_suspend_servers_and_administrators_agents);
}

// rows 0.5, 3.2, fault U4
#[test]
fn nobody_resumes_what_a_more_powerful_role_suspended() {
    let gantry = Gantry::start(&["a"]);
    let made = |role: &str| {
        let body = json!({"kind": "admin", "role": role});
        key(&gantry, "/api/v1/keys", &body)
    };
    let (admin, operator) = (made("admin"), made("operator"));
    let suspend = |key: &str, kind: &str, name: &str| {
        let body = json!({"kind": kind, "name": name});
        let done = gantry.rest_as(key, "POST", "/api/v1/suspensions", Some(&body));
        assert_eq!(done.status, 200, "{}", done.text());
    };
    let resume = |key: &str, kind: &str, name: &str| {
        let path = format!("/api/v1/suspensions?kind={kind}&name={name}");
        gantry.rest_as(key, "DELETE", &path, None)
    };
    // The installation suspends a project, which its own administrator does not undo.
    suspend(&gantry.admin, "project", "");
    refused(&resume(&admin, "project", ""), 403, "auth.role");
    refused(
        &call(&gantry, &gantry.agent, "a__echo"),
        403,
        "auth.suspended",
    );
    assert_eq!(resume(&gantry.admin, "project", "").status, 204);
    assert_eq!(call(&gantry, &gantry.agent, "a__echo").status, 200);
    // An administrator's suspension of a server is no operator's to undo, also if the operator was first.
    suspend(&operator, "server", "a");
    suspend(&admin, "server", "a");
    refused(&resume(&operator, "server", "a"), 403, "auth.role");
    suspend(&operator, "server", "a");
    refused(&resume(&operator, "server", "a"), 403, "auth.role");
    assert_eq!(resume(&admin, "server", "a").status, 204);
    // One's own, and that of lesser roles, is.
    suspend(&operator, "tool", "a:echo");
    assert_eq!(resume(&operator, "tool", "a:echo").status, 204);
    suspend(&operator, "tool", "a:echo");
    assert_eq!(resume(&admin, "tool", "a:echo").status, 204);
    let acts = gantry
        .rest("GET", "/api/v1/acts?act=resume&outcome=refused", None)
        .json();
    assert_eq!(acts["items"].as_array().unwrap().len(), 3, "{acts}");
}

// rows 0.5, 3.2, fault U4
#[test]
fn nobody_resumes_what_a_more_powerful_role_suspended_on_postgresql() {
    on_postgresql(nobody_resumes_what_a_more_powerful_role_suspended);
}
