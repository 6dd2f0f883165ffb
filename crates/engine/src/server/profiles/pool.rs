//! Which life a call gets, and how many one agent may have at once. Decides only that: begins
//! nothing, ends nothing, waits for nothing. Entry point: [`Pool::find`].

use std::cmp::Reverse;
use std::time::Duration;

use gantry_model::id::{AgentName, KeyId};
use gantry_model::mcp::ClientCan;
use tokio::time::Instant;

/// The lives there are, the oldest first.
pub(super) struct Pool<T> {
    lives: Vec<Life<T>>,
    last: u64,
}

/// For whom a call is made: two clients with one key are two, if they have sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Party {
    pub(crate) agent: AgentName,
    pub(crate) key: KeyId,
    pub(crate) session: Option<u128>,
}

struct Life<T> {
    number: u64,
    can: ClientCan,
    /// Whose call it had last, or has; who began it, if it is shared.
    agent: AgentName,
    /// Its transport says which call a request of the server's is for.
    shares: bool,
    users: u32,
    /// Whose call it had that was never answered: it may yet ask for that call, and nobody else.
    owes: Option<Party>,
    /// Its call waits for its client.
    asks: bool,
    since: Instant,
    what: T,
}

/// What a call finds.
pub(super) enum Found<'a, T> {
    /// A life that is now its own.
    Free(u64, &'a T),
    /// Room for a new life of this number, perhaps instead of one that ends.
    Room(u64, Option<T>),
    /// Nothing yet.
    Wait,
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
    /// Finds a life for clients that can do this. Calls that follow each other get the same life;
    /// another begins only if all that there are wait for their clients. One agent uses at most half
    /// of what there may be; the idle life of whoever has the most gives way to a new one.
    pub(super) fn find(
        &mut self,
        can: ClientCan,
        party: &Party,
        most: usize,
        now: Instant,
    ) -> Found<'_, T> {
        let owes_us = |life: &Life<T>| life.owes.as_ref().is_none_or(|owed| owed == party);
        let own = |life: &Life<T>| life.can == can && owes_us(life);
        let is_free = |life: &Life<T>| own(life) && (life.shares || life.users == 0);
        let is_used = |life: &&Life<T>| life.agent == party.agent && life.users > 0;
        let has_its_share = self.lives.iter().filter(is_used).count() >= share(most);
        let is_ours = |life: &Life<T>| is_free(life) && (life.shares || !has_its_share);
        if let Some(place) = self.lives.iter().position(is_ours) {
            let life = &mut self.lives[place];
            if !life.shares {
                life.agent = party.agent.clone();
            }
            life.users += 1;
            life.since = now;
            return Found::Free(life.number, &life.what);
        }
        if has_its_share || self.lives.iter().any(|life| own(life) && !life.asks) {
            return Found::Wait;
        }
        let mut ended = None;
        if self.lives.len() >= most {
            let same = |one: &Life<T>| {
                self.lives
                    .iter()
                    .filter(|life| life.agent == one.agent)
                    .count()
            };
            let idle = self.lives.iter().enumerate();
            let idle = idle.filter(|(_, life)| life.users == 0);
            let first = |life: &Life<T>| (Reverse(same(life)), life.since);
            let Some((place, _)) = idle.min_by_key(|(_, life)| first(life)) else {
                return Found::Wait;
            };
            ended = Some(self.lives.remove(place).what);
        }
        self.last += 1;
        Found::Room(self.last, ended)
    }

    /// Enters a life that begins with a call.
    pub(super) fn insert(
        &mut self,
        number: u64,
        (can, agent): (ClientCan, &AgentName),
        shares: bool,
        what: T,
        now: Instant,
    ) {
        self.lives.push(Life {
            number,
            can,
            agent: agent.clone(),
            shares,
            users: 1,
            owes: None,
            asks: false,
            since: now,
            what,
        });
    }

    /// Returns the lives there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.lives.iter().map(|life| &life.what)
    }

    fn life(&mut self, number: u64) -> Option<&mut Life<T>> {
        self.lives.iter_mut().find(|life| life.number == number)
    }

    /// Notes that a call has ended; `unanswered` is whose it was, if the server has not answered it.
    pub(super) fn leave(&mut self, number: u64, unanswered: Option<Party>, now: Instant) {
        if let Some(life) = self.life(number) {
            let unanswered = unanswered.filter(|_| !life.shares);
            life.owes = life.owes.take().or(unanswered);
            life.users = life.users.saturating_sub(1);
            (life.asks, life.since) = (false, now);
        }
    }

    /// Notes that a call waits for its client, or goes on.
    pub(super) fn asks(&mut self, number: u64, asks: bool) {
        if let Some(life) = self.life(number) {
            life.asks = asks;
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

/// How many lives one agent may use at once.
fn share(most: usize) -> usize {
    most.div_ceil(2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientCan = ClientCan {
        sample: true,
        ..ClientCan::NOTHING
    };
    const OTHER: ClientCan = ClientCan {
        list_roots: true,
        ..ClientCan::NOTHING
    };
    const IDLE: Duration = Duration::from_secs(300);

    /// Returns a client of an agent's, in a session.
    fn party(agent: &str, session: u128) -> Party {
        Party {
            agent: agent.parse().unwrap(),
            key: KeyId::from_random(1),
            session: Some(session),
        }
    }

    /// Finds as a call does, and says what it found: a life, a new one, or none.
    fn find(pool: &mut Pool<u64>, can: ClientCan, agent: &str) -> (&'static str, u64) {
        find_for(pool, can, &party(agent, 1), 4)
    }

    fn find_for(
        pool: &mut Pool<u64>,
        can: ClientCan,
        party: &Party,
        most: usize,
    ) -> (&'static str, u64) {
        let now = Instant::now();
        match pool.find(can, party, most, now) {
            Found::Free(number, _) => ("free", number),
            Found::Room(number, ended) => {
                pool.insert(number, (can, &party.agent), false, number, now);
                (if ended.is_some() { "instead" } else { "new" }, number)
            }
            Found::Wait => ("wait", 0),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_share_a_life_one_after_the_other_and_pass_by_one_that_waits_for_a_person() {
        let mut pool = Pool::default();
        assert_eq!(find(&mut pool, ONE, "a"), ("new", 1));
        assert_eq!(find(&mut pool, ONE, "b"), ("wait", 0));
        pool.asks(1, true);
        assert_eq!(find(&mut pool, ONE, "b"), ("new", 2));
        pool.asks(2, true);
        pool.asks(1, false);
        assert_eq!(
            find(&mut pool, ONE, "b"),
            ("wait", 0),
            "the first is soon free"
        );
        pool.leave(1, None, Instant::now());
        assert_eq!(find(&mut pool, ONE, "b"), ("free", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_agent_uses_half_of_the_lives_and_leaves_the_rest_to_others() {
        let mut pool = Pool::default();
        for number in [1, 2] {
            assert_eq!(find(&mut pool, ONE, "a"), ("new", number));
            pool.asks(number, true);
        }
        assert_eq!(find(&mut pool, ONE, "a"), ("wait", 0), "it has its half");
        assert_eq!(find(&mut pool, OTHER, "a"), ("wait", 0));
        for number in [3, 4] {
            assert_eq!(find(&mut pool, ONE, "b"), ("new", number));
            pool.asks(number, true);
        }
        assert_eq!(
            find(&mut pool, ONE, "c"),
            ("wait", 0),
            "all wait for people"
        );
        pool.leave(1, None, Instant::now());
        assert_eq!(find(&mut pool, ONE, "a"), ("free", 1));
        // Nor does it get a free one beyond its half.
        pool.leave(3, None, Instant::now());
        assert_eq!(find(&mut pool, ONE, "a"), ("wait", 0));
        assert_eq!(find(&mut pool, ONE, "c"), ("free", 3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_life_of_whoever_has_the_most_gives_way() {
        let mut pool = Pool::default();
        assert_eq!(find(&mut pool, ONE, "b"), ("new", 1));
        pool.leave(1, None, Instant::now());
        let third = ClientCan {
            list_roots: true,
            ..ONE
        };
        for (number, can) in [(2, OTHER), (3, third)] {
            tokio::time::advance(IDLE / 10).await;
            assert_eq!(find(&mut pool, can, "a"), ("new", number));
            pool.leave(number, None, Instant::now());
        }
        // The oldest is another's, and stays.
        let found = find_for(&mut pool, ClientCan::NOTHING, &party("c", 1), 3);
        assert_eq!(found, ("instead", 4));
        assert_eq!(find(&mut pool, ONE, "b"), ("free", 1));
        assert_eq!(find(&mut pool, third, "a"), ("free", 3));
    }

    // fault T4
    #[tokio::test(start_paused = true)]
    async fn a_life_that_owes_an_answer_serves_only_whom_it_owes() {
        let mut pool = Pool::default();
        let (owed, other) = (party("a", 1), party("a", 2));
        let most = 2;
        assert_eq!(find_for(&mut pool, ONE, &owed, most), ("new", 1));
        pool.leave(1, Some(owed.clone()), Instant::now());
        // The same key in another session is somebody else.
        assert_eq!(find_for(&mut pool, ONE, &other, most), ("new", 2));
        pool.leave(2, None, Instant::now());
        assert_eq!(find_for(&mut pool, ONE, &owed, most), ("free", 1));
        pool.leave(1, None, Instant::now());
        assert_eq!(find_for(&mut pool, ONE, &other, most), ("free", 2));
        pool.asks(2, true);
        let third = party("b", 3);
        assert_eq!(find_for(&mut pool, ONE, &third, most), ("instead", 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_life_that_nobody_uses_ends() {
        let mut pool = Pool::default();
        find(&mut pool, ONE, "a");
        tokio::time::advance(2 * IDLE).await;
        let next = pool.look(1, Instant::now(), IDLE);
        assert_eq!(next, Some(Instant::now() + IDLE), "it is in use");
        pool.leave(1, None, Instant::now());
        tokio::time::advance(IDLE).await;
        assert_eq!(pool.look(1, Instant::now(), IDLE), None);
        assert_eq!(find(&mut pool, ONE, "a"), ("new", 2));
    }

    #[tokio::test]
    async fn where_requests_say_their_call_a_life_has_many() {
        let mut pool = Pool::default();
        let now = Instant::now();
        let Found::Room(number, None) = pool.find(ONE, &party("a", 1), 1, now) else {
            panic!("room")
        };
        let agent = "a".parse().unwrap();
        pool.insert(number, (ONE, &agent), true, number, now);
        pool.asks(number, true);
        assert_eq!(find_for(&mut pool, ONE, &party("a", 2), 1), ("free", 1));
    }
}
