//! What an agent reaches with a grant of some resources and prompts, however it spells what it asks for.

use serde_json::{Value, json};

use super::Scripted;
use crate::harness::{Gantry, LONG, Session, modern};

/// Spellings that lead from what is granted to what is not, for one reader or another.
const ASTRAY: [&str; 30] = [
    "file:///secret/a",
    "file:///public/../secret/a",
    "file:///public/b/../../secret/a",
    "file:///public/%2e%2e/secret/a",
    "file:///public/.%2E/secret/a",
    "file:///public/..%2fsecret/a",
    "file:///public/%2e%2e%2fsecret%2fa",
    "file:///public/%252e%252e/secret/a",
    "file:///public/%252e%252e%252fsecret/a",
    "file:///public/%25252e%25252e/secret/a",
    "file:///public\\..\\secret\\a",
    "file:///public/..%5csecret/a",
    "file:///public//../secret/a",
    "file:///public/..;/secret/a",
    "file:///public/%c0%ae%c0%ae/secret/a",
    "file:///public/a%00/../../secret/a",
    "file:///public/a?/../../secret/a",
    "file:///public/a%3f/../../secret/a",
    "FILE:///public/../secret/a",
    "file://public/../secret/a",
    "file:///Public/a",
    "file:///publicly",
    "file:///public/..\u{ff0f}secret/a",
    "file:///public/..%EF%BC%8Fsecret/a",
    "file:///public/..%25EF%25BC%258Fsecret/a",
    "file:///public/..\u{2215}secret/a",
    "file:///public/..\u{2044}secret/a",
    "file:///public/..%e2%a7%b8secret/a",
    "file:///public/..\u{ff3c}secret/a",
    "file:///public/\u{ff05}2e\u{ff05}2e/secret/a",
];

fn started(files: &Scripted) -> (Gantry, String) {
    files.answers("tools/list", &json!({"tools": []}));
    let prompts =
        ["open", "closed"].map(|name| json!({"name": name, "arguments": [{"name": "a"}]}));
    files.answers("prompts/list", &json!({"prompts": prompts}));
    let resource = |uri: &str| json!({"uri": uri, "name": "r"});
    let resources = ["file:///public/a", "file:///secret/a"].map(resource);
    files.answers("resources/list", &json!({"resources": resources}));
    let template = |uri: &str| json!({"uriTemplate": uri, "name": "t"});
    let templates = [
        "file:///public/{name}",
        "file:///secret/{name}",
        "file:///{+path}",
    ]
    .map(template);
    files.answers(
        "resources/templates/list",
        &json!({"resourceTemplates": templates}),
    );
    files.answers(
        "resources/read",
        &json!({"contents": [{"uri": "file:///x", "text": "read"}]}),
    );
    files.answers("resources/subscribe", &json!({}));
    files.answers("resources/unsubscribe", &json!({}));
    files.answers(
        "completion/complete",
        &json!({"completion": {"values": ["completed"]}}),
    );
    let gantry = Gantry::builder().entry("files", files.entry()).start();
    gantry.wait_state("files", "ready", LONG);
    let grants = ["files:resource:file:///public/*", "files:prompt:open"];
    let key = gantry.agent_with("reader", &grants);
    (gantry, key)
}

/// Tells by which code a request was refused, on either endpoint; nothing if it was answered.
fn refused(gantry: &Gantry, key: &str, path: &str, method: &str, params: &Value) -> Option<String> {
    let answer = modern(&mut gantry.connect(), key, path, method, params.clone()).message();
    if answer["result"].is_object() {
        return None;
    }
    let code = answer["error"]["data"]["code"].as_str();
    Some(code.unwrap_or_else(|| panic!("{answer:#}")).to_owned())
}

// row 3.2
#[test]
fn no_spelling_of_a_uri_leads_out_of_a_grant() {
    let files = Scripted::new();
    let (gantry, key) = started(&files);
    for path in ["/mcp", "/mcp/servers/files"] {
        // The stateless generation names the URI in a header too, which holds ASCII alone.
        for uri in ASTRAY.into_iter().filter(|uri| uri.is_ascii()) {
            let code = refused(&gantry, &key, path, "resources/read", &json!({"uri": uri}));
            let code = code.unwrap_or_else(|| panic!("`{uri}` was read"));
            assert!(
                ["grant.unbound", "item.unknown"].contains(&&*code),
                "`{uri}`: {code}"
            );
        }
    }
    let mut session = Session::open(gantry.connect(), &key, "2025-11-25");
    for uri in ASTRAY {
        for method in ["resources/read", "resources/subscribe"] {
            let answer = session.request(method, json!({"uri": uri}));
            let code = answer["error"]["data"]["code"].as_str().unwrap_or_default();
            assert!(
                ["grant.unbound", "item.unknown"].contains(&code),
                "{method} `{uri}`: {answer:#}"
            );
        }
    }
    assert_eq!(files.sent("resources/read"), Vec::<Value>::new());
    assert_eq!(files.sent("resources/subscribe"), Vec::<Value>::new());
    let rows = gantry.audit_rows("server=files&status=ok");
    assert_eq!(rows, Vec::<Value>::new());
}

// row 3.2
#[test]
fn other_spellings_of_what_is_granted_are_read() {
    let files = Scripted::new();
    let (gantry, key) = started(&files);
    let spellings = [
        ("file:///public/a", "file:///public/a"),
        ("file:///public/with%20space", "file:///public/with%20space"),
        ("file:///public/b?c=d#e", "file:///public/b?c=d#e"),
        // What leads about is not left to the server to follow.
        ("file:///public/./a", "file:///public/a"),
        ("file:///other/../public/b", "file:///public/b"),
        ("file:///public/%2e/b", "file:///public/b"),
        ("FILE:///public/b", "FILE:///public/b"),
    ];
    for (uri, _) in spellings {
        let code = refused(
            &gantry,
            &key,
            "/mcp",
            "resources/read",
            &json!({"uri": uri}),
        );
        assert_eq!(code, None, "`{uri}`");
    }
    let sent = files.sent("resources/read");
    let sent: Vec<&str> = sent
        .iter()
        .filter_map(|params| params["uri"].as_str())
        .collect();
    assert_eq!(sent, spellings.map(|(_, sent)| sent));
    let listed = modern(
        &mut gantry.connect(),
        &key,
        "/mcp",
        "resources/templates/list",
        json!({}),
    );
    let listed = listed.message()["result"]["resourceTemplates"].take();
    let listed: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["uriTemplate"].as_str())
        .collect();
    assert_eq!(listed, ["file:///public/{name}", "file:///{+path}"]);
    // Who may use everything is sent on as it is.
    let uri = "file:///public/../x";
    let code = refused(
        &gantry,
        &gantry.agent,
        "/mcp",
        "resources/read",
        &json!({"uri": uri}),
    );
    assert_eq!(code, None);
    assert_eq!(files.sent("resources/read").last().unwrap()["uri"], uri);
}

/// Spellings of what is denied, for one reader or another.
const DENIED: [&str; 11] = [
    "file:///secret/a",
    "file:/secret/a",
    "file:secret/a",
    "file:////secret/a",
    "file://localhost/secret/a",
    "file://127.0.0.1/secret/a",
    "FILE://LOCALHOST/secret/a",
    "file:///secret%2fa",
    "file:///public/.. /secret/a",
    "/secret/a",
    " file:///secret/a",
];

// row 3.2
#[test]
fn no_spelling_of_a_uri_leads_around_a_denial() {
    let files = Scripted::new();
    let (gantry, _) = started(&files);
    let grants = ["files:*", "deny files:resource:file:///secret/*"];
    let key = gantry.agent_with("warned", &grants);
    let mut session = Session::open(gantry.connect(), &key, "2025-11-25");
    for uri in DENIED {
        for method in ["resources/read", "resources/subscribe"] {
            let answer = session.request(method, json!({"uri": uri}));
            let code = answer["error"]["data"]["code"].as_str().unwrap_or_default();
            assert!(
                ["grant.denied", "item.unknown"].contains(&code),
                "{method} `{uri}`: {answer:#}"
            );
        }
    }
    // A template whose values may be names of what is denied.
    for (uri, is_open) in [
        ("file:///secret/{name}", false),
        ("file:///{+path}", false),
        ("file:///public/{name}", true),
    ] {
        let reference = json!({"type": "ref/resource", "uri": uri});
        let argument = json!({"name": "name", "value": "x"});
        let params = json!({"ref": reference, "argument": argument});
        let answer = session.request("completion/complete", params);
        assert_eq!(answer["result"].is_object(), is_open, "{uri}: {answer:#}");
    }
    assert_eq!(files.sent("resources/read"), Vec::<Value>::new());
    assert_eq!(files.sent("resources/subscribe"), Vec::<Value>::new());
    let listed = session.request("resources/templates/list", json!({}));
    let listed = listed["result"]["resourceTemplates"].as_array().unwrap();
    let listed: Vec<&str> = listed
        .iter()
        .filter_map(|t| t["uriTemplate"].as_str())
        .collect();
    assert_eq!(listed, ["file:///public/{name}", "file:///{+path}"]);
}

// row 3.2
#[test]
fn a_completion_is_judged_by_what_it_refers_to() {
    let files = Scripted::new();
    let (gantry, key) = started(&files);
    let complete = |reference: Value| {
        let params = json!({"ref": reference, "argument": {"name": "a", "value": "x"}});
        refused(
            &gantry,
            &key,
            "/mcp/servers/files",
            "completion/complete",
            &params,
        )
    };
    for (reference, code) in [
        (
            json!({"type": "ref/resource", "name": "open", "uri": "file:///secret/{name}"}),
            "request.params",
        ),
        (
            json!({"type": "ref/prompt", "name": "open", "uri": "file:///secret/{name}"}),
            "request.params",
        ),
        (
            json!({"type": "ref/prompt", "name": "open", "uri": null}),
            "request.params",
        ),
        (
            json!({"type": "ref/resource", "name": "open"}),
            "request.params",
        ),
        (
            json!({"type": "ref/prompt", "uri": "file:///public/{name}"}),
            "request.params",
        ),
        (
            json!({"type": "ref/other", "name": "open"}),
            "request.params",
        ),
        (json!({"name": "open"}), "request.params"),
        (json!("open"), "request.params"),
        (
            json!({"type": "ref/prompt", "name": "closed"}),
            "grant.unbound",
        ),
        (
            json!({"type": "ref/resource", "uri": "file:///secret/{name}"}),
            "grant.unbound",
        ),
        (
            json!({"type": "ref/resource", "uri": "file:///{+path}"}),
            "grant.unbound",
        ),
        (
            json!({"type": "ref/resource", "uri": "file:///public/../secret/{name}"}),
            "grant.unbound",
        ),
    ] {
        assert_eq!(
            complete(reference.clone()).as_deref(),
            Some(code),
            "{reference}"
        );
    }
    assert_eq!(files.sent("completion/complete"), Vec::<Value>::new());
    let prompt = json!({"type": "ref/prompt", "name": "open", "title": "t", "then": {"uri": "file:///secret/a"}});
    assert_eq!(complete(prompt), None);
    assert_eq!(
        complete(json!({"uri": "file:///public/{name}", "type": "ref/resource"})),
        None
    );
    let sent = files.sent("completion/complete");
    let sent: Vec<&Value> = sent.iter().map(|params| &params["ref"]).collect();
    assert_eq!(
        sent,
        [
            &json!({"type": "ref/prompt", "name": "open"}),
            &json!({"type": "ref/resource", "uri": "file:///public/{name}"}),
        ]
    );
}
