//! Row 4.3: all tools of all servers offered to every model's API, under names that it takes.

use std::collections::HashSet;

use gantry_engine::model::naming::{Expose, OnCollision};
use gantry_engine::model::shape::Shape;
use gantry_engine::{NativeOutput, NativeTool};
use gantry_testkit::Evilpeer;
use serde_json::json;

use super::{Rig, names, spec, text};

/// Neither OpenAI nor Claude takes the names of this server's tools as they are.
const LONG_NAME: &str = "a.server-with.a-name.that-nearly-reaches.the-limit-of.sixty-four";

fn add_native(rig: &Rig) {
    let schema = json!({"type": "object"});
    let tool = NativeTool::new("here", "Runs in process", schema, |_| async {
        Ok(NativeOutput::text("native"))
    });
    rig.engine.default_project().native(tool).unwrap();
}

// row 4.3, row 4.4, row 4.6
#[tokio::test]
async fn every_tool_is_offered_and_called_back_in_every_shape() {
    let peers = [("one", Evilpeer::new()), (LONG_NAME, Evilpeer::new())];
    let rig = Rig::start(&peers).await;
    add_native(&rig);
    let plain = names(Shape::Mcp, &rig.tools(Shape::Mcp).await);
    let listed = plain.len();
    // The second `echo` is the long one's; a name may be cut, the order is the same in all shapes.
    let echoes = plain.iter().enumerate();
    let mut echoes = echoes.filter(|(_, name)| name.ends_with("echo"));
    let (long, _) = echoes.nth(1).unwrap();
    for shape in Shape::ALL {
        let tools = rig.tools(shape).await;
        let offered = names(shape, &tools);
        assert_eq!(offered.len(), listed, "{shape}");
        let different: HashSet<_> = offered.iter().collect();
        assert_eq!(different.len(), listed, "{shape}");
        let refused = offered.iter().find(|name| !shape.target().accepts(name));
        assert_eq!(refused, None, "{shape}");
        assert_eq!(rig.tools(shape).await, tools, "the order is stable");
        for (name, arguments, wanted) in [
            (&offered[long], json!({"text": "round trip"}), "round trip"),
            (&offered[0], json!({}), "native"),
        ] {
            let written = arguments.to_string();
            let call = match shape {
                Shape::Mcp => json!([{"name": name, "arguments": arguments}]),
                Shape::Anthropic => {
                    json!({"type": "tool_use", "id": "c", "name": name, "input": arguments})
                }
                Shape::OpenAi => json!({"id": "c", "type": "function",
                    "function": {"name": name, "arguments": written}}),
                Shape::OpenAiResponses => json!({"type": "function_call", "call_id": "c",
                    "name": name, "arguments": written}),
                Shape::Gemini => json!({"functionCall": {"name": name, "args": arguments}}),
            };
            let answers = rig.call(&call).await;
            assert_eq!((answers.shape, answers.answers.len()), (shape, 1));
            let answer = &answers.answers[0];
            assert!(!answer.is_error, "{shape}: {}", answer.answer.text());
            assert!(answer.answer.text().contains(wanted), "{shape}");
            let row = rig
                .engine
                .default_project()
                .call(answer.call.unwrap())
                .await
                .unwrap()
                .unwrap();
            let server = if wanted == "native" {
                "native"
            } else {
                LONG_NAME
            };
            assert_eq!(row.server, server, "{shape}");
        }
    }
    rig.engine.drain().await;
}

// row 4.5
#[tokio::test]
async fn of_two_bare_names_the_later_wins_if_that_was_asked_for_and_never_in_silence() {
    for (rule, winner) in [(OnCollision::LastWins, "two"), (OnCollision::Refuse, "one")] {
        let specs = ["one", "two"]
            .map(|name| spec(name, &Evilpeer::new()))
            .to_vec();
        let rig = Rig::configured(
            |config| {
                config.expose = Expose::Bare;
                config.on_collision = rule;
            },
            specs,
        )
        .await;
        let offered = names(Shape::Anthropic, &rig.tools(Shape::Anthropic).await);
        let echoes = offered.iter().filter(|name| *name == "echo");
        assert_eq!(echoes.count(), 1, "{offered:?}");
        let result = rig.tool_use("echo", json!({"text": "x"})).await;
        assert_eq!(text(&result), "x");
        let filter = gantry_engine::CallFilter {
            limit: 1,
            ..Default::default()
        };
        let rows = rig.engine.default_project().calls(&filter).await.unwrap();
        assert_eq!(rows[0].server, winner);
        let warnings = rig.engine.default_project().health().warnings;
        let told = warnings
            .iter()
            .any(|warning| warning.contains("name `echo`"));
        assert!(told, "{warnings:?}");
        rig.engine.drain().await;
    }
}
