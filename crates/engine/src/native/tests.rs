//! Native tools: what they answer, and that their panics stay theirs.

use gantry_model::caller::KeyKind;
use gantry_model::grant::GrantSet;
use gantry_model::id::{KeyId, ProjectName};

use super::*;

fn call(arguments: Value) -> NativeCall {
    let caller = Caller {
        project: ProjectName::local(),
        agent: "bot".parse().unwrap(),
        key: KeyId::from_random(1),
        kind: KeyKind::Agent,
        grants: Arc::new(GrantSet::everything()),
        users: Default::default(),
        validity: Default::default(),
        token: None,
        authenticated_in: std::time::Duration::ZERO,
    };
    NativeCall {
        arguments,
        caller,
        context: Context::default(),
    }
}

async fn run<H, F>(handler: H) -> Result<(String, bool), CallError>
where
    H: Fn(NativeCall) -> F + Send + Sync + 'static,
    F: Future<Output = Result<NativeOutput, String>> + Send + 'static,
{
    let tool = NativeTool::new("greet", "Greets", json!({"type": "object"}), handler);
    let native = Native::new(tool, Permits::default()).unwrap();
    let answered = native
        .run(call(json!({"who": "you"})), Duration::from_secs(5))
        .await?;
    Ok((
        String::from_utf8(answered.result.to_vec()).unwrap(),
        answered.is_error,
    ))
}

#[tokio::test(start_paused = true)]
async fn a_native_tool_answers_like_a_server() {
    // rows 4.4 and 4.7
    let greeted = run(|call| async move {
        let who = call.arguments["who"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(NativeOutput::text(format!(
            "{}: hello {who}",
            call.caller.agent
        )))
    });
    let text = r#"{"content":[{"type":"text","text":"bot: hello you"}]}"#;
    assert_eq!(greeted.await.unwrap(), (text.to_owned(), false));
    let counted = run(|_| async { Ok(NativeOutput::structured(json!({"n": 1}))) })
        .await
        .unwrap();
    let text = r#"{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1}}"#;
    assert_eq!(counted, (text.to_owned(), false));
    let failed = run(|_| async { Err("no such person".to_owned()) })
        .await
        .unwrap();
    let text = r#"{"content":[{"type":"text","text":"no such person"}],"isError":true}"#;
    assert_eq!(failed, (text.to_owned(), true));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_or_hangs_fails_its_own_call() {
    let panicked = run(|_| async { panic!("oops") }).await;
    assert!(matches!(panicked, Err(CallError::Panicked)));
    let at_once = run(|_| -> std::future::Ready<Result<NativeOutput, String>> { panic!("oops") });
    assert!(matches!(at_once.await, Err(CallError::Panicked)));
    let hung = run(|_| std::future::pending::<Result<NativeOutput, String>>()).await;
    assert!(matches!(hung, Err(CallError::Timeout { .. })));
}

#[test]
fn a_tool_that_could_not_be_used_is_refused() {
    let handler = |_| async { Ok(NativeOutput::default()) };
    for (name, schema) in [
        ("two words", json!({"type": "object"})),
        ("", json!({"type": "object"})),
        ("ok", json!({"type": "array"})),
        ("ok", json!({"type": "object", "properties": 7})),
    ] {
        assert!(
            Native::new(
                NativeTool::new(name, "", schema, handler),
                Permits::default()
            )
            .is_err(),
            "{name}"
        );
    }
}
