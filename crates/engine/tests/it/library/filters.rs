//! Row 2.16: an agent's tool filter applies to MCP tools, in listing and in calling.

use gantry_engine::model::grant::{Grant, GrantSet, ToolFilter};
use gantry_engine::model::shape::Shape;
use gantry_engine::{NativeOutput, NativeTool};
use gantry_testkit::Evilpeer;
use serde_json::json;

use super::{Rig, names};

// row 2.16
#[tokio::test]
async fn a_filter_hides_tools_from_the_list_and_refuses_their_calls() {
    let rig = Rig::start(&[("one", Evilpeer::new()), ("two", Evilpeer::new())]).await;
    let schema = json!({"type": "object"});
    let tool = NativeTool::new("here", "", schema, |_| async {
        Ok(NativeOutput::text("hi"))
    });
    rig.engine.default_project().native(tool).unwrap();
    let agent = |grants: Vec<Grant>, include: &[&str], exclude: &[&str]| {
        let filter = ToolFilter::new(include.iter(), exclude.iter()).unwrap();
        let grants = GrantSet::filtered(grants, filter);
        rig.engine
            .default_project()
            .caller("filtered".parse().unwrap(), grants)
    };
    let all = || vec![Grant::new("*", "*", None).unwrap()];
    let some = agent(all(), &["one:*", "*:here"], &["*:crash", "one:e*"]);
    for shape in [Shape::Mcp, Shape::Anthropic, Shape::OpenAi, Shape::Gemini] {
        let offered = names(shape, &rig.tools_of(&some, shape).await);
        assert!(offered.contains(&"native__here".to_owned()), "{offered:?}");
        assert!(offered.contains(&"one__add".to_owned()), "{offered:?}");
        let hidden = ["one__echo", "one__env", "one__crash", "two__add"];
        let shown = hidden
            .iter()
            .find(|name| offered.contains(&(**name).to_owned()));
        assert_eq!(shown, None, "{shape}");
    }
    let calls = [
        ("one__add", json!({"a": 1, "b": 2}), None),
        ("one:echo", json!({"text": "x"}), Some("grant.unbound")),
        ("one__echo", json!({"text": "x"}), Some("grant.unbound")),
        ("two__add", json!({"a": 1, "b": 2}), Some("grant.unbound")),
    ];
    for (name, input, code) in calls {
        let call = json!({"type": "tool_use", "id": "c", "name": name, "input": input});
        let answers = rig.call_as(&some, &call).await;
        let answer = &answers.answers[0];
        assert_eq!(answer.is_error, code.is_some(), "{}", answer.answer.text());
        let row = rig
            .engine
            .default_project()
            .call(answer.call.unwrap())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(row.code.as_deref(), code, "{name}");
    }
    // It opens nothing that was not granted.
    let none = agent(Vec::new(), &["*"], &[]);
    assert_eq!(rig.tools_of(&none, Shape::Anthropic).await, json!([]));
    rig.engine.drain().await;
}

// row 2.16, row 3.6
#[tokio::test]
async fn an_alias_is_the_name_in_every_shape() {
    let rig = Rig::start(&[("one", Evilpeer::new()), ("two", Evilpeer::new())]).await;
    let grant = Grant::new("two", "echo", Some("say")).unwrap();
    let grants = GrantSet::new(vec![grant]);
    let agent = rig
        .engine
        .default_project()
        .caller("renamed".parse().unwrap(), grants);
    for shape in Shape::ALL {
        assert_eq!(names(shape, &rig.tools_of(&agent, shape).await), ["say"]);
    }
    let call = json!({"functionCall": {"name": "say", "args": {"text": "aliased"}}});
    let answers = rig.call_as(&agent, &call).await;
    assert!(
        answers.to_json().contains("aliased"),
        "{}",
        answers.to_json()
    );
    let id = answers.answers[0].call.unwrap();
    assert_eq!(
        rig.engine
            .default_project()
            .call(id)
            .await
            .unwrap()
            .unwrap()
            .server,
        "two"
    );
    rig.engine.drain().await;
}
