//! Faults C4 and C6: images that a real registry does not have, does not give, or has changed; what is told,
//! and that nothing is asked in a loop.

use std::net::TcpListener;

use gantry_testkit::image::Archive;
use gantry_testkit::proof;
use gantry_testkit::registry::{ImageRegistry, RegistryAccess};
use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::super::{RUNGS, Rig, SECOND, USERS};
use super::beside_neighbour;

// fault C4, rows 1.1 and 1.18
#[test]
fn an_image_that_cannot_be_had_or_run_is_told_by_its_reason_and_not_asked_for_in_a_loop() {
    let registry = ImageRegistry::start(RegistryAccess::Open);
    let closed = ImageRegistry::start(RegistryAccess::Closed);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = nobody.local_addr().unwrap();
    drop(nobody);
    let peer = || Archive::peer("team/peer");
    let good = registry.push("team/peer:good", &peer());
    let foreign = registry.push("team/peer:foreign", &peer().architecture("s390x"));
    let empty = registry.push("team/peer:empty", &peer().config("Entrypoint", json!([])));
    let cases = [
        (
            "missing",
            registry.image("team/peer:missing"),
            "has no manifest `missing`",
        ),
        ("foreign", foreign, "s390x"),
        ("empty", empty, "names no program"),
        ("refused", closed.image("team/peer:good"), "refuses access"),
        ("away", format!("{away}/team/peer:1"), "no connection to"),
    ];
    for user in proof::count(&USERS[..], &USERS[..1]) {
        let rig = Rig::new(*user);
        beside_neighbour(&rig, || {
            for (name, image, words) in &cases {
                let watch = Stopwatch::start();
                let (status, answer) = rig.register(name, "auto", &json!({"image": image}));
                assert_eq!(status, 201, "{answer:#}");
                let down = |now: &Value| {
                    ["failed", "backing_off"]
                        .iter()
                        .any(|state| now["state"] == *state)
                };
                let now = rig.gantry.wait_status(name, 20 * SECOND, down);
                assert!(
                    watch.elapsed() < 15 * SECOND,
                    "{name}: {:?}",
                    watch.elapsed()
                );
                let reason = now["reason"].as_str().unwrap_or_default();
                assert!(reason.contains(words), "{name}: {reason}");
                // It did not run: what it may do then is no reason.
                assert!(!reason.contains("no network"), "{name}: {reason}");
                let wrong = rig
                    .gantry
                    .call(&format!("{name}__echo"), json!({"text": "x"}));
                assert!(wrong["error"].is_object(), "{wrong:#}");
            }
            // What can be pulled runs on every rung.
            for rung in RUNGS {
                rig.server(rung, rung, &json!({"image": good}));
                assert_eq!(rig.tool(rung, "echo", json!({"text": "x"})), "x");
            }
        });
        // Two for each try: at once, twice more, then after 5, 15 and 45 seconds.
        let requests = registry.requests_for("missing");
        assert!(requests <= 12, "{requests}");
    }
}

// fault C6
#[test]
fn a_tag_that_moved_changes_nothing_until_that_is_asked_for() {
    let registry = ImageRegistry::start(RegistryAccess::Open);
    let image = |text: &str| Archive::peer("team/peer").file("which", text.as_bytes(), 0o644);
    for user in proof::count(&USERS[..], &USERS[..1]) {
        let reference = registry.push("team/peer:moving", &image("first"));
        let rig = Rig::new(*user);
        let status = rig.server("a", "namespaces", &json!({"image": reference}));
        let digest = status["hosting"]["image"]["digest"].clone();
        assert_eq!(rig.shell("a", "cat /which"), "first");
        registry.push("team/peer:moving", &image("second"));
        let restart = |rig: &Rig| {
            let before = rig.gantry.status("a")["generation"].clone();
            let restarted = rig
                .gantry
                .rest("POST", "/api/v1/mcp/servers/a/restart", None);
            assert!(restarted.status < 300, "{}", restarted.text());
            let again = |now: &Value| now["state"] == "ready" && now["generation"] != before;
            rig.gantry.wait_status("a", 20 * SECOND, again)
        };
        let status = restart(&rig);
        assert_eq!(status["hosting"]["image"]["digest"], digest);
        assert_eq!(rig.shell("a", "cat /which"), "first");
        // Nor does a restart of the gateway change it.
        let mut rig = rig;
        assert_eq!(rig.gantry.stop(), Some(0));
        let rig = rig.again();
        rig.gantry.wait_state("a", "ready", 20 * SECOND);
        assert_eq!(rig.shell("a", "cat /which"), "first");
        let asks = json!({"pull": "always"});
        let path = "/api/v1/mcp/servers/a";
        let changed = rig.gantry.rest("PATCH", path, Some(&asks));
        assert_eq!(changed.status, 200, "{}", changed.text());
        let newer =
            |now: &Value| now["state"] == "ready" && now["hosting"]["image"]["digest"] != digest;
        rig.gantry.wait_status("a", 20 * SECOND, newer);
        assert_eq!(rig.shell("a", "cat /which"), "second");
    }
}
