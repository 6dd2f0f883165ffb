//! Requests to a whole engine: cold servers, calls that leave, lists and native tools.

use gantry_model::caller::{Context, KeyKind, Role};
use gantry_model::grant::{Grant, GrantSet};
use gantry_model::id::{KeyId, ProjectName};
use gantry_model::jsonrpc::Raw;
use gantry_model::spec::{ProcessLaunch, ServerSpec};
use gantry_store::{CallFilter, CallRow, CallStatus};
use gantry_testkit::Evilpeer;
use serde_json::json;
use tokio::time::Instant;

use crate::audit::Surface;
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::error::Full;
use crate::native::{NativeOutput, NativeTool};
use crate::request::ClientIdentity;
use crate::server::runner::TRIPS;

use super::*;

fn caller(kind: KeyKind, grants: &[(&str, &str)]) -> Caller {
    let grant = |(server, item): &(&str, &str)| Grant::new(server, item, None).unwrap();
    Caller {
        project: ProjectName::local(),
        agent: "bot".parse().unwrap(),
        key: KeyId::from_random(1),
        kind,
        grants: Arc::new(GrantSet::new(grants.iter().map(grant).collect())),
        users: Default::default(),
        validity: Default::default(),
        token: None,
        authenticated_in: std::time::Duration::ZERO,
    }
}

fn everyone() -> Caller {
    caller(KeyKind::Agent, &[("*", "*")])
}

/// Starts an engine with one lazy server `a`, of which two calls may wait.
async fn engine(folder: &std::path::Path, argv: &[String]) -> Engine {
    let engine = Engine::start(EngineConfig::new(folder.join("data")))
        .await
        .unwrap();
    register(&engine, "a", argv).await;
    engine
}

async fn register(engine: &Engine, name: &str, argv: &[String]) {
    // Local: the program may lie in a home that is closed to others.
    let launch = json!({"command": argv[0], "args": argv[1..], "profile": "local"});
    let launch: ProcessLaunch = serde_json::from_value(launch).unwrap();
    let mut spec = ServerSpec::process(name.parse().unwrap(), launch);
    spec.calls.queue = 2;
    let admin = caller(KeyKind::Admin(Role::Admin), &[("*", "*")]);
    engine
        .default_project()
        .register(&admin, spec)
        .await
        .unwrap();
}

fn request<'a>(scope: &str, method: &'a str, params: &'a str) -> Request<'a> {
    Request {
        surface: Surface::Rest,
        scope: match scope {
            "" => Scope::All,
            ServerName::NATIVE => Scope::Server(ServerName::native()),
            name => Scope::Server(name.parse().unwrap()),
        },
        method,
        params: Some(Raw::trusted(params)).into(),
        context: Context::default(),
        client: None,
        timeout: Some(Duration::from_secs(20)),
        lists: Lists::FromServer,
        identity: ClientIdentity::Anyone,
        reason: None,
    }
}

async fn rows(engine: &Engine) -> Vec<CallRow> {
    let filter = CallFilter {
        limit: 100,
        ..CallFilter::default()
    };
    engine.default_project().calls(&filter).await.unwrap()
}

fn ends(rows: &[CallRow]) -> Vec<(CallStatus, &str)> {
    let end = |row: &CallRow| (row.status, row.code.clone().unwrap_or_default());
    let mut ends: Vec<_> = rows.iter().map(end).collect();
    ends.sort_by(|one, other| one.1.cmp(&other.1));
    let known = [
        "call.cancelled",
        "call.timeout",
        "server.busy",
        "server.exited",
        "tool.unknown",
        "",
    ];
    let name = |code: &str| known.into_iter().find(|known| *known == code);
    ends.iter()
        .map(|(status, code)| (*status, name(code).unwrap_or("another")))
        .collect()
}

#[tokio::test]
async fn waiting_for_a_server_is_bounded_in_time_and_number_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let hung = ["/bin/sleep".to_owned(), "60".to_owned()];
    let engine = engine(folder.path(), &hung).await;
    let caller = everyone();
    let call = |timeout: u64| {
        let mut request = request("a", "tools/call", r#"{"name":"x"}"#);
        request.timeout = Some(Duration::from_millis(timeout));
        engine.request(&caller, request)
    };
    let begun = Instant::now();
    let left = tokio::time::timeout(Duration::from_millis(700), call(20_000));
    // Begun in this order, and none ends before the last has begun.
    let (left, timed_out, busy) = tokio::join!(left, call(900), call(20_000));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(left.is_err(), "the caller has left");
    let failure = timed_out.unwrap_err();
    let CallError::Timeout { after, .. } = failure.error else {
        panic!("{failure}")
    };
    assert_eq!(after, Duration::from_millis(900));
    let failure = busy.unwrap_err();
    assert!(matches!(
        failure.error,
        CallError::Busy {
            full: Full::Queue(2),
            ..
        }
    ));
    let rows = rows(&engine).await;
    let expected = [
        (CallStatus::Cancelled, "call.cancelled"),
        (CallStatus::Timeout, "call.timeout"),
        (CallStatus::Refused, "server.busy"),
    ];
    assert_eq!(ends(&rows), expected);
    engine.drain().await;
}

#[tokio::test]
async fn a_guessed_tool_is_looked_up_before_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), &Evilpeer::new().argv()).await;
    let everyone = everyone();
    let unknown = request("a", "tools/call", r#"{"name":"nope"}"#);
    let failure = engine.request(&everyone, unknown).await.unwrap_err();
    assert_eq!(failure.to_string(), "Unknown tool: nope");
    assert!(failure.call.is_some());
    let echo = r#"{"name":"echo","arguments":{"text":"x"}}"#;
    engine
        .request(&everyone, request("a", "tools/call", echo))
        .await
        .unwrap();
    let rows = rows(&engine).await;
    let expected = [(CallStatus::Ok, ""), (CallStatus::Refused, "tool.unknown")];
    assert_eq!(ends(&rows), expected);
    // A list is cut to the caller's grants, whatever the server would say.
    let narrow = caller(KeyKind::Agent, &[("a", "echo")]);
    let list = request("a", "tools/list", "{}");
    let reply = engine.request(&narrow, list).await.unwrap();
    let list: serde_json::Value = serde_json::from_slice(&reply.result).unwrap();
    assert_eq!(list["tools"].as_array().unwrap().len(), 1);
    // fault T4: however wide the grant, what the server keeps for all agents is nobody's.
    for method in [
        "resources/subscribe",
        "tasks/list",
        "tasks/get",
        "tasks/result",
        "tasks/update",
        "tasks/cancel",
        "logging/setLevel",
    ] {
        let params = r#"{"uri":"test://static-text","taskId":"1","level":"debug"}"#;
        let asked = engine.request(&everyone, request("a", method, params));
        let failure = asked.await.unwrap_err();
        assert!(
            matches!(failure.error, CallError::UnknownMethod { .. }),
            "{method}: {failure}"
        );
    }
    engine.drain().await;
}

#[tokio::test]
async fn native_tools_can_be_called_at_their_own_scope() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(EngineConfig::new(folder.path().join("data")))
        .await
        .unwrap();
    let handler = |_| async { Ok(NativeOutput::text("hello")) };
    let tool = NativeTool::new("greet", "Greets", json!({"type": "object"}), handler);
    engine.default_project().native(tool).unwrap();
    let everyone = everyone();
    let greet = request(ServerName::NATIVE, "tools/call", r#"{"name":"greet"}"#);
    let reply = engine.request(&everyone, greet).await.unwrap();
    assert!(
        std::str::from_utf8(&reply.result)
            .unwrap()
            .contains("hello")
    );
    let list = request(ServerName::NATIVE, "tools/list", "{}");
    let reply = engine.request(&everyone, list).await.unwrap();
    assert!(
        std::str::from_utf8(&reply.result)
            .unwrap()
            .contains("greet")
    );
    let ping = engine.request(&everyone, request(ServerName::NATIVE, "ping", "{}"));
    let failure = ping.await.unwrap_err();
    assert!(matches!(failure.error, CallError::UnknownMethod { .. }));
    engine.drain().await;
}

// fault P12
#[tokio::test]
async fn a_call_whose_runner_panics_is_recorded_with_what_its_caller_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let argv = Evilpeer::new().argv();
    let engine = engine(folder.path(), &argv).await;
    register(&engine, TRIPS, &argv).await;
    let (everyone, admin) = (
        everyone(),
        caller(KeyKind::Admin(Role::Admin), &[("*", "*")]),
    );
    let slow = r#"{"name":"slow","arguments":{"ms":60000}}"#;
    let call = engine.request(&everyone, request(TRIPS, "tools/call", slow));
    let trip = async {
        while engine
            .default_project()
            .server(TRIPS)
            .unwrap()
            .queue
            .in_flight
            == 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let begun = Instant::now();
        engine
            .default_project()
            .restart(&admin, TRIPS)
            .await
            .unwrap();
        begun
    };
    let (answer, begun) = tokio::join!(call, trip);
    assert!(begun.elapsed() < Duration::from_secs(5), "{begun:?}");
    let told = "server `trips` exited during the call (the gateway failed while it ran the server)";
    assert_eq!(answer.unwrap_err().to_string(), told);
    // It starts anew, and so does the next call; the server beside it never noticed.
    let echo = r#"{"name":"echo","arguments":{"text":"x"}}"#;
    for server in [TRIPS, "a"] {
        let again = engine.request(&everyone, request(server, "tools/call", echo));
        again.await.unwrap();
    }
    let rows = rows(&engine).await;
    let expected = [
        (CallStatus::Ok, ""),
        (CallStatus::Ok, ""),
        (CallStatus::Error, "server.exited"),
    ];
    assert_eq!(ends(&rows), expected);
    engine.drain().await;
}
