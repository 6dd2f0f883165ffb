//! A server's response on its way back: parsed as far as needed, checked against the output schema,
//! and redacted. Entry point: [`Reply::read`].

use std::borrow::Cow;

use bytes::Bytes;
use gantry_model::era::{Era, meta, shape};
use gantry_model::hidden;
use gantry_model::id::AgentName;
use gantry_model::jsonrpc::{Edit, ErrorBody, Raw, RawBuf};
use gantry_model::mcp::{Method, cut_result};
use gantry_model::secret::Redactor;
use gantry_model::spec::OutputCheck;
use gantry_store::Check;
use serde_json::{Value, json};

use super::record::Output;
use super::target::Target;
use crate::answers::{AnswerBudget, AnswerPermit};
use crate::audit::Measured;
use crate::error::{CallError, Issue};
use crate::guard;
use crate::request::Reply;
use crate::server::handle::ServerHandle;
use crate::server::handshake::{readable, trusted};
use crate::server::pending::{Answer, Failure};
use crate::transport::http::HttpError;

impl Reply {
    /// Creates a reply from a result in memory.
    pub(super) fn of_ours(result: Bytes) -> Self {
        Self {
            call: None,
            result,
            upstream: None,
            is_error: false,
            is_odd: false,
            warning: None,
            permit: AnswerPermit::default(),
        }
    }

    /// Reads a server's response.
    pub(super) fn read(
        answer: Answer,
        server: &ServerHandle,
        method: Option<Method>,
        era: Option<Era>,
    ) -> Result<Self, CallError> {
        let (result, permit) = match answer {
            Answer::Result(result) => result.into_parts(),
            Answer::Error(error) => {
                let method = method.filter(|_| era == Some(Era::Stateless));
                return Err(rpc_error(server, method, &error));
            }
            Answer::Failed(failure) => return Err(failed(server, failure)),
        };
        let protocol = |detail: String| CallError::Protocol {
            server: server.name.clone(),
            detail,
        };
        let raw = readable(&result);
        if !raw.is_object() {
            return Err(protocol("its result is not an object".into()));
        }
        let (mut is_error, mut is_odd) = (false, false);
        let mut own = Edit::new(raw);
        for member in raw.members() {
            if member.is("isError") {
                is_error = member.value.boolean() == Some(true);
            } else if member.is("_meta") {
                meta::remove_ours(&mut own, member.value);
            } else if shape::is_odd_structure(&member) {
                is_odd = true;
            } else if era == Some(Era::Stateless)
                && member.is("resultType")
                && !member.value.is_string("complete")
            {
                let shown: String = member.value.text().chars().take(40).collect();
                return Err(protocol(format!(
                    "its result has the type {shown}, which was not asked for"
                )));
            }
        }
        let result = match own.is_empty() {
            true => result,
            false => Bytes::from(own.to_buf().into_text()),
        };
        Ok(Self {
            call: None,
            result,
            upstream: era,
            is_error,
            is_odd,
            warning: None,
            permit,
        })
    }

    /// Checks the result against the tool's output schema, as the server's configuration wants it. row 3.3
    pub(super) async fn check(
        self,
        target: &Target<'_>,
        measured: &Measured,
    ) -> Result<Self, CallError> {
        let mode = target.output_check();
        let tool = target.tool().filter(|tool| tool.has_output());
        let Some(tool) = tool.filter(|_| mode != OutputCheck::Off) else {
            measured.output_checked(Check::Skipped);
            return Ok(self);
        };
        let result = readable(&self.result);
        let checked = guard::check_output((tool, target.permits()), result, self.is_error);
        let checked = Box::pin(checked).await;
        measured.output_checked(match &checked {
            Ok(()) if self.is_error => Check::Skipped,
            Ok(()) => Check::Passed,
            Err(_) => Check::Failed,
        });
        match checked {
            Ok(()) => Ok(self),
            Err(issues) if mode == OutputCheck::Warn => Ok(self.with_issues(&issues)),
            Err(issues) => Err(CallError::Output {
                server: target.server_name(),
                tool: target.item.to_string(),
                issues,
            }),
        }
    }

    /// Says in the result and for the record what the output schema has against it.
    fn with_issues(mut self, issues: &[Issue]) -> Self {
        let told = |issue: &Issue| match issue.path.as_str() {
            "" => issue.message.clone(),
            path => format!("`{path}`: {}", issue.message),
        };
        let told: Vec<String> = issues.iter().map(told).collect();
        let listed = issues
            .iter()
            .map(|issue| json!({"path": issue.path, "message": issue.message}));
        let listed = Value::Array(listed.collect()).to_string();
        let mut noted = Edit::new(readable(&self.result));
        noted.set_meta_buf(meta::OUTPUT_ISSUES, RawBuf::trusted(listed));
        let result = Bytes::from(noted.to_buf().into_text());
        self.result = result;
        self.warning = Some(told.join("; "));
        self
    }

    /// Takes out what people do not see and models or terminals obey; a result that had some says how much
    /// in its `_meta`. Before secrets are looked for: one must not hide behind it. fault L2
    pub(super) fn clean(mut self, target: &Target<'_>) -> Self {
        if let Some(warning) = &mut self.warning
            && let Some((clean, _)) = hidden::clean(warning)
        {
            *warning = clean;
        }
        if target.cleans_results()
            && hidden::may_hide(&self.result)
            && let Ok(text) = std::str::from_utf8(&self.result)
            && let Some((clean, removed)) = hidden::clean_json(text)
        {
            let count = i64::try_from(removed.count()).unwrap_or(i64::MAX);
            let mut noted = Edit::new(Raw::known(&clean));
            noted.set_meta_buf(meta::CLEANED, RawBuf::integer(count));
            self.result = Bytes::from(noted.to_buf().into_text());
        }
        self
    }

    /// Cuts a result that is longer than its server may answer. fault L6
    pub(super) fn cut(mut self, target: &Target<'_>) -> Result<Self, CallError> {
        let Some(limit) = target
            .longest_result()
            .filter(|limit| self.result.len() > *limit)
        else {
            return Ok(self);
        };
        let is_promised = target.tool().is_some_and(|tool| tool.has_output());
        let cut = cut_result(readable(&self.result), limit, is_promised && !self.is_error);
        match cut {
            Some(cut) => {
                self.result = Bytes::from(cut.into_text());
                Ok(self)
            }
            None => Err(CallError::ResultTooLong {
                server: target.server_name(),
                limit,
            }),
        }
    }

    /// Redacts the server's secrets; the `_meta` of the result says how many.
    pub(super) fn redact(mut self, target: &Target<'_>) -> Self {
        let redactor = target.redactor();
        if let Some(warning) = &mut self.warning
            && let Cow::Owned(clean) = redactor.redact(warning)
        {
            *warning = clean;
        }
        if redactor.may_hide(&self.result)
            && let Ok(text) = std::str::from_utf8(&self.result)
            && let Some((clean, count)) = redactor.redact_counted(text)
        {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let mut noted = Edit::new(Raw::known(&clean));
            noted.set_meta_buf(meta::REDACTED, RawBuf::integer(count));
            self.result = Bytes::from(noted.to_buf().into_text());
        }
        self
    }

    /// Charges a result without a permit, such as a native tool's, to the budget.
    pub(super) fn charge(
        mut self,
        budget: &AnswerBudget,
        agent: &AgentName,
        target: &Target<'_>,
    ) -> Result<Self, CallError> {
        if self.permit.is_empty() {
            let taken = budget.take(Some(agent), self.result.len());
            self.permit = taken.map_err(|full| CallError::Undelivered {
                server: target.server_name(),
                full,
            })?;
        }
        Ok(self)
    }

    /// Returns the output for the record.
    pub(super) fn output(&self) -> Output<'_> {
        Output {
            result: Some(&self.result),
            is_error: self.is_error,
            warning: self.warning.as_deref(),
        }
    }
}

/// Redacts a server's secrets, and Gantry's own keys, in a failure.
pub(super) fn hide(mut error: CallError, redactor: &Redactor) -> CallError {
    let clean = |text: &mut String| {
        if let Some((clean, _)) = hidden::clean(text) {
            *text = clean;
        }
        if let Cow::Owned(clean) = redactor.redact(text) {
            *text = clean;
        }
    };
    match &mut error {
        CallError::Rpc { message, data, .. } => {
            clean(message);
            if let Some(data) = data {
                *data = redactor.redact_json(data).into();
            }
        }
        CallError::Output { issues, .. } => {
            for issue in issues {
                clean(&mut issue.path);
                clean(&mut issue.message);
            }
        }
        CallError::Protocol { detail, .. } => clean(detail),
        CallError::Exited { how, .. } => clean(how),
        CallError::Down { reason, .. } => clean(reason),
        CallError::Remote { error, .. } => {
            if let HttpError::Status { said, .. }
            | HttpError::Failed { said, .. }
            | HttpError::Content { said, .. }
            | HttpError::SignIn { why: said, .. }
            | HttpError::Redirect { to: said, .. } = error
            {
                clean(said);
            }
            if let HttpError::Content { found, .. } = error {
                clean(found);
            }
        }
        // Only texts of the caller and of the gateway. Each is named, so that a new error is looked at.
        CallError::UnknownTool { .. }
        | CallError::UnknownItem { .. }
        | CallError::UnknownServer { .. }
        | CallError::UnknownMethod { .. }
        | CallError::NotGranted { .. }
        | CallError::Forbidden { .. }
        | CallError::Suspended { .. }
        | CallError::Quarantined { .. }
        | CallError::HookRefused { .. }
        | CallError::HookFailed { .. }
        | CallError::ApprovalRefused { .. }
        | CallError::ApprovalExpired { .. }
        | CallError::ApprovalStale { .. }
        | CallError::TooManyApprovals { .. }
        | CallError::Arguments { .. }
        | CallError::BadParams { .. }
        | CallError::Busy { .. }
        | CallError::Limited(_)
        | CallError::Timeout { .. }
        | CallError::Unanswered { .. }
        | CallError::Declined { .. }
        | CallError::TooManyHeld { .. }
        | CallError::TooMuchHeld { .. }
        | CallError::TooManySubscriptions { .. }
        | CallError::Cancelled
        | CallError::KeyEnded { .. }
        | CallError::NotReading { .. }
        | CallError::ResponseTooLarge { .. }
        | CallError::ResultTooLong { .. }
        | CallError::Undelivered { .. }
        | CallError::Audit(_)
        | CallError::Stopping
        | CallError::Panicked => {}
    }
    error
}

/// Reads a server's own error; for one of the stateless era, whose `method` is given, the code is
/// converted to the handshake era.
fn rpc_error(server: &ServerHandle, method: Option<Method>, error: &Bytes) -> CallError {
    let server = server.name.clone();
    match ErrorBody::read(trusted(error)) {
        Some(body) => CallError::Rpc {
            server,
            code: method.map_or(body.code, |method| {
                shape::error_code_to_legacy(method, body.code)
            }),
            message: body.message.into_owned(),
            data: body.data.map(|data| data.text().into()),
        },
        None => CallError::Protocol {
            server,
            detail: "its error has no code and message".into(),
        },
    }
}

/// Returns why there is no response from the server.
pub(super) fn failed(handle: &ServerHandle, failure: Failure) -> CallError {
    let server = handle.name.clone();
    match failure {
        Failure::Protocol(detail) => CallError::Protocol { server, detail },
        Failure::TooLarge(limit) => CallError::ResponseTooLarge { server, limit },
        Failure::Undelivered(full) => CallError::Undelivered { server, full },
        Failure::Exited(how) => CallError::Exited { server, how },
        Failure::NotReading => CallError::NotReading { server },
        Failure::Remote(error) => CallError::Remote { server, error },
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::secret::SecretText;

    use super::*;

    #[test]
    fn a_failure_tells_no_secret() {
        let secret = SecretText::new("hunter22".to_owned());
        let redactor = Redactor::new([&secret]);
        let server: gantry_model::id::ServerName = "one".parse().unwrap();
        let error = CallError::Rpc {
            server: server.clone(),
            code: 7,
            message: "no login with hunter22".to_owned(),
            data: Some(r#"{"password":"hunter22"}"#.into()),
        };
        let CallError::Rpc { message, data, .. } = hide(error, &redactor) else {
            panic!("still the same error")
        };
        assert_eq!(message, "no login with [redacted]");
        assert_eq!(data.as_deref(), Some(r#"{"password":"[redacted]"}"#));
        let error = CallError::Output {
            server,
            tool: "t".to_owned(),
            issues: vec![Issue {
                path: "/hunter22".to_owned(),
                message: "is not hunter22".to_owned(),
            }],
        };
        let CallError::Output { issues, .. } = hide(error, &redactor) else {
            panic!("still the same error")
        };
        let issue = Issue {
            path: "/[redacted]".to_owned(),
            message: "is not [redacted]".to_owned(),
        };
        assert_eq!(issues, [issue]);
    }
}
