//! One call or administrative act as a SIEM gets it: a list of named values, which syslog sends as
//! JSON and OTLP as attributes. Has no arguments and no results. Entry points: [`Record::of_call`],
//! [`Record::of_act`].

use gantry_model::hex::unhex;
use gantry_model::trace::span_of;
use gantry_store::{ActOutcome, ActRow, CallRow, CallStatus, Check, ErrorKind, UserSource};

/// How severe an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Info,
    Notice,
    Warning,
    Error,
}

impl Severity {
    /// Returns the code of RFC 5424.
    pub(super) const fn syslog(self) -> u8 {
        match self {
            Self::Info => 6,
            Self::Notice => 5,
            Self::Warning => 4,
            Self::Error => 3,
        }
    }

    /// Returns the number of OpenTelemetry.
    pub(super) const fn otlp(self) -> u64 {
        match self {
            Self::Info => 9,
            Self::Notice => 10,
            Self::Warning => 13,
            Self::Error => 17,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Notice => "NOTICE",
            Self::Warning => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Text(String),
    Number(i64),
    Time(u64),
    /// A text that is JSON.
    Json(String),
}

/// One event.
#[derive(Debug)]
pub(super) struct Record {
    /// `call` or `act`.
    pub(super) kind: &'static str,
    /// When it happened.
    pub(super) at_ms: u64,
    pub(super) severity: Severity,
    /// A summary for people.
    pub(super) summary: String,
    /// The values that are there.
    pub(super) fields: Vec<(&'static str, Field)>,
    pub(super) trace: Option<[u8; 16]>,
    pub(super) span: Option<[u8; 8]>,
}

impl Record {
    /// Returns which call or act it is, for messages.
    pub(super) fn name(&self) -> String {
        let id = self.fields.iter().find(|(name, _)| *name == "id");
        match id.map(|(_, id)| id) {
            Some(Field::Text(id)) => id.clone(),
            Some(Field::Number(id)) => format!("the act {id}"),
            Some(Field::Time(_) | Field::Json(_)) | None => self.summary.clone(),
        }
    }
}

/// Collects the values that are there.
struct Fields(Vec<(&'static str, Field)>);

impl Fields {
    fn text(&mut self, name: &'static str, text: Option<&str>) {
        let text = text.filter(|text| !text.is_empty());
        self.0
            .extend(text.map(|text| (name, Field::Text(text.to_owned()))));
    }

    fn number(&mut self, name: &'static str, number: Option<u64>) {
        let number = number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        self.0
            .extend(number.map(|number| (name, Field::Number(number))));
    }

    fn time(&mut self, name: &'static str, at_ms: Option<u64>) {
        self.0.extend(at_ms.map(|at_ms| (name, Field::Time(at_ms))));
    }

    fn json(&mut self, name: &'static str, text: Option<&str>) {
        self.0
            .extend(text.map(|text| (name, Field::Json(text.to_owned()))));
    }
}

impl Record {
    /// Makes the event of a call that has ended.
    pub(super) fn of_call(gateway: &str, row: &CallRow) -> Self {
        let id = row.id.to_string();
        let mut fields = Fields(Vec::with_capacity(40));
        fields.text("id", Some(&id));
        fields.text("status", Some(row.status.as_str()));
        fields.text("gateway", Some(gateway));
        fields.text("project", Some(&row.project));
        fields.text("agent", Some(&row.agent));
        fields.text("key", Some(&row.key));
        fields.text("user", row.user.as_deref());
        let trust = row.user.as_ref().map(|_| row.user_trust.as_str());
        fields.text("user_trust", trust);
        let source = row.details.user_source.map(UserSource::as_str);
        fields.text("user_source", source);
        fields.text("session", row.session.as_deref());
        fields.text("run", row.run.as_deref());
        fields.text("step", row.step.as_deref());
        fields.text("trace", row.trace.as_deref());
        fields.text("parent", row.details.parent.as_deref());
        fields.text("surface", Some(&row.surface));
        fields.text("server", Some(&row.server));
        let server_id = row.server_id.map(|id| id.to_string());
        fields.text("server_id", server_id.as_deref());
        fields.text("method", Some(&row.method));
        fields.text("tool", Some(&row.tool));
        fields.text("schema_version", row.schema_version.as_deref());
        fields.number("policy_revision", row.details.policy_revision);
        fields.text("grant", row.details.grant.as_deref());
        let (input, output) = (row.details.input_check, row.details.output_check);
        fields.text("input_check", input.map(Check::as_str));
        fields.text("output_check", output.map(Check::as_str));
        let kind = row.details.error_kind.map(ErrorKind::as_str);
        fields.text("error_kind", kind);
        fields.text("code", row.code.as_deref());
        fields.text("error", row.error.as_deref());
        fields.time("started", Some(row.started_ms));
        fields.time("ended", row.ended_ms);
        fields.number("duration_us", row.duration_us);
        for (name, us) in row.details.phases.in_order() {
            fields.number(phase(name), us.map(u64::from));
        }
        fields.number("attempts", row.details.attempts.map(u64::from));
        fields.number("repeats", Some(row.repeats).filter(|count| *count > 1));
        fields.number("input_bytes", Some(row.input_bytes));
        fields.number("output_bytes", Some(row.output_bytes));
        let what = match row.server.is_empty() {
            true => row.tool.clone(),
            false => format!("{}:{}", row.server, row.tool),
        };
        Self {
            kind: "call",
            at_ms: row.ended_ms.unwrap_or(row.started_ms),
            severity: match row.status {
                CallStatus::Ok | CallStatus::Running => Severity::Info,
                CallStatus::Cancelled => Severity::Notice,
                CallStatus::Error | CallStatus::Timeout | CallStatus::Refused => Severity::Warning,
                CallStatus::Unknown => Severity::Error,
            },
            summary: format!("{} {what} by {}: {}", row.method, row.agent, row.status),
            fields: fields.0,
            trace: row.trace.as_deref().and_then(bytes),
            span: Some(span_of(row.id).to_be_bytes()),
        }
    }

    /// Makes the event of an administrative act.
    pub(super) fn of_act(gateway: &str, row: &ActRow) -> Self {
        let mut fields = Fields(Vec::with_capacity(20));
        fields.number("id", Some(row.id));
        fields.text("act", Some(&row.act));
        fields.text("outcome", Some(row.outcome.as_str()));
        fields.text("gateway", Some(gateway));
        fields.text("project", Some(&row.project));
        fields.text("actor", Some(&row.actor));
        fields.text("key", Some(&row.key));
        fields.text("address", row.address.as_deref());
        fields.text("via", Some(&row.via));
        fields.text("target", Some(&row.target));
        fields.text("detail", Some(&row.detail));
        fields.text("code", row.code.as_deref());
        fields.time("started", Some(row.at_ms));
        fields.time("ended", row.ended_ms);
        fields.number("repeats", Some(row.repeats).filter(|count| *count > 1));
        fields.json("before", row.before.as_deref());
        fields.json("after", row.after.as_deref());
        Self {
            kind: "act",
            at_ms: row.ended_ms.unwrap_or(row.at_ms),
            severity: match row.outcome {
                ActOutcome::Done => Severity::Notice,
                ActOutcome::Refused => Severity::Warning,
                ActOutcome::Failed | ActOutcome::Unfinished => Severity::Error,
            },
            summary: format!(
                "{} {} by {}: {}",
                row.act, row.target, row.actor, row.outcome
            ),
            fields: fields.0,
            trace: None,
            span: None,
        }
    }
}

/// Returns the name that the duration of a phase has in the audit.
fn phase(name: &str) -> &'static str {
    match name {
        "auth" => "auth_us",
        "grant" => "grant_us",
        "schema" => "schema_us",
        "queue" => "queue_us",
        "server" => "server_us",
        _ => "output_us",
    }
}

fn bytes(digits: &str) -> Option<[u8; 16]> {
    unhex(digits)?.try_into().ok()
}
