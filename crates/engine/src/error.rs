//! The engine's errors, with code, fault and hint.

mod administration;
mod call;
mod engine;
mod full;
mod text;

use gantry_model::id::CallId;

pub use self::administration::AdminError;
pub use self::call::{CallError, Forbidden};
pub use self::engine::EngineError;
pub use self::full::Full;

/// A request that did not get an answer of the server's, and the call it was.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct CallFailure {
    /// The audit row, if there is one.
    pub call: Option<CallId>,
    /// The error.
    pub error: CallError,
}

/// One thing that a schema has against a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Where in the value, as a JSON pointer; empty for the whole.
    pub path: String,
    /// The error there.
    pub message: String,
}
