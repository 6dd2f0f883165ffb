//! Servers over REST: replaced, patched, previewed, tried, removed.

use std::fs;
use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};

use super::problem;
use crate::harness::{Gantry, LONG, on_postgresql};

/// The body of a peer that writes into a journal.
fn body(name: &str, peer: &Evilpeer) -> Value {
    let argv = peer.argv();
    json!({"name": name, "command": argv[0], "args": argv[1..], "profile": "local", "start": "eager"})
}

#[test]
fn a_servers_spec_is_replaced_and_patched() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let mut spec = body("a", &Evilpeer::new().name("one"));
    spec["env"] = json!({"SOME_TOKEN": "hidden-value"});
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&spec));
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].clone();
    let first = gantry.wait_state("a", "ready", LONG);
    let path = "/api/v1/mcp/servers/a";

    // A patch keeps what it does not name, values that are never shown included.
    let patch = json!({"timeout": "2m", "limits": {"pids": 64}, "description": "patched"});
    let patched = gantry.rest("PATCH", path, Some(&patch));
    assert_eq!(patched.status, 200, "{}", patched.text());
    let second = gantry.wait_state("a", "ready", LONG);
    assert_eq!(second["id"], id);
    assert_eq!(second["spec"]["timeout"], "2m");
    assert_eq!(second["usage"]["pids_limit"], 64);
    assert_eq!(second["description"], "patched");
    assert_eq!(second["spec"]["env"], json!(["SOME_TOKEN"]));
    assert_ne!(second["pid"], first["pid"]);
    assert!(!procs::alive(first["pid"].as_u64().unwrap() as u32));

    // The same again changes nothing.
    assert_eq!(gantry.rest("PATCH", path, Some(&patch)).status, 200);
    assert_eq!(gantry.status("a")["pid"], second["pid"]);

    // Replaced as a whole: what is not said goes back to its default.
    let whole = body("a", &Evilpeer::new().name("two"));
    let replaced = gantry.rest("PUT", path, Some(&whole));
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    let third = gantry.wait_state("a", "ready", LONG);
    assert_eq!(
        (&third["id"], &third["spec"]["timeout"]),
        (&id, &json!("30s"))
    );
    assert_eq!(third["server_info"]["name"], "two");
    assert_eq!(third["spec"]["env"], json!([]));

    let renamed = gantry.rest("PATCH", path, Some(&json!({"name": "b"})));
    assert_eq!(problem(&gantry, &renamed, 422), "request.body");
    let unknown = gantry.rest("PUT", "/api/v1/mcp/servers/nobody", Some(&whole));
    assert_eq!(problem(&gantry, &unknown, 404), "server.unknown");
    let wrong = gantry.rest("PATCH", path, Some(&json!({"timeout": "soon"})));
    assert_eq!(problem(&gantry, &wrong, 422), "request.body");

    // It is the stored spec that changed.
    let mut gantry = gantry;
    gantry.kill();
    let gantry = gantry.again();
    let again = gantry.wait_state("a", "ready", LONG);
    assert_eq!(again["server_info"]["name"], "two");
    for _ in 0..2 {
        assert_eq!(gantry.rest("DELETE", path, None).status, 204);
    }
    assert_eq!(gantry.rest("GET", path, None).status, 404);
}

// fault P10: while its old process ends, a replaced server is in every list, and calls wait for it.
#[test]
fn a_server_that_is_being_replaced_is_listed_and_its_calls_wait() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let deaf = Evilpeer::new().fault("ignore-term").fault("ignore-eof");
    let mut spec = body("a", &deaf);
    spec["life"] = json!({"stop_grace": "2s"});
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&spec));
    assert_eq!(made.status, 201, "{}", made.text());
    let first = gantry.wait_state("a", "ready", LONG);
    let path = "/api/v1/mcp/servers/a";
    let patch = json!({"description": "another"});
    std::thread::scope(|scope| {
        let patched = scope.spawn(|| gantry.rest("PATCH", path, Some(&patch)).status);
        let waiting = gantry.wait_status("a", LONG, |status| status["description"] == "another");
        assert_eq!(waiting["state"], "restarting", "{waiting:#}");
        assert!(waiting["reason"].as_str().unwrap().contains("old process"));
        assert_eq!(waiting["id"], first["id"]);
        let list = gantry.rest("GET", "/api/v1/mcp/servers", None).json();
        assert_eq!(list["items"][0]["name"], "a", "{list:#}");
        let body =
            json!({"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "b"}}});
        let gantry = &gantry;
        let over_rest = scope.spawn(move || {
            let path = format!("{path}/call");
            gantry.rest("POST", &path, Some(&body)).status
        });
        let over_mcp = gantry.call("a__echo", json!({"text": "b"}));
        assert_eq!(
            over_mcp["result"]["content"][0]["text"], "b",
            "{over_mcp:#}"
        );
        assert_eq!(over_rest.join().unwrap(), 200);
        assert_eq!(patched.join().unwrap(), 200);
    });
    let second = gantry.wait_state("a", "ready", LONG);
    assert_ne!(second["pid"], first["pid"]);
    assert!(!procs::alive(first["pid"].as_u64().unwrap() as u32));
}

#[test]
fn a_servers_spec_is_replaced_and_patched_on_postgresql() {
    on_postgresql(a_servers_spec_is_replaced_and_patched);
}

#[test]
fn a_server_of_a_file_is_the_files_to_change() {
    let gantry = Gantry::start(&["a"]);
    let patch = json!({"timeout": "2m"});
    let refused = gantry.rest("PATCH", "/api/v1/mcp/servers/a", Some(&patch));
    assert_eq!(problem(&gantry, &refused, 409), "server.of_file");
    assert_eq!(gantry.status("a")["spec"]["timeout"], "30s");
    // First hour 4
    let refused = gantry.rest("DELETE", "/api/v1/mcp/servers/a", None);
    assert_eq!(problem(&gantry, &refused, 409), "server.of_file");
    assert!(refused.text().contains("mcp.json`"), "{}", refused.text());
    assert_eq!(gantry.status("a")["state"], "ready");
}

// fault G8
#[test]
fn a_preview_starts_nothing_and_needs_an_admin_key() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let spec = body("a", &Evilpeer::new().journal(&journal));
    for word in ["preview", "test"] {
        let path = format!("/api/v1/mcp/servers/{word}");
        let refused = gantry.rest_as(&gantry.agent, "POST", &path, Some(&spec));
        assert_eq!(problem(&gantry, &refused, 403), "auth.agent_key");
        let refused = gantry.rest_as("nobody", "POST", &path, Some(&spec));
        assert_eq!(problem(&gantry, &refused, 401), "auth.wrong_key");
    }
    let shown = gantry.rest("POST", "/api/v1/mcp/servers/preview", Some(&spec));
    assert_eq!(shown.status, 200, "{}", shown.text());
    let shown = shown.json();
    assert_eq!(
        (&shown["name"], &shown["exists"]),
        (&json!("a"), &json!(false))
    );
    assert_eq!(shown["spec"]["concurrency"], 32);
    // What would be refused is refused here too, in the same words.
    for (member, value) in [("command", json!("sh -c 'x'")), ("concurrency", json!(0))] {
        let mut wrong = spec.clone();
        wrong[member] = value;
        let preview = gantry.rest("POST", "/api/v1/mcp/servers/preview", Some(&wrong));
        let register = gantry.rest("POST", "/api/v1/mcp/servers", Some(&wrong));
        let test = gantry.rest("POST", "/api/v1/mcp/servers/test", Some(&wrong));
        assert_eq!(problem(&gantry, &preview, 422), "server.spec", "{member}");
        assert_eq!(preview.text(), register.text());
        assert_eq!(preview.text(), test.text());
    }
    assert!(!journal.exists(), "{:?}", fs::read_to_string(&journal));
    assert!(super::items(&gantry.rest("GET", "/api/v1/mcp/servers", None)).is_empty());
    // That somebody looked is told as a trial is, once for what could be shown.
    let previewed = || {
        let events = super::walk(&gantry, "/api/v1/events", 100).into_iter();
        let events = events.filter(|event| event["kind"] == "previewed");
        events.map(|event| event["server"].clone()).collect()
    };
    let told = eventually(Duration::from_secs(10), || {
        let servers: Vec<Value> = previewed();
        servers == ["a"]
    });
    assert!(told.is_some(), "{:?}", previewed());
}

// fault G8
#[test]
fn a_trial_starts_lists_and_leaves_nothing() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let spec = body("a", &Evilpeer::new().tools(3).journal(&journal));
    let tried = gantry.rest("POST", "/api/v1/mcp/servers/test", Some(&spec));
    assert_eq!(tried.status, 200, "{}", tried.text());
    let tried = tried.json();
    assert_eq!(tried["ok"], true, "{tried:#}");
    assert!(tried["status"]["tools"].as_u64().unwrap() >= 3);
    let pid = tried["status"]["pid"].as_u64().unwrap() as u32;
    assert!(!procs::alive(pid));
    assert_eq!(Journal::read(&journal).unwrap().starts(), 1);
    assert!(super::items(&gantry.rest("GET", "/api/v1/mcp/servers", None)).is_empty());
    let told = eventually(Duration::from_secs(10), || {
        let events = super::walk(&gantry, "/api/v1/events", 100);
        events.iter().any(|event| event["kind"] == "tested")
    });
    assert!(told.is_some(), "the trial is an event");
    // One that cannot start says why, and its name is free.
    let mut broken = spec.clone();
    broken["command"] = json!("/nowhere/at/all");
    let tried = gantry
        .rest("POST", "/api/v1/mcp/servers/test", Some(&broken))
        .json();
    assert_eq!(tried["ok"], false);
    assert!(tried["status"]["reason"].is_string(), "{tried:#}");
    assert_eq!(
        gantry
            .rest("POST", "/api/v1/mcp/servers", Some(&spec))
            .status,
        201
    );
    let taken = gantry.rest("POST", "/api/v1/mcp/servers/test", Some(&spec));
    assert_eq!(problem(&gantry, &taken, 409), "server.exists");
}

// A server may be called as the routes beside it are.
#[test]
fn servers_named_preview_and_test_keep_their_routes() {
    let gantry = Gantry::start(&[]);
    for name in ["test", "preview"] {
        let spec = body(name, &Evilpeer::new());
        let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&spec));
        assert_eq!(made.status, 201, "{}", made.text());
        assert_eq!(gantry.status(name)["name"], name);
        let path = format!("/api/v1/mcp/servers/{name}");
        assert_eq!(
            gantry.rest("POST", &format!("{path}/restart"), None).status,
            200
        );
        gantry.wait_state(name, "ready", LONG);
        assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
        assert_eq!(gantry.rest("GET", &path, None).status, 404);
    }
}
