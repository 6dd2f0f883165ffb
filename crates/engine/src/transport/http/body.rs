//! Reads response bodies within a bound that counts after decompression. fault H5
//!
//! Never keeps more than the bound. Entry points: [`whole`] and [`drained`].

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;

use super::error::HttpError;
use crate::http_client::CONNECT;

/// Bytes read of an error response.
pub(crate) const MOST_ERROR: usize = 64 << 10;
/// Time limit for draining an unneeded response, so that its connection can be reused.
const DRAIN: Duration = Duration::from_secs(1);

/// The result of reading a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// All of it.
    Whole(Bytes),
    /// It exceeds the bound.
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

/// Drains a body that is not needed, within a short time limit.
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
    // If it takes longer, the connection is closed instead of reused.
    drop(tokio::time::timeout(DRAIN, all).await);
}
