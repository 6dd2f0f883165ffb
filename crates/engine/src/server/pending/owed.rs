//! Calls that a server was sent and whose callers have left: it may still speak of them, and what it
//! says then is for nobody else's ears (fault T4). Bounded in number and in time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Party;

/// How many are remembered.
const MOST: usize = 256;
/// How long a server may go on with a call that nobody waits for.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Owed(VecDeque<(u64, Party, Instant)>);

impl Owed {
    /// Remembers a call whose caller has left.
    pub(super) fn add(&mut self, id: u64, party: Party) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((id, party, Instant::now()));
    }

    /// Forgets a call that the server has answered all the same.
    pub(super) fn paid(&mut self, id: u64) {
        if !self.0.is_empty() {
            self.0.retain(|(owed, ..)| *owed != id);
        }
    }

    /// Tells whether the server may still speak of a call of somebody else's.
    pub(super) fn is_to_other_than(&self, party: Option<&Party>) -> bool {
        let is_theirs = |(_, whose, since): &(u64, Party, Instant)| {
            Some(whose) != party && since.elapsed() < LONGEST
        };
        self.0.iter().any(is_theirs)
    }
}
