//! What a model is told of a call that failed: enough to repair it, or to continue without it.

use std::time::Duration;

use gantry_engine::model::shape::{FormError, Shape};
use gantry_engine::{CallOptions, CallStatus, MessageError};
use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::{Rig, text};

// row 3.3, fault A8
#[tokio::test]
async fn arguments_that_do_not_fit_name_the_field() {
    let rig = Rig::start(&[("one", Evilpeer::new())]).await;
    let result = rig.tool_use("one__add", json!({"a": 1})).await;
    assert_eq!(result["is_error"], true);
    let told = text(&result);
    assert!(
        told.starts_with("arguments of `one__add` do not fit its schema\n- /b: "),
        "{told}"
    );
    assert!(
        told.ends_with("correct the named fields and call again"),
        "{told}"
    );
    // Broken JSON is a failure of that call, recorded like any other.
    let call = |arguments: &str| {
        json!({"id": "c", "type": "function",
            "function": {"name": "one__add", "arguments": arguments}})
    };
    let message = json!({"tool_calls": [call("{\"a\":1,"), call("{\"a\":1,\"b\":2}")]});
    let answers = rig.call(&message).await;
    let results: Value = serde_json::from_str(&answers.to_json()).unwrap();
    let told = results[0]["content"].as_str().unwrap();
    assert!(
        told.starts_with(
            "Error: arguments of `one__add` cannot be read: `arguments` is not valid JSON"
        ),
        "{told}"
    );
    assert!(!answers.answers[1].is_error, "{results:#}");
    let row = rig
        .engine
        .default_project()
        .call(answers.answers[0].call.unwrap())
        .await;
    let row = row.unwrap().unwrap();
    assert_eq!(
        (row.status, row.code.as_deref()),
        (CallStatus::Refused, Some("schema.input"))
    );
    rig.engine.drain().await;
}

// row 3.4, row 1.6
#[tokio::test]
async fn a_timeout_is_a_result_and_the_run_goes_on() {
    let rig = Rig::start(&[("one", Evilpeer::new())]).await;
    let options = CallOptions {
        timeout: Some(Duration::from_millis(300)),
        ..CallOptions::default()
    };
    let call = json!({"type": "tool_use", "id": "c", "name": "one__slow", "input": {"ms": 60_000}});
    let message = call.to_string();
    let called = rig
        .engine
        .call_from(&rig.agent, Some(Shape::Anthropic), &message, &options);
    let answers = tokio::time::timeout(super::LONG, called)
        .await
        .unwrap()
        .unwrap();
    let result: Value = serde_json::from_str(&answers.to_json()).unwrap();
    assert_eq!(result["is_error"], true);
    let told = text(&result);
    assert!(
        told.starts_with("server `one` did not answer within 300ms\n"),
        "{told}"
    );
    assert!(told.contains("retry only if"), "{told}");
    let result = rig
        .tool_use("one__echo", json!({"text": "still here"}))
        .await;
    assert_eq!(text(&result), "still here");
    rig.engine.drain().await;
}

// row 2.8
#[tokio::test]
async fn a_tools_own_failure_and_a_servers_error_keep_their_words() {
    let rig = Rig::start(&[("one", Evilpeer::new())]).await;
    let failed = rig
        .tool_use("one__fail", json!({"message": "no such file"}))
        .await;
    assert_eq!(failed["is_error"], true);
    assert!(text(&failed).contains("no such file"), "{failed}");
    let refused = json!({"code": -32050, "message": "quota used up"});
    let refused = rig.tool_use("one__rpc_error", refused).await;
    assert_eq!(refused["is_error"], true);
    assert!(text(&refused).contains("quota used up"), "{refused}");
    rig.engine.drain().await;
}

#[tokio::test]
async fn a_message_without_a_call_is_refused_as_a_whole() {
    let rig = Rig::start(&[]).await;
    let options = CallOptions::default();
    let talk = json!({"role": "assistant", "content": [{"type": "text", "text": "Done."}]});
    let error = rig
        .engine
        .call_from(&rig.agent, None, &talk.to_string(), &options)
        .await;
    assert_eq!(error.err(), Some(MessageError::Form(FormError::NoCall)));
    let error = rig.engine.call_from(&rig.agent, None, "{", &options).await;
    assert!(matches!(error, Err(MessageError::Wire(_))), "{error:?}");
    rig.engine.drain().await;
}
