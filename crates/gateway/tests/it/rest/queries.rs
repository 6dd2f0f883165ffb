//! Queries and bodies that cannot be used: told in our words, all at once, each with its place and what
//! is allowed.

use serde_json::{Value, json};

use super::problem;
use crate::harness::{Gantry, entry};

/// Asks with the admin key and returns the problem's document; it is checked to be one of ours.
fn refused(gantry: &Gantry, path: &str) -> Value {
    let answer = gantry.rest("GET", path, None);
    assert_eq!(problem(gantry, &answer, 400), "request.query", "{path}");
    let document = answer.json();
    let text = document.to_string();
    for raw in [
        "deserialize",
        "invalid digit",
        "unknown field",
        "expected",
        "variant",
    ] {
        assert!(!text.contains(raw), "{path}: {text}");
    }
    document
}

#[test]
fn a_bad_value_is_named_with_what_is_allowed() {
    let gantry = Gantry::start(&["a"]);
    let pages = [
        "/api/v1/calls",
        "/api/v1/acts",
        "/api/v1/events",
        "/api/v1/mcp/servers",
        "/api/v1/mcp/servers/a/events",
        "/api/v1/agents",
        "/api/v1/keys",
        "/api/v1/tools",
    ];
    for page in pages {
        for value in [
            "abc",
            "-1",
            "0",
            "1001",
            "999999",
            "1.5",
            "99999999999999999999",
            "",
        ] {
            let document = refused(&gantry, &format!("{page}?limit={value}"));
            let issue = &document["issues"][0];
            assert_eq!(issue["path"], "/limit", "{document:#}");
            let detail = format!("`{value}` cannot be used as `limit`");
            assert_eq!(document["detail"], detail, "{page}");
            let hint = "write a whole number from 1 to 1000";
            assert_eq!(document["hint"], hint, "{page} {value}");
        }
        let document = refused(&gantry, &format!("{page}?cursor=%00nonsense"));
        assert_eq!(document["issues"][0]["path"], "/cursor", "{document:#}");
        assert!(document["hint"].as_str().unwrap().contains("`next_cursor`"));
        let document = refused(&gantry, &format!("{page}?lmit=3"));
        assert_eq!(document["hint"], "did you mean `limit`?", "{document:#}");
        let document = refused(&gantry, &format!("{page}?limit=1&limit=2"));
        assert_eq!(document["detail"], "`limit` is given more than once");
    }
    for (path, name, allowed) in [
        (
            "/api/v1/calls?status=done",
            "status",
            "one of `running`, `ok`",
        ),
        ("/api/v1/calls?count=maybe", "count", "`true` or `false`"),
        (
            "/api/v1/calls?since=yesterday",
            "since",
            "2026-11-16T09:30:00Z",
        ),
        (
            "/api/v1/calls?until=2026-13-01T00:00:00Z",
            "until",
            "2026-11-16T09:30:00Z",
        ),
        ("/api/v1/acts?since=soon", "since", "2026-11-16T09:30:00Z"),
        (
            "/api/v1/acts?outcome=won",
            "outcome",
            "one of `unfinished`, `done`",
        ),
        ("/api/v1/acts?via=magic", "via", "one of `rest`, `file`"),
        (
            "/api/v1/calls/export?format=xml",
            "format",
            "one of `jsonl`, `csv`",
        ),
        (
            "/api/v1/calls/export?until=x",
            "until",
            "2026-11-16T09:30:00Z",
        ),
        (
            "/api/v1/mcp/servers/a/logs?limit=x",
            "limit",
            "from 0 to 10000",
        ),
        (
            "/api/v1/mcp/servers/a/logs?limit=10001",
            "limit",
            "from 0 to 10000",
        ),
        ("/api/v1/tools/why?agent=default", "tool", "`tool=…`"),
    ] {
        let document = refused(&gantry, path);
        assert_eq!(
            document["issues"][0]["path"],
            format!("/{name}"),
            "{document:#}"
        );
        let hint = document["hint"].as_str().unwrap();
        assert!(hint.contains(allowed), "{path}: {hint}");
    }
}

#[test]
fn all_mistakes_of_a_query_are_told_at_once() {
    let gantry = Gantry::start(&[]);
    let document = refused(
        &gantry,
        "/api/v1/calls?limit=x&status=done&colour=red&server=a",
    );
    let paths: Vec<&str> = document["issues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|issue| issue["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/limit", "/status", "/colour"], "{document:#}");
    // Whoever has an agent's key reads the same.
    let answer = gantry.rest_as(&gantry.agent, "GET", "/api/v1/calls?limit=x", None);
    assert_eq!(problem(&gantry, &answer, 400), "request.query");
    // Old names are still taken.
    for path in [
        "/api/v1/calls?since_ms=1&until_ms=2",
        "/api/v1/acts?since_ms=1&until_ms=2",
        "/api/v1/calls?since=2026-11-16T09:30:00Z",
    ] {
        assert_eq!(gantry.rest("GET", path, None).status, 200, "{path}");
    }
}

#[test]
fn what_does_not_fit_in_a_body_is_pointed_at() {
    let gantry = Gantry::start(&[]);
    let issue = |method: &str, path: &str, body: Value| {
        let answer = gantry.rest(method, path, Some(&body));
        assert_eq!(answer.status, 422, "{body}: {}", answer.text());
        let issue = answer.json()["issues"][0].clone();
        let message = issue["message"].as_str().unwrap().to_owned();
        (issue["path"].as_str().unwrap().to_owned(), message)
    };
    let server = |members: Value| {
        let mut body = json!({"name": "a", "command": "x"});
        for (key, value) in members.as_object().unwrap() {
            body[key] = value.clone();
        }
        issue("POST", "/api/v1/mcp/servers", body)
    };
    for (members, path, says) in [
        (
            json!({"timeout": "soon"}),
            "/timeout",
            "`timeout` must be a time",
        ),
        (json!({"timeout": []}), "/timeout", "must be a time"),
        (
            json!({"limits": {"memory": "1 lot"}}),
            "/limits/memory",
            "must be a size",
        ),
        (json!({"limits": {"memory": 1}}), "/limits/memory", "4 MiB"),
        (json!({"limits": {"cpu": 0}}), "/limits/cpu", "0.01"),
        (
            json!({"limits": {"cups": 1}}),
            "/limits/cups",
            "is not known",
        ),
        (json!({"args": ["a", 7]}), "/args/1", "a text"),
        (json!({"env": {"A/B~C": 7}}), "/env/A~1B~0C", "a text"),
        (
            json!({"env": {"LD_PRELOAD": "x"}}),
            "/env/LD_PRELOAD",
            "not allowed",
        ),
        (json!({"args": ["a", "b\u{0}"]}), "/args/1", "NUL"),
        (json!({"profile": "loose"}), "/profile", "`local`, `hosted`"),
        (json!({"concurrency": 0}), "/concurrency", "1 to 1,024"),
        (json!({"queue": 0}), "/queue", "1 to 65,536"),
        (json!({"health_every": 0}), "/health_every", "1ms to 24h"),
        (
            json!({"handshake_timeout": 0}),
            "/handshake_timeout",
            "1ms to 24h",
        ),
        (
            json!({"restart": {"ladder": ["1s", "x"]}}),
            "/restart/ladder/1",
            "must be a time",
        ),
        (
            json!({"restart": {"ladder": []}}),
            "/restart",
            "at least one step",
        ),
        (json!({"name": "`odd` name"}), "/name", "odd"),
        (json!({"colour": "red"}), "/colour", "is not known"),
    ] {
        let (found, message) = server(members.clone());
        assert_eq!(found, path, "{members}: {message}");
        assert!(message.contains(says), "{members}: {message}");
    }
    let remote = json!({"name": "far", "url": "https://x.example", "headers": {"Bad Name": "x"}});
    let (path, _) = issue("POST", "/api/v1/mcp/servers", remote);
    assert_eq!(path, "/headers/Bad Name");
    for (path, body, wanted) in [
        ("/api/v1/mcp/servers", json!({"command": "x"}), "/name"),
        ("/api/v1/agents", json!({"name": 7}), "/name"),
        ("/api/v1/agents", json!({"name": "a", "grant": 7}), "/grant"),
        (
            "/api/v1/agents",
            json!({"name": "a", "grant": ["a:*", "b"]}),
            "/grant/1",
        ),
        (
            "/api/v1/agents",
            json!({"name": "a", "tools": {"include": "x"}}),
            "/tools/include",
        ),
        (
            "/api/v1/agents",
            json!({"name": "a", "label": "x".repeat(200)}),
            "/label",
        ),
        ("/api/v1/keys", json!({"kind": "owner"}), "/kind"),
        ("/api/v1/keys", json!({}), "/kind"),
        (
            "/api/v1/keys",
            json!({"kind": "agent", "expires_in": "later"}),
            "/expires_in",
        ),
    ] {
        let (found, message) = issue("POST", path, body.clone());
        assert_eq!(found, wanted, "{body}: {message}");
    }
    // A change is a body, too.
    let mut body = entry(&gantry_testkit::Evilpeer::new());
    body["name"] = json!("there");
    body["start"] = json!("lazy");
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    let patch = json!({"limits": {"memory": "much"}});
    let (path, _) = issue("PATCH", "/api/v1/mcp/servers/there", patch);
    assert_eq!(path, "/limits/memory");
}

#[test]
fn the_last_lines_are_asked_for_with_limit_and_lines_still_works() {
    let gantry = Gantry::start(&["a"]);
    let logs = |query: &str| {
        let answer = gantry.rest("GET", &format!("/api/v1/mcp/servers/a/logs?{query}"), None);
        let count = match answer.status {
            200 => answer.json()["items"].as_array().unwrap().len(),
            _ => usize::MAX,
        };
        (answer.status, count)
    };
    let all = logs("").1;
    assert_eq!(logs("limit=0"), (200, 0));
    assert_eq!(logs("limit=1"), (200, all.min(1)));
    assert_eq!(logs("limit=10000"), (200, all));
    // As it was before.
    assert_eq!(logs("lines=0"), (200, 0));
    assert_eq!(logs("lines=1"), (200, all.min(1)));
    assert_eq!(logs("lines=999999"), (200, all));
    assert_eq!(logs("lines=1&limit=1").0, 400);
    for flag in ["-n", "--limit", "--lines"] {
        let shown = gantry.cli(&["logs", "a", flag, "0"]);
        assert!(
            shown.status.success() && shown.stdout.is_empty(),
            "{shown:?}"
        );
    }
    assert!(gantry.cli(&["logs", "a", "-n", "99999"]).status.success());
}

// Names that are not there are errors, for every key, and a near one is named.
#[test]
fn an_unknown_name_is_an_error_that_names_near_ones() {
    let gantry = Gantry::start(&["files"]);
    let hint = |key: &str, path: &str, code: &str| {
        let answer = gantry.rest_as(key, "GET", path, None);
        assert_eq!(problem(&gantry, &answer, 404), code, "{path}");
        answer.json()["hint"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let near = "did you mean `files`?";
    for key in [&gantry.admin, &gantry.agent] {
        assert_eq!(
            hint(key, "/api/v1/tools?server=fiels", "server.unknown"),
            near
        );
        let shaped = "/api/v1/tools?server=fiels&shape=openai";
        assert_eq!(hint(key, shaped, "server.unknown"), near);
    }
    for path in [
        "/api/v1/mcp/servers/fiels",
        "/api/v1/mcp/servers/fiels/logs",
        "/api/v1/mcp/servers/fiels/events",
        "/api/v1/tools/why?agent=default&tool=fiels:echo",
        "/api/v1/tools/changes?server=fiels",
    ] {
        assert_eq!(hint(&gantry.admin, path, "server.unknown"), near, "{path}");
    }
    let restarted = gantry.rest("POST", "/api/v1/mcp/servers/fiels/restart", None);
    assert_eq!(problem(&gantry, &restarted, 404), "server.unknown");
    assert_eq!(restarted.json()["hint"], near);
    let near = "did you mean `default`?";
    assert_eq!(
        hint(&gantry.admin, "/api/v1/agents/defualt", "agent.unknown"),
        near
    );
    let why = "/api/v1/tools/why?agent=defualt&tool=files:echo";
    assert_eq!(hint(&gantry.admin, why, "agent.unknown"), near);
    // An agent that sees nothing is told of no server's name.
    let blind = gantry.agent_with("blind", &[]);
    let told = hint(&blind, "/api/v1/tools?server=fiels", "server.unknown");
    assert!(!told.contains("files"), "{told}");
    // A server is found by its id, too.
    let id = gantry.status("files")["id"].as_str().unwrap().to_owned();
    let tools = gantry.rest("GET", &format!("/api/v1/tools?server={id}"), None);
    assert!(!super::items(&tools).is_empty());
}
