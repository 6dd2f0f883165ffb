//! The calls that wait for a response on one link, and their lanes. Each entry ends exactly once:
//! by its response, by its caller leaving, or by the end of the link.
//!
//! All state is behind one short lock; nothing here writes or waits. A line that must be written
//! (the next call's when a lane is released) is returned to the caller of the method.

mod abandoned;
mod pause;
mod recipient;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use gantry_model::id::AgentName;
use gantry_model::mcp::Method;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::abandoned::AbandonedCalls;
use self::pause::Pause;
pub(crate) use self::recipient::{ReachableCall, Recipient};
use super::fair::{FairQueue, may_take};
use super::server_requests::CallerChannel;
use crate::answers::{AnswerBudget, AnswerPermit};
pub(crate) use crate::transport::Failure;
use crate::transport::http::MessageHead;

/// How a call on a link ended.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The server's `result`, raw.
    Result(ResultBody),
    /// The server's `error`, raw.
    Error(Bytes),
    /// No response from the server.
    Failed(Failure),
}

/// A raw result, and its share of the response budget.
#[derive(Debug)]
pub(crate) struct ResultBody {
    raw: Bytes,
    permit: AnswerPermit,
}

impl ResultBody {
    pub(crate) fn into_parts(self) -> (Bytes, AnswerPermit) {
        (self.raw, self.permit)
    }
}

impl From<Bytes> for ResultBody {
    fn from(raw: Bytes) -> Self {
        Self {
            raw,
            permit: AnswerPermit::default(),
        }
    }
}

impl Deref for ResultBody {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.raw
    }
}

/// A line to write to the server, with its call.
pub(crate) struct Outgoing {
    pub(crate) id: u64,
    pub(crate) line: Vec<u8>,
    /// Its HTTP head.
    pub(crate) head: Option<Box<MessageHead>>,
    /// Its method, if it is part of MCP.
    pub(crate) method: Option<Method>,
}

/// The outcome of adding a call.
pub(crate) enum Entered {
    /// It has a lane: write the line now. The number is that of the other calls on the link.
    Write(Outgoing, usize),
    /// It waits for a lane, and will know when it got one.
    Queued(LaneTime),
    /// Too many calls are waiting.
    Full,
    /// The link has ended, with this failure.
    Ended(Failure),
}

/// When a call that had to wait got its lane, if it did.
pub(crate) type LaneTime = Arc<OnceLock<Instant>>;

/// The consequences of the end of a call.
#[derive(Default)]
pub(crate) struct Finished {
    /// Whether a caller was waiting for it.
    pub(crate) waited: bool,
    /// The next call's line, to be written now.
    pub(crate) next: Option<Outgoing>,
}

/// The calls on a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueView {
    /// Calls that were sent and not answered.
    pub in_flight: usize,
    /// Calls that wait for a lane.
    pub waiting: usize,
    /// The number of lanes.
    pub lanes: u32,
    /// Lanes that are held for the late response of a call that timed out.
    pub closed_lanes: u32,
}

pub(crate) struct Pending {
    state: Mutex<PendingState>,
    /// The budget of responses to agents.
    answers: OnceLock<AnswerBudget>,
    lanes: u32,
}

struct PendingState {
    entries: HashMap<u64, PendingCall, BuildHasherDefault<IdHasher>>,
    queue: FairQueue<Outgoing>,
    lanes: u32,
    free: u32,
    /// How many agents may call beside one that does, as last heard.
    others: u32,
    closed_lanes: u32,
    abandoned: AbandonedCalls,
    /// Requests to its client that may belong to any call.
    questions: u32,
    ended: Option<Failure>,
}

/// The owner of a call: its agent, and its session if it has one.
pub(crate) type CallOwner = (AgentName, Option<u128>);

struct PendingCall {
    /// The owner; `None` for a request of the gateway.
    owner: Option<CallOwner>,
    /// Its method, if it is part of MCP.
    method: Option<Method>,
    /// `None` once the caller has left and only the lane is held for the late response.
    answer: Option<oneshot::Sender<Answer>>,
    /// The channel to its caller, for events and requests.
    caller_channel: Option<CallerChannel>,
    last_activity: Instant,
    pause: Pause,
    lane: Lane,
    /// Set if the call has to wait for a lane.
    lane_time: Option<LaneTime>,
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Lane {
    /// No lane: handshake, health check or listing.
    None,
    /// No lane: a subscription, whose response comes last, if at all.
    Standing,
    Waiting,
    /// It has a lane, and its line is about to be written.
    Handed,
    /// Its caller left at that moment: the writer of the line cancels it afterwards.
    Left,
    Taken,
}

/// Whether the caller of a call is still waiting, before or after its line is written.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum CallerPresence {
    Waits,
    HasLeft,
}

/// Ids are sequential, so their own bits are a sufficient hash.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Pending {
    /// Creates the table; `late` is how long messages about an abandoned call are expected.
    pub(crate) fn new(lanes: u32, queue: usize, late: Duration) -> Self {
        Self {
            state: Mutex::new(PendingState {
                entries: HashMap::default(),
                queue: FairQueue::new(queue),
                lanes,
                free: lanes,
                others: 0,
                closed_lanes: 0,
                abandoned: AbandonedCalls::new(late),
                questions: 0,
                ended: None,
            }),
            answers: OnceLock::new(),
            lanes,
        }
    }

    /// Sets the budget that responses to agents are charged to.
    pub(crate) fn charge(&self, answers: &AnswerBudget) {
        self.answers.get_or_init(|| answers.clone());
    }

    /// Charges a response to the budget; returns the failure if there is no room. Done here and not
    /// by the waiting task, since a server may respond faster than tasks are scheduled.
    fn charged(&self, entry: &PendingCall, answer: Answer) -> Answer {
        let Answer::Result(mut body) = answer else {
            return answer;
        };
        // A request of the gateway, or one without a waiting caller, keeps nothing.
        if let (Some(answers), Some((agent, _)), Some(_)) =
            (self.answers.get(), &entry.owner, &entry.answer)
        {
            match answers.take(Some(agent), body.raw.len()) {
                Ok(permit) => body.permit = permit,
                Err(full) => return Answer::Failed(Failure::Undelivered(full)),
            }
        }
        Answer::Result(body)
    }

    /// Enters a call of an agent's, which needs a lane; `others` is how many other agents may call.
    pub(crate) fn enter(
        &self,
        (agent, others): (&AgentName, u32),
        call: Outgoing,
        caller_channel: Option<CallerChannel>,
    ) -> (Entered, oneshot::Receiver<Answer>) {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(failure) = &state.ended {
            return (Entered::Ended(failure.clone()), receiver);
        }
        let (id, method) = (call.id, call.method);
        state.others = others;
        // Its own calls that wait already go first.
        let is_next = state.queue.waiting(agent) == 0;
        let (entered, lane, lane_time) = if is_next && state.may_take(state.queue.held(agent)) {
            state.free -= 1;
            state.queue.hold(agent);
            let entered = Entered::Write(call, state.entries.len());
            (entered, Lane::Taken, None)
        } else {
            match state.queue.push(agent, call) {
                Ok(()) => {
                    let time = LaneTime::default();
                    (
                        Entered::Queued(Arc::clone(&time)),
                        Lane::Waiting,
                        Some(time),
                    )
                }
                Err(_) => return (Entered::Full, receiver),
            }
        };
        let last_activity = Instant::now();
        let session = caller_channel
            .as_ref()
            .and_then(|caller_channel| caller_channel.client.session);
        let pause = Pause::begin(state.questions > 0, last_activity);
        state.entries.insert(
            id,
            PendingCall {
                owner: Some((agent.clone(), session)),
                method,
                answer: Some(answer),
                caller_channel,
                last_activity,
                pause,
                lane,
                lane_time,
            },
        );
        (entered, receiver)
    }

    /// Adds a request of the gateway, which takes no lane.
    pub(crate) fn enter_own(
        &self,
        id: u64,
        method: &str,
    ) -> Result<oneshot::Receiver<Answer>, Failure> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(failure) = &state.ended {
            return Err(failure.clone());
        }
        let entry = PendingCall {
            owner: None,
            method: Method::parse(method),
            answer: Some(answer),
            caller_channel: None,
            last_activity: Instant::now(),
            pause: Pause::default(),
            lane: match method {
                "subscriptions/listen" => Lane::Standing,
                _ => Lane::None,
            },
            lane_time: None,
        };
        state.entries.insert(id, entry);
        Ok(receiver)
    }

    /// Ends a call with its result.
    pub(crate) fn finish(&self, id: u64, answer: Answer) -> Finished {
        let mut state = self.state.lock();
        state.abandoned.answered(id);
        let Some(entry) = state.entries.remove(&id) else {
            return Finished::default();
        };
        let next = state.release(&entry);
        drop(state);
        let answer = self.charged(&entry, answer);
        let waited = entry
            .answer
            .is_some_and(|waiting| waiting.send(answer).is_ok());
        Finished { waited, next }
    }

    /// Returns whether a call is pending.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.state.lock().entries.contains_key(&id)
    }

    /// Returns whether a pending call has this method.
    pub(crate) fn is_of_method(&self, id: u64, method: Method) -> bool {
        let state = self.state.lock();
        let entry = state.entries.get(&id);
        entry.is_some_and(|entry| entry.method == Some(method))
    }

    /// Returns whether a pending call was sent to the server.
    pub(crate) fn is_sent(&self, id: u64) -> bool {
        let state = self.state.lock();
        let entry = state.entries.get(&id);
        entry.is_some_and(|entry| matches!(entry.lane, Lane::None | Lane::Standing | Lane::Taken))
    }

    /// Returns the one call that an error without an id can belong to: the only one outstanding, if
    /// the server owes no response to an abandoned call or to a request of the gateway. fault S7
    pub(crate) fn sole_outstanding(&self) -> Option<u64> {
        let state = self.state.lock();
        let call = state.only_call()?;
        let is_own = |entry: &PendingCall| entry.lane == Lane::None;
        let is_clear = !state.abandoned.is_any() && !state.entries.values().any(is_own);
        is_clear.then_some(call)
    }

    /// Ends a call whose caller has left. With `keep_lane` its lane is held until the late response
    /// or `reopen`. The first value is whether the call had been sent to the server.
    pub(crate) fn abandon(&self, id: u64, keep_lane: bool) -> (bool, Option<Outgoing>) {
        let mut state = self.state.lock();
        let Some(mut entry) = state.entries.remove(&id) else {
            return (false, None);
        };
        match entry.lane {
            Lane::Waiting => {
                state.queue.remove(|call| call.id == id);
                return (false, None);
            }
            Lane::Handed => {
                state.note_abandoned(id, &entry);
                // Its line may not be written yet. A cancellation that overtakes it would have no
                // effect.
                let next = state.release(&entry);
                (entry.lane, entry.answer, entry.caller_channel) = (Lane::Left, None, None);
                state.entries.insert(id, entry);
                return (false, next);
            }
            Lane::None | Lane::Standing | Lane::Left | Lane::Taken => {}
        }
        state.note_abandoned(id, &entry);
        if keep_lane && entry.lane == Lane::Taken {
            entry.answer = None;
            entry.caller_channel = None;
            state.closed_lanes += 1;
            state.entries.insert(id, entry);
            return (true, None);
        }
        (true, state.release(&entry))
    }

    /// Returns whether a line that was handed over must still be written.
    pub(crate) fn before_writing(&self, id: u64) -> CallerPresence {
        self.state.lock().remove_left(id)
    }

    /// Records that a line that was handed over is written: from now on its call can be cancelled.
    /// If its caller left meanwhile, the server must be notified now.
    pub(crate) fn after_writing(&self, id: u64) -> CallerPresence {
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.get_mut(&id)
            && entry.lane == Lane::Handed
        {
            entry.lane = Lane::Taken;
        }
        state.remove_left(id)
    }

    /// Releases the lane of an abandoned call whose late response never came.
    pub(crate) fn reopen(&self, id: u64) -> Option<Outgoing> {
        let mut state = self.state.lock();
        if state.entries.get(&id)?.answer.is_some() {
            return None;
        }
        let entry = state.entries.remove(&id)?;
        state.release(&entry)
    }

    /// Records activity of a call, and returns the channel to its caller.
    pub(crate) fn progressed(&self, id: u64) -> Option<CallerChannel> {
        let mut state = self.state.lock();
        let entry = state.entries.get_mut(&id)?;
        entry.last_activity = Instant::now();
        entry.caller_channel.clone()
    }

    /// Returns the channel to the caller of a call.
    pub(crate) fn caller_channel(&self, id: u64) -> Option<CallerChannel> {
        self.state.lock().entries.get(&id)?.caller_channel.clone()
    }

    /// Pauses the timeout of a call while its client answers a request, or resumes it.
    pub(crate) fn pause(&self, id: u64, asked: bool) {
        if let Some(entry) = self.state.lock().entries.get_mut(&id) {
            entry.last_activity = Instant::now();
            entry.pause.ask(asked, entry.last_activity);
        }
    }

    /// Returns when a call last showed activity, and how long its clock was paused.
    pub(crate) fn activity(&self, id: u64) -> Option<(Instant, Duration)> {
        let state = self.state.lock();
        let entry = state.entries.get(&id)?;
        Some(entry.pause.activity(entry.last_activity, Instant::now()))
    }

    /// Ends the link: every waiting call fails, and no more calls are accepted.
    pub(crate) fn end(&self, failure: &Failure) {
        let entries = {
            let mut state = self.state.lock();
            state.ended.get_or_insert_with(|| failure.clone());
            while state.queue.pop().is_some() {}
            std::mem::take(&mut state.entries)
        };
        for waiting in entries.into_values().filter_map(|entry| entry.answer) {
            // A caller that has just left needs no response.
            drop(waiting.send(Answer::Failed(failure.clone())));
        }
    }

    /// Returns whether a call of this agent would get a lane or a place in the queue now.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        let state = self.state.lock();
        state.may_take(state.queue.held(agent)) || state.queue.has_room(agent)
    }

    pub(crate) fn view(&self) -> QueueView {
        let state = self.state.lock();
        let is_sent = |entry: &&PendingCall| {
            matches!(entry.lane, Lane::Handed | Lane::Taken) && entry.answer.is_some()
        };
        QueueView {
            in_flight: state.entries.values().filter(is_sent).count(),
            waiting: state.queue.len(),
            lanes: self.lanes,
            closed_lanes: state.closed_lanes,
        }
    }
}

impl PendingState {
    /// Returns the only call that was sent and not answered, if there is exactly one.
    fn only_call(&self) -> Option<u64> {
        let calls =
            |entry: &PendingCall| matches!(entry.lane, Lane::Handed | Lane::Left | Lane::Taken);
        let mut sent = self.entries.iter().filter(|(_, entry)| calls(entry));
        let (id, entry) = sent.next()?;
        let is_sent = entry.lane == Lane::Taken && entry.answer.is_some();
        (is_sent && sent.next().is_none()).then_some(*id)
    }

    /// Passes the entry's lane to the next call in the queue, or releases it.
    fn release(&mut self, entry: &PendingCall) -> Option<Outgoing> {
        if !matches!(entry.lane, Lane::Handed | Lane::Taken) {
            return None;
        }
        if entry.answer.is_none() {
            self.closed_lanes = self.closed_lanes.saturating_sub(1);
        }
        if let Some((agent, _)) = &entry.owner {
            self.queue.let_go(agent);
        }
        self.free += 1;
        let (lanes, free, others) = (self.lanes, self.free, self.others);
        let active = self.queue.active();
        let may = |held: u32| may_take(lanes, free, held, (others, active));
        while let Some(next) = self.queue.pop_if(may) {
            if let Some(waiting) = self.entries.get_mut(&next.id) {
                waiting.lane = Lane::Handed;
                if let Some(time) = &waiting.lane_time {
                    time.get_or_init(Instant::now);
                }
                if let Some((agent, _)) = &waiting.owner {
                    self.queue.hold(agent);
                }
                self.free -= 1;
                return Some(next);
            }
        }
        None
    }

    /// Tells whether an agent that holds so many lanes may take one more now.
    fn may_take(&self, held: u32) -> bool {
        let agents = (self.others, self.queue.active());
        may_take(self.lanes, self.free, held, agents)
    }

    /// Records that the server may still send messages about an abandoned call.
    fn note_abandoned(&mut self, id: u64, entry: &PendingCall) {
        if let Some(owner) = &entry.owner {
            self.abandoned.add(id, owner.clone());
        }
    }

    /// Removes a call whose caller left while its line was handed over.
    fn remove_left(&mut self, id: u64) -> CallerPresence {
        match self.entries.get(&id) {
            Some(entry) if entry.lane == Lane::Left => {
                self.entries.remove(&id);
                CallerPresence::HasLeft
            }
            Some(_) | None => CallerPresence::Waits,
        }
    }
}

#[cfg(test)]
mod tests;
