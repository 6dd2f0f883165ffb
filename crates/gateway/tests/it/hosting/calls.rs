//! Rows 1.6, 1.7, 1.10 and 1.15 on images and sandboxed commands: calls that take too long, wait or are not answered, and servers
//! that keep crashing.

use std::thread;

use serde_json::{Value, json};

use super::{HOSTED, Rig, SECOND, USERS};

// rows 1.6 and 1.7
#[test]
fn calls_go_one_at_a_time_and_a_timeout_restarts_nothing() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            let before = rig.server(rung, rung, &json!({"late_grace": "1s"}));
            let spec = &before["spec"];
            assert_eq!(
                (&spec["concurrency"], &spec["timeout"]),
                (&json!(1), &json!("30s"))
            );
            let path = format!("/api/v1/mcp/servers/{rung}/call");
            let echo = |text: &str, delay: u64, timeout: u64| {
                let arguments = json!({"text": text, "delay_ms": delay});
                let body = json!({
                    "method": "tools/call",
                    "params": {"name": "echo", "arguments": arguments},
                    "timeout_ms": timeout,
                });
                rig.gantry.rest("POST", &path, Some(&body))
            };
            thread::scope(|scope| {
                let first = scope.spawn(|| echo("first", 1000, 20_000));
                let holds = |count: u64| {
                    move |now: &Value| {
                        let queue = &now["queue"];
                        assert!(queue["in_flight"].as_u64() <= Some(1), "{queue}");
                        queue["in_flight"] == 1 && queue["waiting"] == count
                    }
                };
                rig.gantry.wait_status(rung, 10 * SECOND, holds(0));
                let second = scope.spawn(|| echo("second", 0, 20_000));
                rig.gantry.wait_status(rung, 10 * SECOND, holds(1));
                for call in [first, second] {
                    let answer = call.join().unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
            let late = echo("late", 1500, 500);
            assert_eq!(late.status, 504, "{}", late.text());
            assert_eq!(late.json()["code"], "call.timeout");
            let next = echo("next", 0, 20_000);
            assert!(next.text().contains("next"), "{}", next.text());
            let after = rig.gantry.status(rung);
            assert_eq!(
                (&after["generation"], &after["restart_count"]),
                (&before["generation"], &json!(0))
            );
            rig.gantry.events(rung, "call_timeout", 1);
        }
    }
}

// row 1.10, fault P2
#[test]
fn an_image_that_keeps_crashing_waits_longer_and_is_warned_of() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            let members = json!({"entrypoint": ["/bin/sh", "-c", "echo broken >&2; exit 7"]});
            let answer = rig.register(rung, rung, &members);
            assert_eq!(answer.0, 201, "{}", answer.1);
        }
        for rung in HOSTED {
            let waits = |now: &Value| now["next_try"]["in_ms"].as_u64() > Some(3000);
            let status = rig.gantry.wait_status(rung, 30 * SECOND, waits);
            let reason = status["reason"].as_str().unwrap();
            // On a machine that sees it late one more, and the next step.
            let is_first = reason.starts_with("backing off 5s: 4 failures within 60s");
            let is_next = reason.starts_with("backing off 15s: 5 failures within 60s");
            assert!(is_first || is_next, "{reason}");
            assert!(reason.contains("exit code 7"), "{reason}");
            assert_eq!(status["health_warning"], true);
            let backoff = &status["spec"]["restart"]["backoff"];
            assert_eq!(*backoff, json!(["5s", "15s", "45s", "2m", "5m"]));
            let attempts = status["attempts"].as_array().unwrap();
            let codes = attempts.iter().filter(|one| one["exit_code"] == 7);
            assert!(codes.count() >= 4, "{attempts:#?}");
            rig.gantry.events(rung, "health_warning", 1);
        }
    }
}

// row 1.15
#[test]
fn an_image_that_does_not_answer_is_marked_and_kept() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            let peer = [
                "/bin/evilpeer",
                "--inside",
                "--era",
                "legacy",
                "--fault",
                "unresponsive-ping",
                "--fault-after",
                "1",
            ];
            let members = json!({
                "entrypoint": peer, "health_every": "200ms", "health_timeout": "2s",
            });
            let first = rig.server(rung, rung, &members);
            assert_eq!(first["spec"]["when_unresponsive"], "keep");
            assert_eq!(rig.tool(rung, "echo", json!({"text": "x"})), "x");
        }
        for rung in HOSTED {
            let status = rig.gantry.wait_state(rung, "unresponsive", 20 * SECOND);
            assert_eq!(status["restart_count"], 0);
            assert_eq!(status["attempts"].as_array().unwrap().len(), 1);
            rig.gantry.events(rung, "unresponsive", 1);
            // It may be doing long work: calls still reach it.
            assert_eq!(rig.tool(rung, "echo", json!({"text": "y"})), "y");
        }
    }
}
