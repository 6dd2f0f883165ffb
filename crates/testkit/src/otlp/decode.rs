//! Decodes requests of OTLP, without anything of the encoder under test. What cannot be decoded panics: the test
//! then misses what it waits for, and the panic says why.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{ReceivedLog, ReceivedSpan};

type Attributes = BTreeMap<String, String>;

/// Decodes the spans and log records of a request.
pub(super) fn request(
    path: &str,
    is_json: bool,
    body: &[u8],
) -> (Vec<ReceivedSpan>, Vec<ReceivedLog>) {
    let is_logs = path.ends_with("/v1/logs");
    match (is_json, is_logs) {
        (true, _) => {
            let value: Value = serde_json::from_slice(body).expect("valid JSON");
            (json_spans(&value), json_logs(&value))
        }
        (false, true) => (Vec::new(), each(body, 1).flat_map(resource_logs).collect()),
        (false, false) => (each(body, 1).flat_map(resource_spans).collect(), Vec::new()),
    }
}

// ---- protobuf ----

#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut rest: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest);
        let field = match key % 8 {
            0 => Field::Number(varint(&mut rest)),
            1 => Field::Number(u64::from_le_bytes(
                take(&mut rest, 8).try_into().expect("eight bytes"),
            )),
            5 => {
                let four = take(&mut rest, 4).try_into().expect("four bytes");
                Field::Number(u64::from(u32::from_le_bytes(four)))
            }
            2 => {
                let length = varint(&mut rest) as usize;
                Field::Bytes(take(&mut rest, length))
            }
            other => panic!("wire type {other}"),
        };
        found.push((key / 8, field));
    }
    found
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(count);
    *rest = left;
    taken
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = take(rest, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

fn each(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    let found = fields(message).into_iter();
    found.filter_map(move |(field, content)| match content {
        Field::Bytes(bytes) if field == number => Some(bytes),
        Field::Bytes(_) | Field::Number(_) => None,
    })
}

fn text(message: &[u8], number: u64) -> String {
    let found = each(message, number).next().unwrap_or_default();
    String::from_utf8(found.to_vec()).expect("UTF-8")
}

fn digits(message: &[u8], number: u64) -> String {
    let found = each(message, number).next().unwrap_or_default();
    found.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn number(message: &[u8], number: u64) -> u64 {
    let mut found = fields(message).into_iter();
    let found = found.find_map(|(field, content)| match content {
        Field::Number(value) if field == number => Some(value),
        Field::Bytes(_) | Field::Number(_) => None,
    });
    found.unwrap_or_default()
}

fn any_value(message: &[u8]) -> String {
    match fields(message).first() {
        Some((1, Field::Bytes(text))) => String::from_utf8(text.to_vec()).expect("UTF-8"),
        Some((3, Field::Number(number))) => (*number as i64).to_string(),
        Some((field, _)) => panic!("a value of kind {field}"),
        None => String::new(),
    }
}

fn attributes(message: &[u8], field: u64) -> Attributes {
    let pairs = each(message, field);
    let pair = |pair: &[u8]| {
        let value = each(pair, 2).next().map(any_value);
        (text(pair, 1), value.unwrap_or_default())
    };
    let mut all = Attributes::new();
    for (key, value) in pairs.map(pair) {
        assert!(all.insert(key.clone(), value).is_none(), "{key} twice");
    }
    all
}

fn resource_spans(message: &[u8]) -> Vec<ReceivedSpan> {
    let resource = each(message, 1).next().unwrap_or_default();
    let resource = attributes(resource, 1);
    let scopes = each(message, 2);
    let span = |span: &[u8]| {
        let status = each(span, 15).next().unwrap_or_default();
        ReceivedSpan {
            trace: digits(span, 1),
            id: digits(span, 2),
            parent: digits(span, 4),
            name: text(span, 5),
            kind: number(span, 6),
            start_ns: number(span, 7),
            end_ns: number(span, 8),
            attributes: attributes(span, 9),
            events: each(span, 11).map(|event| text(event, 2)).collect(),
            status: number(status, 3),
            message: text(status, 2),
            resource: resource.clone(),
        }
    };
    scopes
        .flat_map(|scope| each(scope, 2).map(span).collect::<Vec<_>>())
        .collect()
}

fn resource_logs(message: &[u8]) -> Vec<ReceivedLog> {
    let log = |record: &[u8]| ReceivedLog {
        at_ns: number(record, 1),
        severity: number(record, 2),
        event: text(record, 12),
        body: each(record, 5).next().map(any_value).unwrap_or_default(),
        attributes: attributes(record, 6),
        trace: digits(record, 9),
        span: digits(record, 10),
    };
    let scopes = each(message, 2);
    scopes
        .flat_map(|scope| each(scope, 2).map(log).collect::<Vec<_>>())
        .collect()
}

// ---- JSON ----

fn said(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn wide(value: &Value) -> u64 {
    let text = value.as_str().map(|text| text.parse().expect("a number"));
    text.or(value.as_u64()).unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn json_attributes(value: &Value) -> Attributes {
    let pair = |pair: &Value| {
        let value = &pair["value"];
        let mut kinds = ["stringValue", "intValue"].into_iter();
        let text = kinds.find_map(|kind| value[kind].as_str());
        (said(&pair["key"]), text.expect("a known kind").to_owned())
    };
    list(value).map(pair).collect()
}

fn json_spans(value: &Value) -> Vec<ReceivedSpan> {
    let mut spans = Vec::new();
    for of_resource in list(&value["resourceSpans"]) {
        let resource = json_attributes(&of_resource["resource"]["attributes"]);
        let scopes = list(&of_resource["scopeSpans"]);
        for span in scopes.flat_map(|scope| list(&scope["spans"])) {
            spans.push(ReceivedSpan {
                trace: said(&span["traceId"]),
                id: said(&span["spanId"]),
                parent: said(&span["parentSpanId"]),
                name: said(&span["name"]),
                kind: wide(&span["kind"]),
                start_ns: wide(&span["startTimeUnixNano"]),
                end_ns: wide(&span["endTimeUnixNano"]),
                attributes: json_attributes(&span["attributes"]),
                events: list(&span["events"])
                    .map(|event| said(&event["name"]))
                    .collect(),
                status: wide(&span["status"]["code"]),
                message: said(&span["status"]["message"]),
                resource: resource.clone(),
            });
        }
    }
    spans
}

fn json_logs(value: &Value) -> Vec<ReceivedLog> {
    let mut logs = Vec::new();
    for of_resource in list(&value["resourceLogs"]) {
        let scopes = list(&of_resource["scopeLogs"]);
        for record in scopes.flat_map(|scope| list(&scope["logRecords"])) {
            logs.push(ReceivedLog {
                at_ns: wide(&record["timeUnixNano"]),
                severity: wide(&record["severityNumber"]),
                event: said(&record["eventName"]),
                body: said(&record["body"]["stringValue"]),
                attributes: json_attributes(&record["attributes"]),
                trace: said(&record["traceId"]),
                span: said(&record["spanId"]),
            });
        }
    }
    logs
}
