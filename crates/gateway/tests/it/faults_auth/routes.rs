//! Every route and who may use it, in one table; a route without a row fails.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::{FIRST_GUESS, LAST_GUESS, audited, guessed, refused, unharmed};
use crate::faults_client::Holdings;
use crate::harness::{Answer, Gantry};

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Everyone,
    /// Pages of the gateway itself, with or without a key.
    OwnPages,
    AnyKey,
    Admins,
    Agents,
}

/// Method, path, who may, and what those who may get for an empty object or nothing.
const ROUTES: &[(&str, &str, For, u16)] = &[
    ("GET", "/", For::Everyone, 200),
    ("GET", "/healthz", For::Everyone, 200),
    ("GET", "/api/v1/openapi.json", For::Everyone, 200),
    ("GET", "/api/v1/docs", For::Everyone, 200),
    ("GET", "/api/v1/docs/style.css", For::Everyone, 200),
    ("GET", "/sign-in.js", For::Everyone, 200),
    ("GET", "/errors", For::Everyone, 200),
    ("GET", "/errors/{code}", For::Everyone, 200),
    // No sign-in waits for an empty answer.
    ("GET", "/oauth/callback", For::Everyone, 400),
    // The server runs on this machine, and takes no sign-in.
    ("GET", "/api/v1/mcp/servers/{server}/auth", For::Admins, 200),
    (
        "POST",
        "/api/v1/mcp/servers/{server}/auth",
        For::Admins,
        409,
    ),
    (
        "DELETE",
        "/api/v1/mcp/servers/{server}/auth",
        For::Admins,
        409,
    ),
    ("GET", "/metrics", For::Admins, 200),
    ("GET", "/api/v1/hooks", For::Admins, 200),
    ("PUT", "/api/v1/hooks/{hook}", For::Admins, 422),
    ("DELETE", "/api/v1/hooks/{hook}", For::Admins, 404),
    ("GET", "/api/v1/settings", For::Admins, 200),
    ("PATCH", "/api/v1/settings", For::Admins, 200),
    ("GET", "/api/v1/projects", For::Admins, 200),
    ("POST", "/api/v1/projects", For::Admins, 422),
    ("GET", "/api/v1/projects/{project}", For::Admins, 404),
    ("PATCH", "/api/v1/projects/{project}", For::Admins, 404),
    ("DELETE", "/api/v1/projects/{project}", For::Admins, 404),
    ("GET", "/api/v1/products", For::Admins, 200),
    ("POST", "/api/v1/products", For::Admins, 422),
    ("POST", "/api/v1/products/preview", For::Admins, 422),
    ("GET", "/api/v1/products/{product}", For::Admins, 404),
    ("DELETE", "/api/v1/products/{product}", For::Admins, 404),
    ("GET", "/api/v1/suspensions", For::Admins, 200),
    ("POST", "/api/v1/suspensions", For::Admins, 422),
    ("DELETE", "/api/v1/suspensions", For::Admins, 400),
    ("GET", "/api/v1/registrations", For::Admins, 200),
    (
        "GET",
        "/api/v1/registrations/{registration}",
        For::Admins,
        404,
    ),
    (
        "POST",
        "/api/v1/registrations/{registration}/approve",
        For::Admins,
        404,
    ),
    (
        "POST",
        "/api/v1/registrations/{registration}/refuse",
        For::Admins,
        404,
    ),
    ("GET", "/api/v1/health", For::Admins, 200),
    ("POST", "/api/v1/health/acknowledge", For::Admins, 200),
    ("GET", "/api/v1/mcp/servers", For::Admins, 200),
    ("POST", "/api/v1/mcp/servers", For::Admins, 422),
    ("GET", "/api/v1/mcp/servers/{server}", For::Admins, 200),
    // The server comes from a file, so that it is the file that can be changed.
    ("PUT", "/api/v1/mcp/servers/{server}", For::Admins, 422),
    ("PATCH", "/api/v1/mcp/servers/{server}", For::Admins, 409),
    // Only the words `preview` and `test` take it.
    ("POST", "/api/v1/mcp/servers/{server}", For::Admins, 405),
    ("DELETE", "/api/v1/mcp/servers/{server}", For::Admins, 409),
    (
        "POST",
        "/api/v1/mcp/servers/{server}/restart",
        For::Admins,
        200,
    ),
    ("GET", "/api/v1/mcp/servers/{server}/logs", For::Admins, 200),
    (
        "GET",
        "/api/v1/mcp/servers/{server}/events",
        For::Admins,
        200,
    ),
    (
        "POST",
        "/api/v1/mcp/servers/{server}/call",
        For::AnyKey,
        422,
    ),
    ("GET", "/api/v1/events", For::Admins, 200),
    ("GET", "/api/v1/events/stream", For::Admins, 200),
    ("POST", "/api/v1/session", For::OwnPages, 403),
    ("GET", "/api/v1/session", For::AnyKey, 200),
    ("DELETE", "/api/v1/session", For::AnyKey, 204),
    ("POST", "/api/v1/session/codes", For::AnyKey, 201),
    ("GET", "/api/v1/acts", For::Admins, 200),
    ("POST", "/api/v1/audit/confirm-clock", For::Admins, 204),
    ("GET", "/api/v1/audit/verify", For::Admins, 200),
    ("GET", "/api/v1/audit/key", For::Admins, 200),
    ("GET", "/api/v1/audit/holds", For::Admins, 200),
    ("POST", "/api/v1/audit/holds", For::Admins, 201),
    ("DELETE", "/api/v1/audit/holds/{hold}", For::Admins, 404),
    ("POST", "/api/v1/audit/erase", For::Admins, 422),
    ("GET", "/api/v1/grants", For::Admins, 200),
    ("POST", "/api/v1/grants", For::Admins, 422),
    ("GET", "/api/v1/grants/{grant}", For::Admins, 404),
    ("DELETE", "/api/v1/grants/{grant}", For::Admins, 204),
    ("GET", "/api/v1/groups", For::Admins, 200),
    ("POST", "/api/v1/groups", For::Admins, 422),
    ("GET", "/api/v1/groups/{group}", For::Admins, 404),
    ("PATCH", "/api/v1/groups/{group}", For::Admins, 422),
    ("DELETE", "/api/v1/groups/{group}", For::Admins, 204),
    ("POST", "/api/v1/policy/test", For::Admins, 200),
    ("GET", "/api/v1/agents", For::Admins, 200),
    ("POST", "/api/v1/agents", For::Admins, 422),
    ("GET", "/api/v1/agents/{agent}", For::Admins, 404),
    ("PATCH", "/api/v1/agents/{agent}", For::Admins, 404),
    ("DELETE", "/api/v1/agents/{agent}", For::Admins, 204),
    ("GET", "/api/v1/keys", For::Admins, 200),
    ("POST", "/api/v1/keys", For::Admins, 422),
    ("GET", "/api/v1/keys/{key}", For::Admins, 404),
    ("PATCH", "/api/v1/keys/{key}", For::Admins, 404),
    ("DELETE", "/api/v1/keys/{key}", For::Admins, 204),
    ("POST", "/api/v1/keys/{key}/rotate", For::Admins, 404),
    ("GET", "/api/v1/tools", For::AnyKey, 200),
    ("POST", "/api/v1/tools/call", For::AnyKey, 422),
    // It must be said who and what.
    ("GET", "/api/v1/tools/why", For::Admins, 400),
    ("GET", "/api/v1/tools/changes", For::Admins, 200),
    ("GET", "/api/v1/tools/versions", For::Admins, 400),
    ("POST", "/api/v1/tools/approve", For::Admins, 422),
    ("POST", "/api/v1/tools/refuse", For::Admins, 422),
    ("GET", "/api/v1/approvals", For::Admins, 200),
    ("GET", "/api/v1/approvals/{call}", For::Admins, 404),
    ("POST", "/api/v1/approvals/{call}/allow", For::Admins, 404),
    ("POST", "/api/v1/approvals/{call}/refuse", For::Admins, 404),
    ("GET", "/api/v1/calls", For::AnyKey, 200),
    ("GET", "/api/v1/calls/export", For::AnyKey, 200),
    ("GET", "/api/v1/calls/{call}", For::AnyKey, 404),
    ("DELETE", "/api/v1/calls/{call}", For::AnyKey, 404),
    ("POST", "/mcp", For::Agents, 400),
    ("GET", "/mcp", For::Agents, 405),
    ("DELETE", "/mcp", For::Agents, 400),
    ("POST", "/mcp/servers/{name}", For::Agents, 400),
    ("GET", "/mcp/servers/{name}", For::Agents, 405),
    ("GET", "/sse", For::Agents, 200),
    ("GET", "/sse/servers/{name}", For::Agents, 200),
    ("POST", "/messages", For::Agents, 404),
    ("POST", "/mcp/", For::Agents, 400),
    ("POST", "/mcp/servers/{name}/", For::Agents, 400),
    ("GET", "/mcp/servers/{name}/", For::Agents, 405),
    ("GET", "/sse/", For::Agents, 200),
    ("GET", "/sse/servers/{name}/", For::Agents, 200),
    ("POST", "/messages/", For::Agents, 404),
    // There is no sign-in, and everybody is told so.
    (
        "GET",
        "/.well-known/oauth-protected-resource",
        For::Everyone,
        404,
    ),
    (
        "GET",
        "/.well-known/oauth-protected-resource/{*path}",
        For::Everyone,
        404,
    ),
    (
        "GET",
        "/.well-known/oauth-authorization-server",
        For::Everyone,
        404,
    ),
    (
        "GET",
        "/.well-known/oauth-authorization-server/{*path}",
        For::Everyone,
        404,
    ),
    (
        "GET",
        "/.well-known/openid-configuration",
        For::Everyone,
        404,
    ),
    (
        "GET",
        "/.well-known/openid-configuration/{*path}",
        For::Everyone,
        404,
    ),
    (
        "GET",
        "/mcp/.well-known/openid-configuration",
        For::Everyone,
        404,
    ),
    ("GET", "/api/v1/images", For::Admins, 200),
    ("POST", "/api/v1/images", For::Admins, 422),
    ("DELETE", "/api/v1/images", For::Admins, 400),
    ("POST", "/api/v1/images/prune", For::Admins, 200),
    ("POST", "/api/v1/images/check", For::Admins, 200),
    ("GET", "/api/v1/images/logins", For::Admins, 200),
    ("PUT", "/api/v1/images/logins/{registry}", For::Admins, 422),
    (
        "DELETE",
        "/api/v1/images/logins/{registry}",
        For::Admins,
        404,
    ),
    ("GET", "/api/v1/volumes", For::Admins, 200),
    ("DELETE", "/api/v1/volumes", For::Admins, 400),
    ("GET", "/api/v1/volumes/backup", For::Admins, 400),
    ("POST", "/api/v1/volumes/prune", For::Admins, 200),
    ("GET", "/api/v1/secrets", For::Admins, 200),
    ("GET", "/api/v1/secrets/{secret}", For::Admins, 404),
    ("PUT", "/api/v1/secrets/{secret}", For::Admins, 422),
    ("DELETE", "/api/v1/secrets/{secret}", For::Admins, 204),
    (
        "PUT",
        "/api/v1/secrets/{secret}/bindings/{server}",
        For::Admins,
        404,
    ),
    (
        "DELETE",
        "/api/v1/secrets/{secret}/bindings/{server}",
        For::Admins,
        404,
    ),
    ("POST", "/register", For::Everyone, 400),
    ("GET", "/authorize", For::Everyone, 404),
    ("POST", "/token", For::Everyone, 400),
];

/// Asks a route for server `a`, with an empty object where a body is taken.
fn ask(gantry: &Gantry, key: Option<&str>, method: &str, path: &str) -> Answer {
    let path = path.replace("{server}", "a").replace("{name}", "a");
    let path = path
        .replace("{*path}", "mcp")
        .replace("{secret}", "NONE")
        .replace("{registry}", "registry.example");
    let path = path.replace("{key}", "nobody").replace("{call}", "none");
    let path = path
        .replace("{agent}", "nobody")
        .replace("{project}", "nobody")
        .replace("{product}", "nobody")
        .replace("{grant}", "none")
        .replace("{group}", "nobody")
        .replace("{hook}", "nobody")
        .replace("{registration}", "none")
        .replace("{code}", "auth.no_key");
    let bearer = key.map(|key| format!("Bearer {key}"));
    let mut headers = vec![("Accept", "application/json, text/event-stream")];
    if let Some(bearer) = &bearer {
        headers.push(("Authorization", bearer));
    }
    let body: &[u8] = match method {
        "POST" | "PUT" | "PATCH" => {
            headers.push(("Content-Type", "application/json"));
            b"{}"
        }
        _ => b"",
    };
    let mut connection = gantry.connect();
    connection.write(method, &path, &headers, body).unwrap();
    // A stream has no end.
    match path.as_str() {
        "/sse" | "/sse/" | "/sse/servers/a" | "/sse/servers/a/" if key == Some(&gantry.agent) => {
            connection.head().unwrap()
        }
        "/api/v1/events/stream" if key == Some(&gantry.admin) => connection.head().unwrap(),
        _ => connection.answer().unwrap(),
    }
}

// fault U3
#[test]
fn without_a_valid_key_every_route_that_tells_anything_is_closed() {
    let gantry = Gantry::start(&["a"]);
    let at_first = Holdings::of(&gantry);
    let body = json!({"kind": "admin", "label": "soon gone"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    let revoked = made["key"].as_str().unwrap();
    let mut guesses = 0;
    for (method, path, who, status) in ROUTES.iter().copied() {
        let answer = ask(&gantry, None, method, path);
        match who {
            For::Everyone => {
                assert_eq!(answer.status, status, "{method} {path}");
                continue;
            }
            For::OwnPages => {
                refused(path, &answer, status, "http.origin");
                continue;
            }
            For::AnyKey | For::Admins | For::Agents => {}
        }
        refused(path, &answer, 401, "auth.no_key");
        let answer = ask(&gantry, Some(revoked), method, path);
        guesses += 1;
        // After too many wrong ones the address is told to wait.
        match guesses {
            ..=20 => refused(path, &answer, 401, "auth.wrong_key"),
            _ => refused(path, &answer, 429, "auth.attempts"),
        }
    }
    // A method that a path does not take is no way past the key either.
    refused(
        "PUT",
        &ask(&gantry, None, "PUT", "/api/v1/keys"),
        401,
        "auth.no_key",
    );
    let status = gantry.status("a");
    assert_eq!(
        (&status["state"], &status["restart_count"]),
        (&json!("ready"), &json!(0))
    );
    assert_eq!(
        gantry.rest("GET", "/api/v1/keys", None).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // Of all the times that the key was tried, the first and the last before 429 are on record.
    assert!(guesses > 20, "{guesses}");
    audited(
        &gantry,
        &[guessed("rest", FIRST_GUESS), guessed("rest", LAST_GUESS)],
    );
    unharmed(&gantry, &at_first);
}

// fault U4
#[test]
fn agent_keys_open_no_admin_route_and_admin_keys_no_mcp() {
    let gantry = Gantry::start(&["a"]);
    let at_first = Holdings::of(&gantry);
    for (method, path, who, _) in ROUTES.iter().copied() {
        // In its own project: another one is not there for it.
        let own = path.replace("{project}", "local");
        let agent = ask(&gantry, Some(&gantry.agent), method, &own);
        match who {
            For::Admins => refused(path, &agent, 403, "auth.agent_key"),
            For::Agents => {
                let admin = ask(&gantry, Some(&gantry.admin), method, path);
                refused(path, &admin, 403, "auth.admin_key");
            }
            For::OwnPages => refused(path, &agent, 403, "http.origin"),
            For::Everyone | For::AnyKey => assert_ne!(agent.status, 403, "{method} {path}"),
        }
    }
    // Nothing came of it: the server runs as it did, and no key was made.
    let status = gantry.status("a");
    assert_eq!(
        (&status["state"], &status["restart_count"]),
        (&json!("ready"), &json!(0))
    );
    assert_eq!(
        gantry.rest("GET", "/api/v1/keys", None).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    audited(&gantry, &[]);
    let restarts = gantry
        .rest("GET", "/api/v1/mcp/servers/a/events?limit=1000", None)
        .json();
    let asked = |event: &&serde_json::Value| event["kind"].as_str().unwrap().contains("restart");
    assert_eq!(
        restarts["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(asked)
            .count(),
        0
    );
    unharmed(&gantry, &at_first);
}

// fault U4
#[test]
fn who_may_is_let_in() {
    let gantry = Gantry::start(&["a"]);
    let at_first = Holdings::of(&gantry);
    // What ends the server goes last.
    let (last, others): (Vec<_>, Vec<_>) = ROUTES
        .iter()
        .copied()
        .partition(|(method, path, ..)| *method == "DELETE" && path.contains("{server}"));
    for (method, path, who, status) in others.into_iter().chain(last) {
        let keys: &[&String] = match who {
            For::Everyone | For::OwnPages | For::AnyKey => &[&gantry.admin, &gantry.agent],
            For::Admins => &[&gantry.admin],
            For::Agents => &[&gantry.agent],
        };
        for key in keys {
            let answer = ask(&gantry, Some(key), method, path);
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        }
    }
    // Nothing but empty objects was sent: no call came of it.
    audited(&gantry, &[]);
    unharmed(&gantry, &at_first);
}

/// Returns the paths that the sources give to the router.
fn written(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            written(&path, found);
            continue;
        }
        if path
            .components()
            .any(|part| part.as_os_str() == "tests.rs" || part.as_os_str() == "tests")
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let routes = text.split(".route(").skip(1);
        found.extend(
            routes
                .filter_map(|rest| rest.split('"').nth(1))
                .map(str::to_owned),
        );
    }
}

// fault U4
#[test]
fn every_route_has_a_row() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    written(&sources.join("api"), &mut found);
    written(&sources.join("mcp"), &mut found);
    let text = fs::read_to_string(sources.join("mcp.rs")).unwrap();
    let routes = text.split(".route(").skip(1);
    found.extend(
        routes
            .filter_map(|rest| rest.split('"').nth(1))
            .map(str::to_owned),
    );
    let known: BTreeSet<String> = ROUTES
        .iter()
        .map(|(_, path, ..)| (*path).to_owned())
        .collect();
    assert_eq!(found, known);
}
