//! Streamable HTTP, of both eras: each message is posted by its own task, responses come as JSON or
//! as events and go to the link.
//!
//! Handshake era: a session id, a stream for what belongs to no call, resumption after an event, one
//! re-initialise when the session has expired. Stateless era: none of that; a call is cancelled by
//! dropping its request. Restarts nothing: when it cannot continue it ends with the reason. Entry
//! points: [`Session::new`] and [`Session::run`].

mod post;
mod session;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::session::SessionState;
use super::http::{HttpError, OutgoingMessage, Remote, Replies, SessionCommand};

/// Time limit for posting a message that no caller waits for.
const UNAWAITED: Duration = Duration::from_secs(30);
/// The longest event, after decompression. fault H5
pub(super) const LONGEST_EVENT: usize = 16 << 20;

/// An open link to a server over streamable HTTP.
pub(crate) struct Session<R> {
    remote: Remote,
    replies: R,
    tracker: TaskTracker,
    state: Mutex<SessionState>,
    /// One at a time re-initialises a session, for all.
    renewing: tokio::sync::Mutex<()>,
    /// Calls in flight, each with its cancellation.
    calls: Mutex<HashMap<u64, CancellationToken>>,
    /// Ends every task of the session.
    over: CancellationToken,
    /// Why the session cannot continue; the first reason counts.
    why: Mutex<Option<HttpError>>,
}

impl<R: Replies> Session<R> {
    /// Prepares a session; nothing is sent yet.
    pub(crate) fn new(remote: Remote, replies: R, tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            remote,
            replies,
            tracker,
            state: Mutex::default(),
            renewing: tokio::sync::Mutex::new(()),
            calls: Mutex::default(),
            over: CancellationToken::new(),
            why: Mutex::default(),
        })
    }

    /// Posts messages until the session is closed (returns nothing) or cannot continue.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut out: mpsc::Receiver<SessionCommand>,
        closed: CancellationToken,
    ) -> Option<HttpError> {
        loop {
            tokio::select! {
                biased; // The end first, ours before the server's.
                () = closed.cancelled() => break,
                () = self.over.cancelled() => break,
                next = out.recv() => match next {
                    Some(SessionCommand::Message(letter)) if letter.head.method.as_ref() == session::GREETED => {
                        // Later messages must find the handshake complete.
                        let delivered = Arc::clone(&self).deliver(letter);
                        let stop = async {
                            tokio::select! {
                                () = closed.cancelled() => {}
                                () = self.over.cancelled() => {}
                            }
                        };
                        tokio::select! {
                            () = stop => break,
                            () = delivered => self.begin_listening().await,
                        }
                    }
                    Some(next) => self.take(next),
                    None => break,
                },
            }
        }
        self.over.cancel();
        let why = self.why.lock().take();
        if why.is_none() {
            self.farewell().await;
        }
        why
    }

    fn take(self: &Arc<Self>, out: SessionCommand) {
        match out {
            SessionCommand::Message(letter) => self.post(letter),
            SessionCommand::Speak(version) => self.state.lock().version = Some(version),
            SessionCommand::TakenBack { call, notice } => {
                if let Some(under_way) = self.calls.lock().remove(&call) {
                    under_way.cancel();
                }
                let notice = notice.filter(|_| self.is_handshake());
                if let Some(body) = notice {
                    let head = super::http::MessageHead::of("notifications/cancelled");
                    self.post(OutgoingMessage {
                        call: None,
                        body,
                        head,
                    });
                }
            }
        }
    }

    /// Posts a message in a task of its own.
    fn post(self: &Arc<Self>, letter: OutgoingMessage) {
        let end = self.over.child_token();
        if let Some(call) = letter.call {
            self.calls.lock().insert(call, end.clone());
        }
        let session = Arc::clone(self);
        self.tracker.spawn(async move {
            end.run_until_cancelled(session.deliver(letter)).await;
        });
    }

    /// Ends the session; the first reason counts.
    fn end(&self, error: HttpError) {
        self.why.lock().get_or_insert(error);
        self.over.cancel();
    }
}
