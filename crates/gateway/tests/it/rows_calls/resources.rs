//! Rows 2.21 and 2.22: resources, and with them templates, prompts and completion.

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG, modern};

fn started(era: Era) -> Gantry {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().era(era))
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

/// Sends a request to the server's own endpoint and returns the result.
fn own(gantry: &Gantry, method: &str, params: Value) -> Value {
    let path = "/mcp/servers/a";
    let answer = modern(&mut gantry.connect(), &gantry.agent, path, method, params).message();
    assert!(answer["result"].is_object(), "{method}: {answer:#}");
    answer["result"].clone()
}

// row 2.21, row 2.22
#[test]
fn resources_are_listed_and_read_in_both_generations() {
    for era in [Era::Legacy, Era::Modern] {
        let gantry = started(era);
        let listed = own(&gantry, "resources/list", json!({}));
        let uris: Vec<_> = listed["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| &r["uri"])
            .collect();
        assert_eq!(uris, ["test://static-text", "test://static-binary"]);
        let read = own(
            &gantry,
            "resources/read",
            json!({"uri": "test://static-text"}),
        );
        assert_eq!(read["contents"][0]["text"], "the static text");
        let read = own(
            &gantry,
            "resources/read",
            json!({"uri": "test://static-binary"}),
        );
        assert_eq!(read["contents"][0]["blob"], "iVBORw0KGgo=");
        let listed = own(&gantry, "resources/templates/list", json!({}));
        assert_eq!(
            listed["resourceTemplates"][0]["uriTemplate"],
            "test://template/{id}/data"
        );
        let read = own(
            &gantry,
            "resources/read",
            json!({"uri": "test://template/7/data"}),
        );
        assert_eq!(read["contents"][0]["text"], r#"{"id":"7"}"#);
        let rows = gantry.audit_rows("server=a");
        assert_eq!(
            rows.len(),
            3,
            "lists come from memory, reads are calls: {rows:#?}"
        );
        assert!(
            rows.iter()
                .all(|row| row["status"] == "ok" && row["method"] == "resources/read")
        );
        let unknown = json!({"uri": "test://nothing"});
        let answer = modern(
            &mut gantry.connect(),
            &gantry.agent,
            "/mcp/servers/a",
            "resources/read",
            unknown,
        );
        let answer = answer.message();
        assert_eq!(answer["error"]["code"], -32602, "{answer:#}");
    }
}

// row 2.21, row 2.22
#[test]
fn prompts_and_completion_pass_through() {
    for era in [Era::Legacy, Era::Modern] {
        let gantry = started(era);
        let listed = own(&gantry, "prompts/list", json!({}));
        let names: Vec<_> = listed["prompts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| &p["name"])
            .collect();
        assert_eq!(names, ["simple", "with_arguments"]);
        let asked = json!({"name": "with_arguments", "arguments": {"a": "hi"}});
        let prompt = own(&gantry, "prompts/get", asked);
        assert_eq!(prompt["messages"][0]["content"]["text"], "Say hi.");
        let asked = json!({
            "ref": {"type": "ref/prompt", "name": "with_arguments"},
            "argument": {"name": "a", "value": "alp"},
        });
        let completed = own(&gantry, "completion/complete", asked);
        assert_eq!(
            completed["completion"]["values"],
            json!(["alpha", "alphabet"])
        );
        assert_eq!(gantry.audit_rows("server=a&status=ok").len(), 2);
    }
}

// row 2.21, row 2.14
#[test]
fn the_common_endpoint_offers_them_too() {
    let gantry = started(Era::Legacy);
    let mut session = gantry.initialize();
    for capability in ["tools", "resources", "prompts"] {
        assert!(
            session.hello["capabilities"][capability].is_object(),
            "{:#}",
            session.hello
        );
    }
    let resources = session.request("resources/list", json!({}))["result"]["resources"].clone();
    let uri = resources[0]["uri"].as_str().unwrap().to_owned();
    let read = session.request("resources/read", json!({"uri": uri}));
    assert_eq!(
        read["result"]["contents"][0]["text"], "the static text",
        "{read:#}"
    );
    let prompts = session.request("prompts/list", json!({}))["result"]["prompts"].clone();
    let name = prompts[0]["name"].as_str().unwrap().to_owned();
    let prompt = session.request("prompts/get", json!({"name": name}));
    assert_eq!(
        prompt["result"]["messages"][0]["content"]["text"], "Say hello.",
        "{prompt:#}"
    );
}
