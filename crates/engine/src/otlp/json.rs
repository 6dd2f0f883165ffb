//! OTLP messages as JSON: names in camel case, ids in hexadecimal digits, 64-bit integers as
//! strings.

use gantry_model::hex::hex;
use serde_json::{Value as Json, json};

use super::{Attribute, KIND_SERVER, LogRecord, SCOPE, STATUS_ERROR, Signal, Span, Value, flags};

fn attributes(attributes: &[Attribute<'_>]) -> Json {
    let pair = |(key, value): &Attribute<'_>| {
        let value = match value {
            Value::Text(text) => json!({"stringValue": text}),
            Value::Owned(text) => json!({"stringValue": text}),
            Value::Number(number) => json!({"intValue": number.to_string()}),
        };
        json!({"key": key, "value": value})
    };
    attributes.iter().map(pair).collect()
}

/// Writes a `Span`.
pub(super) fn span(span: &Span<'_>) -> Vec<u8> {
    let mut written = json!({
        "traceId": hex(&span.trace),
        "spanId": hex(&span.id),
        "name": span.name,
        "kind": KIND_SERVER,
        "startTimeUnixNano": span.start_ns.to_string(),
        "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes(&span.attributes),
        "flags": flags(span),
    });
    if let Some(parent) = &span.parent {
        written["parentSpanId"] = hex(parent).into();
    }
    if !span.events.is_empty() {
        let event = |event: &super::SpanEvent<'_>| {
            json!({
                "timeUnixNano": event.at_ns.to_string(),
                "name": event.name,
                "attributes": attributes(&event.attributes),
            })
        };
        written["events"] = span.events.iter().map(event).collect();
    }
    if let Some(why) = span.error {
        written["status"] = json!({"code": STATUS_ERROR, "message": why});
    }
    written.to_string().into_bytes()
}

/// Writes a `LogRecord`.
pub(super) fn log(log: &LogRecord<'_>) -> Vec<u8> {
    let mut written = json!({
        "timeUnixNano": log.at_ns.to_string(),
        "observedTimeUnixNano": log.observed_ns.to_string(),
        "severityNumber": log.severity,
        "severityText": log.severity_text,
        "body": {"stringValue": log.body},
        "attributes": attributes(&log.attributes),
        "eventName": log.event,
    });
    if let Some(trace) = &log.trace {
        written["traceId"] = hex(trace).into();
    }
    if let Some(span) = &log.span {
        written["spanId"] = hex(span).into();
    }
    written.to_string().into_bytes()
}

/// Encodes a request with encoded items.
pub(super) fn request(signal: Signal, resource: &[Attribute<'_>], items: &[Vec<u8>]) -> Vec<u8> {
    let (of_resource, of_scope, of_items) = match signal {
        Signal::Traces => ("resourceSpans", "scopeSpans", "spans"),
        Signal::Logs => ("resourceLogs", "scopeLogs", "logRecords"),
    };
    let resource = json!({"attributes": attributes(resource)});
    let scope = json!({"name": SCOPE, "version": env!("CARGO_PKG_VERSION")});
    let mut written = format!(
        r#"{{"{of_resource}":[{{"resource":{resource},"{of_scope}":[{{"scope":{scope},"{of_items}":["#
    )
    .into_bytes();
    written.extend(items.join(&b','));
    written.extend_from_slice(b"]}]}]}");
    written
}

/// Returns how many items a response reports as rejected; zero if it is unreadable.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let answer: Json = serde_json::from_slice(answer).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let said = ["rejectedSpans", "rejectedLogRecords"].map(|name| &partial[name]);
    let number = |said: &Json| {
        let written = said.as_str().and_then(|text| text.parse().ok());
        said.as_u64().or(written)
    };
    said.into_iter().find_map(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_much_was_rejected() {
        for (answer, count) in [
            ("", 0),
            ("{}", 0),
            (r#"{"partialSuccess":{"rejectedSpans":"3"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedLogRecords":4}}"#, 4),
        ] {
            assert_eq!(rejected(answer.as_bytes()), count, "{answer}");
        }
    }
}
