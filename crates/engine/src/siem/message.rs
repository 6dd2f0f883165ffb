//! Events as syslog messages (RFC 5424): the message is one JSON object in ASCII. One that would be
//! too long for the transport is sent without its longest parts and says so. Entry point:
//! [`Header::message`].

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::record::{Field, Record};

/// The facility of audit logs.
const FACILITY: u8 = 13;
/// What is left out of an event that is too long, in this order.
const OPTIONAL: [&str; 4] = ["after", "before", "detail", "error"];
/// The longest text of an event that is too long even then, in bytes as it is sent.
const SHORT: usize = 64;

/// What all messages of this gateway have in common.
pub(super) struct Header {
    host: String,
    process: u32,
    /// Counts messages, as the standard wants it.
    sequence: u32,
}

impl Header {
    /// Names this machine and this process.
    pub(super) fn new() -> Self {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        let is_name = !host.is_empty() && host.len() <= 255 && host.bytes().all(is_plain);
        Self {
            host: if is_name {
                host.into_owned()
            } else {
                "-".to_owned()
            },
            process: std::process::id(),
            sequence: 0,
        }
    }

    /// Writes an event within `most` bytes, if that can be done.
    pub(super) fn message(&mut self, record: &Record, most: usize) -> Vec<u8> {
        self.sequence = self.sequence % (i32::MAX as u32) + 1;
        let mut message = format!(
            "<{}>1 {} {} gantry {} {} [origin software=\"gantry\" swVersion=\"{}\"][meta sequenceId=\"{}\"] ",
            FACILITY * 8 + record.severity.syslog(),
            rfc3339(record.at_ms),
            self.host,
            self.process,
            record.kind,
            env!("CARGO_PKG_VERSION"),
            self.sequence,
        );
        message.push_str(&fitting(record, most.saturating_sub(message.len())));
        message.into_bytes()
    }
}

/// Returns the event as JSON, shortened if it is longer than `most`.
fn fitting(record: &Record, most: usize) -> String {
    let mut object = Map::with_capacity(record.fields.len() + 2);
    object.insert("event".to_owned(), record.kind.into());
    let values = record.fields.iter();
    object.extend(values.map(|(name, field)| ((*name).to_owned(), value(field))));
    let mut text = ascii(&object);
    for name in OPTIONAL {
        if text.len() <= most {
            return text;
        }
        if object.shift_remove(name).is_some() {
            object.insert("cut".to_owned(), true.into());
            text = ascii(&object);
        }
    }
    if text.len() > most {
        for value in object.values_mut() {
            if let Value::String(long) = value {
                *long = beginning(long);
            }
        }
        object.insert("cut".to_owned(), true.into());
        text = ascii(&object);
    }
    text
}

/// Returns the longest beginning of a text that is sent in [`SHORT`] bytes.
fn beginning(text: &str) -> String {
    let mut left = SHORT;
    let fits = |character: &char| {
        let bytes = match character {
            '"' | '\\' => 2,
            ' '..='~' => 1,
            _ => 6 * character.len_utf16(),
        };
        let rest = left.checked_sub(bytes);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    text.chars().take_while(fits).collect()
}

fn value(field: &Field) -> Value {
    match field {
        Field::Text(text) => text.as_str().into(),
        Field::Number(number) => (*number).into(),
        Field::Time(at_ms) => rfc3339(*at_ms).into(),
        Field::Json(text) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
    }
}

/// Returns a time as the standard and the REST interface write it.
pub(super) fn rfc3339(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok();
    let at = at.and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| format!("{at:.3}"))
}

/// Returns an object as JSON in printable ASCII: what is beyond can only be within texts, where it is
/// escaped.
fn ascii(object: &Map<String, Value>) -> String {
    let text = serde_json::to_string(object).unwrap_or_default();
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if matches!(character, ' '..='~') {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use gantry_store::{ActOutcome, ActRow};

    use super::*;

    fn act(after: &str) -> Record {
        Record::of_act(
            "gw_1",
            &ActRow {
                id: 7,
                at_ms: 1_700_000_000_123,
                actor: "ops".into(),
                act: "server.change".into(),
                target: "größe\n😀".into(),
                after: Some(after.into()),
                outcome: ActOutcome::Done,
                repeats: 1,
                ..ActRow::default()
            },
        )
    }

    #[test]
    fn a_message_has_the_form_of_the_standard() {
        let mut header = Header::new();
        let message = header.message(&act(r#"{"url":"http://a"}"#), 2048);
        let text = String::from_utf8(message).unwrap();
        let (head, body) = text.split_at(text.find("] {").unwrap() + 2);
        let words: Vec<&str> = head.splitn(8, ' ').collect();
        assert_eq!(words[0], "<109>1");
        assert_eq!(words[1], "2023-11-14T22:13:20.123Z");
        assert_eq!(
            &words[3..6],
            ["gantry", &std::process::id().to_string(), "act"]
        );
        assert!(words[7].ends_with("[meta sequenceId=\"1\"] "), "{head}");
        assert!(
            body.bytes().all(|byte| (0x20..0x7f).contains(&byte)),
            "{body}"
        );
        let event: Value = serde_json::from_str(body).unwrap();
        assert_eq!(event["target"], "größe\n😀");
        assert_eq!(event["after"]["url"], "http://a");
        assert_eq!(event["started"], "2023-11-14T22:13:20.123Z");
        assert_eq!(event["event"], "act");
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let long = serde_json::to_string(&"x".repeat(10_000)).unwrap();
        let mut header = Header::new();
        let message = header.message(&act(&long), 2048);
        assert!(message.len() <= 2048, "{}", message.len());
        let text = String::from_utf8(message).unwrap();
        let event: Value = serde_json::from_str(&text[text.find("] {").unwrap() + 2..]).unwrap();
        assert_eq!(
            (&event["cut"], &event["after"]),
            (&true.into(), &Value::Null)
        );
        assert_eq!(event["id"], 7);
    }

    #[test]
    fn no_text_of_a_caller_breaks_the_form_or_the_length() {
        let written = |text: &str| {
            let row = ActRow {
                actor: text.into(),
                key: text.into(),
                project: text.into(),
                via: text.into(),
                act: text.into(),
                target: text.into(),
                address: Some(text.into()),
                code: Some(text.into()),
                ..ActRow::default()
            };
            Header::new().message(&Record::of_act(text, &row), 2048)
        };
        let odd = written("a\u{7f}\r\n<13>1 b");
        assert!(odd.iter().all(|byte| matches!(byte, b' '..=b'~')));
        for long in ["😀", "é", "\"", "\u{7f}", "x"] {
            let message = written(&long.repeat(500));
            assert!(message.len() <= 2048, "{long}: {}", message.len());
        }
    }
}
