//! The response types of the REST API, separate from the engine's types, so that the engine can
//! change without changing the API.
//!
//! Times are milliseconds since 1970 (`_ms`) and RFC 3339 text. Environment values and key texts
//! are never included. Views of servers are in `server`.

mod health;
mod hosting;
mod image;
mod server;
mod sign_in;
mod spec;

use gantry_engine::{
    CallRow, Check, ErrorKind, ListedTool, LogLine, LogStream, Phases, UserSource,
};
use gantry_model::event::ServerEvent;
use gantry_model::jsonrpc::RawBuf;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub(super) use gantry_engine::unix_ms as now_ms;

pub(super) use self::health::{AcknowledgedView, HealthView};
pub(super) use self::hosting::VolumeView;
pub(super) use self::image::{ImageView, PrunedImagesView, PrunedView};
pub(super) use self::server::{
    ServerStatusView, ServerSummary, UsageEvent, command, image, profile, start, url,
};
pub(super) use self::sign_in::{Link, SignInStatus};
pub(super) use self::spec::SpecView;

/// Formats a time as RFC 3339 in UTC with milliseconds; equal lengths sort as text.
pub(super) fn rfc3339(at_ms: u64) -> String {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at_ms).unwrap_or(i64::MAX));
    at.map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

/// A page of calls.
#[derive(Serialize, ToSchema)]
pub(super) struct CallPage {
    /// The calls, newest first.
    pub(super) items: Vec<CallView>,
    /// The value of `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) next_cursor: Option<String>,
    /// How many calls match the filter, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) total: Option<u64>,
}

/// One call of the audit.
#[derive(Serialize, ToSchema)]
pub(super) struct CallView {
    id: String,
    seq: u64,
    status: &'static str,
    project: String,
    agent: String,
    key: String,
    surface: String,
    server: String,
    method: String,
    tool: String,
    schema_version: Option<String>,
    /// The user behind the agent.
    user: Option<String>,
    /// `asserted` or `trusted`, depending on the agent.
    user_trust: Option<&'static str>,
    session: Option<String>,
    run: Option<String>,
    step: Option<String>,
    /// The trace it belongs to, as 32 digits.
    trace: Option<String>,
    started: String,
    started_ms: u64,
    ended_ms: Option<u64>,
    duration_us: Option<u64>,
    code: Option<String>,
    error: Option<String>,
    input: Option<String>,
    input_bytes: u64,
    output: Option<String>,
    output_bytes: u64,
    repeats: u64,
    /// How long each phase took, in microseconds; absent for a phase that was not reached.
    phases: PhasesView,
    /// How often the call was sent to its server.
    attempts: Option<u32>,
    /// Whether the arguments passed the tool's schema: `passed`, `failed` or `skipped`.
    input_check: Option<&'static str>,
    /// Whether the result passed the tool's output schema: `passed`, `failed` or `skipped`.
    output_check: Option<&'static str>,
    /// Whose error it was: `transport`, `json_rpc`, `tool`, `schema`, `policy`, `caller` or `gateway`.
    error_kind: Option<&'static str>,
    /// The revision of the project's grants that decided.
    policy_revision: Option<u64>,
    /// The grant that decided.
    grant: Option<String>,
    /// The call that this one was made for, as the caller says.
    parent: Option<String>,
    /// Who said which user it is: `agent`, or `token` for the issuer of a token.
    user_source: Option<&'static str>,
}

/// How long the phases of a call took, in microseconds, in the order in which a call passes them.
#[derive(Serialize, ToSchema)]
struct PhasesView {
    /// Finding out who calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    auth_us: Option<u32>,
    /// Finding what is called, and whether a grant allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    grant_us: Option<u32>,
    /// Checking the arguments against the tool's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    schema_us: Option<u32>,
    /// Waiting for the server to be up and to have a lane free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    queue_us: Option<u32>,
    /// Waiting for the server's answer, all attempts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    server_us: Option<u32>,
    /// Checking the result against the output schema, and redacting it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    output_us: Option<u32>,
}

impl From<Phases> for PhasesView {
    fn from(phases: Phases) -> Self {
        Self {
            auth_us: phases.auth_us,
            grant_us: phases.grant_us,
            schema_us: phases.schema_us,
            queue_us: phases.queue_us,
            server_us: phases.server_us,
            output_us: phases.output_us,
        }
    }
}

impl CallView {
    /// Shows a row of the audit.
    pub(super) fn of(row: CallRow) -> Self {
        let details = row.details;
        Self {
            id: row.id.to_string(),
            seq: row.seq,
            status: row.status.as_str(),
            project: row.project,
            agent: row.agent,
            key: row.key,
            surface: row.surface,
            server: row.server,
            method: row.method,
            tool: row.tool,
            schema_version: row.schema_version,
            user_trust: row.user.as_ref().map(|_| row.user_trust.as_str()),
            user: row.user,
            session: row.session,
            run: row.run,
            step: row.step,
            trace: row.trace,
            started: rfc3339(row.started_ms),
            started_ms: row.started_ms,
            ended_ms: row.ended_ms,
            duration_us: row.duration_us,
            code: row.code,
            error: row.error,
            input: row.input,
            input_bytes: row.input_bytes,
            output: row.output,
            output_bytes: row.output_bytes,
            repeats: row.repeats,
            phases: details.phases.into(),
            attempts: details.attempts,
            input_check: details.input_check.map(Check::as_str),
            output_check: details.output_check.map(Check::as_str),
            error_kind: details.error_kind.map(ErrorKind::as_str),
            policy_revision: details.policy_revision,
            grant: details.grant,
            parent: details.parent,
            user_source: details.user_source.map(UserSource::as_str),
        }
    }
}

/// A tool as the caller may use it.
#[derive(Serialize, ToSchema)]
pub(super) struct ToolView {
    name: String,
    id: String,
    server: String,
    tool: String,
    version: String,
    definition: DefinitionView,
}

/// A tool in MCP format, under its exposed name.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DefinitionView {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output_schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    annotations: Option<Box<RawValue>>,
}

impl ToolView {
    /// Shows a tool.
    pub(super) fn of(tool: ListedTool) -> Self {
        let raw = |raw: RawBuf| RawValue::from_string(raw.into_text()).ok();
        Self {
            name: tool.name.clone(),
            id: tool.identity(),
            server: tool.server.to_string(),
            tool: tool.tool,
            version: tool.version,
            definition: DefinitionView {
                name: tool.name,
                title: tool.title,
                description: tool.description,
                input_schema: raw(tool.input_schema),
                output_schema: tool.output_schema.and_then(raw),
                annotations: tool.annotations.and_then(raw),
            },
        }
    }
}

/// A log line of a server.
#[derive(Serialize, ToSchema)]
pub(super) struct LogLineView {
    /// Its number, which only grows; an unfinished line has none.
    number: Option<u64>,
    at: String,
    at_ms: u64,
    stream: &'static str,
    text: String,
}

impl LogLineView {
    /// Shows a line.
    pub(super) fn of(line: &LogLine) -> Self {
        Self {
            number: line.number,
            at: rfc3339(line.at_ms),
            at_ms: line.at_ms,
            stream: match line.stream {
                LogStream::Stderr => "stderr",
                LogStream::Stdout => "stdout",
                LogStream::Message => "message",
                LogStream::Gantry => "gantry",
            },
            text: line.text.clone(),
        }
    }
}

/// Something that happened to a server.
#[derive(Serialize, ToSchema)]
pub(super) struct EventView {
    at: String,
    at_ms: u64,
    server: String,
    kind: &'static str,
    detail: String,
}

impl EventView {
    /// Shows an event.
    pub(super) fn of(event: &ServerEvent) -> Self {
        Self {
            at: rfc3339(event.at_ms),
            at_ms: event.at_ms,
            server: event.server.to_string(),
            kind: event.kind.as_str(),
            detail: event.detail.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_for_people() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_700_000_000_120), "2023-11-14T22:13:20.120Z");
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(u64::MAX), "");
    }
}
