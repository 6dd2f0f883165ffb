//! Rows of the requirements that speak of servers somewhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::peer::{Peer, Reply, Seen, legacy, modern};
use super::sse_peer::SsePeer;
use super::{FAR, SECOND, code, echo, entry, gateway, listed, with};
use crate::harness::{Gantry, LONG, on_postgresql};

/// How a server of one era answers.
type Answers = fn(&Seen) -> Reply;

#[test]
fn sse_gets_the_configured_headers_and_posts_where_it_is_told() {
    // rows 0.6, 2.2, 2.3
    let far = SsePeer::start("/message?sessionId=1");
    let headers =
        json!({"headers": {"Authorization": "Bearer far-secret", "X-Team": "a"}, "type": "sse"});
    let gantry = gateway(with(entry(&far.peer.url("/sse")), &headers)).start();
    let status = gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(status["transport"], "sse");
    assert_eq!(status["url"], far.peer.url("/sse"));
    assert_eq!(
        status["spec"]["headers"],
        json!(["Authorization", "X-Team"])
    );
    assert!(!status.to_string().contains("far-secret"), "{status}");
    assert_eq!(echo(&gantry, "over sse"), Ok("over sse".to_owned()));
    let seen = far.peer.seen();
    assert!(seen.iter().any(|seen| seen.verb == "GET"));
    assert!(seen.iter().any(|seen| seen.path == "/message?sessionId=1"));
    for seen in seen {
        let given = (seen.header("authorization"), seen.header("x-team"));
        assert_eq!(given, (Some("Bearer far-secret"), Some("a")), "{seen:?}");
    }
}

#[test]
fn a_dropped_stream_fails_calls_at_once_and_is_taken_up_again() {
    // rows 0.7, 2.12; fault H6
    let far = SsePeer::start("/message");
    // Nobody gives up in this test, however slow the machine is.
    let slow = json!({"type": "sse", "reconnect": {"first": "1500ms", "longest": "1500ms",
        "failures": 50, "away": "2s"}});
    let gantry = gateway(with(entry(&far.peer.url("/sse")), &slow)).start();
    gantry.wait_state(FAR, "ready", LONG);
    let address = far.peer.address;
    drop(far);
    let status = gantry.wait_state(FAR, "disconnected", LONG);
    assert!(status["next_try"].is_object(), "{status:#}");
    // The lists follow the status within a moment.
    let hidden = eventually(SECOND, || listed(&gantry).is_empty());
    assert!(hidden.is_some(), "what cannot be reached is not offered");
    let begun = Stopwatch::start();
    let error = echo(&gantry, "x").unwrap_err();
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    assert_eq!(code(&error), "server.down", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("; next try in "), "{message}");
    let far = SsePeer::at(address, "/message");
    let status = gantry.wait_state(FAR, "ready", LONG);
    assert!(status["restart_count"].as_u64().unwrap() >= 1);
    assert_eq!(echo(&gantry, "again"), Ok("again".to_owned()));
    // The end of the stream alone is enough.
    let before = gantry.status(FAR)["restart_count"].as_u64();
    far.end_streams();
    gantry.events(FAR, "disconnected", 2);
    gantry.wait_status(FAR, LONG, |status| {
        status["state"] == "ready" && status["restart_count"].as_u64() > before
    });
    assert_eq!(echo(&gantry, "and again"), Ok("and again".to_owned()));
}

#[test]
fn a_lazy_server_is_reached_once_for_all_who_wait_and_then_reused() {
    // rows 0.10, 0.11
    let far = Peer::start(legacy);
    let gantry = gateway(with(entry(&far.url("/mcp")), &json!({"start": "lazy"}))).start();
    assert_eq!(gantry.status(FAR)["state"], "idle");
    assert!(far.seen().is_empty(), "nobody has needed it");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(echo(&gantry, "x"), Ok("x".to_owned())));
        }
    });
    assert_eq!(echo(&gantry, "y"), Ok("y".to_owned()));
    assert_eq!(far.asked("initialize").len(), 1);
    assert_eq!(far.asked("tools/list").len(), 1);
    assert_eq!(far.asked("tools/call").len(), 9);
}

/// Returns whether a status says that nobody tries for now; its parts are looked at one after the other.
fn is_away(status: &Value) -> bool {
    status["state"] == "failed" && status["breaker"]["state"] == "open"
}

#[test]
fn after_three_failed_connects_nobody_tries_until_one_probe() {
    // row 0.12
    let far = Peer::start(|_| Reply::status(503));
    let long = json!({"reconnect": {"first": "50ms", "longest": "200ms", "away": "8s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &long)).start();
    let away = gantry.wait_status(FAR, LONG, is_away);
    assert_eq!(away["breaker"]["unanswered"], 3);
    let tries = far.asked("initialize").len();
    assert_eq!(tries, 3);
    let begun = Instant::now();
    for _ in 0..5 {
        let error = echo(&gantry, "x").unwrap_err();
        assert_eq!(code(&error), "server.down");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("3 failed connects in a row"), "{message}");
        assert!(message.contains("next try in"), "{message}");
    }
    assert!(begun.elapsed() < 4 * SECOND, "they fail at once");
    // One probe, and it decides.
    eventually(LONG, || far.asked("initialize").len() > tries).unwrap();
    gantry.wait_status(FAR, LONG, is_away);
    assert_eq!(far.asked("initialize").len(), tries + 1);
    let address = far.address;
    drop(far);
    let far = Peer::again(address, legacy);
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    drop(far);
}

#[test]
fn who_says_nothing_else_waits_a_minute_after_three_failed_connects() {
    // row 0.12
    let far = Peer::start(|_| Reply::status(503));
    let silent = json!({"url": far.url("/mcp"), "auth": {"kind": "none"}, "type": "http",
        "reconnect": {"first": "20ms", "longest": "50ms"}});
    let gantry = gateway(silent).start();
    let away = gantry.wait_status(FAR, LONG, is_away);
    let policy = &away["spec"]["reconnect"];
    assert_eq!(
        (&policy["failures"], &policy["away"]),
        (&json!(3), &json!("1m"))
    );
    let reason = away["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("; 3 failed connects in a row, one try in 1m"),
        "{reason}"
    );
    let wait = away["next_try"]["in_ms"].as_u64().unwrap();
    assert!((40_000..=60_000).contains(&wait), "{wait}");
    assert_eq!(far.asked("initialize").len(), 3);
}

#[test]
fn a_server_that_stops_answering_is_disconnected_and_reached_again() {
    // rows 2.11, 2.12: asked in the words of its era
    let eras: [(&str, Answers); 2] = [("ping", legacy), ("server/discover", modern)];
    for (question, answers) in eras {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // A stateless server is greeted with the same question.
        let far = Peer::start(move |seen| {
            let is_second = seen.method() == question && count.fetch_add(1, Ordering::SeqCst) == 1;
            if is_second {
                Reply::Hang
            } else {
                answers(seen)
            }
        });
        // A late answer to the greeting would have a stateless server greeted in the other era, too.
        let mut entry = entry(&far.url("/mcp"));
        entry["life"]["probe"] = "10s".into();
        let gantry = gateway(entry).start();
        gantry.wait_state(FAR, "ready", LONG);
        gantry.wait_status(FAR, LONG, |status| status["restart_count"] == 1);
        for kind in ["unresponsive", "disconnected"] {
            let told = gantry.events(FAR, kind, 1).remove(0);
            assert!(told.contains("did not answer a health check"), "{told}");
        }
        gantry.wait_state(FAR, "ready", LONG);
        assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()), "{question}");
        // And it is asked on.
        eventually(LONG, || asked.load(Ordering::SeqCst) >= 4).unwrap();
        assert_eq!(gantry.status(FAR)["restart_count"], 1, "{question}");
        let was_pinged = !far.asked("ping").is_empty();
        assert_eq!(was_pinged, question == "ping", "{question}");
    }
}

#[test]
fn a_stopping_gateway_ends_its_sessions() {
    // row 2.13
    let far = Peer::start(legacy);
    let mut gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(gantry.stop(), Some(0));
    let mut last = None;
    eventually(LONG, || {
        last = far.seen().into_iter().find(|seen| seen.verb == "DELETE");
        last.is_some()
    });
    assert_eq!(last.unwrap().header("mcp-session-id"), Some("session-1"));
}

#[test]
fn a_tool_has_its_own_time_and_may_be_repeated_if_it_is_idempotent() {
    // row 3.4; faults H6, H13
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let tools = ["safe", "once", "slow"];
    let far = Peer::start(move |seen| {
        let tool = seen.body["params"]["name"].as_str().unwrap_or_default();
        match (seen.method(), tool) {
            ("tools/list", _) => {
                let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
                seen.result(json!({"tools": tools.map(tool)}))
            }
            ("tools/call", "slow") => Reply::Hang,
            ("tools/call", _) if count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => {
                Reply::Cut
            }
            _ => legacy(seen),
        }
    });
    let settings = json!({"tools": {"settings": {"safe": {"idempotent": true}, "slow": {"timeout": "300ms"}}}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &settings)).start();
    gantry.wait_state(FAR, "ready", LONG);
    let answer = gantry.call("far__safe", json!({}));
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let answer = gantry.call("far__once", json!({}));
    assert_eq!(code(&answer["error"]), "remote.cut", "{answer}");
    assert_eq!(calls.load(Ordering::SeqCst), 3, "it was not sent again");
    let begun = Instant::now();
    let answer = gantry.call("far__slow", json!({}));
    assert_eq!(code(&answer["error"]), "call.timeout", "{answer}");
    // Other tools have ten seconds.
    assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
    let hint = answer["error"]["data"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("retry"), "{answer}");
    // Each is one row.
    assert_eq!(gantry.audit_rows("server=far").len(), 3);
}

#[test]
fn a_tool_has_its_own_time_and_may_be_repeated_if_it_is_idempotent_on_postgresql() {
    on_postgresql(a_tool_has_its_own_time_and_may_be_repeated_if_it_is_idempotent);
}

#[test]
fn one_servers_fault_does_not_touch_its_namesake() {
    // row 3.6
    let good = Peer::start(modern);
    let bad = Peer::start(legacy);
    let gantry = Gantry::builder()
        .entry("good", entry(&good.url("/mcp")))
        .entry("bad", entry(&bad.url("/mcp")))
        .start();
    gantry.wait_state("good", "ready", LONG);
    gantry.wait_state("bad", "ready", LONG);
    drop(bad);
    let call = |tool: &str| gantry.call(tool, json!({"text": "x"}));
    let failed = call("bad__echo");
    assert!(failed["error"].is_object(), "{failed}");
    for _ in 0..5 {
        assert_eq!(call("good__echo")["result"]["content"][0]["text"], "x");
    }
    gantry.wait_state("bad", "disconnected", LONG);
    assert_eq!(gantry.status("good")["state"], "ready");
    assert_eq!(call("good__echo")["result"]["content"][0]["text"], "x");
}

#[test]
fn one_servers_fault_does_not_touch_its_namesake_on_postgresql() {
    on_postgresql(one_servers_fault_does_not_touch_its_namesake);
}

#[test]
fn the_command_line_adds_and_shows_a_far_server() {
    // rows 3.1, 2.20
    let far = Peer::start(modern);
    let gantry = Gantry::builder().start();
    let url = far.url("/mcp");
    let added = gantry.cli(&["add", FAR, &url, "--header", "X-Key=cli-secret"]);
    let text = String::from_utf8_lossy(&added.stdout).into_owned();
    assert!(added.status.success(), "{added:?}");
    assert!(text.contains("far is ready, 1 tool"), "{text}");
    assert!(
        far.seen()
            .iter()
            .all(|seen| seen.header("x-key") == Some("cli-secret"))
    );
    for verb in [vec!["ls"], vec!["status", FAR]] {
        let shown = gantry.cli(&verb);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(text.contains(&url), "{text}");
        assert!(!text.contains("cli-secret"), "{text}");
    }
    let both = gantry.cli(&["add", "x", &url, "--", "true"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}
