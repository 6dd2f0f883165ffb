//! The status of a server: its observed state. Published by its runner, shown everywhere.

use std::fmt;

/// The lifecycle state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerState {
    /// Registered and lazy: not needed yet.
    Idle,
    /// Its file is not approved; not started.
    NeedsApproval,
    /// Disabled in its file; not started.
    Disabled,
    /// Its entry in a file has an error, such as an unset variable; not started.
    Misconfigured,
    /// Suspended by an administrator; not started until it is resumed.
    Suspended,
    /// A person must sign in first; no attempts are made until then.
    NeedsSignIn,
    /// Its process is being started, or the handshake is not complete.
    Starting,
    /// It is ready.
    Ready,
    /// It runs but does not respond; kept, because it may be doing long work.
    Unresponsive,
    /// It exited or stopped responding, and is being restarted immediately.
    Restarting,
    /// It will be started again after a backoff.
    BackingOff,
    /// The connection to it was lost, or it stopped responding; it will be reconnected or restarted
    /// after a backoff.
    Disconnected,
    /// It could not be started or listed; the next attempt follows after a backoff.
    Failed,
    /// It is being stopped.
    Stopping,
    /// It was stopped and stays stopped.
    Stopped,
}

impl ServerState {
    /// Returns the state as shown everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::NeedsApproval => "needs_approval",
            Self::Disabled => "disabled",
            Self::Misconfigured => "misconfigured",
            Self::Suspended => "suspended",
            Self::NeedsSignIn => "needs_sign_in",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Unresponsive => "unresponsive",
            Self::Restarting => "restarting",
            Self::BackingOff => "backing_off",
            Self::Disconnected => "disconnected",
            Self::Failed => "failed",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The last time a server exited by itself, or could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The cause: "exit code 1", "signal 9 (SIGKILL)", "did not answer `initialize` within 60s".
    pub how: String,
    /// The end of its stderr, control characters escaped.
    pub stderr_tail: String,
}
