//! Calls of 200 clients that all use the id 1, answered late, twice and in any order: each answer
//! reaches its own call. And fault S9's run of answers that are nearly all to nobody. In the profile
//! `proof` these are 200,000 calls and ten million answers.

use std::collections::BTreeMap;
use std::thread;

use gantry_testkit::{Evilpeer, procs, proof};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Random;
use super::client::{Client, Fate};
use crate::harness::{Gantry, LONG};

const CLIENTS: usize = 200;

/// The server whose answers straddle its timeout.
const TARDY: &str = "tardy";
const SERVERS: [&str; 4] = ["shuffled", "repeated", "both", TARDY];

/// What came of one client's calls.
#[derive(Default)]
struct Tally {
    /// By server: answered, given up.
    by_server: BTreeMap<&'static str, (usize, usize)>,
}

/// Makes one client's calls; panics on the first answer that is not its own.
fn client(gantry: &Gantry, number: usize, calls: usize) -> Tally {
    let mut client = Client::new(gantry);
    let mut random = Random::new(number as u64 + 1);
    let mut tally = Tally::default();
    for count in 0..calls {
        // A twentieth of the calls go to the server that is slow on purpose.
        let server = match random.below(20) {
            0 => TARDY,
            other => SERVERS[other % 3],
        };
        let canary = format!("client {number} call {count}");
        let arguments = match server {
            TARDY => format!(r#"{{"text":"{canary}","delay_ms":{}}}"#, random.below(440)),
            _ => format!(r#"{{"text":"{canary}"}}"#),
        };
        let (answered, given_up) = tally.by_server.entry(server).or_default();
        match client.call(&format!("{server}__echo"), &arguments) {
            Fate::Result(text) => {
                assert_eq!(
                    text, canary,
                    "an answer of `{server}` reached the wrong call"
                );
                *answered += 1;
            }
            Fate::Failed { code, .. } if server == TARDY => {
                assert_eq!(code, "call.timeout");
                *given_up += 1;
            }
            other @ (Fate::Cut | Fate::Failed { .. }) => {
                panic!("`{canary}` on `{server}`: {other:?}")
            }
        }
    }
    tally
}

/// Answers to ids that were never asked, before each call's own; they carry its text, so that one
/// which reached another call would be seen.
const STRAYS: usize = 500;
/// Clients of the run with strays.
const STRAY_CLIENTS: usize = 40;

// fault S9
#[test]
fn millions_of_answers_to_nobody_reach_nobody() {
    let calls_each = proof::count(500, 50);
    let servers = ["ghosts", "more-ghosts"];
    let members = json!({"concurrency": 64, "calls": {"queue": 512, "timeout": "120s"}});
    let mut builder = Gantry::builder();
    for (seed, server) in (1..).zip(servers) {
        // Written in large pieces: what is measured is the reader.
        let peer = Evilpeer::new()
            .fault(&format!("unknown-id={STRAYS}"))
            .fault("twice")
            .fault("burst=1000")
            .seed(seed);
        builder = builder.server_with(server, &peer, &members);
    }
    let gantry = builder.start();
    for server in servers {
        gantry.wait_state(server, "ready", LONG);
    }
    let memory = procs::rss_kib(gantry.pid);
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..STRAY_CLIENTS {
            let gantry = &gantry;
            scope.spawn(move || {
                let mut client = Client::new(gantry);
                let tool = format!("{}__echo", servers[number % servers.len()]);
                for count in 0..calls_each {
                    let canary = format!("client {number} call {count}");
                    let fate = client.call(&tool, &format!(r#"{{"text":"{canary}"}}"#));
                    assert_eq!(
                        fate,
                        Fate::Result(canary),
                        "an answer reached the wrong call"
                    );
                }
            });
        }
    });
    let calls = STRAY_CLIENTS * calls_each;
    let answers = calls * (STRAYS + 2);
    eprintln!(
        "{answers} answers to {calls} calls in {:?}",
        begun.elapsed()
    );
    assert!(answers >= proof::count(10_000_000, 1_000_000));
    // Each of them was counted, and none was kept.
    let each = (calls / servers.len()) as u64;
    for server in servers {
        let dropped = each * (STRAYS as u64 + 1);
        let counted = |status: &Value| status["late_replies"].as_u64() == Some(dropped);
        let status = gantry.wait_status(server, LONG, counted);
        assert_eq!(
            (&status["restart_count"], &status["queue"]["in_flight"]),
            (&json!(0), &json!(0))
        );
        assert_eq!(count(&gantry, &format!("server={server}&status=ok")), each);
    }
    assert_eq!(count(&gantry, ""), calls as u64);
    let grown = procs::rss_kib(gantry.pid).saturating_sub(memory);
    assert!(grown <= 32 << 10, "{grown} KiB more");
}

fn count(gantry: &Gantry, query: &str) -> u64 {
    let page = gantry
        .rest(
            "GET",
            &format!("/api/v1/calls?limit=1&count=true&{query}"),
            None,
        )
        .json();
    page["total"].as_u64().unwrap_or_else(|| panic!("{page:#}"))
}

// fault S9, fault S10
#[test]
fn no_answer_reaches_the_wrong_call() {
    let calls_each = proof::count(1000, 100);
    let many = json!({"concurrency": 256, "calls": {"queue": 512, "timeout": "60s"}});
    let tardy = json!({
        "concurrency": 256,
        "calls": {"queue": 512, "timeout": "400ms"},
        "life": {"when_unresponsive": "keep"},
    });
    let peer = |fault: &str, seed: u64| Evilpeer::new().fault(fault).seed(seed);
    let gantry = Gantry::builder()
        .server_with("shuffled", &peer("shuffle=64", 1), &many)
        .server_with("repeated", &peer("twice", 2), &many)
        .server_with("both", &peer("shuffle=32", 3).fault("twice"), &many)
        .server_with(TARDY, &peer("late=40", 4), &tardy)
        .start();
    for server in SERVERS {
        gantry.wait_state(server, "ready", LONG);
    }
    let begun = Instant::now();
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let gantry = &gantry;
        let clients =
            (0..CLIENTS).map(|number| scope.spawn(move || client(gantry, number, calls_each)));
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    });
    let took = begun.elapsed();
    let mut sums: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (server, (answered, given_up)) in tallies.iter().flat_map(|tally| &tally.by_server) {
        let sum = sums.entry(server).or_default();
        (sum.0, sum.1) = (sum.0 + answered, sum.1 + given_up);
    }
    eprintln!("{} calls in {took:?}: {sums:?}", CLIENTS * calls_each);
    let total: usize = sums
        .values()
        .map(|(answered, given_up)| answered + given_up)
        .sum();
    assert_eq!(total, CLIENTS * calls_each);
    let (in_time, late) = sums[TARDY];
    assert!(
        in_time > 100 && late > 100,
        "the proof needs both: {sums:?}"
    );
    // Every answer too many was seen and dropped; the last ones come after those they repeat.
    for server in ["repeated", "both"] {
        let each = sums[server].0 as u64;
        gantry.wait_status(server, LONG, |now| now["late_replies"] == each);
    }
    assert_eq!(gantry.status("shuffled")["late_replies"], 0);
    // Of those given up, the server answers what it was not told of in time.
    let some_late = |status: &Value| status["late_replies"].as_u64() > Some(100);
    let status = gantry.wait_status(TARDY, LONG, some_late);
    assert!(
        status["late_replies"].as_u64() <= Some(late as u64),
        "{status:#}"
    );
    for server in SERVERS {
        let status = gantry.status(server);
        assert_eq!(
            (&status["restart_count"], &status["queue"]["in_flight"]),
            (&json!(0), &json!(0))
        );
        let (answered, given_up) = sums[server];
        let rows = |status: &str| count(&gantry, &format!("server={server}&status={status}"));
        assert_eq!(
            (rows("ok"), rows("timeout")),
            (answered as u64, given_up as u64),
            "{server}"
        );
    }
    assert_eq!(count(&gantry, ""), (CLIENTS * calls_each) as u64);
}
