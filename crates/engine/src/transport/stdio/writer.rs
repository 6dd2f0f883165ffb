//! Writes lines to a child's stdin. A lone caller writes its line at once, which is quickest; where
//! many call, lines are left for the writer task, which waits a turn and writes for all of them.
//!
//! A child that stops reading fills the pipe. What then remains is written by `run`, the link's
//! writer task; if nothing moves for the deadline, the lines that were not begun are taken back,
//! and those that lie unread in the pipe are told.

mod unread;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::unread::Unread;

/// How much is gathered into one write.
const BATCH_BYTES: usize = 256 * 1024;
/// How many batches one sender writes for others before the writer task takes over.
const BATCHES_FOR_OTHERS: usize = 4;

/// The writing end of a link.
pub(crate) struct LineWriter {
    state: Mutex<WriterState>,
    /// Tells the writer task that there is something left to write.
    wake: Notify,
    /// Tells the writer task that there are lines in the pipe to watch.
    watch: Notify,
    /// How many bytes may wait.
    limit: usize,
}

/// Whether others are likely to have a line for the same child right now.
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
    /// The child has not read for so long that no more is queued for it.
    NotReading,
}

/// Calls whose line the child has not read within the deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnreadCalls {
    /// It was never written.
    TakenBack(u64),
    /// These are all that lie in the pipe; the child may come to read them.
    Unread(Vec<u64>),
}

/// What is made of calls that were not heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadVerdict {
    /// They have failed, and so does what would follow them.
    GivenUp,
    /// The child works on what it has read; nothing is wrong yet.
    Busy,
}

struct WriterState {
    /// `None` once the link is closed: the child then reads end of file.
    pipe: Option<Arc<pipe::Sender>>,
    queue: VecDeque<Line>,
    queued_bytes: usize,
    /// What the writer task has to write before the queue; its unwritten part.
    rest: Batch,
    /// Somebody is writing, or `rest` waits for the writer task.
    busy: bool,
    /// The child has left what it was sent unread for the whole deadline.
    stalled: bool,
    /// What lies in the pipe.
    unread: Unread,
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

    /// Takes out the lines that were not begun, and returns the calls whose line is not whole.
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
                unread: Unread::default(),
                broken: false,
            }),
            wake: Notify::new(),
            watch: Notify::new(),
            limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock()
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
        let mut state = self.lock();
        let Some(pipe) = state.pipe.clone() else {
            return Err(SendError::Closed);
        };
        // While there is room in the pipe, a notification may wait there for a child that reads again.
        if state.stalled && (state.busy || call.is_some()) {
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
            let mut state = self.lock();
            self.written(&mut state, &batch);
            match state.next_batch() {
                Some(next) => batch = next,
                None => {
                    state.busy = false;
                    return Ok(());
                }
            }
        }
        self.lock().rest = batch;
        self.wake.notify_one();
        Ok(())
    }

    /// Notes a batch that is in the pipe; the first after a while is to be watched.
    fn written(&self, state: &mut WriterState, batch: &Batch) {
        if state.unread.written(batch.bytes.len(), &batch.calls) {
            self.watch.notify_one();
        }
    }

    /// Writes what senders had to leave; `unheard` hears of the calls that a stalled child never
    /// got, or has not read. Returns whether the child closed its end, and not we ours.
    pub(crate) async fn run(
        &self,
        deadline: Duration,
        unheard: impl Fn(UnreadCalls) -> UnreadVerdict,
    ) -> bool {
        while let Some(pipe) = self.pipe() {
            let look = self.lock().unread.next_look(deadline);
            tokio::select! {
                biased; // What there is to write, whether anybody is there to read, what lies unread.
                () = self.wake.notified() => {}
                _closed = pipe.ready(Interest::ERROR) => {
                    self.give_up();
                    break;
                }
                () = self.watch.notified(), if look.is_none() => continue,
                () = at(look), if look.is_some() => {
                    self.look(&pipe, deadline, &unheard);
                    continue;
                }
            }
            if self.pipe().is_none() {
                break;
            }
            self.write_rest(&pipe, deadline, &unheard).await;
        }
        self.lock().broken
    }

    /// Looks whether the child reads what it was sent; calls that it leaves unread are told.
    fn look(
        &self,
        pipe: &pipe::Sender,
        deadline: Duration,
        unheard: &impl Fn(UnreadCalls) -> UnreadVerdict,
    ) {
        let unread = {
            let mut state = self.lock();
            if state.busy {
                // What is half in the pipe has a deadline of its own.
                state.unread.put_off();
                return;
            }
            let unread = state.unread.look(bytes_in(pipe), deadline);
            if unread.is_empty() {
                state.stalled = state.unread.is_stalled();
                return;
            }
            unread
        };
        let verdict = unheard(UnreadCalls::Unread(unread));
        let mut state = self.lock();
        if verdict == UnreadVerdict::Busy {
            state.unread.spare();
        }
        state.stalled = state.unread.is_stalled();
    }

    fn pipe(&self) -> Option<Arc<pipe::Sender>> {
        self.lock().pipe.clone()
    }

    /// Takes what a sender had to leave, else what is queued.
    fn begin(&self) -> Option<Batch> {
        let mut state = self.lock();
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
    async fn write_rest(
        &self,
        pipe: &pipe::Sender,
        deadline: Duration,
        unheard: &impl Fn(UnreadCalls) -> UnreadVerdict,
    ) {
        // One turn for everybody who is about to add a line.
        tokio::task::yield_now().await;
        let Some(mut batch) = self.begin() else {
            return;
        };
        loop {
            if !self.await_room(pipe, deadline, &mut batch, unheard).await {
                return self.give_up();
            }
            match try_write(pipe, &mut batch) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return self.give_up(),
            }
            let mut state = self.lock();
            if state.pipe.is_none() {
                return;
            }
            self.written(&mut state, &batch);
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
        unheard: &impl Fn(UnreadCalls) -> UnreadVerdict,
    ) -> bool {
        match tokio::time::timeout(deadline, pipe.writable()).await {
            Ok(ready) => ready.is_ok(),
            Err(_elapsed) => {
                let (unsent, unread) = {
                    let mut state = self.lock();
                    state.stalled = true;
                    state.queued_bytes = 0;
                    let in_pipe = bytes_in(pipe);
                    let mut unread = state.unread.unread(in_pipe.saturating_sub(batch.written));
                    let whole = batch.calls.iter().filter(|(_, end)| *end <= batch.written);
                    let here = whole.filter(|(_, end)| *end + in_pipe > batch.written);
                    unread.extend(here.map(|(call, _)| *call));
                    (std::mem::take(&mut state.queue), unread)
                };
                // What was begun is ended, or the child would take the next line for its rest.
                let unfinished = batch.take_back().into_iter();
                for call in unfinished.chain(unsent.iter().filter_map(|line| line.call)) {
                    unheard(UnreadCalls::TakenBack(call));
                }
                unheard(UnreadCalls::Unread(unread));
                let ready = pipe.writable().await.is_ok();
                self.lock().stalled = false;
                ready
            }
        }
    }

    /// Closes our end because the child has closed its own.
    fn give_up(&self) {
        {
            let mut state = self.lock();
            state.broken |= state.pipe.is_some();
        }
        self.close();
    }

    /// Closes the child's stdin; whatever was not written is gone.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.pipe = None;
        state.queue.clear();
        state.queued_bytes = 0;
        state.busy = false;
        drop(state);
        self.wake.notify_one();
    }
}

/// Returns how many bytes the child has not read.
fn bytes_in(pipe: &pipe::Sender) -> usize {
    let bytes = rustix::io::ioctl_fionread(pipe).unwrap_or_default();
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Waits until then, if there is a then.
async fn at(time: Option<Instant>) {
    if let Some(time) = time {
        tokio::time::sleep_until(time).await;
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
