//! A server with an open link, and how both come to their end: a process of ours, or a session with
//! a remote server. Every wait for an end is bounded: what hangs in the kernel is left to it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_sandbox::Tree;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::server::link::Link;
use crate::server::pending::Failure;
use crate::transport::http::HttpError;

/// How long what a server wrote before it ended may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a killed process may take to be gone.
const KILLED: Duration = Duration::from_secs(5);
/// How long a remote server may take to hear that its session is over.
const FAREWELL: Duration = Duration::from_secs(2);

/// A server with an open link.
pub(super) struct Running {
    pub(super) link: Arc<Link>,
    /// Reads what it says: its stdout, or its session.
    pub(super) reader: Task,
    pub(super) body: Body,
}

/// What is behind a link.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per server, in a box with the rest of its life"
)]
pub(super) enum Body {
    /// A process of ours.
    Process {
        tree: Tree,
        /// Reads its stderr.
        stderr: Task,
    },
    /// A server somewhere else; why its session ended, once it has.
    Remote { why: Arc<OnceLock<HttpError>> },
}

impl Body {
    /// Waits until the process has ended, and returns how; a remote server has none.
    pub(super) async fn exited(&mut self) -> String {
        match self {
            Self::Process { tree, .. } => tree.wait().await.to_string(),
            Self::Remote { .. } => std::future::pending().await,
        }
    }
}

impl Running {
    /// Returns the process id, if there is a process.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.body {
            Body::Process { tree, .. } => Some(tree.pid()),
            Body::Remote { .. } => None,
        }
    }

    /// Returns why the session with a remote server ended; nothing for a process.
    pub(super) fn lost(&self) -> Option<HttpError> {
        match &self.body {
            Body::Process { .. } => None,
            Body::Remote { why } => Some(why.get().cloned().unwrap_or_else(|| HttpError::Cut {
                origin: "the server".to_owned(),
                why: "the session was closed".to_owned(),
            })),
        }
    }

    pub(super) fn is_remote(&self) -> bool {
        matches!(self.body, Body::Remote { .. })
    }

    /// Asks the server to end.
    pub(super) fn terminate(&mut self) {
        self.link.close_input();
        match &mut self.body {
            Body::Process { tree, .. } => tree.terminate(),
            Body::Remote { .. } => {}
        }
    }

    /// Waits until what is behind the link has ended.
    pub(super) async fn ended(&mut self) {
        match &mut self.body {
            Body::Process { tree, .. } => {
                tree.wait().await;
            }
            Body::Remote { .. } => {
                // One that does not say farewell in time has none.
                timeout(FAREWELL, self.reader.ended())
                    .await
                    .unwrap_or_default();
            }
        }
    }

    /// Ends the process at once, without waiting.
    pub(super) fn strike(&mut self) {
        if let Body::Process { tree, .. } = &mut self.body {
            tree.kill();
        }
    }

    /// Kills the process and waits until it is gone.
    pub(super) async fn kill(&mut self) {
        self.strike();
        if let Body::Process { tree, .. } = &mut self.body
            && timeout(KILLED, tree.wait()).await.is_err()
        {
            let pid = tree.pid();
            warn!(
                pid,
                "a killed server is not gone, and is left to the kernel"
            );
        }
    }

    /// Delivers what the server wrote before it ended.
    pub(super) async fn deliver(&mut self) {
        self.reader.end_soon().await;
    }

    /// Answers every call on the link, and then reads what the server still said on stderr.
    pub(super) async fn close(&mut self, failure: &Failure) {
        self.link.end(failure);
        match &mut self.body {
            Body::Process { stderr, .. } => stderr.end_soon().await,
            Body::Remote { .. } => drop(timeout(FAREWELL, self.reader.ended()).await),
        }
    }
}

impl Drop for Running {
    /// Answers the calls of a life that a panic of ours cut short; every other end has done so.
    fn drop(&mut self) {
        let why = "the gateway failed while it ran the server";
        self.link.end(&Failure::Exited(why.into()));
    }
}

/// A task of a link's, whose end may be waited for again and again.
pub(super) struct Task(Option<JoinHandle<()>>);

impl Task {
    pub(super) fn new(handle: JoinHandle<()>) -> Self {
        Self(Some(handle))
    }

    /// Waits until the task has ended, if only by a panic. Safe to cancel.
    pub(super) async fn ended(&mut self) {
        if let Some(handle) = &mut self.0 {
            drop(handle.await);
            self.0 = None;
        }
    }

    /// Waits a moment for the task's end, and then ends it.
    async fn end_soon(&mut self) {
        if timeout(LAST_WORDS, self.ended()).await.is_err()
            && let Some(handle) = &self.0
        {
            handle.abort();
        }
    }
}
