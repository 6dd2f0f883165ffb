//! Export of the audit log, `/api/v1/calls/export`, written page by page while it is read.
//!
//! Holds at most one page in memory; a slow reader blocks no other request.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gantry_engine::{CallFilter, CallRow, Check, EngineError, Project, UserSource};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{CallsAsked, ErrorKind, Status};
use crate::api::query::Asked;
use crate::api::views::CallView;
use crate::api::{By, In, Who};
use crate::http::error::Problem;

/// Rows that are read at once.
const PAGE: u32 = 500;

/// Which calls are exported, and how they are written.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct ExportAsked {
    /// `jsonl`: a JSON object per line; `csv`: a table with a header.
    #[serde(default)]
    #[param(inline)]
    format: Format,
    /// Only calls of this agent.
    agent: Option<String>,
    /// Only calls to this server.
    server: Option<String>,
    /// Only calls of this tool, by the server's own name for it.
    tool: Option<String>,
    /// Only calls with this status.
    #[param(inline)]
    status: Option<Status>,
    /// Only calls that ended with this error code.
    code: Option<String>,
    /// Only calls of this run.
    run: Option<String>,
    /// Only calls of this conversation.
    session: Option<String>,
    /// Only calls of this trace: its 32 digits, or a `traceparent`.
    trace: Option<String>,
    /// Only calls on behalf of this user.
    user: Option<String>,
    /// Only calls that failed like this.
    #[param(inline)]
    error_kind: Option<ErrorKind>,
    /// Only calls received at or after this time: RFC 3339, or milliseconds since 1970.
    since: Option<String>,
    /// Only calls received before this time: RFC 3339, or milliseconds since 1970.
    until: Option<String>,
}

/// How an export is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::api) enum Format {
    /// A JSON object per line.
    #[default]
    Jsonl,
    /// A table with a header. A cell that a spreadsheet would execute is prefixed with `'`.
    Csv,
}

/// Exports all calls that match the filters, newest first.
#[utoipa::path(get, path = "/api/v1/calls/export", tag = "calls", params(ExportAsked), responses(
    (status = 200, description = "The calls, one per line.", content(
        (CallView = "application/jsonl"),
        (String = "text/csv"),
    )),
))]
pub(in crate::api) async fn export(
    In(project): In,
    Who(caller): Who,
    By(actor): By,
    Asked(asked): Asked<ExportAsked>,
) -> Result<Response, Problem> {
    let format = asked.format;
    if caller.kind.is_admin() {
        // Who reads what others called is recorded.
        let filter = serde_json::json!({
            "agent": asked.agent, "server": asked.server, "tool": asked.tool, "user": asked.user,
            "status": asked.status, "code": asked.code, "error_kind": asked.error_kind,
            "run": asked.run, "session": asked.session, "trace": asked.trace,
            "since": asked.since, "until": asked.until,
        });
        project.record_export(&actor, filter).await?;
    }
    let asked = CallsAsked {
        agent: asked.agent,
        server: asked.server,
        tool: asked.tool,
        status: asked.status,
        code: asked.code,
        run: asked.run,
        session: asked.session,
        trace: asked.trace,
        user: asked.user,
        error_kind: asked.error_kind,
        since: asked.since,
        until: asked.until,
        cursor: None,
        limit: Some(PAGE),
        count: false,
    };
    let mut writing = Writing {
        project,
        filter: Some(asked.filter(&caller)?),
        format,
    };
    // The first page is read before the response starts, so that a failure has a status.
    let mut first = writing.page().await?.unwrap_or_default();
    if format == Format::Csv {
        first.splice(
            0..0,
            COLUMNS.join(",").into_bytes().into_iter().chain(*b"\r\n"),
        );
    }
    let rest = stream::unfold(writing, |mut writing| async move {
        match writing.page().await {
            Ok(page) => Some((Ok(Bytes::from(page?)), writing)),
            Err(error) => {
                writing.filter = None;
                Some((Err(error), writing))
            }
        }
    });
    let first = stream::once(async { Ok(Bytes::from(first)) });
    let (kind, name) = match format {
        Format::Jsonl => ("application/jsonl", "attachment; filename=\"calls.jsonl\""),
        Format::Csv => (
            "text/csv; charset=utf-8",
            "attachment; filename=\"calls.csv\"",
        ),
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CONTENT_DISPOSITION, HeaderValue::from_static(name)),
    ];
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    Ok((StatusCode::OK, headers, body).into_response())
}

/// An export in progress.
struct Writing {
    project: Arc<Project>,
    /// The next page's cursor; none after the last.
    filter: Option<CallFilter>,
    format: Format,
}

impl Writing {
    /// Returns the next page as text; none after the last.
    async fn page(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        let Some(filter) = &mut self.filter else {
            return Ok(None);
        };
        let rows = self.project.calls(filter).await?;
        filter.before = rows.last().map(|row| row.id);
        if rows.len() < PAGE as usize {
            self.filter = None;
        }
        let mut text = Vec::new();
        for row in rows {
            match self.format {
                Format::Jsonl => {
                    serde_json::to_writer(&mut text, &CallView::of(row))
                        .expect("views are always JSON");
                    text.push(b'\n');
                }
                Format::Csv => write_row(&mut text, &row),
            }
        }
        Ok(Some(text))
    }
}

const COLUMNS: [&str; 41] = [
    "id",
    "started_ms",
    "ended_ms",
    "duration_us",
    "status",
    "code",
    "error",
    "project",
    "agent",
    "key",
    "surface",
    "server",
    "method",
    "tool",
    "user",
    "user_trust",
    "session",
    "run",
    "step",
    "trace",
    "input",
    "output",
    "repeats",
    "server_id",
    "schema_version",
    "input_bytes",
    "output_bytes",
    "attempts",
    "auth_us",
    "grant_us",
    "schema_us",
    "queue_us",
    "server_us",
    "output_us",
    "input_check",
    "output_check",
    "error_kind",
    "policy_revision",
    "grant",
    "parent",
    "user_source",
];

fn write_row(text: &mut Vec<u8>, row: &CallRow) {
    let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
    let (id, started) = (row.id.to_string(), row.started_ms.to_string());
    let (ended, duration) = (number(row.ended_ms), number(row.duration_us));
    let repeats = row.repeats.to_string();
    let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
    let details = &row.details;
    let server_id = row.server_id.map(|id| id.to_string()).unwrap_or_default();
    let (input_bytes, output_bytes) = (row.input_bytes.to_string(), row.output_bytes.to_string());
    let attempts = number(details.attempts.map(u64::from));
    let phases = details.phases.in_order();
    let [auth, grant, schema, queue, server, output] =
        phases.map(|(_, us)| number(us.map(u64::from)));
    let revision = number(details.policy_revision);
    let cells: [&str; 41] = [
        &id,
        &started,
        &ended,
        &duration,
        row.status.as_str(),
        &or_empty(&row.code),
        &or_empty(&row.error),
        &row.project,
        &row.agent,
        &row.key,
        &row.surface,
        &row.server,
        &row.method,
        &row.tool,
        &or_empty(&row.user),
        row.user.as_ref().map_or("", |_| row.user_trust.as_str()),
        &or_empty(&row.session),
        &or_empty(&row.run),
        &or_empty(&row.step),
        &or_empty(&row.trace),
        &or_empty(&row.input),
        &or_empty(&row.output),
        &repeats,
        &server_id,
        &or_empty(&row.schema_version),
        &input_bytes,
        &output_bytes,
        &attempts,
        &auth,
        &grant,
        &schema,
        &queue,
        &server,
        &output,
        details.input_check.map_or("", Check::as_str),
        details.output_check.map_or("", Check::as_str),
        details
            .error_kind
            .map_or("", gantry_engine::ErrorKind::as_str),
        &revision,
        &or_empty(&details.grant),
        &or_empty(&details.parent),
        details.user_source.map_or("", UserSource::as_str),
    ];
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        write_cell(text, cell);
    }
    text.extend_from_slice(b"\r\n");
}

/// Writes a cell of RFC 4180; formulas are neutralised, also those behind spaces, which some
/// programs remove, and in full width.
fn write_cell(text: &mut Vec<u8>, cell: &str) {
    let begins = |c: char| matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠');
    let is_formula = cell.starts_with(['\t', '\r', '\n']) || cell.trim_start().starts_with(begins);
    let guard = if is_formula { "'" } else { "" };
    if is_formula || cell.contains(['"', ',', '\r', '\n']) {
        text.extend_from_slice(format!("\"{guard}{}\"", cell.replace('"', "\"\"")).as_bytes());
    } else {
        text.extend_from_slice(cell.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_run() {
        let cell = |text: &str| {
            let mut out = Vec::new();
            write_cell(&mut out, text);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(cell("plain"), "plain");
        assert_eq!(cell("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(cell("=1+1"), "\"'=1+1\"");
        assert_eq!(cell(" =1+1"), "\"' =1+1\"");
        assert_eq!(cell("\u{a0}@x"), "\"'\u{a0}@x\"");
        assert_eq!(cell("＝1+1"), "\"'＝1+1\"");
    }
}
