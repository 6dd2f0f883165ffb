//! Panics while a request is handled or a key is checked, and the size of futures.

use gantry_engine::{Engine, EngineConfig, FirstKeys};
use gantry_model::caller::Caller;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::*;
use crate::app::routes::{AppState, service};

/// The key on which the check panics.
const FATAL: &str = "gantry_agent_fatal";

/// Panics on the fatal key; called where keys are checked.
pub(super) fn judge(key: &str) {
    assert_ne!(key, FATAL, "a judge that panics");
}

struct Served {
    service: Service,
    engine: Engine,
    keys: FirstKeys,
    admin: Caller,
    _folder: tempfile::TempDir,
}

impl Served {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = EngineConfig::new(folder.path().join("data"));
        let engine = Engine::start(config).await.unwrap();
        let keys = engine
            .default_project()
            .first_start(|_| Ok(()))
            .await
            .unwrap()
            .unwrap();
        let bound = "127.0.0.1:1".parse().unwrap();
        let state = AppState {
            guarded: Arc::default(),
            engine: engine.clone(),
            hosts: Arc::new(HostPolicy::new(&[bound], &[])),
            sessions: Arc::default(),
            browsers: BrowserSessions::default(),
            version: "test",
            instructions: crate::mcp::Instructions::default(),
        };
        Self {
            service: service(state),
            admin: engine.authenticate(&keys.admin).unwrap(),
            engine,
            keys,
            _folder: folder,
        }
    }

    async fn ask(&self, key: &str, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", "127.0.0.1:1")
            .header("Authorization", format!("Bearer {key}"))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let request = request.body(axum::body::Body::from(body.to_string()));
        let answer = (self.service)(request.unwrap()).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn key_count(&self) -> usize {
        self.engine.default_project().keys().await.unwrap().len()
    }
}

// fault P12
#[tokio::test]
async fn a_panic_becomes_an_answer() {
    let outcome: Result<(), Problem> = catch_panic(async { panic!("boom") }).await;
    let problem = outcome.unwrap_err();
    assert_eq!(problem.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(problem.code(), "gateway.panic");
}

// fault U3
#[tokio::test]
async fn a_panic_while_a_key_is_judged_answers_500_and_lets_nobody_in() {
    let served = Served::start().await;
    let made = json!({"kind": "agent"});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let own = format!("/api/v1/keys/{}", served.admin.key);
    let doors = [
        ("POST", "/api/v1/keys", &made),
        ("DELETE", own.as_str(), &Value::Null),
        ("GET", "/api/v1/keys", &Value::Null),
        ("GET", "/metrics", &Value::Null),
        ("GET", "/api/v1/tools", &Value::Null),
        ("POST", "/mcp", &list),
        ("POST", "/mcp/servers/native", &list),
        ("DELETE", "/mcp", &Value::Null),
        ("GET", "/sse", &Value::Null),
        ("GET", "/sse/servers/native", &Value::Null),
    ];
    for (method, path, body) in doors {
        let (status, told) = served.ask(FATAL, method, path, body).await;
        let code = told.pointer("/error/data/code").unwrap_or(&told["code"]);
        assert_eq!(
            (status, code),
            (StatusCode::INTERNAL_SERVER_ERROR, &json!("gateway.panic")),
            "{method} {path}: {told:#}"
        );
        for member in ["items", "result", "key"] {
            assert!(told.get(member).is_none(), "{method} {path}: {told:#}");
        }
    }
    // The requests did not get past authentication: the number of keys is unchanged.
    assert_eq!(served.key_count().await, 2);
    // A valid key is accepted as before.
    let (status, told) = served.ask(&served.keys.agent, "POST", "/mcp", &list).await;
    assert_eq!(
        (status, &told["result"]["tools"]),
        (StatusCode::OK, &json!([]))
    );
    let admin = &served.keys.admin;
    let (status, _) = served.ask(admin, "POST", "/api/v1/keys", &made).await;
    assert_eq!((status, served.key_count().await), (StatusCode::CREATED, 3));
    served.engine.drain().await;
}

/// The maximum size of a request's future, and of the engine's part of it, which is boxed
/// separately. They are allocated, zeroed and moved for every call, so rarely needed parts have
/// their own box.
const FUTURE_BYTES: [usize; 2] = [3584, 4096];

#[tokio::test]
async fn the_futures_of_a_call_stay_small() {
    let served = Served::start().await;
    let request = Request::builder().method("POST").uri("/mcp");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let answering = (served.service)(request);
    let request = gantry_engine::Request {
        surface: gantry_engine::Surface::Mcp,
        scope: gantry_engine::Scope::All,
        method: "tools/call",
        params: None.into(),
        context: Default::default(),
        client: None,
        timeout: None,
        lists: Default::default(),
        identity: Default::default(),
        reason: None,
    };
    let call = served.engine.request(&served.admin, request);
    let sizes = [size_of_val(&*answering), size_of_val(&call)];
    let fits = sizes
        .iter()
        .zip(FUTURE_BYTES)
        .all(|(size, most)| *size <= most);
    assert!(fits, "{sizes:?} bytes, at most {FUTURE_BYTES:?}");
    drop((answering, call));
}
