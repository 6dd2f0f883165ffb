//! The peer itself: what its parts share, and how an answer leaves it.

use std::process;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::{Fault, Faults};
use super::flights::Flights;
use super::gate::Gate;
use super::message::{Answer, Body, Ticket, notification};
use super::options::Options;
use super::output::{Delivery, Output, write_all};
use super::random::Random;
use super::timer::Timer;
use super::{era, mangle};
use crate::journal::{Entry, Writer};

pub(crate) struct Peer {
    pub(crate) options: Options,
    pub(crate) output: Arc<Output>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) flights: Flights,
    pub(crate) session: Mutex<Session>,
    pub(crate) journal: Option<Arc<Writer>>,
    pub(crate) random: Mutex<Random>,
}

/// What the client has set up so far.
#[derive(Default)]
pub(crate) struct Session {
    /// Whether `initialize` was answered.
    pub(crate) initialized: bool,
    /// How many tools `grow` has added.
    pub(crate) grown: usize,
    /// Resources subscribed to in the legacy way.
    pub(crate) watched: Vec<String>,
    /// Open `subscriptions/listen` requests.
    pub(crate) listeners: Vec<Listener>,
    /// The headers that the tool `headers` was last called with; over stdio there are none.
    pub(crate) headers: Value,
}

/// A `subscriptions/listen` request: its id and what it wants to hear.
pub(crate) struct Listener {
    pub(crate) id: Value,
    pub(crate) filter: Value,
}

impl Peer {
    pub(crate) fn faults(&self) -> &Faults {
        &self.options.faults
    }

    pub(crate) fn record(&self, entry: &Entry) {
        if let Some(journal) = &self.journal
            && let Err(error) = journal.record(entry)
        {
            // A test that counts on the journal must not continue without it.
            stop(&format!("evilpeer: cannot write the journal: {error}\n"), 3);
        }
    }

    /// Sends a response, at once or delayed by a fault.
    pub(crate) fn answer(self: &Arc<Self>, ticket: &Ticket, answer: Answer) {
        let big = self.faults().number(Fault::Big).filter(|_| ticket.faulty);
        let body = match answer {
            Answer::Later => return,
            Answer::Error(error) => Body::Error(error.to_value().to_string()),
            Answer::Result(_) | Answer::Padded(_) if big.is_some() => {
                self.padded(ticket, big.unwrap_or_default())
            }
            Answer::Padded(bytes) => self.padded(ticket, bytes),
            Answer::Result(mut result) => {
                era::decorate(&mut result, ticket, &self.options);
                Body::Result(result.to_string())
            }
        };
        match self.faults().number(Fault::Late) {
            Some(late) if ticket.faulty => {
                let flight = self.flights.depart(ticket);
                let (peer, ticket) = (Arc::clone(self), ticket.clone());
                self.timer.after(Duration::from_millis(late), move || {
                    peer.flights.land(flight);
                    peer.deliver(&ticket, body);
                });
            }
            _ => self.deliver(ticket, body),
        }
    }

    /// Returns a result that makes the line of its reply, newline included, `wanted` bytes long.
    fn padded(&self, ticket: &Ticket, wanted: u64) -> Body {
        let body = |length: usize| {
            let mut result = json!({"content": [{"type": "text", "text": "x".repeat(length)}]});
            era::decorate(&mut result, ticket, &self.options);
            Body::Result(result.to_string())
        };
        let bare = mangle::line(&ticket.id, &body(0)).len() + 1;
        body(
            usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .saturating_sub(bare),
        )
    }

    fn deliver(&self, ticket: &Ticket, body: Body) {
        if !ticket.faulty {
            let reply = mangle::line(&ticket.id, &body);
            self.output.reply(reply);
            return;
        }
        let faults = self.faults();
        let lines = {
            let mut random = self.random.lock().expect("nothing panics under this lock");
            mangle::lines(faults, ticket, &body, &mut random)
        };
        let last = faults.has(Fault::NoFinalNewline);
        if let Some(drip) = faults.number(Fault::Drip) {
            // Writing byte by byte takes long, so it must not block the reading thread.
            let output = Arc::clone(&self.output);
            let pace = Duration::from_millis(drip);
            std::thread::spawn(move || {
                for line in lines {
                    output.write(&line, Delivery::Drip(pace));
                }
            });
            return;
        }
        if last {
            self.output.flush();
            for line in lines {
                self.output.write(&line, Delivery::Unterminated);
            }
        } else {
            for line in lines {
                self.output.reply(line);
            }
        }
        if last || faults.has(Fault::ExitAfterReply) {
            self.output.flush();
            stop("", 0);
        }
        if faults.is(Fault::CloseStdout, "idle") {
            self.output.flush();
            self.output.close();
        }
    }

    /// Notifies the client that the list of tools changed, according to its era.
    pub(crate) fn announce(&self, ticket: &Ticket, method: &str, wanted: &str, params: &Value) {
        if !ticket.modern {
            self.output.send(notification(method, params.clone()));
            return;
        }
        let session = self.session.lock().expect("nothing panics under this lock");
        for listener in &session.listeners {
            let asked = &listener.filter[wanted];
            let wants = match asked {
                Value::Array(uris) => uris.contains(&params["uri"]),
                Value::Bool(wants) => *wants,
                Value::Null | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
            };
            if wants {
                let mut params = params.clone();
                params["_meta"] = json!({era::SUBSCRIPTION_ID: listener.id});
                self.output.send(notification(method, params));
            }
        }
    }
}

/// Ends the process from any thread, in the middle of whatever it does.
#[expect(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "a peer that crashes mid-call leaves from any thread and runs no destructors"
)]
pub(crate) fn stop(last_words: &str, code: i32) -> ! {
    write_all(rustix::stdio::stderr(), last_words.as_bytes());
    process::exit(code)
}
