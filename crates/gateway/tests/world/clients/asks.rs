//! Servers made with the SDKs ask clients of the handshake era, which declare that they can be asked: what
//! comes of it through the gateway is what comes of it without, and their calls overlap. Most of these
//! servers speak both eras, and can ask by requests of their own in the handshake era alone.

use std::time::Duration;

use serde_json::{Value, json};

use super::story::Client;
use super::{python, typescript};
use crate::harness::Gantry;
use crate::made::{Kit, Made, Over};

/// Of eight calls at once, so many run at the same time at least: one or two may end before a busy machine
/// has begun the last.
const OVERLAP: u64 = 6;

/// Names the tools that ask, as a gateway or the server itself does.
fn plot(prefix: &str) -> String {
    let name = |tool: &str| format!("{prefix}{tool}");
    let asks = json!({
        "elicit": name("elicit"),
        "sample": name("sample"),
        "roots": name("roots"),
        "slow": name("slow"),
    });
    json!({ "asks": asks }).to_string()
}

/// Checks what a client was asked and told.
fn check(told: &Value, whose: &str) {
    let answer = |text: &str| json!({"error": false, "text": text});
    assert_eq!(told["roots"], answer("file:///projects/ours"), "{whose}");
    assert_eq!(told["elicit"], answer("one? yes"), "{whose}");
    assert_eq!(told["sample"], answer("two indeed"), "{whose}");
    let several = ["1? yes", "2? yes", "3? yes", "4? yes"].map(answer);
    assert_eq!(told["several"], json!(several), "{whose}");
    let parallel = told["parallel"].as_u64().unwrap();
    assert!(
        parallel >= OVERLAP,
        "{whose}: only {parallel} of 8 calls overlap"
    );
}

/// Has a server ask each client through one gateway, and the first of them directly.
fn asks(kit: Kit, over: Over) {
    let made = Made::with(kit, over);
    let gantry = Gantry::builder().entry("a", made.entry.clone()).start();
    gantry.wait_state("a", "ready", Duration::from_secs(60));
    let clients: [Client; 2] = [typescript::FIRST, python::FIRST];
    check(&clients[0].tells(&plot(""), &made.link), "directly");
    let url = format!("http://{}/mcp", gantry.authority);
    let link = ["http".to_owned(), url, gantry.agent.clone()];
    for client in clients {
        let told = client.tells(&plot("a__"), &link);
        check(&told, &format!("through the gateway, {client:?}"));
    }
}

#[test]
fn a_python_server_over_stdio() {
    asks(Kit::Python, Over::Stdio);
}

#[test]
fn a_python_server_over_http() {
    asks(Kit::Python, Over::Http);
}

#[test]
fn a_fastmcp_server_over_stdio() {
    asks(Kit::Fastmcp, Over::Stdio);
}

#[test]
fn a_fastmcp_server_over_http() {
    asks(Kit::Fastmcp, Over::Http);
}

#[test]
fn a_typescript_server_of_the_first_generation_over_stdio() {
    asks(Kit::TypeScriptFirst, Over::Stdio);
}

#[test]
fn a_typescript_server_of_the_first_generation_over_http() {
    asks(Kit::TypeScriptFirst, Over::Http);
}

#[test]
fn a_typescript_server_of_the_second_generation_over_stdio() {
    asks(Kit::TypeScriptSecond, Over::Stdio);
}

#[test]
fn a_typescript_server_of_the_second_generation_over_http() {
    asks(Kit::TypeScriptSecond, Over::Http);
}
