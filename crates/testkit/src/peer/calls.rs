//! The course of a tool call: counted, recorded in the journal, then run, delayed, or left hanging.
//! What a tool does is in `actions`. Entry point: [`call`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::faults::Fault;
use super::message::{Answer, RpcError, Ticket, notification};
use super::state::Peer;
use super::{actions, tools};
use crate::journal::Entry;

/// A tool call as the tool sees it.
pub(crate) struct Call<'a> {
    pub(crate) ticket: &'a Ticket,
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Value,
    pub(crate) meta: &'a Value,
    /// The params exactly as they arrived.
    pub(crate) raw: &'a str,
}

/// The outcome of a call.
pub(crate) enum Outcome {
    Now(Answer),
    /// The result, after this time, unless cancelled before.
    After(Duration, Value),
    /// The same, with that many progress notifications on the way.
    Progress(Duration, u64, Value),
    /// The result, once this file is there, with progress towards that number until then.
    Until(PathBuf, u64, Value),
}

/// How often a call looks for the file it waits for.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a call and returns whether faults apply to it.
pub(crate) fn call(
    peer: &Arc<Peer>,
    mut ticket: Ticket,
    params: &Value,
    raw: Option<&RawValue>,
) -> bool {
    let name = params["name"].as_str().unwrap_or_default();
    if !tools::exists(peer, name) {
        peer.answer(
            &ticket,
            RpcError::bad_params(format!("unknown tool: {name}")).into(),
        );
        return false;
    }
    let arguments = &params["arguments"];
    let meta = &params["_meta"];
    ticket.nonce = match &arguments["nonce"] {
        Value::Null => None,
        Value::String(nonce) => Some(nonce.clone()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(other.to_string())
        }
    };
    ticket.faulty = peer.gate.next_call();
    peer.record(&Entry::Call {
        nonce: ticket.nonce.clone(),
        method: ticket.method.clone(),
        tool: name.into(),
        id: ticket.id.clone(),
    });
    if ticket.faulty && withheld(peer, &ticket, &meta["progressToken"]) {
        return true;
    }
    let raw = raw.map_or("", RawValue::get);
    let outcome = actions::run(
        peer,
        &Call {
            ticket: &ticket,
            tool: name,
            arguments,
            meta,
            raw,
        },
    );
    let faulty = ticket.faulty;
    match outcome {
        Outcome::Now(answer) => peer.answer(&ticket, answer),
        Outcome::After(delay, result) => {
            let flight = peer.flights.depart(&ticket);
            let later = Arc::clone(peer);
            peer.timer
                .after(delay, move || land(&later, flight, &ticket, result));
        }
        Outcome::Progress(total, count, result) => {
            let flight = peer.flights.depart(&ticket);
            let journey = Journey {
                flight,
                token: meta["progressToken"].clone(),
                count,
                pause: total / u32::try_from(count + 1).unwrap_or(u32::MAX),
                until: None,
            };
            travel(Arc::clone(peer), ticket, journey, 0, result);
        }
        Outcome::Until(file, count, result) => {
            let journey = Journey {
                flight: peer.flights.depart(&ticket),
                token: meta["progressToken"].clone(),
                count,
                pause: LOOK,
                until: Some(file),
            };
            travel(Arc::clone(peer), ticket, journey, 0, result);
        }
    }
    faulty
}

/// Applies the faults by which a call gets no response; returns whether there was one.
fn withheld(peer: &Arc<Peer>, ticket: &Ticket, token: &Value) -> bool {
    let faults = peer.faults();
    if faults.is(Fault::CloseStdout, "call") {
        peer.output.close();
    }
    if faults.is(Fault::Hang, "tools/call") {
        peer.flights.depart(ticket);
        return true;
    }
    let Some(pause) = faults.number(Fault::ProgressForever) else {
        return false;
    };
    peer.flights.depart(ticket);
    drone(
        Arc::clone(peer),
        token.clone(),
        Duration::from_millis(pause.max(1)),
        1,
    );
    true
}

/// Reports progress forever, ignoring cancellation.
fn drone(peer: Arc<Peer>, token: Value, pause: Duration, step: u64) {
    if !token.is_null() {
        let params = json!({"progressToken": token, "progress": step});
        peer.output
            .send(notification("notifications/progress", params));
    }
    let timer = Arc::clone(&peer.timer);
    timer.after(pause, move || drone(peer, token, pause, step + 1));
}

struct Journey {
    flight: u64,
    token: Value,
    count: u64,
    pause: Duration,
    /// Ends it at any step.
    until: Option<PathBuf>,
}

impl Journey {
    fn goes_on_after(&self, step: u64) -> bool {
        match &self.until {
            // At least one step, so that there is progress even if the file already exists.
            Some(file) => step == 0 || !file.exists(),
            None => step < self.count,
        }
    }
}

/// Performs one step of a call with progress, and schedules the rest.
fn travel(peer: Arc<Peer>, ticket: Ticket, journey: Journey, step: u64, result: Value) {
    if !peer.flights.is_open(journey.flight) {
        return;
    }
    if step > 0 && !journey.token.is_null() {
        let params = json!({
            "progressToken": journey.token,
            "progress": step,
            "total": journey.count,
            "message": format!("step {step} of {}", journey.count),
        });
        peer.output
            .send(notification("notifications/progress", params));
    }
    let timer = Arc::clone(&peer.timer);
    if journey.goes_on_after(step) {
        timer.after(journey.pause, move || {
            travel(peer, ticket, journey, step + 1, result)
        });
    } else {
        timer.after(journey.pause, move || {
            land(&peer, journey.flight, &ticket, result)
        });
    }
}

fn land(peer: &Arc<Peer>, flight: u64, ticket: &Ticket, result: Value) {
    if peer.flights.land(flight) {
        peer.answer(ticket, Answer::Result(result));
    }
}
