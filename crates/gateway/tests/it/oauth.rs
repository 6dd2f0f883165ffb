//! Signing in to remote servers, through the real binary, against a local authorization server. The
//! tests play the person's browser: they follow the link and bring the answer back.

mod files;
mod hidden;
mod trust;
mod verb;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use gantry_testkit::wait::eventually;
use gantry_testkit::{AuthOptions, AuthServer, IssuerSaid};
use serde_json::{Value, json};

use crate::harness::{Answer, Builder, Connection, Gantry, LONG, PROGRAM, held_port};

/// Starts a gateway with the protected server of an authorization server.
fn gateway(peer: &AuthServer, auth: Value) -> Gantry {
    let entry = json!({"url": peer.mcp_url(), "auth": auth});
    start(Gantry::builder().entry("safe", entry))
}

/// Starts a gateway that can come back where it was: nobody takes its port meanwhile.
fn start(gateway: Builder) -> Gantry {
    gateway.port(held_port().port()).start()
}

/// Splits a plain URL into host and the rest.
fn split(url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").expect("a plain URL");
    let (host, path) = rest.split_once('/').expect("a path");
    (host.to_owned(), format!("/{path}"))
}

fn get(url: &str) -> Answer {
    let (host, path) = split(url);
    let mut connection = Connection::open(&host).unwrap();
    connection.request("GET", &path, &[], b"").unwrap()
}

/// Opens a link as a browser does, and returns where it is sent back to.
fn sent_back(link: &str) -> String {
    let answer = get(link);
    assert_eq!(answer.status, 302, "{}", answer.text());
    answer.header("location").expect("a redirect").to_owned()
}

/// Opens a link as a browser does, and brings the answer to the gateway.
fn browse(link: &str) -> Answer {
    get(&sent_back(link))
}

/// Waits until the gateway has a link ready by itself, after which it asks for nothing more.
fn wait_offered(gantry: &Gantry) -> Value {
    gantry.wait_status("safe", LONG, |status| {
        status["sign_in"]["link"]["link"].is_string()
    })
}

/// Asks the gateway for a link.
fn link(gantry: &Gantry) -> String {
    let begun = gantry.rest("POST", "/api/v1/mcp/servers/safe/auth", None);
    assert_eq!(begun.status, 201, "{}", begun.text());
    begun.json()["link"].as_str().expect("a link").to_owned()
}

fn sign_in(gantry: &Gantry) {
    let page = browse(&link(gantry));
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("Signed in"), "{}", page.text());
    gantry.wait_state("safe", "ready", LONG);
}

/// Returns the scopes that a call was made with.
fn scopes(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no result: {answer:#}"));
    serde_json::from_str::<Value>(text).unwrap()["scopes"].clone()
}

fn failure(answer: &Value) -> &str {
    answer["error"]["data"]["code"].as_str().unwrap_or_default()
}

/// Looks for secrets in everything that the gateway has written anywhere.
fn is_nowhere_in_clear(gantry: &Gantry, secrets: &[String]) {
    let mut folders = vec![gantry.data()];
    let mut written = vec![("stderr".to_owned(), gantry.stderr().into_bytes())];
    written.push(("stdout".to_owned(), gantry.stdout().into_bytes()));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                // Files come and go while it runs.
                false => written.push((
                    path.display().to_string(),
                    std::fs::read(path).unwrap_or_default(),
                )),
            }
        }
    }
    assert!(!secrets.is_empty());
    for (place, bytes) in written {
        let text = String::from_utf8_lossy(&bytes);
        let seen = secrets.iter().any(|secret| text.contains(secret.as_str()));
        assert!(!seen, "a secret is in clear in {place}");
    }
}

#[test]
fn a_person_signs_in_with_the_verb_and_stays_signed_in() {
    let peer = AuthServer::start(AuthOptions::default());
    let gateway = Gantry::builder()
        .entry("safe", json!({"url": peer.mcp_url()}))
        .variable("GANTRY_LOG", "debug");
    let mut gantry = start(gateway);
    let status = gantry.wait_state("safe", "needs_sign_in", LONG);
    assert!(
        status["reason"]
            .as_str()
            .unwrap()
            .contains("gantry auth safe"),
        "{status:#}"
    );
    let down = gantry.call("safe__whoami", json!({}));
    let told = down["error"]["message"].as_str().unwrap_or_default();
    assert!(told.contains("gantry auth safe"), "{down:#}");
    let mut verb = Command::new(PROGRAM);
    verb.arg("--data").arg(gantry.data());
    verb.args(["auth", "safe", "--json", "--wait", "60s"]);
    verb.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut verb = verb.spawn().unwrap();
    let mut lines = BufReader::new(verb.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let page = browse(first["link"].as_str().unwrap());
    assert_eq!(page.status, 200, "{}", page.text());
    let last: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(last["status"]["state"], "signed_in", "{last:#}");
    assert!(verb.wait().unwrap().success());
    gantry.wait_state("safe", "ready", LONG);
    assert!(
        scopes(&gantry.call("safe__whoami", json!({})))
            .as_array()
            .unwrap()
            .contains(&json!("mcp"))
    );
    let shown = gantry.status("safe");
    assert_eq!(shown["sign_in"]["state"], "signed_in", "{shown:#}");
    is_nowhere_in_clear(&gantry, &peer.secrets());
    // It stays so, without anybody's help.
    assert_eq!(gantry.stop(), Some(0));
    let mut gantry = gantry.again_here();
    gantry.wait_state("safe", "ready", LONG);
    scopes(&gantry.call("safe__whoami", json!({})));
    let out = gantry.cli(&["auth", "safe", "--remove"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(peer.count("POST /tenant-0/revoke"), 1);
    is_nowhere_in_clear(&gantry, &peer.secrets());
    assert_eq!(gantry.stop(), Some(0));
    let gantry = gantry.again_here();
    wait_offered(&gantry);
    assert_eq!(peer.registered(), 2, "the client was forgotten, too");
}

#[test]
fn the_link_of_the_status_signs_in() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = gateway(&peer, json!({}));
    let status = wait_offered(&gantry);
    assert_eq!(status["state"], "needs_sign_in");
    let page = browse(status["sign_in"]["link"]["link"].as_str().unwrap());
    assert_eq!(page.status, 200, "{}", page.text());
    gantry.wait_state("safe", "ready", LONG);
    scopes(&gantry.call("safe__whoami", json!({})));
}

#[test]
fn tokens_are_renewed_before_they_end() {
    let peer = AuthServer::start(AuthOptions {
        token_seconds: 4,
        ..AuthOptions::default()
    });
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    // A short token is used for half its life; every call on the way is answered.
    let renewed = eventually(LONG, || {
        scopes(&gantry.call("safe__whoami", json!({})));
        peer.count("POST /tenant-0/token refresh_token") >= 2
    });
    assert!(renewed.is_some(), "{:?}", peer.requests());
    is_nowhere_in_clear(&gantry, &peer.secrets());
}

#[test]
fn a_revoked_refresh_token_needs_a_person_again() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    // An access token alone is renewed without anybody noticing.
    peer.expire_access_tokens();
    scopes(&gantry.call("safe__whoami", json!({})));
    peer.expire_access_tokens();
    peer.revoke_refresh_tokens();
    let refused = gantry.call("safe__whoami", json!({}));
    assert_eq!(failure(&refused), "sign_in.needed", "{refused:#}");
    let status = gantry.wait_state("safe", "needs_sign_in", LONG);
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("the sign-in has ended"), "{reason}");
    gantry.events("safe", "needs_sign_in", 2);
    sign_in(&gantry);
    scopes(&gantry.call("safe__whoami", json!({})));
}

#[test]
fn a_call_that_needs_more_asks_for_it_in_addition() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    let refused = gantry.call("safe__administer", json!({}));
    assert_eq!(failure(&refused), "sign_in.scope", "{refused:#}");
    // The server is not down for that, and other calls continue.
    assert_eq!(gantry.status("safe")["state"], "ready");
    scopes(&gantry.call("safe__whoami", json!({})));
    let missing = &gantry.status("safe")["sign_in"]["missing_scopes"];
    assert_eq!(missing, &json!(["admin"]));
    sign_in(&gantry);
    let granted = scopes(&gantry.call("safe__administer", json!({})));
    let granted = granted.as_array().unwrap();
    assert!(granted.contains(&json!("admin")) && granted.contains(&json!("mcp")));
}

#[test]
fn the_gateway_signs_in_by_itself_with_client_credentials() {
    let peer = AuthServer::start(AuthOptions {
        registration: false,
        clients: vec![("machine".into(), "s3cret-of-machine".into())],
        ..AuthOptions::default()
    });
    let auth = json!({"kind": "client_credentials", "client_id": "machine",
        "client_secret": "s3cret-of-machine"});
    let gantry = gateway(&peer, auth);
    gantry.wait_state("safe", "ready", LONG);
    scopes(&gantry.call("safe__whoami", json!({})));
    scopes(&gantry.call("safe__administer", json!({})));
    let mut secrets = peer.secrets();
    secrets.push("s3cret-of-machine".into());
    is_nowhere_in_clear(&gantry, &secrets);
    let status = gantry.status("safe").to_string();
    assert!(!status.contains("s3cret-of-machine"), "{status}");
    let begun = gantry.rest("POST", "/api/v1/mcp/servers/safe/auth", None);
    assert_eq!(begun.status, 409);
    assert_eq!(begun.json()["code"], "sign_in.not_taken");
}

#[test]
fn a_client_of_the_configuration_or_a_document_needs_no_registration() {
    let document = "https://gantry.example/client.json";
    let peer = AuthServer::start(AuthOptions {
        registration: false,
        documents: vec![document.into()],
        clients: vec![("by-hand".into(), "s3cret".into())],
        ..AuthOptions::default()
    });
    let by_hand =
        json!({"client_id": "by-hand", "client_secret": "s3cret", "scopes": ["mcp", "admin"]});
    let by_document = json!({ "client_metadata_url": document });
    for (auth, id) in [(by_hand, "by-hand"), (by_document, "gantry.example")] {
        let gantry = gateway(&peer, auth);
        gantry.wait_state("safe", "needs_sign_in", LONG);
        assert!(link(&gantry).contains(id));
        sign_in(&gantry);
        peer.expire_access_tokens();
        scopes(&gantry.call("safe__whoami", json!({})));
    }
    assert_eq!(peer.registered(), 0);
}

#[test]
fn an_answer_counts_once_and_only_from_who_was_asked() {
    let peer = AuthServer::start(AuthOptions {
        issuer_said: IssuerSaid::Wrong,
        ..AuthOptions::default()
    });
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    let place = sent_back(&link(&gantry));
    let page = get(&place);
    assert_eq!(page.status, 400);
    assert!(page.text().contains("sign_in.issuer"), "{}", page.text());
    assert_eq!(
        peer.count("POST /tenant-0/token"),
        0,
        "the code went nowhere"
    );
    // The same answer again, one that says nothing, and one that was never asked for.
    let callback = format!("http://{}/oauth/callback", gantry.authority);
    for forged in [
        place,
        callback.clone(),
        format!("{callback}?code=a&state=b"),
        format!("{callback}?state=a&state=b"),
    ] {
        let page = get(&forged);
        assert_eq!(page.status, 400, "{forged}");
        assert!(page.text().contains("sign_in.unknown"), "{}", page.text());
    }
    assert_eq!(gantry.status("safe")["state"], "needs_sign_in");
}

#[test]
fn a_person_may_say_no_and_the_verb_says_so() {
    let peer = AuthServer::start(AuthOptions {
        denies: true,
        ..AuthOptions::default()
    });
    let gantry = gateway(&peer, json!({}));
    // A link that was made later would have the refusal forgotten.
    wait_offered(&gantry);
    let mut verb = Command::new(PROGRAM);
    verb.arg("--data").arg(gantry.data());
    verb.args(["auth", "safe", "--no-browser", "--wait", "60s"]);
    verb.env("NO_COLOR", "1").stdin(Stdio::null());
    verb.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut verb = verb.spawn().unwrap();
    let mut lines = BufReader::new(verb.stdout.take().unwrap()).lines();
    let page = browse(&lines.next().unwrap().unwrap());
    assert_eq!(page.status, 400);
    assert!(page.text().contains("access_denied"), "{}", page.text());
    let ended = verb.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(told.contains("access_denied"), "{told}");
}

#[test]
fn a_server_that_trusts_another_gets_no_token_of_the_old() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    peer.move_issuer();
    let refused = gantry.call("safe__whoami", json!({}));
    assert_eq!(failure(&refused), "sign_in.needed", "{refused:#}");
    gantry.wait_state("safe", "needs_sign_in", LONG);
    assert_eq!(peer.count("POST /tenant-1/token"), 0);
    assert_eq!(peer.count("POST /tenant-0/token refresh_token"), 0);
    sign_in(&gantry);
    assert_eq!(peer.registered(), 2, "a client is the issuer's, too");
    scopes(&gantry.call("safe__whoami", json!({})));
}

#[test]
fn tokens_go_with_their_server_and_a_header_goes_before_them() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = Gantry::start(&[]);
    let register = |body: &Value| {
        let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(body));
        assert_eq!(made.status, 201, "{}", made.text());
    };
    let body = json!({"name": "safe", "url": peer.mcp_url(), "start": "eager"});
    register(&body);
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    let gone = gantry.rest("DELETE", "/api/v1/mcp/servers/safe", None);
    assert_eq!(gone.status, 204);
    register(&body);
    // Its link is there, so that nothing is asked any more.
    wait_offered(&gantry);
    assert_eq!(gantry.status("safe")["state"], "needs_sign_in");
    gantry.rest("DELETE", "/api/v1/mcp/servers/safe", None);
    // A person's own header is sent as it is, and nothing is tried beside it.
    let mut body = body;
    body["headers"] = json!({"Authorization": "Bearer guessed"});
    register(&body);
    let before = peer.count("GET /.well-known");
    gantry.wait_status("safe", LONG, |status| status["reason"].is_string());
    let state = gantry.status("safe")["state"].clone();
    assert_ne!(state, "needs_sign_in");
    assert_eq!(peer.count("GET /.well-known"), before);
    let begun = gantry.rest("POST", "/api/v1/mcp/servers/safe/auth", None);
    assert_eq!(begun.json()["code"], "sign_in.not_taken");
}
