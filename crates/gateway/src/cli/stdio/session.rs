//! The session of a handshake-era client: opened by its `initialize`, reopened when the gateway has
//! forgotten it, with the stream of its notifications.
//!
//! A client never notices that its gateway was restarted, except for errors in between and a
//! `list_changed` notification. Entry points: `Bridge::initialize`, `Bridge::open_again`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::{ProtocolVersion, headers};
use gantry_model::jsonrpc::{self, Frame, Limits, Message, Outcome, Raw};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::{sleep, timeout};

use super::bridge::Bridge;
use super::error::{BridgeError, within};

/// Timeout of `initialize`.
const HELLO: Duration = Duration::from_secs(10);
/// Timeout of closing the session.
const GOODBYE: Duration = Duration::from_millis(300);
/// The wait before the notification stream is reopened.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST_HELLO: usize = 1 << 20;

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// The negotiated session.
#[derive(Debug, Default)]
pub(super) struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// The client's own `initialize`, to be repeated.
    hello: Bytes,
    is_heard: bool,
}

impl Session {
    /// Returns whether the negotiated version allows batches.
    pub(super) fn allows_batches(&self) -> bool {
        let version = self.version.as_ref().and_then(|text| text.to_str().ok());
        let version = version.and_then(|text| text.parse().ok());
        version.is_some_and(ProtocolVersion::allows_batches)
    }

    /// Returns the headers of every message of the session.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        let named = [
            (headers::SESSION_ID, &self.id),
            (headers::PROTOCOL_VERSION, &self.version),
        ];
        for (name, value) in named {
            if let (Ok(name), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
                map.insert(name, value.clone());
            }
        }
        map
    }
}

impl Bridge {
    /// Forwards `initialize` and relays the response.
    pub(super) async fn initialize(self: &Arc<Self>, frame: &Frame) {
        let Message::Request(request) = frame.incoming().message else {
            return;
        };
        let hello = Bytes::from(frame.text().to_owned());
        let mut session = self.session.lock().await;
        *session = Session {
            is_heard: session.is_heard,
            ..Session::default()
        };
        match self.greet(hello.clone()).await {
            Ok((answer, opened)) => {
                *session = Session {
                    is_heard: session.is_heard,
                    hello,
                    ..opened
                };
                if session.id.is_some() && !session.is_heard {
                    session.is_heard = true;
                    let bridge = Arc::clone(self);
                    self.others.spawn(async move { bridge.listen().await });
                }
                drop(session);
                self.say(answer.into()).await;
            }
            Err(error) => {
                drop(session);
                self.refuse(Some(request.id), &error.problem()).await;
            }
        }
    }

    /// Reopens the session of these headers, unless that was done already; returns the new headers.
    pub(super) async fn open_again(&self, lost: &HeaderMap) -> Result<HeaderMap, BridgeError> {
        let mut session = self.session.lock().await;
        if session.headers() != *lost || session.hello.is_empty() {
            return Ok(session.headers());
        }
        let (_, opened) = self.greet(session.hello.clone()).await?;
        if opened.id.is_none() {
            return Err(BridgeError::Cut("the gateway opened no session".into()));
        }
        session.id = opened.id;
        session.version = opened.version;
        let headers = session.headers();
        drop(session);
        let body = Bytes::from_static(INITIALIZED.as_bytes());
        let (response, _) = self.send(Method::POST, headers.clone(), body).await?;
        tracing::info!(status = %response.status(), "the gateway was restarted; the session is open again");
        self.say(CHANGED.to_vec()).await;
        Ok(headers)
    }

    async fn greet(&self, hello: Bytes) -> Result<(Bytes, Session), BridgeError> {
        let greeting = async {
            let (response, used) = self.send(Method::POST, HeaderMap::new(), hello).await?;
            let status = response.status();
            let id = response.headers().get(headers::SESSION_ID).cloned();
            let pool = self.gateway.pool();
            let answer = pool.read(response, used, LONGEST_HELLO).await?;
            let version = agreed(&answer).ok_or(BridgeError::NotAGateway(status))?;
            let opened = Session {
                id,
                version,
                ..Session::default()
            };
            Ok((answer, opened))
        };
        within(HELLO, greeting).await
    }

    /// Follows notifications as long as there is a session.
    async fn listen(self: Arc<Self>) {
        loop {
            let headers = self.session.lock().await.headers();
            let hearing = async {
                match self.send(Method::GET, headers.clone(), Bytes::new()).await {
                    Ok((response, _)) if response.status() == StatusCode::OK => {
                        self.follow(response, None).await.err()
                    }
                    Ok((response, _)) if response.status() == StatusCode::NOT_FOUND => {
                        self.open_again(&headers).await.err()
                    }
                    Ok(_) => None,
                    Err(error) => Some(error),
                }
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                heard = hearing => if let Some(error) = heard {
                    tracing::debug!(%error, "notifications are interrupted");
                },
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = sleep(AGAIN) => {}
            }
        }
    }

    /// Closes the session, if there is one and the gateway answers.
    pub(super) async fn goodbye(&self) {
        let headers = self.session.lock().await.headers();
        if !headers.is_empty() {
            let parting = self.send(Method::DELETE, headers, Bytes::new());
            drop(timeout(GOODBYE, parting).await);
        }
    }
}

/// Returns the version negotiated by a response to `initialize`; nothing if it is not a response.
fn agreed(answer: &[u8]) -> Option<Option<HeaderValue>> {
    let incoming = jsonrpc::parse(answer, &Limits::default()).ok()?;
    let Message::Response(response) = incoming.message else {
        return None;
    };
    Some(match response.outcome {
        Outcome::Result(result) => result
            .get("protocolVersion")
            .and_then(Raw::string)
            .and_then(|version| HeaderValue::try_from(&*version).ok()),
        Outcome::Error(_) => None,
    })
}
