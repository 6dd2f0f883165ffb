//! Fault P13: the clock of the machine jumps by a day, forth and back. Waits are not moved by it, and
//! the audit keeps the order in which calls came.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Held, SECOND, audited, echoes, fails, restarts, tidy};
use crate::harness::{Gantry, LONG};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A clock that a gateway takes for the machine's.
struct Clock {
    file: PathBuf,
}

impl Clock {
    fn in_folder(folder: &Path) -> Self {
        let clock = Self {
            file: folder.join("clock"),
        };
        clock.set("+0");
        clock
    }

    /// Sets how far it is from the truth, such as `+1d`.
    fn set(&self, offset: &str) {
        let draft = self.file.with_extension("draft");
        fs::write(&draft, offset).unwrap();
        fs::rename(draft, &self.file).unwrap();
    }

    fn library() -> String {
        let places = ["x86_64", "aarch64"]
            .map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1"));
        let found = places.into_iter().find(|place| Path::new(place).exists());
        found.expect("libfaketime is installed: see `.ci/needs`")
    }

    /// Has a gateway go by this clock.
    fn rule(&self, builder: crate::harness::Builder) -> crate::harness::Builder {
        builder
            .variable("LD_PRELOAD", &Self::library())
            .variable("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap())
            .variable("FAKETIME_NO_CACHE", "1")
            .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .variable("FAKETIME_DONT_RESET", "1")
    }
}

/// Returns the gateway's time, from a status that it wrote now.
fn now_ms(gantry: &Gantry) -> u64 {
    echoes(gantry, "good");
    let rows = gantry
        .rest("GET", "/api/v1/calls?limit=1000&server=good", None)
        .json();
    let rows = rows["items"].as_array().unwrap();
    let newest = rows.iter().max_by_key(|row| row["seq"].as_u64()).unwrap();
    newest["started_ms"].as_u64().unwrap()
}

// fault P13
#[test]
fn uptime_and_the_next_try_do_not_follow_a_clock_that_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::in_folder(folder.path());
    let policy = json!({"at_once": 0, "window": "1m", "ladder": ["50s"], "reset_after": "10m"});
    let gantry = clock
        .rule(Gantry::builder())
        .server("good", &Evilpeer::new())
        .server_with("loop", &Evilpeer::new(), &restarts(&policy))
        .start();
    for name in ["good", "loop"] {
        gantry.wait_state(name, "ready", LONG);
    }
    gantry.call("loop__crash", json!({}));
    gantry.wait_state("loop", "backing_off", LONG);
    let begun = Instant::now();
    let mut last = now_ms(&gantry);
    let (mut uptime, mut left) = (0, u64::MAX);
    for offset in ["+1d", "-1d", "+0"] {
        clock.set(offset);
        let now = now_ms(&gantry);
        assert!(now.abs_diff(last) > DAY_MS - 120_000, "it jumps: {offset}");
        last = now;
        let good = gantry.status("good")["uptime_ms"].as_u64().unwrap();
        let most = 60_000 + u64::try_from(begun.elapsed().as_millis()).unwrap();
        assert!(good >= uptime && good < most, "{offset}: up for {good} ms");
        uptime = good;
        let next = &gantry.status("loop")["next_try"];
        let in_ms = next["in_ms"].as_u64().unwrap();
        assert!(in_ms > 0 && in_ms <= left.min(60_000), "{offset}: {next}");
        left = in_ms;
        // The time that is shown beside it is of the clock as it is now.
        let at = next["at_ms"].as_u64().unwrap();
        assert!(at.abs_diff(now + in_ms) < 60_000, "{offset}: {next}");
    }
    let listed = gantry.rest("GET", "/api/v1/mcp/servers", None).json();
    let listed = listed["items"].as_array().unwrap();
    let good = listed.iter().find(|server| server["name"] == "good");
    let shown = good.unwrap()["uptime_ms"].as_u64().unwrap();
    assert!(shown >= uptime && shown < 600_000, "{shown}");
}

// fault P13
#[test]
fn a_key_that_expired_by_a_wrong_clock_is_valid_when_the_clock_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::in_folder(folder.path());
    let gantry = clock
        .rule(Gantry::builder())
        .server("good", &Evilpeer::new())
        .start();
    gantry.wait_state("good", "ready", LONG);
    let body = json!({"kind": "agent", "agent": "default", "expires_in": "1h"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let call = |ms: u64| {
        let body = json!({"name": "good__slow", "arguments": {"ms": ms}});
        gantry.rest_as(&key, "POST", "/api/v1/tools/call", Some(&body))
    };
    assert_eq!(call(1).status, 200);
    thread::scope(|scope| {
        // What runs shows that the key has ended, not only that it is refused.
        let cut = scope.spawn(|| call(60_000));
        gantry.wait_status("good", LONG, |status| status["queue"]["in_flight"] == 1);
        clock.set("+1d");
        let cut = cut.join().unwrap();
        assert_eq!(cut.json()["code"], "auth.key_expired", "{}", cut.text());
    });
    assert_eq!(call(1).status, 401);
    clock.set("+0");
    for _ in 0..2 {
        let answer = call(1);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    clock.set("+1d");
    assert_eq!(call(1).status, 401);
}

// fault P13
#[test]
fn a_clock_that_jumps_by_a_day_moves_no_wait_and_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::in_folder(folder.path());
    let policy = json!({"at_once": 0, "window": "1m", "ladder": ["7s"], "reset_after": "10m"});
    let mut gantry = clock
        .rule(Gantry::builder())
        .server_with(
            "good",
            &Evilpeer::new(),
            &json!({"calls": {"timeout": "8s"}}),
        )
        .server_with("loop", &Evilpeer::new(), &restarts(&policy))
        .start();
    for name in ["good", "loop"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let held = Held::of(&gantry);
    let mut last = now_ms(&gantry);
    for offset in ["+1d", "-1d", "+0"] {
        // A call and a wait are under way when the clock jumps.
        let pid = gantry.status("loop")["pid"].clone();
        let crashed = Instant::now();
        gantry.call("loop__crash", json!({}));
        gantry.wait_state("loop", "backing_off", LONG);
        let (answer, late) = thread::scope(|scope| {
            let gantry = &gantry;
            let in_flight = |count: u64| {
                let holds = move |now: &Value| now["queue"]["in_flight"] == count;
                gantry.wait_status("good", LONG, holds);
            };
            // One after the other: of calls that come at once, either may be the first.
            let call = scope.spawn(move || gantry.call("good__slow", json!({"ms": 5000})));
            in_flight(1);
            let late = scope.spawn(move || {
                let begun = Instant::now();
                let answer = gantry.call("good__slow", json!({"ms": 60_000}));
                (answer, begun.elapsed())
            });
            in_flight(2);
            clock.set(offset);
            (call.join().unwrap(), late.join().unwrap())
        });
        assert_eq!(
            answer["result"]["content"][0]["text"], "slept 5000 ms",
            "{answer:#}"
        );
        let (answer, took) = late;
        fails(
            &answer,
            -31504,
            "server `good` did not answer within 8s",
            "call.timeout",
        );
        assert!(
            took >= 8 * SECOND && took <= 14 * SECOND,
            "{offset}: {took:?}"
        );
        let now = now_ms(&gantry);
        assert!(
            now.abs_diff(last) > DAY_MS - 120_000,
            "{offset}: the clock did jump: {last} {now}"
        );
        last = now;
        let over = |status: &Value| status["state"] != "backing_off";
        gantry.wait_status("loop", LONG, over);
        let waited = crashed.elapsed();
        assert!(
            waited >= 6 * SECOND && waited <= 20 * SECOND,
            "{offset}: 7 s ± 10 %: {waited:?}"
        );
        let again = |status: &Value| status["state"] == "ready" && status["pid"] != pid;
        gantry.wait_status("loop", LONG, again);
    }
    // The list is in the order of the calls, page by page, whatever the clock said.
    let rows = gantry.audit_rows("");
    let seqs: Vec<u64> = rows
        .iter()
        .map(|row| row["seq"].as_u64().unwrap())
        .collect();
    let tools: Vec<&str> = rows
        .iter()
        .map(|row| row["tool"].as_str().unwrap())
        .collect();
    let round = ["crash", "slow", "slow", "echo"];
    let wanted: Vec<&str> = ["echo"]
        .into_iter()
        .chain([round; 3].into_iter().flatten())
        .collect();
    assert_eq!(tools, wanted);
    assert_eq!(seqs.len(), 13);
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    audited(&gantry, "loop", &[(3, "error", Some("server.exited"))]);
    audited(
        &gantry,
        "good",
        &[(7, "ok", None), (3, "timeout", Some("call.timeout"))],
    );
    tidy(&gantry);
    held.compare(&gantry);
    // Also over a restart with a clock that is behind.
    clock.set("-1d");
    assert_eq!(gantry.stop(), Some(0), "{}", gantry.stderr());
    let gantry = gantry.again();
    gantry.wait_state("good", "ready", LONG);
    echoes(&gantry, "good");
    let rows = gantry.audit_rows("");
    assert_eq!(rows.len(), 14);
    let newest = rows.iter().max_by_key(|row| row["seq"].as_u64()).unwrap();
    assert_eq!(
        rows.last(),
        Some(newest),
        "the newest call is the last: {rows:#?}"
    );
    assert!(eventually(SECOND, || gantry.status("good")["state"] == "ready").is_some());
}

// A clock that is a hundred days ahead makes no call too old; whoever looks is told, and can say that
// it is right.
#[test]
fn a_clock_that_jumps_past_the_retention_drops_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::in_folder(folder.path());
    let mut gantry = clock
        .rule(Gantry::builder())
        .server("good", &Evilpeer::new())
        .start();
    gantry.wait_state("good", "ready", LONG);
    for _ in 0..3 {
        echoes(&gantry, "good");
    }
    let health = |gantry: &Gantry| gantry.rest("GET", "/api/v1/health", None).json();
    // Reading them brings them into the database.
    assert_eq!(gantry.audit_rows("").len(), 3);
    let now = health(&gantry);
    assert_eq!(
        (&now["audit"]["calls"], &now["audit"]["retention_days"]),
        (&json!(3), &json!(90))
    );
    assert!(
        now["audit"]["database_bytes"].as_u64() > Some(10_000),
        "{now:#}"
    );
    assert!(now["audit"]["clock_ahead_days"].is_null());
    let is_held = |gantry: &Gantry| {
        let held = |now: &Value| now["audit"]["clock_ahead_days"].as_u64() >= Some(99);
        eventually(LONG, || held(&health(gantry))).is_some()
    };
    // While it runs, and with calls by the new time.
    clock.set("+100d");
    assert!(is_held(&gantry), "{:#}", health(&gantry));
    echoes(&gantry, "good");
    // And over a start.
    assert_eq!(gantry.stop(), Some(0));
    let gantry = gantry.again();
    gantry.wait_state("good", "ready", LONG);
    assert!(is_held(&gantry), "{:#}", health(&gantry));
    assert_eq!(gantry.audit_rows("").len(), 4);
    let warnings = health(&gantry)["warnings"].to_string();
    assert!(
        warnings.contains("gantry audit confirm-clock"),
        "{warnings}"
    );
    let told = String::from_utf8(gantry.cli(&["doctor"]).stdout).unwrap();
    assert!(told.contains("days ahead of what was recorded"), "{told}");
    assert!(
        gantry.stderr().contains("the clock is far ahead"),
        "{}",
        gantry.stderr()
    );
    let confirmed = gantry.cli(&["audit", "confirm-clock"]);
    assert_eq!(confirmed.status.code(), Some(0));
    assert!(health(&gantry)["audit"]["clock_ahead_days"].is_null());
    let acts = gantry
        .rest("GET", "/api/v1/acts?act=clock.confirm", None)
        .json();
    assert_eq!(acts["items"][0]["outcome"], "done", "{acts:#}");
}
