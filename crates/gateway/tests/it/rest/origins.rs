//! Web pages of other origins that the configuration allows at the MCP endpoint, and nowhere else.

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use crate::harness::{Answer, Gantry, LONG};

const APP: &str = "https://app.example";
const DEV: &str = "http://localhost:5173";

fn started() -> (Gantry, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    std::fs::write(&file, format!("[gateway]\norigins = [\"{APP}/\"]\n")).unwrap();
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .flags(&["--config", file.to_str().unwrap(), "--origin", DEV])
        .start();
    gantry.wait_state("a", "ready", LONG);
    (gantry, folder)
}

fn send(
    gantry: &Gantry,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    let mut all = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    all.extend_from_slice(headers);
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    gantry
        .connect()
        .request(method, path, &all, body.as_bytes())
        .unwrap()
}

/// Returns what an answer says about pages.
fn allows(answer: &Answer) -> Vec<(&str, &str)> {
    let told = answer
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    told.filter(|(name, _)| name.starts_with("access-control-"))
        .collect()
}

fn has(answer: &Answer, name: &str, word: &str) -> bool {
    let mut values = answer.headers.iter().filter(|(known, _)| known == name);
    values.any(|(_, value)| {
        value
            .split(',')
            .any(|part| part.trim().eq_ignore_ascii_case(word))
    })
}

fn call() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "a__echo", "arguments": {"text": "x"}}})
}

/// What a page of this origin asks first.
fn preflight(gantry: &Gantry, path: &str, origin: &str) -> Answer {
    let headers = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "POST"),
        (
            "Access-Control-Request-Headers",
            "authorization,content-type,mcp-protocol-version,mcp-param-region",
        ),
    ];
    gantry
        .connect()
        .request("OPTIONS", path, &headers, b"")
        .unwrap()
}

// fault U9
#[test]
fn a_page_of_an_allowed_origin_uses_the_endpoint() {
    let (gantry, _folder) = started();
    let bearer = format!("Bearer {}", gantry.agent);
    for origin in [APP, DEV] {
        for path in [
            "/mcp",
            "/mcp/",
            "/mcp/servers/a",
            "/sse",
            "/messages",
            "/register",
        ] {
            let answer = preflight(&gantry, path, origin);
            assert_eq!(answer.status, 204, "{path}: {}", answer.text());
            let name = "access-control-allow-origin";
            assert_eq!(answer.header(name), Some(origin));
            for method in ["GET", "POST", "DELETE"] {
                assert!(
                    has(&answer, "access-control-allow-methods", method),
                    "{method}"
                );
            }
            let sent = [
                "Authorization",
                "Content-Type",
                "Accept",
                "Mcp-Session-Id",
                "MCP-Protocol-Version",
                "Last-Event-ID",
                "Mcp-Method",
                "Mcp-Name",
                "Mcp-Param-Region",
            ];
            for header in sent {
                assert!(
                    has(&answer, "access-control-allow-headers", header),
                    "{header}"
                );
            }
            assert!(answer.header("access-control-max-age").is_some());
            assert!(answer.header("access-control-allow-credentials").is_none());
            for word in ["Origin", "Access-Control-Request-Headers"] {
                assert!(has(&answer, "vary", word), "{:?}", answer.headers);
            }
        }
        let page = [("Origin", origin), ("Authorization", bearer.as_str())];
        let answer = send(&gantry, "POST", "/mcp", &page, &call());
        let text = &answer.message()["result"]["content"][0]["text"];
        assert_eq!(text, "x", "{}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        for header in ["Mcp-Session-Id", "WWW-Authenticate"] {
            assert!(
                has(&answer, "access-control-expose-headers", header),
                "{header}"
            );
        }
        assert!(has(&answer, "vary", "Origin"));
        // It can read why it is refused, too.
        let answer = send(&gantry, "POST", "/mcp", &[("Origin", origin)], &call());
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    }
}

// fault U9
#[test]
fn no_other_page_and_no_other_route_is_opened_by_it() {
    let (gantry, _folder) = started();
    let keys = [&gantry.agent, &gantry.admin].map(|key| format!("Bearer {key}"));
    let foreign = [
        "https://evil.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.example",
        "null",
        "*",
        "http://localhost:5174",
    ];
    for origin in foreign {
        for path in [
            "/mcp",
            "/sse",
            "/messages",
            "/register",
            "/api/v1/mcp/servers",
        ] {
            let answers = [
                preflight(&gantry, path, origin),
                send(
                    &gantry,
                    "POST",
                    path,
                    &[("Origin", origin), ("Authorization", &keys[0])],
                    &call(),
                ),
            ];
            for answer in answers {
                assert_eq!(answer.status, 403, "{origin} {path}: {}", answer.text());
                assert!(allows(&answer).is_empty(), "{:?}", answer.headers);
            }
        }
    }
    // The administrator's routes are nobody's page.
    for origin in [APP, DEV] {
        for path in [
            "/api/v1/mcp/servers",
            "/api/v1/keys",
            "/api/v1/tools/call",
            "/healthz",
        ] {
            let page = [("Origin", origin), ("Authorization", keys[1].as_str())];
            let answers = [
                preflight(&gantry, path, origin),
                send(&gantry, "GET", path, &page, &Value::Null),
            ];
            for answer in answers {
                assert_eq!(answer.status, 403, "{path}: {}", answer.text());
                assert!(allows(&answer).is_empty(), "{:?}", answer.headers);
            }
        }
        // An allowed page does not make a foreign name ours, nor does a second origin pass.
        let rebound = [("Origin", origin), ("Host", "evil.example")];
        let answer = send(&gantry, "POST", "/mcp", &rebound, &call());
        assert_eq!((answer.status, allows(&answer).len()), (403, 0));
        let twice = [("Origin", origin), ("Origin", "https://evil.example")];
        let answer = send(&gantry, "POST", "/mcp", &twice, &call());
        assert_eq!((answer.status, allows(&answer).len()), (403, 0));
    }
    // Who is no page is told nothing about pages.
    let answer = send(
        &gantry,
        "POST",
        "/mcp",
        &[("Authorization", &keys[0])],
        &call(),
    );
    assert_eq!((answer.status, allows(&answer).len()), (200, 0));
}

// row 2.8
#[test]
fn what_is_no_origin_is_refused_in_the_file_and_as_a_flag() {
    let gantry = Gantry::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    for bad in [
        "*",
        "null",
        "app.example",
        "https://app.example/x",
        "https://*.example",
    ] {
        std::fs::write(&file, format!("[gateway]\norigins = [\"{bad}\"]\n")).unwrap();
        let checked = gantry.cli(&["config", "check", "--config", file.to_str().unwrap()]);
        let told = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
        assert!(
            !checked.status.success() && told.contains("`gateway.origins`"),
            "{bad}: {told}"
        );
        assert!(told.contains("https://app.example.com"), "{bad}: {told}");
        let flag = gantry.cli(&["config", "explain", "--origin", bad]);
        assert!(!flag.status.success(), "{bad}");
    }
    let shown = gantry.cli(&["config", "explain", "--origin", APP, "--json"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("flag --origin") && shown.contains(APP),
        "{shown}"
    );
}
