//! Fault P10: orders that cross each other. One owner per server, never two processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gantry_testkit::procs::{self, Process};
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, proof};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Held, SECOND, own_marker, tidy};
use crate::harness::{Connection, Gantry, LONG};

const NAMES: [&str; 3] = ["a", "b", "c"];
const THREADS: usize = 5;

/// One person at the API, giving orders at random.
struct Person<'a> {
    gantry: &'a Gantry,
    connection: Connection,
    marker: &'a str,
    random: u64,
}

impl Person<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// Gives one order and returns what it was and what came of it.
    fn order(&mut self) -> (&'static str, u16) {
        let name = NAMES[usize::try_from(self.below(NAMES.len() as u64)).unwrap()];
        let server = format!("/api/v1/mcp/servers/{name}");
        match self.below(10) {
            0..=2 => {
                let argv = Evilpeer::new().name(&marker_of(self.marker, name)).argv();
                let start = if self.below(3) == 0 { "lazy" } else { "eager" };
                let body = json!({
                    "name": name, "command": argv[0], "args": argv[1..], "profile": "local",
                    "start": start, "stop_grace": "1s",
                });
                ("register", self.ask("POST", "/api/v1/mcp/servers", &body))
            }
            3 | 4 => ("delete", self.ask("DELETE", &server, &Value::Null)),
            5..=7 => (
                "restart",
                self.ask("POST", &format!("{server}/restart"), &Value::Null),
            ),
            8 => {
                let call = json!({"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}});
                ("call", self.ask("POST", &format!("{server}/call"), &call))
            }
            _ => ("status", self.ask("GET", &server, &Value::Null)),
        }
    }

    fn ask(&mut self, method: &str, path: &str, body: &Value) -> u16 {
        let bearer = format!("Bearer {}", self.gantry.admin);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let watch = Stopwatch::start();
        let answer = self
            .connection
            .request(method, path, &headers, body.as_bytes())
            .unwrap();
        assert!(
            watch.elapsed() <= 10 * SECOND,
            "{method} {path} took {:?}",
            watch.elapsed()
        );
        if answer.status >= 500 && !path.ends_with("/call") {
            panic!("{method} {path}: {} {}", answer.status, answer.text());
        }
        answer.status
    }
}

fn marker_of(marker: &str, name: &str) -> String {
    format!("{marker}-{name}.")
}

/// Returns two processes of one server that live at the same time, if there are.
fn twins(marker: &str) -> Option<Vec<Process>> {
    let seen = procs::with_marker(marker);
    let lives = |process: &Process| {
        procs::look(process.pid)
            .is_some_and(|now| now.command == process.command && !matches!(now.state, 'Z' | 'X'))
    };
    // Those seen first may have gone while the others were looked for.
    let living: Vec<Process> = seen.into_iter().filter(|process| lives(process)).collect();
    (living.len() > 1 && living.iter().all(lives)).then_some(living)
}

/// Looks at every server again and again, and returns how often; panics if one runs twice.
fn watch(marker: &str, end: &AtomicBool) -> usize {
    let mut looks = 0;
    while !end.load(Ordering::Relaxed) {
        for name in NAMES {
            if let Some(twins) = twins(&marker_of(marker, name)) {
                panic!("server `{name}` runs twice: {twins:#?}");
            }
        }
        looks += 1;
    }
    looks
}

/// What may come of an order.
fn documented(order: &str) -> &'static [u16] {
    match order {
        "register" => &[201, 409],
        "delete" => &[204, 404],
        "restart" => &[200, 404],
        "status" => &[200, 404],
        // A call may meet a server that is coming, going or gone.
        _ => &[200, 404, 502, 503],
    }
}

// fault P10
#[test]
fn requests_that_cross_each_other_never_make_two_processes() {
    // Ten thousand in all, in the profile `proof`.
    let each = proof::count(2_000, 150);
    let marker = own_marker("p10");
    let gantry = Gantry::start(&[]);
    let fds = Held::of(&gantry).fds;
    let end = AtomicBool::new(false);
    let begun = Instant::now();
    let (orders, looks) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&marker, &end));
        let people: Vec<_> = (1..=THREADS)
            .map(|number| {
                let random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number as u64);
                let (gantry, marker) = (&gantry, marker.as_str());
                let connection = gantry.connect();
                let mut person = Person {
                    gantry,
                    connection,
                    marker,
                    random,
                };
                scope.spawn(move || (0..each).map(|_| person.order()).collect::<Vec<_>>())
            })
            .collect();
        let orders: Vec<_> = people.into_iter().map(|person| person.join()).collect();
        end.store(true, Ordering::Relaxed);
        let looks = watcher.join().unwrap();
        (
            orders
                .into_iter()
                .flat_map(Result::unwrap)
                .collect::<Vec<_>>(),
            looks,
        )
    });
    let mut tally: BTreeMap<(&str, u16), usize> = BTreeMap::new();
    for order in &orders {
        *tally.entry(*order).or_default() += 1;
    }
    eprintln!(
        "{} orders in {:?}, {looks} looks: {tally:?}",
        orders.len(),
        begun.elapsed()
    );
    assert!(looks > 20, "{looks}");
    for (order, status) in tally.keys() {
        assert!(
            documented(order).contains(status),
            "{order} was answered {status}: {tally:?}"
        );
    }
    // Whatever happened, every server obeys now.
    for name in NAMES {
        let path = format!("/api/v1/mcp/servers/{name}");
        gantry.rest("DELETE", &path, None);
        assert_eq!(gantry.rest("GET", &path, None).status, 404);
        assert_eq!(
            procs::with_marker(&marker_of(&marker, name)),
            [],
            "gone when the answer says so"
        );
        let argv = Evilpeer::new().name(&marker_of(&marker, name)).argv();
        let body = json!({"name": name, "command": argv[0], "args": argv[1..], "profile": "local", "start": "eager"});
        assert_eq!(
            gantry
                .rest("POST", "/api/v1/mcp/servers", Some(&body))
                .status,
            201
        );
        let status = gantry.wait_state(name, "ready", LONG);
        assert_eq!(status["restart_count"], 0);
        assert_eq!(procs::with_marker(&marker_of(&marker, name)).len(), 1);
        gantry.rest("DELETE", &path, None);
    }
    // Every call has one row, in the words of its answer; of a server that is not there none, unless
    // it went while the call was on its way.
    let answered = |status: u16| tally.get(&("call", status)).copied().unwrap_or(0);
    let rows = gantry.audit_rows("tool=echo");
    let count = |status: &str, code: Option<&str>| {
        let fits = |row: &&Value| row["status"] == status && row["code"].as_str() == code;
        rows.iter().filter(fits).count()
    };
    let counted = [
        (count("ok", None), answered(200)),
        (count("error", Some("server.exited")), answered(502)),
        (count("error", Some("server.down")), answered(503)),
    ];
    assert!(
        counted.iter().all(|(rows, answers)| rows == answers),
        "{counted:?} {tally:?}"
    );
    let recorded: usize = counted.iter().map(|(rows, _)| rows).sum();
    assert!(rows.len() - recorded <= answered(404), "{rows:#?}");
    let settled = eventually(5 * SECOND, || procs::open_fds(gantry.pid) <= fds + 5);
    assert!(
        settled.is_some(),
        "{fds} descriptors before, {} now",
        procs::open_fds(gantry.pid)
    );
    tidy(&gantry);
}
