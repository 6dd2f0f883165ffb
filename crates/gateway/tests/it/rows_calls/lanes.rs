//! Rows 1.6 and 1.7: the lanes of a server, what waits for them, and when they open again.

use std::fs;
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{SECOND, rest_tool, with_journal};
use crate::harness::{Gantry, LONG};

// row 1.6
#[test]
fn a_timeout_frees_the_lane_once_the_late_answer_has_come() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().fault("late=6000").fault_calls(1);
    let gantry = with_journal(&journal, peer, &json!({"concurrency": 1}));
    let spec = gantry.status("a")["spec"].clone();
    assert_eq!(
        (&spec["timeout"], &spec["late_grace"]),
        (&json!("30s"), &json!("10s"))
    );
    let (begun, watch) = (Instant::now(), Stopwatch::start());
    let body = json!({
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "late", "nonce": "one"}},
        "timeout_ms": 1000,
    });
    let path = "/api/v1/mcp/servers/a/call";
    let answer = gantry.rest_as(&gantry.agent, "POST", path, Some(&body));
    let (took, ran) = (begun.elapsed(), watch.elapsed());
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert_eq!(
        answer.json()["detail"],
        "server `a` did not answer within 1s"
    );
    assert_eq!(answer.json()["code"], "call.timeout");
    assert!(took >= SECOND && ran <= 4 * SECOND, "{took:?}");
    assert_eq!(
        gantry.status("a")["queue"]["closed_lanes"],
        1,
        "and the status says so"
    );
    let next = rest_tool(&gantry, "a", "echo", json!({"text": "next"}));
    assert_eq!(next.json()["result"]["content"][0]["text"], "next");
    assert!(begun.elapsed() >= 6 * SECOND, "{:?}", begun.elapsed());
    let status = gantry.status("a");
    assert_eq!(
        (&status["queue"]["closed_lanes"], &status["restart_count"]),
        (&json!(0), &json!(0))
    );
    assert!(status["late_replies"].as_u64().unwrap() >= 1);
    assert!(
        Journal::read(&journal).unwrap().cancelled("one"),
        "the server was told"
    );
    let rows = gantry.audit_rows("server=a");
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row["status"].clone(), row["code"].clone()))
        .collect();
    assert_eq!(
        told,
        [
            (json!("timeout"), json!("call.timeout")),
            (json!("ok"), Value::Null)
        ]
    );
    gantry.events("a", "call_timeout", 1);
}

// row 1.6
#[test]
fn a_lane_opens_after_its_grace_if_no_late_answer_comes() {
    let members = json!({"concurrency": 1, "calls": {"late_grace": "1500ms"}});
    let peer = Evilpeer::new().fault("hang").fault_calls(1);
    let gantry = Gantry::builder().server_with("a", &peer, &members).start();
    gantry.wait_state("a", "ready", LONG);
    let begun = Instant::now();
    let params = json!({"name": "echo", "arguments": {"text": "x"}});
    let body = json!({"method": "tools/call", "params": params, "timeout_ms": 1000});
    let path = "/api/v1/mcp/servers/a/call";
    let first = gantry.rest_as(&gantry.agent, "POST", path, Some(&body));
    assert_eq!(first.status, 504);
    let answered = Stopwatch::start();
    let next = rest_tool(&gantry, "a", "echo", json!({"text": "next"}));
    assert_eq!(next.json()["result"]["content"][0]["text"], "next");
    // Its own second, and then the grace.
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(2500), "{waited:?}");
    let waited = answered.elapsed();
    assert!(waited <= 8 * SECOND, "{waited:?}");
    assert_eq!(gantry.status("a")["restart_count"], 0);
}

// row 1.7
#[test]
fn calls_to_one_lane_go_one_at_a_time_and_fair_between_agents() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = with_journal(&journal, Evilpeer::new(), &json!({"concurrency": 1}));
    let (gantry, journal) = (&gantry, &journal);
    // The first call has the lane until all others wait.
    let until = folder.path().join("until");
    let held = json!({"name": "slow", "arguments": {"ms": 0, "until": until}});
    let slow = |nonce: &str| {
        let arguments = json!({"text": "x", "delay_ms": 400, "nonce": nonce});
        json!({"name": "echo", "arguments": arguments})
    };
    let call = |key: &str, params: Value| {
        let body = json!({"method": "tools/call", "params": params});
        let answer = gantry.rest_as(key, "POST", "/api/v1/mcp/servers/a/call", Some(&body));
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let waiting = |count: u64| {
        let holds = move |status: &Value| {
            let queue = &status["queue"];
            assert!(queue["in_flight"].as_u64() <= Some(1), "{queue}");
            queue["in_flight"] == 1 && queue["waiting"] == count
        };
        gantry.wait_status("a", LONG, holds);
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || call(&gantry.agent, held));
        waiting(0);
        for number in 0..8 {
            let params = slow(&format!("many{number}"));
            scope.spawn(move || call(&gantry.agent, params));
        }
        waiting(8);
        let params = slow("few");
        scope.spawn(move || call(&gantry.admin, params));
        waiting(9);
        fs::write(&until, "").unwrap();
    });
    assert!(
        begun.elapsed() >= Duration::from_millis(9 * 400),
        "{:?}",
        begun.elapsed()
    );
    let seen = Journal::read(journal).unwrap();
    let order = seen.nonces();
    let place = order.iter().position(|nonce| *nonce == "few").unwrap();
    assert!(
        place <= 4,
        "the other agent does not wait for all of the first: {order:?}"
    );
}

// row 1.7
#[test]
fn an_agent_that_fills_its_queue_keeps_no_other_agent_out() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let members = json!({"concurrency": 1, "calls": {"queue": 2}});
    let gantry = with_journal(&journal, Evilpeer::new(), &members);
    // None of them ends before all have come.
    let until = folder.path().join("until");
    let call = |key: &str, nonce: &str| {
        let arguments = json!({"ms": 0, "until": until, "nonce": nonce});
        let params = json!({"name": "slow", "arguments": arguments});
        let body = json!({"method": "tools/call", "params": params});
        gantry.rest_as(key, "POST", "/api/v1/mcp/servers/a/call", Some(&body))
    };
    let waiting = |count: u64| {
        let holds = move |status: &Value| status["queue"]["waiting"] == count;
        gantry.wait_status("a", LONG, holds);
    };
    thread::scope(|scope| {
        let (call, agent, admin) = (&call, &*gantry.agent, &*gantry.admin);
        let first = scope.spawn(move || call(agent, "first"));
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
        let second = scope.spawn(move || call(agent, "second"));
        waiting(1);
        let third = scope.spawn(move || call(agent, "third"));
        waiting(2);
        let theirs = scope.spawn(move || call(admin, "theirs"));
        waiting(3);
        let busy = call(agent, "fourth");
        assert_eq!(busy.status, 429, "{}", busy.text());
        assert_eq!(busy.header("retry-after"), Some("1"));
        assert_eq!(busy.json()["code"], "server.busy");
        fs::write(&until, "").unwrap();
        for answered in [first, second, third, theirs] {
            let answer = answered.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    });
    let seen = Journal::read(&journal).unwrap();
    assert_eq!(seen.nonces(), ["first", "second", "theirs", "third"]);
    let ended = |status: &str| gantry.audit_rows(&format!("server=a&status={status}"));
    assert_eq!(ended("ok").len(), 4);
    let refused = ended("refused");
    assert_eq!(refused.len(), 1, "{refused:#?}");
    assert!(refused.iter().all(|row| row["code"] == "server.busy"));
}

// row 1.7
#[test]
fn a_full_queue_answers_busy_at_once() {
    let members = json!({"concurrency": 1, "calls": {"queue": 2}});
    let gantry = Gantry::builder()
        .server_with("a", &Evilpeer::new(), &members)
        .start();
    gantry.wait_state("a", "ready", LONG);
    let folder = tempfile::tempdir().unwrap();
    let until = folder.path().join("until");
    thread::scope(|scope| {
        let (gantry, until) = (&gantry, &until);
        for _ in 0..3 {
            scope.spawn(move || {
                let answer = rest_tool(gantry, "a", "slow", json!({"ms": 0, "until": until}));
                assert_eq!(answer.status, 200, "{}", answer.text());
            });
        }
        gantry.wait_status("a", LONG, |status| status["queue"]["waiting"] == 2);
        let begun = Stopwatch::start();
        let answer = rest_tool(gantry, "a", "echo", json!({"text": "x"}));
        assert!(begun.elapsed() <= SECOND, "never a wait");
        assert_eq!(answer.status, 429, "{}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(
            answer.json()["detail"],
            "server `a` is busy: 2 calls wait already"
        );
        fs::write(until, "").unwrap();
    });
    let refused = gantry.audit_rows("server=a&status=refused");
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["code"], "server.busy");
    // A hosted server has one lane unless something else is said.
    let body = json!({"name": "hosted", "command": "true", "start": "lazy"});
    let registered = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(registered.status, 201, "{}", registered.text());
    assert_eq!(gantry.status("hosted")["queue"]["lanes"], 1);
    assert_eq!(gantry.status("hosted")["queue"]["limit"], 256);
}

// row 1.7
#[test]
fn calls_that_sleep_in_the_lanes_hold_no_call_of_another_agent() {
    let members = json!({"concurrency": 4});
    let gantry = Gantry::builder()
        .server_with("a", &Evilpeer::new(), &members)
        .start();
    gantry.wait_state("a", "ready", LONG);
    let other = gantry.agent_with("other", &["a:*"]);
    let folder = tempfile::tempdir().unwrap();
    let until = folder.path().join("until");
    thread::scope(|scope| {
        let (gantry, until) = (&gantry, &until);
        for _ in 0..12 {
            scope.spawn(move || {
                let answer = rest_tool(gantry, "a", "slow", json!({"ms": 0, "until": until}));
                assert_eq!(answer.status, 200, "{}", answer.text());
            });
        }
        // All of them came, and one lane is left.
        gantry.wait_status("a", LONG, |status| {
            status["queue"]["in_flight"] == 3 && status["queue"]["waiting"] == 9
        });
        for _ in 0..5 {
            let asked = Instant::now();
            let params = json!({"name": "echo", "arguments": {"text": "at once"}});
            let body = json!({"method": "tools/call", "params": params});
            let answer = gantry.rest_as(&other, "POST", "/api/v1/mcp/servers/a/call", Some(&body));
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(
                asked.elapsed() < Duration::from_secs(1),
                "{:?}",
                asked.elapsed()
            );
        }
        fs::write(until, "").unwrap();
    });
    assert_eq!(gantry.audit_rows("status=ok").len(), 17);
}
