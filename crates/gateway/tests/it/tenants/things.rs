//! What a project of the matrix has: one thing of every kind that a route names, so that each can be
//! asked for by its own project, by another, and where nobody has it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{key, made};
use crate::harness::Gantry;

/// The names and ids of one project's things, by the parameter of the routes that name them.
pub(super) type Things = BTreeMap<&'static str, String>;

/// Where nothing answers; nothing is sent there either.
const NOWHERE: &str = "https://203.0.113.9/mcp";

/// Returns names and ids that no project has.
pub(super) fn nobodys() -> Things {
    let id = |kind: &str| format!("{kind}_00000000000000000000000000000000");
    [
        // As near to a known name as the other project's.
        ("server", "c".to_owned()),
        ("agent", "nobody".to_owned()),
        ("key", id("key")),
        ("grant", id("grant")),
        ("group", "nobody".to_owned()),
        ("hook", "nobody".to_owned()),
        ("secret", "NOBODYS".to_owned()),
        ("product", "nobody".to_owned()),
        ("registration", id("reg")),
        ("hold", "hold_0000000000000000".to_owned()),
        ("call", id("call")),
    ]
    .into()
}

/// Makes one thing of every kind in a project whose server is there, under names that end alike.
pub(super) fn make(gantry: &Gantry, project: &str, server: &str, ending: &str) -> Things {
    let at = |path: &str| format!("/api/v1/projects/{project}/{path}");
    let create = |path: &str, body: Value| made(gantry, &at(path), &body);
    let set = |method: &str, path: &str, body: Value| {
        let answer = gantry.rest(method, &at(path), Some(&body));
        assert!(answer.status < 300, "{path}: {}", answer.text());
        answer.json()
    };
    let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
    let named = |kind: &str| format!("{kind}-{ending}");
    let agent = named("agent");
    let asks = [format!("{server}:*"), format!("ask {server}:echo")];
    create("agents", json!({"name": agent, "grant": asks}));
    let (key, bearer) = key(
        gantry,
        &at("keys"),
        &json!({"kind": "agent", "agent": agent}),
    );
    let grant = create(
        "grants",
        json!({"agent": agent, "server": "none", "item": "x"}),
    );
    let group = named("group");
    create("groups", json!({"name": group, "servers": ["none"]}));
    let hook = named("hook");
    let looks = json!({"on": "result", "url": NOWHERE, "tools": ["none:*"]});
    set("PUT", &format!("hooks/{hook}"), looks);
    let secret = format!("SECRET_{}", ending.to_uppercase());
    let value = json!({"value": format!("canary-of-the-matrix-{ending}"), "servers": []});
    set("PUT", &format!("secrets/{secret}"), value);
    let product = named("product");
    let manifest = format!(
        "name: {product}\nversion: 1\nmcp:\n  servers:\n    of-{product}:\n      url: {NOWHERE}\n"
    );
    let plan = set("POST", "products/preview", json!({"manifest": manifest}));
    let install = json!({"manifest": manifest, "sha256": plan["sha256"]});
    set("POST", "products", install);
    // A change that waits for a second person.
    set(
        "PATCH",
        "settings",
        json!({"registration.approve": ["all_grants"]}),
    );
    let registration = set(
        "POST",
        "agents",
        json!({"name": named("wide"), "grant": "all"}),
    );
    set("PATCH", "settings", json!({"registration.approve": null}));
    let hold = create("audit/holds", json!({"agent": "none"}));
    // A call that waits for an approver.
    let call = called(gantry, &bearer, server);
    [
        ("server", server.to_owned()),
        ("agent", agent),
        ("key", key),
        ("grant", id(&grant)),
        ("group", group),
        ("hook", hook),
        ("secret", secret),
        ("product", product),
        ("registration", id(&registration)),
        ("hold", id(&hold)),
        ("call", call),
    ]
    .into()
}

/// Makes a call that is held, and returns its id.
fn called(gantry: &Gantry, bearer: &str, server: &str) -> String {
    let bearer = format!("Bearer {bearer}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let body = json!({"name": format!("{server}__echo"), "arguments": {"text": "held"}});
    let mut connection = gantry.connect();
    let body = body.to_string();
    let answer = connection.request("POST", "/api/v1/tools/call", &headers, body.as_bytes());
    let answer = answer.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Checks that a project still has all of its things, as they were made.
pub(super) fn assert_kept(gantry: &Gantry, project: &str, things: &Things) {
    let read = |path: &str| {
        let answer = gantry.rest("GET", &format!("/api/v1/projects/{project}/{path}"), None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    };
    for (kind, path) in [
        ("agent", "agents"),
        ("key", "keys"),
        ("grant", "grants"),
        ("group", "groups"),
        ("secret", "secrets"),
        ("product", "products"),
        ("call", "approvals"),
        ("server", "mcp/servers"),
    ] {
        read(&format!("{path}/{}", things[kind]));
    }
    let registration = read(&format!("registrations/{}", things["registration"]));
    assert_eq!(registration["state"], "pending", "{registration}");
    let hooks = read("hooks").to_string();
    assert!(hooks.contains(&things["hook"]), "{hooks}");
    let holds = read("audit/holds");
    let mut holds = holds["items"].as_array().unwrap().iter();
    let hold = holds.find(|hold| hold["id"] == things["hold"].as_str());
    assert!(hold.unwrap()["released_ms"].is_null());
    let secret = read(&format!("secrets/{}", things["secret"]));
    assert_eq!(secret["version"], 1, "{secret}");
}
