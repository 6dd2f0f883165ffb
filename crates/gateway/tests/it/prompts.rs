//! Rows 2.21 and 2.22 with several servers: prompts, resources, templates and completion in one
//! list each, routed back by name and URI, over MCP and over REST.

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG, modern};

fn started() -> Gantry {
    let gantry = Gantry::builder()
        .server("one", &Evilpeer::new().era(Era::Legacy))
        .server("two", &Evilpeer::new().era(Era::Modern))
        .start();
    for server in ["one", "two"] {
        gantry.wait_state(server, "ready", LONG);
    }
    gantry
}

fn all<'a>(result: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    let items = result[list].as_array().unwrap().iter();
    items.map(|item| item[key].as_str().unwrap()).collect()
}

/// Returns a server's rows of one method, oldest first.
fn rows(gantry: &Gantry, server: &str, method: &str) -> Vec<Value> {
    let mut rows = gantry.audit_rows(&format!("server={server}"));
    rows.retain(|row| row["method"] == method);
    rows
}

/// Asks in the stateless era and returns the result.
fn ask(gantry: &Gantry, method: &str, params: Value) -> Value {
    let answer = modern(&mut gantry.connect(), &gantry.agent, "/mcp", method, params);
    let message = answer.message();
    assert!(message["result"].is_object(), "{method}: {message:#}");
    message["result"].clone()
}

// row 2.21, row 2.15
#[test]
fn prompts_of_all_servers_are_one_list_and_each_is_got_from_its_own() {
    let gantry = started();
    let mut session = gantry.initialize();
    let listed = session.request("prompts/list", json!({}))["result"].clone();
    let names = [
        "one__simple",
        "one__with_arguments",
        "two__simple",
        "two__with_arguments",
    ];
    assert_eq!(all(&listed, "prompts", "name"), names);
    let modern = ask(&gantry, "prompts/list", json!({}));
    assert_eq!(all(&modern, "prompts", "name"), names);
    for (name, server) in [
        ("one__with_arguments", "one"),
        ("two__with_arguments", "two"),
        ("two:with_arguments", "two"),
    ] {
        let params = json!({"name": name, "arguments": {"a": "hi"}});
        let got = session.request("prompts/get", params)["result"].clone();
        assert_eq!(got["messages"][0]["content"]["text"], "Say hi.", "{name}");
        let rows = rows(&gantry, server, "prompts/get");
        let last = rows.last().unwrap();
        assert_eq!(
            (&last["tool"], &last["status"]),
            (&json!("with_arguments"), &json!("ok"))
        );
    }
    let unknown = session.request("prompts/get", json!({"name": "one__nothing"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown:#}");
}

// row 2.21, row 2.22
#[test]
fn completion_follows_the_prompt_or_the_template() {
    let gantry = started();
    let mut session = gantry.initialize();
    assert!(session.hello["capabilities"]["completions"].is_object());
    let argument = json!({"name": "a", "value": "alp"});
    for reference in [
        json!({"type": "ref/prompt", "name": "one__with_arguments"}),
        json!({"type": "ref/prompt", "name": "two__with_arguments"}),
        json!({"type": "ref/resource", "uri": "test://template/{id}/data"}),
    ] {
        let params = json!({"ref": reference, "argument": argument});
        let legacy = session.request("completion/complete", params.clone());
        let values = json!(["alpha", "alphabet"]);
        assert_eq!(
            legacy["result"]["completion"]["values"], values,
            "{legacy:#}"
        );
        let modern = ask(&gantry, "completion/complete", params);
        assert_eq!(modern["completion"]["values"], values, "{reference}");
    }
    let params =
        json!({"ref": {"type": "ref/prompt", "name": "one__nothing"}, "argument": argument});
    let unknown = session.request("completion/complete", params);
    assert_eq!(unknown["error"]["code"], -32602, "{unknown:#}");
}

// row 2.21, row 2.22
#[test]
fn a_resource_that_two_servers_offer_is_the_firsts_and_the_others_is_on_its_own_endpoint() {
    let gantry = started();
    let resources = ask(&gantry, "resources/list", json!({}));
    let uris = ["test://static-text", "test://static-binary"];
    assert_eq!(all(&resources, "resources", "uri"), uris);
    let templates = ask(&gantry, "resources/templates/list", json!({}));
    let template = ["test://template/{id}/data"];
    assert_eq!(
        all(&templates, "resourceTemplates", "uriTemplate"),
        template
    );
    for uri in ["test://static-text", "test://template/7/data"] {
        ask(&gantry, "resources/read", json!({"uri": uri}));
    }
    assert_eq!(rows(&gantry, "one", "resources/read").len(), 2);
    let path = "/mcp/servers/two";
    let params = json!({"uri": "test://static-text"});
    let own = modern(
        &mut gantry.connect(),
        &gantry.agent,
        path,
        "resources/read",
        params,
    );
    let own = own.message();
    assert_eq!(
        own["result"]["contents"][0]["text"], "the static text",
        "{own:#}"
    );
    assert_eq!(rows(&gantry, "two", "resources/read").len(), 1);
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    let told = health["warnings"].to_string();
    assert!(
        told.contains("resource `test://static-text` of `two` is not exposed"),
        "{told}"
    );
}

// row 2.22, row 1.4
#[test]
fn rest_reaches_them_by_server() {
    let gantry = started();
    let argument = json!({"name": "a", "value": "alp"});
    let prompt = json!({"type": "ref/prompt", "name": "with_arguments"});
    for (method, params, wanted) in [
        ("prompts/list", json!({}), "with_arguments"),
        ("prompts/get", json!({"name": "simple"}), "Say hello."),
        ("resources/list", json!({}), "test://static-text"),
        (
            "resources/templates/list",
            json!({}),
            "test://template/{id}/data",
        ),
        (
            "resources/read",
            json!({"uri": "test://static-text"}),
            "the static text",
        ),
        (
            "completion/complete",
            json!({"ref": prompt, "argument": argument}),
            "alphabet",
        ),
    ] {
        for (server, key) in [
            ("one", &gantry.agent),
            ("two", &gantry.agent),
            ("two", &gantry.admin),
        ] {
            let body = json!({"method": method, "params": params});
            let path = format!("/api/v1/mcp/servers/{server}/call");
            let answer = gantry.rest_as(key, "POST", &path, Some(&body));
            assert_eq!(answer.status, 200, "{method}: {}", answer.text());
            assert!(
                answer.text().contains(wanted),
                "{method}: {}",
                answer.text()
            );
        }
    }
}

#[test]
fn a_log_level_is_taken_for_the_session_and_asks_no_server() {
    let gantry = started();
    let mut session = gantry.initialize();
    let taken = session.request("logging/setLevel", json!({"level": "debug"}));
    assert_eq!(taken["result"], json!({}), "{taken:#}");
    let refused = session.request("logging/setLevel", json!({}));
    assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
    assert_eq!(gantry.audit_rows("").len(), 0);
}
