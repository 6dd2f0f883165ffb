//! Export of the audit log, `/api/v1/calls/export`, written page by page while it is read.
//!
//! Holds at most one page in memory; a slow reader blocks no other request.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gantry_engine::{CallFilter, CallRow, EngineError, Project};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
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
                Format::Csv => write_row(&mut text, row),
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

/// Writes the members of a call that are columns; each phase is a column of its own.
fn write_row(text: &mut Vec<u8>, row: CallRow) {
    let server_id = row.server_id.map(|id| id.to_string());
    let mut call = serde_json::to_value(CallView::of(row)).expect("views are always JSON");
    call["server_id"] = server_id.into();
    for (place, column) in COLUMNS.into_iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        match call.get(column).or_else(|| call["phases"].get(column)) {
            None | Some(Value::Null) => {}
            Some(Value::String(cell)) => write_cell(text, cell),
            Some(cell) => write_cell(text, &cell.to_string()),
        }
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
