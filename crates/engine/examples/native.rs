//! Native tools: functions of your own program, offered to a model like any server's tools.
//!
//! `cargo run -p gantry-engine --example native` starts an engine without servers, registers two
//! tools, gives an agent one of them, and answers a model's message.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use gantry_engine::model::grant::{Grant, GrantSet, ToolFilter};
use gantry_engine::model::shape::Shape;
use gantry_engine::{CallOptions, Engine, EngineConfig, NativeTool, Scope};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize)]
struct Trip {
    kilometres: f64,
    hours: f64,
}

#[derive(Serialize)]
struct Speed {
    kilometres_per_hour: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::start(EngineConfig::new(folder.path().join("data"))).await?;
    let project = engine.default_project();

    let number = json!({"type": "number"});
    let trip = json!({
        "type": "object",
        "properties": {"kilometres": number, "hours": number},
        "required": ["kilometres", "hours"],
        "additionalProperties": false,
    });
    project.native(NativeTool::typed(
        "speed",
        "Returns the mean speed of a trip",
        trip,
        |trip: Trip, _call| async move {
            if trip.hours <= 0.0 {
                return Err("a trip takes more than no time".to_owned());
            }
            Ok(Speed {
                kilometres_per_hour: trip.kilometres / trip.hours,
            })
        },
    ))?;
    project.native(NativeTool::typed(
        "reset",
        "Forgets all trips",
        json!({"type": "object"}),
        |_: serde_json::Value, call| async move { Ok(format!("done for {}", call.caller.agent)) },
    ))?;

    // What an agent was granted, and what it sees of that.
    let grants = vec![Grant::new("native", "*", None)?];
    let filter = ToolFilter::new([], ["native:reset"])?;
    let agent = project.caller("planner".parse()?, GrantSet::filtered(grants, filter));

    let tools = engine.tools_in(&agent, &Scope::All, Shape::OpenAi).await;
    println!("tools: {}", tools.text());

    // What a model answered: two calls at once, one of a tool that it was not offered.
    let message = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_1", "type": "function", "function":
            {"name": "native__speed", "arguments": "{\"kilometres\": 90, \"hours\": 1.5}"}},
        {"id": "call_2", "type": "function", "function":
            {"name": "native__reset", "arguments": "{}"}},
    ]});
    let options = CallOptions::default();
    let answers = engine
        .call_from(&agent, None, &message.to_string(), &options)
        .await?;
    for answer in &answers.answers {
        println!("answer: {}", answer.answer.text());
    }
    engine.drain().await;
    Ok(())
}
