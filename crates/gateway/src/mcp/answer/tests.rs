//! Results in the shape of each era, byte for byte.

use gantry_engine::Issue;
use http_body_util::BodyExt;

use super::*;

const INFO: &str = r#"{"name":"gantry","version":"0"}"#;

fn reply(result: &str, upstream: Option<Era>) -> Reply {
    let result = Bytes::copy_from_slice(result.as_bytes());
    Reply {
        call: None,
        result,
        upstream,
        is_error: false,
        is_odd: false,
        warning: None,
        permit: Default::default(),
    }
}

fn shown(method: &str, era: Era, reply: Reply) -> String {
    let answer = Answer::reply(
        RequestId::String("\"a b\""),
        (method, era),
        reply,
        Raw::trusted(INFO),
    );
    String::from_utf8(answer.into_message().unwrap()).unwrap()
}

#[test]
fn an_older_client_gets_an_older_servers_bytes() {
    let result = r#"{ "content":[],"x":1e400}"#;
    assert_eq!(
        shown(
            "tools/call",
            Era::Handshake,
            reply(result, Some(Era::Handshake))
        ),
        format!(r#"{{"jsonrpc":"2.0","id":"a b","result":{result}}}"#),
    );
}

#[test]
fn results_change_eras_both_ways() {
    let modern = r#"{"resultType":"complete","content":[]}"#;
    assert_eq!(
        shown(
            "tools/call",
            Era::Handshake,
            reply(modern, Some(Era::Stateless))
        ),
        r#"{"jsonrpc":"2.0","id":"a b","result":{"content":[]}}"#,
    );
    let answer = shown(
        "tools/call",
        Era::Stateless,
        reply(r#"{"content":[]}"#, Some(Era::Handshake)),
    );
    let value: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(value["result"]["resultType"], "complete");
    assert_eq!(
        value["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "gantry"
    );
    assert!(value["result"].get("ttlMs").is_none());
}

#[test]
fn lists_of_ours_are_private_and_short_lived_in_the_stateless_era() {
    for list in [r#"{"tools":[]}"#, "{}"] {
        let answer = shown("tools/list", Era::Stateless, reply(list, None));
        let value: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(value["result"]["cacheScope"], "private");
        assert_eq!(value["result"]["ttlMs"], TTL_MS);
        assert_eq!(value["result"]["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_big_result_is_sent_whole_with_its_length() {
    let result = format!(r#"{{"text":"{}"}}"#, "x".repeat(2 * BIG));
    let answer = Answer::reply(
        RequestId::Number("1"),
        ("tools/call", Era::Handshake),
        reply(&result, None),
        Raw::trusted(INFO),
    );
    let body = answer.into_response().into_body();
    let length = http_body::Body::size_hint(&body).exact().unwrap();
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!(bytes.len() as u64, length);
    assert_eq!(
        bytes,
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)
    );
}

// row 3.3, fault A8
#[test]
fn wrong_arguments_are_a_result_that_names_each_field() {
    let issues = vec![
        Issue {
            path: "/city".into(),
            message: "is required".into(),
        },
        Issue {
            path: String::new(),
            message: "has \"x\" too much".into(),
        },
    ];
    let error = CallError::Arguments {
        tool: "weather".into(),
        issues,
    };
    let problem = Problem::from(CallFailure { call: None, error });
    let answer = Answer::failure(RequestId::Number("1"), Era::Stateless, problem);
    assert_eq!(answer.status, StatusCode::OK);
    let value: serde_json::Value = serde_json::from_slice(&answer.into_message().unwrap()).unwrap();
    assert_eq!(value["result"]["isError"], true);
    assert_eq!(value["result"]["resultType"], "complete");
    assert_eq!(
        value["result"]["content"][0]["text"],
        "arguments of `weather` do not fit its schema\n- /city: is required\n- (arguments): has \"x\" too much",
    );
}

#[test]
fn a_refusal_carries_its_status_and_the_askers_id() {
    let problem = Problem::new("grant.unbound").with_detail("no grant");
    let answer = Answer::problem(Some(RequestId::Number("1.0")), problem);
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let text = String::from_utf8(answer.into_message().unwrap()).unwrap();
    assert_eq!(
        text,
        r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-31403,"message":"no grant","data":{"code":"grant.unbound"}}}"#,
    );
}
