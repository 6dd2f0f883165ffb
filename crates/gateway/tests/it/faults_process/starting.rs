//! Servers that do not start, and gateways that must not.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};

use super::{Held, SECOND, audited, echoes, fails, fails_about, restarts, tidy};
use crate::harness::{Gantry, LONG, PROGRAM};

/// Puts a policy into an entry by which the first wait is longer than the test; the shorter waits of
/// the default are those of row 1.10.
fn waiting(mut entry: Value) -> Value {
    let policy = json!({"at_once": 3, "window": "60s", "ladder": ["60s"], "reset_after": "10m"});
    entry["life"] = restarts(&policy)["life"].clone();
    entry
}

// fault P1
#[test]
fn a_command_that_cannot_run_is_named_and_does_not_spin() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("plain"), "no program\n").unwrap();
    fs::write(path("orphan"), "#!/nonexistent/interpreter\n").unwrap();
    fs::set_permissions(path("orphan"), fs::Permissions::from_mode(0o755)).unwrap();
    let cases = [
        (
            "missing",
            waiting(json!({"command": path("missing")})),
            format!("program `{}` not found", path("missing")),
        ),
        (
            "unknown",
            waiting(json!({"command": "no-such-program"})),
            "program `no-such-program` not found (searched ".into(),
        ),
        (
            "plain",
            waiting(json!({"command": path("plain")})),
            format!(
                "program `{}` cannot be executed: Permission denied",
                path("plain")
            ),
        ),
        (
            "orphan",
            waiting(json!({"command": path("orphan")})),
            format!(
                "the interpreter of program `{}` does not exist",
                path("orphan")
            ),
        ),
        (
            "nowhere",
            waiting(json!({"command": "sh", "cwd": path("gone")})),
            format!("working directory `{}` does not exist", path("gone")),
        ),
    ];
    // Those that cannot run hold nothing: it is as with the good one alone.
    let held = Held::with_servers(1);
    let mut builder = Gantry::builder().server("good", &Evilpeer::new());
    for (name, entry, _) in &cases {
        builder = builder.entry(name, entry.clone());
    }
    let gantry = builder.start();
    gantry.wait_state("good", "ready", LONG);
    for (name, _, words) in &cases {
        // More than three failures in a minute: it waits.
        let waits = |status: &Value| status["next_try"]["in_ms"].as_u64() > Some(1000);
        let status = gantry.wait_status(name, LONG, waits);
        assert_eq!(
            (&status["state"], &status["restart_count"]),
            (&json!("failed"), &json!(4))
        );
        let reason = status["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("backing off 60s: 4 failures within 60s: "),
            "{reason}"
        );
        assert!(reason.contains(words.as_str()), "{reason}");
        gantry.events(name, "starting", 4);
        let failures = gantry.events(name, "start_failed", 4);
        assert!(
            failures.iter().all(|told| told.contains(words.as_str())),
            "{failures:#?}"
        );
        let begun = Stopwatch::start();
        let answer = gantry.call(&format!("{name}__anything"), json!({}));
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
        let message = answer["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            message.starts_with(&format!("server `{name}` is down: backing off 60s")),
            "{message}"
        );
        assert!(
            message.contains(words.as_str()) && message.contains("; next try in "),
            "{message}"
        );
        fails(&answer, -31503, &message, "server.down");
        audited(&gantry, name, &[(1, "error", Some("server.down"))]);
    }
    echoes(&gantry, "good");
    assert_eq!(gantry.status("good")["restart_count"], 0);
    tidy(&gantry);
    held.compare(&gantry);
}

// fault P2
#[test]
fn every_exit_counts_and_climbs_the_ladder() {
    let ladder = json!({
        "at_once": 3, "window": "30s", "ladder": ["50ms", "150ms", "450ms", "1200ms", "30s"], "reset_after": "10m",
    });
    let cases = [
        (
            "polite",
            Evilpeer::new().fault("exit0"),
            "start_failed",
            "ended during the handshake: exit code 0",
        ),
        (
            "broken",
            Evilpeer::new().fault("crash-start=7"),
            "start_failed",
            "ended during the handshake: exit code 7",
        ),
        (
            "later",
            Evilpeer::new().fault("crash-after=1000"),
            "exited",
            "exit code 1",
        ),
    ];
    // Those that have ended hold nothing: it is as without any server.
    let held = Held::with_servers(0);
    let mut builder = Gantry::builder();
    for (name, peer, ..) in &cases {
        builder = builder.server_with(name, peer, &restarts(&ladder));
    }
    let gantry = builder.start();
    for (name, _, kind, how) in &cases {
        let top = |status: &Value| status["next_try"]["in_ms"].as_u64() > Some(5000);
        let status = gantry.wait_status(name, 2 * LONG, top);
        assert_eq!(status["restart_count"], 8, "{status:#}");
        assert_eq!(status["health_warning"], true);
        let wanted = [
            "restarting at once",
            "restarting at once",
            "restarting at once",
            "backing off 50ms: 4 failures within 30s",
            "backing off 150ms: 5 failures within 30s",
            "backing off 450ms: 6 failures within 30s",
            "backing off 1.2s: 7 failures within 30s",
            "backing off 30s: 8 failures within 30s",
        ];
        let told = gantry.events(name, kind, wanted.len());
        for (told, wanted) in told.iter().zip(wanted) {
            assert!(
                told.contains(wanted) && told.contains(how),
                "`{told}` is not `{wanted}`"
            );
        }
        let next = &status["next_try"];
        let whole = next["at_ms"].as_u64().unwrap() - status["since_ms"].as_u64().unwrap();
        assert!(
            (27_000..=33_000).contains(&whole),
            "30 s ± 10 %: {whole} ms"
        );
        let begun = Stopwatch::start();
        let answer = gantry.call(&format!("{name}__echo"), json!({"text": "x"}));
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
        let message = format!(
            "server `{name}` is down: backing off 30s: 8 failures within 30s: {how}; next try in # s"
        );
        fails_about(&answer, -31503, &message, "server.down");
        audited(&gantry, name, &[(1, "error", Some("server.down"))]);
        // By hand it begins anew.
        let restarted = gantry.rest("POST", &format!("/api/v1/mcp/servers/{name}/restart"), None);
        assert_eq!(restarted.status, 200, "{}", restarted.text());
        let again = gantry.wait_status(name, LONG, |now| now["restart_count"].as_u64() > Some(0));
        assert!(again["restart_count"].as_u64() < Some(8), "{again:#}");
    }
    tidy(&gantry);
    // The last one lives a second at a time, and waits in between.
    held.compare(&gantry);
}

// fault P14
#[test]
fn fifty_servers_start_side_by_side_and_three_bad_ones_hurt_nobody() {
    // The hanging one runs, too; those that end hold nothing.
    let held = Held::with_servers(48);
    let mut builder = Gantry::builder();
    for number in 0..50 {
        let peer = match number {
            7 => Evilpeer::new().fault("init-hang"),
            21 | 42 => Evilpeer::new().fault("crash-start"),
            _ => Evilpeer::new(),
        };
        builder = builder.server(&format!("s{number}"), &peer);
    }
    let begun = Stopwatch::start();
    let gantry = builder.start();
    let counts = || gantry.rest("GET", "/api/v1/health", None).json()["servers"].take();
    let ready = eventually(2 * LONG, || counts()["ready"] == 47);
    let took = begun.elapsed();
    assert!(ready.is_some(), "{}", counts());
    eprintln!("47 of 50 ready after {took:?}");
    // Far from the 60 s that the hanging one has.
    assert!(took <= 30 * SECOND, "{took:?}");
    // Those that end are tried again now and then, and are `starting` for a moment.
    let settled = eventually(LONG, || {
        let counts = counts();
        counts["failed"] == 2 && counts["starting"] == 1
    });
    assert!(settled.is_some(), "{}", counts());
    // The first list may wait for those that are coming, at most 3 s from their start: far less than
    // the hanging one may take.
    let asked = Stopwatch::start();
    gantry.mcp("tools/list", json!({}));
    assert!(asked.elapsed() <= 10 * SECOND, "{:?}", asked.elapsed());
    let asked = Stopwatch::start();
    let list = gantry.mcp("tools/list", json!({}));
    assert!(
        asked.elapsed() <= 2 * SECOND,
        "no list waits twice: {:?}",
        asked.elapsed()
    );
    let tools = list["result"]["tools"].as_array().unwrap();
    let echoed = |name: &Value| name.as_str().is_some_and(|name| name.ends_with("__echo"));
    assert_eq!(
        tools.iter().filter(|tool| echoed(&tool["name"])).count(),
        47
    );
    for number in [0, 8, 49] {
        echoes(&gantry, &format!("s{number}"));
        audited(&gantry, &format!("s{number}"), &[(1, "ok", None)]);
    }
    assert_eq!(gantry.status("s7")["state"], "starting", "it has its time");
    // Not in the moment in which it is tried again.
    let waits = |status: &Value| status["next_try"]["in_ms"].as_u64() > Some(4000);
    gantry.wait_status("s21", LONG, waits);
    let asked = Stopwatch::start();
    let down = gantry.call("s21__echo", json!({"text": "x"}));
    assert!(asked.elapsed() <= SECOND, "{:?}", asked.elapsed());
    fails_about(
        &down,
        -31503,
        "server `s21` is down: backing off #s: # failures within 60s: \
         ended during the handshake: exit code 1; next try in # s",
        "server.down",
    );
    audited(&gantry, "s21", &[(1, "error", Some("server.down"))]);
    tidy(&gantry);
    held.compare(&gantry);
}

// fault P15
#[test]
fn a_second_gateway_on_one_folder_names_the_holder_and_touches_nothing() {
    let gantry = Gantry::start(&["a"]);
    let pid = gantry.status("a")["pid"].clone();
    let (held, tree) = (Held::of(&gantry), tree_of(&gantry));
    let announced = fs::read(gantry.data().join("gateway.json")).unwrap();
    for port in ["0", gantry.authority.rsplit(':').next().unwrap()] {
        let begun = Stopwatch::start();
        let second = gantry.cli(&["up", "--port", port]);
        assert!(begun.elapsed() <= 5 * SECOND, "{:?}", begun.elapsed());
        let told = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{told}");
        let holder = format!("is in use by the gateway with process id {}", gantry.pid);
        assert!(told.contains(&holder), "{told}");
        assert!(
            told.contains(gantry.data().to_str().unwrap()) && told.contains("hint: "),
            "{told}"
        );
    }
    assert_eq!(
        fs::read(gantry.data().join("gateway.json")).unwrap(),
        announced
    );
    assert_eq!(gantry.status("a")["pid"], pid);
    assert_eq!(tree_of(&gantry), tree);
    echoes(&gantry, "a");
    audited(&gantry, "a", &[(1, "ok", None)]);
    // Another folder has its own gateway.
    let other = Gantry::start(&["a"]);
    assert_ne!(other.pid, gantry.pid);
    let held_there = Held::of(&other);
    echoes(&other, "a");
    // What one does is no matter of the other's.
    for (gantry, held) in [(&gantry, held), (&other, held_there)] {
        audited(gantry, "a", &[(1, "ok", None)]);
        tidy(gantry);
        held.compare(gantry);
    }
    assert_eq!(tree_of(&gantry), tree);
}

/// Returns the processes below a gateway that live.
fn tree_of(gantry: &Gantry) -> Vec<u32> {
    let mut tree: Vec<u32> = procs::descendants_of(gantry.pid)
        .iter()
        .filter(|process| process.state != 'Z')
        .map(|process| process.pid)
        .collect();
    tree.sort_unstable();
    tree
}

// fault P15
#[test]
fn two_gateways_that_start_at_once_are_one() {
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(PROGRAM);
        command
            .args(["up", "--port", "0", "--no-example", "--data"])
            .arg(home.path().join("data"));
        command
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut gateways = [start(), start(), start(), start()];
    let mut losers = 0;
    let settled = eventually(LONG, || {
        losers = gateways
            .iter_mut()
            .filter_map(|gateway| gateway.try_wait().unwrap())
            .count();
        losers == 3
    });
    let mut winners = Vec::new();
    let mut refusals = Vec::new();
    for mut gateway in gateways {
        match gateway.try_wait().unwrap() {
            Some(status) => {
                let mut told = String::new();
                let mut stderr = gateway.stderr.take().unwrap();
                stderr.read_to_string(&mut told).unwrap();
                refusals.push((status.code(), told));
            }
            None => {
                winners.push(gateway.id());
                // It has no servers, and no child of any other kind once it has tried what it can hold.
                let alone = || procs::descendants_of(gateway.id()).is_empty();
                assert!(eventually(LONG, alone).is_some());
                gateway.kill().unwrap();
                gateway.wait().unwrap();
            }
        }
    }
    assert!(
        settled.is_some() && winners.len() == 1,
        "{losers} gave way, {winners:?} stayed"
    );
    for (code, told) in refusals {
        let holder = format!("is in use by the gateway with process id {}", winners[0]);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains(&holder) && told.contains("hint: "), "{told}");
    }
}
