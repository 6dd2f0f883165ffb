//! `GET /`: a page that says what this is, for whoever opens the address.

use serde_json::json;

use crate::harness::{Answer, Gantry};

fn get(gantry: &Gantry, headers: &[(&str, &str)]) -> Answer {
    gantry.connect().request("GET", "/", headers, b"").unwrap()
}

#[test]
fn the_address_itself_says_what_it_is_and_where_to_go_on() {
    let gantry = Gantry::start(&["secretive"]);
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let page = get(&gantry, &[("Accept", browser)]);
    let text = get(&gantry, &[("Accept", "*/*")]);
    let bare = get(&gantry, &[]);
    let json = get(&gantry, &[("Accept", "application/json")]);
    for (answer, kind) in [
        (&page, "text/html; charset=utf-8"),
        (&text, "text/plain; charset=utf-8"),
        (&bare, "text/plain; charset=utf-8"),
        (&json, "application/json"),
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some(kind));
        assert_eq!(answer.header("vary"), Some("Accept"));
        let said = answer.text();
        for part in [
            "Gantry",
            "MCP servers",
            "/api/v1/docs",
            "/healthz",
            "/mcp",
            "ok",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // Nothing of this gateway, and nothing of this machine.
        let data = gantry.data();
        for secret in [
            "secretive",
            &gantry.agent,
            &gantry.admin,
            data.to_str().unwrap(),
        ] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    assert!(!page.text().contains("href=\"http"));
    // Its one script is a file of the gateway's, and no other may run.
    assert_eq!(page.text().matches("<script").count(), 1);
    assert!(
        page.text()
            .contains("<script src=\"/sign-in.js\"></script>")
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("script-src 'self';"), "{policy}");
    assert_eq!(json.json()["mcp"], json!("/mcp"));
    // Every place that it names is there.
    for place in [
        "/healthz",
        "/api/v1/docs",
        "/api/v1/openapi.json",
        "/errors",
    ] {
        let answer = gantry.connect().request("GET", place, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{place}");
        assert!(
            page.text().contains(&format!("href=\"{place}\"")),
            "{place}"
        );
    }
    // It is checked like every other route.
    let foreign = get(&gantry, &[("Host", "evil.example")]);
    assert_eq!(foreign.status, 403);
    let posted = gantry.connect().request("POST", "/", &[], b"").unwrap();
    assert_eq!(posted.status, 405);
    let beside = gantry
        .connect()
        .request("GET", "/nowhere", &[], b"")
        .unwrap();
    assert_eq!(beside.status, 404);
}
