//! The audit log, `/api/v1/calls`. An administrator sees every call, an agent its own. Outcomes of
//! asynchronous calls are fetched here, and such calls are cancelled here.

pub(super) mod export;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_engine::CallFilter;
use gantry_model::caller::{Caller, KeyKind};
use gantry_model::id::CallId;
use gantry_model::trace;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::body::{document, json};
use super::jobs::Outcome;
use super::query::{Asked, bad, bad_cursor, limit};
use super::views::{CallPage, CallView};
use super::{Api, By, In, Named, Who};
use crate::http::error::Problem;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/calls", get(list))
        .route("/api/v1/calls/export", get(export::export))
        .route("/api/v1/calls/{call}", get(one).delete(take_back))
}

/// The filter of calls.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CallsAsked {
    /// Only calls of this agent; an agent's key always sees only its own.
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
    #[serde(alias = "since_ms")]
    since: Option<String>,
    /// Only calls received before this time: RFC 3339, or milliseconds since 1970.
    #[serde(alias = "until_ms")]
    until: Option<String>,
    /// `next_cursor` of the page before.
    #[serde(alias = "before")]
    cursor: Option<String>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// Whether to count all matching calls.
    #[serde(default)]
    #[param(default = false)]
    count: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// It was sent and is not answered yet.
    Running,
    /// It was answered.
    Ok,
    /// It was answered with an error, or could not be sent.
    Error,
    /// It got no answer in time.
    Timeout,
    /// The caller cancelled it.
    Cancelled,
    /// It was never sent.
    Refused,
    /// It reached a server and was interrupted.
    Unknown,
}

/// Whose error ended a call.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ErrorKind {
    /// The connection to the server.
    Transport,
    /// The server answered with a JSON-RPC error.
    JsonRpc,
    /// The tool's own result says that it failed.
    Tool,
    /// Arguments or result do not fit their schema.
    Schema,
    /// The caller may not do that.
    Policy,
    /// The caller cancelled the call.
    Caller,
    /// The gateway itself.
    Gateway,
}

impl From<ErrorKind> for gantry_engine::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Transport => Self::Transport,
            ErrorKind::JsonRpc => Self::JsonRpc,
            ErrorKind::Tool => Self::Tool,
            ErrorKind::Schema => Self::Schema,
            ErrorKind::Policy => Self::Policy,
            ErrorKind::Caller => Self::Caller,
            ErrorKind::Gateway => Self::Gateway,
        }
    }
}

impl From<Status> for gantry_engine::CallStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Running => Self::Running,
            Status::Ok => Self::Ok,
            Status::Error => Self::Error,
            Status::Timeout => Self::Timeout,
            Status::Cancelled => Self::Cancelled,
            Status::Refused => Self::Refused,
            Status::Unknown => Self::Unknown,
        }
    }
}

impl CallsAsked {
    fn filter(self, caller: &Caller) -> Result<CallFilter, Problem> {
        let before = self
            .cursor
            .map(|text| text.parse().map_err(|_| bad_cursor(&text)));
        let agent = match caller.kind {
            KeyKind::Admin(_) => self.agent,
            KeyKind::Agent => Some(caller.agent.to_string()),
        };
        Ok(CallFilter {
            project: None,
            agent,
            server: self.server,
            tool: self.tool,
            status: self.status.map(Into::into),
            code: self.code,
            run: self.run,
            session: self.session,
            trace: self.trace.map(|text| trace::asked_for(&text).into_owned()),
            user: self.user,
            error_kind: self.error_kind.map(Into::into),
            since_ms: self.since.map(|text| time("since", &text)).transpose()?,
            until_ms: self.until.map(|text| time("until", &text)).transpose()?,
            before: before.transpose()?,
            limit: limit(self.limit, 100)?,
        })
    }
}

/// Reads a time: RFC 3339, or milliseconds since 1970.
pub(super) fn time(field: &str, text: &str) -> Result<u64, Problem> {
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    let at: Option<jiff::Timestamp> = text.parse().ok();
    at.and_then(|at| u64::try_from(at.as_millisecond()).ok())
        .ok_or_else(|| bad(field, text).with_hint("write `2026-11-16T09:30:00Z`, or milliseconds"))
}

/// Lists calls, newest first. Every answered call is included.
#[utoipa::path(get, path = "/api/v1/calls", tag = "calls", params(CallsAsked), responses(
    (status = 200, description = "The calls.", body = CallPage),
))]
pub(super) async fn list(
    In(project): In,
    Who(caller): Who,
    Asked(asked): Asked<CallsAsked>,
) -> Result<Response, Problem> {
    let wants_count = asked.count;
    let filter = asked.filter(&caller)?;
    let rows = project.calls(&filter).await?;
    let is_full = rows.len() >= filter.limit as usize;
    let last = rows.last().filter(|_| is_full);
    let next_cursor = last.map(|row| row.id.to_string());
    let total = match wants_count {
        true => Some(project.count_calls(&filter).await?),
        false => None,
    };
    let items = rows.into_iter().map(CallView::of).collect();
    let page = CallPage {
        items,
        next_cursor,
        total,
    };
    Ok(json(StatusCode::OK, &page))
}

fn unknown() -> Problem {
    Problem::new("call.unknown").with_detail("no such call")
}

/// An audit row, with the response if it is still kept.
#[derive(Serialize)]
struct Recorded {
    #[serde(flatten)]
    row: CallView,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Box<RawValue>>,
}

/// Shows one call. A call made with `Prefer: respond-async` is 202 while it runs, and for ten
/// minutes after its end exactly the call's own response; later, also after a restart, its audit
/// row: `status`, `code` and times, without the result. Other keys always get the audit row;
/// administrators also `answer`, while it is kept.
#[utoipa::path(get, path = "/api/v1/calls/{call}", tag = "calls",
    params(("call" = String, Path, description = "A call's id, from the record or from the answer to `Prefer: respond-async`.")),
    responses(
    (status = 200, description = "The recorded call, or the outcome of an asynchronous one.", body = Object),
    (status = 202, description = "The asynchronous call has not ended.", body = super::call::Accepted),
    (status = 404, description = "`call.unknown`: no call of that id that the key may see."),
))]
pub(super) async fn one(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    By(actor): By,
    Named(call): Named,
) -> Result<Response, Problem> {
    let id: CallId = call.parse().map_err(|_| unknown())?;
    let is_maker = api.jobs.is_maker(&caller, id);
    let outcome = api.jobs.get(&caller, id);
    let kept = match outcome {
        Some(Outcome::Running) if is_maker => {
            let running = super::call::Accepted::running(id);
            return Ok(json(StatusCode::ACCEPTED, &running));
        }
        Some(Outcome::Done(status, body)) if is_maker => {
            let mut response = document(status, body);
            if status.is_client_error() || status.is_server_error() {
                response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
            }
            return Ok(response);
        }
        Some(Outcome::Done(_, body)) => std::str::from_utf8(&body).ok().map(str::to_owned),
        Some(Outcome::Running) | None => None,
    };
    let row = match caller.kind {
        // Who reads what others called is recorded.
        KeyKind::Admin(_) => project.read_call(&actor, id, kept.is_some()).await?,
        KeyKind::Agent => project.call(id).await?,
    };
    let row = row.ok_or_else(unknown)?;
    let is_own = row.agent == caller.agent.as_str();
    match caller.kind {
        KeyKind::Agent if !is_own => Err(unknown()), // fault T1
        KeyKind::Admin(_) | KeyKind::Agent => {
            let answer = kept.and_then(|text| RawValue::from_string(text).ok());
            let row = CallView::of(row);
            Ok(json(StatusCode::OK, &Recorded { row, answer }))
        }
    }
}

/// Cancels a call made with `Prefer: respond-async`. While it runs, the server is notified and the
/// audit log says `cancelled`; after its end, its outcome is discarded and the audit row stays.
#[utoipa::path(delete, path = "/api/v1/calls/{call}", tag = "calls",
    params(("call" = String, Path, description = "The id from the answer to `Prefer: respond-async`.")), responses(
    (status = 204, description = "The call was cancelled, or its outcome discarded."),
    (status = 404, description = "`call.unknown`: this key has no asynchronous call of that id, or its outcome is no longer kept."),
))]
pub(super) async fn take_back(
    State(api): State<Api>,
    Who(caller): Who,
    Named(call): Named,
) -> Result<Response, Problem> {
    let id = call.parse().ok();
    match id.is_some_and(|id| api.jobs.take_back(&caller, id)) {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(unknown()
            .with_hint("only calls made with `Prefer: respond-async` can be cancelled here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(time("since", "1700000000123").ok(), Some(1_700_000_000_123));
        assert_eq!(
            time("since", "2023-11-14T22:13:20.123Z").ok(),
            Some(1_700_000_000_123)
        );
        for bad in ["", "yesterday", "-1", "1969-01-01T00:00:00Z"] {
            assert_eq!(time("since", bad).err().unwrap().code(), "request.query");
        }
    }
}
