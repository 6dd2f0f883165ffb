//! The views, by table.

use super::*;
use crate::jsonrpc::{Limits, Raw, validate};

fn raw(text: &str) -> Raw<'_> {
    validate(text, &Limits::default()).expect(text)
}

#[test]
fn methods_round_trip() {
    for method in Method::ALL {
        assert_eq!(Method::parse(method.as_str()), Some(method));
    }
    for unknown in ["", "Tools/call", "tools/call ", "x/y"] {
        assert_eq!(Method::parse(unknown), None);
    }
}

#[test]
fn tools_are_read_and_kept_whole() {
    let text = r#"{"name":"a","vendor":{"x":1},"title":"A","description":"does\na","inputSchema":{"type":"object"},"outputSchema":true,"annotations":{"readOnlyHint":true},"execution":{"taskSupport":"required"}}"#;
    let page = format!(
        r#"{{"tools":[{text} , {{"name":"b","inputSchema":{{}}}},5],"nextCursor":"c\u0031"}}"#
    );
    let page = Page::read(ListKind::Tools, raw(&page)).unwrap();
    assert_eq!(page.next_cursor.as_deref(), Some("c1"));
    assert_eq!(next_cursor_params("c1").text(), r#"{"cursor":"c1"}"#);
    let tools: Vec<Result<ToolDef<'_>, ShapeError>> = page.items().map(ToolDef::read).collect();
    let [Ok(first), Ok(second), Err(third)] = tools.as_slice() else {
        panic!("{tools:?}")
    };
    assert_eq!(first.raw.text(), text);
    assert_eq!(
        (first.name.as_ref(), first.title.as_deref()),
        ("a", Some("A"))
    );
    assert_eq!(first.description.as_deref(), Some("does\na"));
    assert_eq!(first.input_schema.text(), r#"{"type":"object"}"#);
    assert_eq!(first.output_schema.map(Raw::text), Some("true"));
    assert_eq!(
        first.annotations.map(Raw::text),
        Some(r#"{"readOnlyHint":true}"#)
    );
    assert_eq!(
        (first.task_support, second.task_support),
        (TaskSupport::Required, TaskSupport::Forbidden)
    );
    assert_eq!(third, &ShapeError::NotAnObject);
    // fault L3: any byte counts
    let respelled = text.replace("\"x\":1", "\"x\":1.0");
    let changed = ToolDef::read(raw(&respelled)).unwrap();
    assert_ne!(first.content_hash(), changed.content_hash());
    assert_eq!(
        first.content_hash(),
        ToolDef::read(raw(text)).unwrap().content_hash()
    );
}

// fault S19: what a list may be instead
#[test]
fn bad_lists_and_tools_say_what_is_wrong() {
    for (text, message) in [
        ("[]", "expected an object"),
        ("{}", "member `tools` is missing"),
        (r#"{"tools":{}}"#, "member `tools` must be an array"),
        (
            r#"{"tools":[],"nextCursor":5}"#,
            "member `nextCursor` must be a string",
        ),
    ] {
        let error = Page::read(ListKind::Tools, raw(text)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert!(
        Page::read(ListKind::Tools, raw(r#"{"tools":[],"nextCursor":null}"#))
            .unwrap()
            .next_cursor
            .is_none()
    );
    for (text, message) in [
        (r#"{"inputSchema":{}}"#, "member `name` is missing"),
        (
            r#"{"name":5,"inputSchema":{}}"#,
            "member `name` must be a string",
        ),
        (r#"{"name":"a"}"#, "member `inputSchema` is missing"),
        (
            r#"{"name":"a","inputSchema":true}"#,
            "member `inputSchema` must be an object",
        ),
    ] {
        assert_eq!(ToolDef::read(raw(text)).unwrap_err().to_string(), message);
    }
    for kind in ListKind::ALL {
        let item = format!(r#"{{"{}":"x"}}"#, kind.key());
        assert_eq!(kind.identity(raw(&item)).as_deref(), Ok("x"));
        assert!(kind.identity(raw("{}")).is_err() && kind.identity(raw("5")).is_err());
        let page = format!(r#"{{"{}":[{item}]}}"#, kind.member());
        assert_eq!(Page::read(kind, raw(&page)).unwrap().items().count(), 1);
    }
}

#[test]
fn calls_are_read() {
    let params = raw(
        r#"{"name":"s__t","arguments":{"a": [1]},"_meta":{"progressToken":7,"own":1},"requestState":"s"}"#,
    );
    let call = CallParams::read(Some(params)).unwrap();
    assert_eq!(call.name, "s__t");
    assert_eq!(call.arguments.map(Raw::text), Some(r#"{"a": [1]}"#));
    assert_eq!(call.progress_token.map(|token| token.raw()), Some("7"));
    assert_eq!(call.request_state.map(Raw::text), Some("\"s\""));
    assert!(call.task.is_none() && call.meta.is_some());
    for (params, message) in [
        (None, "member `name` is missing"),
        (Some("{}"), "member `name` is missing"),
        (Some(r#"{"name":1}"#), "member `name` must be a string"),
        (
            Some(r#"{"name":"a","arguments":[]}"#),
            "member `arguments` must be an object",
        ),
        (
            Some(r#"{"name":"a","_meta":1}"#),
            "member `_meta` must be an object",
        ),
        (
            Some(r#"{"name":"a","_meta":{"progressToken":{}}}"#),
            "member `progressToken` must be a string or a number",
        ),
    ] {
        let error = CallParams::read(params.map(raw)).unwrap_err();
        assert_eq!(error.to_string(), message, "{params:?}");
    }
}

// fault S7: unknown result types are seen
#[test]
fn results_are_read() {
    let result = raw(
        r#"{"content":[{"type":"image"},{"type":"text","text":"boom\n"}],"isError":true,"structuredContent":[1],"action":"x"}"#,
    );
    let view = CallResult::read(result).unwrap();
    assert!(view.is_error);
    assert_eq!(view.result_type, ResultType::Complete);
    assert_eq!(view.structured_content.map(Raw::text), Some("[1]"));
    for (text, expected) in [
        (r#"{"resultType":"complete"}"#, ResultType::Complete),
        (
            r#"{"resultType":"input_required"}"#,
            ResultType::InputRequired,
        ),
        (
            r#"{"resultType":"hologram"}"#,
            ResultType::Other("hologram".into()),
        ),
    ] {
        let view = CallResult::read(raw(text)).unwrap();
        assert_eq!(view.result_type, expected);
        assert!(!view.is_error);
    }
    for bad in ["[]", "null", r#"{"isError":"no"}"#, r#"{"resultType":1}"#] {
        assert!(CallResult::read(raw(bad)).is_err(), "{bad}");
    }
}

#[test]
fn notifications_are_read() {
    let progress = raw(r#"{"progressToken":"p","progress":0.50,"total":1,"message":"half"}"#);
    let progress = Progress::read(Some(progress)).unwrap();
    assert_eq!(
        (progress.token.raw(), progress.progress.text()),
        ("\"p\"", "0.50")
    );
    assert_eq!(progress.total.map(Raw::text), Some("1"));
    assert_eq!(progress.message.as_deref(), Some("half"));
    let cancelled = Cancelled::read(Some(raw(r#"{"requestId":7,"reason":"tired"}"#))).unwrap();
    assert_eq!(
        (
            cancelled.request_id.matches_u64(),
            cancelled.reason.as_deref()
        ),
        (Some(7), Some("tired"))
    );
    for bad in [
        "{}",
        r#"{"progressToken":null,"progress":1}"#,
        r#"{"progressToken":1}"#,
    ] {
        assert!(Progress::read(Some(raw(bad))).is_err());
        assert!(Cancelled::read(Some(raw(bad))).is_err());
    }
    assert!(Progress::read(None).is_err() && Cancelled::read(None).is_err());
}

#[test]
fn tool_names_are_checked() {
    for good in ["a", "get_weather", "A.b-C_9", &"x".repeat(128)] {
        assert_eq!(check_tool_name(good), Ok(()));
    }
    for (bad, message) in [
        ("", "the tool's name is empty"),
        (
            "a:b",
            "the tool's name contains `:`; allowed are letters, digits, `_`, `-` and `.`",
        ),
        (
            "a\u{202e}",
            "the tool's name contains `\\u{202e}`; allowed are letters, digits, `_`, `-` and `.`",
        ),
        (
            &"x".repeat(129),
            "the tool's name has 129 characters, at most 128 are allowed",
        ),
    ] {
        assert_eq!(check_tool_name(bad).unwrap_err().to_string(), message);
    }
}
