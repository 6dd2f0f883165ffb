//! A process with an open link, and how both come to their end. Every wait for an end is bounded:
//! what hangs in the kernel is left to it.

use std::sync::Arc;
use std::time::Duration;

use gantry_sandbox::Tree;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::server::link::Link;
use crate::server::pending::Failure;

/// How long what a server wrote before it ended may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a killed process may take to be gone.
const KILLED: Duration = Duration::from_secs(5);

/// A process with an open link.
pub(super) struct Running {
    pub(super) tree: Tree,
    pub(super) link: Arc<Link>,
    /// Reads its stdout.
    pub(super) reader: Task,
    /// Reads its stderr.
    pub(super) stderr: Task,
}

impl Running {
    /// Kills the process and waits until it is gone.
    pub(super) async fn kill(&mut self) {
        self.tree.kill();
        if timeout(KILLED, self.tree.wait()).await.is_err() {
            let pid = self.tree.pid();
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
        self.stderr.end_soon().await;
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
