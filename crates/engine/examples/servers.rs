//! MCP servers behind one registry: started, listed and called.
//!
//! `cargo run -p gantry-engine --example servers -- npx -y @modelcontextprotocol/server-everything`
//! runs the command twice, as the servers `one` and `two`, lists their tools for Gemini and calls
//! the tool `echo` of the second.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use gantry_engine::model::grant::GrantSet;
use gantry_engine::model::shape::Shape;
use gantry_engine::model::spec::{ProcessLaunch, Profile, ServerSpec, Source, Start};
use gantry_engine::{CallOptions, Engine, EngineConfig, Scope};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let command = words.next().ok_or("which command is an MCP server?")?;
    let args: Vec<String> = words.collect();

    let folder = tempfile::tempdir()?;
    let mut config = EngineConfig::new(folder.path().join("data"));
    // Children start from an empty environment; this is all they get beside their own.
    config.environment = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    let engine = Engine::start(config).await?;
    let project = engine.default_project();

    let spec = |name: &str| -> Result<ServerSpec, Box<dyn Error>> {
        let launch = ProcessLaunch {
            command: command.clone(),
            args: args.clone(),
            env: [("WHO_AM_I".to_owned(), name.to_owned())].into(),
            cwd: None,
            profile: Profile::Local,
            limits: Default::default(),
            hosting: Default::default(),
            written: Default::default(),
        };
        let mut spec = ServerSpec::process(name.parse()?, launch);
        spec.start = Start::Eager;
        spec.source = Source::File;
        Ok(spec)
    };
    project.apply(vec![spec("one")?, spec("two")?]).await?;
    project.settled(Duration::from_secs(60)).await;
    for server in project.servers() {
        println!("{}: {}", server.spec.name, server.status.state.as_str());
    }

    let agent = project.caller("reader".parse()?, GrantSet::everything());
    let tools = engine.tools_in(&agent, &Scope::All, Shape::Gemini).await;
    let tools: Value = serde_json::from_str(tools.text())?;
    let declarations = tools[0]["functionDeclarations"].as_array();
    println!("{} tools", declarations.map_or(0, Vec::len));

    let call = json!({"functionCall": {"name": "two__echo", "args":
        {"text": "hello", "message": "hello"}}});
    let answers = engine
        .call_from(&agent, None, &call.to_string(), &CallOptions::default())
        .await?;
    println!("{}", answers.to_json());
    engine.drain().await;
    Ok(())
}
