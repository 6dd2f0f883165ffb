//! What a server needs of the client before it goes on, asked and passed back: in results of the
//! stateless era (`input_required`), in requests of the handshake era. Asks only what the client
//! declared, waits no longer than the server's `ask_timeout`, and keeps nothing after the call, or
//! after those of the session that is asked (`session`).

mod session;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gantry_model::era::Era;
use gantry_model::jsonrpc::{Edit, ErrorBody, OwnedRequestId, Raw, RawBuf};
use gantry_model::mcp::{Method, Params, asking_method};
use gantry_model::secret::Redactor;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

pub(super) use self::session::Asking;
use crate::error::CallError;
use crate::request::{Ask, AskAnswer, AskedFor, Client, Lasts, Said, Word};
use crate::server::handle::ServerHandle;
use crate::server::handshake::trusted;
use crate::server::link::Asked;
use crate::server::profiles::Lease;

const INPUT_RESPONSES: &str = "inputResponses";
const REQUEST_STATE: &str = "requestState";

/// How much a server may need at once.
pub(super) const REQUESTS: usize = 16;
/// How often a server of the handshake era may ask during one call.
const ROUNDS: usize = 32;
/// How long to wait for what a server of the handshake era asks in the same breath, so that a
/// client is asked for all of it at once.
const BREATH: Duration = Duration::from_millis(20);
/// How long a server that needs nothing but time is left alone, times the round.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a server of the stateless era needs before it goes on.
pub(super) struct Needed {
    requests: Vec<AskedFor>,
    state: Option<RawBuf>,
}

/// What goes with the call when it is sent once more.
pub(super) struct Again {
    responses: RawBuf,
    state: Option<RawBuf>,
}

/// Reads what a result says is needed first; `None` if it is a result of another kind.
pub(super) fn input_required(
    result: &Bytes,
    server: &ServerHandle,
) -> Result<Option<Needed>, CallError> {
    let result = trusted(result);
    let is_needed = |kind: Raw<'_>| kind.is_string("input_required");
    if !result.get("resultType").is_some_and(is_needed) {
        return Ok(None);
    }
    let (mut requests, mut state) = (Vec::new(), None);
    for member in result.members() {
        if member.is("inputRequests") {
            for request in member.value.members().take(REQUESTS + 1) {
                let key = request.key.string().unwrap_or_default();
                let asked = asked_for(&key, request.value, &server.known.redactor());
                let wrong = || broken(server, "it needs something that no client can do");
                requests.push(asked.ok_or_else(wrong)?);
            }
        } else if member.is(REQUEST_STATE) {
            state = Some(member.value.to_buf());
        }
    }
    if requests.len() > REQUESTS {
        return Err(broken(server, "it needs too much of the client at once"));
    }
    if requests.is_empty() && state.is_none() {
        return Err(broken(server, "it needs something and does not say what"));
    }
    Ok(Some(Needed { requests, state }))
}

fn asked_for(key: &str, request: Raw<'_>, redactor: &Redactor) -> Option<AskedFor> {
    let method = request.get("method").and_then(Raw::string)?;
    Some(AskedFor {
        key: key.into(),
        method: asking_method(&method)?,
        params: request.get("params").map(|params| clean(params, redactor)),
    })
}

/// Takes a server's secrets out of what a client is asked.
pub(super) fn clean(params: Raw<'_>, redactor: &Redactor) -> RawBuf {
    match redactor.redact_json(params.text()) {
        Cow::Borrowed(_) => params.to_buf(),
        Cow::Owned(text) => RawBuf::trusted(text),
    }
}

/// Puts what the client said into the params, or takes out what a server knows nothing of: a state
/// is the server's own, or none.
pub(super) fn resume<'a>(
    params: &mut Edit<'a>,
    era: Era,
    original: &Params<'a>,
    again: Option<&'a Again>,
) {
    if let Some(again) = again {
        params.set(INPUT_RESPONSES, again.responses.as_raw());
        match &again.state {
            Some(state) => params.set(REQUEST_STATE, state.as_raw()),
            None => params.remove(REQUEST_STATE),
        };
        return;
    }
    if era == Era::Stateless {
        return;
    }
    if original.input_responses.is_some() {
        params.remove(INPUT_RESPONSES);
    }
    if original.request_state.is_some() {
        params.remove(REQUEST_STATE);
    }
}

/// Asks a call's client on behalf of its server.
pub(super) struct Asker<'a> {
    pub(super) client: &'a Client,
    pub(super) server: &'a ServerHandle,
    /// Nobody can answer any more.
    pub(super) draining: &'a CancellationToken,
}

impl Asker<'_> {
    /// Has the client do what a server of the stateless era needs, and returns what to send it.
    pub(super) async fn inputs(&self, needed: Needed, round: u32) -> Result<Again, CallError> {
        let Needed { requests, state } = needed;
        let can = |asked: &AskedFor| {
            let params = asked.params.as_ref().map(RawBuf::as_raw);
            self.client.can.may_be_asked(asked.method, params)
        };
        if !requests.iter().all(can) {
            return Err(undeclared(self.server));
        }
        let mut responses = Edit::new(Raw::EMPTY_OBJECT);
        let said = match requests.is_empty() {
            true => {
                sleep(PATIENCE * (round + 1)).await;
                Vec::new()
            }
            false => self.ask(requests).await?,
        };
        for said in &said {
            match &said.outcome {
                Ok(result) => responses.set(&said.key, result.as_raw()),
                // The stateless era has no way to say so.
                Err(error) => return Err(self.declined(error)),
            };
        }
        Ok(Again {
            responses: responses.to_buf(),
            state,
        })
    }

    /// Serves the requests that a server of the handshake era makes during a call; returns only if
    /// the call cannot go on.
    pub(super) async fn serve(
        &self,
        lease: &Lease,
        call: u64,
        mut asked: mpsc::Receiver<Asked>,
    ) -> CallError {
        let mut open = FuturesUnordered::new();
        let mut count = 0;
        loop {
            tokio::select! {
                Some(first) = asked.recv() => {
                    if count >= ROUNDS * REQUESTS {
                        return broken(self.server, "it asked its client again and again");
                    }
                    sleep(BREATH).await;
                    let rest = std::iter::from_fn(|| asked.try_recv().ok());
                    let all: Vec<Asked> = std::iter::once(first).chain(rest).collect();
                    lease.link.pause(call, true);
                    open.push(self.requests(all, count));
                    count += REQUESTS;
                }
                Some(answered) = open.next() => {
                    let answered = match answered {
                        Ok(answered) => answered,
                        Err(error) => return error,
                    };
                    lease.link.pause(call, !open.is_empty());
                    for (id, outcome) in answered {
                        lease.link.reply(&id, &outcome);
                    }
                }
                else => return std::future::pending().await,
            }
        }
    }

    /// Asks for all of these at once; each answer comes with the id of its request.
    async fn requests(
        &self,
        asked: Vec<Asked>,
        first: usize,
    ) -> Result<Vec<(OwnedRequestId, Result<RawBuf, RawBuf>)>, CallError> {
        let key = |place: usize, method: Method| {
            let kind = method.as_str().split('/').next().unwrap_or_default();
            format!("{kind}-{}", first + place + 1).into_boxed_str()
        };
        let requests = asked.iter().enumerate().map(|(place, asked)| AskedFor {
            key: key(place, asked.method),
            method: asked.method,
            params: asked
                .params
                .as_ref()
                .map(|params| clean(params.as_raw(), &self.server.known.redactor())),
        });
        let said = self.ask(requests.collect()).await?;
        let answers = asked.into_iter().enumerate().filter_map(|(place, asked)| {
            let key = key(place, asked.method);
            let said = said.iter().find(|said| said.key == key)?;
            Some((asked.id, said.outcome.clone()))
        });
        Ok(answers.collect())
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, requests: Vec<AskedFor>) -> Result<Vec<Said>, CallError> {
        let after = self.server.spec.calls.ask_timeout;
        let until = Instant::now() + after;
        let (answer, answered) = oneshot::channel();
        let word = Word::Ask(Ask {
            requests,
            until,
            answer,
            lasts: Lasts::Call,
        });
        let asking = async {
            self.client.words.send(word).await.ok()?;
            answered.await.ok()
        };
        let asking = timeout_at(until, asking);
        let Some(asked) = self.draining.run_until_cancelled(asking).await else {
            return Err(CallError::Stopping);
        };
        match asked {
            Ok(Some(AskAnswer::Said(said))) => Ok(said),
            Ok(Some(AskAnswer::TooMany { limit })) => Err(CallError::TooManyHeld { limit }),
            Ok(Some(AskAnswer::TooMuch(limit))) => Err(CallError::TooMuchHeld { limit }),
            Ok(None) => Err(CallError::Cancelled),
            Err(_elapsed) => Err(CallError::Unanswered {
                server: self.server.name.clone(),
                after,
            }),
        }
    }

    pub(super) fn declined(&self, error: &RawBuf) -> CallError {
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

/// Says that a server needs what its client never said that it can do. fault S15
fn undeclared(server: &ServerHandle) -> CallError {
    broken(server, "it needs something that the client did not declare")
}

fn broken(server: &ServerHandle, what: &str) -> CallError {
    CallError::Protocol {
        server: server.name.clone(),
        detail: what.to_owned(),
    }
}
