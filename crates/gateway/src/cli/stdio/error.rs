//! What a bridge answers by itself, because no gateway answers.

use gantry_model::diagnose::{Diagnose, Fault};
use http::StatusCode;

use crate::cli::trouble;
use crate::http::error::Problem;

/// Why the gateway did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum BridgeError {
    /// It could not be reached, and nothing was sent.
    #[error("the gateway cannot be reached: {0}")]
    Down(String),
    /// The connection ended before the answer.
    #[error("the gateway ended the connection before it answered: {0}")]
    Cut(String),
    /// It answered with something else.
    #[error("the gateway answered {0} with something that is no message")]
    Nonsense(StatusCode),
    /// The client sends faster than it is answered.
    #[error("{0} requests, or 64 MiB of them, are waiting already")]
    Busy(usize),
    /// A line of the client is longer than a message may be.
    #[error("the line is longer than {0} bytes")]
    TooLong(usize),
}

impl Diagnose for BridgeError {
    fn code(&self) -> &'static str {
        match self {
            Self::Down(_) => "stdio.down",
            Self::Cut(_) => "stdio.cut",
            Self::Nonsense(_) => "stdio.nonsense",
            Self::Busy(_) => "stdio.busy",
            Self::TooLong(_) => "stdio.line",
        }
    }

    /// The gateway is what is behind a bridge, as servers are behind a gateway.
    fn fault(&self) -> Fault {
        match self {
            Self::Down(_) | Self::Cut(_) | Self::Nonsense(_) => Fault::Server,
            Self::Busy(_) | Self::TooLong(_) => Fault::Client,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Down(why) if why == trouble::NO_ROOM => {
                Some("try again in a moment, or end clients that are not needed".to_owned())
            }
            Self::Down(_) => {
                Some("start it with `gantry up`; the next request finds it by itself".to_owned())
            }
            Self::Cut(_) => {
                Some("it is not known whether the call took effect; nothing was retried".to_owned())
            }
            Self::Nonsense(_) | Self::Busy(_) | Self::TooLong(_) => None,
        }
    }
}

impl BridgeError {
    /// Returns the answer to a client.
    pub(super) fn problem(&self) -> Problem {
        Problem::of(self)
    }
}
