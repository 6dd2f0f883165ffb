//! What the two HTTP transports share: the classes of failure, and the messages that wait to be
//! sent. Follows no redirect to another origin, and keeps no more of an answer than its bound. Entry
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
pub(crate) use outbox::{HttpOutbox, MessageHead, OutgoingMessage, SessionCommand};
pub(crate) use remote::{Content, Remote, RemoteRequest, said};

use std::time::Duration;

use bytes::Bytes;

use crate::transport::Failure;

/// Who hears what a remote server says.
pub(crate) trait Replies: Clone + Send + Sync + 'static {
    /// Takes a message that came on no call's own stream.
    fn line(&self, line: Bytes);

    /// Takes a message that came in answer to a call, or on its own stream.
    fn line_of(&self, call: u64, line: Bytes);

    /// Ends a call that will get no answer.
    fn fail(&self, call: u64, failure: Failure);

    /// Tells whether the answer to a call is still wanted.
    fn waits(&self, call: u64) -> bool;

    /// Returns how long the answer to a call may be.
    fn most_bytes(&self, call: u64) -> usize;

    /// Returns how long nothing more is read, of a server that says too much that nobody asked for.
    fn rest(&self) -> Option<Duration>;

    /// Hears that the server may have told news that got lost.
    fn missed_news(&self);

    /// Hears that a connection was cut, so that the server is worth a look.
    fn doubt(&self);
}
