//! Openings and their headers, by table.

use super::*;
use crate::era::headers::{decode, encode};
use crate::era::tests::{META, raw};
use crate::jsonrpc::RequestId;

fn request<'a>(method: &'a str, params: &'a str) -> Request<'a> {
    Request {
        id: RequestId::Number("1"),
        method: method.into(),
        params: (!params.is_empty()).then(|| raw(params)),
    }
}

// faults H12, A7; each row: method, params, (version, method, name) headers, outcome
#[test]
fn openings_by_table() {
    let full = format!(r#"{{"name":"t",{META}}}"#);
    let other = full.replace("2026-07-28", "1900-01-01");
    let legacy = full.replace("2026-07-28", "2025-11-25");
    let no_version = full.replace("modelcontextprotocol/protocolVersion", "x/y");
    let no_capabilities = full.replace("clientCapabilities", "elsewhere");
    let bad_capabilities = full.replace(r#"{"roots":{}}"#, "[]");
    let no_name = full.replace("\"name\":\"t\",", "");
    let exotic = full.replace("\"t\"", "\"世 界\"");
    type Row<'a> = (
        &'a str,
        &'a str,
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
        &'a str,
    );
    let (version, call): (&[&str], &[&str]) = (&["2026-07-28"], &["tools/call"]);
    let rows: &[Row<'_>] = &[
        ("tools/call", &full, version, call, &["t"], "stateless"),
        (
            "tools/call",
            &full,
            &[" 2026-07-28\t"],
            call,
            &["  t "],
            "stateless",
        ),
        (
            "tools/call",
            &exotic,
            version,
            call,
            &["=?base64?5LiWIOeVjA==?="],
            "stateless",
        ),
        (
            "tools/call",
            &exotic,
            version,
            call,
            &["=?base64?5LiWIOeVjA?="],
            "-32020/400 header `Mcp-Name` has a malformed value",
        ),
        (
            "tools/call",
            &exotic,
            version,
            call,
            &["=?BASE64?5LiWIOeVjA==?="],
            "-32020/400 header `Mcp-Name` does not match the body",
        ),
        (
            "tools/call",
            &full,
            version,
            call,
            &["=?base64?dA==?="],
            "stateless",
        ),
        (
            "tools/call",
            &full,
            version,
            call,
            &["T"],
            "-32020/400 header `Mcp-Name` does not match the body",
        ),
        (
            "tools/call",
            &full,
            version,
            call,
            &[],
            "-32020/400 required header `Mcp-Name` is missing",
        ),
        (
            "tools/call",
            &full,
            version,
            call,
            &["t", "t"],
            "-32020/400 header `Mcp-Name` is given more than once",
        ),
        (
            "tools/call",
            &full,
            version,
            &["tools/list"],
            &["t"],
            "-32020/400 header `Mcp-Method` does not match the body",
        ),
        (
            "tools/call",
            &full,
            version,
            &[],
            &["t"],
            "-32020/400 required header `Mcp-Method` is missing",
        ),
        (
            "tools/call",
            &full,
            &[],
            call,
            &["t"],
            "-32020/400 required header `MCP-Protocol-Version` is missing",
        ),
        (
            "tools/call",
            &full,
            &["2025-11-25"],
            call,
            &["t"],
            "-32020/400 header `MCP-Protocol-Version` does not match the body",
        ),
        (
            "tools/call",
            &no_name,
            version,
            call,
            &["t"],
            "-32020/400 header `Mcp-Name` does not match the body",
        ),
        ("tools/call", &no_name, version, call, &[], "stateless"),
        (
            "tools/list",
            &full,
            version,
            &["tools/list"],
            &["ignored"],
            "stateless",
        ),
        (
            "tools/call",
            &other,
            &["1900-01-01"],
            call,
            &["t"],
            "-32022/400 unsupported protocol version `1900-01-01`",
        ),
        (
            "tools/call",
            &other,
            version,
            call,
            &["t"],
            "-32020/400 header `MCP-Protocol-Version` does not match the body",
        ),
        (
            "tools/call",
            &legacy,
            &["2025-11-25"],
            call,
            &["t"],
            "-32022/400 unsupported protocol version `2025-11-25`",
        ),
        (
            "tools/call",
            &no_version,
            version,
            call,
            &["t"],
            "-32602/400 `_meta` lacks the required key `io.modelcontextprotocol/protocolVersion`",
        ),
        (
            "tools/call",
            &no_capabilities,
            version,
            call,
            &["t"],
            "-32602/400 `_meta` lacks the required key `io.modelcontextprotocol/clientCapabilities`",
        ),
        (
            "tools/call",
            &bad_capabilities,
            version,
            call,
            &["t"],
            "-32602/400 key `io.modelcontextprotocol/clientCapabilities` of `_meta` must be an object",
        ),
        (
            "server/discover",
            "",
            version,
            &["server/discover"],
            &[],
            "-32602/400 `_meta` lacks the required key `io.modelcontextprotocol/protocolVersion`",
        ),
        (
            "server/discover",
            "",
            &[],
            &[],
            &[],
            "-32602/400 `_meta` lacks the required key `io.modelcontextprotocol/protocolVersion`",
        ),
        (
            "initialize",
            &full,
            version,
            &["initialize"],
            &[],
            "-32601/404 method `initialize` is not part of protocol version 2026-07-28",
        ),
        (
            "ping",
            &full,
            version,
            &["ping"],
            &[],
            "-32601/404 method `ping` is not part of protocol version 2026-07-28",
        ),
        (
            "x/unknown",
            &full,
            version,
            &["x/unknown"],
            &[],
            "stateless",
        ),
        ("initialize", "{}", &[], &[], &[], "handshake None"),
        (
            "initialize",
            "{}",
            &["2026-07-28"],
            &[],
            &[],
            "handshake None",
        ),
        ("tools/call", "{}", &[], &[], &[], "handshake None"),
        (
            "tools/call",
            "{}",
            &["2025-06-18"],
            &[],
            &[],
            "handshake Some(V2025_06_18)",
        ),
        (
            "tools/call",
            "{}",
            &["banana"],
            &[],
            &[],
            "-32022/400 unsupported protocol version `banana`",
        ),
        (
            "tools/call",
            "{}",
            &["2025-06-18", "2025-06-18"],
            &[],
            &[],
            "-32020/400 header `MCP-Protocol-Version` is given more than once",
        ),
    ];
    for (name, params, protocol_version, method, header_name, expected) in rows {
        let headers = Mirrored {
            protocol_version,
            method,
            name: header_name,
        };
        let asked = request(name, params);
        let outcome = match open(&asked, &asked.params.into(), headers) {
            Ok(Opening::Handshake(version)) => format!("handshake {version:?}"),
            Ok(Opening::Stateless(_)) => "stateless".to_owned(),
            Err(error) => format!("{}/{} {error}", error.rpc_code(), error.http_status()),
        };
        assert_eq!(&outcome, expected, "{name} {params} {headers:?}");
    }
}

#[test]
fn a_stateless_request_tells_who_sends_it() {
    let params = format!("{{{META}}}");
    let asked = request("tools/list", &params);
    let meta = asked.params.and_then(|params| params.get("_meta"));
    let Ok(Opening::Stateless(sender)) = stateless(&asked, meta, "2026-07-28") else {
        panic!("stateless");
    };
    assert_eq!(sender.version, ProtocolVersion::V2026_07_28);
    assert_eq!(sender.capabilities.text(), r#"{"roots":{}}"#);
    assert_eq!(
        sender.client_info.map(Raw::text),
        Some(r#"{"name":"c","version":"1"}"#)
    );
    assert_eq!(sender.log_level.as_deref(), Some("info"));
    let error = EraError::UnsupportedVersion {
        requested: "1".to_owned(),
    };
    assert_eq!(
        error.data().map(|data| data.into_text()).as_deref(),
        Some(r#"{"supported":["2026-07-28"],"requested":"1"}"#)
    );
}

// the examples of the specification
#[test]
fn header_values_are_encoded_when_they_must_be() {
    for (plain, encoded) in [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("file:///a b", "file:///a b"),
        ("", ""),
    ] {
        assert_eq!(encode(plain), encoded);
        assert_eq!(decode("Mcp-Name", encoded).as_deref(), Ok(plain));
    }
    for bad in ["=?base64?####?=", "=?base64?/w==?=", "na\u{ef}ve", "a\nb"] {
        assert!(decode("Mcp-Name", bad).is_err(), "{bad}");
    }
}
