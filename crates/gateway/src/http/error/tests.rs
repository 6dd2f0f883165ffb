//! Every error's status, code and words.

use axum::response::IntoResponse;
use gantry_engine::{CallError, CallFailure, EngineError, Issue};
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;

use super::*;

fn problem(error: CallError) -> Problem {
    Problem::from(CallFailure {
        call: Some(CallId::from_bits(7)),
        error,
    })
}

fn server() -> gantry_model::id::ServerName {
    "one".parse().unwrap()
}

async fn document(problem: Problem) -> serde_json::Value {
    let response = problem.into_response();
    let kind = response.headers()[CONTENT_TYPE]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(kind, "application/problem+json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

// row 4.6, row 4.8
#[test]
fn an_unknown_tool_has_the_agreed_text() {
    let problem = problem(CallError::UnknownTool {
        name: "nope".into(),
    });
    assert_eq!(problem.rpc_code(), -32602);
    assert_eq!(problem.rpc_message(), "Unknown tool: nope");
    assert_eq!(problem.mcp_status(), StatusCode::OK);
    assert_eq!(problem.status(), StatusCode::NOT_FOUND);
}

// fault A5
#[test]
fn a_full_queue_says_when_to_come_again_outside_the_reserved_codes() {
    let busy = CallError::Busy {
        server: server(),
        full: gantry_engine::Full::Queue(256),
        retry_after: Duration::from_millis(1200),
    };
    let problem = problem(busy);
    assert_eq!(problem.mcp_status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(problem.rpc_code(), -31429);
    assert!(!(-32768..=-32000).contains(&problem.rpc_code()));
    let data = problem.rpc_data().unwrap();
    assert!(data.contains("\"retry_after_ms\":1200"), "{data}");
    assert_eq!(problem.into_response().headers()[RETRY_AFTER], "2");
}

// row 1.5
#[tokio::test]
async fn a_servers_own_error_keeps_code_message_and_data() {
    let error = CallError::Rpc {
        server: server(),
        code: -32042,
        message: "no \"luck\"".into(),
        data: Some("{\"a\":1.0}".into()),
    };
    let problem = problem(error);
    assert_eq!(
        (problem.rpc_code(), problem.rpc_message()),
        (-32042, "no \"luck\"")
    );
    assert_eq!(problem.rpc_data().as_deref(), Some("{\"a\":1.0}"));
    assert_eq!(problem.mcp_status(), StatusCode::OK);
    assert_eq!(problem.status(), StatusCode::BAD_GATEWAY);
    let document = document(problem).await;
    assert_eq!(document["error"]["code"], -32042);
    assert_eq!(document["error"]["message"], "no \"luck\"");
    assert_eq!(document["error"]["data"]["a"], 1.0);
}

#[test]
fn a_servers_error_without_data_gets_none_of_ours() {
    let error = CallError::Rpc {
        server: server(),
        code: -32602,
        message: "bad".into(),
        data: None,
    };
    let problem = problem(error);
    assert_eq!(problem.rpc_data(), None);
    assert_eq!(problem.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_fault_of_ours_shows_code_and_call_only() {
    let document = document(problem(CallError::Panicked)).await;
    assert_eq!(document["status"], 500);
    assert_eq!(document["code"], "gateway.panic");
    assert_eq!(document["type"], "/errors/gateway.panic");
    assert_eq!(document["call"], "call_00000000000000000000000000000007");
    assert_eq!(
        document["detail"],
        "the gateway failed; see its log for this code"
    );
    assert!(document.get("hint").is_none());
}

// row 3.3, fault A8
#[tokio::test]
async fn wrong_arguments_name_each_field() {
    let issue = Issue {
        path: "/city".into(),
        message: "is required".into(),
    };
    let error = CallError::Arguments {
        tool: "weather".into(),
        issues: vec![issue],
    };
    let document = document(problem(error)).await;
    assert_eq!(document["status"], 422);
    assert_eq!(document["issues"][0]["path"], "/city");
    assert_eq!(document["issues"][0]["message"], "is required");
    assert_eq!(document["fault"], "client");
}

#[tokio::test]
async fn an_engines_error_tells_its_cause_when_the_client_can_mend_it() {
    let error = EngineError::Spec(gantry_model::spec::SpecError::Command { server: server() });
    let document = document(Problem::from(error)).await;
    assert_eq!(document["status"], 422);
    let detail = document["detail"].as_str().unwrap();
    assert!(detail.contains("`command` must name a program"), "{detail}");
    let exists = Problem::from(EngineError::Conflict { name: server() });
    assert_eq!(exists.status(), StatusCode::CONFLICT);
}

#[test]
fn a_server_that_needs_more_of_its_client_is_a_bad_request_in_the_stateless_era() {
    let needs = |code| CallError::Rpc {
        server: server(),
        code,
        message: "the client must sample".to_owned(),
        data: None,
    };
    let status = |problem: Problem| problem.mcp_status();
    assert_eq!(status(problem(needs(-32021))), StatusCode::OK);
    let stateless = problem(needs(-32021)).for_stateless();
    assert_eq!(stateless.rpc_code(), -32021);
    assert_eq!(status(stateless), StatusCode::BAD_REQUEST);
    assert_eq!(
        status(problem(needs(-32000)).for_stateless()),
        StatusCode::OK
    );
}
