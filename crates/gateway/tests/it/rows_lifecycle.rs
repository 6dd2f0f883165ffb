//! Rows about a server's life: registered, started when needed, shared, restarted, stopped.

mod children;
mod crashes;
mod health;
mod lazy;

use std::time::Duration;

use gantry_testkit::journal::{Entry, Journal};
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Gantry, LONG, on_postgresql};

const SECOND: Duration = Duration::from_secs(1);

/// Registers a peer over REST, as a local server unless `more` says otherwise.
fn register(gantry: &Gantry, name: &str, peer: &Evilpeer, more: &Value) -> Value {
    let argv = peer.argv();
    let mut body = json!({"name": name, "command": argv[0], "args": argv[1..], "profile": "local"});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let registered = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(registered.status, 201, "{}", registered.text());
    registered.json()
}

fn echoes(gantry: &Gantry, server: &str) {
    let answer = gantry.call(&format!("{server}:echo"), json!({"text": "hello"}));
    assert_eq!(
        answer["result"]["content"][0]["text"], "hello",
        "{answer:#}"
    );
}

/// Lists the tools of everybody, which wakes those who sleep. That waits for them for 3 s by the clock:
/// if the machine stood still meanwhile, they are asked for once more.
fn listed(gantry: &Gantry) -> Value {
    let watch = Stopwatch::start();
    let mut list = gantry.mcp("tools/list", json!({}));
    if watch.stood_still() > SECOND {
        eventually(LONG, || {
            list = gantry.mcp("tools/list", json!({}));
            list["result"]["_meta"]["io.gantry/not-listed"].is_null()
        });
    }
    list
}

// row 0.5
#[test]
fn a_server_no_longer_needed_gets_sigterm_then_sigkill_with_its_whole_tree() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::start(&["a"]);
    let peer = |faults: &[&str]| {
        faults
            .iter()
            .fold(Evilpeer::new(), |peer, fault| peer.fault(fault))
    };
    let cases = [
        ("good", peer(&[]), 0),
        ("deaf-to-term", peer(&["ignore-term"]).journal(&journal), 0),
        ("deaf-to-eof", peer(&["ignore-eof"]), 0),
        ("deaf", peer(&["ignore-term", "ignore-eof"]), 4000),
    ];
    for (name, peer, least) in cases {
        let marker = &format!("tree-05-{name}.");
        let stop = json!({"start": "eager", "stop_grace": "4s"});
        register(&gantry, name, &peer.in_tree(marker), &stop);
        gantry.wait_state(name, "ready", LONG);
        procs::wait_count(marker, 5, LONG).unwrap();
        let (begun, watch) = (Instant::now(), Stopwatch::start());
        let removed = gantry.rest("DELETE", &format!("/api/v1/mcp/servers/{name}"), None);
        assert_eq!(removed.status, 204, "{}", removed.text());
        procs::wait_gone(marker, Duration::from_millis(least) + 2 * SECOND).unwrap();
        let (took, cost) = (begun.elapsed(), watch.elapsed());
        assert!(
            took >= Duration::from_millis(least),
            "{name} had its time: {took:?}"
        );
        assert!(
            least > 0 || cost < Duration::from_millis(1500),
            "{name} needed no KILL: {cost:?}"
        );
        let gone = gantry.rest("GET", &format!("/api/v1/mcp/servers/{name}"), None);
        assert_eq!(
            (gone.status, &gone.json()["code"]),
            (404, &json!("server.unknown"))
        );
    }
    let seen = Journal::read(&journal).unwrap();
    assert_eq!(
        seen.entries.last(),
        Some(&Entry::Ended),
        "its stdin was closed"
    );
    let reaped = eventually(SECOND, || procs::zombies_of(gantry.pid).is_empty());
    assert!(reaped.is_some());
    echoes(&gantry, "a");
    assert_eq!(gantry.status("a")["spec"]["stop_grace"], "10s");
}

// row 0.5
#[test]
fn a_server_no_longer_needed_gets_sigterm_then_sigkill_with_its_whole_tree_on_postgresql() {
    on_postgresql(a_server_no_longer_needed_gets_sigterm_then_sigkill_with_its_whole_tree);
}

// row 1.8
#[test]
fn all_registered_servers_start_with_the_gateway_and_in_parallel() {
    let mut gantry = Gantry::start(&[]);
    let names = ["one", "two", "three", "four", "five", "six"];
    for name in names {
        register(&gantry, name, &Evilpeer::new(), &json!({"start": "eager"}));
    }
    for name in names {
        gantry.wait_state(name, "ready", LONG);
        let removed = gantry.rest("DELETE", &format!("/api/v1/mcp/servers/{name}"), None);
        assert_eq!(removed.status, 204);
        register(
            &gantry,
            name,
            &Evilpeer::new().fault("slow-start=3000"),
            &json!({"start": "eager"}),
        );
    }
    assert_eq!(gantry.stop(), Some(0));
    let (begun, watch) = (Instant::now(), Stopwatch::start());
    let gantry = gantry.again();
    for name in names {
        gantry.wait_state(name, "ready", LONG);
    }
    let (took, cost) = (begun.elapsed(), watch.elapsed());
    assert!(
        took >= 3 * SECOND && cost < 12 * SECOND,
        "eighteen seconds one after the other: {took:?} {cost:?}"
    );
    // Hosted servers are eager without being told.
    let body = json!({"name": "hosted", "command": "/nonexistent/program"});
    let hosted = gantry
        .rest("POST", "/api/v1/mcp/servers", Some(&body))
        .json();
    assert_eq!(
        (&hosted["start"], &hosted["profile"]),
        (&json!("eager"), &json!("hosted"))
    );
}

// row 1.12
#[test]
fn a_restart_by_hand_gives_a_new_process_and_new_counters() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().in_tree("tree-112"))
        .start();
    let first = gantry.wait_state("a", "ready", LONG);
    gantry.call("a__crash", json!({}));
    let crashed = |now: &Value| now["state"] == "ready" && now["restart_count"] == 1;
    let second = gantry.wait_status("a", LONG, crashed);
    let begun = Stopwatch::start();
    let restarted = gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    assert_eq!(restarted.status, 200, "{}", restarted.text());
    let anew = |now: &Value| now["state"] == "ready" && now["pid"] != second["pid"];
    let third = gantry.wait_status("a", LONG, anew);
    assert!(begun.elapsed() <= 5 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(third["restart_count"], 0);
    assert_eq!(
        (&third["id"], &third["spec"]),
        (&first["id"], &first["spec"])
    );
    procs::wait_count("tree-112", 5, LONG).unwrap();
    gantry.events("a", "restart_requested", 1);
    let output = gantry.cli(&["restart", "a"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    gantry.wait_status("a", LONG, |now| {
        now["state"] == "ready" && now["pid"] != third["pid"]
    });
    let unknown = gantry.rest("POST", "/api/v1/mcp/servers/nobody/restart", None);
    assert_eq!(unknown.status, 404);
}

// row 1.12
#[test]
fn a_restart_kills_what_does_not_stop_in_time() {
    let peer = Evilpeer::new().fault("ignore-term").fault("ignore-eof");
    let members = json!({"life": {"stop_grace": "700ms"}});
    let gantry = Gantry::builder().server_with("a", &peer, &members).start();
    let first = gantry.wait_state("a", "ready", LONG);
    let (begun, watch) = (Instant::now(), Stopwatch::start());
    gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    gantry.wait_status("a", LONG, |now| {
        now["state"] == "ready" && now["pid"] != first["pid"]
    });
    let (took, cost) = (begun.elapsed(), watch.elapsed());
    assert!(
        took >= Duration::from_millis(700) && cost <= 4 * SECOND,
        "{took:?} {cost:?}"
    );
    let old = u32::try_from(first["pid"].as_u64().unwrap()).unwrap();
    assert!(!procs::alive(old));
}

// row 1.14
#[test]
fn all_servers_are_listed_with_their_status() {
    let gantry = Gantry::start(&["a", "b"]);
    register(
        &gantry,
        "c",
        &Evilpeer::new(),
        &json!({"description": "the third"}),
    );
    let restart = json!({"at_once": 0, "ladder": ["1m"]});
    let body = json!({"name": "d", "command": "/nonexistent/program", "restart": restart});
    assert_eq!(
        gantry
            .rest("POST", "/api/v1/mcp/servers", Some(&body))
            .status,
        201
    );
    gantry.wait_state("d", "failed", LONG);
    let list = gantry.rest("GET", "/api/v1/mcp/servers", None).json();
    let items = list["items"].as_array().unwrap();
    let seen: Vec<_> = items
        .iter()
        .map(|item| (&item["name"], &item["state"]))
        .collect();
    let wanted = [
        ("a", "ready"),
        ("b", "ready"),
        ("c", "idle"),
        ("d", "failed"),
    ];
    let wanted: Vec<_> = wanted
        .map(|(name, state)| (json!(name), json!(state)))
        .into();
    assert_eq!(
        seen,
        wanted
            .iter()
            .map(|(name, state)| (name, state))
            .collect::<Vec<_>>()
    );
    assert_eq!(items[2]["description"], "the third");
    assert!(items[0]["uptime_ms"].is_u64() && items[0]["tools"].as_u64().unwrap() > 10);
    assert!(
        items[3]["next_try"]["text"]
            .as_str()
            .unwrap()
            .starts_with("next try "),
        "{}",
        items[3]
    );
    assert!(
        items[3]["reason"]
            .as_str()
            .unwrap()
            .contains("/nonexistent/program"),
        "{}",
        items[3]
    );
    let shown = String::from_utf8_lossy(&gantry.cli(&["status"]).stdout).into_owned();
    assert!(
        ["a", "b", "c", "d", "idle", "failed"]
            .iter()
            .all(|word| shown.contains(word)),
        "{shown}"
    );
}
