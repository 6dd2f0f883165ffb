//! The writing end of a link: a child's stdin, or the session of a remote server. An enum, so that
//! a call costs no indirection: see ADR 006.

use std::time::Duration;

use gantry_model::era::ProtocolVersion;

use crate::transport::http::{HttpOutbox, MessageHead};
use crate::transport::stdio::{Batching, LineWriter, SendError};

/// Where a link's messages go.
pub(crate) enum Outbox {
    /// A child's stdin.
    Pipe(LineWriter),
    /// A remote server's session.
    Http(HttpOutbox),
}

impl Outbox {
    /// Sends one line (with its line break), or refuses it immediately.
    pub(super) fn send(
        &self,
        call: Option<u64>,
        line: Vec<u8>,
        head: Option<Box<MessageHead>>,
        company: Batching,
    ) -> Result<(), SendError> {
        match self {
            Self::Pipe(writer) => writer.send(call, line, company),
            Self::Http(outbox) => outbox.send(call, line, head),
        }
    }

    /// Returns the HTTP head for a method, if messages have heads.
    pub(super) fn head(&self, method: &str) -> Option<Box<MessageHead>> {
        match self {
            Self::Pipe(_) => None,
            Self::Http(_) => Some(MessageHead::of(method)),
        }
    }

    /// Notifies the server that a call was cancelled, in the way of its era.
    pub(super) fn cancel(&self, call: u64, notice: Option<Vec<u8>>) {
        match self {
            Self::Pipe(writer) => {
                if let Some(line) = notice {
                    // If the server does not read, the notification is lost.
                    let sent = writer.send(None, line, Batching::Alone);
                    sent.unwrap_or_default();
                }
            }
            Self::Http(outbox) => outbox.cancel(call, notice),
        }
    }

    /// Stores the negotiated version.
    pub(super) fn set_version(&self, version: ProtocolVersion) {
        match self {
            Self::Pipe(_) => {}
            Self::Http(outbox) => outbox.set_version(version),
        }
    }

    /// Writes lines that senders could not write immediately, until the end; returns whether a
    /// child closed its stdin.
    pub(super) async fn run(&self, deadline: Duration, unwritten: impl Fn(u64)) -> bool {
        match self {
            Self::Pipe(writer) => writer.run(deadline, unwritten).await,
            Self::Http(_) => false,
        }
    }

    /// Closes the server's input.
    pub(super) fn close(&self) {
        match self {
            Self::Pipe(writer) => writer.close(),
            Self::Http(outbox) => outbox.close(),
        }
    }
}
