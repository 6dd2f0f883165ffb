//! The registration policy of a project, and what waits for a second person.

use serde_json::{Value, json};

use super::{key, peer, refused};
use crate::harness::{Gantry, on_postgresql};

const SERVERS: &str = "/api/v1/mcp/servers";

fn set(gantry: &Gantry, changes: &Value) {
    let answer = gantry.rest("PATCH", "/api/v1/settings", Some(changes));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

// fault G8
#[test]
fn what_the_policy_does_not_allow_gets_in_on_no_path() {
    let gantry = Gantry::start(&["a"]);
    let fits = peer("fits");
    let command = fits["command"].as_str().unwrap();
    set(
        &gantry,
        &json!({"registration.commands": [command], "registration.packages": ["@acme/*"],
            "registration.images": ["registry.example/*"],
            "registration.urls": ["https://*.example.com/*"]}),
    );
    let made = gantry.rest("POST", SERVERS, Some(&fits));
    assert_eq!(made.status, 201, "{}", made.text());
    let one = format!("{SERVERS}/fits");
    let refusals = [
        json!({"name": "x", "command": "/bin/cat"}),
        json!({"name": "x", "image": "docker.io/library/alpine:3"}),
        json!({"name": "x", "url": "https://example.com.evil.net/mcp"}),
        json!({"name": "x", "url": "https://a.example.com/mcp", "proxy": "http://10.0.0.1:3128"}),
    ];
    for body in &refusals {
        for path in [
            SERVERS,
            &format!("{SERVERS}/preview"),
            &format!("{SERVERS}/test"),
        ] {
            refused(
                &gantry.rest("POST", path, Some(body)),
                403,
                "registration.refused",
            );
        }
    }
    let mut other = fits.clone();
    other["command"] = "/bin/cat".into();
    refused(
        &gantry.rest("PUT", &one, Some(&other)),
        403,
        "registration.refused",
    );
    let patch = json!({"command": "/bin/cat"});
    refused(
        &gantry.rest("PATCH", &one, Some(&patch)),
        403,
        "registration.refused",
    );
    // With a floor the profile `local` is out, too.
    set(&gantry, &json!({"registration.isolation_floor": "process"}));
    let mut later = fits;
    later["name"] = "later".into();
    refused(
        &gantry.rest("POST", SERVERS, Some(&later)),
        403,
        "registration.refused",
    );
    // Each attempt is on record, and nothing came of it.
    let acts = gantry
        .rest("GET", "/api/v1/acts?outcome=refused&limit=1000", None)
        .json();
    let rows = acts["items"].as_array().unwrap();
    let count = |act: &str| rows.iter().filter(|row| row["act"] == act).count();
    assert_eq!(count("server.register"), 5, "{acts}");
    assert_eq!((count("server.preview"), count("server.test")), (4, 4));
    assert_eq!(count("server.replace"), 2);
    let listed = gantry.rest("GET", SERVERS, None).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    // A server of a file that the policy does not allow is held when its file is read again.
    let mut gantry = gantry;
    gantry.stop();
    let gantry = gantry.again();
    let shown = gantry.status("a");
    assert_eq!(shown["state"], "misconfigured", "{shown}");
    assert!(
        shown["reason"].as_str().unwrap().contains("isolation"),
        "{shown}"
    );
}

// fault G8
#[test]
fn what_the_policy_does_not_allow_gets_in_on_no_path_on_postgresql() {
    on_postgresql(what_the_policy_does_not_allow_gets_in_on_no_path);
}

// faults G8, K4
#[test]
fn a_second_person_approves_what_the_project_asks_it_for() {
    let mut gantry = Gantry::start(&["a"]);
    set(
        &gantry,
        &json!({"registration.approve": ["local", "all_grants"]}),
    );
    let approver = key(
        &gantry,
        "/api/v1/keys",
        &json!({"kind": "admin", "role": "approver"}),
    );
    let same = json!({"kind": "admin", "role": "admin", "agent": "operator"});
    let same = key(&gantry, "/api/v1/keys", &same);
    let secret = "canary-of-a-registration-91c4";
    let mut body = peer("peer");
    body["env"] = json!({"API_TOKEN": secret});
    let asked = gantry.rest("POST", SERVERS, Some(&body));
    assert_eq!(asked.status, 202, "{}", asked.text());
    let asked = asked.json();
    assert_eq!(
        (&asked["state"], &asked["reasons"]),
        (&json!("pending"), &json!(["local"]))
    );
    assert!(asked["asked"].to_string().contains("API_TOKEN"), "{asked}");
    let id = asked["id"].as_str().unwrap();
    let path = format!("/api/v1/registrations/{id}");
    assert_eq!(
        gantry.rest("GET", &format!("{SERVERS}/peer"), None).status,
        404
    );
    // A trial would run it, and takes the same path.
    let trial = gantry.rest("POST", &format!("{SERVERS}/test"), Some(&body));
    refused(&trial, 403, "registration.approval");
    let preview = gantry.rest("POST", &format!("{SERVERS}/preview"), Some(&body));
    assert_eq!(
        preview.json()["needs_approval"],
        json!(["local"]),
        "{}",
        preview.text()
    );
    // Shown in full but for secrets, which are not in the database in clear either.
    let shown = gantry.rest_as(&approver, "GET", &path, None).text();
    assert!(
        shown.contains("\"profile\":\"local\"") && !shown.contains(secret),
        "{shown}"
    );
    gantry.assert_not_at_rest(secret);
    // Neither who asked nor another key of the same name is a second person.
    let approve = format!("{path}/approve");
    refused(
        &gantry.rest("POST", &approve, None),
        403,
        "registration.own",
    );
    refused(
        &gantry.rest_as(&same, "POST", &approve, None),
        403,
        "registration.own",
    );
    // It waits over a restart.
    gantry.stop();
    let gantry = gantry.again();
    let done = gantry.rest_as(&approver, "POST", &approve, None);
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.json()["state"], "approved");
    assert_eq!(done.json()["decided_by"], "approver");
    let server = gantry.rest("GET", &format!("{SERVERS}/peer"), None);
    assert_eq!(server.status, 200, "{}", server.text());
    refused(
        &gantry.rest_as(&approver, "POST", &approve, None),
        409,
        "registration.decided",
    );
    // An edit of what is sensitive asks again, one of anything else does not.
    let label = json!({"description": "ours"});
    assert_eq!(
        gantry
            .rest("PATCH", &format!("{SERVERS}/peer"), Some(&label))
            .status,
        200
    );
    let args = json!({"args": ["--changed"]});
    let edit = gantry.rest("PATCH", &format!("{SERVERS}/peer"), Some(&args));
    assert_eq!(edit.status, 202, "{}", edit.text());
    let path = format!(
        "/api/v1/registrations/{}",
        edit.json()["id"].as_str().unwrap()
    );
    let answer = gantry.rest("POST", &format!("{path}/refuse"), None);
    assert_eq!(answer.json()["state"], "refused", "who asked takes it back");
    // A grant on everything.
    let agent = json!({"name": "wide", "grant": "all"});
    let asked = gantry.rest("POST", "/api/v1/agents", Some(&agent));
    assert_eq!(asked.status, 202, "{}", asked.text());
    let narrow = json!({"name": "narrow", "grant": ["a:*"]});
    assert_eq!(
        gantry.rest("POST", "/api/v1/agents", Some(&narrow)).status,
        201
    );
    let wider = json!({"grant": "all"});
    let edit = gantry.rest("PATCH", "/api/v1/agents/narrow", Some(&wider));
    assert_eq!(edit.status, 202, "{}", edit.text());
    for asked in [asked, edit] {
        let id = asked.json()["id"].as_str().unwrap().to_owned();
        let done = gantry.rest_as(
            &approver,
            "POST",
            &format!("/api/v1/registrations/{id}/approve"),
            None,
        );
        assert_eq!(done.status, 200, "{}", done.text());
    }
    for name in ["wide", "narrow"] {
        let agent = gantry
            .rest("GET", &format!("/api/v1/agents/{name}"), None)
            .json();
        assert_eq!(agent["grants"], json!(["*"]), "{agent}");
    }
    let listed = gantry.cli(&["registration", "ls"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.matches("approved").count(), 3, "{listed}");
    assert_eq!(listed.matches("refused").count(), 1, "{listed}");
}

// faults G8, K4
#[test]
fn a_second_person_approves_what_the_project_asks_it_for_on_postgresql() {
    on_postgresql(a_second_person_approves_what_the_project_asks_it_for);
}
