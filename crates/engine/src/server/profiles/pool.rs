//! Which instance a call gets, and how many an agent may use while others compete. Only decides:
//! starts, stops and waits for nothing.
//!
//! An agent may use every free instance. An agent below its share gets a new instance immediately,
//! beyond the usual number if all are in use; until the number is back to usual, agents that have
//! their share wait. Entry point: [`Pool::find`].

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::id::{AgentName, KeyId};
use gantry_model::mcp::ClientCapabilities;
use tokio::time::Instant;

use crate::error::Full;
use crate::request::ClientIdentity;

/// The instances, the oldest first.
pub(super) struct Pool<T> {
    instances: Vec<PoolEntry<T>>,
    last: u64,
}

/// The client of a call: two clients with one key are different if they have sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct InstanceOwner {
    pub(crate) agent: AgentName,
    pub(crate) key: KeyId,
    pub(crate) session: Option<u128>,
}

impl InstanceOwner {
    /// Returns the client if it can have its own instance of a server.
    pub(crate) fn of(caller: &Caller, identity: ClientIdentity) -> Option<Self> {
        let session = match identity {
            ClientIdentity::Anyone => return None,
            ClientIdentity::Key => None,
            ClientIdentity::Session(session) => Some(session),
        };
        Some(Self {
            agent: caller.agent.clone(),
            key: caller.key,
            session,
        })
    }
}

struct PoolEntry<T> {
    number: u64,
    capabilities: ClientCapabilities,
    /// Its owner, for its whole life.
    owner: InstanceOwner,
    /// The number of its calls.
    users: u32,
    since: Instant,
    what: T,
}

/// The requirements of a call.
pub(super) struct PoolRequest<'a, T> {
    /// The capabilities of the client.
    pub(super) capabilities: ClientCapabilities,
    pub(super) owner: &'a InstanceOwner,
    /// How many calls an instance runs at once.
    pub(super) lanes: u32,
    /// The usual maximum number of instances.
    pub(super) most: usize,
    /// Whether the server's requests name their call, so that clients may share an instance.
    pub(super) shares: bool,
    /// Returns whether an instance offers the called item.
    pub(super) offers: &'a dyn Fn(&T) -> bool,
    /// Whether a new instance would offer it.
    pub(super) is_common: bool,
}

/// The result of a search.
pub(super) enum Allocation<'a, T> {
    /// An instance with a slot, which is now taken.
    Free(u64, &'a T),
    /// Room for a new instance with this number, possibly replacing one that is stopped.
    Room(u64, Option<T>),
    /// No slot yet, for this reason.
    Wait(Full),
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self {
            instances: Vec::new(),
            last: 0,
        }
    }
}

impl<T> Pool<T> {
    /// Finds an instance for a client: its own if that has room, else a new one, which may replace
    /// an idle instance of the agent that has the most. If instances can be shared, one of another
    /// client of the same agent is used before waiting.
    pub(super) fn find(&mut self, request: &PoolRequest<'_, T>, now: Instant) -> Allocation<'_, T> {
        let agent = &request.owner.agent;
        let used = self.instances.iter().filter(|instance| instance.users > 0);
        let agents: Vec<&AgentName> = used.map(|instance| &instance.owner.agent).collect();
        let competing: HashSet<&AgentName> = agents.iter().copied().chain([agent]).collect();
        let share = (request.most / competing.len()).max(1);
        let own_count = agents.iter().filter(|one| **one == agent).count();
        let may_use_more = agents.len() < request.most || own_count < share;
        let full = match competing.len() > 1 && own_count >= share {
            true => Full::OfAgent(own_count),
            false => Full::Processes(request.most),
        };
        let is_own = |instance: &PoolEntry<T>| {
            instance.capabilities == request.capabilities
                && instance.owner == *request.owner
                && (request.offers)(&instance.what)
        };
        let has_room = |instance: &PoolEntry<T>| match instance.users {
            0 => request.shares || may_use_more,
            users => request.shares || users < request.lanes,
        };
        let mut instances = self.instances.iter();
        if let Some(place) = instances.position(|instance| is_own(instance) && has_room(instance)) {
            return self.take(place, now);
        }
        if !request.is_common && self.instances.iter().any(is_own) {
            return Allocation::Wait(full);
        }
        let mut ended = None;
        if !may_use_more || self.instances.len() >= request.most {
            // Beyond the usual number only for an agent below its share.
            let is_due = own_count < share && self.instances.len() < 2 * request.most;
            match self.idle().filter(|_| may_use_more) {
                Some(place) => ended = Some(self.instances.remove(place).what),
                None if is_due => {}
                None => match self.shared(request) {
                    Some(place) => return self.take(place, now),
                    None => return Allocation::Wait(full),
                },
            }
        }
        self.last += 1;
        Allocation::Room(self.last, ended)
    }

    fn take(&mut self, place: usize, now: Instant) -> Allocation<'_, T> {
        let instance = &mut self.instances[place];
        instance.users += 1;
        instance.since = now;
        Allocation::Free(instance.number, &instance.what)
    }

    /// Returns the idle instance to replace.
    fn idle(&self) -> Option<usize> {
        let same = |one: &PoolEntry<T>| {
            let of_agent = |instance: &&PoolEntry<T>| instance.owner.agent == one.owner.agent;
            self.instances.iter().filter(of_agent).count()
        };
        let idle = self.instances.iter().enumerate();
        let idle = idle.filter(|(_, instance)| instance.users == 0);
        let first = idle.min_by_key(|(_, instance)| (Reverse(same(instance)), instance.since));
        first.map(|(place, _)| place)
    }

    /// Returns an instance to share for a client without room for its own: never one of another
    /// agent, since a server may keep state about its client.
    fn shared(&self, request: &PoolRequest<'_, T>) -> Option<usize> {
        let instances = self.instances.iter().enumerate();
        let fits = |instance: &PoolEntry<T>| {
            request.shares
                && request.is_common
                && instance.capabilities == request.capabilities
                && instance.owner.agent == request.owner.agent
        };
        let fitting = instances.filter(|(_, instance)| fits(instance));
        let best = fitting.min_by_key(|(_, instance)| instance.users);
        best.map(|(place, _)| place)
    }

    /// Adds a new instance with its first call.
    pub(super) fn insert(
        &mut self,
        number: u64,
        (capabilities, owner): (ClientCapabilities, &InstanceOwner),
        what: T,
        now: Instant,
    ) {
        self.instances.push(PoolEntry {
            number,
            capabilities,
            owner: owner.clone(),
            users: 1,
            since: now,
            what,
        });
    }

    /// Returns the instances and their owners.
    pub(super) fn all(&self) -> impl Iterator<Item = (&InstanceOwner, &T)> {
        self.instances
            .iter()
            .map(|instance| (&instance.owner, &instance.what))
    }

    fn entry(&mut self, number: u64) -> Option<&mut PoolEntry<T>> {
        self.instances
            .iter_mut()
            .find(|instance| instance.number == number)
    }

    /// Records the end of a call.
    pub(super) fn leave(&mut self, number: u64, now: Instant) {
        if let Some(instance) = self.entry(number) {
            instance.users = instance.users.saturating_sub(1);
            instance.since = now;
        }
    }

    /// Returns when to check again whether an instance is idle; `None` if it was removed.
    pub(super) fn look(&mut self, number: u64, now: Instant, idle: Duration) -> Option<Instant> {
        let instance = self.entry(number)?;
        if instance.users > 0 {
            instance.since = now;
        }
        let until = instance.since + idle;
        if until <= now {
            self.instances.retain(|instance| instance.number != number);
            return None;
        }
        Some(until)
    }

    /// Removes all instances.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.instances.drain(..).map(|instance| instance.what)
    }
}

#[cfg(test)]
mod tests;
