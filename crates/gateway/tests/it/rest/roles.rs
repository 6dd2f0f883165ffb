//! Roles of administrators' keys, and the settings of a project.

use serde_json::{Value, json};

use super::{items, problem};
use crate::harness::{Gantry, on_postgresql};

/// Makes a key with a role and returns its id and text.
fn key(gantry: &Gantry, role: &str) -> (String, String) {
    let body = json!({"kind": "admin", "role": role});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!(made["role"], role);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

// row 3.2, fault U4
#[test]
fn a_role_opens_its_own_routes_and_refusals_are_on_record() {
    let gantry = Gantry::start(&["a"]);
    let [admin, operator, approver, auditor] =
        ["admin", "operator", "approver", "auditor"].map(|role| key(&gantry, role).1);
    let keys = [&gantry.admin, &admin, &operator, &approver, &auditor];
    let new = json!({"kind": "agent"});
    let call = json!({"name": "a__echo", "arguments": {"text": "x"}});
    let table: [(&str, &str, Option<&Value>, [u16; 5]); 9] = [
        ("GET", "/api/v1/mcp/servers", None, [200; 5]),
        ("GET", "/api/v1/acts", None, [200, 200, 403, 403, 200]),
        ("GET", "/api/v1/calls", None, [200, 200, 403, 403, 200]),
        (
            "GET",
            "/api/v1/mcp/servers/a/logs",
            None,
            [200, 200, 200, 403, 403],
        ),
        (
            "POST",
            "/api/v1/mcp/servers/a/restart",
            None,
            [200, 200, 200, 403, 403],
        ),
        (
            "POST",
            "/api/v1/keys",
            Some(&new),
            [201, 201, 403, 403, 403],
        ),
        (
            "POST",
            "/api/v1/tools/call",
            Some(&call),
            [200, 200, 403, 403, 403],
        ),
        ("GET", "/api/v1/images", None, [200, 403, 403, 403, 403]),
        ("GET", "/api/v1/settings", None, [200; 5]),
    ];
    for (method, path, body, statuses) in table {
        for (key, status) in keys.iter().zip(statuses) {
            gantry.wait_state("a", "ready", crate::harness::LONG);
            let answer = gantry.rest_as(key, method, path, body);
            match status {
                403 => assert_eq!(problem(&gantry, &answer, 403), "auth.role"),
                status => assert_eq!(answer.status, status, "{path}: {}", answer.text()),
            }
        }
    }
    let refused = items(&gantry.rest("GET", "/api/v1/acts?outcome=refused&limit=1000", None));
    let by = |actor: &str, act: &str| {
        let is = |row: &&Value| row["actor"] == actor && row["act"] == act;
        let rows = refused.iter().filter(is);
        rows.filter(|row| row["code"] == "auth.role").count()
    };
    assert_eq!(by("auditor", "server.restart"), 1, "{refused:?}");
    assert_eq!(by("approver", "key.create"), 1, "{refused:?}");
    // Nobody hands out or takes away more than they have.
    let above = json!({"kind": "admin", "role": "installation"});
    let answer = gantry.rest_as(&admin, "POST", "/api/v1/keys", Some(&above));
    assert_eq!(problem(&gantry, &answer, 403), "auth.role");
    let all = items(&gantry.rest("GET", "/api/v1/keys", None));
    let first = all
        .iter()
        .find(|key| key["role"] == "installation")
        .unwrap();
    let path = format!("/api/v1/keys/{}", first["id"].as_str().unwrap());
    let answer = gantry.rest_as(&admin, "DELETE", &path, None);
    assert_eq!(problem(&gantry, &answer, 403), "auth.role");
    let answer = gantry.rest_as(&admin, "DELETE", "/api/v1/agents/operator", None);
    assert_eq!(problem(&gantry, &answer, 403), "auth.role");
    // An auditor's key keeps no door open: the last that manages the installation stays.
    let answer = gantry.rest("DELETE", &path, None);
    assert_eq!(problem(&gantry, &answer, 409), "key.last_admin");
    let wrong = json!({"kind": "admin", "role": "root"});
    let answer = gantry.rest("POST", "/api/v1/keys", Some(&wrong));
    assert_eq!(problem(&gantry, &answer, 422), "request.body");
    let agent = json!({"kind": "agent", "role": "admin"});
    assert_eq!(
        gantry.rest("POST", "/api/v1/keys", Some(&agent)).status,
        422
    );
}

// row 3.2, fault U4
#[test]
fn a_role_opens_its_own_routes_and_refusals_are_on_record_on_postgresql() {
    on_postgresql(a_role_opens_its_own_routes_and_refusals_are_on_record);
}

#[test]
fn settings_are_shown_changed_and_survive_a_restart() {
    let mut gantry = Gantry::start(&["a"]);
    let value = |gantry: &Gantry, path: &str, name: &str| {
        let all = items(&gantry.rest("GET", path, None));
        let found = all.into_iter().find(|setting| setting["name"] == name);
        found.unwrap()["value"].take()
    };
    let path = "/api/v1/settings";
    let name = "registration.commands";
    assert_eq!(value(&gantry, path, name), Value::Null);
    // All of them or none.
    let half = json!({name: ["npx"], "no.such": 1});
    let answer = gantry.rest("PATCH", path, Some(&half));
    assert_eq!(problem(&gantry, &answer, 422), "setting.unknown");
    let wrong = json!({name: ["npx"], "registration.isolation_floor": "strong"});
    let answer = gantry.rest("PATCH", path, Some(&wrong));
    assert_eq!(problem(&gantry, &answer, 422), "setting.value");
    assert_eq!(value(&gantry, path, name), Value::Null);
    let set = ["project", "set", "local", "registration.commands=npx,uvx"];
    let done = gantry.cli(&set);
    assert!(done.status.success(), "{done:?}");
    let scoped = "/api/v1/projects/local/settings";
    assert_eq!(value(&gantry, scoped, name), json!(["npx", "uvx"]));
    let acts = items(&gantry.rest("GET", "/api/v1/acts?act=settings.change", None));
    assert_eq!(acts[0]["after"], json!({name: ["npx", "uvx"]}), "{acts:?}");
    gantry.stop();
    let gantry = gantry.again();
    assert_eq!(value(&gantry, path, name), json!(["npx", "uvx"]));
    let back = json!({name: null});
    assert_eq!(gantry.rest("PATCH", path, Some(&back)).status, 200);
    assert_eq!(value(&gantry, path, name), Value::Null);
    let missing = gantry.rest("GET", "/api/v1/projects/none/settings", None);
    assert_eq!(problem(&gantry, &missing, 404), "project.unknown");
}

#[test]
fn settings_are_shown_changed_and_survive_a_restart_on_postgresql() {
    on_postgresql(settings_are_shown_changed_and_survive_a_restart);
}
