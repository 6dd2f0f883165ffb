//! How much of a request is read, and how long that may take.
//!
//! A declared length over the limit is refused before a byte is read, an undeclared one the moment
//! it passes the limit; a body that trickles in is cut off. Never holds more than the limit in
//! memory. Entry point: [`read_body`].

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::Problem;

/// The largest body that is read.
pub(crate) const BODY_BYTES: usize = 4 << 20;
/// The longest time that a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// What is still taken off a connection whose body is too large, so that its client, busy
/// writing, gets to read the answer.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_PAUSE: Duration = Duration::from_millis(50);

/// Reads a body of at most [`BODY_BYTES`]. fault A3
pub(crate) async fn read_body(headers: &HeaderMap, mut body: Body) -> Result<Bytes, Problem> {
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: u64| length > BODY_BYTES as u64) {
        if !headers.contains_key(EXPECT) {
            drain(body).await;
        }
        return Err(too_large());
    }
    let reading = async {
        let first = match next(&mut body).await? {
            Some(first) if declared == Some(first.len() as u64) => return Ok(Read::Whole(first)),
            Some(first) => first,
            None => return Ok(Read::Whole(Bytes::new())),
        };
        let expected = declared.map_or(first.len() * 2, |length| length as usize);
        let mut whole = BytesMut::with_capacity(expected.min(BODY_BYTES));
        whole.extend_from_slice(&first);
        while whole.len() <= BODY_BYTES {
            match next(&mut body).await? {
                Some(more) => whole.extend_from_slice(&more),
                None => return Ok(Read::Whole(whole.freeze())),
            }
        }
        Ok(Read::TooLarge)
    };
    match timeout(BODY_TIME, reading).await {
        Ok(Ok(Read::Whole(bytes))) if bytes.len() <= BODY_BYTES => Ok(bytes),
        Ok(Ok(_)) => {
            drain(body).await;
            Err(too_large())
        }
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "http.slow_body")
            .with_detail(format!("the body did not arrive within {BODY_TIME:?}"))),
    }
}

enum Read {
    Whole(Bytes),
    TooLarge,
}

fn too_large() -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "http.body_too_large")
        .with_detail(format!("the body is larger than {} MiB", BODY_BYTES >> 20))
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(_)) => {
                return Err(Problem::new(StatusCode::BAD_REQUEST, "http.body_cut")
                    .with_detail("the body ended before its time"));
            }
        }
    }
}

async fn drain(mut body: Body) {
    let end = Instant::now() + DRAIN_TIME;
    let mut taken = 0;
    while taken < DRAIN_BYTES {
        let pause = (Instant::now() + DRAIN_PAUSE).min(end);
        match timeout_at(pause, body.frame()).await {
            Ok(Some(Ok(frame))) => taken += frame.data_ref().map_or(0, Bytes::len),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn chunks(sizes: &[usize]) -> Body {
        let chunks: Vec<_> = sizes
            .iter()
            .map(|n| Ok::<_, std::convert::Infallible>(vec![b'x'; *n]))
            .collect();
        Body::from_stream(stream::iter(chunks))
    }

    async fn read(length: Option<&str>, body: Body) -> Result<usize, u16> {
        let mut headers = HeaderMap::new();
        if let Some(length) = length {
            headers.insert(CONTENT_LENGTH, length.parse().unwrap());
        }
        let read = read_body(&headers, body).await;
        read.map(|bytes| bytes.len())
            .map_err(|problem| problem.status().as_u16())
    }

    // fault A3
    #[tokio::test]
    async fn the_limit_holds_with_and_without_a_length() {
        assert_eq!(read(None, chunks(&[])).await, Ok(0));
        assert_eq!(read(Some("5"), chunks(&[5])).await, Ok(5));
        assert_eq!(read(None, chunks(&[5, 7, 9])).await, Ok(21));
        assert_eq!(read(None, chunks(&[BODY_BYTES])).await, Ok(BODY_BYTES));
        assert_eq!(read(None, chunks(&[BODY_BYTES, 1])).await, Err(413));
        assert_eq!(read(None, chunks(&[BODY_BYTES + 1])).await, Err(413));
        assert_eq!(read(Some("4194305"), chunks(&[])).await, Err(413));
        assert_eq!(read(Some("999999999999"), chunks(&[])).await, Err(413));
    }

    // fault A2
    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_given_up() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
        assert_eq!(read(Some("5"), body).await, Err(408));
    }
}
