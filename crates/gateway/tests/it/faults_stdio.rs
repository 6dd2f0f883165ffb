//! Faults S1 to S21: a stdio server that misbehaves, and a healthy neighbour beside it.
//!
//! The standard test is [`Rig::at_once`]: 20 calls on the evil server and 20 on the neighbour, all at
//! the same time. The neighbour's must succeed in its time whatever the other does. Each test
//! then asserts the answer, the deadline and the rows of the audit; when its [`Rig`] goes, what the
//! gateway holds is compared with what it held at the beginning: descriptors, memory, processes,
//! calls in flight.

mod envelope;
mod framing;
mod half_dead;
mod handshake;
mod identity;
mod listing;
mod loud;
mod silence;

use std::thread;
use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Builder, Gantry, LONG, modern, needs_root, scaled};

/// How many calls the standard test makes on each server.
const CALLS: usize = 20;
/// The deadline of most contracts.
const SECOND: Duration = Duration::from_secs(1);
/// What a neighbour's call may take, 20 of them at once on a busy machine: a gateway that waited for
/// the evil server would take as long as that does.
const NEIGHBOUR: Duration = Duration::from_secs(3);
/// The misbehaving server.
const EVIL: &str = "evil";
/// Its healthy neighbour.
const GOOD: &str = "good";

/// What the gateway may have needed at most beyond what it needed at the start, in KiB: a line as long
/// as one may be, and 8 MiB.
const ROOM: u64 = (8 + 8) << 10;
/// Descriptors that may come late and stay: a server's own that was not up yet, and the store's.
const LATE_FDS: usize = 12;

/// A gateway with evil servers and one good one.
struct Rig {
    gantry: Gantry,
    /// Descriptors, and the most memory so far in KiB, when all was ready.
    at_first: (usize, u64),
    /// What it may need beyond that, in KiB.
    room: u64,
}

/// What came of one call, and how long it took.
#[derive(Debug)]
struct Reply {
    number: usize,
    answer: Value,
    /// By the clock: what it took at least.
    took: Duration,
    /// Without the time in which the machine stood still: what it took at most.
    cost: Duration,
}

/// Returns the members of an entry whose waits are short, but not so short that a busy machine is
/// taken for a fault; `more` is put over them.
fn short(more: &Value) -> Value {
    let mut members = scaled();
    let patient = json!({
        "calls": {"timeout": "5s", "timeout_max": "10s"},
        "life": {"handshake": "10s", "probe": "5s", "health_every": "1m", "health_timeout": "10s"},
    });
    put_over(&mut members, &patient);
    put_over(&mut members, more);
    members
}

/// Members of an entry by which a server that ends stays down.
fn stays_down() -> Value {
    json!({"life": {"restart": {"at_once": 0, "window": "1m", "ladder": ["1m"], "reset_after": "10m"}}})
}

/// Members of an entry by which calls are given up after `time`.
fn gives_up_after(time: &str) -> Value {
    json!({"calls": {"timeout": time}})
}

fn put_over(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                put_over(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// Starts to describe a gateway with the good neighbour.
fn beside_good() -> Builder {
    Gantry::builder().server(GOOD, &Evilpeer::new().name(GOOD))
}

impl Rig {
    /// Starts a gateway with one evil server and waits until both are ready.
    fn new(evil: &Evilpeer, more: &Value) -> Self {
        let gantry = beside_good().server_with(EVIL, evil, &short(more)).start();
        gantry.wait_state(EVIL, "ready", LONG);
        Self::of(gantry)
    }

    /// Takes a gateway as it is, as soon as the neighbour is ready.
    fn of(gantry: Gantry) -> Self {
        needs_root();
        gantry.wait_state(GOOD, "ready", LONG);
        let pid = gantry.pid;
        let at_first = (procs::resting_fds(pid, SECOND), procs::peak_rss_kib(pid));
        Self {
            gantry,
            at_first,
            room: ROOM,
        }
    }

    /// Lets it need so many MiB more than at the start; whoever says so says why.
    fn with_room(self, mib: u64) -> Self {
        let mut rig = self;
        rig.room = mib << 10;
        rig
    }

    /// Starts a gateway with one evil server that need not become ready.
    fn cold(evil: &Evilpeer, more: &Value) -> Self {
        Self::of(beside_good().server_with(EVIL, evil, &short(more)).start())
    }

    /// Starts a gateway with one server per kind of fault, each named after its place in the table.
    fn table<T>(rows: &[T], peer: impl Fn(&T) -> Evilpeer, more: &Value) -> Self {
        let mut builder = beside_good();
        for (place, row) in rows.iter().enumerate() {
            builder = builder.server_with(&table_name(place), &peer(row), &short(more));
        }
        let gantry = builder.start();
        for place in 0..rows.len() {
            gantry.wait_state(&table_name(place), "ready", LONG);
        }
        Self::of(gantry)
    }

    /// The standard test: calls a tool of the evil server 20 times at once.
    fn at_once(&self, tool: &str, arguments: impl Fn(usize) -> Value + Sync) -> Vec<Reply> {
        self.at_once_on(EVIL, CALLS, tool, arguments)
    }

    /// The standard test on any server, with any number of calls.
    fn at_once_on(
        &self,
        server: &str,
        calls: usize,
        tool: &str,
        arguments: impl Fn(usize) -> Value + Sync,
    ) -> Vec<Reply> {
        self.beside_neighbour(|| self.burst(server, calls, tool, &arguments))
    }

    /// Makes calls at once, each on a connection of its own.
    fn burst(
        &self,
        server: &str,
        calls: usize,
        tool: &str,
        arguments: &(impl Fn(usize) -> Value + Sync),
    ) -> Vec<Reply> {
        let call = |number| self.call(server, tool, number, arguments(number));
        thread::scope(|scope| {
            let threads: Vec<_> = (0..calls)
                .map(|number| scope.spawn(move || call(number)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    }

    /// Makes one call and measures it.
    fn call(&self, server: &str, tool: &str, number: usize, arguments: Value) -> Reply {
        let mut connection = self.gantry.connect();
        let (begun, watch) = (Instant::now(), Stopwatch::start());
        let params = json!({"name": format!("{server}__{tool}"), "arguments": arguments});
        let answer = modern(
            &mut connection,
            &self.gantry.agent,
            "/mcp",
            "tools/call",
            params,
        );
        Reply {
            number,
            answer: answer.message(),
            took: begun.elapsed(),
            cost: watch.elapsed(),
        }
    }

    /// Does something while the neighbour is called 20 times at once, and asserts that it holds.
    fn beside_neighbour<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.rows(GOOD).len();
        let done = thread::scope(|scope| {
            let canary = |number: usize| json!({"text": format!("neighbour {number}")});
            let neighbour = scope.spawn(move || self.burst(GOOD, CALLS, "echo", &canary));
            let done = work();
            for reply in neighbour.join().unwrap() {
                assert_eq!(reply.text(), format!("neighbour {}", reply.number));
                assert!(
                    reply.cost <= NEIGHBOUR,
                    "the neighbour's call took {:?}",
                    reply.cost
                );
            }
            done
        });
        let rows = self.rows(GOOD);
        assert_eq!(rows.len() - before, CALLS);
        assert!(rows.iter().all(|row| row["status"] == "ok"), "{rows:#?}");
        done
    }

    fn rows(&self, server: &str) -> Vec<Value> {
        self.gantry.audit_rows(&format!("server={server}"))
    }

    /// Asserts that the audit has exactly these rows of a server: how many, status, code.
    fn audited(&self, server: &str, wanted: &[(usize, &str, Option<&str>)]) {
        let rows = self.rows(server);
        let total: usize = wanted.iter().map(|(count, ..)| count).sum();
        assert_eq!(rows.len(), total, "{rows:#?}");
        for (count, status, code) in wanted {
            let fits = |row: &&Value| row["status"] == *status && row["code"].as_str() == *code;
            assert_eq!(
                rows.iter().filter(fits).count(),
                *count,
                "{status} {code:?}: {rows:#?}"
            );
        }
    }

    /// Returns the id of the evil server's process.
    fn pid(&self) -> u32 {
        let status = self.gantry.status(EVIL);
        let pid = status["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        pid.unwrap_or_else(|| panic!("it has no process: {status:#}"))
    }

    /// Asserts that the evil server was never started again.
    fn never_restarted(&self) {
        let status = self.gantry.status(EVIL);
        assert_eq!(
            (&status["state"], &status["restart_count"]),
            (&json!("ready"), &json!(0))
        );
    }

    /// Returns how much memory the gateway has needed at most, in KiB.
    fn peak(&self) -> u64 {
        procs::peak_rss_kib(self.gantry.pid)
    }

    /// Asserts that the gateway holds no more than it did: what every fault's contract asks.
    fn holds_nothing(&self) {
        let pid = self.gantry.pid;
        let (fds, memory) = self.at_first;
        let more = self.peak().saturating_sub(memory);
        assert!(more <= self.room, "{more} KiB more of {}", self.room);
        let servers =
            || self.gantry.rest("GET", "/api/v1/mcp/servers", None).json()["items"].take();
        let count = servers().as_array().map_or(0, Vec::len);
        let idle = |server: &Value| {
            let status = self.gantry.status(server["name"].as_str().unwrap());
            status["queue"]["in_flight"] == 0 && status["queue"]["waiting"] == 0
        };
        let settled = eventually(LONG, || {
            procs::open_fds(pid) <= fds + LATE_FDS
                && procs::zombies_of(pid).is_empty()
                // Each server and its init.
                && procs::descendants_of(pid).len() <= 2 * count
                && servers().as_array().unwrap().iter().all(idle)
        });
        assert!(
            settled.is_some(),
            "{fds} descriptors at first, {} now; zombies {:?}; {count} servers with {:#?}",
            procs::open_fds(pid),
            procs::zombies_of(pid),
            procs::descendants_of(pid),
        );
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.holds_nothing();
            let log = self.gantry.stderr();
            assert!(
                !log.contains("panicked"),
                "no fault makes the gateway panic:\n{log}"
            );
        }
    }
}

impl Reply {
    /// Returns the text of a result; panics with the whole answer if there is none.
    fn text(&self) -> &str {
        let text = self
            .answer
            .pointer("/result/content/0/text")
            .and_then(Value::as_str);
        text.unwrap_or_else(|| panic!("call {} has no text: {:#}", self.number, self.answer))
    }

    /// Asserts an error: its JSON-RPC code, its message, the code in its data.
    fn fails(&self, code: i64, message: &str, name: &str) {
        let error = &self.answer["error"];
        assert_eq!(error["code"], code, "{:#}", self.answer);
        assert_eq!(error["message"], message);
        assert_eq!(error["data"]["code"], name);
        assert!(error["data"]["call"].is_string(), "{:#}", self.answer);
    }

    /// Asserts that the server broke the protocol in a way that is told with these words.
    fn breaks_protocol(&self, server: &str, words: &str) {
        let message = self.answer["error"]["message"].as_str().unwrap_or_default();
        let begins = format!("server `{server}` broke the protocol: ");
        assert!(
            message.starts_with(&begins) && message.contains(words),
            "{:#}",
            self.answer
        );
        self.fails(-31502, message, "server.protocol");
    }
}

fn table_name(place: usize) -> String {
    format!("evil-{place}")
}

/// Asserts that all replies came within a time, as far as the machine let anybody run.
fn all_within(replies: &[Reply], within: Duration) {
    for reply in replies {
        assert!(
            reply.cost <= within,
            "call {} took {:?}",
            reply.number,
            reply.cost
        );
    }
}

/// Asserts that every call got its own echo back.
fn all_echoed(replies: &[Reply]) {
    for reply in replies {
        assert_eq!(reply.text(), canary(reply.number));
    }
}

/// Returns what call `number` sends and must get back.
fn canary(number: usize) -> String {
    format!("canary {number}")
}

/// Returns the arguments of an echo of call `number`.
fn echo(number: usize) -> Value {
    json!({"text": canary(number), "nonce": format!("n{number}")})
}
