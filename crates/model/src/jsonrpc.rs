//! The JSON-RPC envelope of MCP: strict outside, raw inside.
//!
//! [`parse`] checks a whole message in one pass (grammar, duplicate keys at every depth, nesting,
//! the envelope's members) and returns params, results and errors as [`Raw`] slices of the input,
//! byte for byte. It never builds a tree and never converts a number. Outgoing messages get a new
//! envelope ([`write_request`] and its siblings, [`OneLine`] for line-framed links), so the message
//! that was checked is the message that is sent.

mod edit;
mod envelope;
mod error;
mod keys;
mod line;
mod raw;
mod request_id;
mod salvage;
mod scan;
mod text;
mod walk;
mod write;

pub use edit::{Edit, merge_meta, with_member, without_members};
pub use envelope::{
    ErrorBody, Frame, Incoming, Message, Notification, Outcome, Refused, Request, Response, parse,
};
pub use error::WireError;
pub use line::{OneLine, minify};
pub use raw::{Items, Member, Members, Raw, RawBuf, RawKind};
pub use request_id::{OwnedRequestId, RequestId};
pub use salvage::{
    Unaddressed, answered_id, salvage_id, salvage_id_from_tail, salvage_unaddressed,
};
pub use scan::validate;
pub use text::quote_into;
pub use write::{Payload, write_error, write_notification, write_request, write_result};

/// Escapes a member's name as one step of a JSON pointer.
pub fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The JSON-RPC code for text that is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON-RPC code for JSON that is not a message.
pub const INVALID_REQUEST: i64 = -32600;
/// The JSON-RPC code for an unknown method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The JSON-RPC code for params that do not match the method.
pub const INVALID_PARAMS: i64 = -32602;
/// The JSON-RPC code for an error of the responding side.
pub const INTERNAL_ERROR: i64 = -32603;

/// Limits of a message; its size is limited by its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many objects and arrays may be open at once, the envelope included.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_depth: 64 }
    }
}

#[cfg(test)]
mod tests;
