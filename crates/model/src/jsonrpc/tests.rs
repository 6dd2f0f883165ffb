//! The envelope, ids and raw values, by table.

use super::*;

pub(super) fn read(text: &str) -> Result<Incoming<'_>, WireError> {
    parse(text.as_bytes(), &Limits::default())
}

fn refusal(text: &str) -> (i64, String) {
    let error = read(text).expect_err(text);
    (error.rpc_code(), error.to_string())
}

pub(super) fn raw(text: &str) -> Raw<'_> {
    validate(text, &Limits::default()).expect(text)
}

#[test]
fn reads_the_three_kinds() {
    let text = r#" {"params":{"a": 1e400},"method":"tools\/call","id":"x","jsonrpc":"2.0"} "#;
    let Message::Request(request) = read(text).unwrap().message else {
        panic!("a request")
    };
    assert_eq!(request.id.raw(), "\"x\"");
    assert_eq!(request.method, "tools/call");
    assert_eq!(request.params.map(Raw::text), Some(r#"{"a": 1e400}"#));

    let text = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let Message::Notification(note) = read(text).unwrap().message else {
        panic!("a notification")
    };
    assert_eq!(
        (note.method.as_ref(), note.params),
        ("notifications/initialized", None)
    );

    let text = "{\"result\":{\"n\":9223372036854775808},\n\"jsonrpc\":\"2.0\",\"id\":7}";
    let incoming = read(text).unwrap();
    assert!(incoming.has_line_breaks);
    let Message::Response(response) = incoming.message else {
        panic!("an answer")
    };
    assert_eq!(response.id.matches_u64(), Some(7));
    let Outcome::Result(result) = response.outcome else {
        panic!("a result")
    };
    assert_eq!(result.text(), r#"{"n":9223372036854775808}"#);

    let text = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no","data":[1]}}"#;
    let Message::Response(response) = read(text).unwrap().message else {
        panic!("an answer")
    };
    let Outcome::Error(error) = response.outcome else {
        panic!("an error")
    };
    let body = ErrorBody::read(error).unwrap();
    assert_eq!((body.code, body.message.as_ref()), (-32601, "no"));
    assert_eq!(body.data.map(Raw::text), Some("[1]"));
}

// faults S5, S6, S7
#[test]
fn refuses_by_table() {
    let table = [
        // S6: unknown members, wrong case, look-alikes, duplicates, escaped duplicates
        (
            r#"{"jsonrpc":"2.0","id":1,"Method":"x"}"#,
            -32600,
            "unknown member `Method` at byte 24, did you mean `method`?",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","paramſ":{}}"#,
            -32600,
            "unknown member `paramſ` at byte 37, did you mean `params`?",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","extra":1}"#,
            -32600,
            "unknown member `extra` at byte 37",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
            -32600,
            "duplicate key `id` at byte 24",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"x","\u006dethod":"y"}"#,
            -32600,
            "duplicate key `method` at byte 30",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":{"b":1,"b":2}}}"#,
            -32600,
            "duplicate key `b` at byte 58",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method\u0000":"x"}"#,
            -32600,
            "unknown member `method\\0` at byte 24",
        ),
        // S7: the combinations
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#,
            -32600,
            "an answer has both `result` and `error`",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1}"#,
            -32600,
            "a message needs one of `method`, `result` and `error`",
        ),
        ("{}", -32600, "member `jsonrpc` must be \"2.0\""),
        (
            r#"{"id":1,"method":"x"}"#,
            -32600,
            "member `jsonrpc` must be \"2.0\"",
        ),
        (
            r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#,
            -32600,
            "member `jsonrpc` must be \"2.0\"",
        ),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
            -32600,
            "member `jsonrpc` must be \"2.0\"",
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            -32600,
            "member `id` must not be null",
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{}}"#,
            -32600,
            "member `id` must not be null",
        ),
        (
            r#"{"jsonrpc":"2.0","id":true,"method":"x"}"#,
            -32600,
            "member `id` must be a string or a number",
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"result":1}"#,
            -32600,
            "member `id` must be a string or a number",
        ),
        (
            r#"{"jsonrpc":"2.0","result":{}}"#,
            -32600,
            "an answer needs an `id`",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
            -32600,
            "member `result` does not belong in a request",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"params":{}}"#,
            -32600,
            "member `params` does not belong in an answer",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            -32600,
            "member `method` must be a string",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
            -32600,
            "member `error` must be an object",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}"#,
            -32602,
            "positional params are not accepted, send an object",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":null}"#,
            -32602,
            "member `params` must be an object",
        ),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"x"}]"#,
            -32600,
            "batches are not accepted",
        ),
        ("[]", -32600, "batches are not accepted"),
        ("\"hello\"", -32600, "a message must be a JSON object"),
        // S5
        ("starting server…", -32700, "expected a value at byte 0"),
        (
            r#"[{"jsonrpc":"2.0""#,
            -32700,
            "the message ends at byte 17, expected `,` or `}`",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x"}}"#,
            -32700,
            "expected nothing more at byte 37",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#,
            -32700,
            "lone surrogate escape at byte 34",
        ),
        (
            "\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"x\"}",
            -32700,
            "expected a value at byte 0",
        ),
    ];
    for (text, code, message) in table {
        assert_eq!(refusal(text), (code, message.to_owned()), "{text}");
    }
    let error = parse(b"{\"jsonrpc\":\"\xff\"}", &Limits::default()).expect_err("not UTF-8");
    assert_eq!(error, WireError::NotUtf8 { at: 12 });
}

#[test]
fn the_envelope_counts_as_a_level() {
    let text = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"a":{open}{close}}}}}"#)
    };
    assert!(read(&text(62)).is_ok());
    assert!(matches!(
        read(&text(63)),
        Err(WireError::TooDeep { limit: 64, .. })
    ));
}

// fault S8
#[test]
fn ids_match_by_exact_type_and_exact_value() {
    let table = [
        ("1", Some(1)),
        ("1.0", Some(1)),
        ("1e0", Some(1)),
        ("100e-2", Some(1)),
        ("0.1e1", Some(1)),
        ("1e2", Some(100)),
        ("\"1\"", Some(1)),
        ("\"18446744073709551615\"", Some(u64::MAX)),
        ("\"18446744073709551616\"", None),
        ("\"\"", None),
        ("\"01\"", None),
        ("\"1.0\"", None),
        ("\"-1\"", None),
        ("\"+1\"", None),
        ("\" 1\"", None),
        ("1.5", None),
        ("-1", None),
        ("-0", Some(0)),
        ("0e5", Some(0)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("9007199254740993.0", Some(9_007_199_254_740_993)),
        ("1e400", None),
        ("1e-400", None),
        ("1e99999999999", None),
    ];
    for (text, expected) in table {
        let id = RequestId::read(raw(text)).unwrap();
        assert_eq!(id.matches_u64(), expected, "{text}");
        assert_eq!(id.raw(), text);
    }
    let same = |one, other| RequestId::read(raw(one)) == RequestId::read(raw(other));
    assert!(same("1", "1.0") && same("-3", "-3e0") && same("\"a\"", r#""\u0061""#));
    assert!(!same("1", "\"1\"") && !same("9007199254740993", "9007199254740992"));
    assert!(RequestId::read(raw("null")).is_none());
    let set: std::collections::HashSet<OwnedRequestId> = ["1", "1.0", "\"1\""]
        .map(|id| RequestId::read(raw(id)).unwrap().to_owned())
        .into();
    assert_eq!(set.len(), 2);
}

// faults S3, S7: the call a broken answer belongs to must end
#[test]
fn ids_are_salvaged_from_refused_messages() {
    let table = [
        (
            r#"{"jsonrpc":"2.0","id":5,"result":{},"error":{}}"#,
            Some("5"),
        ),
        (
            r#"{"result":{"a":1,"a":2},"jsonrpc":"2.0","id":5}"#,
            Some("5"),
        ),
        (r#"{"id":"x","result":{"a":"#, Some("\"x\"")),
        (r#"{"result":{"id":9},"jsonrpc":"2.0"}"#, None),
        (r#"{"id":5,"id":6,"result":1}"#, None),
        (r#"{"id":null,"result":1}"#, None),
        (r#"[{"id":5}]"#, None),
        ("garbage", None),
    ];
    for (text, expected) in table {
        assert_eq!(
            salvage_id(text.as_bytes()).map(|id| id.raw()),
            expected,
            "{text}"
        );
    }
    assert_eq!(
        salvage_id(b"{\"id\":5,\"result\":\"\xff\"}").map(|id| id.raw()),
        Some("5")
    );

    let tails = [
        (
            r#"… "}],"isError":false},"jsonrpc":"2.0","id":5}"#,
            Some("5"),
        ),
        (
            "…\"}]},\"id\" : \"x\" , \"jsonrpc\":\"2.0\" }\r\n",
            Some("\"x\""),
        ),
        (r#"…text \"id\":5}"#, None),
        (r#"…"id":5},"jsonrpc":"2.0"}"#, None),
        (r#"…"id":5"#, None),
        (r#"…"id":5,"name":"x"}"#, None),
    ];
    for (text, expected) in tails {
        assert_eq!(
            salvage_id_from_tail(text.as_bytes()).map(|id| id.raw()),
            expected,
            "{text}"
        );
    }
}

#[test]
fn frames_keep_their_text() {
    let text = r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#;
    let frame = Frame::parse(text.into(), &Limits::default()).unwrap();
    assert!(matches!(
        frame.incoming().message,
        Message::Response(Response { outcome: Outcome::Result(result), .. }) if result.text() == "{\"a\":1}"
    ));
    let refused = Frame::parse(b"\xff".into(), &Limits::default()).unwrap_err();
    assert_eq!(
        (refused.error, refused.bytes),
        (WireError::NotUtf8 { at: 0 }, b"\xff".to_vec())
    );
}

#[test]
fn raw_values_are_read_in_place() {
    let object =
        raw(r#" {"a" : [1, {"b":2} ,"]"], "\u0062":"x\n\ud83d\ude00", "t":true, "n":-5} "#);
    assert_eq!(object.get("a").map(Raw::text), Some(r#"[1, {"b":2} ,"]"]"#));
    assert_eq!(
        object.get("b").and_then(Raw::string).as_deref(),
        Some("x\n😀")
    );
    assert_eq!(object.get("t").and_then(Raw::boolean), Some(true));
    assert_eq!(object.get("n").and_then(Raw::integer), Some(-5));
    assert_eq!(object.get("x"), None);
    let items: Vec<&str> = object
        .get("a")
        .into_iter()
        .flat_map(Raw::items)
        .map(Raw::text)
        .collect();
    assert_eq!(items, ["1", "{\"b\":2}", "\"]\""]);
    assert_eq!(raw("[]").items().count() + raw("{}").members().count(), 0);
    assert_eq!(raw("5").members().count() + raw("{}").items().count(), 0);
}

// fault S7
#[test]
fn an_answer_to_nobody_is_told_from_everything_else() {
    let cases: [(&str, Option<Unaddressed>); 8] = [
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
            Some(Unaddressed::Error(-32700)),
        ),
        (
            r#"{"result":{},"id":null,"jsonrpc":"2.0"}"#,
            Some(Unaddressed::Result),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, None),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":"x"}}"#, None),
        (r#"{"jsonrpc":"2.0","id":null,"result":1,"error":{}}"#, None),
        (r#"{"jsonrpc":"2.0","error":{"code":-32700}}"#, None),
        (r#"[null"#, None),
    ];
    for (text, expected) in cases {
        assert_eq!(salvage_unaddressed(text.as_bytes()), expected, "{text}");
    }
}
