//! An instance with an open link, and how both end. Every wait for an end is bounded: a process
//! that hangs in the kernel is abandoned.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::driver::Control;
use crate::server::link::Link;
use crate::server::pending::Failure;
use crate::transport::http::HttpError;

/// Time limit for reading the last output of an ended server.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// How long a killed instance may take to end.
const KILLED: Duration = Duration::from_secs(5);
/// Time limit for closing a session over HTTP.
const SESSION_CLOSE: Duration = Duration::from_secs(2);

/// An instance with an open link.
pub(super) struct Running {
    pub(super) link: Arc<Link>,
    /// Reads its stdout, or its session over HTTP.
    pub(super) reader: Task,
    /// Reads its stderr.
    pub(super) stderr: Task,
    pub(super) control: Box<dyn Control>,
    pub(super) pid: Option<u32>,
    /// Why the session over HTTP ended, once it has; `None` for a link over streams.
    pub(super) session: Option<Arc<OnceLock<HttpError>>>,
}

impl Running {
    /// Returns why the session over HTTP ended; `None` for a link over streams.
    pub(super) fn lost(&self) -> Option<HttpError> {
        let session = self.session.as_ref()?;
        let closed = || HttpError::Cut {
            origin: "the server".to_owned(),
            why: "the session was closed".to_owned(),
        };
        Some(session.get().cloned().unwrap_or_else(closed))
    }

    /// Asks the server to exit.
    pub(super) fn terminate(&mut self) {
        self.link.close_input();
        self.control.terminate();
    }

    /// Waits until the session, if there is one, and the instance have ended.
    pub(super) async fn ended(&mut self) {
        self.session_closed().await;
        self.control.exited().await;
    }

    /// Kills the instance and waits until it has ended.
    pub(super) async fn kill(&mut self) {
        self.control.kill();
        if timeout(KILLED, self.control.exited()).await.is_err() {
            let pid = self.pid;
            warn!(
                pid,
                "a killed server has not ended, and is left to the kernel"
            );
        }
    }

    /// Delivers the output that the server wrote before it ended.
    pub(super) async fn deliver(&mut self) {
        self.reader.end_soon().await;
    }

    /// Ends every call on the link, and then reads the rest of stderr.
    pub(super) async fn close(&mut self, failure: &Failure) {
        self.link.end(failure);
        self.session_closed().await;
        self.stderr.end_soon().await;
    }

    async fn session_closed(&mut self) {
        if self.session.is_some() {
            // A server that does not respond in time is not waited for.
            drop(timeout(SESSION_CLOSE, self.reader.ended()).await);
        }
    }
}

impl Drop for Running {
    /// Ends the calls that a panic cut off; every other end has already done so.
    fn drop(&mut self) {
        let why = "the gateway failed while it ran the server";
        self.link.end(&Failure::Exited(why.into()));
    }
}

/// A task of a link, whose end can be awaited repeatedly.
#[derive(Default)]
pub(super) struct Task(Option<JoinHandle<()>>);

impl Task {
    pub(super) fn new(handle: JoinHandle<()>) -> Self {
        Self(Some(handle))
    }

    /// Waits until the task has ended, even by a panic. Cancel safe.
    pub(super) async fn ended(&mut self) {
        if let Some(handle) = &mut self.0 {
            drop(handle.await);
            self.0 = None;
        }
    }

    /// Waits a moment for the task's end, and then aborts it.
    async fn end_soon(&mut self) {
        if timeout(LAST_OUTPUT, self.ended()).await.is_err()
            && let Some(handle) = &self.0
        {
            handle.abort();
        }
    }
}
