//! Rows 0.10 and 0.11: a lazy server starts with its first use, and all agents share it.

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::Stopwatch;
use gantry_testkit::{Evilpeer, procs};
use serde_json::json;
use tokio::time::Instant;

use super::{SECOND, echoes, listed, register};
use crate::harness::{Gantry, LONG};

// row 0.10, row 2.1
#[test]
fn a_lazy_server_starts_with_its_first_use_and_is_reused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::start(&[]);
    let registered = register(
        &gantry,
        "lazy",
        &Evilpeer::new().journal(&journal),
        &json!({}),
    );
    assert_eq!(
        (&registered["state"], &registered["start"]),
        (&json!("idle"), &json!("lazy"))
    );
    assert_eq!(Journal::read(&journal).unwrap().starts(), 0);
    let list = listed(&gantry);
    let tools = list["result"]["tools"].as_array().unwrap();
    assert!(
        tools.iter().any(|tool| tool["name"] == "lazy__echo"),
        "listing starts it: {list:#}"
    );
    for _ in 0..5 {
        echoes(&gantry, "lazy");
    }
    assert_eq!(gantry.status("lazy")["state"], "ready");
    assert_eq!(Journal::read(&journal).unwrap().starts(), 1);
}

// row 0.10
#[test]
fn a_first_call_starts_a_lazy_server_once_however_many_come() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::start(&[]);
    register(
        &gantry,
        "lazy",
        &Evilpeer::new().journal(&journal),
        &json!({}),
    );
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let body = json!({"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}});
                let path = "/api/v1/mcp/servers/lazy/call";
                let answer = gantry.rest_as(&gantry.agent, "POST", path, Some(&body));
                assert_eq!(answer.status, 200, "{}", answer.text());
            });
        }
    });
    assert_eq!(Journal::read(&journal).unwrap().starts(), 1);
    assert_eq!(gantry.audit_rows("server=lazy&status=ok").len(), 10);
}

// row 0.10
#[test]
fn a_cold_server_is_listed_from_memory_if_its_spec_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut gantry = Gantry::start(&[]);
    register(
        &gantry,
        "lazy",
        &Evilpeer::new().journal(&journal),
        &json!({}),
    );
    echoes(&gantry, "lazy");
    assert_eq!(gantry.stop(), Some(0));
    let gantry = gantry.again();
    assert_eq!(gantry.status("lazy")["state"], "idle");
    let list = gantry.mcp("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    assert!(
        tools.iter().any(|tool| tool["name"] == "lazy__echo"),
        "{list:#}"
    );
    assert_eq!(
        Journal::read(&journal).unwrap().starts(),
        1,
        "nobody was woken for a listing"
    );
    echoes(&gantry, "lazy");
    assert_eq!(Journal::read(&journal).unwrap().starts(), 2);
}

// row 0.10
#[test]
fn a_listing_waits_three_seconds_for_an_unknown_server_and_no_longer() {
    let gantry = Gantry::start(&["a"]);
    register(
        &gantry,
        "slow",
        &Evilpeer::new().fault("slow-start=30000"),
        &json!({}),
    );
    let (begun, watch) = (Instant::now(), Stopwatch::start());
    let list = gantry.mcp("tools/list", json!({}));
    let (took, cost) = (begun.elapsed(), watch.elapsed());
    // Far from the half minute that the server takes.
    assert!(took >= 2 * SECOND && cost <= 10 * SECOND, "{took:?}");
    let tools = list["result"]["tools"].as_array().unwrap();
    let of = |server: &str| {
        tools
            .iter()
            .any(|tool| tool["name"] == format!("{server}__echo"))
    };
    assert!(of("a") && !of("slow"), "the others are listed");
    assert_eq!(
        list["result"]["_meta"]["io.gantry/not-listed"],
        json!(["slow"]),
        "and who is missing is said"
    );
}

// row 0.10
#[test]
fn a_cold_server_with_another_spec_is_asked_anew() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::start(&[]);
    let peer = || Evilpeer::new().journal(&journal);
    register(&gantry, "lazy", &peer(), &json!({}));
    echoes(&gantry, "lazy");
    let patch = json!({"args": peer().tools(1).argv()[1..]});
    let patched = gantry.rest("PATCH", "/api/v1/mcp/servers/lazy", Some(&patch));
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(patched.json()["state"], "idle");
    let list = listed(&gantry);
    let tools = list["result"]["tools"].as_array().unwrap();
    assert!(
        tools.iter().any(|tool| tool["name"] == "lazy__tool_0001"),
        "what the former one offered says nothing of this one: {list:#}"
    );
    assert_eq!(Journal::read(&journal).unwrap().starts(), 2);
}

// row 0.11
#[test]
fn one_process_serves_all_agents_of_the_project() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let body = json!({"method": "tools/call", "params": {"name": "pid", "arguments": {}}});
    let pid = |key: &str| {
        let answer = gantry.rest_as(key, "POST", "/api/v1/mcp/servers/a/call", Some(&body));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let made = json!({"name": "second", "grant": "all"});
    let made = gantry.rest("POST", "/api/v1/agents", Some(&made));
    assert_eq!(made.status, 201, "{}", made.text());
    let key = json!({"kind": "agent", "agent": "second"});
    let key = gantry.rest("POST", "/api/v1/keys", Some(&key)).json();
    let second = key["key"].as_str().unwrap();
    assert_eq!(pid(&gantry.agent), pid(&gantry.admin));
    assert_eq!(pid(&gantry.agent), pid(second));
    let mut sessions = [gantry.initialize(), gantry.initialize()];
    for session in &mut sessions {
        let params = json!({"name": "a__pid", "arguments": {}});
        let answer = session.request("tools/call", params);
        assert_eq!(answer["result"]["content"][0]["text"], pid(&gantry.agent));
    }
    assert_eq!(Journal::read(&journal).unwrap().starts(), 1);
    let agents: Vec<_> = gantry
        .audit_rows("server=a")
        .iter()
        .map(|row| row["agent"].clone())
        .collect();
    for agent in ["default", "second", "operator"] {
        assert!(agents.contains(&json!(agent)), "{agents:?}");
    }
}

// row 0.11
#[test]
fn no_process_is_shared_between_projects() {
    // Each gateway has a folder of its own, which is its project; both have the same entry.
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().journal(&journal);
    let start = || Gantry::builder().server("a", &peer).start();
    let projects = [start(), start()];
    let pids = projects.each_ref().map(|gantry| {
        gantry.wait_state("a", "ready", LONG);
        echoes(gantry, "a");
        gantry.status("a")["pid"].as_u64().unwrap()
    });
    assert_ne!(pids[0], pids[1]);
    assert_eq!(Journal::read(&journal).unwrap().starts(), 2);
    for (gantry, other) in [(&projects[0], pids[1]), (&projects[1], pids[0])] {
        let tree = procs::descendants_of(gantry.pid);
        let is_others = |process: &procs::Process| u64::from(process.pid) == other;
        assert!(!tree.iter().any(is_others), "{tree:#?}");
        // Nobody hears of the other's calls.
        let rows = gantry.audit_rows("");
        assert_eq!(rows.len(), 1, "{rows:#?}");
        assert_eq!(rows[0]["status"], "ok");
    }
    // What ends one is nothing to the other.
    let [first, second] = projects;
    drop(first);
    echoes(&second, "a");
    assert_eq!(second.status("a")["pid"], pids[1]);
}
