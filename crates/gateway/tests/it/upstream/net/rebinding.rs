//! Names that lead elsewhere from one moment to the next: what was judged is what is connected to,
//! and a name that leads to a public and a private place leads to the public one only. fault H4

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use gantry_testkit::wait::eventually;
use serde_json::json;

use super::super::peer::{Peer, Reply, Seen, legacy};
use super::super::{FAR, code, echo, entry, with};
use super::space::{PUBLIC, Space};
use crate::harness::{Gantry, LONG};

/// Where a peer listens on every address of the network.
const PORT: u16 = 7001;

/// Private addresses that names are led to.
const PRIVATE: [&str; 4] = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "fd00:ec2::254"];

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// Starts a server that would answer at any address, the private ones too.
fn everywhere(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Peer {
    Peer::again(SocketAddr::from(([0_u16; 8], PORT)), handler)
}

/// Has a connection serve nothing more after this answer.
fn closing(reply: Reply) -> Reply {
    let close = ("Connection", "close".to_owned());
    match reply {
        Reply::Json(body) => {
            let kind = ("Content-Type", "application/json".to_owned());
            Reply::Status(200, vec![kind, close], body.to_string())
        }
        Reply::Status(status, mut headers, body) => {
            headers.push(close);
            Reply::Status(status, headers, body)
        }
        reply @ (Reply::Events(_) | Reply::Raw(_) | Reply::Hang | Reply::Cut) => reply,
    }
}

/// Returns the addresses that a server was reached at.
fn reached(peer: &Peer) -> Vec<IpAddr> {
    peer.reached().into_iter().map(|(to, _)| to).collect()
}

/// Starts a gateway with one server at a name.
fn gateway(space: &Space, name: &str) -> Gantry {
    let calm = json!({"life": {"handshake": "10s", "probe": "5s", "health_every": "60s"},
        "reconnect": {"first": "20ms", "longest": "50ms", "failures": 50}});
    let entry = with(entry(&format!("http://{name}:{PORT}/mcp")), &calm);
    space.names_for(Gantry::builder().entry(FAR, entry)).start()
}

#[test]
fn a_name_that_alternates_is_followed_to_its_public_side_only() {
    // fault H4
    for private in PRIVATE {
        let space = Space::enter(move |asked| match asked.before % 2 {
            0 => vec![ip(PUBLIC)],
            _ => vec![ip(private)],
        });
        // Each connection serves one request, so that each request asks for the name anew.
        let far = everywhere(|seen| closing(legacy(seen)));
        let gantry = gateway(&space, "flip.example");
        let status = gantry.wait_status(FAR, LONG, |status| {
            let reason = status["reason"].as_str().unwrap_or_default();
            reason.contains("private address")
        });
        let told = format!("private address `{}`", ip(private));
        assert!(
            status["reason"].as_str().unwrap().contains(&told),
            "{status}"
        );
        for _ in 0..10 {
            // Whatever becomes of it, it does not go where the name leads next.
            drop(echo(&gantry, "x"));
        }
        // It goes on being tried, and is found at its public side in between.
        let found = || !reached(&far).is_empty() && space.asked("flip.example") > 4;
        eventually(LONG, found).unwrap();
        let reached = reached(&far);
        assert!(
            reached.iter().all(|to| *to == ip(PUBLIC)),
            "{private}: {reached:?}"
        );
    }
}

#[test]
fn a_connection_stays_where_it_was_judged_to_lead() {
    // fault H4: once public, private ever after
    for private in PRIVATE {
        let moved = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&moved);
        let space = Space::enter(move |_| match now.load(Ordering::SeqCst) {
            false => vec![ip(PUBLIC)],
            true => vec![ip(private)],
        });
        let both = Barrier::new(2);
        let far = everywhere(move |seen| {
            if seen.body["params"]["arguments"]["text"] == "both" {
                both.wait();
            }
            legacy(seen)
        });
        let gantry = gateway(&space, "once.example");
        gantry.wait_state(FAR, "ready", LONG);
        // Two connections are kept, so that one lies idle while the other is on its way back.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| assert_eq!(echo(&gantry, "both"), Ok("both".to_owned())));
            }
        });
        assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
        moved.store(true, Ordering::SeqCst);
        let asked = space.asked("once.example");
        for _ in 0..5 {
            assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()), "{private}");
        }
        assert_eq!(space.asked("once.example"), asked, "the connection is kept");
        // The next connection is judged anew.
        far.cut();
        let error = echo(&gantry, "x").unwrap_err();
        let found = code(&error);
        assert!(
            matches!(found, "remote.address" | "remote.cut" | "server.down"),
            "{error}"
        );
        let status = gantry.wait_status(FAR, LONG, |status| {
            let reason = status["reason"].as_str().unwrap_or_default();
            reason.contains("private address")
        });
        assert_eq!(status["state"], "disconnected");
        let reached = reached(&far);
        assert!(
            reached.iter().all(|to| *to == ip(PUBLIC)),
            "{private}: {reached:?}"
        );
    }
}

#[test]
fn of_several_addresses_only_the_public_ones_are_tried() {
    // fault H4
    for private in PRIVATE {
        for public_first in [true, false] {
            let space = Space::enter(move |_| match public_first {
                true => vec![ip(PUBLIC), ip(private)],
                false => vec![ip(private), ip(PUBLIC)],
            });
            let far = everywhere(legacy);
            let gantry = gateway(&space, "both.example");
            gantry.wait_state(FAR, "ready", LONG);
            assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
            let reached_at = reached(&far);
            assert!(
                reached_at.iter().all(|to| *to == ip(PUBLIC)),
                "{private}: {reached_at:?}"
            );
            drop((gantry, far));
            // Nobody listens at the public one: the other is no way out.
            let trap = Peer::again(SocketAddr::new(ip(private), PORT), legacy);
            let gantry = gateway(&space, "both.example");
            let status = gantry.wait_state(FAR, "failed", LONG);
            let reason = status["reason"].as_str().unwrap();
            assert!(reason.contains("refused the connection"), "{reason}");
            assert!(reached(&trap).is_empty(), "{private}");
        }
    }
}
