//! The parts of MCP that Gantry interprets: methods, lists, tools, calls, notifications.
//!
//! All views borrow raw JSON without changing it; unknown members survive because objects are never
//! rebuilt. Permissions are decided in `grant`, differences between protocol versions in `era`.

mod call;
mod client;
mod cut;
mod links;
mod list;
mod method;
mod notification;
mod params;
mod tool;

pub use call::{CallParams, CallResult, ResultType};
pub use client::{
    ClientCapabilities, LogLevel, UnknownLevel, asking_method, is_web_url, may_ask_back,
};
pub use cut::cut_result;
pub use links::linked;
pub use list::{ListKind, Page, next_cursor_params};
pub use method::Method;
pub use notification::{Cancelled, Progress};
pub use params::Params;
pub use tool::{LONGEST_TOOL_NAME, TaskSupport, ToolDef, ToolNameFault, check_tool_name};

use std::borrow::Cow;

use crate::diagnose::{Diagnose, Fault};
use crate::jsonrpc::{Raw, RequestId};

/// Why params or a result do not have the shape that their method requires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A member is absent.
    #[error("member `{member}` is missing")]
    Missing {
        /// The member's name.
        member: &'static str,
    },
    /// A member has the wrong type.
    #[error("member `{member}` must be {expected}")]
    Wrong {
        /// The member's name.
        member: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// The value is not an object.
    #[error("expected an object")]
    NotAnObject,
}

impl Diagnose for ShapeError {
    fn code(&self) -> &'static str {
        "mcp.shape"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }
}

fn text<'a>(member: &'static str, value: Raw<'a>) -> Result<Cow<'a, str>, ShapeError> {
    value.string().ok_or(ShapeError::Wrong {
        member,
        expected: "a string",
    })
}

fn request_id<'a>(member: &'static str, value: Raw<'a>) -> Result<RequestId<'a>, ShapeError> {
    RequestId::read(value).ok_or(ShapeError::Wrong {
        member,
        expected: "a string or a number",
    })
}

#[cfg(test)]
mod tests;
