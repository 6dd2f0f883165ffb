//! Servers that do not get through the handshake, and one that only echoes.

use std::fs;
use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Era, Evilpeer, procs, proof};
use serde_json::{Value, json};

use super::{
    CALLS, EVIL, GOOD, Rig, SECOND, all_echoed, all_within, beside_good, echo, put_over, short,
    stays_down, table_name,
};
use crate::harness::{Gantry, LONG, needs_root};

/// What a handshake may take here, and what a probe may before `initialize` follows it.
const HANDSHAKE: Duration = Duration::from_millis(1500);
const PROBE: Duration = Duration::from_millis(300);

/// Returns how long a server's only start took until it ended in an event of this kind.
fn start_took(rig: &Rig, server: &str, kind: &str) -> Duration {
    rig.gantry.events(server, "starting", 1);
    rig.gantry.events(server, kind, 1);
    let path = format!("/api/v1/mcp/servers/{server}/events?limit=1000");
    let events = rig.gantry.rest("GET", &path, None).json();
    let at = |kind: &str| {
        let mut items = events["items"].as_array().unwrap().iter();
        let found = items.find(|event| event["kind"] == kind);
        found.and_then(|event| event["at_ms"].as_u64()).unwrap()
    };
    Duration::from_millis(at(kind) - at("starting"))
}

// fault S18
#[test]
fn a_failed_handshake_leaves_nothing_but_its_reason() {
    let rows = [
        (
            Era::Dual,
            "init-hang",
            "did not answer `initialize` within 1",
        ),
        (
            Era::Legacy,
            "init-hang",
            "did not answer `initialize` within 1",
        ),
        (
            // It refuses `initialize`, which it does not know.
            Era::Modern,
            "init-hang",
            "did not answer `server/discover` within 1",
        ),
        (
            Era::Dual,
            "init-error",
            "answered `initialize` with error -32603: no licence key found",
        ),
        (Era::Dual, "init-garbage", "expected"),
        (Era::Legacy, "init-garbage", "expected"),
        (Era::Dual, "init-wrong-version", "1999-01-01"),
        (Era::Legacy, "init-wrong-version", "1999-01-01"),
    ];
    let mut members = short(&stays_down());
    put_over(&mut members, &json!({"life": {"probe": "300ms"}}));
    let mut builder = beside_good();
    for (place, (era, fault, _)) in rows.iter().enumerate() {
        let peer = Evilpeer::new().name("lost-s18").era(*era).fault(fault);
        // Who answers is given the time for it, however late it gets to run.
        let hangs = *fault == "init-hang";
        members["life"]["handshake"] = json!(if hangs { "1500ms" } else { "10s" });
        builder = builder.server_with(&table_name(place), &peer, &members);
    }
    let watch = Stopwatch::start();
    let rig = Rig::of(builder.start());
    for (place, (_, fault, why)) in rows.iter().enumerate() {
        let server = table_name(place);
        let status = rig.gantry.wait_state(&server, "failed", LONG);
        let reason = status["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{fault}: {reason}");
        let took = start_took(&rig, &server, "start_failed");
        let most = HANDSHAKE + SECOND + watch.stood_still();
        assert!(took <= most, "{fault}: {took:?}");
        let shown = status["next_try"]["text"].as_str().unwrap();
        assert!(shown.starts_with("next try in "), "{shown}");
        assert_eq!(status["pid"], Value::Null);
        let replies = rig.at_once_on(&server, CALLS, "echo", echo);
        all_within(&replies, SECOND);
        for reply in &replies {
            let message = reply.answer["error"]["message"]
                .as_str()
                .unwrap_or_default();
            assert!(
                message.starts_with(&format!("server `{server}` is down: ")),
                "{message}"
            );
            assert!(
                message.contains(why) && message.contains("; next try in "),
                "{message}"
            );
            reply.fails(-31503, message, "server.down");
        }
        rig.audited(&server, &[(CALLS, "error", Some("server.down"))]);
    }
    assert_eq!(procs::wait_gone("lost-s18", SECOND).map(|_| ()), Ok(()));
    let reaped = eventually(SECOND, || procs::zombies_of(rig.gantry.pid).is_empty());
    assert!(reaped.is_some());
}

// fault S18
#[test]
fn a_server_that_dislikes_the_probe_is_greeted_the_old_way() {
    let faults = ["discover-hang", "discover-exit"];
    let peer = |fault: &&str| Evilpeer::new().era(Era::Legacy).fault(fault);
    let watch = Stopwatch::start();
    let rig = Rig::table(&faults, peer, &json!({"life": {"probe": "300ms"}}));
    let took = start_took(&rig, &table_name(0), "ready");
    let most = PROBE + SECOND + watch.stood_still();
    assert!((PROBE..=most).contains(&took), "{took:?}");
    for place in 0..faults.len() {
        let server = table_name(place);
        let status = rig.gantry.status(&server);
        assert_eq!(status["protocol_version"], "2025-11-25");
        all_echoed(&rig.at_once_on(&server, CALLS, "echo", echo));
        rig.audited(&server, &[(CALLS, "ok", None)]);
    }
}

// fault S18
#[test]
fn failed_attempts_leave_no_descriptor_and_no_process() {
    needs_root();
    // A thousand in all, in the profile `proof`.
    let (many, some, few) = proof::count((400, 160, 20), (40, 16, 2));
    let gantry = Gantry::start(&[GOOD]);
    // Name, attempts, and what goes wrong. Those that do not answer the probe in words that can be read
    // are given more than a second each time, so that they have the fewest.
    let refusal = "no licence key found";
    let kinds: [(&str, u64, Era, &[&str], &str); 5] = [
        ("never", some, Era::Dual, &["init-hang"], "did not answer"),
        ("refused", many, Era::Dual, &["init-error"], refusal),
        ("garbage", few, Era::Dual, &["init-garbage"], "expected"),
        (
            "foreign",
            many,
            Era::Dual,
            &["init-wrong-version"],
            "1999-01-01",
        ),
        (
            "probed",
            few,
            Era::Legacy,
            &["discover-hang", "init-error"],
            refusal,
        ),
    ];
    procs::resting_fds(gantry.pid, LONG);
    let before = procs::open_fds_beside(gantry.pid, "gantry.db");
    let restart = json!({"at_once": 0, "window": "1m", "ladder": ["1ms"], "reset_after": "10m"});
    for (name, _, era, faults, _) in kinds {
        let peer = Evilpeer::new().name("lost-again-s18").era(era);
        let argv = faults
            .iter()
            .fold(peer, |peer, fault| peer.fault(fault))
            .argv();
        // Who never answers is given up soon, so that many attempts fit.
        let patience = match name {
            "never" => "100ms",
            "probed" => "2s",
            _ => "60s",
        };
        let body = json!({
            "name": name, "command": argv[0], "args": argv[1..], "profile": "local",
            "start": "eager", "restart": restart, "handshake_timeout": patience,
        });
        let registered = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(registered.status, 201, "{}", registered.text());
    }
    let rig = Rig::of(gantry);
    let mut attempts = 0;
    for (name, least, .., why) in kinds {
        let often = |status: &Value| status["restart_count"].as_u64() >= Some(least);
        let status = rig.gantry.wait_status(name, 20 * LONG, often);
        assert!(status["health_warning"].as_bool().unwrap());
        let path = format!("/api/v1/mcp/servers/{name}/events?limit=10");
        let events = rig.gantry.rest("GET", &path, None).text();
        assert!(events.contains(why), "{events}");
        attempts += status["restart_count"].as_u64().unwrap();
        // Who has its number makes room for the others.
        let path = format!("/api/v1/mcp/servers/{name}");
        assert_eq!(rig.gantry.rest("DELETE", &path, None).status, 204);
    }
    assert!(attempts >= 2 * (many + few) + some, "{attempts}");
    rig.beside_neighbour(|| ());
    assert_eq!(
        procs::wait_gone("lost-again-s18", SECOND).map(|_| ()),
        Ok(())
    );
    let now = || procs::open_fds_beside(rig.gantry.pid, "gantry.db");
    assert!(
        eventually(LONG, || now() <= before).is_some(),
        "{before} descriptors before, {} after {attempts} attempts",
        now()
    );
    let reaped = eventually(SECOND, || procs::zombies_of(rig.gantry.pid).is_empty());
    assert!(reaped.is_some());
}

// fault S18
#[test]
fn a_handshake_has_a_minute_unless_told() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    assert_eq!(rig.gantry.status(GOOD)["spec"]["handshake_timeout"], "1m");
}

// fault S20
#[test]
fn a_server_that_echoes_is_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let heard = folder.path().join("heard");
    let mut tee = json!({"command": "tee", "args": [heard]});
    put_over(&mut tee, &short(&stays_down()));
    let cat = Evilpeer::new().fault("echo");
    let builder = beside_good()
        .entry(EVIL, tee)
        .server_with("cat", &cat, &short(&stays_down()));
    let rig = Rig::of(builder.start());
    for server in [EVIL, "cat"] {
        let status = rig.gantry.wait_state(server, "failed", LONG);
        let reason = status["reason"].as_str().unwrap();
        let why = "echoes what it is sent (`server/discover`), so it is not an MCP server";
        assert!(reason.contains(why), "{reason}");
        let replies = rig.at_once_on(server, CALLS, "echo", echo);
        all_within(&replies, SECOND);
        for reply in &replies {
            let message = reply.answer["error"]["message"]
                .as_str()
                .unwrap_or_default();
            assert!(message.contains(why), "{message}");
            reply.fails(-31503, message, "server.down");
        }
        rig.audited(server, &[(CALLS, "error", Some("server.down"))]);
    }
    let heard = fs::read_to_string(&heard).unwrap();
    let errors = heard
        .lines()
        .filter(|line| line.contains("\"error\""))
        .count();
    assert!(
        heard.lines().count() <= 4 && errors <= 1,
        "no echo storm:\n{heard}"
    );
}
