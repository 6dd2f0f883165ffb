//! `evilpeer http`: the same server over streamable HTTP and HTTP+SSE, with the faults that only
//! exist over HTTP (rows H). Output lines are routed to the streams of their requests. Entry point:
//! [`Front`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::Fault;
use super::flights::Flights;
use super::gate::Gate;
use super::options::{Era, Options};
use super::output::{Output, Sink};
use super::random::Random;
use super::state::{Peer, Session};
use super::timer::Timer;
use super::{background, dispatch, tools};
use crate::journal::{Entry, Writer};
use crate::web::{Request, Service, Spoil, Stream, Talk};

/// The server as HTTP sees it.
pub(super) struct Front {
    options: Options,
    gate: Arc<Gate>,
    timer: Arc<Timer>,
    journal: Option<Arc<Writer>>,
    connections: AtomicU64,
    calls: AtomicU64,
}

/// One client.
struct Conversation {
    peer: Arc<Peer>,
    switch: Arc<Switch>,
}

/// Routes the output lines of one client.
struct Switch {
    own: Arc<Stream>,
    /// Streams of requests in flight, by the text of their id and of their progress token.
    waiting: Mutex<HashMap<String, Arc<Stream>>>,
    tokens: Mutex<HashMap<String, Arc<Stream>>>,
}

impl Front {
    pub(super) fn new(options: Options, journal: Option<Arc<Writer>>) -> Self {
        Self {
            gate: Arc::new(Gate::new(options.fault_after, options.fault_calls)),
            timer: Timer::start(),
            journal,
            connections: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            options,
        }
    }

    /// Returns how to spoil a request to which faults apply.
    fn spoiled(&self) -> Option<Spoil> {
        let faults = &self.options.faults;
        if faults.is(Fault::Hangup, "call") {
            return Some(Spoil::Hangup);
        }
        if faults.has(Fault::Silent) {
            return Some(Spoil::Silent);
        }
        if let Some(pause) = faults.number(Fault::SlowHead) {
            return Some(Spoil::SlowHead(Duration::from_millis(pause)));
        }
        if let Some(what) = faults.words(Fault::Endless).next() {
            return Some(match what {
                "event" => Spoil::EndlessEvent,
                "gzip" => Spoil::GzipBomb,
                _ => Spoil::EndlessBody,
            });
        }
        if let Some(to) = faults.words(Fault::Redirect).next() {
            let (status, url) = to.split_once(':').unwrap_or(("307", to));
            return Some(Spoil::Redirect(status.parse().unwrap_or(307), url.into()));
        }
        if faults.has(Fault::Cut) {
            return Some(Spoil::Cut);
        }
        if faults.has(Fault::Comments) {
            return Some(Spoil::Comments);
        }
        if let Some(how) = faults.words(Fault::WrongAnswer).next() {
            return Some(Spoil::Wrong(how.into()));
        }
        let status = faults.number(Fault::Status)?;
        let again = faults.number(Fault::RetryAfter);
        Some(Spoil::Status(u16::try_from(status).unwrap_or(500), again))
    }
}

impl Service for Front {
    fn era(&self) -> Era {
        self.options.era
    }

    fn meet(&self, own: Arc<Stream>) -> Arc<dyn Talk> {
        let switch = Arc::new(Switch {
            own,
            waiting: Mutex::default(),
            tokens: Mutex::default(),
        });
        let (options, timer) = (self.options.clone(), Arc::clone(&self.timer));
        let lines = Arc::clone(&switch);
        let sink = Sink::lines(move |line| lines.route(line));
        let peer = Arc::new(Peer {
            output: Output::new(&options.faults, options.seed, Arc::clone(&timer), sink),
            gate: Arc::clone(&self.gate),
            timer,
            flights: Flights::default(),
            session: Mutex::new(Session::default()),
            journal: self.journal.clone(),
            random: Mutex::new(Random::new(options.seed)),
            options,
        });
        background::start(&peer);
        Arc::new(Conversation { peer, switch })
    }

    fn names(&self, session: &str) -> Vec<(&'static str, String)> {
        let name = |value: String| ("Mcp-Session-Id", value);
        match self.options.faults.words(Fault::SessionId).next() {
            Some("cr") => vec![name(format!("{session}\rX-Evil: yes"))],
            Some("long") => vec![name("s".repeat(10_000))],
            Some("twice") => vec![name(session.to_owned()), name("another".to_owned())],
            _ => vec![name(session.to_owned())],
        }
    }

    fn renames(&self) -> Vec<(&'static str, String)> {
        let changed = self.options.faults.is(Fault::SessionId, "changed") && self.gate.is_open();
        let name = || ("Mcp-Session-Id", "another".to_owned());
        changed.then(name).into_iter().collect()
    }

    fn endpoint(&self, session: &str) -> String {
        match self.options.faults.words(Fault::Endpoint).next() {
            Some(url) => format!("{url}?session={session}"),
            None => format!("/messages?session={session}"),
        }
    }

    fn spoil(&self, request: Option<(&Request, &Value)>) -> Option<Spoil> {
        let faults = &self.options.faults;
        let Some((_, message)) = request else {
            let number = self.connections.fetch_add(1, Ordering::Relaxed);
            let flaps = faults
                .number(Fault::Flap)
                .is_some_and(|count| (number / count.max(1)) % 2 == 1);
            return (flaps || faults.is(Fault::Hangup, "accept")).then_some(Spoil::Hangup);
        };
        let is_call = message["method"] == "tools/call";
        if is_call && let Some(every) = faults.number(Fault::Expire) {
            let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
            return number.is_multiple_of(every.max(1)).then_some(Spoil::Forget);
        }
        let bites = self.gate.bites_now() && (is_call || self.options.everywhere);
        let spoil = bites.then(|| self.spoiled()).flatten();
        if spoil.is_some() && is_call {
            self.gate.next_call();
        }
        spoil
    }
}

impl Talk for Conversation {
    fn receive(&self, request: &Request, line: &[u8], stream: &Arc<Stream>) {
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        if !message["method"].is_null() && !message["id"].is_null() {
            let token = &message["params"]["_meta"]["progressToken"];
            self.switch.enter(&message["id"], token, stream);
        }
        if message["params"]["name"] == tools::HEADERS {
            let headers = request.headers.iter();
            let headers = headers.map(|(name, value)| (name.clone(), json!(value)));
            let mut session = self.peer.session.lock();
            let session = session.as_mut().expect("nothing panics under this lock");
            session.headers = Value::Object(headers.collect());
        }
        dispatch::receive(&self.peer, line);
    }

    fn gone(&self, id: &Value) {
        self.switch.leave(id);
        let mut session = self.peer.session.lock();
        let session = session.as_mut().expect("nothing panics under this lock");
        session.listeners.retain(|listener| listener.id != *id);
        if let Some(flight) = self.peer.flights.cancel(id) {
            self.peer.record(&Entry::Cancelled {
                nonce: flight.nonce,
            });
        }
    }
}

impl Switch {
    fn enter(&self, id: &Value, token: &Value, stream: &Arc<Stream>) {
        let table = |table: &Mutex<HashMap<String, Arc<Stream>>>, key: &Value| {
            let mut table = table.lock().expect("nothing panics under this lock");
            table.insert(key.to_string(), Arc::clone(stream));
        };
        table(&self.waiting, id);
        if !token.is_null() {
            table(&self.tokens, token);
        }
    }

    fn leave(&self, id: &Value) -> Option<Arc<Stream>> {
        let mut waiting = self.waiting.lock().expect("nothing panics under this lock");
        waiting.remove(&id.to_string())
    }

    /// Routes a line to its stream.
    fn route(&self, line: &[u8]) {
        let line = line.trim_ascii();
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return self.stray(line);
        };
        let params = &message["params"];
        let found = if message["method"].is_null() {
            self.leave(&message["id"])
        } else if !params["progressToken"].is_null() {
            let tokens = self.tokens.lock().expect("nothing panics under this lock");
            tokens.get(&params["progressToken"].to_string()).cloned()
        } else {
            let id = &params["_meta"][super::era::SUBSCRIPTION_ID];
            let waiting = self.waiting.lock().expect("nothing panics under this lock");
            waiting.get(&id.to_string()).cloned()
        };
        found.as_ref().unwrap_or(&self.own).say(line.to_vec());
    }

    /// Sends a line that is not a message to the only waiting request, as its response.
    fn stray(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock().expect("nothing panics under this lock");
        let only = match waiting.len() {
            1 => waiting.drain().next(),
            _ => None,
        };
        if let Some((_, stream)) = only {
            stream.say(line.to_vec());
            stream.close();
        }
    }
}
