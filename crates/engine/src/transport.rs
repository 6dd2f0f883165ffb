//! How messages travel to and from a server. A transport moves whole lines or events and knows
//! nothing of calls, lifecycles, or how the server was started (that is `driver`).

pub(crate) mod http;
mod pace;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod streamable_http;

use self::http::HttpError;
use crate::answers::AnswersFull;

/// Why a call got no answer of the server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// What came back is no valid answer.
    Protocol(String),
    /// The answer was over the limit.
    TooLarge(usize),
    /// The server answered, and there was no room to keep it for the client.
    Undelivered(AnswersFull),
    /// The server ended, or its link was cut; with how.
    Exited(String),
    /// The server does not read what it is sent.
    NotReading,
    /// The remote server could not be reached, or not be understood.
    Remote(HttpError),
}

impl Failure {
    /// Returns what the HTTP transport says, if it is one.
    pub(crate) fn remote(&self) -> Option<&HttpError> {
        match self {
            Self::Remote(error) => Some(error),
            Self::Protocol(_)
            | Self::TooLarge(_)
            | Self::Undelivered(_)
            | Self::Exited(_)
            | Self::NotReading => None,
        }
    }
}
