//! Rows 4.4 and 4.6–4.9: the registry routes, native tools run in process, nothing leaks.

use std::sync::Arc;

use gantry_engine::{CallStatus, NativeTool};
use gantry_testkit::Evilpeer;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::{Rig, spec, text};

// row 4.9
#[tokio::test]
async fn each_server_has_its_own_environment_and_nothing_of_ours() {
    let specs = ["one", "two"].map(|name| {
        let mut spec = spec(name, &Evilpeer::new());
        if let gantry_engine::model::spec::Launch::Process(launch) = &mut spec.launch {
            launch.env = [(format!("ONLY_{name}"), name.to_owned())].into();
        }
        spec
    });
    let rig = Rig::configured(
        |config| config.environment = vec![("PATH".into(), "/usr/bin:/bin".into())],
        specs.to_vec(),
    )
    .await;
    for (name, other) in [("one", "two"), ("two", "one")] {
        let result = rig.tool_use(&format!("{name}__env"), json!({})).await;
        let variables: Value = serde_json::from_str(text(&result)).unwrap();
        assert_eq!(variables[format!("ONLY_{name}")], name);
        assert_eq!(variables.get(format!("ONLY_{other}")), None);
        // Ours has it, since cargo runs the test.
        assert_eq!(variables.get("CARGO_MANIFEST_DIR"), None, "{variables:#}");
    }
    rig.engine.drain().await;
}

// row 4.7, row 2.9
#[tokio::test]
async fn the_calls_of_one_message_run_side_by_side() {
    let rig = Rig::start(&[]).await;
    // Neither returns before both have come, so that one after the other would never end.
    let barrier = Arc::new(Barrier::new(2));
    let tool = NativeTool::typed(
        "meet",
        "Waits for another call",
        json!({"type": "object", "properties": {"name": {"type": "string"}}}),
        move |asked: Value, _| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                Ok(format!(
                    "{} was here",
                    asked["name"].as_str().unwrap_or("nobody")
                ))
            }
        },
    );
    rig.engine.default_project().native(tool).unwrap();
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "native__meet", "input": {"name": id}});
    let message = json!({"role": "assistant", "content":
        [{"type": "text", "text": "Both."}, call("left"), call("right")]});
    let answers = rig.call(&message).await;
    let results: Value = serde_json::from_str(&answers.to_json()).unwrap();
    for (index, id) in ["left", "right"].into_iter().enumerate() {
        assert_eq!(results[index]["tool_use_id"], id);
        assert_eq!(text(&results[index]), format!("{id} was here"));
    }
    rig.engine.drain().await;
}

// row 4.8
#[tokio::test]
async fn an_unknown_tool_is_told_as_the_tools_result() {
    let rig = Rig::start(&[("one", Evilpeer::new())]).await;
    for name in ["one__nothing", "nothing", "nobody:echo"] {
        let call = json!({"type": "tool_use", "id": "c", "name": name, "input": {}});
        let answers = rig.call(&call).await;
        let result: Value = serde_json::from_str(&answers.to_json()).unwrap();
        assert_eq!(result["is_error"], true);
        assert_eq!(text(&result), format!("Unknown tool: {name}"));
        let id = answers.answers[0].call.unwrap();
        let row = rig
            .engine
            .default_project()
            .call(id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(row.status, CallStatus::Refused);
        assert_eq!(row.code.as_deref(), Some("tool.unknown"));
    }
    rig.engine.drain().await;
}

// row 4.4, row 4.7
#[tokio::test]
async fn a_typed_native_tool_answers_in_the_form_of_its_type() {
    let rig = Rig::start(&[]).await;
    let schema = || json!({"type": "object"});
    let add = |tool| rig.engine.default_project().native(tool).unwrap();
    add(NativeTool::typed(
        "text",
        "",
        schema(),
        |_: Value, _| async { Ok("hi") },
    ));
    add(NativeTool::typed(
        "object",
        "",
        schema(),
        |_: Value, _| async { Ok(json!({"a": 1})) },
    ));
    add(NativeTool::typed(
        "list",
        "",
        schema(),
        |_: Value, _| async { Ok([1, 2]) },
    ));
    add(NativeTool::typed(
        "nothing",
        "",
        schema(),
        |_: Value, _| async { Ok(()) },
    ));
    add(NativeTool::typed(
        "wrong",
        "",
        schema(),
        |_: u32, _| async { Ok(1) },
    ));
    add(NativeTool::typed(
        "fails",
        "",
        schema(),
        |_: Value, _| async { Err::<(), _>("no luck".to_owned()) },
    ));
    for (name, wanted) in [("text", "hi"), ("object", r#"{"a":1}"#), ("list", "[1,2]")] {
        let result = rig.tool_use(&format!("native__{name}"), json!({})).await;
        assert_eq!((text(&result), result.get("is_error")), (wanted, None));
    }
    let nothing = rig.tool_use("native__nothing", json!({})).await;
    assert_eq!(nothing["content"], json!([]));
    let failed = rig.tool_use("native__fails", json!({})).await;
    assert_eq!(
        (text(&failed), &failed["is_error"]),
        ("no luck", &json!(true))
    );
    let wrong = rig.tool_use("native__wrong", json!({})).await;
    assert!(
        text(&wrong).starts_with("the arguments cannot be used: "),
        "{wrong}"
    );
    rig.engine.drain().await;
}
