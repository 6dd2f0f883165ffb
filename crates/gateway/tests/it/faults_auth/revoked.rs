//! A key that ends while something of it runs: all of that ends within a second, on every surface.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Era, Evilpeer, fixture};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::{Value, json};

use super::code;
use crate::faults_client::{Posted, ended_rows};
use crate::harness::{Connection, Gantry, LONG, Session};

/// Within this time everything of a key has ended.
const CONTRACT: Duration = Duration::from_secs(1);
/// What a test's own look at it may take beyond that, on a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// Starts a gateway whose server keeps a journal and has many lanes.
fn start(journal: &Path) -> Gantry {
    let peer = Evilpeer::new().name("a").journal(journal);
    let members = json!({"calls": {"concurrency": 32}});
    let gantry = Gantry::builder().server_with("a", &peer, &members).start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

/// Makes a key of an agent that may use everything; returns its id and its text.
fn key(gantry: &Gantry, members: &Value) -> (String, String) {
    let mut body = json!({"kind": "agent", "agent": "default"});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    let text = |member: &str| made.json()[member].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

/// The arguments of a call that would take far longer than any test.
fn slow(nonce: &str) -> Value {
    json!({"name": "a__slow", "arguments": {"ms": 60_000, "nonce": nonce}})
}

/// Describes a call of a minute on every surface that has calls, each with its own nonce.
fn calls(gantry: &Gantry, key: &str) -> Vec<(&'static str, Posted)> {
    let mut with_progress = slow("stream");
    with_progress["_meta"]["progressToken"] = json!(7);
    let session = Session::open(gantry.connect(), key, "2025-11-25");
    let message =
        json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": slow("session")});
    let mut direct = slow("direct");
    direct["name"] = json!("slow");
    let direct = json!({"method": "tools/call", "params": direct});
    let model = json!([
        {"type": "tool_use", "id": "t1", "name": "a__slow", "input": slow("model")["arguments"]},
    ]);
    vec![
        ("post", Posted::stateless(key, "tools/call", slow("post"))),
        (
            "stream",
            Posted::stateless(key, "tools/call", with_progress),
        ),
        (
            "events",
            Posted::stateless(key, "tools/call", slow("events"))
                .header("Accept", "text/event-stream"),
        ),
        (
            "session",
            Posted::in_session(key, session.id.as_deref().unwrap(), &message)
                .header("MCP-Protocol-Version", "2025-11-25"),
        ),
        (
            "rest",
            Posted::new(key, "/api/v1/tools/call", &slow("rest")),
        ),
        (
            "direct",
            Posted::new(key, "/api/v1/mcp/servers/a/call", &direct),
        ),
        ("model", Posted::new(key, "/api/v1/tools/call", &model)),
        (
            "async",
            Posted::new(key, "/api/v1/tools/call", &slow("async"))
                .header("Prefer", "respond-async"),
        ),
    ]
}

/// Begins these calls, ends the key, and asserts that all of them end in time, are told so upstream,
/// and are on record as ended by that.
fn everything_ends(
    gantry: &Gantry,
    journal: &Path,
    calls: &[(&'static str, Posted)],
    why: &str,
    end: impl FnOnce(),
) {
    let count = calls.len();
    thread::scope(|scope| {
        let answers: Vec<_> = calls
            .iter()
            .map(|(what, posted)| {
                let mut connection = posted.open(gantry);
                let waiting = scope.spawn(move || connection.answer().unwrap());
                (*what, waiting)
            })
            .collect();
        let running = || gantry.audit_rows("status=running").len() == count;
        assert!(eventually(LONG, running).is_some(), "all of them run");
        end();
        let begun = Stopwatch::start();
        for (what, answer) in answers {
            let answer = answer.join().unwrap();
            let took = begun.elapsed();
            assert!(took <= CONTRACT + LATE, "{what} took {took:?}");
            match what {
                "async" => assert_eq!(answer.status, 202),
                // In the words of the model's API, whose calls are always answered whole.
                "model" => assert!(answer.text().contains("the key"), "{}", answer.text()),
                "stream" | "events" => {
                    let message = answer.message();
                    let found = &message["error"]["data"]["code"];
                    assert_eq!(*found, json!(why), "{what}: {message:#}");
                }
                _ => assert_eq!(
                    (answer.status, code(&answer).as_str()),
                    (401, why),
                    "{what}"
                ),
            }
        }
        let told = || {
            let journal = Journal::read(journal).unwrap();
            calls.iter().all(|(nonce, _)| journal.cancelled(nonce))
        };
        assert!(eventually(LONG, told).is_some(), "the server is told");
    });
    let rows = ended_rows(gantry, "tool=slow");
    let ended = rows
        .iter()
        .map(|row| (row["status"].as_str(), row["code"].as_str()));
    let wanted = vec![(Some("cancelled"), Some(why)); count];
    assert_eq!(ended.collect::<Vec<_>>(), wanted, "{rows:#?}");
    // Its server goes on for everybody else.
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    assert_eq!(answer["result"]["content"][0]["text"], "x");
}

// fault U6
#[test]
fn whatever_a_revoked_key_runs_ends_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = start(&journal);
    let (id, text) = key(&gantry, &json!({}));
    let calls = calls(&gantry, &text);
    everything_ends(&gantry, &journal, &calls, "auth.key_revoked", || {
        let revoked = gantry.cli(&["key", "revoke", &id]);
        assert!(revoked.status.success(), "{revoked:?}");
    });
}

// fault U6
#[test]
fn whatever_the_key_of_a_removed_agent_runs_ends_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = start(&journal);
    let text = gantry.agent_with("leaver", &["*"]);
    let calls = calls(&gantry, &text);
    everything_ends(&gantry, &journal, &calls, "auth.key_revoked", || {
        let removed = gantry.rest("DELETE", "/api/v1/agents/leaver", None);
        assert_eq!(removed.status, 204, "{}", removed.text());
    });
}

// fault U6
#[test]
fn whatever_an_expired_key_runs_ends_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = start(&journal);
    // Long enough for so few of them to begin on a busy machine; every surface has its turn above.
    let (_, text) = key(&gantry, &json!({"expires_in": "10s"}));
    let mut calls = calls(&gantry, &text);
    calls.retain(|(what, _)| matches!(*what, "post" | "stream" | "async"));
    let gone = || gantry.rest_as(&text, "GET", "/api/v1/tools", None).status == 401;
    everything_ends(&gantry, &journal, &calls, "auth.key_expired", || {
        assert!(eventually(LONG, gone).is_some());
    });
}

// fault U6
#[test]
fn a_call_that_waits_for_its_person_ends_with_its_key() {
    let argv = fixture::argv(Era::Legacy);
    let entry = json!({"command": argv[0], "args": argv[1..], "concurrency": 4});
    let gantry = Gantry::builder().entry("old", entry).start();
    gantry.wait_state("old", "ready", LONG);
    let (id, text) = key(&gantry, &json!({}));
    let params = json!({"name": "old__test_elicitation", "arguments": {"message": "?"}});
    let mut posted = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    posted["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    let asked = Posted::stateless(&text, "tools/call", params)
        .body(posted.to_string())
        .send(&gantry)
        .message();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked:#}");
    assert_eq!(gantry.audit_rows("status=running").len(), 1);
    revoke(&gantry, &id);
    let begun = Stopwatch::start();
    let ended = || {
        gantry
            .audit_rows("status=cancelled&code=auth.key_revoked")
            .len()
            == 1
    };
    assert!(eventually(LONG, ended).is_some());
    assert!(begun.elapsed() <= CONTRACT + LATE, "{:?}", begun.elapsed());
    gantry.wait_status("old", LONG, |status| status["queue"]["in_flight"] == 0);
}

fn revoke(gantry: &Gantry, id: &str) {
    let path = format!("/api/v1/keys/{id}");
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
}

/// Returns whether the gateway's end of a connection from this address is open. (The client's end
/// does not tell: nothing arrives there while it does not read.)
fn is_open_at(authority: &str, client: SocketAddr) -> bool {
    const ESTABLISHED: &str = "01";
    let port = |port: u16| format!(":{port:04X}");
    let near = port(authority.rsplit(':').next().unwrap().parse().unwrap());
    let far = port(client.port());
    let all = fs::read_to_string("/proc/net/tcp").unwrap();
    all.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[1].ends_with(&near) && words[2].ends_with(&far) && words[3] == ESTABLISHED
    })
}

// fault U6, fault A1
#[test]
fn an_answer_that_nobody_reads_and_a_body_that_never_ends_are_cut_off_with_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let gantry = start(&folder.path().join("journal"));
    let (id, text) = key(&gantry, &json!({}));
    let big = json!({"name": "a__big", "arguments": {"bytes": 7 << 20, "nonce": "big"}});
    let mut unread = gantry.connect();
    set_socket_recv_buffer_size(unread.socket(), 4096).unwrap();
    Posted::stateless(&text, "tools/call", big).write(&mut unread);
    let answered = || gantry.audit_rows("tool=big&status=ok").len() == 1;
    assert!(eventually(LONG, answered).is_some());
    let posted = Posted::new(&text, "/api/v1/tools/call", &json!({}));
    let mut unsent = gantry.connect();
    let head = posted.head(&gantry.authority, "Content-Length: 1000");
    std::io::Write::write_all(unsent.socket(), &head).unwrap();
    let is_open = |connection: &mut Connection| {
        let client = connection.socket().local_addr().unwrap();
        is_open_at(&gantry.authority, client)
    };
    assert!(is_open(&mut unread) && is_open(&mut unsent));
    revoke(&gantry, &id);
    let begun = Stopwatch::start();
    let closed = || !is_open(&mut unread) && !is_open(&mut unsent);
    assert!(eventually(LONG, closed).is_some(), "both are closed");
    assert!(begun.elapsed() <= CONTRACT + LATE, "{:?}", begun.elapsed());
}

// fault U6
#[test]
fn sessions_and_what_they_listen_to_end_with_their_key() {
    let gantry = Gantry::start(&["a"]);
    let (id, text) = key(&gantry, &json!({}));
    let mut session = Session::open(gantry.connect(), &text, "2025-11-25");
    let uri = json!({"uri": "test://static-text"});
    assert_eq!(
        session.request("resources/subscribe", uri)["result"],
        json!({})
    );
    let bearer = format!("Bearer {text}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Accept", "text/event-stream"),
        ("Mcp-Session-Id", session.id.as_deref().unwrap()),
    ];
    let mut streams = [gantry.connect(), gantry.connect()];
    streams[0].write("GET", "/mcp", &headers, b"").unwrap();
    streams[1].write("GET", "/sse", &headers[..2], b"").unwrap();
    for stream in &mut streams {
        assert_eq!(stream.head().unwrap().status, 200);
    }
    revoke(&gantry, &id);
    let begun = Stopwatch::start();
    for stream in &mut streams {
        while stream.chunk().unwrap().is_some() {}
    }
    assert!(begun.elapsed() <= CONTRACT + LATE, "{:?}", begun.elapsed());
}

#[test]
fn who_revokes_its_own_key_is_told_that_it_was() {
    let gantry = Gantry::start(&[]);
    let (id, text) = key(&gantry, &json!({"kind": "admin", "agent": "second"}));
    let path = format!("/api/v1/keys/{id}");
    assert_eq!(gantry.rest_as(&text, "DELETE", &path, None).status, 204);
    let again = gantry.rest_as(&text, "GET", "/api/v1/keys", None);
    assert_eq!(
        (again.status, code(&again).as_str()),
        (401, "auth.wrong_key")
    );
}
