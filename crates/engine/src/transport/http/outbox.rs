//! The writing end of a link over HTTP: messages are handed to the session's task, which posts them.
//!
//! Never waits: what does not fit is refused. What a request's headers repeat of its body in the
//! stateless era travels beside it, so that no message is parsed again.

use bytes::Bytes;
use gantry_model::era::ProtocolVersion;
use gantry_model::trace::TraceParent;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::transport::stdio::SendError;

/// How many messages may wait for the session's task, which never waits itself.
const QUEUE: usize = 4096;

/// The parts of a body that the request's headers repeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MessageHead {
    /// The method; empty for a response.
    pub(crate) method: Box<str>,
    /// The tool's or prompt's name, or the resource's URI.
    pub(crate) name: Option<Box<str>>,
    /// Arguments that the tool's schema maps to headers.
    pub(crate) params: Vec<(Box<str>, Box<str>)>,
    /// The trace that the call belongs to.
    pub(crate) trace: Option<TraceHeaders>,
}

/// The trace of a call, as its headers say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceHeaders {
    pub(crate) parent: TraceParent,
    pub(crate) state: Option<Box<str>>,
}

impl MessageHead {
    /// Makes the head of a message that names nothing.
    pub(crate) fn of(method: &str) -> Box<Self> {
        Box::new(Self {
            method: method.into(),
            ..Self::default()
        })
    }
}

/// An outgoing message.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingMessage {
    /// The call it belongs to.
    pub(crate) call: Option<u64>,
    /// The message, without a line feed.
    pub(crate) body: Bytes,
    pub(crate) head: Box<MessageHead>,
}

/// Commands to the session's task.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    Message(OutgoingMessage),
    /// A call was cancelled; the notification informs a server of the handshake era.
    TakenBack {
        call: u64,
        notice: Option<Bytes>,
    },
    /// The negotiated protocol version.
    Speak(ProtocolVersion),
}

/// The writing end of a link over HTTP.
#[derive(Debug)]
pub(crate) struct HttpOutbox {
    out: mpsc::Sender<SessionCommand>,
    closed: CancellationToken,
}

impl HttpOutbox {
    /// Makes both ends; the second value is the session's, the token tells it to end.
    pub(crate) fn new() -> (Self, mpsc::Receiver<SessionCommand>, CancellationToken) {
        let (out, receiver) = mpsc::channel(QUEUE);
        let closed = CancellationToken::new();
        let outbox = Self {
            out,
            closed: closed.clone(),
        };
        (outbox, receiver, closed)
    }

    /// Hands over a message; `line` may end with a line feed.
    pub(crate) fn send(
        &self,
        call: Option<u64>,
        line: Vec<u8>,
        head: Option<Box<MessageHead>>,
    ) -> Result<(), SendError> {
        self.put(SessionCommand::Message(OutgoingMessage {
            call,
            body: without_end(line),
            head: head.unwrap_or_default(),
        }))
    }

    /// Cancels a call.
    pub(crate) fn cancel(&self, call: u64, notice: Option<Vec<u8>>) {
        let notice = notice.map(without_end);
        self.put(SessionCommand::TakenBack { call, notice })
            .unwrap_or_default();
    }

    /// Sets the negotiated protocol version.
    pub(crate) fn set_version(&self, version: ProtocolVersion) {
        self.put(SessionCommand::Speak(version)).unwrap_or_default();
    }

    fn put(&self, out: SessionCommand) -> Result<(), SendError> {
        if self.closed.is_cancelled() {
            return Err(SendError::Closed);
        }
        self.out.try_send(out).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::NotReading,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }

    /// Ends the session.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }
}

fn without_end(mut line: Vec<u8>) -> Bytes {
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    line.into()
}
