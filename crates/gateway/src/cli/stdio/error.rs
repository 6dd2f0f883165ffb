//! Errors that `gantry stdio` itself returns because no gateway answers.

use std::time::Duration;

use gantry_model::diagnose::{Diagnose, Fault};
use http::StatusCode;
use tokio::time::timeout;

use crate::cli::pool::{NO_ANSWER, NO_ROOM, SendError};
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
    /// The response is not from a gateway.
    #[error("the gateway answered {0} with something that is not a JSON-RPC message")]
    NotAGateway(StatusCode),
    /// Too many requests are in flight.
    #[error("{0} requests, or 64 MiB of them, are already in flight")]
    Busy(usize),
    /// A line exceeds the maximum message size.
    #[error("the line is longer than {0} bytes")]
    TooLong(usize),
}

impl Diagnose for BridgeError {
    fn code(&self) -> &'static str {
        match self {
            Self::Down(_) => "stdio.down",
            Self::Cut(_) => "stdio.cut",
            Self::NotAGateway(_) => "stdio.not_a_gateway",
            Self::Busy(_) => "stdio.busy",
            Self::TooLong(_) => "stdio.line",
        }
    }

    /// Seen from the client, the gateway plays the server's part.
    fn fault(&self) -> Fault {
        match self {
            Self::Down(_) | Self::Cut(_) | Self::NotAGateway(_) => Fault::Server,
            Self::Busy(_) | Self::TooLong(_) => Fault::Client,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Down(why) if why == NO_ROOM => {
                Some("try again in a moment, or end clients that are not needed".to_owned())
            }
            Self::Down(_) => {
                Some("start it with `gantry up`; the next request will find it".to_owned())
            }
            Self::Cut(_) => {
                Some("it is not known whether the call took effect; nothing was retried".to_owned())
            }
            Self::NotAGateway(_) | Self::Busy(_) | Self::TooLong(_) => None,
        }
    }
}

impl BridgeError {
    /// Returns the error response.
    pub(super) fn problem(&self) -> Problem {
        Problem::of(self)
    }
}

impl From<SendError> for BridgeError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Unsent(why) => Self::Down(why),
            SendError::Cut(why) => Self::Cut(why),
        }
    }
}

/// Awaits an exchange with the gateway, up to a deadline.
pub(super) async fn within<T>(
    deadline: Duration,
    exchange: impl Future<Output = Result<T, BridgeError>>,
) -> Result<T, BridgeError> {
    let exchanged = timeout(deadline, exchange).await;
    exchanged.unwrap_or_else(|_| Err(BridgeError::Cut(NO_ANSWER.to_owned())))
}
