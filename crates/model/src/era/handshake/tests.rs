//! Our greetings and theirs, by table.

use super::*;
use crate::era::tests::raw;
use crate::jsonrpc::{Limits, Message, parse};

#[test]
fn our_greetings() {
    let identity = Identity::new("gantry", "1.2.3");
    assert_eq!(
        initialize_params(&identity, ClientCapabilities::NOTHING).text(),
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"gantry","version":"1.2.3"}}"#
    );
    assert_eq!(
        discover_params(&identity).text(),
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"gantry","version":"1.2.3"},"io.modelcontextprotocol/clientCapabilities":{}}}"#
    );
    assert!(Identity::gantry().info().get("version").is_some());
}

// fault S18: what a server may answer to the probe
#[test]
fn probes_are_classified() {
    let answer = |text: &str| {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,{text}}}"#);
        let incoming = parse(message.as_bytes(), &Limits::default()).expect(text);
        let Message::Response(response) = incoming.message else {
            panic!("an answer")
        };
        match classify_probe_answer(response.outcome) {
            Probe::Stateless(hello) => format!("stateless {}", hello.version),
            Probe::Initialize => "initialize".to_owned(),
            Probe::Failed(error) => format!("failed: {error}"),
        }
    };
    for (text, expected) in [
        (
            r#""result":{"supportedVersions":["2027-01-01","2026-07-28"],"capabilities":{"tools":{}}}"#,
            "stateless 2026-07-28",
        ),
        (
            r#""result":{"supportedVersions":["2025-11-25"],"capabilities":{}}"#,
            "initialize",
        ),
        (
            r#""result":{"supportedVersions":["2027-01-01"],"capabilities":{}}"#,
            "failed: the server supports only unknown protocol versions: `2027-01-01`",
        ),
        (r#""result":{}"#, "initialize"),
        (r#""result":null"#, "initialize"),
        (r#""error":{"code":-32601,"message":"no"}"#, "initialize"),
        (
            r#""error":{"code":-32602,"message":"Invalid request parameters"}"#,
            "initialize",
        ),
        (
            r#""error":{"code":-32000,"message":"Server not initialized"}"#,
            "initialize",
        ),
        (r#""error":{"nonsense":true}"#, "initialize"),
        (
            r#""error":{"code":-32022,"message":"v","data":{"supported":["2027-01-01","2025-11-25"]}}"#,
            "initialize",
        ),
        (
            r#""error":{"code":-32022,"message":"v","data":{"supported":["2027-01-01"]}}"#,
            "failed: the server supports only unknown protocol versions: `2027-01-01`",
        ),
        (
            r#""error":{"code":-32021,"message":"need roots"}"#,
            "failed: the server refused `server/discover` with code -32021: `need roots`",
        ),
        (
            r#""error":{"code":-32020,"message":"h"}"#,
            "failed: the server refused `server/discover` with code -32020: `h`",
        ),
    ] {
        assert_eq!(answer(text), expected, "{text}");
    }
}

#[test]
fn greetings_are_read() {
    let result = raw(
        r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"use\nit","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
    );
    let Probe::Stateless(HandshakeResult {
        era,
        server_info,
        capabilities,
        instructions,
        ..
    }) = classify_probe_answer(Outcome::Result(result))
    else {
        panic!("stateless")
    };
    assert_eq!(era, Era::Stateless);
    assert_eq!(server_info.map(Raw::text), Some(r#"{"name":"s"}"#));
    assert_eq!(capabilities.text(), r#"{"tools":{}}"#);
    assert_eq!(instructions.as_deref(), Some("use\nit"));

    let read = |text| read_initialize(raw(text)).map(|hello| hello.version);
    assert_eq!(
        read(
            r#"{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#
        ),
        Ok(ProtocolVersion::V2024_11_05)
    );
    for (text, error) in [
        (
            r#"{"capabilities":{}}"#,
            HandshakeError::Malformed {
                member: "protocolVersion",
            },
        ),
        (
            r#"{"protocolVersion":"2025-11-25"}"#,
            HandshakeError::Malformed {
                member: "capabilities",
            },
        ),
        (
            r#"{"protocolVersion":"2026-07-28","capabilities":{}}"#,
            HandshakeError::NoCommonVersion {
                offered: "2026-07-28".to_owned(),
            },
        ),
        (
            "[]",
            HandshakeError::Malformed {
                member: "protocolVersion",
            },
        ),
    ] {
        assert_eq!(read(text), Err(error), "{text}");
    }
}
