//! What servers want models to know, told to clients of the joined endpoint.

use std::fs;

use serde_json::{Value, json};

use super::entry;
use super::peer::{Peer, Reply, Seen, legacy, modern};
use crate::harness::{Gantry, LONG, Session};

/// A server with instructions.
fn server(instructions: &str, plain: fn(&Seen) -> Reply) -> Peer {
    let told = instructions.to_owned();
    Peer::start(move |seen| match (seen.method(), plain(seen)) {
        ("initialize", Reply::Status(status, headers, body)) => {
            let mut hello: Value = serde_json::from_str(&body).unwrap();
            hello["result"]["instructions"] = json!(told);
            Reply::Status(status, headers, hello.to_string())
        }
        ("server/discover", Reply::Json(mut hello)) => {
            hello["result"]["instructions"] = json!(told);
            Reply::Json(hello)
        }
        (_, reply) => reply,
    })
}

fn started(peers: &[(&str, &Peer)], flags: &[&str]) -> Gantry {
    let mut builder = Gantry::builder().flags(flags);
    for (name, peer) in peers {
        builder = builder.entry(name, entry(&peer.url("/mcp")));
    }
    let gantry = builder.start();
    for (name, _) in peers {
        gantry.wait_state(name, "ready", LONG);
    }
    gantry
}

/// Returns what clients of both generations are told, which is the same.
fn told(gantry: &Gantry, key: &str) -> Option<String> {
    let hello = Session::open(gantry.connect(), key, "2025-11-25").hello;
    let mut connection = gantry.connect();
    let discovered =
        crate::harness::modern(&mut connection, key, "/mcp", "server/discover", json!({}));
    let discovered = discovered.message()["result"]["instructions"].clone();
    assert_eq!(hello["instructions"], discovered);
    hello["instructions"].as_str().map(str::to_owned)
}

// row 2.14
#[test]
fn instructions_are_joined_under_the_names_of_the_servers_that_an_agent_may_use() {
    let (one, other) = (server("Ask one.", legacy), server("Ask other.", modern));
    let quiet = Peer::start(legacy);
    let gantry = started(&[("one", &one), ("other", &other), ("quiet", &quiet)], &[]);
    let joined = "## one\n\nAsk one.\n\n## other\n\nAsk other.";
    assert_eq!(told(&gantry, &gantry.agent).as_deref(), Some(joined));
    let narrow = gantry.agent_with("narrow", &["other:*"]);
    let only = "## other\n\nAsk other.";
    assert_eq!(told(&gantry, &narrow).as_deref(), Some(only));
    let none = gantry.agent_with("none", &["quiet:*"]);
    assert_eq!(told(&gantry, &none), None);
    // At a server's own endpoint they stand as they are.
    let path = "/mcp/servers/one";
    let mut connection = gantry.connect();
    let own = crate::harness::modern(
        &mut connection,
        &gantry.agent,
        path,
        "server/discover",
        json!({}),
    );
    assert_eq!(own.message()["result"]["instructions"], "Ask one.");
}

// row 2.14
#[test]
fn instructions_are_bounded_for_each_server_and_for_all() {
    let peers: Vec<(String, Peer)> = (0..12)
        .map(|n| (format!("s{n:02}"), server(&"ä".repeat(20_000), legacy)))
        .collect();
    let named: Vec<(&str, &Peer)> = peers
        .iter()
        .map(|(name, peer)| (name.as_str(), peer))
        .collect();
    let gantry = started(&named, &[]);
    let told = told(&gantry, &gantry.agent).unwrap();
    assert!(told.len() <= 33 << 10, "{}", told.len());
    assert!(told.starts_with("## s00\n\nä") && told.contains("… (cut)"));
    assert!(
        told.contains("more servers"),
        "{}",
        &told[told.len() - 200..]
    );
}

// row 2.14
#[test]
fn instructions_are_left_out_where_the_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    fs::write(&file, "[gateway]\ninstructions = \"none\"\n").unwrap();
    let one = server("Ask one.", legacy);
    let gantry = started(&[("one", &one)], &["--config", file.to_str().unwrap()]);
    assert_eq!(told(&gantry, &gantry.agent), None);
}
