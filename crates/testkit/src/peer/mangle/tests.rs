//! What each fault does to a reply.

use super::*;

fn ticket(id: &str) -> Ticket {
    let method = "tools/call".into();
    Ticket {
        id: id.into(),
        method,
        modern: false,
        faulty: true,
        nonce: None,
    }
}

fn check(fault: &str, id: &str) -> Vec<String> {
    let mut faults = Faults::default();
    faults.add(fault).unwrap();
    let body = Body::Result(r#"{"content":[]}"#.into());
    lines(&faults, &ticket(id), &body, &mut Random::new(1))
        .into_iter()
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect()
}

// faults S6, S7
#[test]
fn envelopes_are_broken_in_the_named_way() {
    let one = |fault: &str| check(fault, "1").pop().unwrap();
    assert_eq!(one("neither"), r#"{"jsonrpc":"2.0","id":1}"#);
    assert_eq!(
        one("null-id"),
        r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#
    );
    assert_eq!(
        one("wrong-version"),
        r#"{"jsonrpc":"1.0","id":1,"result":{"content":[]}}"#
    );
    assert_eq!(
        one("batch"),
        r#"[{"jsonrpc":"2.0","id":1,"result":{"content":[]}}]"#
    );
    assert!(one("both").contains(r#""error":{"code""#));
    assert!(one("dupkeys").contains(r#""id":987654321"#));
    assert!(one("unknown-resulttype").contains(r#""resultType":"hologram""#));
    assert_eq!(check("wrongcase", "1").len(), 2);
    assert!(one("wrongcase").contains(r#""Result":"#));
}

// fault S8
#[test]
fn ids_change_their_type() {
    let id = |fault: &str, id: &str| {
        let line = check(fault, id).pop().unwrap();
        let (_, rest) = line.split_once(r#""id":"#).unwrap();
        rest.split_once(r#","result""#).unwrap().0.to_owned()
    };
    assert_eq!(id("string-id", "1"), r#""1""#);
    assert_eq!(id("string-id", r#""17""#), "17");
    assert_eq!(id("string-id", r#""a-1""#), r#"["a-1"]"#);
    assert_eq!(id("float-id", "12"), "12.0");
    assert_eq!(id("huge-id", "7").len(), 31);
    assert!(!check("no-id", "1")[0].contains("\"id\""));
}

// faults S5, S21
#[test]
fn payloads_carry_the_garbage_asked_for() {
    let one = |fault: &str| check(fault, "1").pop().unwrap();
    assert!(one("garbage=reply-1e400").contains(r#"{"garbage":1e400,"content":[]}"#));
    assert!(one("garbage=reply-surrogate").contains(r#""garbage":"\ud800""#));
    assert_eq!(check("garbage=2^63", "1").len(), 2);
    let spread = one("newline-result=cr");
    assert!(spread.contains('\r') && !spread.contains('\n'));
    assert!(serde_json::from_str::<serde_json::Value>(&spread).is_ok());
}

// fault S9
#[test]
fn ghosts_come_before_the_reply() {
    let lines = check("unknown-id=5", "1");
    assert_eq!(lines.len(), 6);
    assert!(lines[5].contains(r#""id":1,"#));
    assert_eq!(check("twice", "1").len(), 2);
}
