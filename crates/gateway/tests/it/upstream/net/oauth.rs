//! Places that a server names for signing in: none of them leads to a private address, whoever names
//! it. fault H4

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::super::peer::{Peer, Reply, Seen, legacy};
use super::corpus::{self, Case};
use super::space::{PUBLIC, Space};
use super::{
    FAR_PORT, far, far_peer, is_address, numbered, reasons, reasons_beside, resolve, tried_once,
};
use crate::harness::{Gantry, LONG};

/// Where the public server is that has TLS.
const ENCRYPTED_PORT: u16 = 7443;
/// What that server shows, and vouches for itself with.
const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/upstream/tls/far.pem");

/// What is told of a place that others on the way can read along with.
const READABLE: &str = "is neither an `https` URL nor on this machine";

/// Where these places may be said to be.
pub(super) fn targets() -> Vec<Case> {
    [
        corpus::literals(),
        corpus::names(),
        corpus::well_known(),
        corpus::spellings(),
    ]
    .concat()
}

/// Returns the same with TLS, without which an authorization server's places are not looked at.
pub(super) fn encrypted_targets() -> Vec<Case> {
    let mut cases = targets();
    for case in &mut cases {
        case.url = case.url.replacen("http://", "https://", 1);
    }
    cases
}

/// Returns a URL of the public server that has TLS.
fn encrypted(path: &str) -> String {
    format!("https://far.example:{ENCRYPTED_PORT}{path}")
}

/// Returns the entry of a server that wants a sign-in, tried once.
fn entry(base: fn(&str) -> String, number: usize, auth: Value) -> Value {
    let mut entry = tried_once(&base(&format!("/server/{number}/mcp")));
    entry["auth"] = auth;
    entry["ca_file"] = CERTIFICATE.into();
    entry
}

/// Starts a server that wants a sign-in and is its own authorization server, with TLS.
fn encrypted_authority(place: &'static str, cases: &[Case]) -> Peer {
    let address = SocketAddr::new(PUBLIC.parse().unwrap(), ENCRYPTED_PORT);
    let certificate = include_str!("../tls/far.pem");
    Peer::encrypted_at(address, certificate, authority(encrypted, place, cases))
}

/// Plays a server that wants a sign-in, and its authorization server; one member of what it says of
/// itself, or of what the other does, is each case's own. Behind the last case everything is well.
fn authority(
    base: fn(&str) -> String,
    place: &'static str,
    cases: &[Case],
) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    let targets: Vec<String> = cases.iter().map(|case| case.url.clone()).collect();
    move |seen| {
        let said = |named: &str, number: usize, otherwise: String| match targets.get(number) {
            Some(target) if place == named => target.clone(),
            _ => otherwise,
        };
        if let Some(number) = numbered(seen, "/server/") {
            if seen.header("Authorization") == Some("Bearer g00d") {
                return legacy(seen);
            }
            let metadata = base(&format!("/resource/{number}"));
            let metadata = said("resource_metadata", number, metadata);
            let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
            return Reply::Status(401, vec![("WWW-Authenticate", challenge)], String::new());
        }
        let issuer = |number: usize| base(&format!("/authority/{number}"));
        if let Some(number) = numbered(seen, "/resource/") {
            let issuer = said("authorization_servers", number, issuer(number));
            return Reply::Json(json!({"resource": base(&format!("/server/{number}/mcp")),
                "authorization_servers": [issuer]}));
        }
        let known = "/.well-known/oauth-authorization-server/authority/";
        if let Some(number) = numbered(seen, known) {
            let endpoint = |named: &str, path: &str| said(named, number, base(path));
            return Reply::Json(json!({"issuer": issuer(number),
                "authorization_endpoint": base("/authorize"),
                "token_endpoint": endpoint("token_endpoint", "/token"),
                "registration_endpoint": endpoint("registration_endpoint", "/register"),
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "client_credentials"],
                "code_challenge_methods_supported": ["S256"]}));
        }
        match seen.path.as_str() {
            "/control" => legacy(seen),
            "/register" => Reply::Json(json!({"client_id": "you", "redirect_uris": []})),
            "/token" => Reply::Json(json!({"access_token": "g00d", "token_type": "Bearer"})),
            _ => Reply::status(404),
        }
    }
}

/// Has a person ask for a link to each server and to one more, and returns the answers; nobody may
/// have been connected to but the public servers.
fn links(space: &Space, base: fn(&str) -> String, cases: &[Case]) -> Vec<Value> {
    let entries = (0..=cases.len()).map(|number| entry(base, number, json!({})));
    let (gantry, _) = reasons(space, entries.collect());
    let ask = |number: usize| {
        let server = format!("s{number}");
        gantry.wait_state(&server, "needs_sign_in", LONG);
        let path = format!("/api/v1/mcp/servers/{server}/auth");
        gantry.rest("POST", &path, None).json()
    };
    let answers = (0..=cases.len()).map(ask).collect();
    assert_eq!(
        space.reached(),
        Vec::<IpAddr>::new(),
        "connections were made"
    );
    answers
}

/// Has the gateway sign in by itself at each server, and returns why it could not; at one more it
/// can. Nobody may have been connected to but the public server.
fn secrets(space: &Space, cases: &[Case]) -> Vec<String> {
    let auth = json!({"kind": "client_credentials", "client_id": "me", "client_secret": "s3cret"});
    let entry = |number: usize| entry(encrypted, number, auth.clone());
    let control = entry(cases.len());
    let entries = (0..cases.len()).map(entry).collect();
    let (_gantry, reasons): (Gantry, _) = reasons_beside(space, control, entries);
    let without_tries = |reason: String| {
        let why = reason.split_once("; 1 failed connects in a row, ");
        why.unwrap_or_else(|| panic!("{reason}")).0.to_owned()
    };
    reasons.into_iter().map(without_tries).collect()
}

/// Returns the message of `sign_in.unavailable` after its beginning.
fn unavailable(number: usize, message: &str) -> &str {
    let told = format!("the authorization server of `s{number}` cannot be used: ");
    let why = message.split_once(&told).map(|(_, why)| why);
    why.unwrap_or_else(|| panic!("{message}"))
}

/// Asserts that no link was given for want of an authorization server, and returns why.
fn no_link(number: usize, said: &Value) -> &str {
    assert_eq!(said["code"], "sign_in.unavailable", "{said}");
    unavailable(number, said["detail"].as_str().unwrap())
}

#[test]
fn no_metadata_of_a_resource_is_read_at_a_private_address() {
    // fault H4
    let space = Space::enter(|asked| resolve(asked.name));
    let cases = targets();
    let _far = far_peer(authority(far, "resource_metadata", &cases));
    for (number, said) in links(&space, far, &cases).iter().enumerate() {
        no_link(number, said);
    }
}

#[test]
fn no_authorization_server_is_asked_at_a_private_address() {
    // fault H4
    let space = Space::enter(|asked| resolve(asked.name));
    let cases = targets();
    let _far = far_peer(authority(far, "authorization_servers", &cases));
    for (number, said) in links(&space, far, &cases).iter().enumerate() {
        no_link(number, said);
    }
}

#[test]
fn no_client_is_registered_at_a_private_address() {
    // fault H4: `sign_in.unavailable`, for where the endpoint leads and nothing else
    let space = Space::enter(|asked| resolve(asked.name));
    let cases = encrypted_targets();
    let _far = far_peer(legacy);
    let _authority = encrypted_authority("registration_endpoint", &cases);
    let answers = links(&space, encrypted, &cases);
    for (number, (case, said)) in cases.iter().zip(&answers).enumerate() {
        let why = no_link(number, said);
        match case.url.is_ascii() && !case.url.contains('%') {
            true => is_address(case, why),
            // Not even an HTTP request can be made of these spellings.
            false => assert!(why.starts_with("Registration failed: invalid "), "{why}"),
        }
    }
    let link = answers[cases.len()]["link"].as_str();
    let is_given = link.is_some_and(|link| link.starts_with(&encrypted("/authorize?")));
    assert!(is_given, "{}", answers[cases.len()]);
}

#[test]
fn no_secret_is_shown_for_a_token_at_a_private_address() {
    // fault H4: `sign_in.unavailable`, for where the endpoint leads and nothing else
    let space = Space::enter(|asked| resolve(asked.name));
    let cases = encrypted_targets();
    let _authority = encrypted_authority("token_endpoint", &cases);
    for (number, (case, reason)) in cases.iter().zip(secrets(&space, &cases)).enumerate() {
        is_address(case, unavailable(number, &reason));
        assert!(!reason.contains("s3cret"), "{reason}");
    }
}

#[test]
fn nobody_is_told_anything_at_a_place_without_tls() {
    // fault H4: on this machine it needs none, and then it is the address that is refused
    let case = |url: &str, leads_to: &str| Case {
        url: url.to_owned(),
        leads_to: leads_to.parse().unwrap(),
    };
    let public = format!("http://{PUBLIC}:{FAR_PORT}");
    let readable = [
        case(&far("/token"), PUBLIC),
        case(&public, PUBLIC),
        case("http://10.0.0.1:8080/token", "10.0.0.1"),
        case("http://169.254.169.254/token", "169.254.169.254"),
        case("http://intranet.example:9090/token", "10.0.0.1"),
        case("http://[fd00:ec2::254]/token", "fd00:ec2::254"),
    ];
    let near = [
        case("http://127.0.0.1:8080/token", "127.0.0.1"),
        case("http://[::1]:9090/token", "::1"),
        case("http://deep.localhost/token", "127.0.0.1"),
    ];
    let cases = [&readable[..], &near[..]].concat();
    let space = Space::enter(|asked| resolve(asked.name));
    let plain = far_peer(legacy);
    let is_refused = |what: &str, number: usize, why: &str| match number < readable.len() {
        true => assert_eq!(why, format!("its {what} {READABLE}"), "{:?}", cases[number]),
        false => is_address(&cases[number], why),
    };
    let registering = encrypted_authority("registration_endpoint", &cases);
    let answers = links(&space, encrypted, &cases);
    for (number, said) in answers[..cases.len()].iter().enumerate() {
        is_refused("registration endpoint", number, no_link(number, said));
    }
    drop(registering);
    let _authority = encrypted_authority("token_endpoint", &cases);
    for (number, reason) in secrets(&space, &cases).iter().enumerate() {
        is_refused("token endpoint", number, unavailable(number, reason));
    }
    let seen = plain.seen();
    assert!(seen.iter().all(|seen| seen.path == "/control"), "{seen:?}");
}
