//! Far servers that answer badly, or not at all: each class of failure has its name, its bound and no
//! effect beside itself.

use std::io::{Read as _, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::peer::{Peer, Reply, Seen, event, finish, legacy, modern};
use super::scene::{Failed, Scene};
use super::sse_peer::SsePeer;
use super::{AUTHORITY, FAR, SECOND, code, echo, entry, gateway, with};
use crate::faults_client::ROOM;
use crate::harness::{LONG, held_port};

/// Starts a gateway whose far server cannot be reached, and returns what its status says.
pub(super) fn reason(entry: Value) -> String {
    let gantry = gateway(entry).start();
    let status = gantry.wait_state(FAR, "failed", LONG);
    status["reason"].as_str().unwrap().to_owned()
}

/// How a far server answers calls.
type Answers = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

/// Starts a gateway with a far server for each of these, named so, which answers calls so; calls each,
/// which must fail with this code, and returns what was said.
fn fail(rows: Vec<(&'static str, &'static str, Answers)>, room: u64) -> Vec<Failed> {
    let far = |(name, wanted, answers): (&'static str, &'static str, Answers)| {
        let far = Peer::start(move |seen| match seen.method() {
            "tools/call" => answers(seen),
            _ => legacy(seen),
        });
        (name, wanted, far)
    };
    let far: Vec<_> = rows.into_iter().map(far).collect();
    let entry = |(name, _, far): &(&'static str, _, Peer)| (*name, entry(&far.url("/mcp")));
    let entries: Vec<_> = far.iter().map(entry).collect();
    let scene = Scene::new(&entries);
    let failed = far.iter().map(|(name, wanted, _)| {
        let failed = scene.fails(name, "error", wanted);
        assert!(failed.took < 8 * SECOND, "`{name}`: {:?}", failed.took);
        failed
    });
    let failed = failed.collect();
    scene.is_over(room);
    failed
}

#[test]
fn what_cannot_be_connected_to_is_classed() {
    // fault H1
    let free = held_port();
    let refused = reason(entry(&format!("http://{free}/mcp")));
    assert!(refused.contains("refused the connection"), "{refused}");
    let unknown = reason(entry("http://no-such-host.invalid/mcp"));
    assert!(unknown.contains("cannot be resolved"), "{unknown}");
    // Closed in the middle of the handshake, with what we said read or unread.
    for heard in [0, 1 << 10] {
        let closing = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = closing.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in closing.incoming().flatten() {
                let mut hello = vec![0; heard];
                drop(stream.read(&mut hello));
            }
        });
        let closed = reason(entry(&format!("https://{place}/mcp")));
        let why = "the server ended the connection in the middle of it";
        let expected = format!("TLS with https://{place} failed: {why}; ");
        assert!(closed.starts_with(&expected), "{heard}: {closed}");
    }
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
fn what_is_no_answer_is_quoted_safely() {
    // fault H8
    let json = || vec![("Content-Type", "application/json".to_owned())];
    let page = "<html>\u{1b}[31m`evil`".to_owned() + &"x".repeat(1000);
    let html = move |_: &Seen| {
        let kind = vec![("Content-Type", "text/html".to_owned())];
        Reply::Status(200, kind, page.clone())
    };
    let foreign = |_: &Seen| Reply::Json(json!({"jsonrpc": "2.0", "id": "another", "result": {}}));
    let class = "remote.content_type";
    let failed = fail(
        vec![
            ("page", class, Box::new(html)),
            ("taken", class, Box::new(|_| Reply::status(202))),
            ("nothing", class, Box::new(|_| Reply::status(204))),
            ("bare", class, Box::new(|_| Reply::status(200))),
            (
                "empty",
                class,
                Box::new(move |_| Reply::Status(200, json(), String::new())),
            ),
            (
                "garbage",
                class,
                Box::new(move |_| Reply::Status(200, json(), "nonsense".to_owned())),
            ),
            ("foreign", class, Box::new(foreign)),
        ],
        ROOM,
    );
    let told: Vec<&str> = failed.iter().map(Failed::message).collect();
    let quoted = [
        "<html>\u{fffd}[31m\u{fffd}evil",
        "",
        "",
        "",
        "",
        "nonsense",
        "{\"jsonrpc\":\"2.0\",\"id\":\"another\"",
    ];
    for (told, quoted) in told.iter().zip(quoted) {
        assert!(
            told.contains(&format!("where a message is expected: `{quoted}")),
            "{told}"
        );
        assert!(told.len() < 400 && !told.contains('\u{1b}'), "{told}");
    }
    assert!(
        told[3].contains("answered 200 with `nothing` where"),
        "{}",
        told[3]
    );
    assert!(
        told[4].contains("answered 200 with `application/json` where"),
        "{}",
        told[4]
    );
}

#[test]
fn statuses_have_their_meaning() {
    // fault H9
    let expected = [
        ("s401", 401, "remote.unauthorized"),
        ("s403", 403, "remote.forbidden"),
        ("s405", 405, "remote.method"),
        ("s418", 418, "remote.status"),
        ("s429", 429, "remote.limited"),
        ("s500", 500, "remote.failed"),
        ("s503", 503, "remote.failed"),
    ];
    let row = |(name, status, class)| {
        let later = ("Retry-After", "86400".to_owned());
        let answers = move |_: &Seen| Reply::Status(status, vec![later.clone()], String::new());
        let answers: Answers = Box::new(answers);
        (name, class, answers)
    };
    let failed = fail(expected.map(row).into(), ROOM);
    for (failed, (_, status, _)) in failed.iter().zip(expected) {
        let said = format!(" answered {status}: ");
        assert!(failed.message().contains(&said), "{}", failed.error);
    }
    let limited = failed[4].message();
    assert!(limited.contains("retry in 1m"), "capped: {limited}");
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
        "initialize" => Reply::bytes(
            b"HTTP/1.1 200 OK\r\nMcp-Session-Id: a\r\n b\0c\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        _ => legacy(seen),
    });
    reason(entry(&far.url("/mcp")));
    // Changed in mid-session.
    let changed = |seen: &Seen| {
        let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {}});
        let headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Mcp-Session-Id", "another".to_owned()),
        ];
        Reply::Status(200, headers, answer.to_string())
    };
    let failed = fail(vec![("changed", "remote.session", Box::new(changed))], ROOM);
    let told = failed[0].message();
    assert!(told.contains("cannot go on: its id has changed"), "{told}");
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
        assert!(told.contains("` refused"), "{told}");
        assert!(!told.contains("redirect-secret"));
    }
    assert!(elsewhere.seen().is_empty(), "{:?}", elsewhere.seen());
    // Nor is one that leaves the encryption, at the same host.
    for status in [307, 308] {
        let to = target.clone();
        let far = Peer::encrypted(include_str!("tls/good.pem"), move |_| {
            Reply::Status(status, vec![("Location", to.clone())], String::new())
        });
        let secret = json!({"headers": {"Authorization": "Bearer redirect-secret"},
            "ca_file": AUTHORITY});
        let told = reason(with(entry(&far.url("/mcp")), &secret));
        let expected = format!("{}: redirect to `{target}` refused", far.url(""));
        assert!(told.starts_with(&expected), "{told}");
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
    assert!(told.contains("` refused"), "{told}");
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
            told.contains("` refused") || told.contains("not a URL"),
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
    gantry.wait_state(FAR, "ready", LONG);
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
