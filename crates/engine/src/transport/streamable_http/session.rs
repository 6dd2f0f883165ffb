//! The state of a session of the handshake era, the headers that every request carries for it, and
//! how it is re-initialised when the server no longer knows it. faults H9, H10

use std::sync::Arc;

use bytes::Bytes;
use gantry_model::era::headers::{METHOD, NAME, PROTOCOL_VERSION, SESSION_ID, encode};
use gantry_model::era::{Era, ProtocolVersion};
use gantry_model::event_stream::Events;
use gantry_model::jsonrpc::{self, Limits, Message, Outcome, Raw};
use reqwest::header::HeaderValue;
use reqwest::{Method, Response};

use super::super::http::{
    Body, Content, HttpError, OutgoingMessage, RemoteRequest, Replies, chunk, drained,
    each_message, whole,
};
use super::{LONGEST_EVENT, Session, UNAWAITED};

/// The request that opens a session.
const GREETING: &str = "initialize";
/// The notification that completes the handshake.
pub(super) const GREETED: &str = "notifications/initialized";
/// What a client of streamable HTTP accepts.
const ACCEPTED: &str = "application/json, text/event-stream";
/// The longest id of a session.
const LONGEST_ID: usize = 1024;
/// Time limit for the request that ends a session.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(1500);
/// The largest response to `initialize`.
const LONGEST_GREETING: usize = 1 << 20;

/// The state of a session.
#[derive(Debug, Default)]
pub(super) struct SessionState {
    /// The negotiated protocol version.
    pub(super) version: Option<ProtocolVersion>,
    /// Its id, if the server gave one.
    id: Option<HeaderValue>,
    /// How often it was re-initialised.
    generation: u64,
    /// The `initialize` request, for re-initialising.
    greeting: Option<OutgoingMessage>,
    greeted: Option<OutgoingMessage>,
}

impl<R: Replies> Session<R> {
    pub(super) fn is_handshake(&self) -> bool {
        let version = self.state.lock().version;
        version.is_some_and(|version| version.era() == Era::Handshake)
    }

    /// Returns how often the session was re-initialised, and whether the server gave it an id.
    pub(super) fn generation(&self) -> (u64, bool) {
        let state = self.state.lock();
        (state.generation, state.id.is_some())
    }

    /// Remembers the `initialize` request.
    pub(super) fn remember(&self, letter: &OutgoingMessage) {
        let mut state = self.state.lock();
        match letter.head.method.as_ref() {
            GREETING => state.greeting = Some(letter.clone()),
            GREETED => state.greeted = Some(letter.clone()),
            _ => {}
        }
    }

    /// Makes the request that posts a message.
    pub(super) fn asking(&self, letter: &OutgoingMessage) -> RemoteRequest<'_> {
        let mut asking = RemoteRequest::post(&self.remote.url, letter.body.clone(), ACCEPTED);
        asking.within = letter.call.is_none().then_some(UNAWAITED);
        let head = &letter.head;
        asking.set_trace(head.trace.as_ref());
        let spoken = self.state.lock().version;
        let stateless = match head.method.as_ref() {
            GREETING => return asking,
            "server/discover" => Some(spoken.unwrap_or(ProtocolVersion::LATEST)),
            _ => spoken,
        };
        match stateless.filter(|version| version.era() == Era::Stateless) {
            Some(version) => {
                asking.set(PROTOCOL_VERSION, version.as_str());
                if !head.method.is_empty() {
                    asking.set(METHOD, &head.method);
                }
                if let Some(name) = &head.name {
                    asking.set(NAME, &encode(name));
                }
                for (name, value) in &head.params {
                    asking.set(&format!("Mcp-Param-{name}"), &encode(value));
                }
            }
            None => self.name_session(&mut asking),
        }
        asking
    }

    /// Adds the session and version headers.
    pub(super) fn name_session(&self, asking: &mut RemoteRequest<'_>) {
        let state = self.state.lock();
        if let Some(version) = state.version.filter(|version| version.has_version_header()) {
            asking.set(PROTOCOL_VERSION, version.as_str());
        }
        if let Some(id) = &state.id {
            asking.headers.insert("mcp-session-id", id.clone());
        }
    }

    /// Returns a response's session id, if it is valid.
    fn given(&self, response: &Response) -> Result<Option<HeaderValue>, HttpError> {
        let broken = |why: &str| HttpError::session(&self.remote.origin, why);
        let mut given = response.headers().get_all(SESSION_ID).iter();
        let (given, more) = (given.next(), given.next());
        if more.is_some() {
            return Err(broken("it has two ids"));
        }
        if let Some(id) = given
            && !is_id(id.as_bytes())
        {
            return Err(broken("its id is empty, too long or not visible ASCII"));
        }
        Ok(given.cloned())
    }

    /// Checks a response's session id against the request's; only `initialize` may open a session.
    pub(super) fn check(
        &self,
        response: &Response,
        method: &str,
        sent: Option<&HeaderValue>,
    ) -> Result<(), HttpError> {
        let given = self.given(response)?;
        if method == GREETING {
            if response.status().is_success() {
                self.state.lock().id = given;
            }
            return Ok(());
        }
        match (given, sent) {
            (Some(given), Some(sent)) if given != *sent => {
                let why = "its id has changed";
                Err(HttpError::session(&self.remote.origin, why))
            }
            _ => Ok(()),
        }
    }

    /// Re-initialises the session once for all callers that found it gone in this generation. A
    /// cancelled caller does not leave it half made.
    pub(super) async fn renew(self: &Arc<Self>, generation: u64) -> Result<(), HttpError> {
        let session = Arc::clone(self);
        let renewing = async move { session.renew_now(generation).await };
        let renewed = self.tracker.spawn(renewing).await;
        let broken = |_| HttpError::session(&self.remote.origin, "it was not re-initialised");
        renewed.map_err(broken)?
    }

    async fn renew_now(&self, generation: u64) -> Result<(), HttpError> {
        let _turn = self.renewing.lock().await;
        let (greeting, greeted, version) = {
            let state = self.state.lock();
            if state.generation != generation {
                return Ok(());
            }
            let greeting = state.greeting.clone();
            (greeting, state.greeted.clone(), state.version)
        };
        let gone = |why: &str| HttpError::session(&self.remote.origin, why);
        let greeting = greeting.ok_or_else(|| gone("the server no longer knows it"))?;
        let mut asking = self.asking(&greeting);
        asking.within = Some(UNAWAITED);
        let response = self.remote.send(&asking).await?;
        if !response.status().is_success() {
            return Err(self.remote.unusable(response).await);
        }
        // Not used by others before the handshake is complete.
        let id = self.given(&response)?;
        let answer = tokio::time::timeout(UNAWAITED, self.first_answer(response)).await;
        let answer =
            answer.map_err(|_| gone("the server does not answer a new `initialize`"))??;
        let chosen =
            agreed(&answer).ok_or_else(|| gone("the server refuses a new `initialize`"))?;
        if Some(chosen) != version {
            return Err(gone("the server uses another protocol version now"));
        }
        if let Some(greeted) = greeted {
            let mut asking = self.asking(&greeted);
            asking.within = Some(UNAWAITED);
            asking.headers.remove("mcp-session-id");
            if let Some(id) = &id {
                asking.headers.insert("mcp-session-id", id.clone());
            }
            drained(self.remote.send(&asking).await?).await;
        }
        {
            let mut state = self.state.lock();
            state.id = id;
            state.generation += 1;
        }
        // Notifications in between had no receiver.
        self.replies.missed_news();
        Ok(())
    }

    /// Returns the first response in a body, JSON or events.
    async fn first_answer(&self, mut response: Response) -> Result<Bytes, HttpError> {
        let origin = &self.remote.origin;
        let none = || HttpError::cut(origin, "it ended without an answer");
        match Content::of(&response) {
            Content::Json => match whole(origin, &mut response, LONGEST_GREETING).await? {
                Body::Whole(body) => Ok(body),
                Body::TooLong => Err(none()),
            },
            Content::Events => {
                let mut events = Events::new(LONGEST_EVENT);
                while let Some(piece) = chunk(origin, &mut response).await? {
                    events.push(&piece);
                    while let Some(event) = events.next_event().map_err(|_| none())? {
                        let mut found = None;
                        each_message(event.data, |message| {
                            found = found.take().or_else(|| agreed(&message).map(|_| message));
                        });
                        if let Some(answer) = found {
                            drained(response).await;
                            return Ok(answer);
                        }
                    }
                }
                Err(none())
            }
            Content::Other => Err(self.remote.unusable(response).await),
        }
    }

    /// Ends the session on the server; failure does not matter.
    pub(super) async fn farewell(&self) {
        let (_, has_id) = self.generation();
        if !has_id {
            return;
        }
        let mut asking = RemoteRequest::events(&self.remote.url);
        asking.method = Method::DELETE;
        asking.within = Some(FAREWELL);
        self.name_session(&mut asking);
        drop(self.remote.send(&asking).await);
    }
}

/// Returns the version in a response to `initialize`.
fn agreed(answer: &[u8]) -> Option<ProtocolVersion> {
    let incoming = jsonrpc::parse(answer, &Limits::default()).ok()?;
    let Message::Response(response) = incoming.message else {
        return None;
    };
    let Outcome::Result(result) = response.outcome else {
        return None;
    };
    let chosen = result.get("protocolVersion").and_then(Raw::string)?;
    chosen.parse().ok()
}

/// Visible ASCII, and not too long.
fn is_id(id: &[u8]) -> bool {
    !id.is_empty() && id.len() <= LONGEST_ID && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_visible_and_short() {
        // fault H10
        assert!(is_id(b"1868a90c-7e5e"));
        assert!(!is_id(b""));
        assert!(!is_id(b"a b"));
        assert!(!is_id("ü".as_bytes()));
        assert!(!is_id(&[b'a'; 10 << 10]));
    }

    #[test]
    fn only_an_agreement_is_one() {
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}"#;
        assert_eq!(agreed(answer), Some(ProtocolVersion::V2025_06_18));
        assert_eq!(agreed(br#"{"jsonrpc":"2.0","method":"x"}"#), None);
    }
}
