//! Writes lines to a child's stdin. A lone caller writes its line at once, which is quickest; where
//! many call, lines are left for the writer task, which waits a turn and writes for all of them.
//!
//! A child that stops reading fills the pipe. The rest is then written by `run`, the link's writer
//! task; if the pipe takes nothing for the deadline, the lines that were not begun are dropped and
//! their calls fail. Lines that fit into the pipe and lie there unread are left to the timeouts of
//! their calls.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

/// How much is gathered into one write.
const BATCH_BYTES: usize = 256 * 1024;
/// How many batches one sender writes for others before the writer task takes over.
const BATCHES_FOR_OTHERS: usize = 4;

/// The writing end of a link.
pub(crate) struct LineWriter {
    state: Mutex<WriterState>,
    /// Tells the writer task that there is something left to write.
    wake: Notify,
    /// How many bytes may wait.
    limit: usize,
}

/// Whether other callers probably have lines for the same child now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batching {
    Alone,
    Many,
}

/// Why a line was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The link is closed.
    Closed,
    /// The child has stopped reading, and its queue is full.
    NotReading,
}

struct WriterState {
    /// `None` once the link is closed: the child then reads end of file.
    pipe: Option<Arc<pipe::Sender>>,
    queue: VecDeque<Line>,
    queued_bytes: usize,
    /// What the writer task has to write before the queue; its unwritten part.
    rest: Batch,
    /// A caller is writing, or `rest` waits for the writer task.
    busy: bool,
    /// The pipe has been full for the whole deadline.
    stalled: bool,
    /// The child has closed its end.
    broken: bool,
}

struct Line {
    call: Option<u64>,
    bytes: Vec<u8>,
}

/// Lines joined for one write, and where each call's line ends.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    written: usize,
    calls: Vec<(u64, usize)>,
}

impl Batch {
    fn push(&mut self, line: Line) {
        self.bytes.extend_from_slice(&line.bytes);
        if let Some(call) = line.call {
            self.calls.push((call, self.bytes.len()));
        }
    }

    fn is_written(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Removes the lines that were not begun, and returns the calls whose line is incomplete.
    fn take_back(&mut self) -> Vec<u64> {
        let begun = self.bytes[..self.written]
            .last()
            .is_some_and(|byte| *byte != b'\n');
        let kept = match memchr::memchr(b'\n', &self.bytes[self.written..]) {
            Some(at) if begun => self.written + at + 1,
            _ => self.written,
        };
        self.bytes.truncate(kept);
        let whole = self.calls.partition_point(|(_, end)| *end <= self.written);
        self.calls
            .split_off(whole)
            .into_iter()
            .map(|(call, _)| call)
            .collect()
    }
}

impl WriterState {
    fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        while batch.bytes.len() < BATCH_BYTES {
            let Some(line) = self.queue.pop_front() else {
                break;
            };
            self.queued_bytes -= line.bytes.len();
            batch.push(line);
        }
        (!batch.bytes.is_empty()).then_some(batch)
    }
}

impl LineWriter {
    pub(crate) fn new(pipe: pipe::Sender, limit: usize) -> Self {
        Self {
            state: Mutex::new(WriterState {
                pipe: Some(Arc::new(pipe)),
                queue: VecDeque::new(),
                queued_bytes: 0,
                rest: Batch::default(),
                busy: false,
                stalled: false,
                broken: false,
            }),
            wake: Notify::new(),
            limit,
        }
    }

    /// Sends one line (with its line break), or queues it behind the one being written.
    ///
    /// `call` is the id that is given back if the line cannot be written in time.
    pub(crate) fn send(
        &self,
        call: Option<u64>,
        bytes: Vec<u8>,
        company: Batching,
    ) -> Result<(), SendError> {
        debug_assert!(memchr::memchr(b'\n', &bytes) == Some(bytes.len() - 1));
        let mut state = self.state.lock();
        let Some(pipe) = state.pipe.clone() else {
            return Err(SendError::Closed);
        };
        if state.stalled {
            return Err(SendError::NotReading);
        }
        if state.busy {
            if state.queued_bytes + bytes.len() > self.limit {
                return Err(SendError::NotReading);
            }
            state.queued_bytes += bytes.len();
            state.queue.push_back(Line { call, bytes });
            return Ok(());
        }
        state.busy = true;
        if company == Batching::Many {
            state.queued_bytes += bytes.len();
            state.queue.push_back(Line { call, bytes });
            drop(state);
            self.wake.notify_one();
            return Ok(());
        }
        drop(state);
        let mut batch = Batch {
            bytes,
            written: 0,
            calls: Vec::new(),
        };
        if let Some(call) = call {
            batch.calls.push((call, batch.bytes.len()));
        }
        self.write_for_all(&pipe, batch)
    }

    /// Writes `batch` and what has gathered meanwhile, until the pipe is full or nothing is left.
    fn write_for_all(&self, pipe: &pipe::Sender, mut batch: Batch) -> Result<(), SendError> {
        for _ in 0..BATCHES_FOR_OTHERS {
            match try_write(pipe, &mut batch) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.give_up();
                    return Err(SendError::Closed);
                }
            }
            let mut state = self.state.lock();
            match state.next_batch() {
                Some(next) => batch = next,
                None => {
                    state.busy = false;
                    return Ok(());
                }
            }
        }
        self.state.lock().rest = batch;
        self.wake.notify_one();
        Ok(())
    }

    /// Writes what senders had to leave; calls `unwritten` for each call whose line a stalled child
    /// did not take whole. Returns whether the child closed its end, and not we ours.
    pub(crate) async fn run(&self, deadline: Duration, unwritten: impl Fn(u64)) -> bool {
        while let Some(pipe) = self.pipe() {
            tokio::select! {
                biased; // What there is to write first, then whether anybody is there to read.
                () = self.wake.notified() => {}
                _closed = pipe.ready(Interest::ERROR) => {
                    self.give_up();
                    break;
                }
            }
            if self.pipe().is_none() {
                break;
            }
            self.write_rest(&pipe, deadline, &unwritten).await;
        }
        self.state.lock().broken
    }

    fn pipe(&self) -> Option<Arc<pipe::Sender>> {
        self.state.lock().pipe.clone()
    }

    /// Takes what senders left, else what is queued.
    fn begin(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        let rest = std::mem::take(&mut state.rest);
        let batch = if rest.is_written() {
            state.next_batch()
        } else {
            Some(rest)
        };
        state.busy = batch.is_some();
        batch
    }

    /// Writes what senders had to leave and what gathers meanwhile, until nothing is left.
    async fn write_rest(&self, pipe: &pipe::Sender, deadline: Duration, unwritten: &impl Fn(u64)) {
        // Lets every caller that is about to add a line do so first.
        tokio::task::yield_now().await;
        let Some(mut batch) = self.begin() else {
            return;
        };
        loop {
            if !self.await_room(pipe, deadline, &mut batch, unwritten).await {
                return self.give_up();
            }
            match try_write(pipe, &mut batch) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return self.give_up(),
            }
            let mut state = self.state.lock();
            if state.pipe.is_none() {
                return;
            }
            match state.next_batch() {
                Some(next) => batch = next,
                None => {
                    state.busy = false;
                    return;
                }
            }
        }
    }

    /// Waits until the pipe takes bytes; false if it never will.
    async fn await_room(
        &self,
        pipe: &pipe::Sender,
        deadline: Duration,
        batch: &mut Batch,
        unwritten: &impl Fn(u64),
    ) -> bool {
        match tokio::time::timeout(deadline, pipe.writable()).await {
            Ok(ready) => ready.is_ok(),
            Err(_elapsed) => {
                let unsent = {
                    let mut state = self.state.lock();
                    state.stalled = true;
                    state.queued_bytes = 0;
                    std::mem::take(&mut state.queue)
                };
                // A line that was begun is terminated; otherwise the child would take the next line
                // as its continuation.
                let unfinished = batch.take_back().into_iter();
                let unsent = unsent.iter().filter_map(|line| line.call);
                unfinished.chain(unsent).for_each(unwritten);
                let ready = pipe.writable().await.is_ok();
                self.state.lock().stalled = false;
                ready
            }
        }
    }

    /// Closes our end because the child has closed its own.
    fn give_up(&self) {
        {
            let mut state = self.state.lock();
            state.broken |= state.pipe.is_some();
        }
        self.close();
    }

    /// Closes the child's stdin; unwritten lines are lost.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.pipe = None;
        state.queue.clear();
        state.queued_bytes = 0;
        state.busy = false;
        drop(state);
        self.wake.notify_one();
    }
}

/// Writes as much as the pipe takes; true if that was all.
fn try_write(pipe: &pipe::Sender, batch: &mut Batch) -> io::Result<bool> {
    while !batch.is_written() {
        match pipe.try_write(&batch.bytes[batch.written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => batch.written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
