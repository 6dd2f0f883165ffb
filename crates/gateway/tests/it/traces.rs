//! Traces: the context that comes with a call and goes on to its server, and the spans that are exported.

mod context;
mod export;
mod metrics;
mod trouble;

use gantry_testkit::otlp::{OtlpReceiver, ReceivedSpan};
use serde_json::{Value, json};

use crate::faults_client::Posted;
use crate::harness::{Answer, Builder, Gantry};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn traceparent() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

/// Describes a gateway that exports to a receiver.
fn exporting(receiver: &OtlpReceiver) -> Builder {
    Gantry::builder().flags(&["--otlp", &receiver.url()])
}

/// Calls a tool over MCP with headers and `_meta`, and returns the JSON-RPC answer.
fn call(
    gantry: &Gantry,
    key: &str,
    tool: &str,
    arguments: Value,
    headers: &[(&str, &str)],
    meta: Value,
) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let mut posted = Posted::stateless(key, "tools/call", params);
    for (name, value) in headers {
        posted = posted.header(name, value);
    }
    Answer::message(&posted.send(gantry))
}

/// Returns the span of a recorded call.
fn span_of<'a>(spans: &'a [ReceivedSpan], row: &Value) -> &'a ReceivedSpan {
    let id = row["id"].as_str().unwrap();
    let mut own = spans
        .iter()
        .filter(|span| span.attributes["gantry.call.id"] == id);
    let (span, other) = (own.next(), own.next());
    assert!(other.is_none(), "two spans for {row:#}");
    span.unwrap_or_else(|| panic!("no span for {row:#} in {spans:#?}"))
}
