//! The open connection to one server: sends requests, matches responses, and limits everything else
//! that the server sends. Never restarts anything: the runner watches `trouble` and decides.

mod breaker;
mod in_flight;
mod inbox;
mod list_changes;
mod logging;
mod outbox;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_model::era::ProtocolVersion;
use gantry_model::id::AgentName;
use gantry_model::jsonrpc::{Limits, OneLine, Payload, RawBuf};
use gantry_model::mcp::{LogLevel, Method};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::breaker::BreakerView;
use self::breaker::{Admitted, LinkBreaker};
use self::in_flight::CancelNotice;
pub(crate) use self::in_flight::{Deadline, InFlight};
use self::list_changes::ListChanges;
pub(crate) use self::outbox::Outbox;
use super::logs::{LogStream, Logs};
use super::pending::{
    Answer, CallerPresence, Entered, Failure, Finished, Outgoing, Pending, QueueView,
};
use super::server_requests::{CallerChannel, Elicitations, SessionRequests};
use super::topics::Topics;
use crate::answers::AnswerBudget;
use crate::request::CancelReason;
use crate::transport::http::{MessageHead, RateLimit};
use crate::transport::stdio::{Batching, SendError};

/// A list may be this many times longer than other lines: items that are too long are left out, and
/// the server stays connected (fault S19).
const LISTING_LINES: usize = 4;

/// With fewer calls than this on a link, a caller writes its own line immediately.
const FEW: usize = 4;

/// The limits of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkLimits {
    pub(crate) lanes: u32,
    pub(crate) queue: u32,
    pub(crate) line_bytes: usize,
    pub(crate) depth: usize,
    pub(crate) late_grace: Duration,
    /// Whether client capabilities were declared to the server.
    pub(crate) asks: bool,
    /// Whether what nobody sees is taken out of what it says.
    pub(crate) cleans: bool,
}

/// Counters of messages other than responses.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) noise: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) refused_requests: AtomicU64,
    /// Notifications that were too long to be forwarded.
    pub(crate) dropped: AtomicU64,
    /// The rate limit set by a remote server, for all of its connections.
    pub(crate) rate_limit: Arc<RateLimit>,
}

pub(crate) struct Link {
    pub(super) pending: Pending,
    outbox: Outbox,
    pub(super) logs: Arc<Logs>,
    pub(crate) counters: Arc<Counters>,
    pub(super) limits: LinkLimits,
    /// The next id. It starts at a random number of this boot, so that a late response to a call of
    /// an earlier gateway process cannot be taken for a response to one of this process.
    next_id: AtomicU64,
    /// A protocol error that the runner must handle.
    trouble: Mutex<Option<String>>,
    pub(crate) troubled: Notify,
    /// Signals that the server has closed its stdin; if it does not exit, it is killed.
    pub(crate) input_closed: Notify,
    /// Signals that a connection was cut: the server's health should be checked.
    pub(crate) doubted: Notify,
    /// How many calls agents have made.
    pub(crate) calls: AtomicU64,
    /// How many lines the server has written.
    lines: AtomicU64,
    /// One more than the number of lines at the start of the last call that timed out without any
    /// output.
    missed: AtomicU64,
    /// The id of the current list request, 0 if there is none: its response may be longer.
    listing: AtomicU64,
    /// The circuit breaker: counts consecutive calls without any output.
    pub(crate) breaker: LinkBreaker,
    /// Announced list changes; the runner handles them at most once a second.
    pub(crate) lists: ListChanges,
    inbound: Mutex<inbox::Budget>,
    /// The newest subscription that the server has acknowledged.
    acknowledged: watch::Sender<u64>,
    /// The log level that was requested from the server.
    log_level: Mutex<Option<LogLevel>>,
    /// Requests of the server that belong to no single call.
    pub(super) session_requests: SessionRequests,
    /// The listeners of resource changes, set once the server is ready.
    topics: OnceLock<Arc<Topics>>,
    /// Pending URL elicitations, and the clients to notify when they complete.
    pub(super) elicitations: Elicitations,
    tracker: TaskTracker,
    /// Ends the waits for late responses that hold lanes.
    pub(super) ended: CancellationToken,
}

/// Why a link refused a call.
#[derive(Debug)]
pub(crate) enum LinkRefusal {
    /// Too many calls are waiting.
    Busy,
    /// The link has ended.
    Ended(Failure),
    /// The server does not read its input.
    NotReading,
    /// The circuit breaker is open for this long.
    Silent(Duration),
}

/// A call's message, and the parts of it that an HTTP head repeats.
pub(crate) struct CallMessage {
    pub(crate) line: OneLine,
    pub(crate) head: Option<Box<MessageHead>>,
    /// Its method, if it is part of MCP.
    pub(crate) method: Option<Method>,
    /// The caller's reason for a cancellation.
    pub(crate) reason: Option<CancelReason>,
    /// How many other agents may call the server.
    pub(crate) others: u32,
}

impl From<OneLine> for CallMessage {
    fn from(line: OneLine) -> Self {
        Self {
            line,
            head: None,
            method: None,
            reason: None,
            others: 0,
        }
    }
}

impl Link {
    pub(crate) fn new(
        outbox: Outbox,
        logs: Arc<Logs>,
        counters: Arc<Counters>,
        limits: LinkLimits,
        first_id: u64,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            pending: Pending::new(limits.lanes, limits.queue as usize, limits.late_grace),
            outbox,
            logs,
            counters,
            limits,
            next_id: AtomicU64::new(first_id),
            trouble: Mutex::default(),
            troubled: Notify::new(),
            input_closed: Notify::new(),
            doubted: Notify::new(),
            calls: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            listing: AtomicU64::new(0),
            breaker: LinkBreaker::new(),
            lists: ListChanges::new(),
            inbound: Mutex::new(inbox::Budget::new()),
            acknowledged: watch::Sender::new(0),
            log_level: Mutex::default(),
            session_requests: SessionRequests::new(),
            topics: OnceLock::new(),
            elicitations: Elicitations::default(),
            tracker,
            ended: CancellationToken::new(),
        }
    }

    /// Sets the listeners of resource changes.
    pub(crate) fn set_topics(&self, topics: &Arc<Topics>) {
        self.topics.get_or_init(|| Arc::clone(topics));
    }

    /// Sets the budget that responses to agents are charged to.
    pub(crate) fn charge(&self, answers: &AnswerBudget) {
        self.pending.charge(answers);
    }

    /// Waits until the server has acknowledged a subscription.
    pub(crate) async fn acknowledged(&self, id: u64) {
        let mut newest = self.acknowledged.subscribe();
        let noted = newest.wait_for(|newest| *newest >= id).await;
        // This link owns the sender, so it cannot be closed.
        drop(noted);
    }

    /// Returns a new upstream id, which may also be the call's progress token.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends an agent's call, or queues it for a lane.
    pub(crate) fn call(
        self: &Arc<Self>,
        agent: &AgentName,
        id: u64,
        line: impl Into<CallMessage>,
        caller_channel: Option<CallerChannel>,
    ) -> Result<InFlight, LinkRefusal> {
        let CallMessage {
            line,
            head,
            method,
            reason,
            others,
        } = line.into();
        // An instance of one client's is shared with nobody.
        let others = if self.limits.asks { 0 } else { others };
        let call = Outgoing {
            id,
            line: line.into_bytes(),
            head,
            method,
        };
        self.calls.fetch_add(1, Ordering::Relaxed);
        let admitted = self.breaker.admit().map_err(LinkRefusal::Silent)?;
        let client = caller_channel
            .as_ref()
            .map(|caller_channel| Arc::clone(&caller_channel.client));
        let (entered, answer) = self.pending.enter((agent, others), call, caller_channel);
        let mut lane_time = None;
        let entered = match entered {
            Entered::Write(call, others) => self.write(call, others).map_err(|error| match error {
                SendError::NotReading => LinkRefusal::NotReading,
                SendError::Closed => LinkRefusal::Ended(unsent(error)),
            }),
            Entered::Queued(time) => {
                lane_time = Some(time);
                Ok(())
            }
            Entered::Full => Err(LinkRefusal::Busy),
            Entered::Ended(failure) => Err(LinkRefusal::Ended(failure)),
        };
        if entered.is_err() && admitted == Admitted::AsProbe {
            self.breaker.gave_up();
        }
        if self.limits.asks && entered.is_ok() {
            self.session_requests.begun(agent, client.as_deref());
        }
        entered.map(|()| {
            let mut call = self.in_flight(id, answer, CancelNotice::Cancelled, admitted);
            call.reason = reason;
            call.lane_time = lane_time;
            call
        })
    }

    /// Writes a call that has a lane; on failure the call is no longer pending.
    fn write(&self, call: Outgoing, others: usize) -> Result<(), SendError> {
        let id = call.id;
        let company = if others < FEW {
            Batching::Alone
        } else {
            Batching::Many
        };
        self.outbox
            .send(Some(id), call.line, call.head, company)
            // It was never sent, so no response can come.
            .inspect_err(|error| self.finish(id, Answer::Failed(unsent(*error))))
    }

    /// Writes the calls that got released lanes.
    fn write_next(&self, mut next: Option<Outgoing>) {
        while let Some(call) = next {
            let id = call.id;
            if self.pending.before_writing(id) == CallerPresence::HasLeft {
                break;
            }
            let sent = self
                .outbox
                .send(Some(id), call.line, call.head, Batching::Many);
            next = match sent {
                Ok(()) => {
                    if self.pending.after_writing(id) == CallerPresence::HasLeft {
                        self.notify_cancelled(id, "the caller has left");
                    }
                    None
                }
                Err(error) => {
                    let finished = self.pending.finish(id, Answer::Failed(unsent(error)));
                    finished.next
                }
            };
        }
    }

    /// Ends a call with its result; counts results without a waiting caller.
    fn finish(&self, id: u64, answer: Answer) {
        let Finished { waited, next } = self.pending.finish(id, answer);
        self.write_next(next);
        if !waited {
            self.counters.late.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a request of the gateway, which takes no lane, and waits `within` for the response.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawBuf>,
        within: Duration,
    ) -> Result<Answer, Option<Failure>> {
        let asked = self.ask_begin(method, params).map_err(Some)?;
        match tokio::time::timeout(within, asked.answer()).await {
            Ok(answer) => Ok(answer),
            Err(_elapsed) => Err(None),
        }
    }

    /// Sends a request of the gateway and returns it in flight.
    pub(crate) fn ask_begin(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawBuf>,
    ) -> Result<InFlight, Failure> {
        let id = self.new_id();
        let answer = self.pending.enter_own(id, method)?;
        if method.ends_with("/list") {
            self.listing.store(id, Ordering::Relaxed);
        }
        let line = OneLine::request(id, method, params.map(Payload::from));
        let head = self.outbox.head(method);
        match self
            .outbox
            .send(Some(id), line.into_bytes(), head, Batching::Alone)
        {
            Ok(()) => Ok(self.in_flight(id, answer, CancelNotice::of(method), Admitted::Freely)),
            Err(error) => {
                // It was never sent, so there is nothing to cancel.
                self.pending.abandon(id, false);
                Err(unsent(error))
            }
        }
    }

    /// Sends a notification; drops it if the server does not read.
    pub(crate) fn notify(&self, method: &str, params: Option<&RawBuf>) {
        let line = OneLine::notification(method, params.map(Payload::from));
        self.send_headed(line, self.outbox.head(method));
    }

    /// Sends a message that expects no response; drops it if the server does not read.
    pub(super) fn send_loosely(&self, line: OneLine) {
        self.send_headed(line, None);
    }

    fn send_headed(&self, line: OneLine, head: Option<Box<MessageHead>>) {
        self.outbox
            .send(None, line.into_bytes(), head, Batching::Alone)
            .unwrap_or_default();
    }

    /// Stores the negotiated version, which HTTP requests name.
    pub(crate) fn set_version(&self, version: ProtocolVersion) {
        self.outbox.set_version(version);
    }

    /// Returns whether messages have an HTTP head that repeats parts of them.
    pub(crate) fn has_heads(&self) -> bool {
        matches!(self.outbox, Outbox::Http(_))
    }

    fn notify_cancelled(&self, id: u64, reason: &str) {
        let params = serde_json::json!({ "requestId": id, "reason": reason });
        let params = RawBuf::serialize(&params).ok();
        let notice = OneLine::notification(
            "notifications/cancelled",
            params.as_ref().map(Payload::from),
        );
        self.outbox.cancel(id, Some(notice.into_bytes()));
    }

    /// Returns whether this is the id of the current list request.
    fn is_listing(&self, id: u64) -> bool {
        self.listing.load(Ordering::Relaxed) == id && self.pending.contains(id)
    }

    /// Returns how many lines the server has written.
    pub(crate) fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Returns whether a call timed out and the server has written nothing since that call began.
    pub(crate) fn is_mute(&self) -> bool {
        self.missed.load(Ordering::Relaxed) == self.lines() + 1
    }

    /// Writes lines that senders could not write immediately, until the link is closed; a call
    /// whose line the server does not read fails after `deadline`.
    pub(crate) async fn run_writer(&self, deadline: Duration) {
        let not_reading = |id| self.finish(id, Answer::Failed(Failure::NotReading));
        if self.outbox.run(deadline, not_reading).await {
            self.input_closed.notify_one();
        }
    }

    /// Ends all waits on the link, and closes the server's input.
    pub(crate) fn end(&self, failure: &Failure) {
        self.ended.cancel();
        self.pending.end(failure);
        self.outbox.close();
    }

    /// Closes the server's input, so that a well-behaved server exits.
    pub(crate) fn close_input(&self) {
        self.outbox.close();
    }

    pub(crate) fn queue(&self) -> QueueView {
        self.pending.view()
    }

    /// Returns whether there is a lane or a place in the queue for a call of this agent.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        self.pending.has_room(agent)
    }

    /// Takes the protocol error that the runner must handle, if there is one.
    pub(crate) fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().take()
    }

    fn report_trouble(&self, what: String) {
        let what = self.logs.redactor().redact(&what).into_owned();
        self.logs.line(LogStream::Gantry, what.as_bytes());
        self.trouble.lock().get_or_insert(what);
        self.troubled.notify_one();
    }

    fn parse_limits(&self) -> Limits {
        Limits {
            max_depth: self.limits.depth,
        }
    }
}

/// Returns the failure of a line that was not sent.
fn unsent(error: SendError) -> Failure {
    match error {
        SendError::NotReading => Failure::NotReading,
        SendError::Closed => Failure::Exited("its input is closed".into()),
    }
}

#[cfg(test)]
mod tests;
