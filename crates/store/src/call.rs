//! The rows of the audit (`kb.mcp_tool_call_log`), and their filter.
//!
//! One row per call, whatever its outcome; a row may own its texts or borrow them from a journal
//! record. Nothing here knows SQL.

mod details;

use std::fmt;
use std::str::FromStr;

use gantry_model::caller::UserTrust;
use gantry_model::id::{CallId, ServerId};

pub use details::{CallDetails, Check, DetailError, ErrorKind, Phases, UserSource};

/// One call, running or ended, with owned texts or, as `CallRow<&str>`, borrowed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRow<T = String> {
    /// Its id, which begins with the time of arrival.
    // Invariant: that time is within ten minutes of `started_ms`; searches by time rely on it.
    pub id: CallId,
    /// Its number in the journal.
    pub seq: u64,
    /// The caller's project.
    pub project: T,
    /// The caller's agent.
    pub agent: T,
    /// The caller's key, by its id.
    pub key: T,
    /// The person behind the agent.
    pub user: Option<T>,
    /// Whether that is trusted, or only the agent's claim.
    pub user_trust: UserTrust,
    /// The conversation.
    pub session: Option<T>,
    /// The agent's run.
    pub run: Option<T>,
    /// The step within the run.
    pub step: Option<T>,
    /// The trace the call belongs to, as 32 hex digits.
    pub trace: Option<T>,
    /// The caller's span in that trace, for spans that are made of the row as it comes from the journal: the
    /// database does not keep it.
    pub parent_span: Option<T>,
    /// Its surface: `mcp`, `rest` or `library`; `cli` in rows of earlier versions.
    pub surface: T,
    /// The name of its server, which may have been removed.
    pub server: T,
    /// The id of its server; `None` if there was no server of that name.
    pub server_id: Option<ServerId>,
    /// The MCP method.
    pub method: T,
    /// The tool, the prompt's name or the resource's URI; may be empty.
    pub tool: T,
    /// The version of the tool's schema that the call was checked against.
    pub schema_version: Option<T>,
    /// When it arrived.
    pub started_ms: u64,
    /// When it ended, if it did.
    pub ended_ms: Option<u64>,
    /// How long it took.
    pub duration_us: Option<u64>,
    /// Its status.
    pub status: CallStatus,
    /// The code of its error.
    pub code: Option<T>,
    /// The text of its error.
    pub error: Option<T>,
    /// Its arguments, redacted and truncated.
    pub input: Option<T>,
    /// The full length of its arguments.
    pub input_bytes: u64,
    /// Its result, redacted and truncated.
    pub output: Option<T>,
    /// The full length of its result.
    pub output_bytes: u64,
    /// How many refusals are counted in this row; normally 1.
    pub repeats: u64,
    /// Where the time went, and what was decided on the way.
    pub details: CallDetails<T>,
}

impl<T> CallRow<T> {
    /// Returns the same row with its texts in another form.
    fn with_texts<'a, U>(&'a self, text: impl Fn(&'a T) -> U) -> CallRow<U> {
        CallRow {
            id: self.id,
            seq: self.seq,
            project: text(&self.project),
            agent: text(&self.agent),
            key: text(&self.key),
            user: self.user.as_ref().map(&text),
            user_trust: self.user_trust,
            session: self.session.as_ref().map(&text),
            run: self.run.as_ref().map(&text),
            step: self.step.as_ref().map(&text),
            trace: self.trace.as_ref().map(&text),
            parent_span: self.parent_span.as_ref().map(&text),
            surface: text(&self.surface),
            server: text(&self.server),
            server_id: self.server_id,
            method: text(&self.method),
            tool: text(&self.tool),
            schema_version: self.schema_version.as_ref().map(&text),
            started_ms: self.started_ms,
            ended_ms: self.ended_ms,
            duration_us: self.duration_us,
            status: self.status,
            code: self.code.as_ref().map(&text),
            error: self.error.as_ref().map(&text),
            input: self.input.as_ref().map(&text),
            input_bytes: self.input_bytes,
            output: self.output.as_ref().map(&text),
            output_bytes: self.output_bytes,
            repeats: self.repeats,
            details: self.details.with_texts(&text),
        }
    }
}

impl CallRow {
    /// Returns the row with its texts borrowed.
    pub fn borrowed(&self) -> CallRow<&str> {
        self.with_texts(String::as_str)
    }
}

impl CallRow<&str> {
    /// Returns the row of a call of which nothing is known but its id.
    pub fn of_id(id: CallId) -> Self {
        Self {
            id,
            seq: 0,
            project: "",
            agent: "",
            key: "",
            user: None,
            user_trust: UserTrust::Asserted,
            session: None,
            run: None,
            step: None,
            trace: None,
            parent_span: None,
            surface: "",
            server: "",
            server_id: None,
            method: "",
            tool: "",
            schema_version: None,
            started_ms: id.unix_ms(),
            ended_ms: None,
            duration_us: None,
            status: CallStatus::Unknown,
            code: None,
            error: None,
            input: None,
            input_bytes: 0,
            output: None,
            output_bytes: 0,
            repeats: 1,
            details: CallDetails::default(),
        }
    }

    /// Returns the row with owned texts.
    pub fn owned(&self) -> CallRow {
        self.with_texts(|text| (*text).to_owned())
    }
}

/// The status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallStatus {
    /// It was sent and not answered yet.
    Running,
    /// It was answered.
    Ok,
    /// It was answered with an error, or could not be sent.
    Error,
    /// It timed out.
    Timeout,
    /// The caller cancelled it.
    Cancelled,
    /// It was never sent: no grant, over a limit, or invalid arguments.
    Refused,
    /// It reached a server and was cut off; it is unknown whether it took effect.
    Unknown,
}

impl CallStatus {
    const ALL: [Self; 7] = [
        Self::Running,
        Self::Ok,
        Self::Error,
        Self::Timeout,
        Self::Cancelled,
        Self::Refused,
        Self::Unknown,
    ];

    /// Returns the status as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for CallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of an unknown status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a call status")]
pub struct StatusError(String);

impl FromStr for CallStatus {
    type Err = StatusError;

    fn from_str(text: &str) -> Result<Self, StatusError> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| StatusError(text.chars().take(32).collect()))
    }
}

/// The size of the audit in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallUsage {
    /// How many calls there are.
    pub rows: u64,
    /// When the oldest arrived.
    pub oldest_ms: Option<u64>,
    /// When the newest arrived.
    pub newest_ms: Option<u64>,
    /// The size of the database, including its log.
    pub database_bytes: u64,
}

/// How far the journal is imported into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalPosition {
    /// The journal's segment.
    pub segment: u64,
    /// The first byte of that segment that is not imported.
    pub offset: u64,
}

/// A filter of calls; members that are `None` do not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFilter {
    /// Only calls of this project.
    pub project: Option<String>,
    /// Only calls of this agent.
    pub agent: Option<String>,
    /// Only calls to this server.
    pub server: Option<String>,
    /// Only calls of this tool.
    pub tool: Option<String>,
    /// Only calls with this status.
    pub status: Option<CallStatus>,
    /// Only calls with this error code.
    pub code: Option<String>,
    /// Only calls of this run.
    pub run: Option<String>,
    /// Only calls of this conversation.
    pub session: Option<String>,
    /// Only calls of this trace.
    pub trace: Option<String>,
    /// Only calls on behalf of this user.
    pub user: Option<String>,
    /// Only calls that ended with this kind of error.
    pub error_kind: Option<ErrorKind>,
    /// Only calls that came in at this time or later.
    pub since_ms: Option<u64>,
    /// Only calls that came in before this time.
    pub until_ms: Option<u64>,
    /// Only calls older than this one: the last row of the previous page.
    pub before: Option<CallId>,
    /// At most so many rows, newest first; counting ignores it.
    pub limit: u32,
}

impl Default for CallFilter {
    /// Returns the filter for the newest hundred calls.
    fn default() -> Self {
        Self {
            project: None,
            agent: None,
            server: None,
            tool: None,
            status: None,
            code: None,
            run: None,
            session: None,
            trace: None,
            user: None,
            error_kind: None,
            since_ms: None,
            until_ms: None,
            before: None,
            limit: 100,
        }
    }
}
