//! The recipient of a message that names no call: the only call there is, or the one client that
//! owns all calls. Never another client (fault T4). Entry point: [`Pending::recipient`].

use tokio::time::Instant;

use super::{CallOwner, Lane, Pending, PendingCall, PendingState};
use crate::server::server_requests::CallerChannel;

/// The recipient of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// The caller of this call.
    Call(u64),
    /// The client of this session, which owns all calls.
    Session(CallOwner),
}

/// A call through which a client can receive a message for any of its calls.
pub(crate) struct ReachableCall {
    pub(crate) id: u64,
    /// Its owner.
    pub(crate) owner: CallOwner,
    pub(crate) caller_channel: CallerChannel,
}

impl Pending {
    /// Returns the recipient of a message that names no call; `None` if it may concern an abandoned
    /// call of another agent or session.
    pub(crate) fn recipient(&self) -> Option<Recipient> {
        let state = self.state.lock();
        if let Some(call) = state.only_call() {
            let owner = state.entries.get(&call)?.owner.as_ref();
            return (!state.abandoned.may_be_of_other_than(owner)).then_some(Recipient::Call(call));
        }
        state.only_session().cloned().map(Recipient::Session)
    }

    /// Returns a call through which a session can be reached, the newest first, except these.
    /// Without a given session it must be unambiguous: the only call, or the only session.
    pub(crate) fn reachable_call(
        &self,
        whose: Option<&CallOwner>,
        but: &[u64],
    ) -> Option<ReachableCall> {
        let state = self.state.lock();
        let whose = match whose {
            // Without a session, another call with the same key may belong to another client.
            Some((_, None)) => return None,
            Some(whose) => whose,
            None => state.only_owner()?,
        };
        let hears = |entry: &PendingCall| {
            let caller_channel = entry.caller_channel.as_ref();
            entry.answer.is_some()
                && caller_channel
                    .is_some_and(|caller_channel| !caller_channel.client.events.is_closed())
        };
        let calls = state.entries.iter();
        let calls = calls.filter(|(id, entry)| {
            entry.owner.as_ref() == Some(whose)
                && entry.lane == Lane::Taken
                && hears(entry)
                && !but.contains(id)
        });
        let (id, entry) = calls.max_by_key(|(id, _)| **id)?;
        Some(ReachableCall {
            id: *id,
            owner: whose.clone(),
            caller_channel: entry.caller_channel.clone()?,
        })
    }

    /// Pauses the timeouts of all calls while their client answers a request for any of them, or
    /// resumes them.
    pub(crate) fn pause_all(&self, asked: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.questions = match asked {
            true => state.questions + 1,
            false => state.questions.saturating_sub(1),
        };
        let now = Instant::now();
        for entry in state.entries.values_mut() {
            if entry.owner.is_some() {
                entry.last_activity = now;
                entry.pause.ask_for_any(state.questions > 0, now);
            }
        }
    }
}

impl PendingState {
    /// Returns the owner of the only call, or of all calls.
    fn only_owner(&self) -> Option<&CallOwner> {
        let Some(call) = self.only_call() else {
            return self.only_session();
        };
        let owner = self.entries.get(&call)?.owner.as_ref();
        owner.filter(|_| !self.abandoned.may_be_of_other_than(owner))
    }

    /// Returns the session that owns all sent and unanswered calls; `None` if the server may still
    /// send messages about an abandoned call of another owner.
    fn only_session(&self) -> Option<&CallOwner> {
        let is_sent =
            |entry: &&PendingCall| matches!(entry.lane, Lane::Handed | Lane::Left | Lane::Taken);
        let mut sent = self.entries.values().filter(is_sent);
        let owner = sent.next()?.owner.as_ref();
        let owner = owner.filter(|(_, session)| session.is_some())?;
        let is_one = sent.all(|entry| entry.owner.as_ref() == Some(owner))
            && !self.abandoned.may_be_of_other_than(Some(owner));
        is_one.then_some(owner)
    }
}
