//! Which life a call gets. Decides only that: begins nothing, ends nothing, waits for nothing.

use std::time::Duration;

use gantry_model::id::KeyId;
use gantry_model::mcp::ClientCan;
use tokio::time::Instant;

/// The lives there are, the oldest first.
pub(super) struct Pool<T> {
    lives: Vec<Life<T>>,
    last: u64,
}

struct Life<T> {
    number: u64,
    can: ClientCan,
    /// Its transport says which call a request of the server's is for.
    shares: bool,
    users: u32,
    /// Whose call it had that was never answered: it may yet ask for that call, and nobody else.
    owes: Option<KeyId>,
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
    /// another begins only if all that there are wait for their clients.
    pub(super) fn find(
        &mut self,
        (can, key): (ClientCan, KeyId),
        most: usize,
        now: Instant,
    ) -> Found<'_, T> {
        let own = |life: &Life<T>| life.can == can && life.owes.is_none_or(|owed| owed == key);
        let is_free = |life: &Life<T>| own(life) && (life.shares || life.users == 0);
        if let Some(place) = self.lives.iter().position(is_free) {
            let life = &mut self.lives[place];
            life.users += 1;
            life.since = now;
            return Found::Free(life.number, &life.what);
        }
        if self.lives.iter().any(|life| own(life) && !life.asks) {
            return Found::Wait;
        }
        let mut ended = None;
        if self.lives.len() >= most {
            let idle = self.lives.iter().enumerate();
            let idle = idle.filter(|(_, life)| life.users == 0);
            let Some((place, _)) = idle.min_by_key(|(_, life)| life.since) else {
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
        can: ClientCan,
        shares: bool,
        what: T,
        now: Instant,
    ) {
        self.lives.push(Life {
            number,
            can,
            shares,
            users: 1,
            owes: None,
            asks: false,
            since: now,
            what,
        });
    }

    fn life(&mut self, number: u64) -> Option<&mut Life<T>> {
        self.lives.iter_mut().find(|life| life.number == number)
    }

    /// Notes that a call has ended; `unanswered` is whose it was, if the server has not answered it.
    pub(super) fn leave(&mut self, number: u64, unanswered: Option<KeyId>, now: Instant) {
        if let Some(life) = self.life(number) {
            life.owes = life.owes.or(unanswered.filter(|_| !life.shares));
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

    /// Finds as a call does, and says what it found: a life, a new one, or none.
    fn find(pool: &mut Pool<u64>, can: ClientCan) -> (&'static str, u64) {
        find_for(pool, can, 1)
    }

    fn find_for(pool: &mut Pool<u64>, can: ClientCan, key: u128) -> (&'static str, u64) {
        let now = Instant::now();
        match pool.find((can, KeyId::from_random(key)), 2, now) {
            Found::Free(number, _) => ("free", number),
            Found::Room(number, ended) => {
                pool.insert(number, can, false, number, now);
                (if ended.is_some() { "instead" } else { "new" }, number)
            }
            Found::Wait => ("wait", 0),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_share_a_life_one_after_the_other_and_pass_by_one_that_waits_for_a_person() {
        let mut pool = Pool::default();
        assert_eq!(find(&mut pool, ONE), ("new", 1));
        assert_eq!(find(&mut pool, ONE), ("wait", 0));
        pool.asks(1, true);
        assert_eq!(find(&mut pool, ONE), ("new", 2));
        pool.asks(2, true);
        assert_eq!(find(&mut pool, OTHER), ("wait", 0), "both wait for people");
        pool.asks(1, false);
        assert_eq!(find(&mut pool, ONE), ("wait", 0));
        pool.leave(1, None, Instant::now());
        assert_eq!(find(&mut pool, ONE), ("free", 1));
        pool.leave(1, None, Instant::now());
        assert_eq!(find(&mut pool, OTHER), ("instead", 3));
    }

    // fault T4
    #[tokio::test(start_paused = true)]
    async fn a_life_that_owes_an_answer_serves_only_whom_it_owes() {
        let mut pool = Pool::default();
        assert_eq!(find_for(&mut pool, ONE, 1), ("new", 1));
        pool.leave(1, Some(KeyId::from_random(1)), Instant::now());
        assert_eq!(find_for(&mut pool, ONE, 2), ("new", 2));
        assert_eq!(find_for(&mut pool, ONE, 1), ("free", 1));
        pool.leave(1, None, Instant::now());
        assert_eq!(
            find_for(&mut pool, ONE, 3),
            ("wait", 0),
            "the second is busy"
        );
        pool.asks(2, true);
        assert_eq!(find_for(&mut pool, ONE, 3), ("instead", 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_life_that_nobody_uses_ends() {
        let mut pool = Pool::default();
        find(&mut pool, ONE);
        tokio::time::advance(2 * IDLE).await;
        let next = pool.look(1, Instant::now(), IDLE);
        assert_eq!(next, Some(Instant::now() + IDLE), "it is in use");
        pool.leave(1, None, Instant::now());
        tokio::time::advance(IDLE).await;
        assert_eq!(pool.look(1, Instant::now(), IDLE), None);
        assert_eq!(find(&mut pool, ONE), ("new", 2));
    }

    #[tokio::test]
    async fn where_requests_say_their_call_a_life_has_many() {
        let mut pool = Pool::default();
        let now = Instant::now();
        let Found::Room(number, None) = pool.find((ONE, KeyId::from_random(1)), 1, now) else {
            panic!("room")
        };
        pool.insert(number, ONE, true, number, now);
        pool.asks(number, true);
        assert_eq!(find(&mut pool, ONE), ("free", 1));
    }
}
