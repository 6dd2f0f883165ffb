//! The attributes of a call's span: OpenTelemetry's conventions for MCP and GenAI, those of
//! Langfuse, and the rest of the row under `gantry.`. All attribute names are defined here. Entry
//! point: [`of_call`].

use std::time::Duration;

use gantry_model::hex::unhex;
use gantry_model::mcp::Method;
use gantry_model::trace::{TraceParent, span_of};
use gantry_store::{CallRow, CallStatus, ErrorKind};

use crate::otlp::{Attribute, Span, SpanEvent, Value};

/// The span of a call before encoding.
pub(super) struct CallSpan<'a> {
    row: &'a CallRow<&'a str>,
    name: String,
    bodies: bool,
}

/// Makes the span of a call that ended.
pub(super) fn of_call<'a>(row: &'a CallRow<&'a str>, bodies: bool) -> CallSpan<'a> {
    let name = match Method::parse(row.method) {
        // URIs have too many different values for a span name.
        Some(Method::ToolsCall | Method::PromptsGet) if !row.tool.is_empty() => {
            format!("{} {}", row.method, row.tool)
        }
        Some(_) | None => row.method.to_owned(),
    };
    CallSpan { row, name, bodies }
}

impl<'a> CallSpan<'a> {
    /// Returns the span.
    pub(super) fn span(&'a self) -> Span<'a> {
        let row = self.row;
        let start_ns = row.started_ms.saturating_mul(1_000_000);
        let end_ns = start_ns.saturating_add(nanoseconds(row));
        Span {
            trace: trace_of(row),
            id: span_of(row.id).to_be_bytes(),
            parent: row.parent_span.and_then(bytes),
            name: &self.name,
            start_ns,
            end_ns,
            attributes: self.attributes(),
            events: phases(row, start_ns, end_ns),
            error: (row.status != CallStatus::Ok).then(|| why(row)),
        }
    }

    fn attributes(&'a self) -> Vec<Attribute<'a>> {
        let row = self.row;
        let method = Method::parse(row.method);
        let (is_tool, is_prompt) = (
            method == Some(Method::ToolsCall),
            method == Some(Method::PromptsGet),
        );
        let mut all: Vec<Attribute<'a>> = Vec::with_capacity(48);
        let mut put = |name, value: Option<&'a str>| {
            let value = value.filter(|value| !value.is_empty());
            all.extend(value.map(|value| (name, Value::Text(value))));
        };
        let failed = row.status != CallStatus::Ok;
        put("mcp.method.name", Some(row.method));
        put("gen_ai.operation.name", is_tool.then_some("execute_tool"));
        put("gen_ai.tool.name", is_tool.then_some(row.tool));
        put("gen_ai.prompt.name", is_prompt.then_some(row.tool));
        put(
            "mcp.resource.uri",
            Some(row.tool).filter(|_| method == Some(Method::ResourcesRead)),
        );
        put("gen_ai.agent.id", Some(row.agent));
        put("gen_ai.agent.name", Some(row.agent));
        put("gen_ai.conversation.id", row.session);
        put("user.id", row.user);
        put("session.id", row.session);
        put("error.type", failed.then(|| error_type(row)));
        put(
            "rpc.response.status_code",
            row.code.filter(|code| code.parse::<i64>().is_ok()),
        );
        put("gantry.project", Some(row.project));
        put("gantry.agent", Some(row.agent));
        put("gantry.key.id", Some(row.key));
        put("gantry.user.id", row.user);
        put(
            "gantry.user.trust",
            row.user.map(|_| row.user_trust.as_str()),
        );
        put("gantry.session.id", row.session);
        put("gantry.run.id", row.run);
        put("gantry.step", row.step);
        put("gantry.surface", Some(row.surface));
        put("gantry.server.name", Some(row.server));
        put("gantry.tool.name", Some(row.tool));
        put("gantry.schema.version", row.schema_version);
        put("gantry.status", Some(row.status.as_str()));
        put("gantry.error.code", row.code);
        put(
            "gantry.error.kind",
            row.details.error_kind.map(ErrorKind::as_str),
        );
        put("gantry.grant.id", row.details.grant);
        put("gantry.parent_call.id", row.details.parent);
        put("langfuse.user.id", row.user);
        put("langfuse.session.id", row.session);
        // The name of the caller's own trace is not overwritten.
        put(
            "langfuse.trace.name",
            row.parent_span.is_none().then_some(self.name.as_str()),
        );
        put(
            "langfuse.observation.type",
            Some(if is_tool { "tool" } else { "span" }),
        );
        put("langfuse.observation.level", Some(level(row.status)));
        put(
            "langfuse.observation.status_message",
            failed.then(|| why(row)),
        );
        put("langfuse.observation.metadata.project", Some(row.project));
        put("langfuse.observation.metadata.agent_id", Some(row.agent));
        put("langfuse.observation.metadata.server", Some(row.server));
        put("langfuse.observation.metadata.tool_name", Some(row.tool));
        put(
            "langfuse.observation.metadata.schema_version",
            row.schema_version,
        );
        put(
            "langfuse.observation.metadata.status",
            Some(row.status.as_str()),
        );
        put("langfuse.observation.metadata.run_id", row.run);
        put("langfuse.observation.metadata.step", row.step);
        if self.bodies {
            put("gen_ai.tool.call.arguments", row.input);
            put("gen_ai.tool.call.result", row.output);
            put("langfuse.observation.input", row.input);
            put("langfuse.observation.output", row.output);
        }
        let id = row.id.to_string();
        if is_tool {
            all.push(("gen_ai.tool.call.id", Value::Owned(id.clone())));
        }
        all.push(("gantry.call.id", Value::Owned(id)));
        if let Some(server) = row.server_id.map(|id| id.to_string()) {
            let metadata = "langfuse.observation.metadata.server_id";
            all.push((metadata, Value::Owned(server.clone())));
            all.push(("gantry.server.id", Value::Owned(server)));
        }
        let numbers = [
            ("gantry.duration_us", row.duration_us),
            ("gantry.attempts", row.details.attempts.map(u64::from)),
            ("gantry.policy.revision", row.details.policy_revision),
            ("gantry.input.bytes", Some(row.input_bytes)),
            ("gantry.output.bytes", Some(row.output_bytes)),
            (
                "gantry.repeats",
                Some(row.repeats).filter(|count| *count > 1),
            ),
        ];
        all.extend(numbers.into_iter().filter_map(|(name, number)| {
            let number = i64::try_from(number?).unwrap_or(i64::MAX);
            Some((name, Value::Number(number)))
        }));
        all
    }
}

/// Returns when each phase of a call ended.
fn phases<'a>(row: &CallRow<&str>, start_ns: u64, end_ns: u64) -> Vec<SpanEvent<'a>> {
    let mut at_ns = start_ns;
    let phases = row.details.phases.in_order().into_iter();
    let reached = phases.filter_map(|(name, us)| Some((name, us?)));
    let event = |(name, us): (&'static str, u32)| {
        at_ns = at_ns.saturating_add(u64::from(us) * 1000).min(end_ns);
        SpanEvent {
            at_ns,
            name,
            attributes: vec![("gantry.duration_us", Value::Number(i64::from(us)))],
        }
    };
    reached.map(event).collect()
}

/// Returns the trace of a call: the recorded one, or a new one.
fn trace_of(row: &CallRow<&str>) -> [u8; 16] {
    let own = || bytes(&TraceParent::of_call(row.id).trace_id());
    row.trace.and_then(bytes).or_else(own).unwrap_or([1; 16])
}

fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    unhex(digits)?.try_into().ok()
}

fn nanoseconds(row: &CallRow<&str>) -> u64 {
    let by_clock = || {
        let ended_ms = row.ended_ms.unwrap_or(row.started_ms);
        Duration::from_millis(ended_ms.saturating_sub(row.started_ms))
    };
    let duration = row.duration_us.map_or_else(by_clock, Duration::from_micros);
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the type of an error: our code, the server's JSON-RPC code, or `tool_error`.
fn error_type<'a>(row: &CallRow<&'a str>) -> &'a str {
    row.code.unwrap_or(row.status.as_str())
}

/// Returns why a call failed, from its row.
fn why<'a>(row: &CallRow<&'a str>) -> &'a str {
    row.error.or(row.code).unwrap_or(row.status.as_str())
}

fn level(status: CallStatus) -> &'static str {
    match status {
        CallStatus::Ok | CallStatus::Running => "DEFAULT",
        CallStatus::Cancelled | CallStatus::Refused => "WARNING",
        CallStatus::Error | CallStatus::Timeout | CallStatus::Unknown => "ERROR",
    }
}
