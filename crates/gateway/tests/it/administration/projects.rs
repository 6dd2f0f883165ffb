//! Projects made, used, unloaded, loaded and deleted through the program.

use serde_json::{Value, json};

use super::{calling, is_gone, key, peer, refused, under_way};
use crate::harness::{Gantry, LONG, modern, on_postgresql};
use gantry_testkit::wait::eventually;

const SERVER: &str = "/api/v1/projects/acme/mcp/servers/peer";

/// Makes the project `acme` with a server, and returns the keys of its admin and its agent.
fn acme(gantry: &Gantry) -> (String, String) {
    let body = json!({"name": "acme", "description": "another tenant"});
    let made = gantry.rest("POST", "/api/v1/projects", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header("location"), Some("/api/v1/projects/acme"));
    let admin = json!({"kind": "admin", "role": "admin"});
    let admin = key(gantry, "/api/v1/projects/acme/keys", &admin);
    let agent = json!({"name": "worker", "grant": "all"});
    let agents = "/api/v1/projects/acme/agents";
    let made = gantry.rest("POST", agents, Some(&agent));
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(
        made.header("location"),
        Some("/api/v1/projects/acme/agents/worker")
    );
    let agent = json!({"kind": "agent", "agent": "worker"});
    let agent = key(gantry, "/api/v1/projects/acme/keys", &agent);
    // Its own admin registers: today's paths mean the key's project.
    let made = gantry.rest_as(&admin, "POST", "/api/v1/mcp/servers", Some(&peer("peer")));
    assert_eq!(made.status, 201, "{}", made.text());
    ready(gantry);
    (admin, agent)
}

fn ready(gantry: &Gantry) -> Value {
    let state = || gantry.rest("GET", SERVER, None).json();
    let came = eventually(LONG, || state()["state"] == "ready");
    assert!(came.is_some(), "{}", state());
    state()["pid"].clone()
}

fn tools(gantry: &Gantry, key: &str) -> Vec<String> {
    let listed = modern(&mut gantry.connect(), key, "/mcp", "tools/list", json!({})).message();
    let tools = listed["result"]["tools"].as_array().cloned();
    let tools = tools.unwrap_or_else(|| panic!("{listed}"));
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

// rows 0.1, 0.5, 3.2, faults T1, T2
#[test]
fn a_project_is_made_used_unloaded_and_loaded_again() {
    let mut gantry = Gantry::start(&["a"]);
    let (admin, agent) = acme(&gantry);
    // The key selects the project.
    let own = tools(&gantry, &agent);
    assert!(own.iter().all(|tool| tool.starts_with("peer__")), "{own:?}");
    assert!(
        tools(&gantry, &gantry.agent)
            .iter()
            .all(|tool| tool.starts_with("a__"))
    );
    // Another project is not there: the same answer as for one that never was.
    for path in ["keys", "mcp/servers", "mcp/servers/a", "calls", "settings"] {
        let [other, none] = ["local", "gone1"].map(|project| {
            let path = format!("/api/v1/projects/{project}/{path}");
            let answer = gantry.rest_as(&admin, "GET", &path, None);
            (answer.status, answer.text().replace(project, "PROJECT"))
        });
        assert_eq!(other.0, 404, "{other:?}");
        assert_eq!(other, none);
    }
    let seen = gantry
        .rest_as(&admin, "GET", "/api/v1/projects", None)
        .json();
    assert_eq!(seen["items"].as_array().unwrap().len(), 1, "{seen}");
    let make = json!({"name": "mine"});
    let answer = gantry.rest_as(&admin, "POST", "/api/v1/projects", Some(&make));
    refused(&answer, 403, "auth.role");
    // Unloaded: the call ends, the process with its tree is gone, keys are told so.
    let pid = ready(&gantry);
    let call = calling(&gantry, &agent, "peer__slow");
    under_way(&gantry, "/api/v1/projects/acme/calls", 1);
    let done = gantry.cli(&["project", "unload", "acme"]);
    assert!(done.status.success(), "{done:?}");
    let (status, code, _) = call.join().unwrap();
    assert!(status != 200, "{status} {code}");
    assert!(is_gone(&pid));
    for _ in 0..2 {
        let answer = gantry.rest_as(&admin, "GET", "/api/v1/mcp/servers", None);
        refused(&answer, 403, "auth.suspended");
        let answer = gantry.rest_as(&agent, "GET", "/api/v1/tools", None);
        refused(&answer, 403, "auth.suspended");
        assert_eq!(gantry.rest("GET", SERVER, None).status, 404);
        let shown = gantry.rest("GET", "/api/v1/projects/acme", None).json();
        assert_eq!(shown["loaded"], false, "{shown}");
        // The folder's own project goes on, and it is the same after a restart.
        assert!(!tools(&gantry, &gantry.agent).is_empty());
        gantry.stop();
        gantry = gantry.again();
    }
    let done = gantry.cli(&["project", "load", "acme"]);
    assert!(done.status.success(), "{done:?}");
    ready(&gantry);
    assert_eq!(tools(&gantry, &agent), own);
    // The data folder's own project stays.
    let body = json!({"loaded": false});
    let answer = gantry.rest("PATCH", "/api/v1/projects/local", Some(&body));
    refused(&answer, 409, "project.of_folder");
    let listed = gantry.cli(&["--project", "acme", "ls", "--json"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("\"peer\"") && !listed.contains("\"a\""),
        "{listed}"
    );
}

// rows 0.1, 0.5, 3.2, faults T1, T2
#[test]
fn a_project_is_made_used_unloaded_and_loaded_again_on_postgresql() {
    on_postgresql(a_project_is_made_used_unloaded_and_loaded_again);
}

// fault T9
#[test]
fn a_deleted_project_leaves_its_record_and_nothing_else() {
    let mut gantry = Gantry::start(&["a"]);
    let (admin, agent) = acme(&gantry);
    let secret = "canary-of-a-deleted-project-5e3a";
    let change = json!({"env": {"API_TOKEN": secret}, "description": "has a secret"});
    let answer = gantry.rest_as(&admin, "PATCH", "/api/v1/mcp/servers/peer", Some(&change));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let pid = ready(&gantry);
    let call = calling(&gantry, &agent, "peer__slow");
    under_way(&gantry, "/api/v1/projects/acme/calls", 1);
    let folder = gantry.data().join("projects/acme");
    assert!(folder.is_dir());
    let refusal = gantry.cli(&["project", "rm", "acme"]);
    assert!(!refusal.status.success(), "it asks first: {refusal:?}");
    let done = gantry.cli(&["project", "rm", "acme", "--yes"]);
    assert!(done.status.success(), "{done:?}");
    assert_ne!(call.join().unwrap().0, 200);
    assert!(is_gone(&pid));
    assert!(!folder.exists());
    for (key, path) in [(&admin, "/api/v1/keys"), (&agent, "/api/v1/tools")] {
        refused(
            &gantry.rest_as(key, "GET", path, None),
            401,
            "auth.wrong_key",
        );
    }
    assert_eq!(
        gantry.rest("GET", "/api/v1/projects/acme", None).status,
        404
    );
    // Its record is kept, so that its name is not given away again.
    let again = json!({"name": "acme"});
    let answer = gantry.rest("POST", "/api/v1/projects", Some(&again));
    refused(&answer, 409, "project.name_used");
    let acts = gantry
        .rest("GET", "/api/v1/acts?act=project.*", None)
        .json();
    let acts = acts["items"].as_array().unwrap();
    let act = |name: &str, outcome: &str| {
        let is = |row: &&Value| row["act"] == name && row["outcome"] == outcome;
        acts.iter().filter(is).count()
    };
    assert_eq!(act("project.create", "done"), 1, "{acts:?}");
    assert_eq!(act("project.delete", "done"), 1, "{acts:?}");
    gantry.stop();
    gantry.assert_not_at_rest(secret);
    let gantry = gantry.again();
    assert!(!tools(&gantry, &gantry.agent).is_empty());
}

// fault T9
#[test]
fn a_deleted_project_leaves_its_record_and_nothing_else_on_postgresql() {
    on_postgresql(a_deleted_project_leaves_its_record_and_nothing_else);
}
