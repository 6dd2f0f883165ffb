//! Limits on reading request bodies.
//!
//! A declared length over the limit is refused before a byte is read, an undeclared one as soon as
//! it exceeds the limit; a slow body times out. All long bodies together stay within a budget,
//! those of one agent within half of it; each keeps its [`BodyPermit`] until it is answered. Entry
//! point: [`read_body`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use gantry_engine::{Quota, QuotaExceeded, QuotaLimits, QuotaPermit};
use gantry_model::id::{AgentName, ProjectName};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::Problem;
use super::media::json_only;

/// The largest body that is read.
pub(crate) const BODY_BYTES: usize = 4 << 20;
/// Bodies up to this length need no room of the budget.
const SMALL: usize = 4 << 10;
/// How many times the room that it has a body of unknown length gets when it is longer.
const GROWTH: usize = 8;
/// What all longer bodies of a project may take together, in KiB.
const BUDGET_KIB: usize = 128 << 10;
/// When to come again if the budget is spent.
const COME_AGAIN: Duration = Duration::from_secs(1);
/// The longest time that a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// What is still taken off a connection whose body is refused, so that its client, busy writing,
/// gets to read the answer.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_PAUSE: Duration = Duration::from_millis(250);

/// The code of a body that ended before its time.
const BODY_CUT: &str = "http.body_cut";

/// What long bodies take, in KiB, by project and agent.
pub(crate) type Bodies = Quota<AgentName>;

/// Whose bodies they are.
pub(crate) type Account<'a> = (&'a ProjectName, &'a AgentName);

/// Makes the budget of a gateway.
pub(crate) fn bodies() -> Bodies {
    Quota::new(QuotaLimits::shared(BUDGET_KIB, BUDGET_KIB / 2))
}

/// What a long body takes of the budget, given back with the last clone.
#[derive(Clone, Default)]
pub(crate) struct BodyPermit {
    #[expect(dead_code, reason = "held for its drop")]
    taken: Option<Arc<QuotaPermit<AgentName>>>,
}

impl BodyPermit {
    /// Takes room for a body of this length. fault A3
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

/// Reads a body of at most [`BODY_BYTES`] that is sent as JSON on this account; its permit must be kept until
/// it is answered. fault A3
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
                // It may become as long as any, and most do not.
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

/// Refuses a request whose body nobody reads; it is taken off the connection first, unless its client
/// waits to be told to send it.
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
