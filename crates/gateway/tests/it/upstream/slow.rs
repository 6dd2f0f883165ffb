//! Far servers that take their time: each wait has its deadline, whatever trickles in meanwhile.
//! faults H2, H7

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::flapping::period;
use super::peer::{Peer, Reply, Seen, event, legacy};
use super::scene::Scene;
use super::sse_peer::SsePeer;
use super::{FAR, SECOND, code, entry, gateway, with};
use crate::faults_client::ROOM;
use crate::harness::{LONG, held_port};

/// How a server answers in its own time.
type Slowly = fn() -> Reply;

/// How long a call may take in these tests, unless the server says that it goes on.
const DEADLINE: Duration = Duration::from_secs(2);
/// How often something trickles in.
const DRIP: Duration = Duration::from_millis(100);

/// Writes the same again and again, as long as the other side takes it.
fn for_ever(
    to: &mut dyn Write,
    mut piece: impl FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        piece(to)?;
        to.flush()?;
        thread::park_timeout(DRIP);
    }
}

/// Returns an entry whose calls end at the deadline, and whose health is not looked at meanwhile.
fn calm(url: &str) -> Value {
    let mut entry = entry(url);
    entry["calls"] = json!({"timeout": "2s", "timeout_max": "4s"});
    entry["life"]["health_every"] = "60s".into();
    entry
}

/// Answers calls like this, and everything else as it should be.
fn slow_to_call(reply: Slowly) -> Peer {
    Peer::start(move |seen| match seen.method() {
        "tools/call" => reply(),
        _ => legacy(seen),
    })
}

#[test]
fn whatever_trickles_in_a_call_ends_at_its_deadline() {
    // faults H2, H7
    let slow: [(&str, Slowly); 5] = [
        ("silent", || Reply::Hang),
        ("head", || {
            Reply::Raw(Box::new(|to: &mut dyn Write| {
                let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Long: ";
                for byte in head {
                    to.write_all(&[*byte])?;
                    to.flush()?;
                    thread::park_timeout(DRIP);
                }
                for_ever(to, |to| to.write_all(b"x"))
            }))
        }),
        ("headers", || {
            Reply::Raw(Box::new(|to: &mut dyn Write| {
                to.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")?;
                for_ever(to, |to| to.write_all(b"X-More: x\r\n"))
            }))
        }),
        ("body", || {
            Reply::Raw(Box::new(|to: &mut dyn Write| {
                to.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\"")?;
                for_ever(to, |to| to.write_all(b"x"))
            }))
        }),
        ("comments", || {
            Reply::Events(Box::new(|to: &mut dyn Write| {
                for_ever(to, |to| event(to, ": still here\n\n"))
            }))
        }),
    ];
    let peers: Vec<_> = slow
        .iter()
        .map(|(name, reply)| (*name, slow_to_call(*reply)))
        .collect();
    let entries: Vec<_> = peers
        .iter()
        .map(|(name, peer)| (*name, calm(&peer.url("/mcp"))))
        .collect();
    let scene = Scene::new(&entries);
    thread::scope(|scope| {
        for (name, _) in slow {
            let scene = &scene;
            scope.spawn(move || {
                let failed = scene.fails(name, "timeout", "call.timeout");
                let message = format!("server `{name}` did not answer within 2s");
                assert_eq!(failed.took(DEADLINE).message(), message);
            });
        }
    });
    for (name, _) in slow {
        assert_eq!(scene.gantry.status(name)["state"], "ready", "{name}");
    }
    scene.is_over(ROOM);
    drop(peers);
}

#[test]
fn over_sse_a_post_without_an_answer_and_comments_for_ever_end_at_the_deadline() {
    // faults H2, H7
    let posts = SsePeer::with(|seen| (seen.method() == "tools/call").then_some(Reply::Hang));
    let comments = SsePeer::with(|seen| match seen.method() {
        // Taken, and never answered.
        "tools/call" => Some(Reply::status(202)),
        _ => None,
    });
    let entries = [("posts", &posts), ("comments", &comments)].map(|(name, far)| {
        (
            name,
            with(calm(&far.peer.url("/sse")), &json!({"type": "sse"})),
        )
    });
    let scene = Scene::new(&entries);
    thread::scope(|scope| {
        for name in ["posts", "comments"] {
            let scene = &scene;
            scope.spawn(move || {
                let failed = scene.fails(name, "timeout", "call.timeout");
                let message = format!("server `{name}` did not answer within 2s");
                assert_eq!(failed.took(DEADLINE).message(), message);
            });
        }
        let over = eventually(LONG, || {
            comments.comment();
            thread::park_timeout(DRIP);
            let over = scene.gantry.audit_rows("server=comments&status=timeout");
            !over.is_empty()
        });
        assert!(over.is_some(), "comments keep a call alive");
    });
    scene.is_over(ROOM);
}

#[test]
fn what_is_slow_to_greet_is_given_up_at_the_deadline_of_the_handshake() {
    // faults H2, H7
    let silent = Peer::start(|_| Reply::Hang);
    let drips = Peer::start(|_: &Seen| {
        Reply::Raw(Box::new(|to: &mut dyn Write| {
            to.write_all(b"HTTP/1.1 200 OK\r\n")?;
            for_ever(to, |to| to.write_all(b"X-More: x\r\n"))
        }))
    });
    let placeless = Peer::start(|_: &Seen| {
        Reply::Events(Box::new(|to: &mut dyn Write| {
            for_ever(to, |to| event(to, ": no place yet\n\n"))
        }))
    });
    for (far, kind, path) in [
        (&silent, "http", "/mcp"),
        (&drips, "http", "/mcp"),
        (&silent, "sse", "/sse"),
        (&placeless, "sse", "/sse"),
    ] {
        let short = json!({"type": kind, "life": {"handshake": "3s", "probe": "300ms"}});
        let gantry = gateway(with(entry(&far.url(path)), &short)).start();
        // From when the gateway is up: its own start is not the server's time.
        let begun = Stopwatch::start();
        let status = gantry.wait_state(FAR, "failed", LONG);
        let took = begun.elapsed();
        assert!(took <= 6 * SECOND, "{kind}: {took:?}");
        let told = status["reason"].as_str().unwrap();
        // It says how long it was, to a tenth of a second, which a busy machine adds to.
        let waited = told.split_once("did not answer `initialize` within ");
        let waited = waited.map(|(_, waited)| period(waited));
        assert!(
            waited.is_some_and(|waited| (2 * SECOND..6 * SECOND).contains(&waited)),
            "{kind}: {told}"
        );
    }
}

/// A listener whose queue is full: who connects gets no answer at all.
struct Full {
    listener: TcpListener,
    waiting: Vec<TcpStream>,
}

impl Full {
    fn at(address: SocketAddr) -> Self {
        // Where another was, its listener may take a moment to go.
        let mut listener = None;
        eventually(5 * SECOND, || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        // The kernel takes one more than the queue is long; beyond that, it lets the knocks fall.
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, SECOND) {
            waiting.push(stream);
            assert!(waiting.len() < 100, "the queue is never full");
        }
        Self { listener, waiting }
    }
}

#[test]
fn a_place_that_takes_no_connection_is_given_up_after_five_seconds() {
    // fault H2
    let far = Peer::start(legacy);
    let address = far.address;
    let patient = json!({"calls": {"timeout": "20s", "timeout_max": "30s"},
        "life": {"handshake": "20s", "probe": "10s", "health_every": "60s"}});
    let scene = Scene::new(&[("far", with(entry(&far.url("/mcp")), &patient))]);
    drop(far);
    let full = Full::at(address);
    let failed = scene.fails("far", "error", "remote.timeout");
    let message = format!("http://{address} took no connection within 5s");
    assert!(
        failed.took(5 * SECOND).message().contains(&message),
        "{}",
        failed.error
    );
    drop((full.listener, full.waiting));
    // And so is one that has never been reached.
    let full = Full::at(held_port());
    let place = full.listener.local_addr().unwrap();
    let gantry = gateway(with(entry(&format!("http://{place}/mcp")), &patient)).start();
    let status = gantry.wait_state("far", "failed", LONG);
    let message = format!("http://{place} took no connection within 5s");
    assert!(
        status["reason"].as_str().unwrap().contains(&message),
        "{status:#}"
    );
    let error = super::echo(&gantry, "x").unwrap_err();
    assert_eq!(code(&error), "server.down", "{error}");
    scene.is_over(ROOM);
}
