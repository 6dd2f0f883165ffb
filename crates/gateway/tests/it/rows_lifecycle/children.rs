//! Rows about many children behind one gateway: apart from each other, and gone with it.

use gantry_testkit::journal::{Entry, Journal};
use gantry_testkit::wait::Stopwatch;
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};

use super::{SECOND, echoes, listed};
use crate::harness::{Gantry, LONG, entry};

/// Returns the environment that a server sees.
fn environment(gantry: &Gantry, server: &str) -> Value {
    let answer = gantry.call(&format!("{server}__env"), json!({}));
    let text = answer["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("{answer:#}"))).unwrap()
}

// row 0.3, row 4.9
#[test]
fn each_server_sees_its_own_environment_and_nothing_of_the_gateways() {
    let with = |variable: &str| {
        let mut entry = entry(&Evilpeer::new());
        entry["env"] = json!({variable: "v=1 \"quoted\"", "SHARED": variable});
        entry
    };
    let builder = Gantry::builder()
        .entry("a", with("ONLY_A"))
        .entry("b", with("ONLY_B"));
    let gantry = builder.variable("GATEWAY_CANARY", "secret").start();
    for name in ["a", "b"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let (a, b) = (environment(&gantry, "a"), environment(&gantry, "b"));
    assert_eq!(
        (&a["ONLY_A"], &a["SHARED"]),
        (&json!("v=1 \"quoted\""), &json!("ONLY_A"))
    );
    assert_eq!(
        (&b["ONLY_B"], &b["SHARED"]),
        (&json!("v=1 \"quoted\""), &json!("ONLY_B"))
    );
    let listed = [
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ", "TMPDIR", "LC_ALL",
        "LC_CTYPE",
    ];
    for (seen, other) in [(&a, "ONLY_B"), (&b, "ONLY_A")] {
        assert_eq!(
            (&seen[other], &seen["GATEWAY_CANARY"]),
            (&Value::Null, &Value::Null)
        );
        let own = ["ONLY_A", "ONLY_B", "SHARED"];
        for name in seen.as_object().unwrap().keys() {
            let known = listed.contains(&name.as_str()) || own.contains(&name.as_str());
            assert!(known, "`{name}` is not on the documented list");
        }
    }
    // What is shown of a server's environment is its names.
    let status = gantry.status("a");
    assert_eq!(status["spec"]["env"], json!(["ONLY_A", "SHARED"]));
    assert!(!status.to_string().contains("quoted"));
}

// row 0.3, row 4.10
#[test]
fn command_and_arguments_arrive_as_given() {
    let odd = "a  b $HOME \"q\" 'x' *;|& \\ ü ${NOT_SET:-} %n";
    let odd = odd.replace("${NOT_SET:-} ", "");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name(&odd))
        .start();
    let status = gantry.wait_state("a", "ready", LONG);
    assert_eq!(status["server_info"]["name"], odd);
    let args = status["spec"]["args"].as_array().unwrap();
    assert!(args.contains(&json!(odd)));
}

// row 4.1, row 4.2, row 4.6
#[test]
fn each_server_has_a_process_and_an_id_sequence_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"];
    let mut builder = Gantry::builder();
    for name in names {
        builder = builder.server(name, &Evilpeer::new().journal(&folder.path().join(name)));
    }
    let gantry = builder.start();
    let mut pids: Vec<u64> = Vec::new();
    for name in names {
        pids.push(
            gantry.wait_state(name, "ready", LONG)["pid"]
                .as_u64()
                .unwrap(),
        );
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), names.len());
    for number in 0..12 {
        let name = names[number % names.len()];
        let arguments = json!({"text": name, "nonce": format!("{name}{number}")});
        let answer = gantry.call(&format!("{name}__echo"), arguments);
        assert_eq!(answer["result"]["content"][0]["text"], name);
    }
    for name in names {
        let seen = Journal::read(&folder.path().join(name)).unwrap();
        assert_eq!(seen.calls(), 4);
        assert!(
            seen.nonces().iter().all(|nonce| nonce.starts_with(name)),
            "routed by the registry"
        );
        let id = |entry: &Entry| match entry {
            Entry::Call { id, .. } => id.parse::<u64>().ok(),
            Entry::Started { .. }
            | Entry::Cancelled { .. }
            | Entry::Answer { .. }
            | Entry::Garbled { .. }
            | Entry::Ended => None,
        };
        let ids: Vec<u64> = seen.entries.iter().filter_map(id).collect();
        assert_eq!(ids.len(), 4);
        assert!(
            ids.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "one sequence each: {ids:?}"
        );
    }
}

// row 4.12, row 2.13
#[test]
fn all_servers_stop_with_the_gateway() {
    let marker = "tree-412";
    let mut builder = Gantry::builder();
    for name in ["a", "b", "c"] {
        builder = builder.server(name, &Evilpeer::new().in_tree(marker));
    }
    let mut gantry = builder.start();
    for name in ["a", "b", "c"] {
        gantry.wait_state(name, "ready", LONG);
    }
    procs::wait_count(marker, 15, LONG).unwrap();
    let begun = Stopwatch::start();
    assert_eq!(gantry.stop(), Some(0));
    assert!(
        begun.elapsed() <= 5 * SECOND,
        "well-behaved ones need no kill: {:?}",
        begun.elapsed()
    );
    assert_eq!(procs::with_marker(marker), []);
    assert!(
        !gantry.data().join("gateway.json").exists(),
        "and nobody is told of a gateway"
    );
}

// row 4.13
#[test]
fn the_first_request_starts_everything_and_later_ones_reuse_it() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"];
    let mut builder = Gantry::builder();
    for name in names {
        let peer = Evilpeer::new().journal(&folder.path().join(name));
        builder = builder.server_with(name, &peer, &json!({"start": "lazy"}));
    }
    let gantry = builder.start();
    let starts = || names.map(|name| Journal::read(&folder.path().join(name)).unwrap().starts());
    for name in names {
        assert_eq!(gantry.status(name)["state"], "idle");
    }
    assert_eq!(starts(), [0, 0, 0]);
    let list = listed(&gantry);
    let tools = list["result"]["tools"].as_array().unwrap();
    for name in names {
        assert!(
            tools
                .iter()
                .any(|tool| tool["name"] == format!("{name}__echo")),
            "{name}"
        );
        assert_eq!(gantry.status(name)["state"], "ready");
    }
    for _ in 0..3 {
        gantry.mcp("tools/list", json!({}));
        names.iter().for_each(|name| echoes(&gantry, name));
    }
    assert_eq!(starts(), [1, 1, 1]);
}

// row 2.1
#[test]
fn a_connection_that_fails_says_why() {
    let gantry = Gantry::builder()
        .entry("missing", json!({"command": "/nonexistent/program"}))
        .entry(
            "mute",
            json!({"command": "sh", "args": ["-c", "echo broken config >&2; exit 9"], "allow_shell": true}),
        )
        .start();
    let missing = gantry.wait_state("missing", "failed", LONG);
    let reason = missing["reason"].as_str().unwrap();
    assert!(reason.contains("/nonexistent/program"), "{reason}");
    let mute = gantry.wait_state("mute", "failed", LONG);
    assert!(
        mute["reason"].as_str().unwrap().contains("exit code 9"),
        "{mute:#}"
    );
    assert_eq!(mute["last_crash"]["stderr"], "broken config");
    let answer = gantry.call("mute__anything", json!({}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("server `mute` is down: "), "{message}");
    assert_eq!(answer["error"]["code"], -31503);
}
