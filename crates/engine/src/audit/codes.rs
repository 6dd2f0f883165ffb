//! Codes that appear only in audit rows: no response has them, since there was no client to answer,
//! or the response was the server's own.

/// A code that appears only in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowCode {
    /// The client cancelled the call, or went away.
    Cancelled,
    /// The gateway was stopped immediately while the server handled the call.
    CutOff,
    /// The gateway ended before the call did, and could not record it.
    Died,
    /// The call was given up inside the gateway.
    Dropped,
    /// The call's end could not be written.
    Lost,
    /// The call failed inside the gateway.
    Panicked,
    /// The tool's own result says that it failed.
    ToolError,
    /// The disk did not confirm the call's beginning, so that it was not made.
    Unsynced,
}

impl RowCode {
    /// Returns the code as stored.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Cancelled => "call.cancelled",
            Self::CutOff => "gateway.cut_off",
            Self::Died => "gateway.died",
            Self::Dropped => "gateway.dropped",
            Self::Lost => "audit.lost",
            Self::Panicked => "gateway.panic",
            Self::ToolError => "tool_error",
            Self::Unsynced => "audit.sync",
        }
    }
}
