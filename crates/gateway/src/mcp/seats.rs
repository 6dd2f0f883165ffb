//! How much may wait for clients: so many calls of one agent, and so many bytes of them, with what
//! their servers ask and what was answered so far; so many bytes in all. A call counts while something
//! that its client was asked is open; its own bytes from its first question to its end.
//!
//! A call that has a seat needs no room of the budget for bodies, so that none who waits for a person
//! keeps others out. Nothing here waits. Entry points: [`Seats::seat`] and [`Seat::load`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_engine::{AskAnswer, HeldBytes};
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
    /// Calls whose clients are asked something just now.
    calls: usize,
    bytes: usize,
}

/// The bytes of one call from its first question to its end.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    agent: AgentName,
    bytes: usize,
    /// How many loads it has; changes only while the seats are locked.
    loads: AtomicUsize,
}

/// A call's place among those that wait, and the bytes that it holds beside its own meanwhile; given
/// back with this.
#[derive(Debug)]
pub(super) struct Load {
    seat: Arc<Seat>,
    bytes: usize,
}

impl Seats {
    /// Finds room for a call of this length; else says what is full.
    pub(super) fn seat(
        self: &Arc<Self>,
        agent: &AgentName,
        bytes: usize,
    ) -> Result<Arc<Seat>, AskAnswer> {
        self.lock().take(agent, bytes, 0)?;
        Ok(Arc::new(Seat {
            seats: Arc::clone(self),
            agent: agent.clone(),
            bytes,
            loads: AtomicUsize::new(0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn take(&mut self, agent: &AgentName, bytes: usize, calls: usize) -> Result<(), AskAnswer> {
        let own_calls = self.agents.get(agent).map_or(0, |own| own.calls);
        if calls > 0 && own_calls + calls > PER_AGENT {
            return Err(AskAnswer::TooMany { limit: PER_AGENT });
        }
        self.take_bytes(agent, bytes).map_err(AskAnswer::TooMuch)?;
        if calls > 0 {
            self.agents.entry(agent.clone()).or_default().calls += calls;
        }
        Ok(())
    }

    fn take_bytes(&mut self, agent: &AgentName, bytes: usize) -> Result<(), HeldBytes> {
        let own_bytes = self.agents.get(agent).map_or(0, |own| own.bytes);
        if own_bytes + bytes > BYTES_PER_AGENT {
            return Err(HeldBytes::OfAgent(BYTES_PER_AGENT));
        }
        if self.bytes + bytes > BYTES {
            return Err(HeldBytes::OfAll(BYTES));
        }
        self.bytes += bytes;
        if bytes > 0 {
            self.agents.entry(agent.clone()).or_default().bytes += bytes;
        }
        Ok(())
    }

    fn give(&mut self, agent: &AgentName, bytes: usize, calls: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(own) = self.agents.get_mut(agent) {
            own.bytes = own.bytes.saturating_sub(bytes);
            own.calls = own.calls.saturating_sub(calls);
            if own.calls == 0 && own.bytes == 0 {
                self.agents.remove(agent);
            }
        }
    }
}

impl Seat {
    /// Finds a place for what the call's client is asked, of this length; else says what is full.
    pub(super) fn load(self: &Arc<Self>, bytes: usize) -> Result<Load, AskAnswer> {
        let mut taken = self.seats.lock();
        let is_first = self.loads.load(Ordering::Relaxed) == 0;
        taken.take(&self.agent, bytes, usize::from(is_first))?;
        self.loads.fetch_add(1, Ordering::Relaxed);
        drop(taken);
        Ok(Load {
            seat: Arc::clone(self),
            bytes,
        })
    }
}

impl Load {
    /// Takes so many bytes more; else says what is full.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), HeldBytes> {
        self.seat.seats.lock().take_bytes(&self.seat.agent, bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let seat = &self.seat;
        let mut taken = seat.seats.lock();
        let was_last = seat.loads.fetch_sub(1, Ordering::Relaxed) == 1;
        taken.give(&seat.agent, self.bytes, usize::from(was_last));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().give(&self.agent, self.bytes, 0);
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
        let wait = |agent| seats.seat(agent, 9).unwrap().load(1);
        let mut taken: Vec<_> = (0..PER_AGENT).map(|_| wait(&one)).collect();
        assert!(taken.iter().all(Result::is_ok));
        let full = wait(&one).unwrap_err();
        assert!(matches!(full, AskAnswer::TooMany { limit: PER_AGENT }));
        assert!(wait(&other).is_ok());
        drop(taken.pop());
        let much = seats.seat(&one, BYTES_PER_AGENT).unwrap_err();
        let own = HeldBytes::OfAgent(BYTES_PER_AGENT);
        assert!(matches!(much, AskAnswer::TooMuch(limit) if limit == own));
        assert!(wait(&one).is_ok());
        drop(taken);
        assert!(seats.lock().agents.is_empty());
        assert_eq!(seats.lock().bytes, 0);
    }

    #[test]
    fn a_call_counts_once_and_only_while_its_client_is_asked() {
        let seats = Arc::new(Seats::default());
        let one = agent("one");
        let calls: Vec<_> = (0..=PER_AGENT)
            .map(|_| seats.seat(&one, 9).unwrap())
            .collect();
        let mut asked: Vec<_> = calls[1..].iter().map(|call| call.load(1)).collect();
        assert!(asked.iter().all(Result::is_ok));
        // What a call asks beside its first question takes no further place.
        let beside = calls[1].load(1).unwrap();
        assert!(calls[0].load(1).is_err());
        drop(asked.remove(0));
        assert!(calls[0].load(1).is_err(), "it still waits");
        drop(beside);
        // It goes on, and nothing waits.
        drop(calls[0].load(1).unwrap());
        drop((asked, calls));
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
        let much = seats.seat(&agent("late"), full).unwrap_err();
        assert!(matches!(much, AskAnswer::TooMuch(HeldBytes::OfAll(BYTES))));
        assert!(seats.seat(&agent("late"), full - 1).is_ok());
        drop((seat, all));
        assert!(seats.lock().agents.is_empty());
        assert_eq!(seats.lock().bytes, 0);
    }
}
