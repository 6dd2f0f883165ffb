//! The uncompressed bytes of an archive: counted, hashed, bounded in size and time, and cancellable.
//!
//! Everything that reads an archive reads it through a [`Stream`], so no reader can forget a bound.

use std::io::{self, Read};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::digest::{Digest, Hasher};
use crate::layers::{Budget, LayerError, LayerStore, Waited};

/// How many bytes are read between two looks at the free space of the disk.
const LOOK_EVERY: u64 = 1 << 20;
/// How much is read at once.
const BUFFER_BYTES: usize = 128 * 1024;

/// How much an archive may be, how long reading it may take, and who may cancel it.
#[derive(Debug)]
pub(crate) struct Bounds<'a> {
    /// The longest stream, headers and padding included.
    pub(crate) bytes: u64,
    /// The most entries, extension headers included.
    pub(crate) entries: u64,
    /// The time for all of it.
    pub(crate) time: Duration,
    /// Ends it early.
    pub(crate) stop: &'a CancellationToken,
    /// What is written of it, and where; nothing if it is only read.
    pub(crate) cost: Option<Cost<'a>>,
}

/// Who bears what an archive costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost<'a> {
    /// Whose disk must not become full.
    pub(crate) store: &'a LayerStore,
    /// What all layers of the image may be.
    pub(crate) budget: Option<&'a Budget>,
    /// What the reader has waited, which does not count as time for the archive.
    pub(crate) waited: &'a Waited,
}

/// A reader within [`Bounds`].
pub(crate) struct Stream<'a, R> {
    reader: R,
    bounds: Bounds<'a>,
    began: Instant,
    /// What the reader had waited before.
    waited_before: Duration,
    /// At how many bytes the free space is looked at again.
    next_look: u64,
    /// Nothing where nobody asks for the digest.
    hasher: Option<Hasher>,
    /// Bytes taken from the reader.
    received: u64,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<'a, R: Read> Stream<'a, R> {
    pub(crate) fn new(reader: R, bounds: Bounds<'a>, hasher: Option<Hasher>) -> Self {
        Self {
            reader,
            began: Instant::now(),
            waited_before: waited(&bounds),
            next_look: 0,
            bounds,
            hasher,
            received: 0,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// Returns the bounds that hold.
    pub(crate) fn bounds(&self) -> &Bounds<'a> {
        &self.bounds
    }

    /// Returns the bytes that were consumed so far.
    pub(crate) fn position(&self) -> u64 {
        self.received - (self.end - self.start) as u64
    }

    /// Fails if the time is over or the work was cancelled.
    pub(crate) fn check_time(&self) -> Result<(), LayerError> {
        if self.bounds.stop.is_cancelled() {
            return Err(LayerError::Cancelled);
        }
        let waited = waited(&self.bounds).saturating_sub(self.waited_before);
        let spent = self.began.elapsed().saturating_sub(waited);
        if spent >= self.bounds.time {
            return Err(LayerError::TooSlow {
                limit: self.bounds.time,
            });
        }
        Ok(())
    }

    /// Fails if so many more bytes would be too many, before any of them is read.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), LayerError> {
        match self.position().checked_add(bytes) {
            Some(all) if all <= self.bounds.bytes => Ok(()),
            _ => Err(self.too_large()),
        }
    }

    fn check_space(&mut self) -> Result<(), LayerError> {
        if let Some(cost) = self.bounds.cost
            && self.received >= self.next_look
        {
            self.next_look = self.received + LOOK_EVERY;
            cost.store.check_space()?;
        }
        Ok(())
    }

    /// Returns at least one byte of what comes next, or nothing at the end.
    pub(crate) fn fill(&mut self) -> Result<&[u8], LayerError> {
        if self.start == self.end {
            self.check_time()?;
            self.check_space()?;
            self.start = 0;
            self.end = loop {
                match self.reader.read(&mut self.buffer) {
                    Ok(count) => break count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(source) => {
                        self.end = 0;
                        // A reader fails when the work that feeds it was cancelled, too.
                        self.check_time()?;
                        return Err(LayerError::Read(source));
                    }
                }
            };
            self.received += self.end as u64;
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&self.buffer[..self.end]);
            }
            if self.received > self.bounds.bytes {
                return Err(self.too_large());
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Marks bytes that `fill` returned as read.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Fills `into`; returns fewer bytes than it holds only at the end.
    pub(crate) fn read_full(&mut self, into: &mut [u8]) -> Result<usize, LayerError> {
        let mut done = 0;
        while done < into.len() {
            let available = self.fill()?;
            if available.is_empty() {
                break;
            }
            let count = available.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&available[..count]);
            self.consume(count);
            done += count;
        }
        Ok(done)
    }

    /// Reads to the end and returns the digest, of nothing without a hasher, and the length of everything.
    pub(crate) fn finish(mut self) -> Result<(Digest, u64), LayerError> {
        loop {
            let count = self.fill()?.len();
            if count == 0 {
                return Ok((self.hasher.unwrap_or_default().finish(), self.received));
            }
            self.consume(count);
        }
    }

    fn too_large(&self) -> LayerError {
        LayerError::TooLarge {
            limit_bytes: self.bounds.bytes,
        }
    }
}

fn waited(bounds: &Bounds<'_>) -> Duration {
    let cost = bounds.cost.as_ref();
    cost.map_or(Duration::ZERO, |cost| cost.waited.so_far())
}
