//! The queue of spans to send, bounded in number and bytes. When it is full the oldest span is
//! dropped and counted, since recent ones are more useful.

use std::collections::{HashSet, VecDeque};

use gantry_model::id::CallId;
use gantry_store::{CallRow, CallStatus};

/// The maximum number of queued spans.
const MOST_SPANS: usize = 16 << 10;
/// The maximum total size of queued spans.
const MOST_BYTES: usize = 32 << 20;
/// How many spans are sent at once.
const BATCH_SPANS: usize = 512;
/// How many bytes are sent at once, unless one span is longer.
const BATCH_BYTES: usize = 1 << 20;
/// How many refused calls are remembered.
const MOST_KNOWN: usize = 4096;

/// Encoded spans that are sent together.
pub(super) type Batch = Vec<Vec<u8>>;

/// The spans that wait.
#[derive(Default)]
pub(super) struct SpanQueue {
    spans: VecDeque<Vec<u8>>,
    bytes: usize,
    /// How many were dropped because the queue was full.
    pub(super) dropped: u64,
    /// Refused calls that already have a span: their row is stored again whenever repetitions are
    /// counted.
    known: HashSet<CallId>,
    known_order: VecDeque<CallId>,
}

impl SpanQueue {
    /// Returns whether the call of a row already has a span; remembers it otherwise.
    pub(super) fn is_known(&mut self, row: &CallRow<&str>) -> bool {
        if row.status != CallStatus::Refused {
            return false;
        }
        if !self.known.insert(row.id) {
            return true;
        }
        self.known_order.push_back(row.id);
        if self.known_order.len() > MOST_KNOWN
            && let Some(oldest) = self.known_order.pop_front()
        {
            self.known.remove(&oldest);
        }
        false
    }

    /// Adds a span.
    pub(super) fn push(&mut self, span: Vec<u8>) {
        self.bytes += span.len();
        self.spans.push_back(span);
        while self.spans.len() > MOST_SPANS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.spans.pop_front() else {
                return;
            };
            self.bytes -= oldest.len();
            self.dropped += 1;
        }
    }

    /// Returns unsent spans to the queue, if there is room.
    pub(super) fn put_back(&mut self, batch: Batch) {
        for span in batch.into_iter().rev() {
            if self.spans.len() == MOST_SPANS || self.bytes + span.len() > MOST_BYTES {
                self.dropped += 1;
                continue;
            }
            self.bytes += span.len();
            self.spans.push_front(span);
        }
    }

    /// Takes the next spans to send.
    pub(super) fn batch(&mut self) -> Option<Batch> {
        let mut batch = Batch::new();
        let mut bytes = 0;
        while let Some(span) = self.spans.front() {
            bytes += span.len();
            if !batch.is_empty() && (batch.len() == BATCH_SPANS || bytes > BATCH_BYTES) {
                break;
            }
            self.bytes -= span.len();
            batch.extend(self.spans.pop_front());
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Returns whether there is enough for a batch.
    pub(super) fn fills_batch(&self) -> bool {
        self.spans.len() >= BATCH_SPANS || self.bytes >= BATCH_BYTES
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_dropped_when_it_is_full() {
        let mut queue = SpanQueue::default();
        for number in 0..MOST_SPANS + 3 {
            queue.push(number.to_be_bytes().to_vec());
        }
        assert_eq!((queue.len(), queue.dropped), (MOST_SPANS, 3));
        let first = queue.batch().unwrap();
        assert_eq!(first.len(), BATCH_SPANS);
        assert_eq!(first[0], 3_usize.to_be_bytes());
        queue.push(Vec::new());
        queue.put_back(first);
        assert_eq!((queue.len(), queue.dropped), (MOST_SPANS, 4));
        let mut large = SpanQueue::default();
        for _ in 0..40 {
            large.push(vec![0; 1 << 20]);
        }
        assert_eq!((large.len(), large.dropped), (32, 8));
        assert!(large.fills_batch());
        assert_eq!(large.batch().unwrap().len(), 1);
    }
}
