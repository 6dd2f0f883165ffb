//! The well-behaved peer in the modern era.

use gantry_testkit::{Era, Evilpeer};
use serde_json::json;

use crate::client::Client;

#[test]
fn discovers_and_serves_without_a_handshake() {
    for era in [Era::Modern, Era::Dual] {
        let mut client = Client::modern(&Evilpeer::new().era(era).name("new"));
        let found = client.ask(1, "server/discover", json!({}))["result"].clone();
        assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(found["resultType"], "complete");
        assert!(found["ttlMs"].is_u64() && found["cacheScope"].is_string());
        assert_eq!(
            found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "new"
        );
        let tools = client.ask(2, "tools/list", json!({}))["result"].clone();
        assert!(tools["ttlMs"].is_u64());
        let echo = json!({"name": "echo", "arguments": {"text": "x"}});
        let echo = client.ask(3, "tools/call", echo)["result"].clone();
        assert_eq!(echo["resultType"], "complete");
        assert_eq!(echo.get("ttlMs"), None);
        for gone in [
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "initialize",
        ] {
            assert_eq!(
                client.ask(4, gone, json!({}))["error"]["code"],
                -32601,
                "{gone}"
            );
        }
        let missing = client.ask(5, "resources/read", json!({"uri": "test://nope"}));
        assert_eq!(missing["error"]["code"], -32602);
    }
}

#[test]
fn wants_its_version_on_every_request() {
    let mut client = Client::start(&Evilpeer::new().era(Era::Modern));
    assert_eq!(
        client.ask(1, "tools/list", json!({}))["error"]["code"],
        -32602
    );
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01"});
    let reply = client.ask(2, "server/discover", json!({"_meta": meta}));
    assert_eq!(reply["error"]["code"], -32022);
    assert_eq!(reply["error"]["data"]["supported"], json!(["2026-07-28"]));
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let reply = client.ask(3, "server/discover", json!({"_meta": meta}));
    assert_eq!(
        reply["error"]["code"], -32602,
        "client capabilities are missing"
    );
    assert_eq!(
        client.ask(4, "initialize", json!({}))["error"]["code"],
        -32601
    );
}

#[test]
fn subscriptions_are_acknowledged_and_served() {
    let mut client = Client::modern(&Evilpeer::new());
    let asked = json!({"toolsListChanged": true, "promptsListChanged": true});
    client.request(
        "sub",
        "subscriptions/listen",
        json!({"notifications": asked}),
    );
    let acknowledged = client.message();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let id = |message: &serde_json::Value| {
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
    };
    assert_eq!(id(&acknowledged), "sub");
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    client.call(2, "grow", json!({}));
    let changed = client.message();
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(id(&changed), "sub");
    assert_eq!(client.message()["id"], 2);
    client.tell("notifications/cancelled", json!({"requestId": "sub"}));
    assert_eq!(client.text(3, "grow", json!({})), "grown_0002");
}
