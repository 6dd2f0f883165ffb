//! The order of judgement, and results against their schemas.

use gantry_model::caller::KeyKind;
use gantry_model::diagnose::Diagnose;
use gantry_model::grant::{Grant, GrantSet};
use gantry_model::id::{KeyId, ProjectName};

use super::*;

fn caller(grants: &[(&str, &str)]) -> Caller {
    let grants = grants
        .iter()
        .map(|(server, item)| Grant::new(server, item, None).unwrap());
    Caller {
        project: ProjectName::local(),
        agent: "bot".parse().unwrap(),
        key: KeyId::from_random(1),
        kind: KeyKind::Agent,
        grants: Arc::new(GrantSet::new(grants.collect())),
        users: Default::default(),
        validity: Default::default(),
        token: None,
        authenticated_in: std::time::Duration::ZERO,
    }
}

fn tool(definition: &str) -> Arc<Tool> {
    Arc::new(Tool::admit(Raw::trusted(definition), 1 << 16).unwrap())
}

#[tokio::test]
async fn the_grant_is_judged_before_the_arguments() {
    // row 3.2, fault A8
    let add = tool(r#"{"name":"add","inputSchema":{"type":"object","required":["a"]}}"#);
    let server: ServerName = "math".parse().unwrap();
    let call = |caller: Caller, arguments: Option<&'static str>| {
        let (add, server) = (Arc::clone(&add), server.clone());
        async move {
            let arguments = arguments.map(Raw::trusted);
            let decision = decide(
                &caller,
                MethodClass::Tool,
                &server,
                "add",
                Some(&add),
                arguments,
            );
            judge(
                &caller,
                &decision,
                &server,
                "add",
                Some((&add, &Permits::default())),
                arguments,
                &Measured::default(),
            )
            .await
        }
    };
    let unbound = call(caller(&[("math", "sub")]), None).await.unwrap_err();
    assert_eq!(
        unbound.to_string(),
        "agent `bot` has no grant for `math:add`"
    );
    let refused = call(caller(&[("math", "add")]), None).await.unwrap_err();
    let CallError::Arguments { tool, issues } = refused else {
        panic!("{refused}")
    };
    assert_eq!((tool.as_str(), issues[0].path.as_str()), ("add", "/a"));
    assert!(
        call(caller(&[("*", "*")]), Some(r#"{"a":1}"#))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn every_class_needs_a_grant() {
    let server: ServerName = "files".parse().unwrap();
    let reader = caller(&[("files", "resource:file:///docs/*")]);
    let may = |class: MethodClass, item: &str| {
        let decision = decide(&reader, class, &server, item, None, None);
        permit(&reader, &decision, &server, item).is_ok()
    };
    assert!(may(MethodClass::Resource, "file:///docs/a.md"));
    assert!(!may(MethodClass::Resource, "file:///etc/passwd"));
    assert!(may(MethodClass::Resource, ""));
    assert!(!may(MethodClass::Unknown, ""));
}

// row 3.2
#[tokio::test]
async fn refusals_tell_a_deny_a_condition_and_an_approval_apart() {
    let grants = [
        "math:*",
        "deny math:drop",
        "ask math:pay",
        "mail:send when /to equals me",
    ];
    let mut bot = caller(&[]);
    let grants = grants.map(|text| Grant::parse(text).unwrap());
    bot.grants = Arc::new(GrantSet::new(grants.to_vec()));
    let code = |server: &str, item: &str| {
        let server: ServerName = server.parse().unwrap();
        let decision = decide(&bot, MethodClass::Tool, &server, item, None, None);
        let refused = permit(&bot, &decision, &server, item);
        let refused = refused.and_then(|()| asks(&bot, &decision, &server, item));
        refused.err().map(|error| error.code())
    };
    assert_eq!(code("math", "add"), None);
    assert_eq!(code("math", "drop"), Some("grant.denied"));
    assert_eq!(code("math", "pay"), Some("grant.approval"));
    assert_eq!(code("mail", "send"), Some("grant.arguments"));
    assert_eq!(code("mail", "read"), Some("grant.unbound"));
}

#[tokio::test]
async fn a_promised_result_is_checked() {
    // row 3.3
    let definition = r#"{"name":"add","inputSchema":{"type":"object"},"outputSchema":
        {"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}}"#;
    let add = tool(definition);
    let check = async |result: &str, is_error| -> Vec<String> {
        let checked =
            check_output((&add, &Permits::default()), Raw::trusted(result), is_error).await;
        let issues = checked.err().unwrap_or_default();
        let told = |issue: Issue| format!("{}: {}", issue.path, issue.message);
        issues.into_iter().map(told).collect()
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(
        check(r#"{"content":[],"structuredContent":{"sum":3}}"#, false).await,
        none
    );
    assert_eq!(check(r#"{"content":[],"isError":true}"#, true).await, none);
    assert_eq!(
        check(r#"{"resultType":"input_required"}"#, false).await,
        none
    );
    assert_eq!(
        check(r#"{"content":[],"structuredContent":{}}"#, false).await,
        ["/sum: required field `sum` is missing"]
    );
    assert_eq!(
        check(r#"{"content":[]}"#, false).await,
        [": `structuredContent` is missing, which the output schema demands"]
    );
    let plain = tool(r#"{"name":"a","inputSchema":{"type":"object"}}"#);
    assert_eq!(
        check_output((&plain, &Permits::default()), Raw::trusted("{}"), false).await,
        Ok(())
    );
}
