//! Calls, each with a nonce, while children and the gateway are killed: 50,000 calls and 20 kills of
//! the gateway in the profile `proof`, fewer otherwise.
//!
//! Three records are compared at the end: the clients' own, the servers' own, and the audit's rows.
//! Answered ⊆ rows with the same end, executed ⊆ rows, rows ⊆ sent, and nothing twice.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::proof::count;
use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, procs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::client::{Client, Fate};
use super::{Random, own_marker};
use crate::harness::{Builder, Connection, Gantry, LONG};

const CLIENTS: usize = 8;
pub(super) const SERVERS: [&str; 4] = ["a", "b", "c", "d"];

/// How many calls are made, and how often the gateway is killed meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) calls: usize,
    pub(super) kills: usize,
}

/// What one client sent, in order.
pub(super) type Sent = Vec<(String, Fate)>;

/// One row of the audit, as far as it is compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) code: Option<String>,
}

/// The servers' own records, one file each.
pub(super) struct FarEnd {
    folder: TempDir,
    pub(super) marker: String,
}

impl FarEnd {
    pub(super) fn new(what: &str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            marker: own_marker(what),
        }
    }

    fn journal(&self, server: &str) -> PathBuf {
        self.folder.path().join(server)
    }

    /// Adds the servers, which come back at once however often they are killed.
    pub(super) fn servers(&self, mut builder: Builder, names: &[&str]) -> Builder {
        let restart =
            json!({"at_once": 100, "window": "1s", "ladder": ["1ms"], "reset_after": "1s"});
        let members = json!({"life": {"restart": restart}});
        for name in names {
            let peer = Evilpeer::new()
                .name(&self.marker)
                .journal(&self.journal(name));
            builder = builder.server_with(name, &peer, &members);
        }
        builder
    }

    /// Returns the nonces of all executed calls; panics if one was executed twice.
    pub(super) fn executed(&self, names: &[&str]) -> HashSet<String> {
        let mut executed = HashSet::new();
        for name in names {
            for nonce in Journal::read(&self.journal(name)).unwrap().nonces() {
                assert!(
                    executed.insert(nonce.to_owned()),
                    "`{nonce}` was executed twice"
                );
            }
        }
        executed
    }
}

/// Returns every row by its nonce; panics if a nonce has two.
pub(super) fn rows(gantry: &Gantry) -> HashMap<String, Row> {
    let mut rows = HashMap::new();
    for row in gantry.audit_rows("") {
        let word = |name: &str| row[name].as_str().map(str::to_owned);
        let input = word("input").unwrap_or_else(|| panic!("a row without its input: {row:#}"));
        let input: Value = serde_json::from_str(&input).unwrap();
        let nonce = input["nonce"]
            .as_str()
            .unwrap_or_else(|| panic!("no nonce: {row:#}"))
            .to_owned();
        let kept = Row {
            id: word("id").unwrap(),
            status: word("status").unwrap(),
            code: word("code"),
        };
        assert_eq!(row["repeats"], 1, "{row:#}");
        if let Some(other) = rows.insert(nonce, kept) {
            panic!("a second row of one call: {other:?} and {row:#}");
        }
    }
    rows
}

/// Compares the three records and returns how many rows there are of each status and code.
pub(super) fn compare(
    sent: &[Sent],
    executed: &HashSet<String>,
    rows: &HashMap<String, Row>,
) -> HashMap<(String, Option<String>), usize> {
    let known: HashMap<&str, &Fate> = sent
        .iter()
        .flatten()
        .map(|(nonce, fate)| (nonce.as_str(), fate))
        .collect();
    let total: usize = sent.iter().map(Vec::len).sum();
    assert_eq!(known.len(), total, "every nonce is sent once");
    let mut kinds = HashMap::new();
    for (nonce, row) in rows {
        assert!(
            known.contains_key(nonce.as_str()),
            "`{nonce}` was never sent: {row:?}"
        );
        *kinds
            .entry((row.status.clone(), row.code.clone()))
            .or_default() += 1;
    }
    for nonce in executed {
        assert!(
            rows.contains_key(nonce),
            "`{nonce}` was executed and has no row"
        );
    }
    for (nonce, fate) in known {
        let row = rows.get(nonce);
        match (fate, row) {
            (Fate::Cut, _) => {}
            (Fate::Result(text), Some(row)) => {
                assert_eq!(text, nonce);
                assert_eq!((row.status.as_str(), &row.code), ("ok", &None), "`{nonce}`");
                assert!(
                    executed.contains(nonce),
                    "`{nonce}` was answered and not executed"
                );
            }
            (
                Fate::Failed {
                    code,
                    call: Some(call),
                },
                Some(row),
            ) => {
                assert_eq!(
                    (row.status.as_str(), row.code.as_ref()),
                    ("error", Some(code)),
                    "`{nonce}`"
                );
                assert_eq!(*call, row.id);
            }
            // What is refused for want of a record has none, and never reaches a server.
            (Fate::Failed { code, call: None }, None) => {
                assert_eq!(code, "audit.unavailable");
                assert!(
                    !executed.contains(nonce),
                    "`{nonce}` was refused and executed"
                );
            }
            (fate, row) => panic!("`{nonce}` ended as {fate:?} and its row is {row:?}"),
        }
    }
    kinds
}

/// How far the clients are, together, and how they call.
#[derive(Default)]
pub(super) struct Progress {
    /// Calls in all.
    goal: usize,
    pub(super) made: AtomicUsize,
    /// Calls that were refused for want of a record.
    pub(super) refused: AtomicUsize,
    /// Whether the texts are long, so that the journal's store of room is soon used up.
    pub(super) long: AtomicBool,
    /// Whether nobody need go on.
    over: AtomicBool,
}

/// Ends the work of all threads when the one that leads them ends, if only by a panic.
struct Lead<'a>(&'a Progress);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Makes one client's calls and returns its record.
fn calls_of(mut client: Client, number: usize, progress: &Progress) -> Sent {
    let mut random = Random::new(number as u64 + 1);
    let mut sent = Vec::new();
    let padding = "x".repeat(3_000);
    for count in 0..progress.goal / CLIENTS {
        if progress.over.load(Ordering::Relaxed) {
            break;
        }
        let nonce = format!("c{number}-{count}");
        let tool = format!("{}__echo", SERVERS[random.below(SERVERS.len())]);
        let text = match progress.long.load(Ordering::Relaxed) {
            true => format!("{nonce} {padding}"),
            false => nonce.clone(),
        };
        let arguments = format!(r#"{{"text":"{text}","nonce":"{nonce}"}}"#);
        let fate = match client.call(&tool, &arguments) {
            Fate::Result(answer) if answer == text => Fate::Result(nonce.clone()),
            refused @ Fate::Failed { call: None, .. } => {
                progress.refused.fetch_add(1, Ordering::Relaxed);
                refused
            }
            other @ (Fate::Cut | Fate::Result(_) | Fate::Failed { .. }) => other,
        };
        sent.push((nonce, fate));
        progress.made.fetch_add(1, Ordering::Relaxed);
    }
    sent
}

/// Kills servers at random until told to end, and returns how many.
fn kill_children(authority: &str, admin: &str, marker: &str, progress: &Progress) -> usize {
    let end = &progress.over;
    let mut random = Random::new(77);
    let mut killed = 0;
    let bearer = format!("Bearer {admin}");
    let headers = [("Authorization", bearer.as_str())];
    while !end.load(Ordering::Relaxed) {
        let path = format!(
            "/api/v1/mcp/servers/{}",
            SERVERS[random.below(SERVERS.len())]
        );
        let asked = Connection::open(authority)
            .and_then(|mut connection| connection.request("GET", &path, &headers, b""));
        let status: Option<Value> = asked
            .ok()
            .and_then(|answer| serde_json::from_slice(&answer.body).ok());
        let pid = status.and_then(|status| u32::try_from(status["pid"].as_u64()?).ok());
        // A number may be somebody else's by now.
        let ours =
            |pid: &u32| procs::look(*pid).is_some_and(|process| process.command.contains(marker));
        let raw = pid
            .filter(ours)
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if raw.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()) {
            killed += 1;
        }
        let pause = Duration::from_millis(30 + random.below(150) as u64);
        eventually(pause, || end.load(Ordering::Relaxed));
    }
    killed
}

/// Makes the calls while servers and the gateway are killed at random, and compares the records.
///
/// `before` is told the number of each kill of the gateway and does its mischief; what it returns is
/// dropped between the kill and the next start.
pub(super) fn calls_and_kills<T>(
    far: &FarEnd,
    gantry: Gantry,
    plan: Plan,
    before: impl Fn(usize, &Progress, &Gantry) -> T,
) -> Gantry {
    for server in SERVERS {
        gantry.wait_state(server, "ready", LONG);
    }
    let progress = Progress {
        goal: plan.calls,
        ..Progress::default()
    };
    let Plan { calls, kills } = plan;
    let mut random = Random::new(3);
    let begun = Instant::now();
    let (authority, admin) = (gantry.authority.clone(), gantry.admin.clone());
    let (gantry, sent, killed) = thread::scope(|scope| {
        let mut gantry = gantry;
        let (progress, marker) = (&progress, far.marker.as_str());
        let lead = Lead(progress);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client::new(&gantry);
                scope.spawn(move || calls_of(client, number, progress))
            })
            .collect();
        let killer = scope.spawn(|| kill_children(&authority, &admin, marker, progress));
        for kill in 1..=kills {
            let step = calls / (kills + 1);
            let at = step * kill + random.below(step / 2);
            let made = &progress.made;
            let reached = eventually(10 * LONG, || made.load(Ordering::Relaxed) >= at);
            assert!(reached.is_some(), "only {made:?} calls were made");
            let mischief = before(kill, progress, &gantry);
            gantry.kill();
            drop(mischief);
            gantry = gantry.again_here();
        }
        let sent: Vec<Sent> = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect();
        drop(lead);
        (gantry, sent, killer.join().unwrap())
    });
    let took = begun.elapsed();
    let executed = far.executed(&SERVERS);
    let rows = rows(&gantry);
    let kinds = compare(&sent, &executed, &rows);
    let answered = sent
        .iter()
        .flatten()
        .filter(|(_, fate)| *fate != Fate::Cut)
        .count();
    eprintln!(
        "{calls} calls in {took:?}, {kills} gateways and {killed} children killed: \
         {answered} answered, {:?} of them refused, {} executed, {} rows: {kinds:?}",
        progress.refused,
        executed.len(),
        rows.len(),
    );
    assert!(
        answered > calls / 2 && killed > kills,
        "the proof was too kind"
    );
    assert!(
        !kinds.keys().any(|(status, _)| status == "running"),
        "{kinds:?}"
    );
    let died = ("unknown".to_owned(), Some("gateway.died".to_owned()));
    assert!(
        kinds.get(&died).is_some_and(|count| *count > 0),
        "kills cut calls off: {kinds:?}"
    );
    gantry
}

// fault A11, fault P11
#[test]
fn every_call_is_recorded_once_whoever_is_killed() {
    let far = FarEnd::new("audit");
    let gantry = far.servers(Gantry::builder(), &SERVERS).start();
    let plan = count(
        Plan {
            calls: 50_000,
            kills: 20,
        },
        Plan {
            calls: 6_000,
            kills: 4,
        },
    );
    calls_and_kills(&far, gantry, plan, |_, progress, _| {
        assert_eq!(progress.refused.load(Ordering::Relaxed), 0);
    });
}
