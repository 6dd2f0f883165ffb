//! A response that is read in pieces: an archive to be written to a file, or the progress of a
//! pull.
//!
//! Entry points: [`Transfer::open`], then [`Transfer::piece`] or [`Transfer::event`].

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use gantry_model::event_stream::Events;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use super::client::{Client, refusal};
use super::failure::{Exit, Failure};
use super::pool::Used;

/// The timeout between two pieces of a response: a registry may be slow.
const SILENCE: Duration = Duration::from_secs(600);
/// The maximum size of an error response.
const LONGEST_REFUSAL: usize = 1 << 20;
/// The maximum size of an event.
const LONGEST_EVENT: usize = 4 << 20;

/// A response being received.
pub(super) struct Transfer {
    body: Incoming,
    parser: Events,
    heard: VecDeque<(String, Value)>,
    _used: Used,
}

impl Transfer {
    /// Sends a request; an error response is a failure.
    pub(super) async fn open(
        client: &Client,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<&Value>,
    ) -> Result<Self, Failure> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = Request::builder()
            .method(method)
            .uri(client.path(path))
            .header(ACCEPT, accept)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("a path of escaped parts is a URI");
        let answered = timeout(SILENCE, client.pool().send(request)).await;
        let answered = answered.map_err(|_| silent())?;
        let (response, used) = answered.map_err(|error| client.failed(error))?;
        let status = response.status();
        if !status.is_success() {
            let body = Limited::new(response.into_body(), LONGEST_REFUSAL).collect();
            let body = body.await.map(|body| body.to_bytes()).unwrap_or_default();
            let problem = serde_json::from_slice(&body).unwrap_or_default();
            let unknown = || Failure::new(Exit::Failed, format!("the gateway answered {status}"));
            return Err(refusal(status, &problem).unwrap_or_else(unknown));
        }
        Ok(Self {
            body: response.into_body(),
            parser: Events::new(LONGEST_EVENT),
            heard: VecDeque::new(),
            _used: used,
        })
    }

    /// Returns the next piece; nothing at the end of a complete response.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = timeout(SILENCE, self.body.frame()).await;
            match frame.map_err(|_| silent())? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
                Some(Err(error)) => {
                    let message = "the response of the gateway was cut off";
                    return Err(Failure::plain(Exit::Failed, message, &error));
                }
            }
        }
    }

    /// Returns the next event with its name; nothing at the end.
    pub(super) async fn event(&mut self) -> Result<Option<(String, Value)>, Failure> {
        loop {
            if let Some(event) = self.heard.pop_front() {
                return Ok(Some(event));
            }
            let Some(piece) = self.piece().await? else {
                return Ok(None);
            };
            self.parser.push(&piece);
            while let Ok(Some(event)) = self.parser.next_event() {
                if let Ok(data) = serde_json::from_slice(&event.data) {
                    self.heard.push_back((event.name, data));
                }
            }
        }
    }
}

fn silent() -> Failure {
    let message = format!("no data from the gateway for {} s", SILENCE.as_secs());
    Failure::new(Exit::Failed, message)
}
