//! How messages travel to and from a server. A transport moves whole lines or events and knows
//! nothing of calls, lifecycles, or how the server was started (that is `driver`).

pub(crate) mod http;
mod pace;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod streamable_http;

use self::http::HttpError;
use crate::answers::AnswersFull;

/// Why a call got no response from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The response is invalid.
    Protocol(String),
    /// The response was over the limit.
    TooLarge(usize),
    /// The server answered, but the response budget had no room.
    Undelivered(AnswersFull),
    /// The server exited or its link was cut, with the reason.
    Exited(String),
    /// The server does not read what it is sent.
    NotReading,
    /// The remote server could not be reached, or its response not be used.
    Remote(HttpError),
}

impl Failure {
    /// Returns the error of the HTTP transport, if it is one.
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
