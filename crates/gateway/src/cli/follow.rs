//! The gateway's event stream, as verbs follow it: opened before anything is asked for, so that nothing
//! that happens meanwhile is missed. A stream that is cut is opened again, which counts as a gap.
//! Entry point: [`Follow::open`].

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use gantry_model::event_stream::Events;
use http::header::ACCEPT;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::client::{Client, refusal, segment};
use super::failure::{Exit, Failure};
use super::wire::{Down, Wire};

/// A stream that says nothing for so long is dead: a quiet one has a heartbeat every two seconds.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a stream that ended is left alone, so that a gateway that is stopping is not asked at once.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest event that is read.
const LONGEST_EVENT: usize = 16 << 20;
/// The longest refusal that is read.
const LONGEST_REFUSAL: usize = 1 << 20;

/// Something that happened.
#[derive(Debug)]
pub(super) struct Event {
    /// `server`, `lifecycle`, `call`, `log`, `gap` and so on.
    pub(super) kind: String,
    pub(super) data: Value,
}

/// An open stream.
pub(super) struct Follow {
    wire: Wire,
    authority: String,
    path: String,
    body: Option<Incoming>,
    parser: Events,
    heard: VecDeque<Event>,
}

impl Follow {
    /// Opens a stream of these topics; it has begun when this returns.
    pub(super) async fn open(client: &Client, topics: &str) -> Result<Self, Failure> {
        let wire = Wire::new(client).ok_or_else(|| {
            Failure::new(Exit::Failed, "the key file holds something that is no key")
                .hint("name another with `--key-file FILE`")
        })?;
        let mut follow = Self {
            wire,
            authority: client.authority().to_owned(),
            path: format!("/api/v1/events/stream?topics={}", segment(topics)),
            body: None,
            parser: Events::new(LONGEST_EVENT),
            heard: VecDeque::new(),
        };
        follow.connect().await?;
        Ok(follow)
    }

    /// Returns the next event. What was missed while the stream was cut is a `gap`.
    pub(super) async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.heard.pop_front() {
                match event.kind.as_str() {
                    "hello" => continue,
                    _ => return Ok(event),
                }
            }
            let Some(body) = &mut self.body else {
                sleep(PAUSE).await;
                self.connect().await?;
                let (kind, data) = ("gap".to_owned(), Value::Null);
                return Ok(Event { kind, data });
            };
            let frame = timeout(SILENCE, body.frame()).await;
            let Ok(Some(Ok(frame))) = frame else {
                self.body = None;
                continue;
            };
            if let Ok(piece) = frame.into_data() {
                self.take(&piece);
            }
        }
    }

    /// Waits until something has happened, whatever it was, and forgets what has come of it so far.
    pub(super) async fn changed(&mut self) -> Result<(), Failure> {
        self.next().await?;
        self.heard.clear();
        Ok(())
    }

    fn take(&mut self, piece: &Bytes) {
        // An event that is too long is none of ours.
        self.parser.push(piece);
        loop {
            match self.parser.next_event() {
                Ok(Some(event)) => {
                    let kind = event.name;
                    let data = serde_json::from_slice(&event.data).ok();
                    self.heard.extend(data.map(|data| Event { kind, data }));
                }
                Ok(None) => return,
                Err(_endless) => {
                    self.body = None;
                    return;
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(&self.path)
            .header(ACCEPT, "text/event-stream");
        let request = request.body(Full::default());
        let request = request.expect("a path of escaped parts is a URI");
        let gone = |down: Down| {
            let (Down::Unsent(why) | Down::Cut(why)) = down;
            Failure::new(
                Exit::NoGateway,
                format!("no gateway answers at `{}`", self.authority),
            )
            .cause(why)
            .hint("start it with `gantry up`, or name another with `--data DIR` or `--url URL`")
        };
        let (response, _used) = self.wire.send(request).await.map_err(gone)?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST_REFUSAL).collect();
            let body = body.await.map(|body| body.to_bytes()).unwrap_or_default();
            let problem = serde_json::from_slice(&body).unwrap_or_default();
            let unknown = || Failure::new(Exit::Failed, format!("the gateway answered {status}"));
            return Err(refusal(status, &problem).unwrap_or_else(unknown));
        }
        self.parser = Events::new(LONGEST_EVENT);
        self.body = Some(response.into_body());
        Ok(())
    }
}
