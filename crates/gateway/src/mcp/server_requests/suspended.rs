//! Calls that are suspended until a client of the stateless era returns with responses.
//!
//! A task keeps the call; the client has a sealed state that identifies it, valid for one return by
//! the same key with the same request (fault T4). Each holds a permit, and none waits longer than
//! its server's `ask_timeout`. Entry points: [`SuspendedCalls::enter`], `Endpoint::resume`.

mod state;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use gantry_engine::{
    CallError, CallFailure, ClientResponse, RequestOutcome, ServerRequest, ServerRequests,
    SuspendedBytes,
};
use gantry_model::era::meta::SERVER_INFO;
use gantry_model::era::shape;
use gantry_model::jsonrpc::{self, Edit, Raw, RawBuf};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use self::state::{Seal, State, binding};
use crate::http::error::Problem;
use crate::http::media::Accepts;
use crate::mcp::active_call::{ActiveCall, Token, Waiter};
use crate::mcp::answer::Answer;
use crate::mcp::forward::Asked;
use crate::mcp::quota::SuspendedPermit;
use crate::mcp::stream::{CallServices, token};
use crate::mcp::{AuthorizedRequest, Endpoint};

/// How long the outcome of a call is kept whose client does not return.
const AFTER_END: Duration = Duration::from_secs(1);

/// The suspended calls.
pub(in crate::mcp) struct SuspendedCalls {
    seal: Seal,
    table: Mutex<HashMap<u64, Suspension>>,
}

/// A suspended call.
struct Suspension {
    /// The only valid state.
    nonce: u64,
    requests: Vec<ServerRequest>,
    received: Vec<ClientResponse>,
    answer: oneshot::Sender<RequestOutcome>,
    /// Hands the call over.
    wanted: oneshot::Sender<oneshot::Sender<ActiveCall>>,
    until: Instant,
    /// The bytes of requests and responses.
    load: SuspendedPermit,
}

/// A call's permit.
pub(in crate::mcp) struct SuspendedCall {
    calls: Arc<SuspendedCalls>,
    number: u64,
    wanted: oneshot::Receiver<oneshot::Sender<ActiveCall>>,
}

impl SuspendedCalls {
    /// Creates the table, with a random key.
    pub(in crate::mcp) fn new() -> Arc<Self> {
        Arc::new(Self {
            seal: Seal::new(),
            table: Mutex::default(),
        })
    }

    /// Returns whether a call still waits for responses of its client.
    fn waits(&self, number: u64) -> bool {
        let table = self.table.lock();
        table
            .get(&number)
            .is_some_and(|entry| !entry.answer.is_closed())
    }

    /// Adds a call whose server asks something.
    pub(in crate::mcp) fn enter(
        self: &Arc<Self>,
        ask: ServerRequests,
        load: SuspendedPermit,
    ) -> SuspendedCall {
        let number = state::random();
        let (tx, wanted) = oneshot::channel();
        let entry = Suspension {
            nonce: state::random(),
            requests: ask.requests,
            received: Vec::new(),
            answer: ask.answer,
            wanted: tx,
            until: ask.until,
            load,
        };
        self.table.lock().insert(number, entry);
        SuspendedCall {
            calls: Arc::clone(self),
            number,
            wanted,
        }
    }

    /// Handles the responses of a returning client. What is unanswered is asked again.
    fn take(
        &self,
        call: &Asked<'_>,
        authorized: &AuthorizedRequest,
        (state, responses): (Raw<'_>, Option<Raw<'_>>),
    ) -> Result<Resumed, Problem> {
        let state = state.string().and_then(|text| self.seal.open(&text));
        let state = state.ok_or_else(|| refused("is not one of this gateway's, or was changed"))?;
        if state.binding
            != binding(
                authorized.caller.key,
                &authorized.scope,
                call.method,
                call.params.whole,
            )
        {
            return Err(refused("belongs to another request, or to another key"));
        }
        let mut table = self.table.lock();
        let entry = table.get_mut(&state.number);
        let entry = entry.filter(|entry| entry.nonce == state.nonce);
        let entry = entry.ok_or_else(|| refused("was used already, or has expired"))?;
        let before = entry.received.len();
        let mut bytes = 0;
        for response in responses.into_iter().flat_map(Raw::members) {
            let asked = entry.requests.iter();
            let mut asked = asked.filter(|asked| response.is(&asked.key));
            let known = |key: &str| entry.received.iter().any(|said| *said.key == *key);
            if let Some(asked) = asked.next().filter(|asked| !known(&asked.key)) {
                let said = ClientResponse {
                    key: asked.key.clone(),
                    outcome: Ok(response.value.to_buf()),
                };
                bytes += response.value.text().len();
                entry.received.push(said);
            }
        }
        if entry.received.len() < entry.requests.len() && !entry.answer.is_closed() {
            if let Err(limit) = entry.load.add(bytes) {
                entry.received.truncate(before);
                return Err(too_much(limit));
            }
            entry.nonce = state::random();
            let asked = entry.asked(&self.seal, state.number, state.binding);
            return Ok(Resumed::AskAgain(asked));
        }
        let entry = table.remove(&state.number);
        drop(table);
        let entry = entry.ok_or_else(|| refused("was used already, or has expired"))?;
        drop(entry.load);
        // A call that ended meanwhile reports it itself.
        drop(entry.answer.send(RequestOutcome::Answered(entry.received)));
        let (tx, rx) = oneshot::channel();
        drop(entry.wanted.send(tx));
        Ok(Resumed::Continues(rx))
    }
}

/// What follows a client's return.
enum Resumed {
    /// Something is missing and is asked again.
    AskAgain(RawBuf),
    /// The call continues, and is handed over.
    Continues(oneshot::Receiver<ActiveCall>),
}

impl Suspension {
    /// Returns the result that asks for the unanswered requests.
    fn asked(&self, seal: &Seal, number: u64, binding: [u8; 32]) -> RawBuf {
        let known =
            |asked: &&ServerRequest| !self.received.iter().any(|said| said.key == asked.key);
        let mut requests = Edit::new(Raw::EMPTY_OBJECT);
        for asked in self.requests.iter().filter(known) {
            let params = asked.params.as_ref().map(RawBuf::as_raw);
            let mut request = Edit::new(Raw::EMPTY_OBJECT);
            request
                .set_buf("method", RawBuf::string(asked.method.as_str()))
                .set_buf("params", shape::ask_to_modern(params));
            requests.set_buf(&asked.key, request.to_buf());
        }
        let sealed = seal.close(&State {
            number,
            nonce: self.nonce,
            binding,
        });
        let mut result = Edit::new(Raw::EMPTY_OBJECT);
        result
            .set_buf("resultType", RawBuf::string("input_required"))
            .set_buf("inputRequests", requests.to_buf())
            .set_buf("requestState", RawBuf::string(&sealed));
        result.to_buf()
    }
}

impl SuspendedCall {
    /// Suspends the call and returns the requests to its client.
    pub(in crate::mcp) fn suspend(
        self,
        services: &CallServices,
        under_way: ActiveCall,
        turn: &Waiter,
    ) -> Answer {
        let call = Arc::clone(&under_way.call);
        let params = call.params.as_ref().map(RawBuf::as_raw);
        let binding = binding(call.key, &call.scope, &call.method, params);
        let table = self.calls.table.lock();
        let entry = table.get(&self.number);
        let asked = entry.map(|entry| {
            let asked = entry.asked(&self.calls.seal, self.number, binding);
            (asked, entry.until + AFTER_END)
        });
        drop(table);
        let Some((asked, until)) = asked else {
            return Answer::problem(Some(turn.id.as_id()), Problem::panic());
        };
        let calls = Arc::downgrade(&self.calls);
        let keeping = keep_suspended(under_way, self.wanted, until, (calls, self.number));
        services.tasks.spawn(keeping);
        answer(turn, &asked, services)
    }
}

fn answer(turn: &Waiter, asked: &RawBuf, services: &CallServices) -> Answer {
    let mut result = Edit::new(asked.as_raw());
    result.set_meta(SERVER_INFO, services.identity.info());
    Answer::result(turn.id.as_id(), &result)
}

/// Waits for a suspended call, until it is resumed or no one can resume it. A call
/// that an approver has allowed continues without its client, until its own deadline.
async fn keep_suspended(
    mut under_way: ActiveCall,
    mut wanted: oneshot::Receiver<oneshot::Sender<ActiveCall>>,
    mut until: Instant,
    (calls, number): (Weak<SuspendedCalls>, u64),
) {
    let (mut has_ended, mut goes_on) = (false, false);
    let mut revoked = under_way.call.validity.ended();
    let forget = || {
        if let Some(calls) = calls.upgrade() {
            calls.table.lock().remove(&number);
        }
    };
    loop {
        tokio::select! {
            biased; // Its key, then who wants it, then what becomes of it, then the time.
            // No one can resume it: it is cancelled with its key. fault U6
            _ = &mut revoked => return forget(),
            wanted = &mut wanted => {
                if let Ok(back) = wanted {
                    // If the resuming request is gone, the call is cancelled.
                    drop(back.send(under_way));
                }
                return;
            }
            outcome = &mut under_way.work, if !has_ended => {
                (has_ended, goes_on) = (true, false);
                until = until.max(Instant::now() + AFTER_END);
                under_way.work = Box::pin(std::future::ready(outcome));
            }
            () = sleep_until(until), if !goes_on => {
                let waits = || calls.upgrade().is_some_and(|calls| calls.waits(number));
                if has_ended || waits() {
                    return forget();
                }
                goes_on = true;
            }
        }
    }
}

impl Endpoint {
    /// Resumes a call whose client returned with its state.
    pub(in crate::mcp) async fn resume(
        self: &Arc<Self>,
        authorized: &AuthorizedRequest,
        asked: &Asked<'_>,
        accepts: Accepts,
        said: (Raw<'_>, Option<Raw<'_>>),
    ) -> Result<Response, Problem> {
        let turn = Waiter {
            id: asked.id.to_owned(),
            token: Token::Own(token(asked.params.meta).filter(|_| accepts.events)),
        };
        match self.services.suspended.take(asked, authorized, said)? {
            Resumed::AskAgain(missing) => {
                Ok(answer(&turn, &missing, &self.services).into_response())
            }
            Resumed::Continues(call) => {
                let gone = |_| refused("was used already, or has expired");
                let under_way = call.await.map_err(gone)?;
                Ok(self.services.stream_call(under_way, turn, accepts).await)
            }
        }
    }
}

/// Refuses responses that would exceed the quota until the rest arrives.
fn too_much(limit: SuspendedBytes) -> Problem {
    Problem::from(CallFailure {
        call: None,
        error: CallError::TooMuchHeld { limit },
    })
}

/// Refuses a state. fault T4
fn refused(why: &str) -> Problem {
    Problem::new("request.state")
        .with_detail(format!("`requestState` {why}"))
        .with_rpc(jsonrpc::INVALID_PARAMS, format!("`requestState` {why}"))
        .with_hint("call again without `requestState` and `inputResponses`")
}
