//! An instance with an open link, and how both end. Every wait for an end is bounded: what hangs in
//! the kernel is left to it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::driver::Control;
use crate::server::link::Link;
use crate::server::pending::Failure;
use crate::transport::http::HttpError;

/// How long reading what a server wrote before it ended may take.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// How long a killed instance may take to end.
const KILLED: Duration = Duration::from_secs(5);
/// How long closing a session over HTTP may take.
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
    /// Why the session over HTTP ended, once it has; nothing for a link over streams.
    pub(super) session: Option<Arc<OnceLock<HttpError>>>,
}

impl Running {
    /// Returns why the session over HTTP ended; nothing for a link over streams.
    pub(super) fn lost(&self) -> Option<HttpError> {
        let session = self.session.as_ref()?;
        let closed = || HttpError::Cut {
            origin: "the server".to_owned(),
            why: "the session was closed".to_owned(),
        };
        Some(session.get().cloned().unwrap_or_else(closed))
    }

    /// Asks the server to end.
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

    /// Delivers what the server wrote before it ended.
    pub(super) async fn deliver(&mut self) {
        self.reader.end_soon().await;
    }

    /// Answers every call on the link, and then reads the rest of stderr.
    pub(super) async fn close(&mut self, failure: &Failure) {
        self.link.end(failure);
        self.session_closed().await;
        self.stderr.end_soon().await;
    }

    async fn session_closed(&mut self) {
        if self.session.is_some() {
            // A server that does not answer in time is not waited for.
            drop(timeout(SESSION_CLOSE, self.reader.ended()).await);
        }
    }
}

impl Drop for Running {
    /// Answers the calls that a panic of ours cut off; every other end has done so.
    fn drop(&mut self) {
        let why = "the gateway failed while it ran the server";
        self.link.end(&Failure::Exited(why.into()));
    }
}

/// A task of a link, whose end may be waited for again and again.
#[derive(Default)]
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

    /// Waits a moment for the task's end, and then aborts it.
    async fn end_soon(&mut self) {
        if timeout(LAST_OUTPUT, self.ended()).await.is_err()
            && let Some(handle) = &self.0
        {
            handle.abort();
        }
    }
}
