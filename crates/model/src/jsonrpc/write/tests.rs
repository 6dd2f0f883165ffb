//! Edits, writers and lines, by table and by property.

use std::borrow::Cow;

use proptest::prelude::{any, prop_assert_eq, proptest};
use proptest::test_runner::Config;
use serde_json::{Value, json};

use super::*;
use crate::jsonrpc::tests::{raw, read};
use crate::jsonrpc::{Limits, Message, OneLine, merge_meta, parse, with_member, without_members};

#[test]
fn edits_change_what_they_name_and_nothing_else() {
    let params =
        raw(r#"{"name":"a__b","arguments":{"n":1e400, "x" : 1},"_meta":{"keep":1,"drop":2}}"#);
    let mut edit = Edit::new(params);
    edit.set_buf("name", RawBuf::string("b\""))
        .set_meta("add", Raw::TRUE)
        .remove_meta("drop");
    assert_eq!(
        edit.to_buf().text(),
        r#"{"name":"b\"","arguments":{"n":1e400, "x" : 1},"_meta":{"add":true,"keep":1}}"#
    );
    assert_eq!(with_member(raw("{}"), "a", raw("1")).text(), r#"{"a":1}"#);
    assert_eq!(
        with_member(raw(r#"{"\u0061":2,"b":3}"#), "a", raw("1")).text(),
        r#"{"a":1,"b":3}"#
    );
    assert_eq!(
        without_members(params, &["name", "arguments", "_meta"]).text(),
        "{}"
    );
    assert_eq!(
        merge_meta(None, &[("a", Some(raw("1")))]).text(),
        r#"{"_meta":{"a":1}}"#
    );
    assert_eq!(merge_meta(None, &[("a", None)]).text(), "{}");
    assert_eq!(
        merge_meta(Some(raw(r#"{"_meta":{"a":1},"b":2}"#)), &[("a", None)]).text(),
        r#"{"b":2}"#
    );
    assert_eq!(
        merge_meta(
            Some(raw(r#"{"b":2,"_meta":null}"#)),
            &[("a", Some(raw("1")))]
        )
        .text(),
        r#"{"b":2,"_meta":{"a":1}}"#
    );
    assert_eq!(with_member(raw("[1]"), "a", raw("1")).text(), "[1]");
}

#[test]
fn writes_messages() {
    let mut out = Vec::new();
    write_request(
        &mut out,
        u64::MAX,
        "tools/call",
        Some(raw("{\"a\":1}").into()),
    );
    write_notification(&mut out, "a\"b", None);
    write_result(&mut out, RequestId::Number("1.0"), raw("[1]").into());
    write_error(&mut out, None, -32700, "no\n", Some(Raw::NULL.into()));
    write_error(
        &mut out,
        Some(RequestId::String("\"x\"")),
        i64::MIN,
        "",
        None,
    );
    assert_eq!(
        String::from_utf8(out).unwrap(),
        concat!(
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"tools/call","params":{"a":1}}"#,
            r#"{"jsonrpc":"2.0","method":"a\"b"}"#,
            r#"{"jsonrpc":"2.0","id":1.0,"result":[1]}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no\n","data":null}}"#,
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-9223372036854775808,"message":""}}"#,
        )
    );
}

// fault S21: a request hidden in the arguments stays inside them
#[test]
fn a_line_never_breaks() {
    let text = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"a\":\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"hidden\"}\r\n,\"b\":\"a\\nb c\"}}";
    let Message::Request(request) = read(text).unwrap().message else {
        panic!("a request")
    };
    let params = request.params.unwrap();
    let mut edit = Edit::new(params);
    edit.set_meta("k", Raw::TRUE);
    for payload in [Payload::from(params), Payload::from(&edit)] {
        let line = OneLine::request(9, &request.method, Some(payload));
        let breaks = line
            .bytes()
            .iter()
            .filter(|byte| matches!(byte, b'\n' | b'\r'))
            .count();
        assert_eq!((breaks, line.bytes().last()), (1, Some(&b'\n')));
        let sent: Value = serde_json::from_slice(line.message()).unwrap();
        assert_eq!(sent["params"]["a"]["method"], json!("hidden"));
        assert_eq!(sent["params"]["b"], json!("a\nb c"));
    }
    let inserted = raw("{\"x\":\n1}");
    let line = OneLine::result(
        RequestId::Number("1"),
        (&with_member(raw("{}"), "a", inserted)).into(),
    );
    assert_eq!(
        line.bytes(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":{\"x\":1}}}\n"
    );
    let line = OneLine::error(None, 1, "a\nb", None);
    assert_eq!(
        line.message(),
        br#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"a\nb"}}"#
    );
}

proptest! {
    #![proptest_config(Config { cases: 1024, failure_persistence: None, ..Config::default() })]

    #[test]
    fn strings_survive_quoting_and_decoding(text in any::<String>()) {
        let quoted = RawBuf::string(&text);
        prop_assert_eq!(quoted.as_raw().string(), Some(Cow::Borrowed(text.as_str())));
        prop_assert_eq!(serde_json::from_str::<String>(quoted.text()).unwrap(), text);
        let theirs = serde_json::to_string(quoted.text()).unwrap();
        prop_assert_eq!(raw(&theirs).string(), Some(Cow::Borrowed(quoted.text())));
    }

    #[test]
    fn a_request_reads_back_as_written(id in any::<u64>(), method in any::<String>(), text in any::<String>()) {
        let params = with_member(Raw::EMPTY_OBJECT, &method, RawBuf::string(&text).as_raw());
        let line = OneLine::request(id, &method, Some((&params).into()));
        let incoming = parse(line.bytes(), &Limits::default()).unwrap();
        let Message::Request(request) = incoming.message else { panic!("a request") };
        prop_assert_eq!(request.id.matches_u64(), Some(id));
        prop_assert_eq!(request.method.as_ref(), &method);
        prop_assert_eq!(request.params.map(Raw::text), Some(params.text()));
        let value = request.params.and_then(|params| params.get(&method));
        prop_assert_eq!(value.and_then(Raw::string), Some(Cow::Borrowed(text.as_str())));
    }
}
