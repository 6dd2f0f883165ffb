//! The export over OTLP: a receiver that decodes it by itself sees one closed span for each call.

use gantry_testkit::Evilpeer;
use gantry_testkit::otlp::{OtlpReceiver, ReceivedSpan, ReceiverMood};
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::{SPAN, TRACE, call, exporting, span_of, traceparent};
use crate::harness::{Gantry, LONG};

/// Starts a gateway whose server `a` answers for a second at most.
fn start(receiver: &OtlpReceiver) -> Gantry {
    let quick = json!({"calls": {"timeout": "1s", "timeout_max": "1s"}});
    let builder = exporting(receiver).server_with("a", &Evilpeer::new(), &quick);
    let gantry = builder.start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

/// Makes a call end in each way that there is; returns the names of the ways and the rows, in order.
fn end_in_each_way(gantry: &Gantry) -> Vec<(&'static str, Value)> {
    let stranger = gantry.agent_with("stranger", &["a:echo"]);
    let parent = traceparent();
    let headers = [
        ("traceparent", parent.as_str()),
        ("X-Gantry-User-Id", "ann"),
        ("X-Gantry-Session-Id", "conversation-1"),
        ("X-Gantry-Run-Id", "run-1"),
        ("X-Gantry-Step", "7"),
    ];
    let ways = [
        ("ok", &gantry.agent, "a__echo", json!({"text": "x"})),
        (
            "tool error",
            &gantry.agent,
            "a__fail",
            json!({"message": "no"}),
        ),
        (
            "server error",
            &gantry.agent,
            "a__rpc_error",
            json!({"code": -32050, "message": "no"}),
        ),
        ("wrong arguments", &gantry.agent, "a__add", json!({"a": 1})),
        ("unknown tool", &gantry.agent, "a__nothing", json!({})),
        ("not granted", &stranger, "a__add", json!({"a": 1, "b": 2})),
        ("timeout", &gantry.agent, "a__slow", json!({"ms": 60_000})),
        ("server exit", &gantry.agent, "a__crash", json!({})),
    ];
    let mut rows = Vec::new();
    for (way, key, tool, arguments) in ways {
        let known = rows_of(gantry);
        call(gantry, key, tool, arguments, &headers, json!({}));
        let mut fresh = rows_of(gantry);
        fresh.retain(|row| !known.iter().any(|old| old["id"] == row["id"]));
        assert_eq!(fresh.len(), 1, "{way}: {fresh:#?}");
        rows.extend(fresh.into_iter().map(|row| (way, row)));
    }
    rows
}

fn rows_of(gantry: &Gantry) -> Vec<Value> {
    gantry.audit_rows("")
}

/// Checks that a span says of a call what its row says. row 3.5
fn assert_tells(way: &str, span: &ReceivedSpan, row: &Value) {
    let said = |name: &str| span.attributes.get(name).map(String::as_str);
    assert_eq!(
        (span.trace.as_str(), span.parent.as_str()),
        (TRACE, SPAN),
        "{way}"
    );
    assert!(span.id.len() == 16 && span.id != SPAN, "{way}");
    assert!(span.start_ns > 0 && span.end_ns >= span.start_ns, "{way}");
    assert_eq!(
        span.start_ns,
        row["started_ms"].as_u64().unwrap() * 1_000_000
    );
    let duration_us = row["duration_us"].as_u64().unwrap();
    assert_eq!(span.end_ns - span.start_ns, duration_us * 1000, "{way}");
    assert_eq!(span.kind, 2, "{way}");
    let of_row = |name: &str| row[name].as_str().filter(|text| !text.is_empty());
    for (attribute, member) in [
        ("gantry.project", "project"),
        ("gantry.agent", "agent"),
        ("gen_ai.agent.id", "agent"),
        ("gantry.key.id", "key"),
        ("user.id", "user"),
        ("langfuse.user.id", "user"),
        ("gantry.user.trust", "user_trust"),
        ("session.id", "session"),
        ("langfuse.session.id", "session"),
        ("gen_ai.conversation.id", "session"),
        ("gantry.run.id", "run"),
        ("gantry.step", "step"),
        ("gantry.surface", "surface"),
        ("mcp.method.name", "method"),
        ("gantry.server.name", "server"),
        ("gantry.tool.name", "tool"),
        ("gen_ai.tool.name", "tool"),
        ("gantry.schema.version", "schema_version"),
        ("gantry.status", "status"),
        ("gantry.error.code", "code"),
        ("error.type", "code"),
    ] {
        assert_eq!(said(attribute), of_row(member), "{way}: {attribute}");
    }
    assert_eq!(said("gen_ai.operation.name"), Some("execute_tool"), "{way}");
    assert_eq!(said("langfuse.observation.type"), Some("tool"), "{way}");
    assert_eq!(said("user.id"), Some("ann"), "{way}");
    let tool = of_row("tool").unwrap_or_else(|| panic!("{way}: {row:#}"));
    assert_eq!(span.name, format!("tools/call {tool}"), "{way}");
    let is_ok = row["status"] == "ok";
    assert_eq!(span.status, if is_ok { 0 } else { 2 }, "{way}");
    assert_eq!(span.resource["service.name"], "gantry");
    assert!(span.resource["service.instance.id"].starts_with("gw_"));
    // Bodies only where they are asked for.
    for body in [
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "langfuse.observation.input",
        "langfuse.observation.output",
    ] {
        assert_eq!(said(body), None, "{way}");
    }
}

// row 3.5
#[test]
fn each_call_is_one_closed_span_however_it_ends() {
    let receiver = OtlpReceiver::start(ReceiverMood::Takes);
    let gantry = start(&receiver);
    let rows = end_in_each_way(&gantry);
    let spans = receiver.wait_spans(LONG, |spans| spans.len() >= rows.len());
    assert_eq!(spans.len(), rows.len(), "{spans:#?}");
    for (way, row) in &rows {
        assert_tells(way, span_of(&spans, row), row);
    }
    let status = |way: &str| {
        let (_, row) = rows.iter().find(|(known, _)| *known == way).unwrap();
        row["status"].as_str().unwrap().to_owned()
    };
    for (way, expected) in [
        ("ok", "ok"),
        ("tool error", "error"),
        ("server error", "error"),
        ("wrong arguments", "refused"),
        ("unknown tool", "refused"),
        ("not granted", "refused"),
        ("timeout", "timeout"),
        ("server exit", "error"),
    ] {
        assert_eq!(status(way), expected, "{way}");
    }
    let of_way = |way: &str| {
        let (_, row) = rows.iter().find(|(known, _)| *known == way).unwrap();
        span_of(&spans, row)
    };
    assert_eq!(of_way("tool error").attributes["error.type"], "tool_error");
    let refused = of_way("server error");
    assert_eq!(refused.attributes["rpc.response.status_code"], "-32050");
    assert_eq!(
        of_way("ok").attributes["langfuse.observation.level"],
        "DEFAULT"
    );
    for phase in ["grant", "schema", "server"] {
        let events = &of_way("ok").events;
        assert!(events.iter().any(|event| event == phase), "{events:?}");
    }
    // The caller's trace keeps its own name.
    assert!(!of_way("ok").attributes.contains_key("langfuse.trace.name"));
    for export in receiver.exports() {
        let is_protobuf = (
            "content-type".to_owned(),
            "application/x-protobuf".to_owned(),
        );
        assert!(
            export.headers.contains(&is_protobuf),
            "{:?}",
            export.headers
        );
        assert_eq!(export.path, "/v1/traces");
        for key in [&gantry.agent, &gantry.admin] {
            assert!(!contains(&export.body, key), "a credential is exported");
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

// row 3.5
#[test]
fn spans_go_out_as_json_with_headers_and_attributes_of_the_environment() {
    let receiver = OtlpReceiver::start(ReceiverMood::Takes);
    let quick = json!({"calls": {"timeout": "1s", "timeout_max": "1s"}});
    let gantry = Gantry::builder()
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url())
        .variable("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .variable(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Basic%20cGs6c2s=,x-langfuse-ingestion-version=4",
        )
        .variable(
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=staging",
        )
        .server_with("a", &Evilpeer::new(), &quick)
        .start();
    gantry.wait_state("a", "ready", LONG);
    let rows = end_in_each_way(&gantry);
    let spans = receiver.wait_spans(LONG, |spans| spans.len() >= rows.len());
    for (way, row) in &rows {
        assert_tells(way, span_of(&spans, row), row);
    }
    assert_eq!(spans[0].resource["deployment.environment.name"], "staging");
    for export in receiver.exports() {
        for (name, value) in [
            ("content-type", "application/json"),
            ("authorization", "Basic cGs6c2s="),
            ("x-langfuse-ingestion-version", "4"),
        ] {
            let header = (name.to_owned(), value.to_owned());
            assert!(export.headers.contains(&header), "{:?}", export.headers);
        }
    }
    // The credential of the endpoint is nowhere else.
    let said = [
        gantry.stderr(),
        gantry.stdout(),
        gantry.rest("GET", "/api/v1/health", None).text(),
        gantry.rest("GET", "/metrics", None).text(),
    ];
    assert!(said.iter().all(|said| !said.contains("cGs6c2s=")));
}

// row 3.5
#[test]
fn a_project_decides_whether_its_calls_are_exported_and_with_bodies() {
    let receiver = OtlpReceiver::start(ReceiverMood::Takes);
    let gantry = start(&receiver);
    let set = |value: &str| {
        let change = json!({"traces": value});
        let answer = gantry.rest("PATCH", "/api/v1/settings", Some(&change));
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    set("off");
    gantry.call("a__echo", json!({"text": "first"}));
    assert_eq!(gantry.audit_rows("").len(), 1);
    set("bodies");
    gantry.call("a__echo", json!({"text": "second"}));
    let spans = receiver.wait_spans(LONG, |spans| !spans.is_empty());
    let [span] = spans.as_slice() else {
        panic!("{spans:#?}");
    };
    for name in ["gen_ai.tool.call.arguments", "langfuse.observation.input"] {
        assert_eq!(span.attributes[name], r#"{"text":"second"}"#);
    }
    for name in ["gen_ai.tool.call.result", "langfuse.observation.output"] {
        assert!(span.attributes[name].contains("second"));
    }
    assert_eq!(span.attributes["langfuse.trace.name"], "tools/call echo");
    let wrong = json!({"traces": "all"});
    let answer = gantry.rest("PATCH", "/api/v1/settings", Some(&wrong));
    assert_eq!(answer.status, 422, "{}", answer.text());
}

// row 3.5: a call that its client took back, and calls that the gateway left when it was killed.
#[test]
fn calls_that_are_cancelled_or_cut_off_have_closed_spans_too() {
    let receiver = OtlpReceiver::start(ReceiverMood::Takes);
    let mut gantry = exporting(&receiver).server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    let begin = |gantry: &Gantry, running: usize| {
        let mut connection = gantry.connect();
        let bearer = format!("Bearer {}", gantry.agent);
        let body = json!({"name": "a__slow", "arguments": {"ms": 60_000}}).to_string();
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        connection
            .write("POST", "/api/v1/tools/call", &headers, body.as_bytes())
            .unwrap();
        let is_running = || gantry.audit_rows("status=running").len() == running;
        assert!(eventually(LONG, is_running).is_some());
        connection
    };
    drop(begin(&gantry, 1));
    let spans = receiver.wait_spans(LONG, |spans| !spans.is_empty());
    assert_eq!(spans[0].attributes["gantry.status"], "cancelled");
    let open = begin(&gantry, 1);
    gantry.kill();
    drop(open);
    let gantry = gantry.again();
    let spans = receiver.wait_spans(LONG, |spans| spans.len() >= 2);
    assert_eq!(spans.len(), 2, "{spans:#?}");
    assert_eq!(spans[1].attributes["gantry.status"], "unknown");
    assert!(spans[1].end_ns >= spans[1].start_ns);
    let rows = gantry.audit_rows("status=unknown");
    assert_eq!(spans[1].trace, rows[0]["trace"].as_str().unwrap());
}

// row 3.5
#[test]
fn the_last_spans_are_sent_before_the_gateway_ends() {
    let receiver = OtlpReceiver::start(ReceiverMood::Takes);
    let mut gantry = exporting(&receiver).server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    for _ in 0..3 {
        gantry.call("a__echo", json!({"text": "x"}));
    }
    gantry.stop();
    assert_eq!(receiver.spans().len(), 3);
}
