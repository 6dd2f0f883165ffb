//! Which instance a call gets, and how many one agent may use while others do. Decides only that:
//! starts nothing, ends nothing, waits for nothing.
//!
//! An agent may use every instance that is free. One that uses fewer than its share gets another at
//! once, beyond the usual number if all are in use; until that is reached again, who has its share waits.
//! Entry point: [`Pool::find`].

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::id::{AgentName, KeyId};
use gantry_model::mcp::ClientCan;
use tokio::time::Instant;

use crate::error::Full;
use crate::request::Speaker;

/// The instances there are, the oldest first.
pub(super) struct Pool<T> {
    lives: Vec<Life<T>>,
    last: u64,
}

/// For whom a call is made: two clients with one key are two, if they have sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Party {
    pub(crate) agent: AgentName,
    pub(crate) key: KeyId,
    pub(crate) session: Option<u128>,
}

impl Party {
    /// Returns who speaks, if it can have a life of a server's to itself.
    pub(crate) fn of(caller: &Caller, speaker: Speaker) -> Option<Self> {
        let session = match speaker {
            Speaker::Anyone => return None,
            Speaker::Key => None,
            Speaker::Session(session) => Some(session),
        };
        Some(Self {
            agent: caller.agent.clone(),
            key: caller.key,
            session,
        })
    }
}

struct Life<T> {
    number: u64,
    can: ClientCan,
    /// Whose it is, from its beginning to its end.
    party: Party,
    /// Calls on it.
    users: u32,
    since: Instant,
    what: T,
}

/// What a call needs.
pub(super) struct Wish<'a, T> {
    /// What the client can do.
    pub(super) can: ClientCan,
    pub(super) party: &'a Party,
    /// How many calls a life takes at once.
    pub(super) lanes: u32,
    /// How many lives there may be.
    pub(super) most: usize,
    /// The server's requests say which call they are for, so that clients may share a life.
    pub(super) shares: bool,
    /// Tells whether a life offers what is called.
    pub(super) offers: &'a dyn Fn(&T) -> bool,
    /// A new life would offer it.
    pub(super) is_common: bool,
}

/// What a call finds.
pub(super) enum Found<'a, T> {
    /// A life with a place that is now its own.
    Free(u64, &'a T),
    /// Room for a new life of this number, perhaps instead of one that ends.
    Room(u64, Option<T>),
    /// Nothing yet, for this reason.
    Wait(Full),
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self {
            lives: Vec::new(),
            last: 0,
        }
    }
}

impl<T> Pool<T> {
    /// Finds an instance for a client: its own if that has room, else a new one; the idle instance of
    /// whoever has the most gives way to a new one. Only where instances can be shared is that of
    /// another client of the same agent taken before anybody waits.
    pub(super) fn find(&mut self, wish: &Wish<'_, T>, now: Instant) -> Found<'_, T> {
        let agent = &wish.party.agent;
        let used = self.lives.iter().filter(|life| life.users > 0);
        let agents: Vec<&AgentName> = used.map(|life| &life.party.agent).collect();
        let competing: HashSet<&AgentName> = agents.iter().copied().chain([agent]).collect();
        let share = (wish.most / competing.len()).max(1);
        let own_count = agents.iter().filter(|one| **one == agent).count();
        let may_use_more = agents.len() < wish.most || own_count < share;
        let full = match competing.len() > 1 && own_count >= share {
            true => Full::OfAgent(own_count),
            false => Full::Processes(wish.most),
        };
        let is_own = |life: &Life<T>| {
            life.can == wish.can && life.party == *wish.party && (wish.offers)(&life.what)
        };
        let has_room = |life: &Life<T>| match life.users {
            0 => wish.shares || may_use_more,
            users => wish.shares || users < wish.lanes,
        };
        let mut lives = self.lives.iter();
        if let Some(place) = lives.position(|life| is_own(life) && has_room(life)) {
            return self.take(place, now);
        }
        if !wish.is_common && self.lives.iter().any(is_own) {
            return Found::Wait(full);
        }
        let mut ended = None;
        if !may_use_more || self.lives.len() >= wish.most {
            // Beyond the usual number only who has less than its share.
            let is_due = own_count < share && self.lives.len() < 2 * wish.most;
            match self.idle().filter(|_| may_use_more) {
                Some(place) => ended = Some(self.lives.remove(place).what),
                None if is_due => {}
                None => match self.shared(wish) {
                    Some(place) => return self.take(place, now),
                    None => return Found::Wait(full),
                },
            }
        }
        self.last += 1;
        Found::Room(self.last, ended)
    }

    fn take(&mut self, place: usize, now: Instant) -> Found<'_, T> {
        let life = &mut self.lives[place];
        life.users += 1;
        life.since = now;
        Found::Free(life.number, &life.what)
    }

    /// Returns the idle life that gives way.
    fn idle(&self) -> Option<usize> {
        let same = |one: &Life<T>| {
            let of_agent = |life: &&Life<T>| life.party.agent == one.party.agent;
            self.lives.iter().filter(of_agent).count()
        };
        let idle = self.lives.iter().enumerate();
        let idle = idle.filter(|(_, life)| life.users == 0);
        let first = idle.min_by_key(|(_, life)| (Reverse(same(life)), life.since));
        first.map(|(place, _)| place)
    }

    /// Returns the life that a client gets which finds no room for one of its own: never one of another
    /// agent's, since a server remembers with whom it speaks.
    fn shared(&self, wish: &Wish<'_, T>) -> Option<usize> {
        let lives = self.lives.iter().enumerate();
        let fits = |life: &Life<T>| {
            wish.shares
                && wish.is_common
                && life.can == wish.can
                && life.party.agent == wish.party.agent
        };
        let fitting = lives.filter(|(_, life)| fits(life));
        let best = fitting.min_by_key(|(_, life)| life.users);
        best.map(|(place, _)| place)
    }

    /// Enters a life that begins with a call.
    pub(super) fn insert(
        &mut self,
        number: u64,
        (can, party): (ClientCan, &Party),
        what: T,
        now: Instant,
    ) {
        self.lives.push(Life {
            number,
            can,
            party: party.clone(),
            users: 1,
            since: now,
            what,
        });
    }

    /// Returns the lives there are, and whose they are.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Party, &T)> {
        self.lives.iter().map(|life| (&life.party, &life.what))
    }

    fn life(&mut self, number: u64) -> Option<&mut Life<T>> {
        self.lives.iter_mut().find(|life| life.number == number)
    }

    /// Notes that a call has ended.
    pub(super) fn leave(&mut self, number: u64, now: Instant) {
        if let Some(life) = self.life(number) {
            life.users = life.users.saturating_sub(1);
            life.since = now;
        }
    }

    /// Returns when to look again whether a life is idle; none if it was, or is gone.
    pub(super) fn look(&mut self, number: u64, now: Instant, idle: Duration) -> Option<Instant> {
        let life = self.life(number)?;
        if life.users > 0 {
            life.since = now;
        }
        let until = life.since + idle;
        if until <= now {
            self.lives.retain(|life| life.number != number);
            return None;
        }
        Some(until)
    }

    /// Takes all lives out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.lives.drain(..).map(|life| life.what)
    }
}

#[cfg(test)]
mod tests;
