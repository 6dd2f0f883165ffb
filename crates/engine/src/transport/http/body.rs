//! Reads response bodies within a bound that counts after decompression. fault H5
//!
//! Never keeps more than the bound. Entry points: [`whole`] and [`drained`].

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;

use super::error::HttpError;
use crate::http_client::CONNECT;

/// How much of an answer that is an error is read.
pub(crate) const MOST_ERROR: usize = 64 << 10;
/// How long the rest of an answer that is not needed may take, so that its connection serves again.
const DRAIN: Duration = Duration::from_secs(1);

/// What was read of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// All of it.
    Whole(Bytes),
    /// It goes on beyond the bound.
    TooLong,
}

/// Reads a whole body of at most so many bytes.
pub(crate) async fn whole(
    origin: &str,
    response: &mut Response,
    limit: usize,
) -> Result<Body, HttpError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = chunk(origin, response).await? {
        if body.len() + chunk.len() > limit {
            return Ok(Body::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Body::Whole(body.freeze()))
}

/// Reads the next piece of a body; nothing at its end.
pub(crate) async fn chunk(
    origin: &str,
    response: &mut Response,
) -> Result<Option<Bytes>, HttpError> {
    let read = response.chunk().await;
    read.map_err(|error| HttpError::of(origin, &error, CONNECT))
}

/// Reads a body that nobody needs, for a moment.
pub(crate) async fn drained(mut response: Response) {
    let all = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > MOST_ERROR {
                break;
            }
        }
    };
    // What takes longer costs a connection, which is no harm.
    drop(tokio::time::timeout(DRAIN, all).await);
}
