//! Calls that wait for a client of the stateless era to come back with answers.
//!
//! The call goes on being waited for by a task of its own; the client has a sealed state that names
//! it, good for one return by the same key with the same request (fault T4). Each has its seat among
//! the calls that wait, and none waits longer than its server lets it be asked. Entry points:
//! [`Held::admit`], `Endpoint::resume`.

mod state;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use gantry_engine::{Ask, AskAnswer, AskedFor, CallError, CallFailure, HeldBytes, Said};
use gantry_model::era::meta::SERVER_INFO;
use gantry_model::era::shape;
use gantry_model::jsonrpc::{self, Edit, Raw, RawBuf};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use self::state::{Seal, State, binding};
use super::answer::Answer;
use super::forward::Asked;
use super::quota::SuspendedPermit;
use super::stream::{Desk, token};
use super::turn::{Token, Turn, UnderWay};
use super::{Endpoint, Visit};
use crate::http::error::Problem;
use crate::http::media::Accepts;

/// How long the end of a call that nobody answered can still be asked for.
const AFTER_END: Duration = Duration::from_secs(1);

/// The calls that wait.
pub(super) struct Held {
    seal: Seal,
    table: Mutex<HashMap<u64, Entry>>,
}

/// A call that waits.
struct Entry {
    /// The one state that is good now.
    nonce: u64,
    requests: Vec<AskedFor>,
    said: Vec<Said>,
    answer: oneshot::Sender<AskAnswer>,
    /// Has the call handed over.
    wanted: oneshot::Sender<oneshot::Sender<UnderWay>>,
    until: Instant,
    /// The bytes of what is asked and was answered.
    load: SuspendedPermit,
}

/// A place for one call.
pub(super) struct Place {
    held: Arc<Held>,
    number: u64,
    wanted: oneshot::Receiver<oneshot::Sender<UnderWay>>,
}

impl Held {
    /// Makes the table, with a seal that no other gateway has.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            seal: Seal::new(),
            table: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.table.lock()
    }

    /// Enters a call whose server asks something.
    pub(super) fn admit(self: &Arc<Self>, ask: Ask, load: SuspendedPermit) -> Place {
        let number = state::random();
        let (tx, wanted) = oneshot::channel();
        let entry = Entry {
            nonce: state::random(),
            requests: ask.requests,
            said: Vec::new(),
            answer: ask.answer,
            wanted: tx,
            until: ask.until,
            load,
        };
        self.lock().insert(number, entry);
        Place {
            held: Arc::clone(self),
            number,
            wanted,
        }
    }

    /// Takes the answers of a client that has come back. What it did not answer is asked again.
    fn take(
        &self,
        call: &Asked<'_>,
        visit: &Visit,
        (state, responses): (Raw<'_>, Option<Raw<'_>>),
    ) -> Result<Taken, Problem> {
        let state = state.string().and_then(|text| self.seal.open(&text));
        let state = state.ok_or_else(|| refused("is not one of this gateway's, or was changed"))?;
        if state.binding
            != binding(
                visit.caller.key,
                &visit.scope,
                call.method,
                call.params.whole,
            )
        {
            return Err(refused("belongs to another request, or to another key"));
        }
        let mut table = self.lock();
        let entry = table.get_mut(&state.number);
        let entry = entry.filter(|entry| entry.nonce == state.nonce);
        let entry = entry.ok_or_else(|| refused("was used already, or has expired"))?;
        let before = entry.said.len();
        let mut bytes = 0;
        for response in responses.into_iter().flat_map(Raw::members) {
            let asked = entry.requests.iter();
            let mut asked = asked.filter(|asked| response.is(&asked.key));
            let known = |key: &str| entry.said.iter().any(|said| *said.key == *key);
            if let Some(asked) = asked.next().filter(|asked| !known(&asked.key)) {
                let said = Said {
                    key: asked.key.clone(),
                    outcome: Ok(response.value.to_buf()),
                };
                bytes += response.value.text().len();
                entry.said.push(said);
            }
        }
        if entry.said.len() < entry.requests.len() && !entry.answer.is_closed() {
            if let Err(limit) = entry.load.add(bytes) {
                entry.said.truncate(before);
                return Err(too_much(limit));
            }
            entry.nonce = state::random();
            let asked = entry.asked(&self.seal, state.number, state.binding);
            return Ok(Taken::Again(asked));
        }
        let entry = table.remove(&state.number);
        drop(table);
        let entry = entry.ok_or_else(|| refused("was used already, or has expired"))?;
        drop(entry.load);
        // A call that has ended meanwhile tells so itself.
        drop(entry.answer.send(AskAnswer::Said(entry.said)));
        let (tx, rx) = oneshot::channel();
        drop(entry.wanted.send(tx));
        Ok(Taken::GoesOn(rx))
    }
}

/// What follows a client's return.
enum Taken {
    /// Something is missing; this is asked for.
    Again(RawBuf),
    /// The call goes on, and is handed over here.
    GoesOn(oneshot::Receiver<UnderWay>),
}

impl Entry {
    /// Returns the result that asks for what was not answered yet.
    fn asked(&self, seal: &Seal, number: u64, binding: [u8; 32]) -> RawBuf {
        let known = |asked: &&AskedFor| !self.said.iter().any(|said| said.key == asked.key);
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

impl Place {
    /// Puts the call aside and returns what its client is asked.
    pub(super) fn hold(self, desk: &Desk, under_way: UnderWay, turn: &Turn) -> Answer {
        let call = Arc::clone(&under_way.call);
        let params = call.params.as_ref().map(RawBuf::as_raw);
        let binding = binding(call.key, &call.scope, &call.method, params);
        let table = self.held.lock();
        let entry = table.get(&self.number);
        let asked = entry.map(|entry| {
            let asked = entry.asked(&self.held.seal, self.number, binding);
            (asked, entry.until + AFTER_END)
        });
        drop(table);
        let Some((asked, until)) = asked else {
            return Answer::problem(Some(turn.id.as_id()), Problem::panic());
        };
        let held = Arc::downgrade(&self.held);
        let keeping = keep(under_way, self.wanted, until, (held, self.number));
        desk.tasks.spawn(keeping);
        answer(turn, &asked, desk)
    }
}

fn answer(turn: &Turn, asked: &RawBuf, desk: &Desk) -> Answer {
    let mut result = Edit::new(asked.as_raw());
    result.set_meta(SERVER_INFO, desk.identity.info());
    Answer::result(turn.id.as_id(), &result)
}

/// Waits for a call that was put aside, until somebody wants it or nobody can any more.
async fn keep(
    mut under_way: UnderWay,
    mut wanted: oneshot::Receiver<oneshot::Sender<UnderWay>>,
    until: Instant,
    (held, number): (Weak<Held>, u64),
) {
    let mut has_ended = false;
    let mut revoked = under_way.call.validity.ended();
    let forget = || {
        if let Some(held) = held.upgrade() {
            held.lock().remove(&number);
        }
    };
    loop {
        tokio::select! {
            biased; // Its key, then who wants it, then what becomes of it, then the time.
            // Nobody can come back for it: it is taken back with its key. fault U6
            _ = &mut revoked => return forget(),
            wanted = &mut wanted => {
                if let Ok(back) = wanted {
                    // Whoever wanted it may be gone: then it is taken back.
                    drop(back.send(under_way));
                }
                return;
            }
            outcome = &mut under_way.work, if !has_ended => {
                has_ended = true;
                under_way.work = Box::pin(std::future::ready(outcome));
            }
            () = sleep_until(until) => return forget(),
        }
    }
}

impl Endpoint {
    /// Goes on with a call whose client has come back with the state it was given.
    pub(super) async fn resume(
        self: &Arc<Self>,
        visit: &Visit,
        asked: &Asked<'_>,
        accepts: Accepts,
        said: (Raw<'_>, Option<Raw<'_>>),
    ) -> Result<Response, Problem> {
        let turn = Turn {
            id: asked.id.to_owned(),
            token: Token::Own(token(asked.params.meta).filter(|_| accepts.events)),
        };
        match self.desk.held.take(asked, visit, said)? {
            Taken::Again(missing) => Ok(answer(&turn, &missing, &self.desk).into_response()),
            Taken::GoesOn(call) => {
                let gone = |_| refused("was used already, or has expired");
                let under_way = call.await.map_err(gone)?;
                Ok(self.desk.attend(under_way, turn, accepts).await)
            }
        }
    }
}

/// Refuses answers that would take too much room until the rest is there.
fn too_much(limit: HeldBytes) -> Problem {
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
