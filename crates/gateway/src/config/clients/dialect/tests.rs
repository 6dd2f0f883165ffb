//! What entries of each client become, and that nothing of them is lost.

use serde_json::json;

use super::super::{CLIENTS, find};
use super::*;

fn normal(client: &str, entry: &Value) -> Normal {
    let dialect = &find(client).unwrap().dialect;
    let normal = dialect.normalise(entry).unwrap();
    let back = Value::Object(dialect.restore(&normal));
    assert_eq!(back, *entry, "{client}");
    normal
}

fn members(client: &str, entry: &Value) -> Value {
    Value::Object(normal(client, entry).members)
}

#[test]
fn a_command_is_the_same_everywhere() {
    let entry = json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}, "cwd": "/w"});
    for client in &CLIENTS {
        assert_eq!(members(client.id, &entry), entry, "{}", client.id);
    }
}

#[test]
fn the_unit_of_a_timeout_is_the_clients() {
    let entry = json!({"command": "x", "timeout": 2000});
    let timeout = |client| normal(client, &entry).members.get("timeout").cloned();
    assert_eq!(timeout("claude-code"), Some(json!("2s")));
    assert_eq!(timeout("gemini"), Some(json!("2s")));
    assert_eq!(timeout("cline"), Some(json!("2000s")));
    assert_eq!(timeout("roo"), Some(json!("2000s")));
    assert_eq!(timeout("claude-desktop"), None);
    let short = normal("claude-code", &json!({"command": "x", "timeout": 999}));
    assert_eq!(
        short.members.get("timeout"),
        None,
        "Claude Code ignores it, and so do we"
    );
}

#[test]
fn transports_have_one_name() {
    let remote = |client: &str, entry: Value| {
        let found = members(client, &entry);
        (
            found["type"].as_str().unwrap_or("either").to_owned(),
            found["url"].as_str().unwrap().to_owned(),
        )
    };
    let url = "https://x/mcp";
    let case = |client: &str, entry: Value, wanted: &str| {
        assert_eq!(
            remote(client, entry),
            (wanted.to_owned(), url.to_owned()),
            "{client}"
        );
    };
    case(
        "claude-code",
        json!({"type": "http", "url": url, "headers": {"A": "b"}}),
        "streamable-http",
    );
    case("claude-code", json!({"type": "sse", "url": url}), "sse");
    case("cursor", json!({"url": url}), "either");
    case("cline", json!({"url": url}), "sse");
    case("cline", json!({"type": "sse", "url": url}), "sse");
    case(
        "cline",
        json!({"type": "streamableHttp", "url": url}),
        "streamable-http",
    );
    case("cline", json!({"transportType": "sse", "url": url}), "sse");
    case(
        "roo",
        json!({"type": "streamable-http", "url": url}),
        "streamable-http",
    );
    case("gemini", json!({"httpUrl": url}), "streamable-http");
    case("gemini", json!({"url": url}), "sse");
    case(
        "vscode",
        json!({"type": "http", "url": url, "oauth": {"clientId": "c"}}),
        "streamable-http",
    );
    case(
        "copilot",
        json!({"type": "http", "url": url, "tools": ["*"]}),
        "streamable-http",
    );
}

#[test]
fn tools_that_a_client_leaves_out_are_left_out() {
    let tools = |client: &str, entry: Value| members(client, &entry)["tools"].clone();
    let both = json!({"include": ["a"], "exclude": ["b"]});
    assert_eq!(
        tools(
            "gemini",
            json!({"command": "x", "includeTools": ["a"], "excludeTools": ["b"]})
        ),
        both
    );
    assert_eq!(
        tools(
            "roo",
            json!({"command": "x", "disabledTools": ["b"], "alwaysAllow": ["a"]})
        ),
        json!({"exclude": ["b"]})
    );
    assert_eq!(
        tools("copilot", json!({"command": "x", "tools": ["a"]})),
        json!({"include": ["a"]})
    );
    assert_eq!(
        tools("copilot", json!({"command": "x", "tools": ["*"]})),
        Value::Null
    );
    let policies =
        json!([{"name": "a", "policy": "always_allow"}, {"name": "b", "policy": "always_deny"}]);
    assert_eq!(
        tools("claude-code", json!({"command": "x", "tools": policies})),
        json!({"exclude": ["b"]})
    );
}

#[test]
fn what_is_switched_off_stays_off() {
    let off = |entry: Value| members("cline", &entry)["disabled"].clone();
    assert_eq!(off(json!({"command": "x", "disabled": true})), json!(true));
    assert_eq!(off(json!({"command": "x", "disabled": false})), Value::Null);
    assert_eq!(off(json!({"command": "x", "enabled": false})), json!(true));
}

#[test]
fn variables_of_gemini_are_written_as_everybody_does() {
    let entry = json!({"command": "$BIN/x", "args": ["${A}", "$B"], "env": {"T": "$T"}});
    let found = members("gemini", &entry);
    assert_eq!(found["command"], "${BIN}/x");
    assert_eq!(found["args"], json!(["${A}", "${B}"]));
    assert_eq!(found["env"]["T"], "${T}");
    assert_eq!(
        members("cursor", &entry)["env"]["T"],
        "$T",
        "others do not expand it"
    );
}

#[test]
fn nothing_is_lost_whatever_a_client_writes() {
    let odd = json!({
        "type": "stdio", "command": "x", "args": [], "env": {"PORT": 8080, "ON": true}, "cwd": null,
        "timeout": 0.5, "disabled": false, "autoApprove": ["a"], "alwaysLoad": true, "envFile": ".env",
        "dev": {"watch": "src/**", "debug": null}, "gallery": 18_446_744_073_709_551_615_u64,
        "tools": "all", "includeTools": [], "disabledTools": [1], "#absent": "theirs", "url": "",
    });
    for client in &CLIENTS {
        let found = normal(client.id, &odd);
        assert_eq!(found.members["env"], json!({"PORT": "8080", "ON": "true"}));
    }
    assert_eq!(normal("cursor", &odd).without_effect(), ["envFile"]);
}

#[test]
fn a_wrong_entry_is_named() {
    let fault = |entry: Value| {
        find("cursor")
            .unwrap()
            .dialect
            .normalise(&entry)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(fault(json!([])), "`the entry` must be an object");
    assert_eq!(fault(json!({})), "`command` must be the program to run");
    assert_eq!(fault(json!({"command": ["x"]})), "`command` must be a text");
    assert_eq!(
        fault(json!({"command": "x", "args": "-y"})),
        "`args` must be a list of texts"
    );
    assert_eq!(
        fault(json!({"command": "x", "env": {"A": []}})),
        "`env.A` must be a text"
    );
    assert_eq!(
        fault(json!({"type": "http"})),
        "`url` must be the server's address"
    );
    assert_eq!(
        fault(json!({"type": "ws", "url": "x"})),
        "`type` must be `stdio`, `http` or `sse`"
    );
}
