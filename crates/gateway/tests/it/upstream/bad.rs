//! Far servers that answer badly, or not at all: each class of failure has its name, its bound and no
//! effect beside itself.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::peer::{Peer, Reply, Seen, event, finish, legacy, modern};
use super::sse_peer::SsePeer;
use super::{FAR, SECOND, code, echo, entry, gateway, with};
use crate::harness::{LONG, held_port};

const AUTHORITY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/upstream/tls/authority.pem"
);

/// Starts a gateway whose far server cannot be reached, and returns what its status says.
fn reason(entry: Value) -> String {
    let gantry = gateway(entry).start();
    let status = gantry.wait_state(FAR, "failed", LONG);
    status["reason"].as_str().unwrap().to_owned()
}

/// Starts a gateway whose far server answers calls like this, and returns the code of the error.
fn call(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (String, Value) {
    let far = Peer::start(move |seen| match seen.method() {
        "tools/call" => reply(seen),
        _ => legacy(seen),
    });
    let near = Evilpeer::new().name("near");
    let gantry = gateway(entry(&far.url("/mcp")))
        .server("near", &near)
        .start();
    gantry.wait_state(FAR, "ready", LONG);
    gantry.wait_state("near", "ready", LONG);
    let begun = Instant::now();
    let error = echo(&gantry, "x").unwrap_err();
    assert!(begun.elapsed() < 8 * SECOND, "{error}");
    let neighbour = gantry.call("near__echo", json!({"text": "y"}));
    assert!(neighbour["result"].is_object(), "{neighbour}");
    (code(&error).to_owned(), error)
}

#[test]
fn what_cannot_be_connected_to_is_classed() {
    // fault H1
    let free = held_port();
    let refused = reason(entry(&format!("http://{free}/mcp")));
    assert!(refused.contains("refused the connection"), "{refused}");
    let unknown = reason(entry("http://no-such-host.invalid/mcp"));
    assert!(unknown.contains("cannot be resolved"), "{unknown}");
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = closing.local_addr().unwrap();
    std::thread::spawn(move || closing.incoming().take(20).for_each(drop));
    let closed = reason(entry(&format!("https://{place}/mcp")));
    assert!(
        closed.contains("TLS") || closed.contains("cut") || closed.contains("reached"),
        "{closed}"
    );
}

#[test]
fn certificates_must_be_known_valid_and_of_that_name() {
    // fault H1
    let wrong = [
        (include_str!("tls/expired.pem"), "xpired"),
        (include_str!("tls/other-name.pem"), "not valid for name"),
    ];
    for (certificate, why) in wrong {
        let far = Peer::encrypted(certificate, legacy);
        let told = reason(with(
            entry(&far.url("/mcp")),
            &json!({"ca_file": AUTHORITY}),
        ));
        assert!(told.contains("TLS") && told.contains(why), "{told}");
    }
    let far = Peer::encrypted(include_str!("tls/good.pem"), legacy);
    let told = reason(entry(&far.url("/mcp")));
    assert!(
        told.contains("TLS") && told.contains("UnknownIssuer"),
        "{told}"
    );
    let gantry = gateway(with(
        entry(&far.url("/mcp")),
        &json!({"ca_file": AUTHORITY}),
    ))
    .start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "safe"), Ok("safe".to_owned()));
}

#[test]
fn a_server_that_accepts_and_is_silent_costs_its_own_callers_only() {
    // faults H2, H7
    let (silent, _) = call(|_| Reply::Hang);
    assert_eq!(silent, "call.timeout");
    let (comments, _) = call(|_| {
        Reply::Events(Box::new(|to: &mut dyn Write| {
            loop {
                event(to, ": still here\n\n")?;
                std::thread::park_timeout(SECOND / 10);
            }
        }))
    });
    assert_eq!(comments, "call.timeout", "comments are no progress");
}

#[test]
fn an_answer_without_end_is_given_up() {
    // fault H5
    let (endless, error) = call(|_| {
        let mut head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\"".to_vec();
        head.resize(head.len() + (9 << 20), b'x');
        Reply::Raw(head)
    });
    assert_eq!(endless, "server.response_too_large", "{error}");
    let (event_bomb, error) = call(|_| {
        Reply::Events(Box::new(|to: &mut dyn Write| {
            let line = format!("data: {}\n", "x".repeat(1 << 20));
            (0..20).try_for_each(|_| event(to, &line))
        }))
    });
    assert_eq!(event_bomb, "server.response_too_large", "{error}");
}

#[test]
fn a_compressed_bomb_is_measured_when_it_is_unpacked() {
    // fault H5: 64 MiB of zeros in 64 KiB.
    let bomb = std::process::Command::new("sh")
        .args(["-c", "head -c 67108864 /dev/zero | gzip -9"])
        .output()
        .unwrap()
        .stdout;
    assert!(bomb.len() < 1 << 20);
    let (bombed, error) = call(move |_| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            bomb.len()
        )
        .into_bytes();
        answer.extend_from_slice(&bomb);
        Reply::Raw(answer)
    });
    assert_eq!(bombed, "server.response_too_large", "{error}");
}

#[test]
fn what_is_no_answer_is_quoted_safely() {
    // fault H8
    let page = "<html>\u{1b}[31m`evil`".to_owned() + &"x".repeat(1000);
    let html = move |_: &Seen| {
        Reply::Status(
            200,
            vec![("Content-Type", "text/html".to_owned())],
            page.clone(),
        )
    };
    let (wrong, error) = call(html);
    assert_eq!(wrong, "remote.content_type");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("<html>") && message.len() < 400,
        "{message}"
    );
    assert!(!message.contains('\u{1b}'), "{message}");
    for status in [202, 204] {
        let (nothing, error) = call(move |_| Reply::status(status));
        assert_eq!(nothing, "remote.content_type", "{error}");
    }
    let (garbage, _) = call(|_| {
        Reply::Status(
            200,
            vec![("Content-Type", "application/json".to_owned())],
            "nonsense".to_owned(),
        )
    });
    assert_eq!(garbage, "remote.content_type");
    let (foreign, _) =
        call(|_| Reply::Json(json!({"jsonrpc": "2.0", "id": "another", "result": {}})));
    assert_eq!(foreign, "remote.content_type");
}

#[test]
fn statuses_have_their_meaning() {
    // fault H9
    let expected = [
        (401, "remote.unauthorized"),
        (403, "remote.forbidden"),
        (405, "remote.method"),
        (418, "remote.status"),
        (429, "remote.limited"),
        (500, "remote.failed"),
        (503, "remote.failed"),
    ];
    for (status, class) in expected {
        let later = ("Retry-After", "86400".to_owned());
        let (found, error) =
            call(move |_| Reply::Status(status, vec![later.clone()], String::new()));
        assert_eq!(found, class, "{error}");
        if status == 429 {
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("for 1m"), "capped: {message}");
        }
    }
}

#[test]
fn a_session_id_that_breaks_the_rules_is_refused() {
    // fault H10
    let ids = [
        vec!["a b".to_owned()],
        vec!["x".repeat(10 << 10)],
        vec!["one".to_owned(), "two".to_owned()],
    ];
    for ids in ids {
        let far = Peer::start(move |seen| {
            let mut reply = legacy(seen);
            if let ("initialize", Reply::Status(_, headers, _)) = (seen.method(), &mut reply) {
                headers.truncate(1);
                headers.extend(ids.iter().map(|id| ("Mcp-Session-Id", id.clone())));
            }
            reply
        });
        let told = reason(entry(&far.url("/mcp")));
        assert!(told.contains("session"), "{told}");
    }
    // One with a line break ends the header for any HTTP client.
    let far = Peer::start(|seen| match seen.method() {
        "initialize" => Reply::Raw(
            b"HTTP/1.1 200 OK\r\nMcp-Session-Id: a\r\n b\0c\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        _ => legacy(seen),
    });
    reason(entry(&far.url("/mcp")));
    // Changed in mid-session.
    let (changed, error) = call(|seen| {
        let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {}});
        let headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Mcp-Session-Id", "another".to_owned()),
        ];
        Reply::Status(200, headers, answer.to_string())
    });
    assert_eq!(changed, "remote.session", "{error}");
}

#[test]
fn redirects_stay_at_home_and_so_do_secrets() {
    // fault H3
    let elsewhere = Peer::start(legacy);
    let target = elsewhere.url("/mcp");
    for status in [301, 302, 307, 308] {
        let to = target.clone();
        let far = Peer::start(move |_| {
            Reply::Status(status, vec![("Location", to.clone())], String::new())
        });
        let secret = json!({"headers": {"Authorization": "Bearer redirect-secret"}});
        let told = reason(with(entry(&far.url("/mcp")), &secret));
        assert!(told.contains("is not followed"), "{told}");
        assert!(!told.contains("redirect-secret"));
    }
    assert!(elsewhere.seen().is_empty(), "{:?}", elsewhere.seen());
    // Within the origin a redirect that keeps the request is followed.
    let far = Peer::start(|seen| match seen.path.as_str() {
        "/mcp" => Reply::Status(307, vec![("Location", "/mcp/".to_owned())], String::new()),
        _ => legacy(seen),
    });
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    let around =
        Peer::start(|_| Reply::Status(307, vec![("Location", "/mcp".to_owned())], String::new()));
    let told = reason(entry(&around.url("/mcp")));
    assert!(told.contains("is not followed"), "{told}");
}

#[test]
fn an_sse_server_may_name_places_of_its_own_origin_only() {
    // faults H3, H4
    let elsewhere = Peer::start(legacy);
    for place in [
        elsewhere.url("/message"),
        "http://169.254.169.254/x".to_owned(),
        "http://a@127.0.0.1/x".to_owned(),
    ] {
        let far = SsePeer::start(&place);
        let told = reason(with(entry(&far.peer.url("/sse")), &json!({"type": "sse"})));
        assert!(
            told.contains("not followed") || told.contains("no URL"),
            "{told}"
        );
        assert!(far.peer.seen().iter().all(|seen| seen.verb == "GET"));
    }
    assert!(elsewhere.seen().is_empty());
    // An absolute place of the same origin is fine.
    let port = held_port();
    let far = SsePeer::at(port, &format!("http://{port}/message?s=1"));
    let gantry = gateway(with(entry(&far.peer.url("/sse")), &json!({"type": "sse"}))).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
}

#[test]
fn a_flapping_server_is_reached_for_less_and_less() {
    // fault H13
    let greeted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&greeted);
    let far = Peer::start(move |seen| match seen.method() {
        "server/discover" => {
            count.fetch_add(1, Ordering::SeqCst);
            modern(seen)
        }
        // Up, and at once unable to do anything.
        "tools/call" => Reply::status(401),
        _ => modern(seen),
    });
    let steady = json!({"reconnect": {"first": "200ms", "longest": "60s", "steady": "60s"},
        "life": {"health_every": "60s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &steady)).start();
    let begun = Instant::now();
    let mut lost = 0;
    while begun.elapsed() < 4 * SECOND {
        if gantry.status(FAR)["state"] == "ready" {
            echo(&gantry, "x").unwrap_err();
            lost += 1;
        }
    }
    // 200 ms doubling: at most some ten in four seconds even if every draw is short; at once, it
    // would be hundreds.
    assert!(lost >= 1);
    let tries = greeted.load(Ordering::SeqCst);
    assert!(tries <= 30, "{tries}");
}

#[test]
fn what_a_server_says_of_keeping_is_bounded_and_private() {
    // fault H14
    let far = Peer::start(|seen| match seen.method() {
        "resources/list" => seen.result(json!({"resources": [{"uri": "test://a", "name": "a"}],
            "resultType": "complete", "ttlMs": -5, "cacheScope": "public"})),
        "resources/read" => seen.result(json!({"contents": [{"uri": "test://a", "text": "mine"}],
            "resultType": "complete", "ttlMs": 99_999_999, "cacheScope": "public"})),
        "server/discover" => seen.result(json!({"supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "resources": {}}, "resultType": "complete"})),
        _ => modern(seen),
    });
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    let read = gantry.mcp("resources/read", json!({"uri": "test://a"}));
    assert_eq!(read["result"]["ttlMs"], 300_000, "{read}");
    assert_eq!(read["result"]["cacheScope"], "private");
    let list = gantry.mcp("resources/list", json!({}));
    assert_eq!(list["result"]["cacheScope"], "private", "{list}");
    assert!(
        list["result"]["ttlMs"]
            .as_i64()
            .is_some_and(|ttl| (0..=300_000).contains(&ttl))
    );
}

#[test]
fn an_answer_without_an_id_ends_the_call_it_came_on_and_no_other() {
    // fault S7, over streamable HTTP
    let ended = Arc::new(AtomicUsize::new(0));
    let rounds = Arc::clone(&ended);
    let far = Peer::start(move |seen| {
        let text = seen.body["params"]["arguments"]["text"].as_str();
        let lost = json!({"jsonrpc": "2.0", "id": null, "result": {"content": []}});
        match (seen.method(), text) {
            ("tools/call", Some("document")) => Reply::Json(lost),
            ("tools/call", Some("event")) => Reply::Events(Box::new(move |to: &mut dyn Write| {
                event(to, &format!("event: message\ndata: {lost}\n\n"))?;
                finish(to)
            })),
            ("tools/call", Some(kept)) => {
                let round = kept.parse().unwrap();
                let is_over = || rounds.load(Ordering::SeqCst) > round;
                eventually(LONG, is_over).expect("the other call ends first");
                legacy(seen)
            }
            _ => legacy(seen),
        }
    });
    let patient = json!({"calls": {"timeout": "40s", "timeout_max": "60s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &patient)).start();
    gantry.wait_state(FAR, "ready", LONG);
    for (round, lost) in ["document", "event"].into_iter().enumerate() {
        std::thread::scope(|scope| {
            let gantry = &gantry;
            let kept = scope.spawn(move || echo(gantry, &round.to_string()));
            let sent = || far.asked("tools/call").len() == 2 * round + 1;
            eventually(LONG, sent).expect("the first call is sent");
            let error = echo(gantry, lost);
            ended.fetch_add(1, Ordering::SeqCst);
            let error = error.unwrap_err();
            assert_eq!(code(&error), "server.protocol", "{error}");
            let why = "member `id` must not be null";
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(kept.join().unwrap(), Ok(round.to_string()));
        });
    }
}
