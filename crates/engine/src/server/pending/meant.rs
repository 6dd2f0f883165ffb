//! Whom something is meant for that a server says of no call: the only call there is, or the one client
//! whose calls they all are. Never somebody else (fault T4). Entry point: [`Pending::meant`].

use tokio::time::Instant;

use super::{Entry, Lane, Pending, State};
use crate::server::link::Voice;

/// Whom the server means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meant {
    /// The caller of this call.
    Call(u64),
    /// The client of the session that all calls are of.
    Session,
}

impl Pending {
    /// Returns whom something can be for that the server says of no call, unless it may yet speak of a
    /// call that another agent or session has left.
    pub(crate) fn meant(&self) -> Option<Meant> {
        let state = self.lock();
        if let Some(call) = state.only_call() {
            let party = state.entries.get(&call)?.party.as_ref();
            return (!state.owed.is_to_other_than(party)).then_some(Meant::Call(call));
        }
        state.is_of_one_session().then_some(Meant::Session)
    }

    /// Returns a call that the client of the only session can be told something with, the newest
    /// first, but none of these.
    pub(crate) fn spokesman(&self, but: &[u64]) -> Option<(u64, Voice)> {
        let state = self.lock();
        if state.only_call().is_none() && !state.is_of_one_session() {
            return None;
        }
        let hears = |entry: &Entry| {
            let voice = entry.voice.as_ref();
            entry.answer.is_some() && voice.is_some_and(|voice| !voice.client.words.is_closed())
        };
        let calls = state.entries.iter();
        let calls = calls
            .filter(|(id, entry)| entry.lane == Lane::Taken && hears(entry) && !but.contains(id));
        let (id, entry) = calls.max_by_key(|(id, _)| **id)?;
        Some((*id, entry.voice.clone()?))
    }

    /// Stops the clocks of all calls while their client is asked what may be for any of them, or
    /// starts them again.
    pub(crate) fn pause_all(&self, asked: bool) {
        let mut state = self.lock();
        let state = &mut *state;
        state.questions = match asked {
            true => state.questions + 1,
            false => state.questions.saturating_sub(1),
        };
        let now = Instant::now();
        for entry in state.entries.values_mut() {
            if entry.party.is_some() {
                entry.last_activity = now;
                entry.pause.ask_for_any(state.questions > 0, now);
            }
        }
    }
}

impl State {
    /// Tells whether all that the server was sent and has not answered is of one session, and it may
    /// not yet speak of a call that somebody else has left.
    fn is_of_one_session(&self) -> bool {
        let is_sent =
            |entry: &&Entry| matches!(entry.lane, Lane::Handed | Lane::Left | Lane::Taken);
        let mut sent = self.entries.values().filter(is_sent);
        let Some(party) = sent.next().and_then(|entry| entry.party.as_ref()) else {
            return false;
        };
        let (_, Some(_session)) = party else {
            return false;
        };
        sent.all(|entry| entry.party.as_ref() == Some(party))
            && !self.owed.is_to_other_than(Some(party))
    }
}
