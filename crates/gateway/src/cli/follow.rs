//! Follows the gateway's event stream. Opened before the first query, so that no event in between
//! is missed. A stream that is cut is reopened, which is reported as a gap. Entry point:
//! [`Follow::open`].

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
use super::pool::SendError;

/// A stream without data for this long is dead: an idle one has a heartbeat every two seconds.
const SILENCE: Duration = Duration::from_secs(20);
/// The pause before a stream is reopened, so that a stopping gateway is not asked at once.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum size of an event.
const LONGEST_EVENT: usize = 16 << 20;
/// Maximum size of an error response.
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
    client: Client,
    path: String,
    body: Option<Incoming>,
    parser: Events,
    heard: VecDeque<Event>,
}

impl Follow {
    /// Opens a stream of these topics; it is established when this returns.
    pub(super) async fn open(client: &Client, topics: &str) -> Result<Self, Failure> {
        let mut follow = Self {
            client: client.clone(),
            path: format!("/api/v1/events/stream?topics={}", segment(topics)),
            body: None,
            parser: Events::new(LONGEST_EVENT),
            heard: VecDeque::new(),
        };
        follow.connect().await?;
        Ok(follow)
    }

    /// Returns the next event. A reconnect is reported as a `gap`.
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

    /// Waits for any event, and discards those received so far.
    pub(super) async fn changed(&mut self) -> Result<(), Failure> {
        self.next().await?;
        self.heard.clear();
        Ok(())
    }

    fn take(&mut self, piece: &Bytes) {
        // An event that is too long does not come from a gateway.
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
            .uri(self.client.path(&self.path))
            .header(ACCEPT, "text/event-stream");
        let request = request.body(Full::default());
        let request = request.expect("a path of escaped parts is a URI");
        let sent = self.client.pool().send(request).await;
        // A stream that cannot be opened is a gateway that is not there.
        let sent = sent.map_err(|(SendError::Unsent(why) | SendError::Cut(why))| {
            self.client.failed(SendError::Unsent(why))
        });
        let (response, _used) = sent?;
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
