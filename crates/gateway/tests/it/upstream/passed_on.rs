//! What a client sends to sign in with, and what a far server sets, each stay on their side.

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::peer::{Peer, Reply, legacy};
use super::{FAR, entry, with};
use crate::harness::{Answer, Gantry, LONG};

/// What stands in every header of the client that is nobody else's.
const OWN: &str = "of-the-client-alone-81c2";
/// What stands in every header of the far server that is nobody else's.
const FAR_OWN: &str = "of-the-server-alone-5d07";

/// Calls the tool with headers that a browser or a proxy would add.
fn called(gantry: &Gantry, path: &str, version: &str, body: &serde_json::Value) -> Answer {
    let bearer = format!("Bearer {}", gantry.agent);
    let cookie = format!("session={OWN}; theme=dark");
    let basic = format!("Basic {OWN}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Cookie", cookie.as_str()),
        ("Proxy-Authorization", basic.as_str()),
        ("X-Api-Key", OWN),
        ("X-Forwarded-User", OWN),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("MCP-Protocol-Version", version),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "far__echo"),
    ];
    let body = body.to_string();
    let answer = gantry
        .connect()
        .request("POST", path, &headers, body.as_bytes());
    answer.unwrap()
}

// fault U11
#[test]
fn a_clients_key_and_cookies_stay_here_and_a_servers_cookies_stay_there() {
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let peer = Peer::start(move |seen| {
        let Reply::Json(answer) = legacy(seen) else {
            return legacy(seen);
        };
        *counted.lock().unwrap() += 1;
        let headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Set-Cookie", format!("far={FAR_OWN}; Path=/")),
            ("WWW-Authenticate", format!("Bearer realm=\"{FAR_OWN}\"")),
            ("X-Far", FAR_OWN.to_owned()),
        ];
        Reply::Status(200, headers, answer.to_string())
    });
    let own_header = json!({"headers": {"X-Configured": "by-an-administrator"}});
    let gantry = Gantry::builder()
        .entry(FAR, with(entry(&peer.url("/mcp")), &own_header))
        .start();
    gantry.wait_state(FAR, "ready", LONG);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
    });
    let params = json!({"name": "far__echo", "arguments": {"text": "x"}, "_meta": meta});
    let mcp = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let rest = json!({"name": "far__echo", "arguments": {"text": "x"}});
    for _ in 0..2 {
        for (path, body) in [("/mcp", &mcp), ("/api/v1/tools/call", &rest)] {
            let answer = called(&gantry, path, "2026-07-28", body);
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            assert!(answer.text().contains("\"x\""), "{}", answer.text());
            let heard = format!("{:?}", answer.headers);
            assert!(!heard.contains(FAR_OWN), "{path}: {heard}");
            assert!(answer.header("set-cookie").is_none(), "{heard}");
        }
    }
    assert!(*calls.lock().unwrap() >= 4);
    for seen in peer.seen() {
        let sent = format!("{:?} {}", seen.headers, seen.body);
        assert!(!sent.contains(OWN), "{sent}");
        assert!(!sent.contains(&gantry.agent), "{sent}");
        assert!(!sent.contains(FAR_OWN), "cookies are not kept: {sent}");
        assert!(seen.header("authorization").is_none(), "{sent}");
        assert!(seen.header("cookie").is_none(), "{sent}");
        assert_eq!(seen.header("x-configured"), Some("by-an-administrator"));
    }
}
