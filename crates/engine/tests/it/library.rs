//! The engine as an agent author uses it: one registry over servers and native tools, exported in
//! the shape of a model's API, calls routed back.

mod examples;
mod filters;
mod names;
mod prompts;
mod repair;
mod routing;

use std::time::Duration;

use gantry_engine::model::caller::Caller;
use gantry_engine::model::grant::GrantSet;
use gantry_engine::model::shape::Shape;
use gantry_engine::model::spec::{ProcessLaunch, Profile, ServerSpec, Source, Start};
use gantry_engine::{CallOptions, Engine, EngineConfig, ModelAnswers, Scope};
use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(30);

/// An engine in a folder of its own, and an agent that may use everything.
struct Rig {
    engine: Engine,
    agent: Caller,
    _folder: tempfile::TempDir,
}

impl Rig {
    async fn start(servers: &[(&str, Evilpeer)]) -> Self {
        let specs = servers.iter().map(|(name, peer)| spec(name, peer));
        Self::configured(|_| {}, specs.collect()).await
    }

    async fn configured(change: impl FnOnce(&mut EngineConfig), specs: Vec<ServerSpec>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = EngineConfig::new(folder.path().join("data"));
        change(&mut config);
        let engine = Engine::start(config).await.unwrap();
        engine.default_project().apply(specs).await.unwrap();
        engine.default_project().settled(LONG).await;
        let agent = engine
            .default_project()
            .caller("author".parse().unwrap(), GrantSet::everything());
        Self {
            engine,
            agent,
            _folder: folder,
        }
    }

    async fn tools(&self, shape: Shape) -> Value {
        self.tools_of(&self.agent, shape).await
    }

    async fn tools_of(&self, agent: &Caller, shape: Shape) -> Value {
        let tools = self.engine.tools_in(agent, &Scope::All, shape).await;
        serde_json::from_str(tools.text()).unwrap()
    }

    async fn call(&self, message: &Value) -> ModelAnswers {
        self.call_as(&self.agent, message).await
    }

    async fn call_as(&self, agent: &Caller, message: &Value) -> ModelAnswers {
        let (message, options) = (message.to_string(), CallOptions::default());
        let called = self.engine.call_from(agent, None, &message, &options);
        tokio::time::timeout(LONG, called).await.unwrap().unwrap()
    }

    /// Makes one call as Claude would and returns the `tool_result`.
    async fn tool_use(&self, name: &str, input: Value) -> Value {
        let call = json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": input});
        serde_json::from_str(&self.call(&call).await.to_json()).unwrap()
    }
}

/// An eager server of a file.
fn spec(name: &str, peer: &Evilpeer) -> ServerSpec {
    let mut argv = peer.argv().into_iter();
    let launch = ProcessLaunch {
        command: argv.next().unwrap(),
        args: argv.collect(),
        env: Default::default(),
        cwd: Some("/".into()),
        profile: Profile::Local,
        limits: Default::default(),
        hosting: Default::default(),
        written: Default::default(),
    };
    let mut spec = ServerSpec::process(name.parse().unwrap(), launch);
    spec.start = Start::Eager;
    spec.source = Source::File;
    spec
}

/// The names in a list of this shape.
fn names(shape: Shape, tools: &Value) -> Vec<String> {
    let list = if shape == Shape::Gemini {
        &tools[0]["functionDeclarations"]
    } else {
        tools
    };
    let name = |tool: &Value| tool.get("function").unwrap_or(tool)["name"].clone();
    let names = list.as_array().unwrap().iter().map(name);
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

/// The text that Claude is told.
fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}
