//! Places that a server names for signing in: none of them leads to a private address, whoever names
//! it. fault H4

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::peer::{Peer, Reply, Seen, legacy};
use super::corpus::{self, Case};
use super::space::Space;
use super::{far, far_peer, numbered, reasons, resolve, tried_once};
use crate::harness::{Gantry, LONG};

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

/// Plays a server that wants a sign-in, and its authorization server; one member of what it says of
/// itself, or of what the other does, is each case's own.
fn far_authority(place: &'static str) -> Peer {
    let targets: Vec<String> = targets().into_iter().map(|case| case.url).collect();
    far_peer(move |seen| {
        if let Some(number) = numbered(seen, "/server/") {
            let metadata = match place {
                "resource_metadata" => targets[number].clone(),
                _ => far(&format!("/resource/{number}")),
            };
            let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
            return Reply::Status(401, vec![("WWW-Authenticate", challenge)], String::new());
        }
        let authority = |number: usize| far(&format!("/authority/{number}"));
        if let Some(number) = numbered(seen, "/resource/") {
            let authority = match place {
                "authorization_servers" => targets[number].clone(),
                _ => authority(number),
            };
            return Reply::Json(json!({"resource": far(&format!("/server/{number}/mcp")),
                "authorization_servers": [authority]}));
        }
        let known = "/.well-known/oauth-authorization-server/authority/";
        if let Some(number) = numbered(seen, known) {
            let mut metadata = json!({"issuer": authority(number),
                "authorization_endpoint": far("/authorize"), "token_endpoint": far("/token"),
                "registration_endpoint": far("/register"), "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "client_credentials"],
                "code_challenge_methods_supported": ["S256"]});
            if metadata.get(place).is_some() {
                metadata[place] = targets[number].clone().into();
            }
            return Reply::Json(metadata);
        }
        elsewhere(seen)
    })
}

fn elsewhere(seen: &Seen) -> Reply {
    match seen.path.as_str() {
        "/control" => legacy(seen),
        _ => Reply::status(404),
    }
}

/// Has a person ask for a link to each server, and returns the answers; nobody may have been
/// connected to but the public server.
fn links(place: &'static str) -> Vec<(Case, Value)> {
    let space = Space::enter(|asked| resolve(asked.name));
    let _far = far_authority(place);
    let entry = |number: usize| {
        let mut entry = tried_once(&far(&format!("/server/{number}/mcp")));
        entry["auth"] = json!({});
        entry
    };
    let cases = targets();
    let (gantry, _) = reasons(&space, (0..cases.len()).map(entry).collect());
    let ask = |number: usize| {
        let server = format!("s{number}");
        gantry.wait_state(&server, "needs_sign_in", LONG);
        let path = format!("/api/v1/mcp/servers/{server}/auth");
        gantry.rest("POST", &path, None).json()
    };
    let answers: Vec<Value> = (0..cases.len()).map(ask).collect();
    assert_eq!(
        space.reached(),
        Vec::<IpAddr>::new(),
        "connections were made"
    );
    drop(gantry);
    cases.into_iter().zip(answers).collect()
}

#[test]
fn no_metadata_of_a_resource_is_read_at_a_private_address() {
    // fault H4
    for (case, said) in links("resource_metadata") {
        assert_eq!(said["code"], "sign_in.unavailable", "{case:?}: {said}");
    }
}

#[test]
fn no_authorization_server_is_asked_at_a_private_address() {
    // fault H4
    for (case, said) in links("authorization_servers") {
        assert_eq!(said["code"], "sign_in.unavailable", "{case:?}: {said}");
    }
}

#[test]
fn no_client_is_registered_at_a_private_address() {
    // fault H4
    for (case, said) in links("registration_endpoint") {
        assert_eq!(said["code"], "sign_in.unavailable", "{case:?}: {said}");
    }
}

#[test]
fn no_secret_is_shown_for_a_token_at_a_private_address() {
    // fault H4: `sign_in.unavailable`. The authorization server of this network has no TLS, which
    // alone keeps the secret here; that addresses are judged beside it is shown next to `Way`.
    let space = Space::enter(|asked| resolve(asked.name));
    let _far = far_authority("token_endpoint");
    let entry = |number: usize| {
        let mut entry = tried_once(&far(&format!("/server/{number}/mcp")));
        entry["auth"] =
            json!({"kind": "client_credentials", "client_id": "me", "client_secret": "s3cret"});
        entry
    };
    let cases = targets();
    let (gantry, reasons): (Gantry, _) = reasons(&space, (0..cases.len()).map(entry).collect());
    for (case, reason) in cases.iter().zip(&reasons) {
        assert!(reason.contains(" cannot be used: "), "{case:?}: {reason}");
        assert!(!reason.contains("s3cret"), "{reason}");
    }
    drop(gantry);
}
