//! Fault C6: an image that changes under its tag is shown everywhere and taken only when asked.

use gantry_testkit::registry::RegistryAccess;
use serde_json::{Value, json};

use super::{Pulled, SECOND, version};

// rows 1.1 and 1.12, fault C6
#[test]
fn an_image_that_changed_under_its_tag_is_shown_and_taken_only_when_asked() {
    let mut rig = Pulled::new(RegistryAccess::Open);
    // The real registry is pulled from once per rung.
    for rung in ["gvisor", "namespaces"] {
        rig.register(rung, rung);
    }
    let digest = |status: &Value| status["image_digest"].as_str().unwrap().to_owned();
    let gvisor = rig.gantry.wait_state("gvisor", "ready", 60 * SECOND);
    let old = rig.gantry.wait_state("namespaces", "ready", 60 * SECOND);
    let old = digest(&old);
    assert_eq!(digest(&gvisor), old);
    assert_eq!(rig.version("gvisor"), "1");
    assert_eq!(rig.version("namespaces"), "1");

    // Nothing has changed yet.
    let check = || rig.gantry.rest("POST", "/api/v1/images/check", None).json();
    let same = check();
    for item in same["items"].as_array().unwrap() {
        assert_eq!(
            (&item["changed"], &item["error"]),
            (&json!(false), &Value::Null)
        );
        assert_eq!(item["digest"], *old);
    }
    let status = rig.gantry.status("namespaces");
    assert_eq!(status.pointer("/hosting/image/changed"), Some(&Value::Null));

    rig.registry.push("team/peer:1", &version(2));
    let moved = check();
    assert_eq!(moved["items"].as_array().unwrap().len(), 2, "{moved:#}");
    let new = moved["items"][0]["tag_digest"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(moved["items"][0]["changed"], true);
    // Status, list, images, event, health, and the command line.
    let status = rig.gantry.status("namespaces");
    let changed = status.pointer("/hosting/image/changed/digest");
    assert_eq!(changed, Some(&json!(new)));
    assert_eq!(
        (&status["image_changed"], digest(&status)),
        (&json!(true), old.clone())
    );
    let images = rig.gantry.rest("GET", "/api/v1/images", None).json();
    assert_eq!(images["items"][0]["changed"]["digest"], *new, "{images:#}");
    let told = rig.gantry.events("namespaces", "image_changed", 1);
    assert!(
        told[0].contains(&new) && told[0].contains("--pull"),
        "{told:?}"
    );
    let health = rig.gantry.rest("GET", "/api/v1/health", None).text();
    assert!(health.contains(&new), "{health}");
    let shown = |arguments: &[&str]| {
        let output = rig.gantry.cli(arguments);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(shown(&["ls"]).contains("(changed under its tag)"));
    assert!(shown(&["images", "ls"]).contains("(tag is"));
    assert!(shown(&["images", "check"]).contains("(changed)"));
    assert!(shown(&["status", "namespaces"]).contains("--pull"));
    assert!(shown(&["doctor"]).contains("--pull"));
    // Told once, however often it is looked at.
    check();
    assert_eq!(rig.gantry.events("namespaces", "image_changed", 1).len(), 1);

    // A restart, and one of the gateway, keep what they have.
    let restart = "/api/v1/mcp/servers/namespaces/restart";
    assert_eq!(rig.gantry.rest("POST", restart, None).status, 200);
    rig.gantry.wait_state("namespaces", "ready", 30 * SECOND);
    assert_eq!(rig.version("namespaces"), "1");
    rig.gantry.stop();
    rig.gantry = rig.gantry.again();
    rig.gantry.wait_state("namespaces", "ready", 30 * SECOND);
    assert_eq!(rig.version("namespaces"), "1");

    // Asked for, it is taken, and by that server alone.
    let output = rig.gantry.cli(&["restart", "namespaces", "--pull"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("1/1 layers"), "{stderr}");
    assert_eq!(rig.version("namespaces"), "2");
    let status = rig.gantry.status("namespaces");
    assert_eq!(
        (&status["image_changed"], digest(&status)),
        (&json!(false), new.clone())
    );
    rig.gantry.wait_state("gvisor", "ready", 60 * SECOND);
    assert_eq!(rig.version("gvisor"), "1");

    // A registry that is away leaves the server as it is.
    let pid = status["pid"].clone();
    drop(rig.registry);
    let body = json!({"pull": true});
    let answer = rig.gantry.rest("POST", restart, Some(&body));
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert_eq!(answer.json()["code"], "image.unreachable");
    let status = rig.gantry.status("namespaces");
    assert_eq!((&status["state"], &status["pid"]), (&json!("ready"), &pid));
    assert_eq!(digest(&status), new);

    // What the other server keeps to stays in the store, and starts without the registry.
    let images = rig.gantry.rest("GET", "/api/v1/images", None).json();
    let users = |digest: &str| {
        let items = images["items"].as_array().unwrap();
        let found = items.iter().find(|item| item["digest"] == *digest);
        found.unwrap_or_else(|| panic!("{images:#}"))["servers"].clone()
    };
    assert_eq!(users(&old), json!(["gvisor"]));
    assert_eq!(users(&new), json!(["namespaces"]));
    let prune = rig.gantry.rest("POST", "/api/v1/images/prune", None);
    assert_eq!(prune.status, 200, "{}", prune.text());
    rig.gantry.stop();
    rig.gantry = rig.gantry.again();
    let status = rig.gantry.wait_state("gvisor", "ready", 60 * SECOND);
    assert_eq!(digest(&status), old);
}

#[test]
fn only_an_image_can_be_pulled_for_a_restart() {
    let gantry = crate::harness::Gantry::start(&["plain"]);
    let restart = "/api/v1/mcp/servers/plain/restart";
    let refused = gantry.rest("POST", restart, Some(&json!({"pull": true})));
    assert_eq!(
        (refused.status, refused.json()["code"].clone()),
        (409, json!("server.no_image"))
    );
    let unknown = gantry.rest("POST", restart, Some(&json!({"pul": true})));
    assert_eq!(unknown.status, 422, "{}", unknown.text());
    assert_eq!(gantry.rest("POST", restart, Some(&json!({}))).status, 200);
    let none = "/api/v1/mcp/servers/none/restart";
    assert_eq!(
        gantry
            .rest("POST", none, Some(&json!({"pull": true})))
            .status,
        404
    );
}
