//! Requests of servers to their clients: sampling, elicitation, roots.
//!
//! A stateless server names them in a result (`input_required`); one of the handshake era sends
//! them on its link (`routing`), where each belongs to a call or to a session (`session`), or ends
//! a call with the error that a person must visit a URL first (`urls`). A client gets only requests
//! that it declared to support, and must respond within the server's `ask_timeout`. Entry points:
//! [`CallForwarder`], [`SessionForwarder`], `Link::route_request`.

mod input_required;
mod routing;
mod session;
mod urls;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gantry_model::hidden;
use gantry_model::jsonrpc::{ErrorBody, OwnedRequestId, Raw, RawBuf};
use gantry_model::mcp::Method;
use gantry_model::secret::Redactor;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

pub(crate) use self::input_required::{InputResponses, input_required, resume};
pub(super) use self::routing::SessionRequests;
pub(crate) use self::routing::{CallerChannel, IncomingRequest};
pub(crate) use self::session::SessionForwarder;
pub(super) use self::urls::Elicitations;
pub(crate) use self::urls::{UrlVisits, check_urls, url_required};
use super::handle::ServerHandle;
use super::link::Link;
use crate::error::CallError;
use crate::request::{
    CallEvent, Client, ClientResponse, RequestLifetime, RequestOutcome, ServerRequest,
    ServerRequests,
};

/// The maximum number of requests of a server at once.
const MOST_AT_ONCE: usize = 16;
/// How often a server of the handshake era may send requests during one call.
const ROUNDS: usize = 32;
/// How long requests of a server of the handshake era are collected, so that requests sent together
/// reach the client together.
const GATHER: Duration = Duration::from_millis(20);

/// Forwards the requests of a server to the client of one call.
pub(crate) struct CallForwarder<'a> {
    pub(crate) client: &'a Client,
    pub(crate) server: &'a ServerHandle,
    /// Cancelled when the gateway drains and no client can respond.
    pub(crate) draining: &'a CancellationToken,
}

impl CallForwarder<'_> {
    /// Serves the requests that a server of the handshake era sends during a call; returns only if
    /// the call cannot continue.
    pub(crate) async fn serve(
        &self,
        link: &Link,
        call: u64,
        mut incoming: mpsc::Receiver<IncomingRequest>,
    ) -> CallError {
        let mut open = FuturesUnordered::new();
        let mut count = 0;
        loop {
            tokio::select! {
                Some(first) = incoming.recv() => {
                    if count >= ROUNDS * MOST_AT_ONCE {
                        return broken(self.server, "it asked its client again and again");
                    }
                    sleep(GATHER).await;
                    let rest = std::iter::from_fn(|| incoming.try_recv().ok());
                    let all: Vec<_> = std::iter::once(first).chain(rest).collect();
                    link.pause(call, true);
                    open.push(self.forward_all(all, count));
                    count += MOST_AT_ONCE;
                }
                Some(answered) = open.next() => {
                    let answered = match answered {
                        Ok(answered) => answered,
                        Err(error) => return error,
                    };
                    link.pause(call, !open.is_empty());
                    for (id, outcome) in answered {
                        link.respond(&id, &outcome);
                    }
                }
                else => return std::future::pending().await,
            }
        }
    }

    /// Forwards all of these at once; each response comes with the id of its request.
    async fn forward_all(
        &self,
        incoming: Vec<IncomingRequest>,
        first: usize,
    ) -> Result<Vec<(OwnedRequestId, Result<RawBuf, RawBuf>)>, CallError> {
        let numbered = (first + 1..).zip(&incoming);
        let requests = numbered.map(|(number, one)| one.for_client(number, self.server));
        let responses = self.forward(requests.collect()).await?;
        let answers = (first + 1..).zip(incoming).filter_map(|(number, one)| {
            let key = key_of(one.method, number);
            let response = responses.iter().find(|response| *response.key == *key)?;
            Some((one.id, response.outcome.clone()))
        });
        Ok(answers.collect())
    }

    /// Sends requests to the client, and waits for its responses.
    async fn forward(
        &self,
        requests: Vec<ServerRequest>,
    ) -> Result<Vec<ClientResponse>, CallError> {
        let after = self.server.spec.calls.ask_timeout;
        let until = Instant::now() + after;
        let (answer, answered) = oneshot::channel();
        let event = CallEvent::Requests(ServerRequests {
            requests,
            until,
            answer,
            lifetime: RequestLifetime::Call,
        });
        let asking = async {
            self.client.events.send(event).await.ok()?;
            answered.await.ok()
        };
        let asking = timeout_at(until, asking);
        let Some(asked) = self.draining.run_until_cancelled(asking).await else {
            return Err(CallError::Stopping);
        };
        match asked {
            Ok(Some(RequestOutcome::Answered(responses))) => Ok(responses),
            Ok(Some(RequestOutcome::TooMany { limit })) => Err(CallError::TooManyHeld { limit }),
            Ok(Some(RequestOutcome::TooMuch(limit))) => Err(CallError::TooMuchHeld { limit }),
            Ok(None) => Err(CallError::Cancelled),
            Err(_elapsed) => Err(CallError::Unanswered {
                server: self.server.name.clone(),
                after,
            }),
        }
    }

    /// Returns the error for a client that responded with an error.
    fn declined(&self, error: &RawBuf) -> CallError {
        let error = ErrorBody::read(error.as_raw());
        let message = error.map_or_else(String::new, |error| {
            error.message.chars().take(200).collect()
        });
        CallError::Declined {
            server: self.server.name.clone(),
            message,
        }
    }
}

impl IncomingRequest {
    /// Returns the request for the client, without what nobody sees and the server's secrets.
    fn for_client(&self, number: usize, server: &ServerHandle) -> ServerRequest {
        let params = self.params.as_ref();
        ServerRequest {
            key: key_of(self.method, number),
            method: self.method,
            params: params.map(|params| readable_params(params.as_raw(), server)),
        }
    }
}

/// Returns the key of a request that has none.
fn key_of(method: Method, number: usize) -> Box<str> {
    let kind = method.as_str().split('/').next().unwrap_or_default();
    format!("{kind}-{number}").into_boxed_str()
}

/// Returns params of a server's request as a client may read them.
fn readable_params(params: Raw<'_>, server: &ServerHandle) -> RawBuf {
    let cleans = server.spec.calls.clean_results;
    RawBuf::trusted(shown_to_client(
        params.text(),
        &server.known.redactor(),
        cleans,
    ))
}

/// Returns what a server says beside a result, without its secrets. What nobody sees is taken out
/// first: a secret must not hide behind it. fault L2
pub(crate) fn shown_to_client(params: &str, redactor: &Redactor, cleans: bool) -> String {
    let clean = hidden::clean_json(params).filter(|_| cleans);
    let params = clean.as_ref().map_or(params, |(clean, _)| clean);
    redactor.redact_json(params).into_owned()
}

fn broken(server: &ServerHandle, what: &str) -> CallError {
    CallError::Protocol {
        server: server.name.clone(),
        detail: what.to_owned(),
    }
}
