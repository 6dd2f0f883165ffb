//! Paces the reading of a server's messages: other tasks get a turn now and then, and a server that
//! floods waits, so that a flood costs its own server and no other. fault S14
//!
//! The same for every transport; the link decides what a flood is. Entry point: [`Pace::took`].

use std::time::Duration;

/// Messages that are read before other tasks get a turn.
const PER_TURN: usize = 128;

/// The pace of one reader.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Messages handed over, however many reads they came in.
    taken: usize,
}

impl Pace {
    /// Counts a message; waits if it is time for that, by `rest` if the server has to.
    pub(crate) async fn took(&mut self, rest: impl FnOnce() -> Option<Duration>) {
        self.taken = self.taken.wrapping_add(1);
        if !self.taken.is_multiple_of(PER_TURN) {
            return;
        }
        match rest() {
            Some(rest) => tokio::time::sleep(rest).await,
            None => tokio::task::yield_now().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_to_wait_does_so_once_a_turn() {
        // fault S14
        let mut pace = Pace::default();
        let begun = Instant::now();
        let rest = || Some(Duration::from_millis(50));
        for _ in 0..PER_TURN - 1 {
            pace.took(rest).await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..9 * PER_TURN + 1 {
            pace.took(rest).await;
        }
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
        for _ in 0..10 * PER_TURN {
            pace.took(|| None).await;
        }
        assert_eq!(
            begun.elapsed(),
            Duration::from_millis(500),
            "who need not wait does not"
        );
    }
}
