//! A posted message: its kind, its era, and which module answers it.
//!
//! The body is parsed once and is authoritative; headers that contradict it are refused (fault
//! H12). Entry point: `Endpoint::post`.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::response::{IntoResponse, Response as HttpResponse};
use bytes::Bytes;
use gantry_engine::ClientIdentity;
use gantry_model::era::headers::Mirrored;
use gantry_model::era::opening::{self, Opening};
use gantry_model::era::{Era, EraError};
use gantry_model::jsonrpc::{
    self, Incoming, Limits, Members, Message, Notification, Raw, Request, RequestId, Response,
    WireError,
};
use gantry_model::mcp::{ClientCapabilities, LogLevel, Params, may_ask_back};
use http::{HeaderMap, HeaderName};

use super::answer::Answer;
use super::forward::Asked;
use super::inflight::Owner;
use super::sessions::Session;
use super::stream::{as_events, token};
use super::subscribe::is_subscription;
use super::{AuthorizedRequest, Endpoint, VERSION_HEADER, values};
use crate::http::context;
use crate::http::error::Problem;
use crate::http::limits::{BodyPermit, read_body, unread};
use crate::http::media::Accepts;

const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");

impl Endpoint {
    /// Answers a posted body, which is stored in `posted` as soon as it is read.
    pub(super) async fn post(
        self: &Arc<Self>,
        authorized: &AuthorizedRequest,
        body: Body,
        posted: &OnceLock<Bytes>,
    ) -> Result<HttpResponse, Problem> {
        let headers = &authorized.parts.headers;
        let accepts = match Accepts::of(headers).any() {
            Ok(accepts) => accepts,
            Err(problem) => return Err(unread(headers, body, problem).await),
        };
        let account = (&authorized.caller.project, &authorized.caller.agent);
        let (bytes, room) = read_body(&self.gate.bodies, headers, body, account).await?;
        let bytes = posted.get_or_init(|| bytes);
        let read = jsonrpc::parse(bytes, &Limits::default());
        let answer = self
            .message(authorized, (bytes, read), accepts, &room)
            .await?;
        match accepts.json {
            true => Ok(answer),
            // A response that was not streamed is short.
            false => as_events(answer).await,
        }
    }

    /// Answers a parsed message; `room` is its body's permit.
    pub(super) async fn message(
        self: &Arc<Self>,
        authorized: &AuthorizedRequest,
        (bytes, read): (&[u8], Result<Incoming<'_>, WireError>),
        accepts: Accepts,
        room: &BodyPermit,
    ) -> Result<HttpResponse, Problem> {
        match read {
            Ok(incoming) => match incoming.message {
                Message::Request(request) => {
                    let answered = self.request(authorized, &request, accepts, room).await;
                    Ok(answered.unwrap_or_else(|problem| {
                        Answer::problem(Some(request.id), problem).into_response()
                    }))
                }
                Message::Notification(notification) => {
                    let session = self.session(authorized)?;
                    self.notified(authorized, &notification, session.as_deref());
                    Ok(Answer::nothing().into_response())
                }
                Message::Response(response) => {
                    let session = self.session(authorized)?;
                    self.replied(&response, session.as_deref());
                    Ok(Answer::nothing().into_response())
                }
            },
            Err(WireError::Batch) => Box::pin(self.batch(authorized, bytes)).await,
            Err(error) => {
                let id = jsonrpc::answered_id(bytes, &error);
                Ok(Answer::problem(id, error.into()).into_response())
            }
        }
    }

    async fn request(
        self: &Arc<Self>,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
        accepts: Accepts,
        room: &BodyPermit,
    ) -> Result<HttpResponse, Problem> {
        let params = Params::from(request.params);
        let asks_back = may_ask_back(&request.method);
        let mut asked = match open(request, &params, &authorized.parts.headers)? {
            Opening::Handshake(_) if request.method == "initialize" => {
                return self.initialize(authorized, request);
            }
            Opening::Handshake(_) => {
                let session = self.session(authorized)?;
                if let Some(answer) = own_answer(request, session.as_deref()) {
                    return Ok(answer.into_response());
                }
                if is_subscription(&request.method) {
                    let answer = self.subscription(authorized, request, session.as_deref());
                    return Ok(Box::pin(answer).await?.into_response());
                }
                let owner = Some(owner(authorized, session.as_deref()));
                let mut asked = Asked::of(request, params, Era::Handshake, owner);
                // Server requests are sent on the stream of the request.
                if let Some(session) = session.as_deref() {
                    asked.identity = ClientIdentity::Session(session.id.bits());
                }
                if let Some(session) = session.filter(|_| accepts.events) {
                    asked.capabilities = session.capabilities;
                    asked.level = session.level();
                }
                asked
            }
            Opening::Stateless(sender) => match &*request.method {
                "server/discover" => {
                    return Ok(self.discover(authorized, request)?.into_response());
                }
                "subscriptions/listen" => {
                    return Box::pin(self.listen_on_request(authorized, request)).await;
                }
                _ => {
                    let mut asked = Asked::of(request, params, Era::Stateless, None);
                    asked.capabilities = ClientCapabilities::read(sender.capabilities);
                    if asked.capabilities.anything() {
                        asked.identity = ClientIdentity::Key;
                    }
                    asked.level = sender.log_level.and_then(|level| level.parse().ok());
                    let responses = params.input_responses.filter(|_| asks_back);
                    if let Some(responses) = responses {
                        are_answers(responses)?;
                    }
                    if let Some(state) = params.request_state.filter(|_| asks_back) {
                        let resumed = self.resume(authorized, &asked, accepts, (state, responses));
                        return Box::pin(resumed).await;
                    }
                    asked
                }
            },
        };
        if !asks_back {
            asked.capabilities = ClientCapabilities::NOTHING;
        }
        let wants_words = accepts.events && (token(params.meta).is_some() || asked.level.is_some());
        if wants_words || asked.capabilities.anything() || !accepts.json {
            return Box::pin(self.stream(authorized, &asked, accepts, room.clone())).await;
        }
        let context = context::read(&authorized.parts.headers, params.meta)?;
        let who = (&authorized.caller, &authorized.scope);
        let outcome = self.forward(who, &asked, context, None).await;
        let about = (asked.method, asked.era);
        Ok(Answer::outcome(asked.id, about, outcome, &self.identity).into_response())
    }

    /// Handles a client's response to a server request. fault T4
    pub(super) fn replied(&self, response: &Response<'_>, session: Option<&Session>) {
        let taken = session
            .is_some_and(|session| self.services.open_requests.answered(session.id, response));
        tracing::debug!(taken, "a client answered a server request");
    }

    /// Handles a notification; all but two are ignored.
    pub(super) fn notified(
        &self,
        authorized: &AuthorizedRequest,
        notification: &Notification<'_>,
        session: Option<&Session>,
    ) {
        let owner = owner(authorized, session);
        match (&*notification.method, session) {
            ("notifications/cancelled", _) => {}
            ("notifications/roots/list_changed", Some(session))
                if session.capabilities.tell_roots =>
            {
                let who = ClientIdentity::Session(session.id.bits());
                return self.engine().roots_changed(&authorized.caller, who);
            }
            _ => return,
        }
        let id = notification
            .params
            .and_then(|params| params.get("requestId"));
        if let Some(id) = id.and_then(RequestId::read) {
            let params = notification.params;
            let why = params.and_then(|params| params.get("reason")?.string());
            let inflight = self.sessions.inflight();
            let found = inflight.cancel(owner, id.raw(), why.as_deref());
            tracing::debug!(found, "a client cancelled a request");
        }
    }
}

/// Refuses malformed `inputResponses`.
fn are_answers(responses: Raw<'_>) -> Result<(), Problem> {
    let all = |mut members: Members<'_>| members.all(|member| member.value.is_object());
    if responses.is_object() && all(responses.members()) {
        return Ok(());
    }
    let why = "`inputResponses` must be an object of objects";
    Err(Problem::new("request.params")
        .with_detail(why)
        .with_rpc(jsonrpc::INVALID_PARAMS, why))
}

/// Returns the owner of a request.
pub(super) fn owner(authorized: &AuthorizedRequest, session: Option<&Session>) -> Owner {
    session.map_or(Owner::Key(authorized.caller.key), |session| {
        Owner::Session(session.id)
    })
}

/// Answers handshake-era methods of the endpoint itself.
pub(super) fn own_answer(request: &Request<'_>, session: Option<&Session>) -> Option<Answer> {
    match &*request.method {
        "ping" => {}
        "logging/setLevel" => {
            let level = request.params.and_then(|params| params.get("level"));
            let level = level.and_then(Raw::string);
            let Some(level) = level.and_then(|level| level.parse().ok()) else {
                let levels = LogLevel::ALL.map(LogLevel::as_str).join(", ");
                let problem = Problem::new("request.params").with_rpc(
                    jsonrpc::INVALID_PARAMS,
                    format!("`level` must be one of {levels}"),
                );
                return Some(Answer::problem(Some(request.id), problem));
            };
            if let Some(session) = session {
                session.set_level(level);
            }
        }
        _ => return None,
    }
    Some(Answer::result(request.id, Raw::EMPTY_OBJECT))
}

/// Determines the era of a request, and refuses contradicting headers.
fn open<'a>(
    request: &Request<'a>,
    params: &Params<'a>,
    map: &HeaderMap,
) -> Result<Opening<'a>, EraError> {
    let (version, versions) = values(map, &VERSION_HEADER);
    let (method, methods) = values(map, &METHOD_HEADER);
    let (name, names) = values(map, &NAME_HEADER);
    let mirrored = Mirrored {
        protocol_version: &version[..versions],
        method: &method[..methods],
        name: &name[..names],
    };
    opening::open(request, params, mirrored)
}

#[cfg(test)]
mod tests {
    use gantry_model::era::headers;

    use super::*;

    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn verdict(headers: &[(&str, &str)], method: &str, params: &str) -> Result<Era, (u16, i64)> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let incoming = jsonrpc::parse(text.as_bytes(), &Limits::default()).unwrap();
        let Message::Request(request) = incoming.message else {
            panic!("a request")
        };
        match open(&request, &request.params.into(), &map) {
            Ok(Opening::Handshake(_)) => Ok(Era::Handshake),
            Ok(Opening::Stateless(_)) => Ok(Era::Stateless),
            Err(error) => {
                let problem = Problem::from(error);
                Err((problem.mcp_status().as_u16(), problem.rpc_code()))
            }
        }
    }

    // fault H12
    #[test]
    fn headers_and_body_must_agree() {
        let version = (headers::PROTOCOL_VERSION, "2026-07-28");
        let method = (headers::METHOD, "tools/call");
        let name = (headers::NAME, "echo");
        let params = format!(r#"{{"name":"echo","_meta":{META}}}"#);
        let call = |headers: &[(&str, &str)]| verdict(headers, "tools/call", &params);
        assert_eq!(call(&[version, method, name]), Ok(Era::Stateless));
        let mismatch = Err((400, -32020));
        assert_eq!(call(&[version, method]), mismatch);
        assert_eq!(call(&[method, name]), mismatch);
        assert_eq!(call(&[version, name]), mismatch);
        assert_eq!(call(&[version, method, (headers::NAME, "rm")]), mismatch);
        assert_eq!(call(&[version, method, name, name]), mismatch);
        assert_eq!(
            call(&[version, (headers::METHOD, "tools/list"), name]),
            mismatch
        );
        assert_eq!(
            call(&[version, method, (headers::NAME, "=?base64?ZWNobw==?=")]),
            Ok(Era::Stateless)
        );
        assert_eq!(
            call(&[version, method, (headers::NAME, "=?base64?cm0=?=")]),
            mismatch
        );
        assert_eq!(
            call(&[version, method, (headers::NAME, "=?base64?!?=")]),
            mismatch
        );
    }

    #[test]
    fn versions_tell_the_eras_apart() {
        let version = |text: &'static str| [(headers::PROTOCOL_VERSION, text)];
        assert_eq!(verdict(&[], "tools/list", "{}"), Ok(Era::Handshake));
        assert_eq!(
            verdict(&version("2025-06-18"), "tools/list", "{}"),
            Ok(Era::Handshake)
        );
        assert_eq!(
            verdict(&version("2031-01-01"), "tools/list", "{}"),
            Err((400, -32022))
        );
        assert_eq!(
            verdict(&version("2026-07-28"), "tools/list", "{}"),
            Err((400, -32602))
        );
        assert_eq!(verdict(&[], "initialize", "{}"), Ok(Era::Handshake));
    }
}
