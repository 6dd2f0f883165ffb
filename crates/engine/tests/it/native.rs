//! Rows 4.4 and 4.7: native tools run in process, under the pseudo-server `native`.

use gantry_engine::{
    CallError, CallFilter, CallStatus, ClientIdentity, Engine, EngineConfig, Lists, NativeOutput,
    NativeTool, Reply, Request, Scope, Surface,
};
use gantry_model::caller::{Caller, Context};
use gantry_model::jsonrpc::RawBuf;
use serde_json::{Value, json};

/// An engine in a folder of its own, and its default agent.
struct Rig {
    engine: Engine,
    agent: Caller,
    _folder: tempfile::TempDir,
}

impl Rig {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(EngineConfig::new(folder.path().join("data")))
            .await
            .unwrap();
        let keys = engine
            .default_project()
            .first_start(|_| Ok(()))
            .await
            .unwrap()
            .unwrap();
        let agent = engine.authenticate(&keys.agent).unwrap();
        Self {
            engine,
            agent,
            _folder: folder,
        }
    }

    /// Registers a tool that joins two texts and says who called.
    fn add_join(&self) {
        let texts = json!({"type": "string"});
        let schema = json!({
            "type": "object",
            "properties": {"left": texts, "right": texts},
            "required": ["left", "right"],
        });
        let tool = NativeTool::new("join", "Joins two texts", schema, |call| async move {
            let word = |name: &str| call.arguments[name].as_str().unwrap_or_default().to_owned();
            if word("left") == "panic" {
                panic!("a handler that panics");
            }
            match word("right").as_str() {
                "" => Err("there is nothing to join".to_owned()),
                right => Ok(NativeOutput::text(format!(
                    "{}{right} {}",
                    word("left"),
                    call.caller.agent
                ))),
            }
        });
        self.engine.default_project().native(tool).unwrap();
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<Reply, CallError> {
        let params = RawBuf::serialize(&json!({"name": name, "arguments": arguments})).unwrap();
        let request = Request {
            surface: Surface::Library,
            scope: Scope::All,
            method: "tools/call",
            params: Some(params.as_raw()).into(),
            context: Context::default(),
            client: None,
            timeout: None,
            lists: Lists::FromCatalog,
            identity: ClientIdentity::Anyone,
            reason: None,
        };
        self.engine
            .request(&self.agent, request)
            .await
            .map_err(|failure| failure.error)
    }

    async fn rows(&self) -> Vec<(CallStatus, Option<String>, String)> {
        let filter = CallFilter {
            limit: 100,
            ..CallFilter::default()
        };
        let mut rows = self.engine.default_project().calls(&filter).await.unwrap();
        rows.reverse();
        rows.into_iter()
            .map(|row| (row.status, row.code, row.server))
            .collect()
    }
}

fn text(reply: &Reply) -> String {
    let result: Value = serde_json::from_slice(&reply.result).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

// row 4.4, row 4.7
#[tokio::test]
async fn a_native_tool_is_listed_routed_judged_and_recorded_like_a_servers() {
    let rig = Rig::start().await;
    rig.add_join();
    let tools = rig.engine.tools(&rig.agent, &Scope::All);
    assert_eq!(tools.len(), 1);
    assert_eq!(
        (tools[0].server.as_str(), tools[0].identity().as_str()),
        ("native", "native:join")
    );
    for name in [tools[0].name.as_str(), "native:join"] {
        let reply = rig
            .call(name, json!({"left": "a", "right": "b"}))
            .await
            .unwrap();
        assert_eq!(text(&reply), "ab default");
        assert!(!reply.is_error && reply.call.is_some());
    }
    // Its own failure is an answer.
    let failed = rig
        .call("native:join", json!({"left": "a", "right": ""}))
        .await
        .unwrap();
    assert_eq!(
        (failed.is_error, text(&failed).as_str()),
        (true, "there is nothing to join")
    );
    // Row 3.3 holds for it too.
    let refused = rig.call("native:join", json!({"left": "a"})).await;
    let Err(CallError::Arguments { issues, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(issues[0].message.contains("right"), "{issues:?}");
    // Row 4.8.
    let unknown = rig.call("native:nothing", json!({})).await.unwrap_err();
    assert_eq!(unknown.to_string(), "Unknown tool: native:nothing");
    let native =
        |status, code: Option<&str>| (status, code.map(str::to_owned), "native".to_owned());
    let rows = rig.rows().await;
    let wanted = [
        native(CallStatus::Ok, None),
        native(CallStatus::Ok, None),
        native(CallStatus::Error, Some("tool_error")),
        native(CallStatus::Refused, Some("schema.input")),
        (
            CallStatus::Refused,
            Some("tool.unknown".to_owned()),
            String::new(),
        ),
    ];
    assert_eq!(rows, wanted);
    rig.engine.drain().await;
}

// row 4.7, fault P12
#[tokio::test]
async fn a_handler_that_panics_fails_its_own_call() {
    let rig = Rig::start().await;
    rig.add_join();
    let panicked = rig
        .call("native:join", json!({"left": "panic", "right": "b"}))
        .await;
    assert!(matches!(panicked, Err(CallError::Panicked)), "{panicked:?}");
    let reply = rig
        .call("native:join", json!({"left": "a", "right": "b"}))
        .await
        .unwrap();
    assert_eq!(text(&reply), "ab default");
    let rows = rig.rows().await;
    assert_eq!(
        rows[0],
        (
            CallStatus::Error,
            Some("gateway.panic".to_owned()),
            "native".to_owned()
        )
    );
    assert_eq!(rows[1].0, CallStatus::Ok);
    rig.engine.drain().await;
}

// row 4.5
#[tokio::test]
async fn two_native_tools_of_one_name_are_refused() {
    let rig = Rig::start().await;
    rig.add_join();
    let again = NativeTool::new("join", "Another", json!({"type": "object"}), |_| async {
        Ok(NativeOutput::text("other"))
    });
    let error = rig.engine.default_project().native(again).unwrap_err();
    assert_eq!(
        error.to_string(),
        "native tool `join` cannot be registered: there is one of that name already"
    );
    rig.engine.drain().await;
}
