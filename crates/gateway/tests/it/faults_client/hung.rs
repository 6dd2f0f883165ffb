//! More calls than a server that answers none of them can ever take.

use std::thread;
use std::time::Duration;

use gantry_testkit::wait::Stopwatch;
use gantry_testkit::{Evilpeer, proof};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::holdings::LATE_FDS;
use super::{Posted, Rig, SECOND};
use crate::harness::{Answer, LONG};

/// Calls that have a lane.
const LANES: usize = 32;
/// Calls that may wait for one.
const QUEUE: usize = 256;
/// Clients that make those which are too many.
const CLIENTS: usize = 8;

/// Asserts that a call was refused because too many wait.
fn is_busy(answer: &Answer) {
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, Some("1")),
        "{}",
        answer.text()
    );
    let error = answer.message()["error"].take();
    assert_eq!(
        error["message"],
        "server `far` is busy: 256 calls wait already"
    );
    let code = error["code"].as_i64().unwrap();
    assert!(!(-32768..=-32000).contains(&code), "{code} is reserved");
    assert_eq!(code, -31429);
    let data = &error["data"];
    assert_eq!(
        (&data["code"], &data["retry_after_ms"]),
        (&json!("server.busy"), &json!(1000))
    );
}

// fault A5
#[test]
fn thousands_of_calls_at_a_hung_server_are_all_answered_in_time() {
    // How many in all, and when a call is given up: long after the last of those that are too many was
    // refused.
    let (calls, timeout) = proof::count((10_000, "45s"), (2_000, "15s"));
    let limit = Duration::from_secs(timeout.trim_end_matches('s').parse().unwrap());
    let members = json!({"calls": {"timeout": timeout, "timeout_max": timeout}, "life": {"health_every": "10m"}});
    // What is asserted below, and the answers of all those that waited.
    let rig = Rig::new(&Evilpeer::new(), &members).with_room(64);
    let (fds, before) = (rig.quiet_fds(), rig.memory());
    let begun = Instant::now();
    let hang = |number: usize| json!({"ms": 600_000, "nonce": format!("n{number}")});
    let taken: Vec<_> = (0..LANES + QUEUE)
        .map(|number| {
            (
                rig.call("slow", hang(number)).open(&rig.gantry),
                Stopwatch::start(),
            )
        })
        .collect();
    rig.wait_queue(LANES, QUEUE, limit / 2);
    // From here on every call is one too many, in whichever generation, and is told so at once.
    let overflow = |client: usize| {
        let mut connection = rig.gantry.connect();
        for number in (LANES + QUEUE..calls).skip(client).step_by(CLIENTS) {
            let asked = Stopwatch::start();
            let params = json!({"name": "far__slow", "arguments": hang(number)});
            let call = match number % 2 {
                0 => Posted::stateless(&rig.gantry.agent, "tools/call", params),
                _ => {
                    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
                    Posted::new(&rig.gantry.agent, "/mcp", &call)
                }
            };
            call.write(&mut connection);
            is_busy(&connection.answer().unwrap());
            assert!(asked.elapsed() <= SECOND, "{:?}", asked.elapsed());
        }
    };
    thread::scope(|scope| {
        let overflow = &overflow;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || overflow(client)))
            .collect();
        for client in clients {
            client.join().unwrap();
        }
    });
    let body = json!({"name": "far__slow", "arguments": hang(calls)});
    let answer = rig
        .gantry
        .rest_as(&rig.gantry.agent, "POST", "/api/v1/tools/call", Some(&body));
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, Some("1"))
    );
    assert_eq!(answer.json()["code"], "server.busy");
    rig.wait_queue(LANES, QUEUE, SECOND);
    let grown = rig.memory().saturating_sub(before);
    assert!(grown <= 32 << 10, "{calls} calls took {grown} KiB");
    rig.neighbour_holds();

    for (mut connection, sent) in taken {
        let answer: Value = connection.answer().unwrap().message();
        assert!(
            sent.elapsed() <= limit + SECOND,
            "answered after {:?}",
            sent.elapsed()
        );
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["data"]["code"]),
            (&json!(-31504), &json!("call.timeout"))
        );
        assert_eq!(
            error["message"],
            format!("server `far` did not answer within {timeout}")
        );
    }
    rig.wait_queue(0, 0, SECOND);
    rig.wait_fds(fds + LATE_FDS, LONG);
    let seen = rig.journal();
    let number = |nonce: &str| nonce[1..].parse::<usize>().unwrap();
    let sent = seen.nonces().into_iter().map(number).max();
    assert!(sent < Some(LANES + QUEUE), "the overflow was never sent");
    rig.far_is_well();
    let rows = rig.rows();
    let count = |status: &str, code: Option<&str>| -> u64 {
        let fits = |row: &&Value| row["status"] == status && row["code"].as_str() == code;
        let repeats = |row: &Value| row["repeats"].as_u64().unwrap();
        rows.iter().filter(fits).map(repeats).sum()
    };
    let refused = (calls + 1 - LANES - QUEUE) as u64;
    assert_eq!(
        count("timeout", Some("call.timeout")),
        (LANES + QUEUE) as u64
    );
    assert_eq!(count("refused", Some("server.busy")), refused);
    assert_eq!(count("ok", None), 1);
    // A flood of refusals is counted into few rows: twenty a second, and one for the others.
    let few = 25 * (begun.elapsed().as_secs() as usize + 1);
    assert!(
        (LANES + QUEUE + 2..LANES + QUEUE + few).contains(&rows.len()),
        "{} rows, {few} of refusals at most",
        rows.len()
    );
}
