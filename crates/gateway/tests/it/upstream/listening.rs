//! The stream on which a far server says what belongs to no call: what becomes of it when the server
//! does not open it, and of a server that says too much on it. faults H9, S14

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::json;
use tokio::time::Instant;

use super::peer::{Peer, Reply, Seen, answer_event, event, finish, legacy, modern, tool};
use super::{FAR, SECOND, echo, entry, gateway, with};
use crate::eras::Older;
use crate::harness::LONG;

/// A server whose stream is refused some times, and then opened and changes its list.
struct Refusing {
    peer: Peer,
    /// When it was asked for the stream.
    asked: Arc<Mutex<Vec<Instant>>>,
}

fn refusing(times: usize, reply: impl Fn() -> Reply + Send + Sync + 'static) -> Refusing {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (noted, opened) = (Arc::clone(&asked), AtomicUsize::new(0));
    let peer = Peer::start(move |seen| match (seen.verb.as_str(), seen.method()) {
        ("GET", _) => {
            let count = {
                let mut noted = noted.lock().unwrap();
                noted.push(Instant::now());
                noted.len()
            };
            if count <= times {
                return reply();
            }
            opened.store(1, Ordering::SeqCst);
            changed_list()
        }
        ("POST", "tools/list") => listing(seen, opened.load(Ordering::SeqCst) == 1),
        _ => legacy(seen),
    });
    Refusing { peer, asked }
}

/// Opens a stream, says that the list has changed, and keeps it open for a while.
fn changed_list() -> Reply {
    Reply::Events(Box::new(|to: &mut dyn Write| {
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        event(to, &format!("data: {changed}\n\n"))?;
        std::thread::park_timeout(LONG);
        finish(to)
    }))
}

fn listing(seen: &Seen, longer: bool) -> Reply {
    let mut tools = vec![tool()];
    if longer {
        tools.push(json!({"name": "second", "inputSchema": {"type": "object"}}));
    }
    seen.result(json!({"tools": tools}))
}

/// Starts a gateway before such a server; a refused stream costs no call and no session.
fn heard_after(far: &Refusing) -> Vec<Instant> {
    let calm = json!({"life": {"health_every": "60s"}});
    let gantry = gateway(with(entry(&far.peer.url("/mcp")), &calm)).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    let status = gantry.wait_status(FAR, LONG, |status| status["tools"] == 2);
    assert_eq!(status["restart_count"], 0);
    assert_eq!(far.peer.asked("initialize").len(), 1);
    assert_eq!(echo(&gantry, "y"), Ok("y".to_owned()));
    far.asked.lock().unwrap().clone()
}

#[test]
fn a_stream_that_is_refused_is_asked_for_again_after_a_pause() {
    // fault H9: another stream is open (409), or this request is not liked (400).
    for status in [409, 400] {
        let far = refusing(2, move || Reply::status(status));
        let asked = heard_after(&far);
        assert_eq!(asked.len(), 3, "{status}");
        for pair in asked.windows(2) {
            let pause = pair[1] - pair[0];
            assert!(pause >= SECOND, "{status}: after {pause:?}");
        }
    }
}

#[test]
fn a_server_that_says_when_to_ask_again_is_not_asked_before() {
    // fault H9
    for status in [429, 503] {
        let later = ("Retry-After", "3".to_owned());
        let far = refusing(1, move || {
            Reply::Status(status, vec![later.clone()], String::new())
        });
        let asked = heard_after(&far);
        assert_eq!(asked.len(), 2, "{status}");
        let pause = asked[1] - asked[0];
        assert!(pause >= 3 * SECOND, "{status}: after {pause:?}");
        assert!(pause < 12 * SECOND, "{status}: after {pause:?}");
    }
}

#[test]
fn a_server_without_a_stream_is_asked_for_it_once() {
    // 405 is its right, and so is a session that it does not care for.
    for status in [405, 501] {
        let far = Peer::start(move |seen| match seen.verb.as_str() {
            "GET" => Reply::status(status),
            _ => legacy(seen),
        });
        let gantry = gateway(entry(&far.url("/mcp"))).start();
        gantry.wait_state(FAR, "ready", LONG);
        // Health checks go on meanwhile, some ten of them.
        eventually(LONG, || far.asked("ping").len() >= 8).unwrap();
        let streams = far.seen().into_iter().filter(|seen| seen.verb == "GET");
        assert_eq!(streams.count(), 1, "{status}");
        assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
        assert_eq!(gantry.status(FAR)["restart_count"], 0);
    }
}

#[test]
fn an_event_that_the_server_has_forgotten_is_not_asked_for_twice() {
    // The stream ended after an event; 400 says that it cannot be resumed there.
    let streams = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&streams);
    let far = Peer::start(move |seen| match (seen.verb.as_str(), seen.method()) {
        ("GET", _) => {
            let after = seen.header("last-event-id").map(str::to_owned);
            let count = {
                let mut noted = noted.lock().unwrap();
                noted.push(after.clone());
                noted.len()
            };
            match (after, count) {
                (Some(_), _) => Reply::status(400),
                (None, 1) => Reply::Events(Box::new(|to: &mut dyn Write| {
                    event(to, "id: 7\nretry: 100\ndata: \n\n")?;
                    finish(to)
                })),
                (None, _) => Reply::status(405),
            }
        }
        // What came meanwhile is missed, so that the list is read anew.
        ("POST", "tools/list") => listing(seen, noted.lock().unwrap().len() > 1),
        _ => legacy(seen),
    });
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_status(FAR, LONG, |status| status["tools"] == 2);
    eventually(LONG, || streams.lock().unwrap().len() == 3).unwrap();
    let streams = streams.lock().unwrap().clone();
    assert_eq!(streams, [None, Some("7".to_owned()), None]);
    assert_eq!(gantry.status(FAR)["restart_count"], 0);
}

/// How long a flood goes on.
const FLOOD: Duration = Duration::from_secs(4);
/// How many messages a server may be rid of in a second: 1,000 in each twentieth of it.
const PACE: f64 = 20_000.0;
/// How many fit into the buffers on the way.
const ON_THE_WAY: f64 = 40_000.0;

/// A flood of notifications, and what became of it.
#[derive(Default)]
struct Flood {
    written: AtomicUsize,
    took: OnceLock<Duration>,
}

impl Flood {
    fn has_begun(&self) -> bool {
        self.written.load(Ordering::SeqCst) > 0
    }

    /// Writes as many notifications as are taken.
    fn pour(&self, to: &mut dyn Write) -> std::io::Result<()> {
        let filling = "x".repeat(200);
        let message = json!({"jsonrpc": "2.0", "method": "notifications/message",
            "params": {"level": "info", "data": filling}});
        let events = format!("data: {message}\n\n").repeat(64);
        let begun = Instant::now();
        while begun.elapsed() < FLOOD {
            event(to, &events)?;
            self.written.fetch_add(64, Ordering::SeqCst);
        }
        self.took.set(begun.elapsed()).unwrap();
        Ok(())
    }

    /// Asserts that the server had to wait for itself.
    fn was_paced(&self) {
        eventually(LONG, || self.took.get().is_some()).unwrap();
        let most = PACE * self.took.get().unwrap().as_secs_f64() + ON_THE_WAY;
        let written = self.written.load(Ordering::SeqCst);
        assert!((written as f64) < most, "{written} of {most}");
    }
}

/// Floods a gateway on some stream of a far server; calls to it and to its neighbour go on.
fn paced(kind: &str, flood: &Flood, far: &Peer, path: &str) {
    let near = Evilpeer::new().name("near");
    let calm = json!({"type": kind, "life": {"health_every": "60s"},
        "calls": {"timeout": "15s", "timeout_max": "15s"}});
    let gantry = gateway(with(entry(&far.url(path)), &calm))
        .server("near", &near)
        .start();
    gantry.wait_state(FAR, "ready", LONG);
    gantry.wait_state("near", "ready", LONG);
    eventually(LONG, || flood.has_begun()).unwrap();
    for _ in 0..20 {
        let answer = gantry.call("near__echo", json!({"text": "y"}));
        assert!(answer["result"].is_object(), "{answer}");
    }
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()), "{kind}");
    flood.was_paced();
    assert_eq!(gantry.status(FAR)["restart_count"], 0);
    assert!(
        gantry.stderr().len() < 64 << 10,
        "{kind}: the flood does not reach our log"
    );
}

#[test]
fn a_flood_on_the_servers_own_stream_waits_for_itself() {
    // fault S14
    let flood = Arc::new(Flood::default());
    let poured = Arc::clone(&flood);
    let far = Peer::start(move |seen| match seen.verb.as_str() {
        "GET" if !poured.has_begun() => {
            let poured = Arc::clone(&poured);
            Reply::Events(Box::new(move |to: &mut dyn Write| poured.pour(to)))
        }
        _ => legacy(seen),
    });
    paced("http", &flood, &far, "/mcp");
}

#[test]
fn a_flood_on_the_only_stream_waits_for_itself() {
    // fault S14
    let flood = Arc::new(Flood::default());
    let poured = Arc::clone(&flood);
    let (answers, listed) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(AtomicBool::new(false)),
    );
    let read = Arc::clone(&listed);
    let far = Peer::start(move |seen| {
        if seen.verb == "GET" {
            let (poured, listed) = (Arc::clone(&poured), Arc::clone(&listed));
            let answers = Arc::clone(&answers);
            return Reply::Events(Box::new(move |to: &mut dyn Write| {
                event(to, "event: endpoint\ndata: /message\n\n")?;
                loop {
                    let waiting = std::mem::take(&mut *answers.lock().unwrap());
                    for answer in waiting {
                        event(to, &format!("event: message\ndata: {answer}\n\n"))?;
                    }
                    // The flood begins when the list was read, and ends before the call.
                    if listed.load(Ordering::SeqCst) && !poured.has_begun() {
                        poured.pour(to)?;
                    }
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            }));
        }
        match legacy(seen) {
            Reply::Json(answer) => answers.lock().unwrap().push(answer.to_string()),
            Reply::Status(200, _, answer) => answers.lock().unwrap().push(answer),
            Reply::Status(..) | Reply::Events(_) | Reply::Raw(_) | Reply::Hang | Reply::Cut => {}
        }
        if seen.method() == "tools/list" {
            read.store(true, Ordering::SeqCst);
        }
        Reply::status(202)
    });
    paced("sse", &flood, &far, "/sse");
}

#[test]
fn a_flood_on_a_calls_own_stream_waits_for_itself() {
    // fault S14
    let flood = Arc::new(Flood::default());
    let poured = Arc::clone(&flood);
    let far = Peer::start(move |seen| match seen.method() {
        "tools/call" => {
            let (poured, answer) = (Arc::clone(&poured), answer_event(seen));
            Reply::Events(Box::new(move |to: &mut dyn Write| {
                if !poured.has_begun() {
                    poured.pour(to)?;
                }
                event(to, &answer)?;
                finish(to)
            }))
        }
        _ => legacy(seen),
    });
    let near = Evilpeer::new().name("near");
    let patient = json!({"life": {"health_every": "60s"},
        "calls": {"timeout": "15s", "timeout_max": "15s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &patient))
        .server("near", &near)
        .start();
    gantry.wait_state(FAR, "ready", LONG);
    gantry.wait_state("near", "ready", LONG);
    std::thread::scope(|scope| {
        let flooded = scope.spawn(|| echo(&gantry, "x"));
        eventually(LONG, || flood.has_begun()).unwrap();
        // Other calls of the same server have streams of their own.
        assert_eq!(echo(&gantry, "beside"), Ok("beside".to_owned()));
        let answer = gantry.call("near__echo", json!({"text": "y"}));
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(flooded.join().unwrap(), Ok("x".to_owned()));
    });
    flood.was_paced();
}

/// Answers as a stateless server that tells of its resources, on streams that stay open.
fn telling(seen: &Seen) -> Reply {
    match seen.method() {
        "server/discover" => seen.result(json!({"supportedVersions": ["2026-07-28"],
            "capabilities": {"resources": {"subscribe": true}}, "resultType": "complete",
            "ttlMs": 0, "cacheScope": "private"})),
        "resources/list" => {
            let resources = ["test://a", "test://b"].map(|uri| json!({"uri": uri, "name": uri}));
            seen.result(json!({"resources": resources, "resultType": "complete",
                "ttlMs": 0, "cacheScope": "private"}))
        }
        "subscriptions/listen" => {
            let agreed = json!({"jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {"notifications": seen.body["params"]["notifications"],
                    "_meta": {"io.modelcontextprotocol/subscriptionId": seen.body["id"]}}});
            Reply::Events(Box::new(move |to: &mut dyn Write| {
                event(to, &format!("data: {agreed}\n\n"))?;
                loop {
                    std::thread::park_timeout(SECOND / 10);
                    event(to, ": still here\n\n")?;
                }
            }))
        }
        _ => modern(seen),
    }
}

#[test]
fn who_joins_what_is_listened_to_has_the_server_not_asked_again() {
    let far = Peer::start(telling);
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    let listened = || far.asked("subscriptions/listen").len();
    let clients = [(); 3].map(|()| Older::open(&gantry, "/mcp", "2025-11-25"));
    for client in &clients {
        client.result("resources/subscribe", json!({"uri": "test://a"}));
    }
    // What is new has it asked once more, and tells that everything before has been looked at.
    clients[0].result("resources/subscribe", json!({"uri": "test://b"}));
    let asked = far.asked("subscriptions/listen");
    let wishes = asked
        .iter()
        .map(|seen| &seen.body["params"]["notifications"]["resourceSubscriptions"]);
    assert_eq!(
        wishes.collect::<Vec<_>>(),
        [&json!(["test://a"]), &json!(["test://a", "test://b"])]
    );
    // Nor has who comes back at once.
    clients[1].result("resources/unsubscribe", json!({"uri": "test://a"}));
    clients[1].result("resources/subscribe", json!({"uri": "test://a"}));
    clients[2].result("resources/subscribe", json!({"uri": "test://b"}));
    assert_eq!(listened(), 2);
}
