//! The open connection to one server: sends requests, matches responses, and bounds everything else
//! that the server sends. Never restarts anything: the runner watches `trouble` and decides.

mod breaker;
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
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::breaker::BreakerView;
use self::breaker::{Admitted, LinkBreaker};
use self::list_changes::ListChanges;
pub(crate) use self::outbox::Outbox;
use super::logs::{LogStream, Logs};
use super::pending::{
    Answer, CallerPresence, Entered, Failure, Finished, LaneTime, Outgoing, Pending, QueueView,
};
use super::server_requests::{CallerChannel, Elicitations, SessionRequests};
use super::topics::Topics;
use crate::answers::AnswerBudget;
use crate::request::CancelReason;
use crate::transport::http::{MessageHead, RateLimit};
use crate::transport::stdio::{Batching, SendError};

/// A list may be this many times longer than other lines: what is too long in it is left out, and
/// the server stays (fault S19).
const LISTING_LINES: usize = 4;

/// With fewer calls than this on a link a caller writes its own line at once.
const FEW: usize = 4;

/// How a link is bounded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkLimits {
    pub(crate) lanes: u32,
    pub(crate) queue: u32,
    pub(crate) line_bytes: usize,
    pub(crate) depth: usize,
    pub(crate) late_grace: Duration,
    /// Client capabilities were declared to the server.
    pub(crate) asks: bool,
}

/// Counters of what a server did besides answering.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) noise: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) refused_requests: AtomicU64,
    /// Notifications that were too long to be passed on.
    pub(crate) dropped: AtomicU64,
    /// For how long a remote server wants no calls, on any of its connections.
    pub(crate) rate_limit: Arc<RateLimit>,
}

pub(crate) struct Link {
    pub(super) pending: Pending,
    outbox: Outbox,
    pub(super) logs: Arc<Logs>,
    pub(crate) counters: Arc<Counters>,
    pub(super) limits: LinkLimits,
    /// The next id; it begins at a random number of this boot, so that nothing that answers a
    /// dead gateway's call can be taken for an answer to ours.
    next_id: AtomicU64,
    /// A protocol error that the runner must handle.
    trouble: Mutex<Option<String>>,
    pub(crate) troubled: Notify,
    /// The server has closed its stdin; if it does not end, it is of no use.
    pub(crate) input_closed: Notify,
    /// A connection was cut: the server's health should be checked.
    pub(crate) doubted: Notify,
    /// How many calls agents have made.
    pub(crate) calls: AtomicU64,
    /// How many lines the server has written.
    lines: AtomicU64,
    /// One more than there were lines when a call last timed out without any since it began.
    missed: AtomicU64,
    /// The list that is being asked for, 0 if none is: its answer may be longer than others.
    listing: AtomicU64,
    /// The circuit breaker: consecutive calls without a sign of life.
    pub(crate) breaker: LinkBreaker,
    /// The server says that its lists changed; looked at by the runner at most once a second.
    pub(crate) lists: ListChanges,
    inbound: Mutex<inbox::Budget>,
    /// The newest subscription that the server has acknowledged.
    acknowledged: watch::Sender<u64>,
    /// From which level on the server was asked to log.
    log_level: Mutex<Option<LogLevel>>,
    /// Requests of the server that belong to no single call.
    pub(super) session_requests: SessionRequests,
    /// Who is notified of changed resources, once the server is ready.
    topics: OnceLock<Arc<Topics>>,
    /// Pending URL elicitations and whom to notify when they complete.
    pub(super) elicitations: Elicitations,
    tracker: TaskTracker,
    /// No lane is held for a late answer any more.
    pub(super) ended: CancellationToken,
}

/// Why a call was not accepted by a link.
#[derive(Debug)]
pub(crate) enum LinkRefusal {
    /// Too many wait already.
    Busy,
    /// The link has ended.
    Ended(Failure),
    /// The server does not read.
    NotReading,
    /// So many calls in a row went unanswered that none is sent for this long.
    Silent(Duration),
}

/// A call's message, and what its head repeats of it where messages have heads.
pub(crate) struct CallMessage {
    pub(crate) line: OneLine,
    pub(crate) head: Option<Box<MessageHead>>,
    /// Its method, if it is one of MCP's.
    pub(crate) method: Option<Method>,
    /// The reason that its caller gives when it cancels the call.
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

/// A call on a link. Dropping it cancels the call: the server is notified, its lane is freed.
pub(crate) struct InFlight {
    link: Arc<Link>,
    id: u64,
    answer: oneshot::Receiver<Answer>,
    ended: bool,
    /// How many lines the server had written when the call began.
    lines: u64,
    farewell: CancelNotice,
    admitted: Admitted,
    reason: Option<CancelReason>,
    /// Set if the call had to wait for a lane.
    lane_time: Option<LaneTime>,
}

/// Whether the server is notified when nobody waits for a response any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CancelNotice {
    Cancelled,
    /// A handshake may not be cancelled.
    Silent,
}

impl CancelNotice {
    fn of(method: &str) -> Self {
        match method {
            "initialize" | "server/discover" => Self::Silent,
            _ => Self::Cancelled,
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

    /// Sets who is notified of changed resources.
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
        // The sender is ours, so that it cannot be gone.
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

    fn in_flight(
        self: &Arc<Self>,
        id: u64,
        answer: oneshot::Receiver<Answer>,
        farewell: CancelNotice,
        admitted: Admitted,
    ) -> InFlight {
        InFlight {
            link: Arc::clone(self),
            id,
            answer,
            ended: false,
            lines: self.lines(),
            farewell,
            admitted,
            reason: None,
            lane_time: None,
        }
    }

    /// Writes a call that has a lane; if that cannot be done, the call is no longer pending.
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

    /// Writes the calls that freed lanes let through.
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

    /// Ends a call with what came for it; counts what nobody waited for.
    fn finish(&self, id: u64, answer: Answer) {
        let Finished { waited, next } = self.pending.finish(id, answer);
        self.write_next(next);
        if !waited {
            self.counters.late.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a request of our own, which takes no lane; bounded by `within`.
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

    /// Sends a request of our own and returns it in flight.
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

    /// Sends a notification; dropped if the server does not read.
    pub(crate) fn notify(&self, method: &str, params: Option<&RawBuf>) {
        let line = OneLine::notification(method, params.map(Payload::from));
        self.send_headed(line, self.outbox.head(method));
    }

    /// Sends a message that nobody waits for; dropped if the server does not read.
    pub(super) fn send_loosely(&self, line: OneLine) {
        self.send_headed(line, None);
    }

    fn send_headed(&self, line: OneLine, head: Option<Box<MessageHead>>) {
        self.outbox
            .send(None, line.into_bytes(), head, Batching::Alone)
            .unwrap_or_default();
    }

    /// Notes the version that was agreed on, which requests over HTTP name.
    pub(crate) fn set_version(&self, version: ProtocolVersion) {
        self.outbox.set_version(version);
    }

    /// Tells whether what is sent has a head of its own, which repeats parts of it.
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

    /// Tells whether that is the id of the list that was asked for last.
    fn is_listing(&self, id: u64) -> bool {
        self.listing.load(Ordering::Relaxed) == id && self.pending.contains(id)
    }

    /// Returns how many lines the server has written.
    pub(crate) fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Tells whether a call timed out, and the server has written nothing since that call began.
    pub(crate) fn is_mute(&self) -> bool {
        self.missed.load(Ordering::Relaxed) == self.lines() + 1
    }

    /// Takes a call back on behalf of a caller that has left or has waited long enough.
    fn cancel(self: &Arc<Self>, call: &InFlight, reason: &str, keep_lane: bool) {
        let id = call.id;
        let (sent, next) = self.pending.abandon(id, keep_lane);
        self.write_next(next);
        if !sent {
            return;
        }
        match call.farewell {
            CancelNotice::Cancelled => self.notify_cancelled(id, reason),
            CancelNotice::Silent => self.outbox.cancel(id, None),
        }
        if keep_lane {
            let link = Arc::clone(self);
            self.tracker.spawn(async move {
                let grace = tokio::time::sleep(link.limits.late_grace);
                if link.ended.run_until_cancelled(grace).await.is_some() {
                    let next = link.pending.reopen(id);
                    link.write_next(next);
                }
            });
        }
    }

    /// Writes what senders had to leave, until the link is closed; calls whose line the server
    /// never took fail after `deadline`.
    pub(crate) async fn run_writer(&self, deadline: Duration) {
        let not_reading = |id| self.finish(id, Answer::Failed(Failure::NotReading));
        if self.outbox.run(deadline, not_reading).await {
            self.input_closed.notify_one();
        }
    }

    /// Ends everything that waits on the link, and closes the server's input.
    pub(crate) fn end(&self, failure: &Failure) {
        self.ended.cancel();
        self.pending.end(failure);
        self.outbox.close();
    }

    /// Closes the server's input, so that a well-behaved server ends.
    pub(crate) fn close_input(&self) {
        self.outbox.close();
    }

    pub(crate) fn queue(&self) -> QueueView {
        self.pending.view()
    }

    /// Tells whether a call of the agent's would get a lane now, or a place in the queue.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        self.pending.has_room(agent)
    }

    /// Takes what the runner must look at, if there is something.
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

/// Says why a line was not taken.
fn unsent(error: SendError) -> Failure {
    match error {
        SendError::NotReading => Failure::NotReading,
        SendError::Closed => Failure::Exited("its input is closed".into()),
    }
}

/// When a call is given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    /// Longest silence.
    pub(crate) quiet: Duration,
    /// Longest duration.
    pub(crate) whole: Duration,
    /// The server's own time: only who waited that long may call it silent, not a caller in a hurry.
    pub(crate) fair: Duration,
}

impl InFlight {
    /// Returns where it will be known when the call got its lane, if it had to wait for one.
    pub(crate) fn lane_time(&self) -> Option<LaneTime> {
        self.lane_time.clone()
    }

    /// Returns the upstream id.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Waits for the answer, however long that takes.
    pub(crate) async fn answer(mut self) -> Answer {
        let answer = (&mut self.answer).await;
        self.ended = true;
        answer.unwrap_or_else(|_| Answer::Failed(Failure::Exited("the link was closed".into())))
    }

    /// Waits for the answer within the deadline; `Err` is how long was waited in vain.
    pub(crate) async fn answer_within(mut self, deadline: Deadline) -> Result<Answer, Duration> {
        let begun = Instant::now();
        let mut until = begun + deadline.whole.min(deadline.quiet);
        loop {
            match tokio::time::timeout_at(until, &mut self.answer).await {
                Ok(answer) => {
                    self.ended = true;
                    let closed = || Answer::Failed(Failure::Exited("the link was closed".into()));
                    return Ok(answer.unwrap_or_else(|_| closed()));
                }
                Err(_elapsed) => {
                    let activity = self.link.pending.activity(self.id);
                    let (active, paused) = activity.unwrap_or((begun, Duration::ZERO));
                    let last = begun + deadline.whole + paused;
                    let extended = last.min(active + deadline.quiet);
                    if extended <= until {
                        break;
                    }
                    until = extended;
                }
            }
        }
        self.ended = true;
        let keep_lane = self.link.limits.lanes == 1 && !self.link.limits.late_grace.is_zero();
        let had_its_time = begun.elapsed() >= deadline.fair;
        let said_nothing = self.link.lines() == self.lines && self.link.pending.is_sent(self.id);
        if had_its_time && said_nothing {
            self.link.missed.store(self.lines + 1, Ordering::Relaxed);
            self.link.breaker.missed(begun);
        } else if self.admitted == Admitted::AsProbe {
            self.link.breaker.gave_up();
        }
        self.link.cancel(&self, "timed out", keep_lane);
        Err(begun.elapsed())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.ended {
            if self.admitted == Admitted::AsProbe {
                self.link.breaker.gave_up();
            }
            let said = self.reason.as_ref().and_then(CancelReason::said);
            let why = said.unwrap_or("the caller has left");
            self.link.cancel(self, why, false);
        }
    }
}

#[cfg(test)]
mod tests;
