//! What came back from a server, read as far as we must: is it an answer, does it fit, does it
//! carry a secret of the server's own.

use std::borrow::Cow;

use bytes::Bytes;
use gantry_model::era::Era;
use gantry_model::jsonrpc::{ErrorBody, Raw};
use gantry_model::secret::Redactor;

use super::target::Target;
use crate::error::CallError;
use crate::guard;
use crate::server::handle::ServerHandle;
use crate::server::handshake::trusted;
use crate::server::pending::{Answer, Failure};

/// A result and what we had to know about it.
pub(crate) struct Answered {
    pub(crate) result: Bytes,
    pub(crate) upstream: Option<Era>,
    pub(crate) is_error: bool,
}

impl Answered {
    /// Reads a server's answer.
    pub(super) fn read(
        answer: Answer,
        server: &ServerHandle,
        era: Option<Era>,
    ) -> Result<Self, CallError> {
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => return Err(rpc_error(server, &error)),
            Answer::Failed(failure) => return Err(failed(server, failure)),
        };
        let protocol = |detail: String| CallError::Protocol {
            server: server.name.clone(),
            detail,
        };
        let raw = trusted(&result);
        if !raw.is_object() {
            return Err(protocol("its result is no object".into()));
        }
        let mut is_error = false;
        for member in raw.members() {
            if member.is("isError") {
                is_error = member.value.boolean() == Some(true);
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
        Ok(Self {
            result,
            upstream: era,
            is_error,
        })
    }

    /// Checks the result against the tool's output schema and takes out the server's secrets.
    pub(super) fn settle(
        mut self,
        target: &Target<'_>,
        redactor: &Redactor,
    ) -> Result<Self, CallError> {
        if let Some(tool) = target.tool() {
            guard::check_output(tool, self.raw(), self.is_error).map_err(|issues| {
                CallError::Output {
                    server: target.server_name(),
                    tool: target.item.to_string(),
                    issues,
                }
            })?;
        }
        if !redactor.is_empty() {
            let text = std::str::from_utf8(&self.result).unwrap_or("null");
            if let Cow::Owned(clean) = redactor.redact_json(text) {
                self.result = Bytes::from(clean);
            }
        }
        Ok(self)
    }

    fn raw(&self) -> Raw<'_> {
        trusted(&self.result)
    }

    /// Returns the result as text, for the record.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.result).unwrap_or("null")
    }
}

fn rpc_error(server: &ServerHandle, error: &Bytes) -> CallError {
    let server = server.name.clone();
    match ErrorBody::read(trusted(error)) {
        Some(body) => CallError::Rpc {
            server,
            code: body.code,
            message: body.message.into_owned(),
            data: body.data.map(|data| data.text().into()),
        },
        None => CallError::Protocol {
            server,
            detail: "its error has no code and message".into(),
        },
    }
}

/// Says why there is no answer of the server's.
pub(super) fn failed(server: &ServerHandle, failure: Failure) -> CallError {
    let server = server.name.clone();
    match failure {
        Failure::Protocol(detail) => CallError::Protocol { server, detail },
        Failure::TooLarge(limit) => CallError::ResponseTooLarge { server, limit },
        Failure::Exited(how) => CallError::Exited { server, how },
        Failure::NotReading => CallError::NotReading { server },
    }
}
