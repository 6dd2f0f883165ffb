//! The status of a server: what is observed of it. Published by its runner, shown everywhere.

use std::fmt;

/// Where a server is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerState {
    /// Registered and lazy: nobody has needed it yet.
    Idle,
    /// It comes from a file that nobody has approved; nothing of it is started.
    NeedsApproval,
    /// Its file switches it off; nothing of it is started.
    Disabled,
    /// Its entry in a file has a mistake, such as a variable that is not set; nothing of it is started.
    Misconfigured,
    /// An administrator has suspended it; nothing of it runs until it is resumed.
    Suspended,
    /// A person must sign in before it answers; nothing is tried until then.
    NeedsSignIn,
    /// Its process is being started, or it has not answered the handshake yet.
    Starting,
    /// It answers.
    Ready,
    /// It runs, but does not answer; kept, because it may be doing long work.
    Unresponsive,
    /// It ended or stopped answering, and is being started again at once.
    Restarting,
    /// It will be started again after a wait.
    BackingOff,
    /// The connection to it was lost, or it stopped answering; it will be reached for again, or started
    /// again, after a wait.
    Disconnected,
    /// It could not be started, or not be listed; it will be tried again after a wait.
    Failed,
    /// It is being stopped.
    Stopping,
    /// It was stopped and stays so.
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

/// The last time a server ended by itself, or could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How: «exit code 1», «signal 9 (SIGKILL)», «did not answer `initialize` within 60s».
    pub how: String,
    /// The end of what it wrote to stderr, control characters escaped.
    pub stderr_tail: String,
}
