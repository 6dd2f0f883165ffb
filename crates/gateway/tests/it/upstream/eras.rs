//! How the generations are told apart, what each request says in each, and sessions that expire.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_testkit::wait::eventually;
use serde_json::json;

use super::peer::{
    Peer, Reply, answer_event, event, finish, legacy, modern, not_initialized, tool,
};
use super::sse_peer::SsePeer;
use super::{FAR, SECOND, code, echo, entry, gateway, with};
use crate::faults_client::Posted;
use crate::harness::LONG;

#[test]
fn the_transport_is_found_by_itself() {
    // protocol.md §1.3; rows 0.6, 2.2
    let (newer, older, oldest) = (
        Peer::start(modern),
        Peer::start(legacy),
        SsePeer::start("/message"),
    );
    let expected = [
        (newer.url("/mcp"), "streamable-http", "2026-07-28"),
        (older.url("/mcp"), "streamable-http", "2025-06-18"),
        (oldest.peer.url("/sse"), "sse", "2025-06-18"),
    ];
    for (url, transport, version) in expected {
        let gantry = gateway(entry(&url)).start();
        let status = gantry.wait_state(FAR, "ready", LONG);
        assert_eq!(status["transport"], transport, "{url}");
        assert_eq!(status["protocol_version"], version, "{url}");
        assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    }
}

#[test]
fn a_server_that_moved_to_another_generation_is_found_again() {
    let far = Peer::start(legacy);
    let address = far.address;
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    drop(far);
    gantry.wait_state(FAR, "disconnected", LONG);
    let far = SsePeer::at(address, "/message");
    let moved =
        |status: &serde_json::Value| status["transport"] == "sse" && status["state"] == "ready";
    // The old path is not the stream's: the same URL answers everything here.
    gantry.wait_status(FAR, LONG, moved);
    drop(far);
    let far = Peer::again(address, modern);
    let moved = |status: &serde_json::Value| {
        status["protocol_version"] == "2026-07-28" && status["state"] == "ready"
    };
    gantry.wait_status(FAR, LONG, moved);
    drop(far);
}

#[test]
fn a_session_is_named_with_its_version_in_every_request() {
    let far = Peer::start(legacy);
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    let greeting = &far.asked("initialize")[0];
    assert_eq!(greeting.header("mcp-session-id"), None);
    for method in ["notifications/initialized", "tools/list", "tools/call"] {
        let seen = &far.asked(method)[0];
        assert_eq!(seen.header("mcp-session-id"), Some("session-1"), "{method}");
        assert_eq!(
            seen.header("mcp-protocol-version"),
            Some("2025-06-18"),
            "{method}"
        );
        assert_eq!(
            seen.header("accept"),
            Some("application/json, text/event-stream")
        );
    }
    let seen = far.seen();
    let methods: Vec<&str> = seen.iter().map(|seen| seen.method()).collect();
    let at = |method| methods.iter().position(|known| *known == method).unwrap();
    assert!(
        at("notifications/initialized") < at("tools/list"),
        "{methods:?}"
    );
}

#[test]
fn a_stateless_request_repeats_itself_in_its_head() {
    // fault H12
    let far = Peer::start(modern);
    // Its transport is not looked for, whatever happens.
    let known = json!({"type": "http"});
    let gantry = gateway(with(entry(&far.url("/mcp")), &known)).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "grüße"), Ok("grüße".to_owned()));
    let call = &far.asked("tools/call")[0];
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(
        call.header("mcp-name"),
        Some("echo"),
        "the server's own name"
    );
    assert_eq!(
        call.header("mcp-param-text"),
        Some("=?base64?Z3LDvMOfZQ==?=")
    );
    assert_eq!(call.header("mcp-session-id"), None);
    let meta = &call.body["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
    assert!(
        far.seen().iter().all(|seen| seen.verb == "POST"),
        "no session, no stream"
    );
    assert_eq!(far.seen()[0].header("mcp-method"), Some("server/discover"));
}

#[test]
fn an_expired_session_is_made_anew_once_and_no_client_notices() {
    // fault H9; row 3.1
    for forgotten in [404, 400] {
        let sessions = Arc::new(AtomicUsize::new(0));
        let known = Arc::clone(&sessions);
        let far = Peer::start(move |seen| {
            if seen.method() == "initialize" {
                let number = known.fetch_add(1, Ordering::SeqCst) + 1;
                let Reply::Status(status, mut headers, body) = legacy(seen) else {
                    return Reply::Cut;
                };
                headers[1].1 = format!("session-{number}");
                return Reply::Status(status, headers, body);
            }
            let current = format!("session-{}", known.load(Ordering::SeqCst));
            let given = seen.header("mcp-session-id").unwrap_or_default();
            let is_lost = given == "session-1" && seen.method() == "tools/call"
                || !given.is_empty() && given != current;
            match (is_lost, forgotten) {
                (true, 404) => Reply::status(404),
                (true, _) => not_initialized(),
                (false, _) => legacy(seen),
            }
        });
        let calm = json!({"life": {"health_every": "60s"}});
        let gantry = gateway(with(entry(&far.url("/mcp")), &calm)).start();
        gantry.wait_state(FAR, "ready", LONG);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| assert_eq!(echo(&gantry, "x"), Ok("x".to_owned())));
            }
        });
        assert_eq!(
            sessions.load(Ordering::SeqCst),
            2,
            "one for all ({forgotten})"
        );
        assert_eq!(gantry.status(FAR)["restart_count"], 0);
        let rows = gantry.audit_rows("server=far");
        assert_eq!(rows.len(), 6);
        assert!(rows.iter().all(|row| row["status"] == "ok"), "{rows:?}");
    }
}

#[test]
fn a_session_that_takes_no_call_is_made_anew_once_for_each_and_not_for_ever() {
    // fault H9
    for (forgotten, class) in [(404, "remote.not_found"), (400, "remote.status")] {
        let far = Peer::start(move |seen| match (seen.method(), forgotten) {
            ("tools/call", 404) => Reply::status(404),
            ("tools/call", _) => not_initialized(),
            _ => legacy(seen),
        });
        let gantry = gateway(entry(&far.url("/mcp"))).start();
        gantry.wait_state(FAR, "ready", LONG);
        for call in 1..=2 {
            let error = echo(&gantry, "x").unwrap_err();
            assert_eq!(code(&error), class, "{error}");
            assert_eq!(far.asked("initialize").len(), 1 + call, "{forgotten}");
            assert_eq!(far.asked("tools/call").len(), 2 * call, "{forgotten}");
        }
        // The last session is kept: health checks go on in it.
        let pings = far.asked("ping").len();
        eventually(LONG, || far.asked("ping").len() >= pings + 3).unwrap();
        let asked = |method| far.asked(method).len();
        assert_eq!((asked("initialize"), asked("tools/call")), (3, 4));
        let status = gantry.status(FAR);
        assert_eq!(
            (&status["state"], &status["restart_count"]),
            (&json!("ready"), &json!(0))
        );
        let rows = gantry.audit_rows("server=far");
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row["code"] == class), "{rows:?}");
    }
}

#[test]
fn a_stream_that_was_cut_after_an_event_is_resumed() {
    // 2025-11-25 (polling); fault H6
    let far = Peer::start(|seen| match (seen.verb.as_str(), seen.method()) {
        ("POST", "tools/call") => Reply::Events(Box::new(|to: &mut dyn Write| {
            event(to, "id: first\nretry: 50\ndata: \n\n")
        })),
        ("GET", _) if seen.header("last-event-id") == Some("first") => {
            let answer = json!({"jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": "info", "data": "on my way"}});
            Reply::Events(Box::new(move |to: &mut dyn Write| {
                event(to, &format!("id: second\ndata: {answer}\n\n"))
            }))
        }
        ("GET", _) if seen.header("last-event-id") == Some("second") => Reply::status(405),
        _ => legacy(seen),
    });
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    let error = echo(&gantry, "x").unwrap_err();
    assert_eq!(code(&error), "remote.cut", "{error}");
    let resumed: Vec<_> = far
        .seen()
        .iter()
        .filter_map(|seen| Some(seen.header("last-event-id")?.to_owned()))
        .collect();
    assert_eq!(resumed, ["first", "second"]);
}

#[test]
fn a_resumed_stream_brings_the_answer() {
    // fault H6
    let asked = Arc::new(std::sync::Mutex::new(None));
    let kept = Arc::clone(&asked);
    let far = Peer::start(move |seen| match (seen.verb.as_str(), seen.method()) {
        ("POST", "tools/call") => {
            *kept.lock().unwrap() = Some(answer_event(seen));
            Reply::Events(Box::new(|to: &mut dyn Write| {
                event(to, "id: 1\nretry: 20\ndata: \n\n")?;
                finish(to)
            }))
        }
        ("GET", _) if seen.header("last-event-id") == Some("1") => {
            let answer = kept.lock().unwrap().clone().unwrap();
            Reply::Events(Box::new(move |to: &mut dyn Write| {
                event(to, &answer)?;
                finish(to)
            }))
        }
        _ => legacy(seen),
    });
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "kept"), Ok("kept".to_owned()));
}

#[test]
fn what_the_server_says_beside_its_answers_is_heard() {
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let far = Peer::start(move |seen| match (seen.verb.as_str(), seen.method()) {
        ("GET", _) if count.load(Ordering::SeqCst) < 2 => {
            Reply::Events(Box::new(|to: &mut dyn Write| {
                let changed =
                    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                event(to, &format!("data: {changed}\n\n"))?;
                std::thread::park_timeout(2 * SECOND);
                finish(to)
            }))
        }
        ("POST", "tools/list") => {
            let more = count.fetch_add(1, Ordering::SeqCst) > 0;
            let mut tools = vec![tool()];
            if more {
                tools.push(json!({"name": "second", "inputSchema": {"type": "object"}}));
            }
            seen.result(json!({"tools": tools}))
        }
        _ => legacy(seen),
    });
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_status(FAR, LONG, |status| status["tools"] == 2);
}

#[test]
fn a_call_is_taken_back_in_the_words_of_its_era() {
    for (era, newer) in [("handshake", false), ("stateless", true)] {
        let far = Peer::start(move |seen| match seen.method() {
            "tools/call" => Reply::Hang,
            _ if newer => modern(seen),
            _ => legacy(seen),
        });
        let short = json!({"calls": {"timeout": "300ms"}});
        let gantry = gateway(with(entry(&far.url("/mcp")), &short)).start();
        gantry.wait_state(FAR, "ready", LONG);
        let error = echo(&gantry, "x").unwrap_err();
        assert_eq!(code(&error), "call.timeout", "{era}");
        let within = if newer { 2 * SECOND } else { LONG };
        let told = eventually(within, || !far.asked("notifications/cancelled").is_empty());
        assert_eq!(told.is_some(), !newer, "{era}");
        // The server is not held to be gone for it.
        assert_eq!(gantry.status(FAR)["state"], "ready", "{era}");
    }
}

#[test]
fn what_a_client_says_of_progress_or_cancels_without_a_call_is_not_passed_on() {
    // fault A10
    let far = Peer::start(legacy);
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    let said = [
        (
            "notifications/progress",
            json!({"progressToken": 1, "progress": 9}),
        ),
        ("notifications/cancelled", json!({"requestId": 1})),
    ];
    for (method, params) in &said {
        let told = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let taken = Posted::new(&gantry.agent, "/mcp", &told).send(&gantry);
        assert_eq!(taken.status, 202, "{method}");
    }
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    for (method, _) in said {
        assert!(far.asked(method).is_empty(), "{method}");
    }
    assert_eq!(gantry.audit_rows("").len(), 1);
}
