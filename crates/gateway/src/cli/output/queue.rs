//! A bounded queue of lines, and the thread that writes them.
//!
//! Pushing never waits. Lines that do not fit are dropped and reported as a count. Order is kept.
//! The thread starts with the first line and may block forever, so nothing waits for it for long.
//! Entry point: [`Queue::push`].

use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::time::Instant;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use super::{Stream, note_failure, write_all};

/// The capacity of the queue.
const MOST_BYTES: usize = 1 << 20;
/// After dropping, new lines are accepted only below this fill level: one gap, not one per line.
const ROOM_AGAIN: usize = MOST_BYTES / 2;
/// The cost of a line beyond its text.
const EACH: usize = 64;
/// The name of the thread.
const WRITER: &str = "output";
/// Lines that are due later.
const MOST_LATER: usize = 256;

/// Computes a line when it is due; nothing if there is nothing to report.
pub(in crate::cli) type Summary = Box<dyn FnOnce() -> Option<String> + Send>;

/// A queue of lines; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    backlog: Mutex<Backlog>,
    /// Wakes the thread.
    work: Condvar,
    /// Signals that the queue is empty.
    idle: Condvar,
    /// The total of dropped lines, in all queues.
    dropped: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

#[derive(Debug, Default)]
struct Backlog {
    lines: VecDeque<Entry>,
    bytes: usize,
    /// Dropped, and not yet reported.
    dropped: u64,
    /// Whether lines are dropped until there is room.
    is_full: bool,
    /// Whether a gap notice is queued.
    has_gap: bool,
    is_writing: bool,
    is_started: bool,
    later: Vec<(Instant, Summarized)>,
}

struct Summarized(Summary);

impl Debug for Summarized {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Summarized")
    }
}

#[derive(Debug)]
enum Entry {
    Line(Stream, Box<[u8]>),
    /// Lines were dropped here.
    Gap,
}

impl Backlog {
    /// Queues a line, or drops it; returns which.
    fn push(&mut self, stream: Stream, line: &[u8]) -> bool {
        let cost = line.len() + EACH;
        let limit = if self.is_full { ROOM_AGAIN } else { MOST_BYTES };
        self.is_full = self.bytes + cost > limit;
        if self.is_full {
            if !self.has_gap {
                self.has_gap = true;
                self.lines.push_back(Entry::Gap);
            }
            self.dropped += 1;
            return false;
        }
        self.bytes += cost;
        self.lines.push_back(Entry::Line(stream, line.into()));
        true
    }

    /// Returns the next line, and how many dropped lines it reports.
    fn next(&mut self) -> Option<(Stream, Box<[u8]>, u64)> {
        match self.lines.pop_front()? {
            Entry::Line(stream, line) => {
                self.bytes -= line.len() + EACH;
                Some((stream, line, 0))
            }
            Entry::Gap => {
                self.has_gap = false;
                let count = std::mem::take(&mut self.dropped);
                Some((Stream::Stderr, gap(count).into_bytes().into(), count))
            }
        }
    }

    /// Records the result of a line that reported `count` dropped ones.
    fn wrote(&mut self, done: bool, count: u64) {
        match done {
            false => self.dropped += count.max(1),
            // Dropped lines are reported as soon as writing works again.
            true if self.dropped > 0 && !self.has_gap => {
                self.has_gap = true;
                self.lines.push_front(Entry::Gap);
            }
            true => {}
        }
    }
}

impl Queue {
    pub(super) fn new(dropped: Arc<AtomicU64>, failed: Arc<Mutex<Option<io::Error>>>) -> Self {
        Self(Arc::new(Shared {
            backlog: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            dropped,
            failed,
        }))
    }

    /// Queues a line; returns whether there was room.
    pub(super) fn push(&self, stream: Stream, line: &[u8]) -> bool {
        let mut backlog = self.0.lock();
        let is_taken = backlog.push(stream, line);
        self.started(backlog);
        if !is_taken {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Queues a line to be computed at a later time, or at the end.
    pub(super) fn push_later(&self, at: Instant, summary: Summary) {
        let mut backlog = self.0.lock();
        if backlog.later.len() < MOST_LATER {
            backlog.later.push((at, Summarized(summary)));
            self.started(backlog);
        }
    }

    /// Returns whether the queue is empty.
    pub(super) fn is_idle(&self) -> bool {
        let backlog = self.0.lock();
        backlog.lines.is_empty() && !backlog.is_writing
    }

    /// Waits until everything is written, up to a deadline; returns whether it is.
    pub(super) fn flush(&self, until: Instant) -> bool {
        self.0.add_due(None);
        self.0.work.notify_one();
        self.wait_written(until)
    }

    /// Waits until everything due is written, up to a deadline; returns whether it is.
    pub(super) fn wait_written(&self, until: Instant) -> bool {
        let mut backlog = self.0.lock();
        let within = until.saturating_duration_since(Instant::now());
        let is_busy = |backlog: &mut Backlog| !backlog.lines.is_empty() || backlog.is_writing;
        let idle = &self.0.idle;
        !idle
            .wait_while_for(&mut backlog, is_busy, within)
            .timed_out()
    }

    fn started(&self, mut backlog: MutexGuard<'_, Backlog>) {
        if !backlog.is_started {
            let shared = Arc::clone(&self.0);
            let thread = thread::Builder::new().name(WRITER.to_owned());
            // Without a thread lines wait, and are dropped when the queue is full.
            backlog.is_started = thread.spawn(move || shared.run()).is_ok();
        }
        drop(backlog);
        self.0.work.notify_one();
    }
}

/// Returns whether this is the writer thread.
pub(super) fn is_writer() -> bool {
    thread::current().name() == Some(WRITER)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock()
    }

    /// Computes the lines that are due, or all of them, without the lock: computing may log.
    fn add_due(&self, now: Option<Instant>) {
        let is_due = |at: Instant| now.is_none_or(|now| at <= now);
        let due: Vec<_> = {
            let mut backlog = self.lock();
            let due = backlog.later.extract_if(.., |(at, _)| is_due(*at));
            due.collect()
        };
        for (_, Summarized(summary)) in due {
            if let Some(line) = summary()
                && !self.lock().push(Stream::Stderr, line.as_bytes())
            {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Writes lines forever.
    fn run(&self) {
        loop {
            self.add_due(Some(Instant::now()));
            let mut backlog = self.lock();
            let Some((stream, line, count)) = backlog.next() else {
                self.idle.notify_all();
                self.wait(backlog);
                continue;
            };
            backlog.is_writing = true;
            drop(backlog);
            let written = write_all(stream, &line);
            let mut backlog = self.lock();
            backlog.is_writing = false;
            backlog.wrote(written.is_ok(), count);
            if let Err(error) = written {
                if count == 0 {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
                note_failure(&self.failed, stream, error);
            }
        }
    }

    /// Waits for a line, or until one is due.
    fn wait(&self, mut backlog: MutexGuard<'_, Backlog>) {
        match backlog.later.iter().map(|(at, _)| *at).min() {
            None => self.work.wait(&mut backlog),
            Some(next) => {
                let within = next.saturating_duration_since(Instant::now());
                self.work.wait_for(&mut backlog, within);
            }
        }
    }
}

/// Formats the notice about dropped lines.
fn gap(count: u64) -> String {
    let lines = if count == 1 { "line" } else { "lines" };
    let mut text = String::new();
    // If the time cannot be formatted, it is left out.
    SystemTime
        .format_time(&mut Writer::new(&mut text))
        .unwrap_or_default();
    format!(
        "{text}  WARN gantry::output: {count} log {lines} dropped: they were not read in time\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(backlog: &mut Backlog) -> Vec<(String, u64)> {
        let next = std::iter::from_fn(|| backlog.next());
        let lines = next.map(|(_, line, count)| {
            let text = String::from_utf8_lossy(&line).into_owned();
            (if count > 0 { String::new() } else { text }, count)
        });
        lines.collect()
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_told_where_it_is_missing() {
        let mut backlog = Backlog::default();
        let long = vec![b'x'; MOST_BYTES / 2];
        assert!(backlog.push(Stream::Stderr, b"first"));
        assert!(backlog.push(Stream::Stderr, &long));
        assert!(!backlog.push(Stream::Stderr, &long));
        // No line is accepted before half of the queue is free.
        assert!(!backlog.push(Stream::Stderr, b"short"));
        assert_eq!(backlog.next().unwrap().1.as_ref(), b"first");
        assert!(!backlog.push(Stream::Stderr, b"short"));
        assert_eq!(backlog.next().unwrap().1.len(), long.len());
        assert!(backlog.push(Stream::Stderr, b"last"));
        let told = [(String::new(), 3), ("last".to_owned(), 0)];
        assert_eq!(texts(&mut backlog), told);
        assert_eq!(backlog.bytes, 0);
    }

    #[test]
    fn what_could_not_be_written_is_told_once_something_can() {
        let mut backlog = Backlog::default();
        for (done, told) in [(false, None), (false, None), (true, Some(2))] {
            backlog.push(Stream::Stderr, b"line");
            backlog.next();
            backlog.wrote(done, 0);
            let gap = backlog.next().map(|(_, _, count)| count);
            assert_eq!(gap, told);
        }
        // The line with the count is lost as well; there is no retry.
        backlog.wrote(false, 2);
        assert!(backlog.next().is_none());
        assert_eq!(backlog.dropped, 2);
    }

    #[test]
    fn gaps_are_counted_in_words() {
        assert!(gap(1).contains("1 log line dropped"), "{}", gap(1));
        assert!(gap(12).contains("12 log lines dropped"), "{}", gap(12));
    }
}
