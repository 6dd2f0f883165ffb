//! Rows 2.21 and 2.22 through the library: prompts, resources, templates and completion of all
//! servers, each under its own class of grants.

use gantry_engine::model::caller::{Caller, Context};
use gantry_engine::model::grant::{Grant, GrantSet};
use gantry_engine::model::jsonrpc::RawBuf;
use gantry_engine::{CallError, ClientIdentity, Lists, Request, Scope, Surface};
use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::Rig;

async fn ask(rig: &Rig, caller: &Caller, method: &str, params: Value) -> Result<Value, CallError> {
    let params = RawBuf::serialize(&params).unwrap();
    let request = Request {
        surface: Surface::Library,
        scope: Scope::All,
        method,
        params: Some(params.as_raw()).into(),
        context: Context::default(),
        client: None,
        timeout: None,
        lists: Lists::FromCatalog,
        identity: ClientIdentity::Anyone,
        reason: None,
    };
    let reply = rig.engine.request(caller, request).await;
    let reply = reply.map_err(|failure| failure.error)?;
    Ok(serde_json::from_slice(&reply.result).unwrap())
}

fn listed(result: &Value, list: &str, key: &str) -> Vec<String> {
    let items = result[list].as_array().unwrap().iter();
    items
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

fn complete(reference: Value) -> Value {
    json!({"ref": reference, "argument": {"name": "a", "value": "alp"}})
}

// row 2.21, row 2.22
#[tokio::test]
async fn grants_open_each_class_of_things_by_itself() {
    let rig = Rig::start(&[("one", Evilpeer::new()), ("two", Evilpeer::new())]).await;
    let agent = |grants: &[(&str, &str)]| {
        let grants = grants.iter();
        let grants = grants.map(|(server, item)| Grant::new(server, item, None).unwrap());
        let grants = GrantSet::new(grants.collect());
        rig.engine
            .default_project()
            .caller("some".parse().unwrap(), grants)
    };
    let prompts = agent(&[("two", "prompt:with_*")]);
    let resources = agent(&[("two", "resource:test://template/*")]);
    let tools = agent(&[("two", "echo")]);
    let prompt = json!({"name": "two__with_arguments", "arguments": {"a": "hi"}});
    let completion = complete(json!({"type": "ref/prompt", "name": "two__with_arguments"}));
    let resource = json!({"uri": "test://template/7/data"});
    // What each may do.
    let seen = ask(&rig, &prompts, "prompts/list", json!({}))
        .await
        .unwrap();
    assert_eq!(listed(&seen, "prompts", "name"), ["two__with_arguments"]);
    let got = ask(&rig, &prompts, "prompts/get", prompt.clone())
        .await
        .unwrap();
    assert_eq!(got["messages"][0]["content"]["text"], "Say hi.");
    let completed = ask(&rig, &prompts, "completion/complete", completion.clone()).await;
    assert_eq!(
        completed.unwrap()["completion"]["values"],
        json!(["alpha", "alphabet"])
    );
    let read = ask(&rig, &resources, "resources/read", resource.clone())
        .await
        .unwrap();
    assert_eq!(read["contents"][0]["text"], r#"{"id":"7"}"#);
    let seen = ask(&rig, &resources, "resources/templates/list", json!({}))
        .await
        .unwrap();
    assert_eq!(
        listed(&seen, "resourceTemplates", "uriTemplate"),
        ["test://template/{id}/data"]
    );
    // What each may not.
    let static_text = json!({"uri": "test://static-text"});
    let other_prompt = json!({"name": "two__simple"});
    for (caller, method, params) in [
        (&prompts, "prompts/get", other_prompt),
        (&prompts, "resources/read", resource.clone()),
        (&resources, "resources/read", static_text),
        (&resources, "prompts/get", prompt.clone()),
        (&tools, "prompts/get", prompt),
        (&tools, "resources/read", resource),
        (&tools, "completion/complete", completion),
    ] {
        let refused = ask(&rig, caller, method, params).await;
        assert!(
            matches!(refused, Err(CallError::NotGranted { .. })),
            "{method}: {refused:?}"
        );
    }
    for (method, list) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
        let nothing = ask(&rig, &tools, method, json!({})).await.unwrap();
        assert_eq!(nothing[list], json!([]));
    }
    rig.engine.drain().await;
}
