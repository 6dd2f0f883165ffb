//! Fault H9: a server that asks to be left alone, by 429 or 503 with `Retry-After`, is left alone: calls
//! within that time are refused without asking it, those of other servers are not, and it is over by
//! itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, legacy, modern};
use super::sse_peer::SsePeer;
use super::{FAR, SECOND, code, entry};
use crate::harness::{Gantry, LONG};

/// Starts a gateway with this far server and a neighbour.
fn gateway(url: &str) -> Gantry {
    let gantry = Gantry::builder()
        .entry(FAR, entry(url))
        .server("near", &Evilpeer::new())
        .start();
    gantry.wait_state(FAR, "ready", LONG);
    gantry.wait_state("near", "ready", LONG);
    gantry
}

fn call(gantry: &Gantry) -> Value {
    gantry.call("far__echo", json!({"text": "x"}))
}

/// Refuses the first so many calls with a status and headers.
fn refuses(
    first: usize,
    status: u16,
    headers: &[(&'static str, &'static str)],
    otherwise: fn(&Seen) -> Reply,
) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    let count = AtomicUsize::new(0);
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    move |seen| match seen.method() {
        "tools/call" if count.fetch_add(1, Ordering::Relaxed) < first => {
            Reply::Status(status, headers.clone(), String::new())
        }
        _ => otherwise(seen),
    }
}

/// Asserts that calls are refused without asking; the time is long enough for that on a busy machine.
fn is_left_alone(gantry: &Gantry, asked: impl Fn() -> usize) {
    for _ in 0..3 {
        let refused = call(gantry);
        let error = &refused["error"];
        assert_eq!(code(error), "remote.limited", "{refused:#}");
        let wait = error["data"]["retry_after_ms"].as_u64().unwrap();
        assert!(wait > 0 && wait <= 30_000, "{refused:#}");
        // The neighbour's are not.
        let near = gantry.call("near__echo", json!({"text": "y"}));
        assert_eq!(near["result"]["content"][0]["text"], "y", "{near:#}");
    }
    assert_eq!(asked(), 1, "the server was left alone");
    let all: Vec<Value> = gantry.audit_rows("server=far");
    let refused = all.iter().filter(|row| row["code"] == "remote.limited");
    assert!(refused.count() >= 3, "{all:#?}");
}

/// Asserts that a call is refused, and that calls go through after a second, when the time is over.
fn is_over_by_itself(gantry: &Gantry, asked: impl Fn() -> usize) {
    let watch = Stopwatch::start();
    let first = call(gantry);
    assert!(first["error"].is_object(), "{first:#}");
    let back = eventually(LONG, || call(gantry)["result"]["content"][0]["text"] == "x");
    assert!(back.is_some());
    assert!(watch.elapsed() >= SECOND, "{:?}", watch.elapsed());
    assert_eq!(asked(), 2, "asked once more when the time was over");
}

// fault H9
#[test]
fn a_limited_server_is_left_alone() {
    for otherwise in [legacy, modern] {
        let far = Peer::start(refuses(1, 429, &[("Retry-After", "30")], otherwise));
        let gantry = gateway(&far.url("/mcp"));
        let first = call(&gantry);
        assert_eq!(code(&first["error"]), "remote.limited", "{first:#}");
        let wait = &first["error"]["data"]["retry_after_ms"];
        assert_eq!(*wait, 30_000, "{first:#}");
        is_left_alone(&gantry, || far.asked("tools/call").len());
        // A server that answers a health check so is there.
        assert_eq!(gantry.status(FAR)["restart_count"], 0);
    }
}

// fault H9
#[test]
fn a_server_is_asked_again_when_the_time_is_over() {
    let date = [
        ("Date", "Fri, 31 Dec 1999 23:59:59 GMT"),
        ("Retry-After", "Sat, 01 Jan 2000 00:00:00 GMT"),
    ];
    for (status, headers, otherwise) in [
        (429, &[("Retry-After", "1")][..], legacy as fn(&Seen) -> _),
        (429, &[("Retry-After", "1")], modern),
        (503, &date, legacy),
    ] {
        let far = Peer::start(refuses(1, status, headers, otherwise));
        let gantry = gateway(&far.url("/mcp"));
        is_over_by_itself(&gantry, || far.asked("tools/call").len());
    }
    let far = limited_sse("1");
    let gantry = gateway(&far.peer.url("/sse"));
    is_over_by_itself(&gantry, || far.peer.asked("tools/call").len());
}

// fault H9
#[test]
fn a_server_that_is_unavailable_for_a_while_is_left_alone_too() {
    let date = [
        ("Date", "Fri, 31 Dec 1999 23:59:50 GMT"),
        ("Retry-After", "Sat, 01 Jan 2000 00:00:20 GMT"),
    ];
    let far = Peer::start(refuses(1, 503, &date, legacy));
    let gantry = gateway(&far.url("/mcp"));
    let body = json!({"name": "far__echo", "arguments": {"text": "x"}});
    let agent = &gantry.agent;
    let first = gantry.rest_as(agent, "POST", "/api/v1/tools/call", Some(&body));
    assert_eq!(first.json()["code"], "remote.failed", "{}", first.text());
    assert_eq!(first.header("retry-after"), Some("30"), "{}", first.text());
    let second = gantry.rest_as(agent, "POST", "/api/v1/tools/call", Some(&body));
    assert_eq!(second.status, 503, "{}", second.text());
    assert_eq!(second.json()["code"], "remote.limited", "{}", second.text());
    let wait: u64 = second.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    is_left_alone(&gantry, || far.asked("tools/call").len());
}

// fault H9
#[test]
fn without_a_time_nothing_is_held_back_and_a_person_may_insist() {
    for headers in [&[][..], &[("Retry-After", "0")], &[("Retry-After", "soon")]] {
        let far = Peer::start(refuses(1, 429, headers, legacy));
        let gantry = gateway(&far.url("/mcp"));
        let first = call(&gantry);
        assert_eq!(code(&first["error"]), "remote.limited", "{first:#}");
        let second = call(&gantry);
        assert_eq!(second["result"]["content"][0]["text"], "x", "{second:#}");
    }
    let far = Peer::start(refuses(1, 429, &[("Retry-After", "86400")], legacy));
    let gantry = gateway(&far.url("/mcp"));
    for _ in 0..2 {
        let limited = call(&gantry);
        let error = &limited["error"];
        assert_eq!(code(error), "remote.limited", "{limited:#}");
        let wait = error["data"]["retry_after_ms"].as_u64().unwrap();
        assert!(wait > 30_000 && wait <= 60_000, "capped: {limited:#}");
    }
    assert_eq!(far.asked("tools/call").len(), 1);
    let restarted = gantry.cli(&["restart", FAR]);
    assert!(restarted.status.success(), "{restarted:?}");
    let second = call(&gantry);
    assert_eq!(second["result"]["content"][0]["text"], "x", "{second:#}");
}

/// Starts a server behind SSE that refuses its first call and asks to be left alone for so long.
fn limited_sse(seconds: &'static str) -> SsePeer {
    let count = AtomicUsize::new(0);
    SsePeer::with(move |seen| {
        let is_first = seen.method() == "tools/call" && count.fetch_add(1, Ordering::Relaxed) == 0;
        let later = vec![("Retry-After", seconds.to_owned())];
        is_first.then(|| Reply::Status(429, later, String::new()))
    })
}

// fault H9
#[test]
fn a_server_behind_sse_is_left_alone_too() {
    let far = limited_sse("30");
    let gantry = gateway(&far.peer.url("/sse"));
    let first = call(&gantry);
    assert_eq!(code(&first["error"]), "remote.limited", "{first:#}");
    is_left_alone(&gantry, || far.peer.asked("tools/call").len());
}
