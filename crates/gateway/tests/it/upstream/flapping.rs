//! Servers that come and go, and calls that are made once more: how often a far server is reached for
//! and asked, counted by the far server itself. fault H13

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::peer::{Peer, Reply, event, legacy, modern};
use super::{FAR, SECOND, code, echo, entry, gateway, with};
use crate::harness::{Gantry, LONG};

/// How many callers come at the same moment.
const HERD: usize = 50;

#[test]
fn each_life_of_a_flapping_server_is_followed_by_a_longer_pause() {
    // It greets, lists, is ready, and gone as soon as somebody looks: no connection ever holds.
    let lives = Arc::new(Mutex::new(Vec::new()));
    let begun = Arc::clone(&lives);
    let far = Peer::start(move |seen| match seen.method() {
        "initialize" => {
            begun.lock().unwrap().push(Instant::now());
            legacy(seen)
        }
        "ping" => Reply::status(401),
        _ => legacy(seen),
    });
    let flaps = json!({"type": "http", "life": {"health_every": "50ms"},
        "reconnect": {"first": "100ms", "longest": "60s", "steady": "60s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &flaps)).start();
    eventually(LONG, || lives.lock().unwrap().len() >= 6).unwrap();
    let lives = lives.lock().unwrap().clone();
    // The bound of each pause is twice the last, and no pause is longer than its bound.
    let bounds = pauses(&gantry, lives.len() - 1);
    for (number, bound) in bounds.iter().enumerate() {
        let expected = Duration::from_millis(100 << number);
        assert_eq!(*bound, expected, "{bounds:?}");
    }
    for ((pair, bound), number) in lives.windows(2).zip(&bounds).zip(0..) {
        // Between two lives there is the first one, too, on a busy machine.
        let pause = pair[1] - pair[0];
        assert!(
            pause <= *bound + 5 * SECOND,
            "life {number}: {pause:?} of {bound:?}"
        );
    }
}

/// Waits until so many pauses were told, and returns the bound of each, the shortest first.
fn pauses(gantry: &Gantry, count: usize) -> Vec<Duration> {
    let path = format!("/api/v1/mcp/servers/{FAR}/events?limit=1000");
    let mut bounds = Vec::new();
    let told = eventually(LONG, || {
        let events = gantry.rest("GET", &path, None).json();
        let events = events["items"].as_array().unwrap();
        let details = events.iter().filter_map(|event| event["detail"].as_str());
        let told = details.filter_map(|detail| detail.split_once("reconnecting within "));
        bounds = told.map(|(_, bound)| period(bound)).collect();
        bounds.len() >= count
    });
    assert!(told.is_some(), "{bounds:?}");
    bounds.sort();
    bounds
}

/// Reads a period as it is shown, whatever follows it.
pub(super) fn period(text: &str) -> Duration {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().unwrap();
    match &text[digits.len()..] {
        unit if unit.starts_with("ms") => Duration::from_millis(number),
        unit if unit.starts_with('s') => Duration::from_secs(number),
        unit => panic!("`{unit}` in `{text}`"),
    }
}

/// Holds what the far server answers until the test lets go.
#[derive(Default)]
struct Gate {
    /// How often it was come to, and how many may pass.
    state: Mutex<(usize, usize)>,
    moved: Condvar,
}

impl Gate {
    /// Waits until the test lets this one pass.
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let number = state.0;
        let passed = self
            .moved
            .wait_timeout_while(state, LONG, |state| state.1 < number);
        drop(passed.unwrap());
    }

    fn come(&self) -> usize {
        self.state.lock().unwrap().0
    }

    fn let_pass(&self, most: usize) {
        self.state.lock().unwrap().1 = most;
        self.moved.notify_all();
    }
}

/// Has a herd of callers call at the same moment, and returns what they got and after how long.
fn stampede(gantry: &Gantry) -> Vec<(Result<String, Value>, Duration)> {
    let start = Barrier::new(HERD);
    std::thread::scope(|scope| {
        let call = || {
            start.wait();
            let begun = Instant::now();
            (echo(gantry, "x"), begun.elapsed())
        };
        let callers: Vec<_> = (0..HERD).map(|_| scope.spawn(call)).collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    })
}

/// Has a herd call while the probe of this number is held, which is one connection, and lets it go.
fn during_the_probe(gantry: &Gantry, far: &Peer, gate: &Gate, number: usize) {
    eventually(LONG, || gate.come() == number).unwrap();
    let herd = std::thread::scope(|scope| {
        let herd = scope.spawn(|| stampede(gantry));
        // Whoever does not wait for the probe is answered at once; the others have come by then.
        eventually(SECOND, || herd.is_finished());
        assert_eq!(far.forget().len(), 1, "probe {number}");
        gate.let_pass(number);
        herd.join().unwrap()
    });
    for (answer, took) in herd {
        assert!(took < LONG, "{took:?}");
        if let Err(error) = answer {
            assert_eq!(code(&error), "server.down", "{error}");
        }
    }
}

#[test]
fn many_callers_at_the_moment_of_the_probe_are_one_connection() {
    let gate = Arc::new(Gate::default());
    let (held, tries) = (Arc::clone(&gate), AtomicUsize::new(0));
    let far = Peer::start(move |seen| {
        if seen.method() != "server/discover" {
            return modern(seen);
        }
        // The first three fail at once; each later one is a probe, which the test holds.
        let number = tries.fetch_add(1, Ordering::SeqCst) + 1;
        if number > 3 {
            held.pass();
        }
        match number {
            1..=4 => Reply::Cut,
            _ => modern(seen),
        }
    });
    // Who waits for a probe waits for as long as it is held.
    let herd = json!({"type": "http", "calls": {"timeout": "15s", "timeout_max": "15s"},
        "life": {"handshake": "20s", "probe": "20s", "health_every": "60s"},
        "reconnect": {"first": "20ms", "longest": "50ms", "failures": 3, "away": "10s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &herd)).start();
    gantry.wait_status(FAR, LONG, |status| status["breaker"]["state"] == "open");
    assert_eq!(
        far.forget().len(),
        3,
        "three failed connects open the breaker"
    );
    for (answer, took) in stampede(&gantry) {
        assert_eq!(code(&answer.unwrap_err()), "server.down");
        assert!(took < 5 * SECOND, "{took:?}");
    }
    // The first probe fails, so that all wait for another; that one decides otherwise.
    during_the_probe(&gantry, &far, &gate, 1);
    during_the_probe(&gantry, &far, &gate, 2);
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    assert_eq!(gate.come(), 2);
}

#[test]
fn calls_that_are_made_again_are_a_fifth_more_and_no_more() {
    // Every call is cut off, so that every one would be made once more.
    for calls in [20, 100] {
        let far = Peer::start(|seen| match seen.method() {
            "tools/call" => Reply::Cut,
            _ => legacy(seen),
        });
        let repeated = json!({"tools": {"settings": {"echo": {"idempotent": true}}},
            "life": {"health_every": "60s"}});
        let gantry = gateway(with(entry(&far.url("/mcp")), &repeated)).start();
        gantry.wait_state(FAR, "ready", LONG);
        for _ in 0..calls {
            let error = echo(&gantry, "x").unwrap_err();
            assert_eq!(code(&error), "remote.cut", "{error}");
        }
        let asked = far.asked("tools/call").len();
        // A budget begins with one call more.
        assert!(asked <= calls + calls / 5 + 1, "{asked} for {calls}");
        assert!(asked >= calls + calls / 5, "{asked} for {calls}");
        assert_eq!(gantry.audit_rows("server=far").len(), calls);
        assert_eq!(gantry.status(FAR)["restart_count"], 0);
    }
}

#[test]
fn many_callers_at_once_have_one_budget() {
    let far = Peer::start(|seen| match seen.method() {
        "tools/call" => Reply::Events(Box::new(|to: &mut dyn Write| event(to, ": cut\n\n"))),
        _ => legacy(seen),
    });
    let repeated = json!({"tools": {"settings": {"echo": {"idempotent": true}}},
        "life": {"health_every": "60s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &repeated)).start();
    gantry.wait_state(FAR, "ready", LONG);
    for (answer, _) in stampede(&gantry) {
        assert_eq!(code(&answer.unwrap_err()), "remote.cut");
    }
    let asked = far.asked("tools/call").len();
    assert!((HERD + 1..=HERD + HERD / 5 + 1).contains(&asked), "{asked}");
}
