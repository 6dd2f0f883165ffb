//! Answers that do not say which call they are for (fault S7). Each is that of one of the calls which
//! the server had been sent by then; which one is found by elimination: as soon as no more calls
//! wait than answers were lost, it was theirs.
//!
//! Relies on a server answering each call once. Knows nothing of calls that were left before, nor of
//! requests of our own: while one of those may be meant, `pending` adds nothing here, and no call
//! ends for another's answer. One that ends without an answer explains one that was lost. Bounded in
//! number. Entry points: [`Lost::add`] and [`Lost::certain`].

/// How many are remembered; beyond that calls end by their deadlines.
const MOST: usize = 1_024;

/// For each lost answer the last turn of a call that it can be meant for, in order.
#[derive(Debug, Default)]
pub(super) struct Lost(Vec<u64>);

impl Lost {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers an answer that was lost when the server had been sent calls up to that turn.
    pub(super) fn add(&mut self, turn: u64) {
        if self.0.len() < MOST {
            self.0.push(turn);
        }
    }

    /// Notes that a call ended without an answer: one of the lost ones may have been its.
    pub(super) fn explained(&mut self, turn: u64) {
        if let Some(place) = self.0.iter().position(|last| *last >= turn && turn > 0) {
            self.0.remove(place);
        }
    }

    /// Returns how many of the calls that wait, by their turns in order, have certainly lost their
    /// answers: so many from the front. Forgets what is settled by that.
    pub(super) fn certain(&mut self, waiting: &[u64]) -> usize {
        let meant = |last: u64| waiting.partition_point(|turn| *turn <= last);
        let places = self.0.iter().enumerate().rev();
        let mut settled = places.filter(|(place, last)| meant(**last) <= place + 1);
        let Some((place, count)) = settled.next().map(|(place, last)| (place, meant(*last))) else {
            return 0;
        };
        self.0.drain(..=place);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault S7
    #[test]
    fn a_call_has_lost_its_answer_when_no_other_can_be_meant() {
        let mut lost = Lost::default();
        lost.add(3);
        assert_eq!(lost.certain(&[1, 2, 3]), 0, "any of the three");
        assert_eq!(lost.certain(&[1, 3]), 0);
        // What was sent later cannot be meant.
        assert_eq!(lost.certain(&[3, 4, 5]), 1);
        assert!(lost.is_empty());
        assert_eq!(lost.certain(&[4, 5]), 0);
    }

    // fault S7
    #[test]
    fn as_many_lost_answers_as_calls_are_theirs() {
        let mut lost = Lost::default();
        lost.add(3);
        lost.add(3);
        lost.add(4);
        assert_eq!(lost.certain(&[1, 2, 3, 4]), 0);
        assert_eq!(
            lost.certain(&[1, 3, 4]),
            3,
            "the fourth by the third answer"
        );
        let mut lost = Lost::default();
        lost.add(2);
        lost.add(5);
        // The first two answers leave one of three open.
        assert_eq!(lost.certain(&[2, 4, 5]), 1);
        assert_eq!(lost.certain(&[4, 5]), 0);
        assert_eq!(lost.certain(&[5]), 1);
    }

    // fault S7
    #[test]
    fn a_call_that_left_may_be_the_one_that_was_meant() {
        let mut lost = Lost::default();
        lost.add(2);
        lost.add(4);
        lost.explained(0);
        lost.explained(5);
        assert_eq!(lost.0, [2, 4]);
        lost.explained(3);
        assert_eq!(lost.0, [2]);
        lost.explained(1);
        assert!(lost.is_empty());
    }
}
