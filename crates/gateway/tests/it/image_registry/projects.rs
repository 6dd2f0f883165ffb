//! Images belong to the project that pulled them: another one needs the right to read them itself.

use gantry_testkit::registry::{RegistryAccess, USER};
use serde_json::{Value, json};

use super::{Pulled, SECOND};

const ACME: &str = "/api/v1/projects/acme";

// fault T1
#[test]
fn a_private_image_is_run_by_projects_that_could_pull_it_and_by_no_other() {
    let rig = Pulled::new(RegistryAccess::Closed);
    let registry = rig.registry.address().to_string();
    let (user, password) = USER;
    let login = json!({"username": user, "password": password});
    let logins = format!("/images/logins/{registry}");
    let rest = |method: &str, path: &str, body: Option<&Value>| {
        let answer = rig.gantry.rest(method, path, body);
        let text = answer.text();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        (answer.status, value)
    };
    assert_eq!(
        rest("PUT", &format!("/api/v1{logins}"), Some(&login)).0,
        200
    );
    let (status, pulled) = rest("POST", "/api/v1/images", Some(&json!({"image": rig.image})));
    assert_eq!(status, 200, "{pulled:#}");
    let digest = pulled["items"][0]["digest"].as_str().unwrap();
    let tagged = rig.image.clone();
    let pinned = format!("{}@{digest}", tagged.trim_end_matches(":1"));

    // Who knows its digest has no right to it: not to run it, see it or remove it.
    let made = rest("POST", "/api/v1/projects", Some(&json!({"name": "acme"})));
    assert_eq!(made.0, 201, "{:#}", made.1);
    for (name, image, pull) in [
        ("tag", &tagged, "missing"),
        ("digest", &pinned, "missing"),
        ("never", &pinned, "never"),
    ] {
        let body = json!({
            "name": name, "image": image, "provider": "namespaces", "pull": pull,
            "start": "eager",
        });
        let servers = format!("{ACME}/mcp/servers");
        let made = rest("POST", &servers, Some(&body));
        assert_eq!(made.0, 201, "{:#}", made.1);
        let mut last = Value::Null;
        let failed = gantry_testkit::wait::eventually(30 * SECOND, || {
            last = rest("GET", &format!("{servers}/{name}"), None).1;
            last["state"] == "failed"
        });
        assert!(failed.is_some(), "{last:#}");
    }
    let listed = rest("GET", &format!("{ACME}/images"), None).1;
    assert_eq!(listed["items"], json!([]));
    let path = format!("/images?image={tagged}");
    let removed = rest("DELETE", &format!("{ACME}{path}"), None);
    assert_eq!(
        (removed.0, &removed.1["code"]),
        (404, &json!("image.absent"))
    );
    assert_eq!(rest("POST", &format!("{ACME}/images/prune"), None).0, 200);
    let listed = rest("GET", "/api/v1/images", None).1;
    assert_eq!(listed["items"][0]["digest"], *digest, "{listed:#}");

    // With a login of its own it pulls and runs it; then each removes its own only.
    assert_eq!(rest("PUT", &format!("{ACME}{logins}"), Some(&login)).0, 200);
    let restart = format!("{ACME}/mcp/servers/digest/restart");
    assert_eq!(rest("POST", &restart, None).0, 200);
    let mut last = Value::Null;
    let ready = gantry_testkit::wait::eventually(60 * SECOND, || {
        last = rest("GET", &format!("{ACME}/mcp/servers/digest"), None).1;
        last["state"] == "ready"
    });
    assert!(ready.is_some(), "{last:#}");
    assert_eq!(rest("DELETE", &format!("/api/v1{path}"), None).0, 200);
    let listed = rest("GET", "/api/v1/images", None).1;
    assert_eq!(listed["items"], json!([]));
    let listed = rest("GET", &format!("{ACME}/images"), None).1;
    assert_eq!(listed["items"][0]["image"], *pinned, "{listed:#}");
    assert_eq!(rest("POST", &restart, None).0, 200);
    let ready = gantry_testkit::wait::eventually(60 * SECOND, || {
        last = rest("GET", &format!("{ACME}/mcp/servers/digest"), None).1;
        last["state"] == "ready"
    });
    assert!(ready.is_some(), "{last:#}");
    assert_eq!(rest("DELETE", ACME, None).0, 204);
    let left = rig.gantry.data().join("images/layers");
    assert_eq!(std::fs::read_dir(left).unwrap().count(), 0);
}
