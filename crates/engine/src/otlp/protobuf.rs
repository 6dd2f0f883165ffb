//! OTLP messages in the wire format of Protocol Buffers: only the fields that Gantry sends, and the
//! number of rejected items in responses. Field numbers are those of `opentelemetry-proto` 1.x.

use super::{Attribute, KIND_SERVER, LogRecord, SCOPE, STATUS_ERROR, Span, Value, flags};

/// Writes the fields of one message.
#[derive(Default)]
struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.key(field, VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn value(&mut self, field: u64, value: &Value<'_>) {
        self.message(field, |inner| match value {
            Value::Text(text) => inner.bytes(1, text.as_bytes()),
            Value::Owned(text) => inner.bytes(1, text.as_bytes()),
            Value::Number(number) => inner.number(3, *number as u64),
        });
    }

    fn attributes(&mut self, field: u64, attributes: &[Attribute<'_>]) {
        for (key, value) in attributes {
            self.message(field, |pair| {
                pair.text(1, key);
                pair.value(2, value);
            });
        }
    }
}

/// Writes a `Span`.
pub(super) fn span(span: &Span<'_>) -> Vec<u8> {
    let mut message = Message::default();
    message.bytes(1, &span.trace);
    message.bytes(2, &span.id);
    if let Some(parent) = &span.parent {
        message.bytes(4, parent);
    }
    message.text(5, span.name);
    message.number(6, KIND_SERVER);
    message.fixed64(7, span.start_ns);
    message.fixed64(8, span.end_ns);
    message.attributes(9, &span.attributes);
    for event in &span.events {
        message.message(11, |inner| {
            inner.fixed64(1, event.at_ns);
            inner.text(2, event.name);
            inner.attributes(3, &event.attributes);
        });
    }
    if let Some(why) = span.error {
        message.message(15, |status| {
            status.text(2, why);
            status.number(3, STATUS_ERROR);
        });
    }
    message.fixed32(16, flags(span));
    message.0
}

/// Writes a `LogRecord`.
pub(super) fn log(log: &LogRecord<'_>) -> Vec<u8> {
    let mut message = Message::default();
    message.fixed64(1, log.at_ns);
    message.number(2, log.severity);
    message.text(3, log.severity_text);
    message.value(5, &Value::Text(log.body));
    message.attributes(6, &log.attributes);
    if let Some(trace) = &log.trace {
        message.bytes(9, trace);
    }
    if let Some(span) = &log.span {
        message.bytes(10, span);
    }
    message.fixed64(11, log.observed_ns);
    message.text(12, log.event);
    message.0
}

/// Writes an `ExportTraceServiceRequest` or an `ExportLogsServiceRequest`.
pub(super) fn request(resource: &[Attribute<'_>], items: &[Vec<u8>]) -> Vec<u8> {
    let mut scoped = Message::default();
    scoped.message(1, |scope| {
        scope.text(1, SCOPE);
        scope.text(2, env!("CARGO_PKG_VERSION"));
    });
    for item in items {
        scoped.bytes(2, item);
    }
    let mut message = Message::default();
    message.message(1, |of_resource| {
        of_resource.message(1, |inner| inner.attributes(1, resource));
        of_resource.bytes(2, &scoped.0);
    });
    message.0
}

/// Returns how many items a response reports as rejected; zero if it is unreadable.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial = fields(answer).find_map(|(field, content)| match content {
        Content::Bytes(bytes) if field == 1 => Some(bytes),
        Content::Bytes(_) | Content::Number(_) => None,
    });
    let number = fields(partial.unwrap_or_default()).find_map(|(field, content)| match content {
        Content::Number(number) if field == 1 => Some(number),
        Content::Bytes(_) | Content::Number(_) => None,
    });
    number.unwrap_or_default()
}

enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, up to the first invalid one.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, Content<'_>)> {
    std::iter::from_fn(move || {
        let key = take_varint(&mut rest)?;
        let content = match key & 7 {
            VARINT => Content::Number(take_varint(&mut rest)?),
            FIXED64 => Content::Bytes(take(&mut rest, 8)?),
            FIXED32 => Content::Bytes(take(&mut rest, 4)?),
            BYTES => {
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                Content::Bytes(take(&mut rest, length)?)
            }
            _ => return None,
        };
        Some((key >> 3, content))
    })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(rest, 1)?.first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_much_was_rejected() {
        assert_eq!(rejected(b""), 0);
        // partial_success { rejected_spans: 300, error_message: "no" }
        assert_eq!(rejected(&[10, 7, 8, 0xac, 2, 18, 2, b'n', b'o']), 300);
        for broken in [&b"\xff"[..], b"\x0a\x7f\x01", b"{}", &[0xff; 40]] {
            assert_eq!(rejected(broken), 0, "{broken:?}");
        }
    }

    #[test]
    fn numbers_have_the_form_of_the_standard() {
        let mut message = Message::default();
        message.number(1, 300);
        message.value(2, &Value::Number(-1));
        let minus_one = [18, 11, 24, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(message.0[..3], [8, 0xac, 2]);
        assert_eq!(message.0[3..], minus_one);
    }
}
