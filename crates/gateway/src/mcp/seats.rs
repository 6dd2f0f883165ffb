//! How much may wait for clients: so many calls of one agent, and so many bytes of them, with what
//! their servers ask and what was answered so far; so many bytes in all.
//!
//! A call that has a seat needs no room of the budget for bodies, so that none who waits for a person
//! keeps others out. Nothing here waits. Entry points: [`Seats::seat`] and [`Seat::load`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_engine::AskAnswer;
use gantry_model::id::AgentName;

/// Calls of one agent that may wait.
pub(super) const PER_AGENT: usize = 16;
/// Bytes that those of one agent may hold.
pub(super) const BYTES_PER_AGENT: usize = 16 << 20;
/// Bytes that all may hold.
const BYTES: usize = 64 << 20;

/// What waits for clients.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    agents: HashMap<AgentName, Own>,
    bytes: usize,
}

/// What one agent has.
#[derive(Debug, Default)]
struct Own {
    calls: usize,
    bytes: usize,
}

/// The place of one call from its first question to its end.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    agent: AgentName,
    bytes: usize,
}

/// Bytes that a call holds beside its own while it waits, given back with this.
#[derive(Debug)]
pub(super) struct Load {
    seat: Arc<Seat>,
    bytes: usize,
}

impl Seats {
    /// Finds a place for a call of this length; else says what is full.
    pub(super) fn seat(
        self: &Arc<Self>,
        agent: &AgentName,
        bytes: usize,
    ) -> Result<Arc<Seat>, AskAnswer> {
        let mut taken = self.lock();
        if taken
            .agents
            .get(agent)
            .is_some_and(|own| own.calls >= PER_AGENT)
        {
            return Err(AskAnswer::TooMany { limit: PER_AGENT });
        }
        taken.take(agent, bytes)?;
        taken.agents.entry(agent.clone()).or_default().calls += 1;
        drop(taken);
        Ok(Arc::new(Seat {
            seats: Arc::clone(self),
            agent: agent.clone(),
            bytes,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn take(&mut self, agent: &AgentName, bytes: usize) -> Result<(), AskAnswer> {
        let own = self.agents.get(agent).map_or(0, |own| own.bytes);
        if own + bytes > BYTES_PER_AGENT || self.bytes + bytes > BYTES {
            let limit = BYTES_PER_AGENT;
            return Err(AskAnswer::TooMuch { limit });
        }
        self.bytes += bytes;
        self.agents.entry(agent.clone()).or_default().bytes += bytes;
        Ok(())
    }

    fn give(&mut self, agent: &AgentName, bytes: usize, calls: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(own) = self.agents.get_mut(agent) {
            own.bytes = own.bytes.saturating_sub(bytes);
            own.calls = own.calls.saturating_sub(calls);
            if own.calls == 0 {
                self.agents.remove(agent);
            }
        }
    }
}

impl Seat {
    /// Takes so many bytes more; else says what is full.
    pub(super) fn load(self: &Arc<Self>, bytes: usize) -> Result<Load, AskAnswer> {
        self.seats.lock().take(&self.agent, bytes)?;
        Ok(Load {
            seat: Arc::clone(self),
            bytes,
        })
    }
}

impl Load {
    /// Takes so many bytes more; else says what is full.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), AskAnswer> {
        self.seat.seats.lock().take(&self.seat.agent, bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let seat = &self.seat;
        seat.seats.lock().give(&seat.agent, self.bytes, 0);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().give(&self.agent, self.bytes, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentName {
        name.parse().unwrap()
    }

    #[test]
    fn an_agent_has_so_many_places_and_bytes_and_gives_them_back() {
        let seats = Arc::new(Seats::default());
        let (one, other) = (agent("one"), agent("other"));
        let mut taken: Vec<_> = (0..PER_AGENT).map(|_| seats.seat(&one, 9)).collect();
        assert!(taken.iter().all(Result::is_ok));
        let full = seats.seat(&one, 9).unwrap_err();
        assert!(matches!(full, AskAnswer::TooMany { limit: PER_AGENT }));
        assert!(seats.seat(&other, 9).is_ok());
        drop(taken.pop());
        let much = seats.seat(&one, BYTES_PER_AGENT).unwrap_err();
        assert!(matches!(much, AskAnswer::TooMuch { .. }));
        assert!(seats.seat(&one, 9).is_ok());
        drop(taken);
        assert!(seats.lock().agents.is_empty());
        assert_eq!(seats.lock().bytes, 0);
    }

    #[test]
    fn what_is_asked_and_answered_counts_until_it_is_sent_on() {
        let seats = Arc::new(Seats::default());
        let seat = seats.seat(&agent("one"), 1).unwrap();
        let mut load = seat.load(BYTES_PER_AGENT - 2).unwrap();
        assert!(load.add(2).is_err() && seat.load(2).is_err());
        load.add(1).unwrap();
        drop(load);
        drop(seat.load(BYTES_PER_AGENT - 1).unwrap());
        // The agents together have a bound of their own.
        let full = BYTES / BYTES_PER_AGENT;
        let names = (0..full).map(|n| agent(&format!("a{n}")));
        let all: Vec<_> = names
            .map(|name| seats.seat(&name, BYTES_PER_AGENT - 1).unwrap())
            .collect();
        assert!(seats.seat(&agent("late"), full).is_err());
        assert!(seats.seat(&agent("late"), full - 1).is_ok());
        drop((seat, all));
        assert!(seats.lock().agents.is_empty());
        assert_eq!(seats.lock().bytes, 0);
    }
}
