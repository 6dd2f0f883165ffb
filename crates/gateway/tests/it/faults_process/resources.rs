//! Fault P6: many lives and deaths, and a host that has nothing left to give.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs, proof};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Held, SECOND, audited, echoes, fails, fails_about, reads, restarts, signal, tidy};
use crate::harness::{Connection, Gantry, LONG, NOBODY, Programs, entry, needs_root};

/// A server that comes back at once, however often it ends.
fn quick() -> Value {
    restarts(&json!({"at_once": 100, "window": "1s", "ladder": ["1ms"], "reset_after": "1s"}))
}

/// Servers that end as soon as they have begun: the kinds that follow have the rest of the lives.
const BRIEF: usize = 16;
/// What all these lives may leave, in KiB: an allocator's reserve; after a hundred thousand no leak of
/// even 200 bytes a life.
const LEFT: u64 = 16 << 10;

/// What the gateway holds: descriptors, memory in KiB, threads.
fn holds(gantry: &Gantry) -> (usize, u64, u64) {
    let pid = gantry.pid;
    (
        procs::open_fds(pid),
        procs::rss_kib(pid),
        procs::threads(pid),
    )
}

// fault P6: the contract's number is that of the profile `proof`, and takes some minutes.
#[test]
fn many_lives_leave_no_zombie_no_descriptor_and_no_memory() {
    needs_root();
    // Of all servers together; after how many everything that comes once has come; and of each of the
    // kinds that take longer, at least.
    let (lives_in_all, settled, lives_each) =
        proof::count((100_000, 10_000, 1_000), (4_000, 1_500, 40));
    let kinds = ["ends", "dies", "missing"];
    let mut builder = Gantry::builder()
        .server("good", &Evilpeer::new())
        .server_with("ends", &Evilpeer::new().fault("exit0"), &quick())
        .server_with("dies", &Evilpeer::new().fault("crash-after=1"), &quick())
        .entry(
            "missing",
            json!({"command": "/nonexistent/program", "life": quick()["life"]}),
        );
    let brief: Vec<String> = (0..BRIEF).map(|number| format!("brief-{number}")).collect();
    for name in &brief {
        builder = builder.entry(name, json!({"command": "true", "life": quick()["life"]}));
    }
    let gantry = builder.start();
    gantry.wait_state("good", "ready", LONG);
    let mortal = || brief.iter().map(String::as_str).chain(kinds);
    let lives = |name: &str| gantry.status(name)["restart_count"].as_u64().unwrap();
    let after = |count: u64, each: u64| {
        let begun = Instant::now();
        // Looked at once a second: who looks more often slows it down.
        let few = || kinds.iter().any(|kind| lives(kind) < each);
        while mortal().map(lives).sum::<u64>() < count || few() {
            // Those that ended just now: an init, and whoever started it.
            let zombies = procs::zombies_of(gantry.pid);
            assert!(zombies.len() <= 2 * (BRIEF + kinds.len()), "{zombies:#?}");
            assert!(begun.elapsed() <= 60 * LONG, "{:?}", kinds.map(lives));
            eventually(SECOND, || false);
        }
        holds(&gantry)
    };
    let begun = Instant::now();
    let early = after(settled, 0);
    let late = after(lives_in_all, lives_each);
    eprintln!(
        "{} lives in {:?}: {early:?}, then {late:?}",
        mortal().map(lives).sum::<u64>(),
        begun.elapsed()
    );
    let grown = late.1.saturating_sub(early.1);
    assert!(grown <= LEFT, "{grown} KiB more: {early:?}, then {late:?}");
    echoes(&gantry, "good");
    // Those in the middle of a start hold some; what counts is that it does not grow.
    let starting = 10 * (BRIEF + kinds.len());
    assert!(
        late.0 <= early.0 + starting,
        "descriptors: {} then {}",
        early.0,
        late.0
    );
    let starts = (BRIEF + kinds.len()) as u64;
    assert!(
        late.2 <= early.2 + starts,
        "threads: {} then {}",
        early.2,
        late.2
    );
    for name in mortal() {
        assert_ne!(gantry.status(name)["state"], "stopped");
    }
    audited(&gantry, "good", &[(1, "ok", None)]);
    assert_eq!(gantry.status("good")["restart_count"], 0);
    // With nobody left who lives and dies, it is as with the good one alone.
    let alone = Gantry::start(&["good"]);
    echoes(&alone, "good");
    let left = json!({"mcpServers": {"good": entry(&Evilpeer::new())}});
    fs::write(gantry.data().with_file_name("mcp.json"), left.to_string()).unwrap();
    for name in mortal() {
        let path = format!("/api/v1/mcp/servers/{name}");
        let gone = eventually(LONG, || gantry.rest("GET", &path, None).status == 404);
        assert!(gone.is_some(), "{name} is still there");
    }
    let both = || [&gantry, &alone].map(holds);
    let trees = || [&gantry, &alone].map(|gantry| procs::descendants_of(gantry.pid).len());
    // Threads that have nothing to do leave after a while.
    let settled = eventually(LONG, || {
        let ([own, other], [tree, tree_alone]) = (both(), trees());
        procs::zombies_of(gantry.pid).is_empty()
            && own.0.abs_diff(other.0) <= 5
            && own.2.abs_diff(other.2) <= 5
            && tree == tree_alone
    });
    assert!(
        settled.is_some(),
        "{:?}, {:?} descendants, zombies {:?}",
        both(),
        trees(),
        procs::zombies_of(gantry.pid)
    );
    tidy(&gantry);
}

/// Sets a limit of the gateway's: the soft one, the hard one stays as it is.
fn limit(gantry: &Gantry, user: u32, what: &str) {
    // A process may only be limited by its own user.
    let limited = Command::new("prlimit")
        .arg(format!("--pid={}", gantry.pid))
        .arg(what)
        .uid(user)
        .gid(user)
        .status();
    assert!(limited.unwrap().success(), "{what}");
}

/// Returns the processor time the gateway has used.
fn processor_time(gantry: &Gantry) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", gantry.pid)).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Returns the limit that leaves the gateway so many descriptors; the system gives the lowest free.
fn limit_for_more(gantry: &Gantry, more: usize) -> u64 {
    let open = fs::read_dir(format!("/proc/{}/fd", gantry.pid)).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let open: Vec<u64> = open.filter_map(|entry| name(entry.ok()?)).collect();
    let free = (0..).filter(|number| !open.contains(number));
    free.take(more).last().unwrap() + 1
}

/// Asks on a connection that is open already.
fn ask(connection: &mut Connection, gantry: &Gantry, path: &str) -> Value {
    let bearer = format!("Bearer {}", gantry.admin);
    connection
        .request("GET", path, &[("Authorization", &bearer)], b"")
        .unwrap()
        .json()
}

fn call(connection: &mut Connection, gantry: &Gantry, tool: &str, arguments: &Value) -> Value {
    let bearer = format!("Bearer {}", gantry.admin);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    let body = json!({"name": tool, "arguments": arguments}).to_string();
    connection
        .request("POST", "/api/v1/tools/call", &headers, body.as_bytes())
        .unwrap()
        .json()
}

// fault P6
#[test]
fn without_descriptors_starts_fail_by_name_and_accepting_waits() {
    needs_root();
    let gantry = Gantry::builder()
        .server("good", &Evilpeer::new())
        .server_with(
            "a",
            &Evilpeer::new(),
            &restarts(&json!({
                "at_once": 1, "window": "30s", "ladder": ["6s"], "reset_after": "10m",
            })),
        )
        .start();
    for name in ["good", "a"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let mut kept = gantry.connect();
    ask(&mut kept, &gantry, "/api/v1/health");
    // Those of connections that are over are closed by then.
    let before = procs::resting_fds(gantry.pid, LONG);
    let most = limit_for_more(&gantry, 4);
    limit(&gantry, 0, &format!("--nofile={most}:"));
    // More than there is room for; the kernel still takes them in.
    let mut waiting: Vec<Connection> = (0..40).map(|_| gantry.connect()).collect();
    let full = eventually(LONG, || {
        gantry.stderr().contains("cannot accept connections")
    });
    assert!(full.is_some(), "{}", gantry.stderr());
    // Accepting backs off: it does not spin.
    let (cpu, begun) = (processor_time(&gantry), Instant::now());
    assert!(eventually(2 * SECOND, || false).is_none());
    let (cpu, time) = (processor_time(&gantry) - cpu, begun.elapsed());
    assert!(cpu <= time / 4, "{cpu:?} of processor in {time:?}");
    let tries = gantry.stderr().matches("cannot accept connections").count();
    assert!(tries <= 20, "{tries} tries");
    // Who is connected is served, and a server that ends cannot come back, which is said.
    let answer = call(
        &mut kept,
        &gantry,
        "good__echo",
        &json!({"text": "still here"}),
    );
    assert_eq!(
        answer["result"]["content"][0]["text"], "still here",
        "{answer:#}"
    );
    let answer = call(&mut kept, &gantry, "a__crash", &json!({}));
    let exited = "server `a` exited during the call (exit code 1)";
    is_problem(&answer, 502, exited, "server.exited");
    let mut status = Value::Null;
    let failed = eventually(LONG, || {
        status = ask(&mut kept, &gantry, "/api/v1/mcp/servers/a");
        status["state"] == "failed"
    });
    assert!(failed.is_some(), "{status:#}");
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("Too many open files"), "{reason}");
    let watch = Stopwatch::start();
    let answer = call(&mut kept, &gantry, "a__echo", &json!({"text": "x"}));
    assert!(watch.elapsed() <= SECOND, "{:?}", watch.elapsed());
    let down = "server `a` is down: backing off 6s: # failures within 30s: \
                cannot make the pipes: Too many open files (os error 24); next try in # s";
    is_problem(&answer, 503, down, "server.down");
    // There is room again: the server comes back, and those who waited are served.
    limit(&gantry, 0, "--nofile=1000:");
    let again = eventually(LONG, || {
        status = ask(&mut kept, &gantry, "/api/v1/mcp/servers/a");
        status["state"] == "ready"
    });
    assert!(again.is_some(), "{status:#}");
    for connection in &mut waiting {
        let answer = connection.request("GET", "/healthz", &[], b"").unwrap();
        assert_eq!(answer.status, 200);
    }
    for connection in &mut waiting {
        connection
            .socket()
            .shutdown(std::net::Shutdown::Write)
            .unwrap();
        connection.socket().read_to_end(&mut Vec::new()).unwrap();
    }
    let settled = eventually(5 * SECOND, || {
        procs::open_fds(gantry.pid).abs_diff(before) <= 5
    });
    assert!(
        settled.is_some(),
        "{before} descriptors before, {} now",
        procs::open_fds(gantry.pid)
    );
    echoes(&gantry, "a");
    audited(
        &gantry,
        "a",
        &[
            (1, "error", Some("server.exited")),
            (1, "error", Some("server.down")),
            (1, "ok", None),
        ],
    );
    audited(&gantry, "good", &[(1, "ok", None)]);
    tidy(&gantry);
}

/// Asserts that a call over REST failed: its status, its detail as [`reads`] has it, its code.
fn is_problem(answer: &Value, status: u16, detail: &str, code: &str) {
    assert_eq!(
        (&answer["status"], &answer["code"]),
        (&json!(status), &json!(code)),
        "{answer:#}"
    );
    let told = answer["detail"].as_str().unwrap_or_default();
    assert!(reads(told, detail), "`{told}` is not `{detail}`");
    assert!(answer["call"].is_string(), "{answer:#}");
}

/// Asserts that a call is told why `a` cannot be started now: what the system said about its init.
fn is_down_for(answer: &Value, why: &str) {
    let message = format!(
        "server `a` is down: backing off 300ms: # failures within 30s: \
         cannot start the init: {why}; next try in # ms"
    );
    fails_about(answer, -31503, &message, "server.down");
}

// fault P6
#[test]
fn without_processes_starts_fail_by_name_and_come_back() {
    needs_root();
    let programs = Programs::copied();
    let entry = |members: &Value| {
        let mut entry = programs.entry(&Evilpeer::new());
        entry["life"] = members["life"].clone();
        entry
    };
    let policy = json!({"at_once": 1, "window": "30s", "ladder": ["300ms"], "reset_after": "10m"});
    let gantry = Gantry::builder()
        .program(&programs.gantry())
        .user(NOBODY)
        .entry("good", entry(&quick()))
        .entry("a", entry(&restarts(&policy)))
        .start();
    for name in ["good", "a"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let held = Held::of(&gantry);
    limit(&gantry, NOBODY, "--nproc=1:");
    let answer = gantry.call("a__crash", json!({}));
    fails(
        &answer,
        -31502,
        "server `a` exited during the call (exit code 1)",
        "server.exited",
    );
    let status = gantry.wait_state("a", "failed", LONG);
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("cannot start the init: Resource temporarily unavailable"),
        "{reason}"
    );
    echoes(&gantry, "good");
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    is_down_for(&answer, "Resource temporarily unavailable (os error 11)");
    limit(&gantry, NOBODY, "--nproc=1000:");
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, "a");
    audited(
        &gantry,
        "a",
        &[
            (1, "error", Some("server.exited")),
            (1, "error", Some("server.down")),
            (1, "ok", None),
        ],
    );
    tidy(&gantry);
    held.compare(&gantry);
}

// fault P6
#[test]
fn without_memory_starts_fail_by_name_and_come_back() {
    needs_root();
    let policy = json!({"at_once": 1, "window": "30s", "ladder": ["300ms"], "reset_after": "10m"});
    let gantry = Gantry::builder()
        .server("good", &Evilpeer::new())
        .server_with("a", &Evilpeer::new(), &restarts(&policy))
        .start();
    for name in ["good", "a"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let held = Held::of(&gantry);
    // From here on the kernel says that it has no memory for another program.
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("strace");
    let mut tracer = Command::new("strace")
        .args([
            "-f",
            "-e",
            "trace=execve",
            "-e",
            "inject=execve:error=ENOMEM",
            "-o",
        ])
        .arg(&log)
        .args(["-p", &gantry.pid.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let traced = || {
        let by = format!("TracerPid:\t{}\n", tracer.id());
        let mut threads = fs::read_dir(format!("/proc/{}/task", gantry.pid)).unwrap();
        // Any of its threads may start a server; one that has ended starts none.
        threads.all(|thread| {
            let status = fs::read_to_string(thread.unwrap().path().join("status"));
            status.ok().is_none_or(|status| status.contains(&by))
        })
    };
    assert!(eventually(LONG, traced).is_some(), "the gateway is traced");
    let answer = gantry.call("a__crash", json!({}));
    let message = "server `a` exited during the call (exit code 1)";
    fails(&answer, -31502, message, "server.exited");
    let told = |status: &Value| {
        let reason = status["reason"].as_str().unwrap_or_default();
        status["state"] == "failed" && reason.contains("Cannot allocate memory")
    };
    gantry.wait_status("a", LONG, told);
    echoes(&gantry, "good");
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    is_down_for(&answer, "Cannot allocate memory (os error 12)");
    let seen = fs::read_to_string(&log).unwrap();
    assert!(seen.contains("ENOMEM"), "{seen}");
    signal(tracer.id(), Signal::TERM);
    tracer.wait().unwrap();
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, "a");
    audited(
        &gantry,
        "a",
        &[
            (1, "error", Some("server.exited")),
            (1, "error", Some("server.down")),
            (1, "ok", None),
        ],
    );
    tidy(&gantry);
    held.compare(&gantry);
}
