//! What the two HTTP transports share: the classes of failure, and the messages that wait to be
//! sent. Follows no redirect to another origin, and reads a response up to a limit only. Entry
//! point: [`Remote`].

mod body;
mod error;
mod limit;
mod message;
mod outbox;
mod remote;

pub(crate) use body::{Body, MOST_ERROR, chunk, drained, whole};
pub use error::HttpError;
pub(crate) use limit::RateLimit;
pub(crate) use message::each_message;
pub(crate) use outbox::{HttpOutbox, MessageHead, OutgoingMessage, SessionCommand, TraceHeaders};
pub(crate) use remote::{Content, Remote, RemoteRequest, said};

use std::time::Duration;

use bytes::Bytes;

use crate::transport::Failure;

/// Receives the messages of a remote server.
pub(crate) trait Replies: Clone + Send + Sync + 'static {
    /// Takes a message that arrived outside a call's own stream.
    fn line(&self, line: Bytes);

    /// Takes a message that arrived in response to a call, or on the call's own stream.
    fn line_of(&self, call: u64, line: Bytes);

    /// Fails a call that will get no response.
    fn fail(&self, call: u64, failure: Failure);

    /// Returns whether a call still waits for its response.
    fn waits(&self, call: u64) -> bool;

    /// Returns the maximum size of a call's response.
    fn most_bytes(&self, call: u64) -> usize;

    /// Returns how long reading pauses, for a server that sends too many unsolicited messages.
    fn rest(&self) -> Option<Duration>;

    /// Reports that notifications of the server may have been lost.
    fn missed_news(&self);

    /// Reports that a connection was cut, so that the server's health should be checked.
    fn doubt(&self);
}
