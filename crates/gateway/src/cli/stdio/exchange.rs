//! Sends one message to the gateway and relays the response.
//!
//! The headers required by the protocol are derived from the body. A message that was never sent is
//! retried once, wherever the gateway is now; one that may have arrived is not. A session that the
//! gateway has forgotten is reopened. Entry points: `Bridge::exchange`, `Bridge::deliver`.

use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::{headers, meta};
use gantry_model::event_stream::Events;
use gantry_model::jsonrpc::{
    self, ErrorBody, Frame, Limits, Message, Payload, Request as Asked, RequestId,
};
use gantry_model::mcp::{Method as McpMethod, Params};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;

use super::super::pool::{SendError, Used, words};
use super::batch::Batch;
use super::bridge::Bridge;
use super::error::{BridgeError, within};

/// Longer than the longest call, including the client's time to answer server requests.
const ANSWER: Duration = Duration::from_secs(1_260);
const LONGEST_BODY: usize = 64 << 20;
/// The request without a deadline.
const ENDLESS: &str = "subscriptions/listen";

/// Longer than a responsive gateway takes.
const NOTICE: Duration = Duration::from_secs(30);

/// Who waits for the response.
#[derive(Clone, Copy)]
enum Awaited<'a> {
    Request(RequestId<'a>),
    Batch(&'a Batch),
    Nobody,
}

impl<'a> Awaited<'a> {
    fn request(self) -> Option<RequestId<'a>> {
        match self {
            Self::Request(id) => Some(id),
            Self::Batch(_) | Self::Nobody => None,
        }
    }
}

/// The result of a message.
pub(super) enum Delivered {
    /// It was answered, or needs no response.
    Done,
    /// The gateway does not know the session.
    NoSession,
}

impl Bridge {
    /// Sends a request and relays what comes back, the response last.
    pub(super) async fn exchange(&self, frame: &Frame) -> Result<(), BridgeError> {
        let Message::Request(request) = frame.incoming().message else {
            return Ok(());
        };
        let mirrored = mirrored(&request);
        let body = Bytes::from(frame.text().to_owned());
        let awaited = Awaited::Request(request.id);
        let exchange = self.persist(&mirrored, body, awaited);
        match request.method == ENDLESS {
            true => exchange.await,
            false => within(ANSWER, exchange).await,
        }
    }

    /// Sends a batch and relays the responses.
    pub(super) async fn exchange_batch(&self, batch: &Batch) -> Result<(), BridgeError> {
        let body = Bytes::from(batch.text().to_owned());
        let headers = HeaderMap::new();
        within(ANSWER, self.persist(&headers, body, Awaited::Batch(batch))).await
    }

    /// Sends a message without a response.
    pub(super) async fn deliver(&self, body: Bytes) -> Result<(), BridgeError> {
        let headers = HeaderMap::new();
        within(NOTICE, self.persist(&headers, body, Awaited::Nobody)).await
    }

    async fn persist(
        &self,
        mirrored: &HeaderMap,
        body: Bytes,
        awaited: Awaited<'_>,
    ) -> Result<(), BridgeError> {
        let is_stateless = !mirrored.is_empty();
        let session = self.session.lock().await.headers();
        let mut all = mirrored.clone();
        if !is_stateless {
            all.extend(session.clone());
        }
        match self
            .once(all, body.clone(), awaited, !session.is_empty())
            .await?
        {
            Delivered::NoSession if !is_stateless => {
                let again = self.open_again(&session).await?;
                self.once(again, body, awaited, false).await?;
            }
            Delivered::NoSession | Delivered::Done => {}
        }
        Ok(())
    }

    async fn once(
        &self,
        headers: HeaderMap,
        body: Bytes,
        awaited: Awaited<'_>,
        has_session: bool,
    ) -> Result<Delivered, BridgeError> {
        let (response, used) = self.send(Method::POST, headers, body).await?;
        if has_session && response.status() == StatusCode::NOT_FOUND {
            return Ok(Delivered::NoSession);
        }
        self.relay(response, used, awaited).await?;
        Ok(Delivered::Done)
    }

    /// Sends a request to the endpoint; one that was never sent is retried once.
    pub(super) async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Used), BridgeError> {
        let request = || {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() =
                http::Uri::try_from(self.path.as_str()).expect("the path was checked at the start");
            *request.headers_mut() = headers.clone();
            let accepted = match method {
                Method::GET => "text/event-stream",
                _ => "application/json, text/event-stream",
            };
            let given = request.headers_mut();
            given.insert(ACCEPT, HeaderValue::from_static(accepted));
            given.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            request
        };
        let pool = self.gateway.pool();
        let mut sent = pool.send(request()).await;
        let is_elsewhere = match &sent {
            Err(SendError::Unsent(_)) => true,
            Err(SendError::Cut(_)) => false,
            // Another program may listen at the old address now, and refuse our key.
            Ok((response, _)) => {
                response.status() == StatusCode::UNAUTHORIZED && self.gateway.has_left(&pool).await
            }
        };
        if is_elsewhere {
            self.gateway.find_again().await.map_err(BridgeError::Down)?;
            sent = self.gateway.pool().send(request()).await;
        }
        Ok(sent?)
    }

    /// Relays a response; an error without an id gets the id of the request, or those of the batch.
    async fn relay(
        &self,
        response: Response<Incoming>,
        used: Used,
        awaited: Awaited<'_>,
    ) -> Result<(), BridgeError> {
        let status = response.status();
        if is_stream(&response) {
            return self.follow(response, awaited.request()).await;
        }
        let pool = self.gateway.pool();
        let body = pool.read(response, used, LONGEST_BODY).await?;
        if body.is_empty() {
            // A cancelled request, or a message without a response.
            return Ok(());
        }
        let is_answer = match awaited {
            Awaited::Request(id) => answers(&body, id),
            Awaited::Batch(_) | Awaited::Nobody => status.is_success(),
        };
        if is_answer {
            self.say(body.into()).await;
            return Ok(());
        }
        let text = std::str::from_utf8(&body).map_err(|_| BridgeError::NotAGateway(status))?;
        let error = jsonrpc::validate(text, &Limits::default())
            .ok()
            .and_then(|message| ErrorBody::read(message.get("error")?))
            .ok_or(BridgeError::NotAGateway(status))?;
        let (code, data) = (error.code, error.data.map(Payload::Raw));
        let answer = match awaited {
            Awaited::Request(id) => {
                let mut out = Vec::new();
                jsonrpc::write_error(&mut out, Some(id), code, &error.message, data);
                Some(out)
            }
            Awaited::Batch(batch) => batch.error(code, &error.message, data),
            Awaited::Nobody => None,
        };
        if let Some(answer) = answer {
            self.say(answer).await;
        }
        Ok(())
    }

    /// Relays the events of a stream until it ends; a request must have been answered by then.
    pub(super) async fn follow(
        &self,
        response: Response<Incoming>,
        id: Option<RequestId<'_>>,
    ) -> Result<(), BridgeError> {
        let mut body = response.into_body();
        let mut events = Events::new(LONGEST_BODY);
        let mut is_answered = false;
        let cut = |why: String| BridgeError::Cut(why);
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(_) if is_answered => return Ok(()),
                Err(error) => return Err(cut(words(&error))),
            };
            let Some(piece) = frame.data_ref() else {
                continue;
            };
            events.push(piece);
            let endless = |_| cut("an event is too long".to_owned());
            while let Some(event) = events.next_event().map_err(endless)? {
                is_answered |= id.is_some_and(|id| answers(&event.data, id));
                self.say(event.data.into()).await;
            }
        }
        match id {
            Some(_) if !is_answered => Err(cut("the stream ended".to_owned())),
            Some(_) | None => Ok(()),
        }
    }
}

fn is_stream(response: &Response<Incoming>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

fn answers(message: &[u8], id: RequestId<'_>) -> bool {
    let incoming = jsonrpc::parse(message, &Limits::default());
    match incoming.map(|incoming| incoming.message) {
        Ok(Message::Response(answer)) => answer.id.raw() == id.raw(),
        _ => false,
    }
}

/// Returns the headers that mirror the body of a stateless-era request.
fn mirrored(request: &Asked<'_>) -> HeaderMap {
    let mut map = HeaderMap::new();
    let params = Params::from(request.params);
    let version = params
        .meta
        .and_then(|meta| meta.get(meta::PROTOCOL_VERSION)?.string());
    let Some(version) = version else {
        return map;
    };
    let mut put = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        // A value that is invalid in a header is left out; the gateway reports it.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            map.insert(name, value);
        }
    };
    put(headers::PROTOCOL_VERSION, &version);
    put(headers::METHOD, &request.method);
    if let Some(name) = headers::name_of(McpMethod::parse(&request.method), &params) {
        put(headers::NAME, &headers::encode(&name));
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, String)> {
        let incoming = jsonrpc::parse(text.as_bytes(), &Limits::default()).unwrap();
        let Message::Request(request) = incoming.message else {
            panic!("a request")
        };
        let map = mirrored(&request);
        let pairs = map
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        pairs.collect()
    }

    // fault H12
    #[test]
    fn headers_repeat_the_body_of_the_stateless_era_only() {
        assert!(of(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).is_empty());
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"é","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let expected = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?w6k=?="),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(of(call), expected);
    }
}
