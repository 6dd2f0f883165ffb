//! Limits on calls and bytes of keys, agents and projects.

use std::thread;
use std::time::Duration;

use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::{done, echo, key, on_each_store, refused};
use crate::harness::{Answer, Gantry, LONG, modern};

/// Asserts that a call was refused by a limit, and says when to come again.
fn limited(answer: &Answer, code: &str, detail: &str) -> u64 {
    refused(answer, 429, code);
    assert_eq!(answer.json()["detail"], detail);
    answer.header("retry-after").unwrap().parse().unwrap()
}

// row 3.2, fault T7
#[test]
fn calls_beyond_a_rate_are_refused_with_a_time_to_come_again_and_recorded() {
    on_each_store(|gantry| {
        let made = gantry.cli(&["key", "new", "--rate", "3/m", "--json"]);
        assert!(made.status.success(), "{made:?}");
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        let text = made["key"].as_str().unwrap();
        for _ in 0..3 {
            assert_eq!(echo(gantry, text, "x").status, 200);
        }
        let wait = limited(
            &echo(gantry, text, "x"),
            "limit.rate",
            "the key is limited to 3 calls per minute",
        );
        assert!((1..=20).contains(&wait), "{wait}");
        // Over MCP the error says the same.
        let params = json!({"name": "a__echo", "arguments": {"text": "x"}});
        let answer = modern(&mut gantry.connect(), text, "/mcp", "tools/call", params);
        assert_eq!(answer.status, 429, "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
        let error = answer.message()["error"].take();
        assert_eq!(
            (&error["code"], &error["data"]["code"]),
            (&json!(-31429), &json!("limit.rate"))
        );
        let wait = error["data"]["retry_after_ms"].as_u64().unwrap();
        assert!((1..=20_000).contains(&wait), "{error:#}");
        // Lists cost nothing, and another key of the agent is not limited.
        assert_eq!(
            gantry.rest_as(text, "GET", "/api/v1/tools", None).status,
            200
        );
        assert_eq!(echo(gantry, &gantry.agent, "x").status, 200);
        let rows = gantry.audit_rows("status=refused");
        assert_eq!(rows.len(), 2, "{rows:#?}");
        assert!(
            rows.iter()
                .all(|row| row["code"] == "limit.rate" && row["tool"] == "echo")
        );
        let metrics = gantry.rest("GET", "/metrics", None).text();
        let line = "gantry_calls_limited_total{project=\"local\",limit=\"key\"} 2";
        assert!(metrics.contains(line), "{metrics}");
        // A limit that is taken away does not hold any more.
        let id = made["id"].as_str().unwrap();
        let set = gantry.cli(&["key", "set", id, "--no-limits"]);
        assert!(set.status.success(), "{set:?}");
        assert_eq!(echo(gantry, text, "x").status, 200);
    });
}

// fault T7
#[test]
fn an_agent_and_a_project_are_limited_over_all_their_keys() {
    on_each_store(|gantry| {
        let new = gantry.cli(&["agent", "new", "busy", "--grant", "a:*", "--rate", "4/h"]);
        assert!(new.status.success(), "{new:?}");
        let keys = [0, 1].map(|_| key(gantry, &json!({"kind": "agent", "agent": "busy"})).1);
        for number in 0..4 {
            assert_eq!(echo(gantry, &keys[number % 2], "x").status, 200);
        }
        for key in &keys {
            let detail = "the agent is limited to 4 calls per hour";
            limited(&echo(gantry, key, "x"), "limit.rate", detail);
        }
        let agent = done(gantry, "GET", "/api/v1/agents/busy", &Value::Null, 200);
        assert_eq!(agent["limits"], json!({"calls_per_hour": 4}));
        let listed = gantry.cli(&["agent", "ls"]);
        assert!(String::from_utf8_lossy(&listed.stdout).contains("at most 4/h"));
        let limits = json!({"limits": {"calls_per_hour": 100}});
        done(gantry, "PATCH", "/api/v1/agents/busy", &limits, 200);
        assert_eq!(echo(gantry, &keys[0], "x").status, 200);
        // The project's limit is that of all its agents.
        let set = gantry.cli(&["project", "set", "local", "limits.calls_per_minute=2"]);
        assert!(set.status.success(), "{set:?}");
        assert_eq!(echo(gantry, &keys[0], "x").status, 200);
        assert_eq!(echo(gantry, &gantry.agent, "x").status, 200);
        let detail = "the project is limited to 2 calls per minute";
        limited(&echo(gantry, &keys[1], "x"), "limit.rate", detail);
        done(
            gantry,
            "PATCH",
            "/api/v1/settings",
            &json!({"limits.calls_per_minute": null}),
            200,
        );
        assert_eq!(echo(gantry, &keys[1], "x").status, 200);
        let zero = json!({"limits": {"calls_per_minute": 0}});
        refused(
            &gantry.rest("PATCH", "/api/v1/agents/busy", Some(&zero)),
            422,
            "request.body",
        );
    });
}

// fault T7
#[test]
fn bytes_and_calls_at_once_are_limited() {
    let gantry = Gantry::start(&["a"]);
    let (_, text) = key(
        &gantry,
        &json!({"kind": "agent", "limits": {"bytes_per_minute": 4096}}),
    );
    let long = "x".repeat(3000);
    assert_eq!(echo(&gantry, &text, &long).status, 200);
    let detail = "the key is limited to 4096 bytes per minute";
    let wait = limited(&echo(&gantry, &text, "x"), "limit.rate", detail);
    assert!((10..=60).contains(&wait), "{wait}");

    let (id, text) = key(
        &gantry,
        &json!({"kind": "agent", "limits": {"concurrency": 2}}),
    );
    let folder = tempfile::tempdir().unwrap();
    let until = folder.path().join("until");
    let slow = json!({"name": "a__slow", "arguments": {"ms": 0, "until": until}});
    thread::scope(|scope| {
        let call = || gantry.rest_as(&text, "POST", "/api/v1/tools/call", Some(&slow));
        let running = [scope.spawn(call), scope.spawn(call)];
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 2);
        let detail = "the key is limited to 2 calls at once";
        assert_eq!(
            limited(&echo(&gantry, &text, "x"), "limit.concurrency", detail),
            1
        );
        // One more is allowed, and those under way are known.
        let more = json!({"limits": {"concurrency": 3}});
        done(&gantry, "PATCH", &format!("/api/v1/keys/{id}"), &more, 200);
        assert_eq!(echo(&gantry, &text, "x").status, 200);
        std::fs::write(&until, "").unwrap();
        for call in running {
            assert_eq!(call.join().unwrap().status, 200);
        }
    });
    for _ in 0..5 {
        assert_eq!(echo(&gantry, &text, "x").status, 200);
    }
}

// fault T7
#[test]
fn a_noisy_tenant_is_held_to_its_limits_and_another_is_served() {
    let gantry = Gantry::start(&["a"]);
    done(
        &gantry,
        "POST",
        "/api/v1/projects",
        &json!({"name": "noisy"}),
        201,
    );
    let argv = gantry_testkit::Evilpeer::new().argv();
    let server = json!({"name": "b", "command": argv[0], "args": argv[1..], "profile": "local",
        "start": "eager"});
    done(
        &gantry,
        "POST",
        "/api/v1/projects/noisy/mcp/servers",
        &server,
        201,
    );
    let limits = json!({"limits.calls_per_minute": 20, "limits.concurrency": 4});
    done(
        &gantry,
        "PATCH",
        "/api/v1/projects/noisy/settings",
        &limits,
        200,
    );
    let agent = json!({"name": "default", "grant": "all"});
    done(
        &gantry,
        "POST",
        "/api/v1/projects/noisy/agents",
        &agent,
        201,
    );
    let noisy = done(
        &gantry,
        "POST",
        "/api/v1/projects/noisy/keys",
        &json!({"kind": "agent"}),
        201,
    );
    let noisy = noisy["key"].as_str().unwrap();
    let state = || {
        gantry
            .rest("GET", "/api/v1/projects/noisy/mcp/servers/b", None)
            .json()
    };
    let ready = gantry_testkit::wait::eventually(LONG, || state()["state"] == "ready");
    assert!(ready.is_some(), "{}", state());
    let flood = |calls: usize| {
        let body = json!({"name": "b__echo", "arguments": {"text": "x"}});
        let statuses = (0..calls).map(|_| {
            let answer = gantry.rest_as(noisy, "POST", "/api/v1/tools/call", Some(&body));
            answer.status
        });
        statuses.collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let flooding: Vec<_> = (0..4).map(|_| scope.spawn(|| flood(100))).collect();
        // Agents of one name in two projects have nothing in common.
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            let watch = Stopwatch::start();
            assert_eq!(echo(&gantry, &gantry.agent, "x").status, 200);
            slowest = slowest.max(watch.elapsed());
        }
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        let statuses: Vec<u16> = flooding
            .into_iter()
            .flat_map(|flood| flood.join().unwrap())
            .collect();
        let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
        assert!((20..=26).contains(&count(200)), "{}", count(200));
        assert_eq!(count(200) + count(429), 400);
    });
}
