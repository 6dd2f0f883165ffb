//! Many connections at once, and connections on which nothing comes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::time::Instant;

use super::{Posted, Rig, SECOND};
use crate::harness::{Connection, LONG};

/// How many connections there may be in all.
const SEATS: usize = 10_240;
/// How many of them one address may have.
const OF_ONE: usize = SEATS / 2;
/// How many are left for addresses that have few.
const RESERVE: usize = SEATS / 8;
/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(10);
/// How much later ten thousand of them are all gone on a busy machine.
const LATE: Duration = Duration::from_secs(5);

/// Lets this process open as many files as it may.
fn raise_own_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// Sends a head without end, one byte a second, and returns how long after `begun`, which is when it
/// was about to connect, the connection was closed.
fn drip(mut socket: TcpStream, begun: Instant) -> Duration {
    socket
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        .unwrap();
    socket.set_read_timeout(Some(SECOND)).unwrap();
    let mut nothing = [0; 16];
    while begun.elapsed() < 2 * HEAD {
        match socket.read(&mut nothing) {
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Ok(_) | Err(_) => {}
        }
        if socket.write_all(b"x").is_err() {
            break;
        }
    }
    begun.elapsed()
}

/// Connects from one of the many addresses of the loopback device.
fn connect_from(from: Ipv4Addr, to: SocketAddrV4) -> TcpStream {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
    net::connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

/// Asserts that a connection is told at once that it is one too many.
fn is_turned_away(mut extra: TcpStream) {
    let begun = Stopwatch::start();
    extra.set_read_timeout(Some(LONG)).unwrap();
    let mut told = String::new();
    extra.read_to_string(&mut told).unwrap();
    assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    let wanted = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n";
    assert!(told.starts_with(wanted), "{told}");
}

fn is_alive(connection: &mut Connection) {
    let answer = connection.request("GET", "/healthz", &[], b"").unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok\n"));
}

// fault A2: this test waits for the real deadline of 10 s.
#[test]
fn ten_thousand_silent_connections_are_bounded_and_gone_after_ten_seconds() {
    raise_own_limit();
    // What ten thousand may take, and what it takes to end them.
    let rig = Rig::new(&Evilpeer::new(), &json!({})).with_room(160);
    let pid = rig.gantry.pid;
    let (fds, before) = (rig.quiet_fds(), rig.memory());
    // One client was there before all others.
    let mut known = rig.gantry.connect();
    is_alive(&mut known);
    let begun = Instant::now();
    let dripping = rig.gantry.connect().socket().try_clone().unwrap();
    let dripping = thread::spawn(move || drip(dripping, begun));
    let authority: SocketAddrV4 = rig.gantry.authority.parse().unwrap();
    let mut crowd: Vec<TcpStream> = Vec::with_capacity(SEATS);
    let fill = |crowd: &mut Vec<TcpStream>, from: Ipv4Addr, upto: usize| {
        while crowd.len() < upto {
            let batch = 512.min(upto - crowd.len());
            crowd.extend((0..batch).map(|_| connect_from(from, authority)));
            let seated = fds + crowd.len() + 2;
            assert!(eventually(LONG, || procs::open_fds(pid) >= seated).is_some());
        }
    };
    // One address takes its half, and is told so when it wants more.
    fill(&mut crowd, Ipv4Addr::LOCALHOST, OF_ONE - 2);
    is_turned_away(connect_from(Ipv4Addr::LOCALHOST, authority));
    // Another takes of the other half what is not for those who have few.
    fill(&mut crowd, Ipv4Addr::new(127, 0, 0, 2), SEATS - RESERVE - 2);
    let grown = rig.memory().saturating_sub(before);
    assert!(
        grown <= 128 << 10,
        "{} connections took {grown} KiB",
        crowd.len()
    );
    let mut late = connect_from(Ipv4Addr::new(127, 0, 0, 3), authority);
    // Two addresses keep nobody out.
    let asks = format!("GET /healthz HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    late.write_all(asks.as_bytes()).unwrap();
    late.set_read_timeout(Some(LONG)).unwrap();
    let mut told = [0; 12];
    late.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 200");
    drop(late);
    // Those who are there notice nothing.
    is_alive(&mut known);
    rig.call("echo", json!({"text": "mine"})).write(&mut known);
    assert_eq!(
        known.answer().unwrap().message()["result"]["content"][0]["text"],
        "mine"
    );

    rig.wait_fds(fds + 1, HEAD + LATE);
    let dripped = dripping.join().unwrap();
    assert!(dripped >= HEAD && dripped <= HEAD + LATE, "{dripped:?}");
    for mut gone in crowd.into_iter().step_by(1000) {
        gone.set_read_timeout(Some(SECOND)).unwrap();
        assert_eq!(gone.read(&mut [0; 16]).unwrap(), 0, "closed without a word");
    }
    // Who speaks now and then stays.
    is_alive(&mut known);
    rig.neighbour_holds();
    rig.audited(&[(1, "ok", None)]);
}

// fault A2
#[test]
fn streams_of_one_key_are_bounded_and_their_places_come_back() {
    const STREAMS: usize = 64;
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let fds = rig.quiet_fds();
    let wish = json!({"notifications": {"toolsListChanged": true}});
    let listen = || Posted::stateless(&rig.gantry.agent, "subscriptions/listen", wish.clone());
    let open = || {
        let mut stream = listen().open(&rig.gantry);
        let head = stream.head().unwrap();
        (head.status, stream)
    };
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let (status, stream) = open();
        assert_eq!(status, 200);
        streams.push(stream);
    }
    let refused = listen().send(&rig.gantry);
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("1"))
    );
    let error = refused.message()["error"].take();
    assert_eq!(
        (&error["code"], &error["data"]["code"]),
        (&json!(-31429), &json!("listen.too_many"))
    );
    rig.neighbour_holds();
    // Another key has places of its own.
    let body = json!({"kind": "agent", "agent": "default"});
    let other = rig.gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let mut theirs = Posted::stateless(
        other["key"].as_str().unwrap(),
        "subscriptions/listen",
        wish.clone(),
    )
    .open(&rig.gantry);
    assert_eq!(theirs.head().unwrap().status, 200);
    drop((streams, theirs));
    rig.wait_fds(fds, SECOND);
    assert_eq!(open().0, 200);
    rig.nothing_happened();
}
