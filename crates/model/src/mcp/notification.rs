//! The two notifications about a request in flight: progress and cancellation.
//!
//! Tokens and ids are the sender's; they must be mapped before forwarding.

use std::borrow::Cow;

use super::ShapeError;
use crate::jsonrpc::{Raw, RequestId};

/// A view of the params of `notifications/progress`.
#[derive(Debug, Clone)]
pub struct Progress<'a> {
    /// The token of the requester.
    pub token: RequestId<'a>,
    /// The progress so far.
    pub progress: Raw<'a>,
    /// The total, if known.
    pub total: Option<Raw<'a>>,
    /// A description of the current step.
    pub message: Option<Cow<'a, str>>,
}

impl<'a> Progress<'a> {
    /// Reads params.
    pub fn read(params: Option<Raw<'a>>) -> Result<Self, ShapeError> {
        let params = params.ok_or(ShapeError::Missing {
            member: "progressToken",
        })?;
        Ok(Self {
            token: id("progressToken", params)?,
            progress: params
                .get("progress")
                .ok_or(ShapeError::Missing { member: "progress" })?,
            total: params.get("total").filter(|total| !total.is_null()),
            message: params.get("message").and_then(Raw::string),
        })
    }
}

/// A view of the params of `notifications/cancelled`.
#[derive(Debug, Clone)]
pub struct Cancelled<'a> {
    /// The id of the cancelled request.
    pub request_id: RequestId<'a>,
    /// The reason.
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> Cancelled<'a> {
    /// Reads params.
    pub fn read(params: Option<Raw<'a>>) -> Result<Self, ShapeError> {
        let params = params.ok_or(ShapeError::Missing {
            member: "requestId",
        })?;
        Ok(Self {
            request_id: id("requestId", params)?,
            reason: params.get("reason").and_then(Raw::string),
        })
    }
}

fn id<'a>(member: &'static str, params: Raw<'a>) -> Result<RequestId<'a>, ShapeError> {
    let value = params.get(member).ok_or(ShapeError::Missing { member })?;
    super::request_id(member, value)
}
