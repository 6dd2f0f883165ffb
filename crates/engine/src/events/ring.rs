//! A bounded log with many readers, each at its own pace. Writers never wait; a slow reader learns
//! how many entries it missed. Entry points: [`Ring::push`], [`Ring::read`].

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Entries with increasing numbers. The oldest are dropped when it is full.
pub(crate) struct Ring<T> {
    entries: Mutex<Entries<T>>,
    capacity: usize,
    /// The number of the next entry.
    end: watch::Sender<u64>,
}

struct Entries<T> {
    /// The number of the oldest entry.
    first: u64,
    kept: VecDeque<T>,
}

/// The entries of one read.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<T> {
    /// The entries, oldest first.
    pub items: Vec<T>,
    /// How many earlier entries were already dropped.
    pub skipped: u64,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            skipped: 0,
        }
    }
}

impl<T: Clone> Ring<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: Mutex::new(Entries {
                first: 0,
                kept: VecDeque::new(),
            }),
            capacity,
            end: watch::Sender::new(0),
        }
    }

    /// Returns whether there are listeners.
    pub(crate) fn has_listeners(&self) -> bool {
        self.end.receiver_count() > 0
    }

    /// Counts entries that are not kept; a later reader has missed them, and all before them.
    pub(crate) fn pass(&self, count: u64) {
        let end = {
            let mut entries = self.entries.lock();
            entries.first += entries.kept.len() as u64 + count;
            entries.kept = VecDeque::new();
            entries.first
        };
        self.announce(end);
    }

    /// Adds entries and wakes the listeners.
    pub(crate) fn push(&self, new: impl IntoIterator<Item = T>) {
        let end = {
            let mut entries = self.entries.lock();
            for entry in new {
                if entries.kept.len() >= self.capacity {
                    entries.kept.pop_front();
                    entries.first += 1;
                }
                entries.kept.push_back(entry);
            }
            entries.first + entries.kept.len() as u64
        };
        self.announce(end);
    }

    fn announce(&self, end: u64) {
        self.end.send_if_modified(|known| {
            // Another task may have added more meanwhile.
            let grows = end > *known;
            *known = end.max(*known);
            grows
        });
    }

    /// Returns the number of the next entry.
    pub(crate) fn end(&self) -> u64 {
        *self.end.borrow()
    }

    /// Returns a receiver that is notified of every new entry.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Returns at most `most` entries from a number on, and advances the number.
    pub(crate) fn read(&self, from: &mut u64, most: usize) -> Batch<T> {
        let entries = self.entries.lock();
        let end = entries.first + entries.kept.len() as u64;
        let start = (*from).clamp(entries.first, end);
        let skipped = start.saturating_sub(*from);
        let kept = entries.kept.iter().skip((start - entries.first) as usize);
        let items: Vec<T> = kept.take(most).cloned().collect();
        *from = start + items.len() as u64;
        Batch { items, skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_listener_is_told_what_it_missed_and_nobody_waits_for_it() {
        let ring = Ring::new(3);
        let mut news = ring.subscribe();
        let mut at = ring.end();
        ring.push([1, 2]);
        news.changed().await.unwrap();
        let read = ring.read(&mut at, 1);
        assert_eq!((read.items, read.skipped, at), (vec![1], 0, 1));
        ring.push(3..=6);
        let read = ring.read(&mut at, 9);
        assert_eq!((read.items, read.skipped, at), (vec![4, 5, 6], 2, 6));
        assert_eq!(ring.read(&mut at, 9), Batch::default());
        ring.pass(4);
        let read = ring.read(&mut at, 9);
        assert_eq!((read.items, read.skipped, at), (vec![], 4, 10));
        // A number that was never given out is one of the present.
        let mut ahead = 99;
        assert_eq!(ring.read(&mut ahead, 9), Batch::default());
        assert_eq!(ahead, 10);
    }
}
