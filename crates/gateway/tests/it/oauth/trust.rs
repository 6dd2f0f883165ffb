//! Whom a configured client is shown to: the authorization server that it is bound to, whatever the
//! MCP server names later.

use super::*;

/// An authorization server that knows one client, by hand.
fn knowing() -> AuthServer {
    AuthServer::start(AuthOptions {
        registration: false,
        clients: vec![("by-hand".into(), "s3cret-of-hand".into())],
        ..AuthOptions::default()
    })
}

/// How that client signs in.
fn by_hand(more: Value) -> Value {
    let mut auth = json!({"client_id": "by-hand", "client_secret": "s3cret-of-hand"});
    let more = more.as_object().cloned().unwrap_or_default();
    auth.as_object_mut().unwrap().extend(more);
    auth
}

fn begin(gantry: &Gantry, query: &str) -> Answer {
    let path = format!("/api/v1/mcp/servers/safe/auth{query}");
    gantry.rest("POST", &path, None)
}

#[test]
fn a_configured_client_moves_only_when_a_person_says_so() {
    let peer = knowing();
    let mut gantry = gateway(&peer, by_hand(json!({})));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    peer.move_issuer();
    let refused = gantry.call("safe__whoami", json!({}));
    assert_eq!(failure(&refused), "sign_in.needed", "{refused:#}");
    gantry.wait_state("safe", "needs_sign_in", LONG);
    let refused = begin(&gantry, "").json();
    assert_eq!(refused["code"], "sign_in.moved", "{refused:#}");
    assert_eq!(refused["status"], 502);
    let hint = refused["hint"].as_str().unwrap();
    assert!(hint.contains("gantry auth safe --again"), "{hint}");
    let verb = gantry.cli(&["auth", "safe", "--no-browser"]);
    assert_eq!(verb.status.code(), Some(1));
    let told = String::from_utf8_lossy(&verb.stderr).into_owned();
    assert!(told.contains("--again"), "{told}");
    // Nothing was shown to the new one, and the gateway keeps that over its own end.
    assert_eq!(peer.count("POST /tenant-1"), 0);
    assert_eq!(gantry.stop(), Some(0));
    let gantry = gantry.again_here();
    gantry.wait_state("safe", "needs_sign_in", LONG);
    assert_eq!(begin(&gantry, "").json()["code"], "sign_in.moved");
    assert_eq!(peer.count("POST /tenant-1"), 0);
    let begun = begin(&gantry, "?again=true");
    assert_eq!(begun.status, 201, "{}", begun.text());
    let page = browse(begun.json()["link"].as_str().unwrap());
    assert_eq!(page.status, 200, "{}", page.text());
    gantry.wait_state("safe", "ready", LONG);
    scopes(&gantry.call("safe__whoami", json!({})));
    let unknown = begin(&gantry, "?agian=true");
    assert_eq!(unknown.status, 400, "{}", unknown.text());
}

#[test]
fn a_secret_goes_to_nobody_whom_only_the_server_names() {
    let peer = knowing();
    let evil = AuthServer::start(AuthOptions {
        host: "127.0.0.2",
        clients: vec![("by-hand".into(), "s3cret-of-hand".into())],
        ..AuthOptions::default()
    });
    let right = peer.issuer();
    peer.name_issuer(&evil.issuer());
    let entry =
        |more: Value| json!({"url": peer.mcp_url(), "allow_private": true, "auth": by_hand(more)});
    let kind = "client_credentials";
    // Nothing binds the secret, and nobody looks: it stays here.
    let gantry = Gantry::builder()
        .entry("safe", entry(json!({ "kind": kind })))
        .start();
    let status = gantry.wait_status("safe", LONG, |status| status["reason"].is_string());
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains(&evil.issuer()), "{reason}");
    let refused = gantry.call("safe__whoami", json!({}));
    assert!(refused["error"].is_object(), "{refused:#}");
    drop(gantry);
    // The configuration binds it: what the server names makes no difference.
    let gantry = Gantry::builder()
        .entry("safe", entry(json!({"kind": kind, "issuer": right})))
        .start();
    gantry.wait_state("safe", "ready", LONG);
    scopes(&gantry.call("safe__whoami", json!({})));
    let shown = gantry.status("safe")["spec"]["auth"]["issuer"].clone();
    assert_eq!(shown, json!(right));
    assert_eq!(peer.count("POST /tenant-0/token client_credentials"), 1);
    assert_eq!(evil.count("POST"), 0, "{:?}", evil.requests());
}

#[test]
fn without_a_person_the_first_authorization_server_stays() {
    let peer = knowing();
    // It is tried again soon, however often it could not be reached until the old one is forgotten.
    let entry = json!({"url": peer.mcp_url(), "auth": by_hand(json!({"kind": "client_credentials"})),
        "reconnect": {"first": "100ms", "longest": "500ms", "failures": 50}});
    let gantry = Gantry::builder().entry("safe", entry).start();
    gantry.wait_state("safe", "ready", LONG);
    scopes(&gantry.call("safe__whoami", json!({})));
    peer.move_issuer();
    let refused = gantry.call("safe__whoami", json!({}));
    assert_eq!(failure(&refused), "sign_in.moved", "{refused:#}");
    assert_eq!(peer.count("POST /tenant-1/token"), 0);
    // An administrator forgets the old one.
    let out = gantry.cli(&["auth", "safe", "--remove", "--json"]);
    assert!(out.status.success(), "{out:?}");
    let told: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(told["state"], "signed_out");
    gantry.wait_state("safe", "ready", LONG);
    scopes(&gantry.call("safe__whoami", json!({})));
}

#[test]
fn a_server_that_only_answers_who_is_signed_in_is_started_by_the_sign_in() {
    let peer = AuthServer::start(AuthOptions {
        silent: true,
        ..AuthOptions::default()
    });
    let entry = json!({"url": peer.mcp_url(), "life": {"handshake": "10m"}});
    let gantry = Gantry::builder().entry("safe", entry).start();
    let asked = eventually(LONG, || peer.count("POST /mcp") > 0);
    assert!(asked.is_some(), "{:?}", peer.requests());
    assert_eq!(gantry.status("safe")["state"], "starting");
    sign_in(&gantry);
    scopes(&gantry.call("safe__whoami", json!({})));
}

#[test]
fn the_page_shows_words_of_others_as_words() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    let place = sent_back(&link(&gantry));
    let (callback, query) = place.split_once('?').unwrap();
    let kept = query.split('&').filter(|pair| !pair.starts_with("code="));
    let kept = kept.collect::<Vec<_>>().join("&");
    let markup = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let page = get(&format!(
        "{callback}?{kept}&error=x&error_description={markup}"
    ));
    assert_eq!(page.status, 400);
    let text = page.text();
    assert!(
        text.contains("&lt;script&gt;") && !text.contains("<script"),
        "{text}"
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("location"), None);
}
