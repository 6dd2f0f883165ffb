//! The params and the result of a tool call.
//!
//! Reads the top-level members in one pass; arguments and content are not parsed.

use std::borrow::Cow;

use super::ShapeError;
use crate::jsonrpc::{Raw, RequestId};

/// A view of the params of `tools/call`.
#[derive(Debug, Clone)]
pub struct CallParams<'a> {
    /// The tool's name as the caller wrote it.
    pub name: Cow<'a, str>,
    /// The arguments, always an object if present.
    pub arguments: Option<Raw<'a>>,
    /// The metadata, always an object if present.
    pub meta: Option<Raw<'a>>,
    /// The caller's token for progress notifications.
    pub progress_token: Option<RequestId<'a>>,
    /// The request to run the call as a task of protocol version 2025-11-25.
    pub task: Option<Raw<'a>>,
    /// The state that the caller returns from an earlier `input_required` result.
    pub request_state: Option<Raw<'a>>,
}

impl<'a> CallParams<'a> {
    /// Reads params.
    pub fn read(params: Option<Raw<'a>>) -> Result<Self, ShapeError> {
        let (mut name, mut arguments, mut meta) = (None, None, None);
        let (mut task, mut request_state) = (None, None);
        for member in params.into_iter().flat_map(Raw::members) {
            let value = member.value;
            if member.is("name") {
                name = Some(super::text("name", value)?);
            } else if member.is("arguments") {
                arguments = Some(object("arguments", value)?);
            } else if member.is("_meta") {
                meta = Some(object("_meta", value)?);
            } else if member.is("task") {
                task = Some(value);
            } else if member.is("requestState") {
                request_state = Some(value);
            }
        }
        let progress_token = match meta.and_then(|meta| meta.get("progressToken")) {
            None => None,
            Some(token) => Some(super::request_id("progressToken", token)?),
        };
        Ok(Self {
            name: name.ok_or(ShapeError::Missing { member: "name" })?,
            arguments,
            meta,
            progress_token,
            task,
            request_state,
        })
    }
}

fn object<'a>(member: &'static str, value: Raw<'a>) -> Result<Raw<'a>, ShapeError> {
    if value.is_object() {
        Ok(value)
    } else {
        Err(ShapeError::Wrong {
            member,
            expected: "an object",
        })
    }
}

/// The declared type of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultType<'a> {
    /// The final result; also the default.
    Complete,
    /// The server needs input from the client first.
    InputRequired,
    /// A type of an extension, or an invalid one.
    Other(Cow<'a, str>),
}

/// A view of the result of `tools/call`.
#[derive(Debug, Clone)]
pub struct CallResult<'a> {
    /// The declared type.
    pub result_type: ResultType<'a>,
    /// Whether the tool reports a failure.
    pub is_error: bool,
    /// The structured content, any JSON value.
    pub structured_content: Option<Raw<'a>>,
}

impl<'a> CallResult<'a> {
    /// Reads a result.
    pub fn read(result: Raw<'a>) -> Result<Self, ShapeError> {
        if !result.is_object() {
            return Err(ShapeError::NotAnObject);
        }
        let mut view = Self {
            result_type: ResultType::Complete,
            is_error: false,
            structured_content: None,
        };
        for member in result.members() {
            let value = member.value;
            if member.is("isError") {
                let wrong = ShapeError::Wrong {
                    member: "isError",
                    expected: "a boolean",
                };
                view.is_error = value.boolean().ok_or(wrong)?;
            } else if member.is("structuredContent") {
                view.structured_content = Some(value);
            } else if member.is("resultType") {
                let kind = super::text("resultType", value)?;
                view.result_type = match kind.as_ref() {
                    "complete" => ResultType::Complete,
                    "input_required" => ResultType::InputRequired,
                    _ => ResultType::Other(kind),
                };
            }
        }
        Ok(view)
    }
}
