//! Rows 1.1, 1.3–1.5, 1.8 and 1.12–1.18: registered, called, shown, restarted, on the rung that was asked for.

use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::{HOSTED, RUNGS, Rig, SECOND, USERS};

// rows 1.1, 1.3, 1.4, 1.5, 1.13, 1.14, 1.16 and 1.18
#[test]
fn an_image_is_registered_called_and_shown_on_every_rung() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in RUNGS {
            let members = json!({"environment": {"API_TOKEN": "s3cret-canary"}});
            let status = rig.server(rung, rung, &members);
            assert_eq!(status["provider"]["name"], rung, "{status:#}");
            let reason = status["provider"]["reason"].as_str().unwrap();
            assert!(reason.contains("asked for"), "{reason}");
            // Proved from inside.
            let kernel = rig.shell(rung, "cat /proc/version");
            assert_eq!(kernel.contains("4.4.0"), rung == "gvisor", "{kernel}");
            assert_eq!(rig.shell(rung, "cat /image"), "team/peer");
            let env: Value = serde_json::from_str(&rig.tool(rung, "env", json!({}))).unwrap();
            assert_eq!(env["FROM_IMAGE"], "yes");
            assert_ne!(env["API_TOKEN"], Value::Null);
            assert_eq!(
                env["HOME"].as_str().map(|home| home.contains("tmp")),
                Some(false)
            );
            let text = rig
                .gantry
                .rest("GET", "/api/v1/mcp/servers", None)
                .text()
                .to_owned();
            assert!(text.contains(&rig.image) && !text.contains("s3cret-canary"));
            assert!(!status.to_string().contains("s3cret-canary"));
            let image = &status["hosting"]["image"];
            assert!(image["digest"].as_str().unwrap().starts_with("sha256:"));
            assert_eq!(image["layers"].as_array().unwrap().len(), 1);
            let limits = status["hosting"]["limits"].as_array().unwrap();
            let limit = |name: &str| {
                let found = limits.iter().find(|limit| limit["name"] == name);
                found.unwrap()["value"].as_f64().unwrap()
            };
            assert_eq!(limit("cpu"), 0.5);
            assert_eq!(limit("memory"), f64::from(512 << 20));
            assert_eq!(limit("disk"), f64::from(1 << 30));
            for limit in limits {
                let told = limit["state"] == "enforced" || limit["state"] == "not_enforced";
                assert!(told && limit["detail"] != "", "{limit}");
                if rig.is_root {
                    assert_eq!(limit["state"], "enforced", "{limit}");
                }
            }
            let usage = &status["usage"];
            assert!(usage["memory_bytes"].as_u64().unwrap() > 0, "{usage}");
            let error = rig.call(rung, "rpc_error", json!({"code": -32050, "message": "no"}));
            assert!(error.to_string().contains("-32050"), "{error:#}");
        }
    }
}

// rows 1.8, 1.11 and 1.12
#[test]
fn images_are_restarted_by_hand_and_with_the_gateway() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            rig.server(rung, rung, &json!({}));
        }
        for rung in HOSTED {
            let before = rig.gantry.status(rung)["generation"].clone();
            let begun = Stopwatch::start();
            let path = format!("/api/v1/mcp/servers/{rung}/restart");
            assert!(rig.gantry.rest("POST", &path, None).status < 300);
            let again = |now: &Value| now["state"] == "ready" && now["generation"] != before;
            let status = rig.gantry.wait_status(rung, 20 * SECOND, again);
            assert!(begun.elapsed() < 15 * SECOND, "{:?}", begun.elapsed());
            assert_eq!(status["restart_count"], 0);
        }
        let begun = Stopwatch::start();
        let mut rig = rig;
        assert_eq!(rig.gantry.stop(), Some(0));
        assert!(begun.elapsed() < 30 * SECOND, "{:?}", begun.elapsed());
        let rig = rig.again();
        for rung in HOSTED {
            rig.gantry.wait_state(rung, "ready", 20 * SECOND);
            assert_eq!(rig.tool(rung, "echo", json!({"text": "x"})), "x");
        }
    }
}

// row 1.18, fault C12
#[test]
fn a_provider_that_is_not_there_and_a_floor_that_is_not_reached_refuse_with_the_reason() {
    for user in USERS {
        let rig = Rig::new(user);
        for (name, provider) in [("a", "firecracker"), ("b", "e2b")] {
            rig.register(name, provider, &json!({}));
            let failed = |now: &Value| now["state"] == "failed";
            let status = rig.gantry.wait_status(name, 20 * SECOND, failed);
            let reason = status["reason"].as_str().unwrap();
            assert!(reason.contains("provider_unavailable"), "{reason}");
        }
        let floor = json!({"isolation_floor": "gvisor"});
        rig.register("c", "namespaces", &floor);
        let failed = |now: &Value| now["state"] == "failed";
        let status = rig.gantry.wait_status("c", 20 * SECOND, failed);
        let reason = status["reason"].as_str().unwrap();
        assert!(reason.contains("isolation_floor"), "{reason}");
        // Without a word the best there is.
        let status = rig.server("d", "auto", &floor);
        assert_eq!(status["provider"]["name"], "gvisor");
    }
}
