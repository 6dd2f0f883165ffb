//! A whole tool-use loop: ask the model, make its calls, tell it the results, until it has answered.
//!
//! `cargo run -p gantry-engine --example agent_loop` talks HTTP to a Messages API that is played by
//! `script`, so that it needs no key and no network. The model calls two tools at once, one of them
//! wrongly, corrects its call after the error, and tries a tool that does not exist.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod http;
mod script;

use std::error::Error;

use gantry_engine::model::grant::GrantSet;
use gantry_engine::model::shape::Shape;
use gantry_engine::{CallOptions, Engine, EngineConfig, NativeTool, Project, Scope};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

/// The maximum number of turns before the loop gives up.
const MOST_TURNS: usize = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::start(EngineConfig::new(folder.path().join("data"))).await?;
    let project = engine.default_project();
    register(&project)?;
    let agent = project.caller("traveller".parse()?, GrantSet::everything());

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let tasks = TaskTracker::new();
    let model = tasks.spawn(http::serve(listener, script::answer));

    let mut messages = vec![json!({"role": "user", "content": "Is it warm in Bergen?"})];
    for _ in 0..MOST_TURNS {
        let tools = engine.tools_in(&agent, &Scope::All, Shape::Anthropic).await;
        let request = json!({
            "model": "scripted",
            "max_tokens": 1024,
            "tools": serde_json::from_str::<Value>(tools.text())?,
            "messages": messages,
        });
        let answer = http::post(&address, "/v1/messages", &request).await?;
        messages.push(json!({"role": "assistant", "content": answer["content"]}));
        if answer["stop_reason"] != "tool_use" {
            println!("model: {}", answer["content"][0]["text"]);
            break;
        }
        let answers = engine
            .call_from(
                &agent,
                Some(Shape::Anthropic),
                &answer.to_string(),
                &CallOptions::default(),
            )
            .await?;
        for answer in &answers.answers {
            println!("tool: {}", answer.answer.text());
        }
        let results: Value = serde_json::from_str(&answers.to_json())?;
        messages.push(json!({"role": "user", "content": results}));
    }
    model.abort();
    engine.drain().await;
    Ok(())
}

#[derive(Deserialize)]
struct City {
    city: String,
}

#[derive(Deserialize)]
struct Celsius {
    celsius: f64,
}

fn register(project: &Project) -> Result<(), Box<dyn Error>> {
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"], "additionalProperties": false});
    project.native(NativeTool::typed(
        "weather",
        "Returns the temperature of a city in degrees Celsius",
        city,
        |asked: City, _| async move { Ok(json!({"city": asked.city, "celsius": 8.5})) },
    ))?;
    let celsius = json!({"type": "object", "properties": {"celsius": {"type": "number"}},
        "required": ["celsius"], "additionalProperties": false});
    project.native(NativeTool::typed(
        "fahrenheit",
        "Turns degrees Celsius into degrees Fahrenheit",
        celsius,
        |asked: Celsius, _| async move { Ok(asked.celsius * 9.0 / 5.0 + 32.0) },
    ))?;
    Ok(())
}
