//! Limits on reading request bodies.
//!
//! A declared length over the limit is refused before a byte is read, an undeclared one as soon as
//! it exceeds the limit; a slow body times out. All long bodies together stay within a budget,
//! those of one agent within a part of it; each keeps its [`BodyPermit`] until it is answered. One
//! agent that fills this and its share of the answers' memory takes less than 128 MiB. Entry point:
//! [`read_body`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use gantry_engine::{Quota, QuotaExceeded, QuotaLimits, QuotaPermit};
use gantry_model::caller::Caller;
use gantry_model::id::{AgentName, KeyId, ProjectName};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::Problem;
use super::media::json_only;

/// Maximum size of a body.
pub(crate) const BODY_BYTES: usize = 4 << 20;
/// Bodies up to this size need no permit.
const SMALL: usize = 4 << 10;
/// The growth factor of a permit for a body of unknown length.
const GROWTH: usize = 8;
/// The budget of all longer bodies of a project, in KiB.
const BUDGET_KIB: usize = 64 << 10;
/// The budget of one agent.
const AGENT_KIB: usize = 40 << 10;
/// `Retry-After` if the budget is exhausted.
const COME_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How much of a refused body is still read, so that a client that is busy writing reads the
/// response.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_PAUSE: Duration = Duration::from_millis(250);

/// The code of a truncated body.
const BODY_CUT: &str = "http.body_cut";

/// The memory of long bodies, in KiB, by project and agent.
pub(crate) type Bodies = Quota<AgentName>;

/// The project and agent that a body is charged to.
pub(crate) type Account<'a> = (&'a ProjectName, &'a AgentName);

/// Creates the budget of a gateway.
pub(crate) fn bodies() -> Bodies {
    Quota::new(QuotaLimits::shared(BUDGET_KIB, AGENT_KIB))
}

/// A body's share of the budget, released with the last clone.
#[derive(Clone, Default)]
pub(crate) struct BodyPermit {
    #[expect(dead_code, reason = "held for its drop")]
    taken: Option<Arc<QuotaPermit<AgentName>>>,
}

impl BodyPermit {
    /// Takes a permit for a body of this size. fault A3
    fn take(bodies: &Bodies, account: Account<'_>, length: usize) -> Result<Self, Problem> {
        if length <= SMALL {
            return Ok(Self::default());
        }
        let kib = length.div_ceil(1024);
        let taken = bodies.take(account.0, account.1, kib);
        let taken = taken.map_err(|exceeded| {
            let problem = match exceeded {
                QuotaExceeded::Key(limit) => {
                    Problem::new("http.bodies_share").with_detail(format!(
                        "the long bodies of this agent's requests take {} MiB already",
                        limit >> 10
                    ))
                }
                QuotaExceeded::Project(_) | QuotaExceeded::All(_) => {
                    Problem::new("http.bodies_full")
                }
            };
            problem.with_retry_after(COME_AGAIN)
        })?;
        Ok(Self {
            taken: Some(Arc::new(taken)),
        })
    }
}

/// Reads a JSON body of at most [`BODY_BYTES`] on this account; its permit must be kept until the
/// request is answered. fault A3
pub(crate) async fn read_body(
    bodies: &Bodies,
    headers: &HeaderMap,
    mut body: Body,
    account: Account<'_>,
) -> Result<(Bytes, BodyPermit), Problem> {
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let room = match declared {
        Some(length) if length > BODY_BYTES as u64 => Err(too_large()),
        Some(length) => {
            json_only(headers).and_then(|()| BodyPermit::take(bodies, account, length as usize))
        }
        None => json_only(headers).map(|()| BodyPermit::default()),
    };
    let mut room = match room {
        Ok(room) => room,
        Err(problem) => return Err(unread(headers, body, problem).await),
    };
    let reading = async {
        let first = match next(&mut body).await? {
            Some(first) if declared == Some(first.len() as u64) => return Ok(first),
            Some(first) => first,
            None => return Ok(Bytes::new()),
        };
        let expected = declared.map_or(first.len() * 2, |length| length as usize);
        let mut whole = BytesMut::with_capacity(expected.min(BODY_BYTES));
        whole.extend_from_slice(&first);
        let mut covered = declared.map_or(SMALL, |_| BODY_BYTES);
        while whole.len() <= BODY_BYTES {
            while whole.len() > covered {
                // It may reach the maximum, but most bodies are short.
                covered = (covered * GROWTH).min(BODY_BYTES);
                drop(std::mem::take(&mut room));
                room = BodyPermit::take(bodies, account, covered)?;
            }
            match next(&mut body).await? {
                Some(more) => whole.extend_from_slice(&more),
                None => return Ok(whole.freeze()),
            }
        }
        Err(too_large())
    };
    match timeout(BODY_TIME, reading).await {
        Ok(Ok(bytes)) if bytes.len() <= BODY_BYTES => Ok((bytes, room)),
        Ok(Ok(_)) => {
            drain(body).await;
            Err(too_large())
        }
        Ok(Err(problem)) => {
            if problem.code() != BODY_CUT {
                drain(body).await;
            }
            Err(problem)
        }
        Err(_) => Err(Problem::new("http.slow_body")
            .with_detail(format!("the body did not arrive within {BODY_TIME:?}"))),
    }
}

/// Refuses a request without reading its body; the body is drained first, unless the client waits
/// for `100 Continue`.
pub(crate) async fn unread(headers: &HeaderMap, body: Body, problem: Problem) -> Problem {
    if !headers.contains_key(EXPECT) {
        drain(body).await;
    }
    problem
}

fn too_large() -> Problem {
    Problem::new("http.body_too_large")
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
                return Err(Problem::new(BODY_CUT).with_detail("the request body is truncated"));
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

/// The open event streams of each key.
pub(crate) type Streams = Quota<KeyId>;
/// A stream's permit.
pub(crate) type StreamPermit = QuotaPermit<KeyId>;

/// Creates a quota of streams; a project never has more than there are connections.
pub(crate) fn streams(per_key: usize) -> Streams {
    Quota::new(QuotaLimits::shared(super::CONNECTIONS, per_key))
}

/// Takes a permit for a caller's stream.
pub(crate) fn stream_permit(streams: &Streams, caller: &Caller) -> Result<StreamPermit, Problem> {
    let taken = streams.take(&caller.project, &caller.key, 1);
    taken.map_err(|exceeded| {
        let detail = match exceeded {
            QuotaExceeded::Key(limit) => format!("this key has {limit} streams already"),
            QuotaExceeded::Project(limit) => format!("this project has {limit} streams already"),
            QuotaExceeded::All(limit) => format!("there are {limit} streams already"),
        };
        Problem::new("listen.too_many")
            .with_detail(detail)
            .with_retry_after(Duration::from_secs(1))
    })
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http::header::CONTENT_TYPE;

    use http::StatusCode;

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
        headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        if let Some(length) = length {
            headers.insert(CONTENT_LENGTH, length.parse().unwrap());
        }
        let read = read_body(
            &bodies(),
            &headers,
            body,
            (&"local".parse().unwrap(), &"a".parse().unwrap()),
        )
        .await;
        read.map(|(bytes, _)| bytes.len())
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

    // fault A3
    #[test]
    fn long_bodies_share_a_budget() {
        let bodies: Bodies = Quota::new(QuotaLimits {
            all: 20,
            per_project: 16,
            per_key: 8,
        });
        let take = |project: &str, agent: &str, length| {
            let (project, agent) = (project.parse().unwrap(), agent.parse().unwrap());
            BodyPermit::take(&bodies, (&project, &agent), length)
        };
        let first = take("one", "a", SMALL + 1).unwrap();
        let over = take("one", "a", SMALL + 1).err().unwrap();
        assert_eq!(over.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(over.code(), "http.bodies_share");
        assert!(take("one", "a", SMALL).is_ok(), "small ones need none");
        // An agent of the same name in another project has its own share. row 3.2
        let theirs = take("other", "a", SMALL + 1).unwrap();
        let second = take("one", "b", 2 * SMALL).unwrap();
        let over = take("one", "c", SMALL + 1).err().unwrap();
        assert_eq!(over.code(), "http.bodies_full", "of what a project has");
        let full = take("other", "b", SMALL + 1).err().unwrap();
        assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(full.code(), "http.bodies_full");
        let clone = first.clone();
        drop(first);
        assert!(take("one", "c", SMALL + 1).is_err());
        drop((clone, second));
        assert!(take("one", "c", SMALL + 1).is_ok());
        drop(theirs);
        assert!(bodies.is_empty());
    }
}
