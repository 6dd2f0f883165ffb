//! Clients that look for a sign-in because they have no key: what they show to people says what to do.

use serde_json::{Value, json};

use crate::harness::{Answer, Gantry};

fn ask(gantry: &Gantry, method: &str, path: &str, body: &str) -> Answer {
    let headers = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let mut connection = gantry.connect();
    connection
        .request(method, path, &headers, body.as_bytes())
        .unwrap()
}

fn says_what_to_do(text: &str) -> bool {
    [
        "Authorization: Bearer KEY",
        "gantry key new",
        "gantry connect",
    ]
    .iter()
    .all(|words| text.contains(words))
}

// fault U1
#[test]
fn a_client_without_a_key_is_told_to_send_one() {
    let gantry = Gantry::start(&[]);
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}});
    for path in ["/mcp", "/mcp/", "/mcp/servers/a", "/sse", "/messages"] {
        let answer = ask(&gantry, "POST", path, &hello.to_string());
        assert_eq!(answer.status, 401, "{path}");
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer "), "{challenge}");
        assert!(!challenge.contains("resource_metadata"), "{challenge}");
        let told = answer.json()["error"]["message"].clone();
        assert!(says_what_to_do(told.as_str().unwrap()), "{told}");
    }
}

// fault U1: what the SDKs' sign-in does after a 401
#[test]
fn whoever_looks_for_a_sign_in_finds_how_to_go_on_without() {
    let gantry = Gantry::start(&[]);
    let looked = [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource/mcp/servers/a",
        "/.well-known/oauth-protected-resource/sse",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
        "/mcp/.well-known/openid-configuration",
    ];
    let oauth = |answer: &Answer| -> (Value, String) {
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let body = answer.json();
        let told = body["error_description"].as_str().unwrap().to_owned();
        (body["error"].clone(), told)
    };
    for path in looked {
        let answer = ask(&gantry, "GET", path, "");
        // Clients go on to the next place after a 404, and give up after anything worse.
        assert_eq!(answer.status, 404, "{path}");
        let (_, told) = oauth(&answer);
        assert!(says_what_to_do(&told), "{path}: {told}");
    }
    let client =
        json!({"client_name": "c", "redirect_uris": ["http://127.0.0.1:3334/oauth/callback"]});
    let answer = ask(&gantry, "POST", "/register", &client.to_string());
    assert_eq!(answer.status, 400);
    let (error, told) = oauth(&answer);
    // After these the TypeScript SDK forgets what it knows and tries once more.
    let again = ["invalid_client", "unauthorized_client", "invalid_grant"];
    assert!(!again.contains(&error.as_str().unwrap()), "{error}");
    assert!(says_what_to_do(&told), "{told}");
    let answer = ask(
        &gantry,
        "POST",
        "/token",
        "grant_type=authorization_code&code=x",
    );
    assert_eq!(answer.status, 400);
    assert!(says_what_to_do(&oauth(&answer).1));
    let answer = ask(&gantry, "GET", "/authorize?client_id=x", "");
    assert_eq!(answer.status, 404);
    assert!(says_what_to_do(&answer.text()), "{}", answer.text());
    // Names are judged here as everywhere.
    let mut connection = gantry.connect();
    let headers = [
        ("Host", "evil.example"),
        ("Content-Type", "application/json"),
    ];
    let answer = connection
        .request("POST", "/register", &headers, b"{}")
        .unwrap();
    assert_eq!(answer.status, 403);
    assert!(!says_what_to_do(&answer.text()), "{}", answer.text());
}
