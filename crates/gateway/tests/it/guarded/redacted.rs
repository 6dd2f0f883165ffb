//! Secrets that are taken out of what a server says, and what is left alone.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::Scripted;
use crate::harness::{Gantry, LONG};

const TOKEN: &str = "tok-7f3a9c21";
const BY_LOOK: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

fn result_of(gantry: &Gantry, method: &str) -> String {
    let answer = gantry.mcp(method, json!({}));
    assert!(answer["result"].is_object(), "{method}: {answer:#}");
    answer["result"].to_string()
}

// fault K3
#[test]
fn only_secrets_are_taken_out_and_out_of_definitions_too() {
    let server = Scripted::new();
    server.greets(&json!({"instructions": format!("use {TOKEN} or {BY_LOOK}")}));
    let schema = json!({"type": "object", "properties": {
        "realm": {"type": "string", "default": "master", "description": format!("of {TOKEN}")},
        "master": {"enum": [TOKEN, "100000", 100_000]}}});
    let tools = json!([
        {"name": "tell", "title": format!("tells {TOKEN}"), "description": format!("knows {BY_LOOK}"), "inputSchema": schema},
        {"name": format!("x-{TOKEN}"), "inputSchema": {"type": "object"}},
    ]);
    server.answers("tools/list", &json!({"tools": tools}));
    let prompts = json!([{"name": "p", "description": format!("say {TOKEN}")}]);
    server.answers("prompts/list", &json!({"prompts": prompts}));
    let resources = json!([{"uri": "file:///r", "name": "r", "description": TOKEN},
                           {"uri": format!("https://x/?key={BY_LOOK}"), "name": "s"}]);
    server.answers("resources/list", &json!({"resources": resources}));
    let templates = json!([{"uriTemplate": "file:///{t}", "name": "t", "description": BY_LOOK}]);
    server.answers(
        "resources/templates/list",
        &json!({"resourceTemplates": templates}),
    );
    let told = json!({
        "author": "Ada Lovelace", "realm": "master", "limit": 100_000, "said": "100000 of master",
        "account": 123_456_789_012_345_u64, "master": 1, TOKEN: "name", "commit": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    });
    let text = format!("Ada Lovelace of master, 100000, {TOKEN}, {BY_LOOK}, 123456789012345");
    let result = json!({"content": [{"type": "text", "text": text}], "structuredContent": told});
    server.answers("tools/call", &result);
    let mut entry = server.entry();
    entry["env"] = json!({
        "GIT_AUTHOR_NAME": "Ada Lovelace", "KEYCLOAK_REALM": "master", "MAX_TOKENS": "100000",
        "GIT_COMMIT": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "DB_PASSWORD": "master",
        "ACCOUNT_SECRET": "123456789012345", "SERVICE_TOKEN": TOKEN, "HARMLESS": BY_LOOK,
    });
    let gantry = Gantry::builder().entry("a", entry).start();
    let status = gantry.wait_state("a", "ready", LONG);
    let answer = gantry.call("a__tell", json!({}));
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(
        text,
        "Ada Lovelace of master, 100000, [redacted], [redacted], [redacted]"
    );
    assert_eq!(answer["result"]["structuredContent"], told);
    let mut session = gantry.initialize();
    let shown = [
        status.to_string(),
        session.hello.to_string(),
        session.request("tools/list", json!({})).to_string(),
        result_of(&gantry, "tools/list"),
        result_of(&gantry, "prompts/list"),
        result_of(&gantry, "resources/list"),
        result_of(&gantry, "resources/templates/list"),
        gantry
            .rest("GET", "/api/v1/mcp/servers/a/tools", None)
            .text(),
        gantry.status("a").to_string(),
    ];
    for (place, shown) in shown.iter().enumerate() {
        assert!(
            !shown.contains(TOKEN) && !shown.contains(BY_LOOK),
            "{place}: {shown}"
        );
    }
    let tools: Value = serde_json::from_str(&shown[3]).unwrap();
    let tool = &tools["tools"][0];
    assert_eq!(tool["title"], "tells [redacted]");
    assert_eq!(
        tool["inputSchema"]["properties"]["realm"]["default"],
        "master"
    );
    assert_eq!(
        tool["inputSchema"]["properties"]["master"]["enum"],
        json!(["[redacted]", "100000", 100_000])
    );
    // What can only be asked for by a secret is not offered, and the status says why.
    assert_eq!(tools["tools"].as_array().unwrap().len(), 1);
    let excluded = gantry.status("a")["excluded"].to_string();
    assert_eq!(
        excluded.matches("its name contains a secret").count(),
        2,
        "{excluded}"
    );
    // After a restart it is the same, from what was remembered.
    let mut gantry = gantry;
    gantry.stop();
    let gantry = gantry.again();
    let listed = result_of(&gantry, "tools/list");
    assert!(
        !listed.contains(TOKEN) && !listed.contains(BY_LOOK),
        "{listed}"
    );
}

// fault K3: what a server is told of keys and logins is not what a key is
#[test]
fn words_under_names_of_keys_stay_in_results() {
    let plain = [
        ("SORT_KEY", "created_at"),
        ("PRIMARY_KEY", "customer_id"),
        ("AUTH", "oauth2"),
        ("API_KEY_HEADER", "X-Api-Key"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-XXabc123/agent.4711"),
        ("AUTH_STRATEGY", "client_credentials"),
        ("DB_PASSWORD_FILE", "/run/secrets/db2"),
        ("PARTITION_KEY", "tenantId"),
    ];
    let secret = [
        ("STRIPE_KEY", "k9f2m4x7q1z8w3b6"),
        ("SERVICE_KEY", "hunter22"),
        ("TOKEN_URL", "https://ada:h0rse5hoe@idp.example/token"),
    ];
    let text = |pairs: &[(&str, &str)]| {
        let values: Vec<&str> = pairs.iter().map(|(_, value)| *value).collect();
        values.join(" ")
    };
    let server = Scripted::new();
    let tool = json!({"name": "tell", "inputSchema": {"type": "object"}});
    server.answers("tools/list", &json!({"tools": [tool]}));
    let content = [text(&plain), text(&secret), "h0rse5hoe".to_owned()];
    let content = content.map(|text| json!({"type": "text", "text": text}));
    server.answers("tools/call", &json!({"content": content}));
    let mut entry = server.entry();
    let given = plain.iter().chain(&secret);
    entry["env"] = given
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect::<Value>();
    let gantry = Gantry::builder().entry("a", entry).start();
    gantry.wait_state("a", "ready", LONG);
    let answer = gantry.call("a__tell", json!({}));
    let content = &answer["result"]["content"];
    assert_eq!(content[0]["text"], text(&plain), "{answer:#}");
    assert_eq!(
        (&content[1]["text"], &content[2]["text"]),
        (
            &json!("[redacted] [redacted] [redacted]"),
            &json!("[redacted]")
        )
    );
}

// fault K3: a file with a key of ours in it, whatever stands around the key
#[test]
fn keys_inside_of_files_are_shown_nowhere() {
    let server = Scripted::new();
    server.answers("tools/list", &json!({"tools": []}));
    server.answers("prompts/list", &json!({"prompts": []}));
    server.answers(
        "resources/templates/list",
        &json!({"resourceTemplates": []}),
    );
    let resources = json!([{"uri": "file:///env", "name": "env"}]);
    server.answers("resources/list", &json!({"resources": resources}));
    let gantry = Gantry::builder().entry("a", server.entry()).start();
    gantry.wait_state("a", "ready", LONG);
    let key = &gantry.agent;
    let cut = &key[..key.len() - 5];
    let blobs = [
        format!("A={key}\n"),
        format!("AB={key}\nMODE=x\n"),
        format!("ABC={key}\n"),
        format!(r#"{{"headers":{{"Authorization":"Bearer {key}"}}}}"#),
        format!("cut={cut}"),
    ]
    .map(|file| STANDARD.encode(file));
    let mut contents: Vec<Value> = blobs
        .iter()
        .map(|blob| json!({"uri": "file:///env", "blob": blob}))
        .collect();
    contents.push(json!({"uri": "file:///env", "text": format!("it is {cut}…")}));
    let harmless = STANDARD.encode("see gantry_agent_configuration_loader");
    contents.push(json!({"uri": "file:///env", "blob": harmless}));
    server.answers("resources/read", &json!({"contents": contents}));
    let read = gantry.mcp("resources/read", json!({"uri": "file:///env"}));
    let contents = read["result"]["contents"].as_array().unwrap();
    for content in &contents[..blobs.len()] {
        assert_eq!(content["blob"], "[redacted]", "{read:#}");
    }
    assert_eq!(contents[blobs.len()]["text"], "it is [redacted]…");
    assert_eq!(contents[blobs.len() + 1]["blob"], harmless);
    let rows = gantry.audit_rows("server=a");
    assert!(!rows.is_empty());
    for row in rows {
        let path = format!("/api/v1/calls/{}", row["id"].as_str().unwrap());
        let whole = gantry.rest("GET", &path, None).text();
        assert!(
            !blobs.iter().any(|blob| whole.contains(&blob[8..60])),
            "{whole}"
        );
    }
    for text in blobs.iter().map(|blob| &blob[8..60]).chain([cut]) {
        assert_eq!(holding(&gantry.data(), text), Vec::<String>::new());
    }
}

/// Returns the files under a folder, but for those of keys, that hold a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() && !path.ends_with("keys") {
            found.extend(holding(&path, text));
        } else if let Ok(bytes) = fs::read(&path) {
            let mut windows = bytes.windows(text.len());
            let holds = windows.any(|window| window == text.as_bytes());
            found.extend(holds.then(|| path.display().to_string()));
        }
    }
    found
}

// fault K3: a key of ours that a server got hold of, or made up
#[test]
fn keys_of_the_gateway_are_shown_nowhere() {
    let made_up = format!("gantry_agent_{}", "Ab3_-xYz012".repeat(4));
    let made_up = &made_up[..13 + 43];
    let server = Scripted::new();
    let tool = |name: &str, description: &str| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
    server.answers("tools/list", &json!({"tools": [tool("leak", made_up)]}));
    server.answers("prompts/list", &json!({"prompts": []}));
    server.answers(
        "resources/templates/list",
        &json!({"resourceTemplates": []}),
    );
    let resources = json!([{"uri": "file:///key", "name": "key", "title": made_up}]);
    server.answers("resources/list", &json!({"resources": resources}));
    server.greets(&json!({"instructions": format!("log in with {made_up}")}));
    server.write("stderr", &format!("my key is {made_up}\n"));
    let gantry = Gantry::builder().entry("a", server.entry()).start();
    gantry.wait_state("a", "ready", LONG);
    // The key is known only now.
    let key = gantry.admin.clone();
    let blob = STANDARD.encode(format!("{key}\n"));
    let contents =
        json!([{"uri": "file:///key", "blob": blob}, {"uri": "file:///key", "text": key}]);
    server.answers("resources/read", &json!({"contents": contents}));
    let leak = json!({"content": [{"type": "text", "text": format!("admin: {key}\nagent: {made_up}")}],
                      "structuredContent": {"key": key, "keys": [{"k": made_up}]}});
    server.answers("tools/call", &leak);
    let answer = gantry.call(
        "a__leak",
        json!({"mine": gantry.agent, "text": format!("is {key}")}),
    );
    let result = &answer["result"];
    assert_eq!(
        result["content"][0]["text"],
        "admin: [redacted]\nagent: [redacted]"
    );
    assert_eq!(
        result["structuredContent"],
        json!({"key": "[redacted]", "keys": [{"k": "[redacted]"}]})
    );
    let read = gantry.mcp("resources/read", json!({"uri": "file:///key"}));
    let contents = &read["result"]["contents"];
    assert_eq!(
        (&contents[0]["blob"], &contents[1]["text"]),
        (&json!("[redacted]"), &json!("[redacted]"))
    );
    let message = format!("cannot open {key}");
    server.fails(
        "tools/call",
        &json!({"code": 7, "message": message, "data": {"k": [made_up]}}),
    );
    let failed = gantry.call("a__leak", json!({}));
    assert_eq!(
        failed["error"]["message"], "cannot open [redacted]",
        "{failed:#}"
    );
    let unknown = gantry.call(&format!("a__{key}"), json!({}));
    assert!(unknown["error"].is_object(), "{unknown:#}");
    let logs = || {
        gantry
            .rest("GET", "/api/v1/mcp/servers/a/logs", None)
            .text()
    };
    let logged = eventually(LONG, || logs().contains("my key is [redacted]"));
    assert!(logged.is_some(), "{}", logs());
    let calls = gantry.audit_rows("server=a");
    assert!(calls.len() >= 3, "{calls:#?}");
    let whole = calls.iter().map(|row| {
        let path = format!("/api/v1/calls/{}", row["id"].as_str().unwrap());
        gantry.rest("GET", &path, None).text()
    });
    let mut shown: Vec<String> = whole.collect();
    shown.push(result_of(&gantry, "tools/list"));
    shown.push(result_of(&gantry, "resources/list"));
    shown.push(gantry.initialize().hello.to_string());
    shown.push(gantry.status("a").to_string());
    shown.push(
        gantry
            .rest("GET", "/api/v1/mcp/servers/a/events", None)
            .text(),
    );
    shown.push(gantry.stderr());
    for text in [&key, &gantry.agent, made_up, &blob] {
        for (place, shown) in shown.iter().enumerate() {
            assert!(!shown.contains(text), "{place}: {shown}");
        }
        assert_eq!(holding(&gantry.data(), text), Vec::<String>::new());
    }
}
