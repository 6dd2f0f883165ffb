//! From a result to output lines: a proper envelope, or one with the faults of rows S5 to S9 and
//! S21. Decides only about bytes; the output decides when and how they are written.

use serde_json::json;

use super::faults::{Fault, Faults};
use super::garbage;
use super::message::{Body, Ticket};
use super::random::Random;

/// Returns the line of a proper reply.
pub(crate) fn line(id: &str, body: &Body) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"{}":{}}}"#,
        body.key(),
        body.json()
    )
    .into_bytes()
}

/// Returns all lines of a reply to which faults apply, including stray ones.
pub(crate) fn lines(
    faults: &Faults,
    ticket: &Ticket,
    body: &Body,
    random: &mut Random,
) -> Vec<Vec<u8>> {
    let mut lines = strays(faults, body, random);
    let payload = payload(faults, body);
    let mut reply = envelope(faults, &ticket.id, body.key(), &payload);
    if faults.is(Fault::Garbage, "reply-bom") {
        reply.splice(0..0, *b"\xef\xbb\xbf");
    }
    if faults.has(Fault::Twice) {
        lines.push(reply.clone());
    }
    lines.push(reply);
    lines
}

fn strays(faults: &Faults, body: &Body, random: &mut Random) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for kind in faults
        .words(Fault::Garbage)
        .filter(|kind| !kind.starts_with("reply-"))
    {
        lines.push(garbage::stray(kind));
    }
    if faults.has(Fault::WrongCase) {
        let message = r#"{"jsonrpc":"2.0","Method":"notifications/message","paramſ":{"data":"x"}}"#;
        lines.push(message.as_bytes().to_vec());
    }
    for _ in 0..faults.number(Fault::UnknownId).unwrap_or(0) {
        let number = random.next();
        let id = if number.is_multiple_of(2) {
            number.to_string()
        } else {
            format!("\"ghost-{number}\"")
        };
        lines.push(line(&id, body));
    }
    lines
}

fn payload(faults: &Faults, body: &Body) -> Vec<u8> {
    let mut json = body.json().as_bytes().to_vec();
    if matches!(body, Body::Error(_)) {
        return json;
    }
    let mut insert = |member: &[u8]| {
        let comma: &[u8] = if json == b"{}" { b"" } else { b"," };
        json.splice(1..1, [member, comma].concat());
    };
    for kind in faults
        .words(Fault::Garbage)
        .filter_map(|kind| kind.strip_prefix("reply-"))
    {
        if kind != "bom" {
            insert(&[&b"\"garbage\":"[..], &garbage::value(kind)].concat());
        }
    }
    if faults.is(Fault::DupKeys, "result") {
        insert(br#""content":[{"type":"text","text":"the first of two"}]"#);
    }
    if faults.has(Fault::UnknownResultType) {
        let mut value = serde_json::from_str(body.json()).unwrap_or_else(|_| json!({}));
        value["resultType"] = json!("hologram");
        json = value.to_string().into_bytes();
    }
    match faults.words(Fault::NewlineResult).next() {
        Some("cr") => spread(&json, b"\r"),
        Some(_) => spread(&json, b" \t  "),
        None => json,
    }
}

fn envelope(faults: &Faults, id: &str, key: &str, payload: &[u8]) -> Vec<u8> {
    let mut members: Vec<(&str, Vec<u8>)> = Vec::new();
    let version = if faults.has(Fault::WrongVersion) {
        "\"1.0\""
    } else {
        "\"2.0\""
    };
    members.push(("jsonrpc", version.into()));
    if let Some(id) = changed_id(faults, id) {
        members.push(("id", id.into_bytes()));
    }
    if !faults.has(Fault::Neither) {
        let wrong = faults.has(Fault::WrongCase);
        let key = match key {
            "result" if wrong => "Result",
            "error" if wrong => "Error",
            key => key,
        };
        members.push((key, payload.to_vec()));
    }
    if faults.has(Fault::Both) {
        let error = br#"{"code":-32603,"message":"and an error as well"}"#;
        let result = br#"{"content":[{"type":"text","text":"and a result as well"}]}"#;
        let is_error = key == "error";
        members.push(if is_error {
            ("result", result.into())
        } else {
            ("error", error.into())
        });
    }
    if faults.is(Fault::DupKeys, "envelope") {
        members.push(("id", b"987654321".into()));
        members.push((
            key,
            br#"{"content":[{"type":"text","text":"the second of two"}]}"#.into(),
        ));
    }
    if faults.has(Fault::UnknownMember) {
        members.push(("vendor", br#"{"trace":"abc","depth":1}"#.into()));
    }
    let mut line = Vec::with_capacity(payload.len() + 64);
    for (name, value) in members {
        line.push(if line.is_empty() { b'{' } else { b',' });
        line.extend(format!("\"{name}\":").as_bytes());
        line.extend(value);
    }
    line.push(b'}');
    if faults.has(Fault::Batch) {
        line.insert(0, b'[');
        line.push(b']');
    }
    line
}

/// Returns the id as the reply shows it, `None` for no id at all.
fn changed_id(faults: &Faults, id: &str) -> Option<String> {
    let digits = id.trim_matches('"');
    let quoted = digits.len() != id.len();
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if faults.has(Fault::NoId) {
        None
    } else if faults.has(Fault::NullId) {
        Some("null".into())
    } else if faults.has(Fault::StringId) {
        Some(match (quoted, numeric) {
            (false, _) => format!("\"{id}\""),
            (true, true) => digits.into(),
            // A string that is no number cannot become one: it comes back in an array.
            (true, false) => format!("[{id}]"),
        })
    } else if faults.has(Fault::FloatId) {
        Some(if numeric {
            format!("{digits}.0")
        } else {
            "1.0".into()
        })
    } else if faults.has(Fault::HugeId) {
        let digits = if numeric { digits } else { "1" };
        Some(format!("{digits}{}", "0".repeat(30)))
    } else {
        Some(id.into())
    }
}

/// Puts blanks between the tokens of a JSON text.
fn spread(json: &[u8], blanks: &[u8]) -> Vec<u8> {
    let mut spread = Vec::with_capacity(json.len() * 2);
    let (mut in_string, mut escaped) = (false, false);
    for &byte in json {
        spread.push(byte);
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte == b'"' {
            in_string = true;
        } else if b"{[,:".contains(&byte) {
            spread.extend_from_slice(blanks);
        }
    }
    spread
}

#[cfg(test)]
mod tests;
