//! Addresses that try to be another one: the key is asked for by the route that matched.

use std::io::Write as _;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use super::{audited, code, refused, unharmed, went_well};
use crate::faults_client::{Holdings, Posted};
use crate::harness::{Answer, Gantry, LONG};

/// Sends a request line and headers as they are.
fn raw(gantry: &Gantry, line: &str, headers: &[(&str, &str)]) -> Answer {
    let mut connection = gantry.connect();
    let mut text = format!("{line}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("Connection: close\r\n\r\n");
    connection.socket().write_all(text.as_bytes()).unwrap();
    connection.answer().unwrap()
}

// faults U8 and U9
#[test]
fn a_foreign_host_is_refused_whatever_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().journal(&journal);
    let gantry = Gantry::builder()
        .server("a", &peer)
        .flags(&["--host", "gantry.example"])
        .start();
    gantry.wait_state("a", "ready", LONG);
    let at_first = Holdings::of(&gantry);
    let port = gantry.authority.rsplit(':').next().unwrap().to_owned();
    let call = Posted::call(&gantry.agent, "a__echo", json!({"text": "x"}));
    // What is no host at all cannot be understood; any other host is somebody else.
    let foreign = [
        ("a/?x=", 400),
        ("localhost/?x=", 400),
        ("127.0.0.1/healthz?", 400),
        ("localhost:99999", 400),
        ("localhost:80:80", 400),
        ("user@localhost", 400),
        ("", 400),
        ("localhost#", 400),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("[::2]", 403),
        ("0x7f.1", 403),
        ("localhost..", 403),
        ("127.1", 403),
    ];
    for (host, status) in foreign {
        refused(
            host,
            &call.clone().header("Host", host).send(&gantry),
            status,
            "http.host",
        );
        for path in ["/healthz", "/api/v1/keys", "/nothing"] {
            let answer = raw(&gantry, &format!("GET {path} HTTP/1.1"), &[("Host", host)]);
            refused(host, &answer, status, "http.host");
        }
    }
    let bearer = format!("Bearer {}", gantry.admin);
    let keys = |line: &str, hosts: &[&str]| {
        let mut headers: Vec<_> = hosts.iter().map(|host| ("Host", *host)).collect();
        headers.push(("Authorization", &bearer));
        raw(&gantry, line, &headers)
    };
    for hosts in [
        &[][..],
        &["localhost", "localhost"],
        &["localhost", "evil.example"],
    ] {
        let answer = keys("GET /api/v1/keys HTTP/1.1", hosts);
        refused("hosts", &answer, 400, "http.host");
    }
    for (line, hosts, status) in [
        (
            "GET http://evil.example/api/v1/keys HTTP/1.1",
            ["localhost"],
            403,
        ),
        (
            "GET http://localhost/api/v1/keys HTTP/1.1",
            ["evil.example"],
            403,
        ),
        (
            "GET http://localhost@evil.example/api/v1/keys HTTP/1.1",
            ["localhost"],
            400,
        ),
    ] {
        refused(line, &keys(line, &hosts), status, "http.host");
    }
    assert_eq!(Journal::read(&journal).unwrap().calls(), 0);
    assert_eq!(gantry.audit_rows(""), Vec::<Value>::new());
    // Our own names, however they are written.
    let good = [
        "localhost",
        "LocalHost.",
        "127.0.0.1",
        "[::1]",
        "GANTRY.example.",
        &format!("localhost:{port}"),
    ];
    for host in good {
        assert_eq!(
            call.clone().header("Host", host).send(&gantry).status,
            200,
            "{host}"
        );
    }
    assert_eq!(
        keys("GET http://localhost/api/v1/keys HTTP/1.1", &["localhost"]).status,
        200
    );
    audited(&gantry, &[went_well("mcp"); 6]);
    unharmed(&gantry, &at_first);
}

// fault U8
#[test]
fn no_way_of_writing_a_path_gets_around_its_key() {
    let gantry = Gantry::start(&["a"]);
    let at_first = Holdings::of(&gantry);
    let paths = [
        "//api/v1/keys",
        "/./api/v1/keys",
        "/api//v1/keys",
        "/api/v1/keys/",
        "/api/v1/./keys",
        "/API/v1/keys",
        "/api/v1/Keys",
        "/mcp/../api/v1/keys",
        "/healthz/../api/v1/keys",
        "/healthz/..%2fapi/v1/keys",
        "/%2e%2e/api/v1/keys",
        "/mcp/%2e%2e/api/v1/keys",
        "/api%2fv1%2fkeys",
        "/api/v1%2fkeys",
        "/api/v1/keys%00",
        "/api/v1/keys%20",
        "/api/v1/keys;a=b",
        "/api/v1/keys.",
        "/api/v1/%6beys",
        "/api/v1/keys%3fx",
        "/api/v1/tools/../keys",
        "/mcp/servers/../../api/v1/keys",
        "/mcp/servers/..%2f..%2fapi%2fv1%2fkeys",
        "/mcp/servers/%2e%2e",
        "/MCP",
        "/mcp/servers/",
        "/mcp//servers/a",
    ];
    let agent = format!("Bearer {}", gantry.agent);
    for path in paths {
        let line = format!("GET {path} HTTP/1.1");
        for headers in [
            vec![("Host", "localhost")],
            vec![("Host", "localhost"), ("Authorization", agent.as_str())],
        ] {
            let answer = raw(&gantry, &line, &headers);
            let told = (answer.status, code(&answer));
            let fits = match told.0 {
                404 => ["http.route", "server.unknown"].contains(&told.1.as_str()),
                401 => headers.len() == 1 && told.1 == "auth.no_key",
                403 => headers.len() == 2 && told.1 == "auth.agent_key",
                _ => false,
            };
            assert!(fits, "{line}: {told:?}");
        }
    }
    // What follows the path is no part of it, and headers rewrite nothing.
    for line in [
        "GET /api/v1/keys?x=/healthz HTTP/1.1",
        "GET /api/v1/keys?/../healthz HTTP/1.1",
    ] {
        refused(
            line,
            &raw(&gantry, line, &[("Host", "localhost")]),
            401,
            "auth.no_key",
        );
    }
    for header in [
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Forwarded-Host",
        "X-Forwarded-Prefix",
    ] {
        let answer = raw(
            &gantry,
            "GET /api/v1/keys HTTP/1.1",
            &[("Host", "localhost"), (header, "/healthz")],
        );
        refused(header, &answer, 401, "auth.no_key");
        let answer = raw(
            &gantry,
            "GET /healthz HTTP/1.1",
            &[("Host", "localhost"), (header, "/api/v1/keys")],
        );
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "ok\n"),
            "{header}"
        );
    }
    let overridden = [
        ("Host", "localhost"),
        ("Authorization", agent.as_str()),
        ("X-HTTP-Method-Override", "DELETE"),
    ];
    refused(
        "override",
        &raw(&gantry, "GET /api/v1/mcp/servers/a HTTP/1.1", &overridden),
        403,
        "auth.agent_key",
    );
    assert_eq!(gantry.status("a")["state"], "ready");
    audited(&gantry, &[]);
    unharmed(&gantry, &at_first);
}

// fault U8, fault U9
#[test]
fn pages_of_other_origins_are_refused_on_every_surface() {
    let gantry = Gantry::start(&["a"]);
    let at_first = Holdings::of(&gantry);
    let call = Posted::call(&gantry.agent, "a__echo", json!({"text": "x"}));
    let ours = format!("http://{}", gantry.authority);
    for origin in [
        "http://evil.example",
        "null",
        "https://localhost",
        "http://localhost:1",
    ] {
        refused(
            origin,
            &call.clone().header("Origin", origin).send(&gantry),
            403,
            "http.origin",
        );
        let host = gantry.authority.as_str();
        let answer = raw(
            &gantry,
            "GET /healthz HTTP/1.1",
            &[("Host", host), ("Origin", origin)],
        );
        refused(origin, &answer, 403, "http.origin");
    }
    let twice = call
        .clone()
        .also("Origin", &ours)
        .also("Origin", &ours)
        .send(&gantry);
    refused("two origins", &twice, 403, "http.origin");
    let answer = call.header("Origin", &ours).send(&gantry);
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .headers
            .iter()
            .all(|(name, _)| !name.starts_with("access-control-"))
    );
    audited(&gantry, &[went_well("mcp")]);
    unharmed(&gantry, &at_first);
}
