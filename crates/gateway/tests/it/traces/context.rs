//! What a call belongs to, in and out: `traceparent` and `tracestate` from headers or `_meta`, passed on to
//! servers over pipes and over HTTP with the call's own span above what they do.

use gantry_testkit::otlp::{OtlpReceiver, ReceiverMood};
use gantry_testkit::{Era, Evilpeer, Kind};
use serde_json::{Value, json};

use super::{SPAN, TRACE, call, exporting, traceparent};
use crate::harness::{Gantry, LONG};

/// Returns what a tool says of itself, as JSON.
fn said(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("{answer:#}"))).unwrap()
}

fn newest(gantry: &Gantry) -> Value {
    let rows = gantry.audit_rows("");
    let newest = rows.iter().max_by_key(|row| row["id"].to_string());
    newest.unwrap().clone()
}

/// Checks what a server was told: the caller's trace, and a span that is not the caller's.
fn assert_passed(told: &Value, state: Option<&str>) {
    let parent = told["traceparent"].as_str();
    let parent = parent.unwrap_or_else(|| panic!("{told:#}"));
    let parts: Vec<_> = parent.split('-').collect();
    assert_eq!(
        (parts[0], parts[1], parts[3]),
        ("00", TRACE, "01"),
        "{parent}"
    );
    assert!(parts[2].len() == 16 && parts[2] != SPAN, "{parent}");
    assert_eq!(told["tracestate"].as_str(), state, "{told:#}");
}

// row 3.5
#[test]
fn the_trace_comes_in_by_header_or_meta_and_goes_on_with_the_calls_own_span() {
    let far: Vec<_> = [
        (Era::Modern, Kind::Streamable),
        (Era::Legacy, Kind::Streamable),
        (Era::Legacy, Kind::Sse),
    ]
    .into_iter()
    .map(|(era, kind)| Evilpeer::new().era(era).serve(kind))
    .collect();
    let mut builder = Gantry::builder()
        .server("old", &Evilpeer::new().era(Era::Legacy))
        .server("new", &Evilpeer::new().era(Era::Modern))
        .server_with(
            "closed",
            &Evilpeer::new(),
            &json!({"calls": {"pass_context": false}}),
        );
    for (at, served) in far.iter().enumerate() {
        let entry = json!({"url": served.url, "auth": {"kind": "none"}});
        builder = builder.entry(&format!("far{at}"), entry);
    }
    let gantry = builder.start();
    for server in ["old", "new", "closed", "far0", "far1", "far2"] {
        gantry.wait_state(server, "ready", LONG);
    }
    let parent = traceparent();
    let by_header = [
        ("traceparent", parent.as_str()),
        ("tracestate", "a=1,b@c=2"),
    ];
    let by_meta = json!({"traceparent": parent, "tracestate": "a=1,b@c=2"});
    for (headers, meta) in [(&by_header[..], &json!({})), (&[], &by_meta)] {
        for server in ["old", "new", "far0", "far1", "far2"] {
            let tool = format!("{server}__whoami");
            let told = call(
                &gantry,
                &gantry.agent,
                &tool,
                json!({}),
                headers,
                meta.clone(),
            );
            assert_passed(&said(&told), Some("a=1,b@c=2"));
            assert_eq!(newest(&gantry)["trace"], TRACE, "{server}");
        }
        for server in ["far0", "far1", "far2"] {
            let tool = format!("{server}__headers");
            let told = call(
                &gantry,
                &gantry.agent,
                &tool,
                json!({}),
                headers,
                meta.clone(),
            );
            assert_passed(&said(&told), Some("a=1,b@c=2"));
        }
        let told = call(
            &gantry,
            &gantry.agent,
            "closed__whoami",
            json!({}),
            headers,
            meta.clone(),
        );
        let told = said(&told);
        assert_eq!(
            (&told["traceparent"], &told["tracestate"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(newest(&gantry)["trace"], TRACE);
    }
    // What is malformed begins a trace of its own, and is not passed on.
    for wrong in [
        "00-xyz",
        &parent.to_uppercase(),
        &format!("{parent}-1"),
        "0",
    ] {
        let meta = json!({"traceparent": wrong, "tracestate": "a=1"});
        let told = said(&call(
            &gantry,
            &gantry.agent,
            "new__whoami",
            json!({}),
            &[],
            meta,
        ));
        assert_eq!(
            (&told["traceparent"], &told["tracestate"]),
            (&Value::Null, &Value::Null)
        );
        let trace = newest(&gantry)["trace"].as_str().unwrap().to_owned();
        assert!(trace.len() == 32 && trace != TRACE, "{trace}");
    }
    // A trace is found by its id and by a `traceparent`.
    for asked in [TRACE, parent.as_str()] {
        assert_eq!(gantry.audit_rows(&format!("trace={asked}")).len(), 18);
    }
}

// row 3.5
#[test]
fn a_call_without_a_trace_begins_one_that_its_server_is_told_of_when_spans_are_exported() {
    let receiver = OtlpReceiver::start(ReceiverMood::Takes);
    let gantry = exporting(&receiver).server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    let told = said(&gantry.call("a__whoami", json!({})));
    let row = newest(&gantry);
    let spans = receiver.wait_spans(LONG, |spans| !spans.is_empty());
    let [span] = spans.as_slice() else {
        panic!("{spans:#?}");
    };
    assert_eq!(span.trace, row["trace"].as_str().unwrap());
    assert_eq!(span.parent, "");
    let expected = format!("00-{}-{}-01", span.trace, span.id);
    assert_eq!(told["traceparent"], expected);
}
