//! The uncompressed bytes of an archive: counted, hashed, limited in size and time, and
//! cancellable.
//!
//! Archives are read only through a [`Stream`], so no reader can forget a limit.

use std::io::{self, Read};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::digest::{Digest, Hasher};
use crate::layers::{Budget, LayerError, LayerStore, Waited};

/// How many bytes are read between two checks of the free disk space.
const LOOK_EVERY: u64 = 1 << 20;
/// The size of the read buffer.
const BUFFER_BYTES: usize = 128 * 1024;

/// Limits for reading an archive.
#[derive(Debug)]
pub(crate) struct Bounds<'a> {
    /// The longest stream, including headers and padding.
    pub(crate) bytes: u64,
    /// The most entries, including extension headers.
    pub(crate) entries: u64,
    /// The time limit.
    pub(crate) time: Duration,
    /// Cancels reading.
    pub(crate) stop: &'a CancellationToken,
    /// Limits for writing its content; `None` if it is only read.
    pub(crate) cost: Option<Cost<'a>>,
}

/// Limits for the content that is written to the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost<'a> {
    /// The store whose disk must not fill up.
    pub(crate) store: &'a LayerStore,
    /// The size limit of all layers of the image.
    pub(crate) budget: Option<&'a Budget>,
    /// The time the reader has waited, which does not count against the time limit.
    pub(crate) waited: &'a Waited,
}

/// A reader within [`Bounds`].
pub(crate) struct Stream<'a, R> {
    reader: R,
    bounds: Bounds<'a>,
    began: Instant,
    /// The time the reader had waited before this archive.
    waited_before: Duration,
    /// The offset at which the free space is checked again.
    next_look: u64,
    /// `None` if the digest is not needed.
    hasher: Option<Hasher>,
    /// Bytes received from the reader.
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

    /// Returns the limits.
    pub(crate) fn bounds(&self) -> &Bounds<'a> {
        &self.bounds
    }

    /// Returns the bytes that were consumed so far.
    pub(crate) fn position(&self) -> u64 {
        self.received - (self.end - self.start) as u64
    }

    /// Fails after the time limit or a cancellation.
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

    /// Fails if this many more bytes would exceed the limit, before they are read.
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

    /// Returns at least one of the next bytes; empty at the end.
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
                        // If this was cancelled, the reader fails, too; report the cancellation.
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

    /// Reads to the end and returns digest and length. Without a hasher the digest is that of no
    /// bytes.
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
