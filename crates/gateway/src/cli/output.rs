//! stdout and stderr, written so that nobody who does not read them holds the program up.
//!
//! A verb that prints and ends writes by itself, and remembers whether that failed. A program that
//! serves hands its lines to a thread, and log lines go there always: the queue is bounded, and what
//! does not fit is dropped and counted. Never writes on a worker of the runtime. Entry point:
//! [`Output`].

mod queue;

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::time::Instant;

use queue::Queue;
pub(super) use queue::Summary;

/// How long lines that wait may take to be written at the end.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Log lines that are kept back at most; more are dropped and counted.
const MOST_HELD: usize = 256;

/// Goes to the beginning of the line, and wipes it.
const WIPE: &str = "\r\x1b[K";

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// What a verb is asked for.
    Stdout,
    /// Errors, progress and logs.
    Stderr,
}

/// stdout and stderr of this process.
#[derive(Debug)]
pub(super) struct Output {
    stdout: Queue,
    /// The same queue as stdout's if both go to one place, so that lines keep their order there.
    stderr: Queue,
    serves: AtomicBool,
    /// Whether somebody did not read in time at the end; that is waited for once.
    is_left: AtomicBool,
    failed: Arc<Mutex<Option<io::Error>>>,
    dropped: Arc<AtomicU64>,
    /// Whether a person looks at a terminal and has not asked for logs: they read as part of the screen.
    is_tidy: AtomicBool,
    /// Log lines that wait until the screen is whole.
    held: Mutex<Option<Vec<Vec<u8>>>>,
    /// Whether a line that turns is on the screen.
    turns: AtomicBool,
}

impl Output {
    /// Takes both streams for the rest of the process's life; panics are told there, too.
    pub(super) fn install() -> &'static Self {
        let output: &'static Self = Box::leak(Box::new(Self::new()));
        std::panic::set_hook(Box::new(move |panic| output.log_panic(&told(panic))));
        output
    }

    pub(super) fn new() -> Self {
        let (dropped, failed) = (Arc::default(), Arc::default());
        let stderr = Queue::new(Arc::clone(&dropped), Arc::clone(&failed));
        let stdout = match is_one_place() {
            true => stderr.clone(),
            false => Queue::new(Arc::clone(&dropped), Arc::clone(&failed)),
        };
        Self {
            stdout,
            stderr,
            serves: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            failed,
            dropped,
            is_tidy: AtomicBool::new(false),
            held: Mutex::new(None),
            turns: AtomicBool::new(false),
        }
    }

    /// Remembers that log lines are part of what a person reads.
    pub(super) fn tidy(&self) {
        self.is_tidy.store(true, Ordering::Relaxed);
    }

    /// Keeps log lines back until [`Self::release`], so that they do not stand between the lines of a
    /// screen that is being built; only where a person reads both.
    pub(super) fn hold(&self) {
        if self.is_tidy.load(Ordering::Relaxed) {
            let mut held = self.held.lock();
            held.get_or_insert_default();
        }
    }

    /// Tells whether log lines are kept back.
    pub(super) fn is_held(&self) -> bool {
        let held = self.held.lock();
        held.is_some()
    }

    /// Writes the log lines that were kept back, and all others at once from now on.
    pub(super) fn release(&self) {
        let held = self.held.lock().take();
        for line in held.into_iter().flatten() {
            self.log(&line);
        }
    }

    /// Remembers whether a line that turns is on the screen: whatever is written next wipes it first.
    pub(super) fn set_turning(&self, turns: bool) {
        self.turns.store(turns, Ordering::Relaxed);
    }

    /// Returns what has to be written before the next line.
    fn wipe(&self) -> &'static str {
        match self.turns.load(Ordering::Relaxed) {
            true => WIPE,
            false => "",
        }
    }

    /// Has a thread write everything from here on: this process serves, and waits for no reader.
    pub(super) fn serve(&self) {
        self.serves.store(true, Ordering::Release);
    }

    /// Writes a text, or has it written; tells whether somebody still reads.
    pub(super) fn write(&self, stream: Stream, text: &str) -> bool {
        let whole;
        let text = match self.wipe() {
            "" => text,
            wipe => {
                whole = format!("{wipe}{text}");
                &whole
            }
        };
        if self.serves.load(Ordering::Acquire) {
            return self.queue(stream).push(stream, text.as_bytes());
        }
        self.write_now(stream, text.as_bytes())
    }

    /// Writes on this thread, and waits for whoever reads; tells whether somebody still does.
    pub(super) fn write_now(&self, stream: Stream, bytes: &[u8]) -> bool {
        match write_all(stream, bytes) {
            Ok(()) => true,
            Err(error) => {
                note_failure(&self.failed, stream, error);
                false
            }
        }
    }

    /// Writes something that is soon out of date: nothing if other lines wait to be written.
    pub(super) fn write_if_idle(&self, stream: Stream, text: &str) {
        if !self.serves.load(Ordering::Acquire) || self.queue(stream).is_idle() {
            self.write(stream, text);
        }
    }

    /// Has a log line written to stderr.
    pub(super) fn log(&self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        if let Some(held) = &mut *self.held.lock() {
            match held.len() < MOST_HELD {
                true => held.push(line.to_vec()),
                false => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
            }
            return;
        }
        match self.wipe() {
            "" => drop(self.stderr.push(Stream::Stderr, line)),
            wipe => drop(
                self.stderr
                    .push(Stream::Stderr, &[wipe.as_bytes(), line].concat()),
            ),
        }
    }

    /// Has the text of a panic written to stderr, and waits for that, but not for long: a panic within
    /// another, or one that cannot unwind, ends the process right after its text. A hook is not told
    /// which it is.
    fn log_panic(&self, text: &str) {
        if queue::is_writer() {
            // Nobody else writes any more.
            self.write_now(Stream::Stderr, text.as_bytes());
            return;
        }
        self.release();
        self.log(text.as_bytes());
        self.stderr.wait_written(Instant::now() + LAST_LINES);
    }

    /// Has a line written to stderr at a later time, or at the end; what it says is asked for then.
    pub(super) fn log_later(&self, at: Instant, summary: Summary) {
        self.stderr.push_later(at, summary);
    }

    /// Waits until everything is written, but not for long.
    pub(super) fn flush(&self) {
        self.release();
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        let until = Instant::now() + LAST_LINES;
        let is_written = self.stderr.flush(until) & self.stdout.flush(until);
        self.is_left.store(!is_written, Ordering::Relaxed);
    }

    /// Returns how many lines were dropped.
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Returns why stdout could not be written, if it could not; a reader that went away is no reason.
    pub(super) fn failure(&self) -> Option<io::Error> {
        let mut failed = self.failed.lock();
        failed.take()
    }

    fn queue(&self, stream: Stream) -> &Queue {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}

/// Flushes when it is dropped, also by a panic.
pub(super) struct Flushed(pub(super) &'static Output);

impl Drop for Flushed {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Tells whether stdout and stderr are one file, pipe or terminal.
fn is_one_place() -> bool {
    let place = |stream| {
        let stat = rustix::fs::fstat(descriptor(stream)).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    let stdout = place(Stream::Stdout);
    stdout.is_some() && stdout == place(Stream::Stderr)
}

fn descriptor(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Stdout => rustix::stdio::stdout(),
        Stream::Stderr => rustix::stdio::stderr(),
    }
}

/// Writes all of it, waiting for as long as it takes. Nothing is buffered, so that nothing is left to
/// be written at the end.
fn write_all(stream: Stream, mut bytes: &[u8]) -> io::Result<()> {
    let descriptor = descriptor(stream);
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process may have made the pipe that we share non-blocking.
            Err(Errno::AGAIN) => {
                let mut waiting = [PollFd::new(&descriptor, PollFlags::OUT)];
                match poll(&mut waiting, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Remembers that stdout could not be written, unless its reader has seen enough.
fn note_failure(failed: &Mutex<Option<io::Error>>, stream: Stream, error: io::Error) {
    let is_gone = error.kind() == io::ErrorKind::BrokenPipe
        // A terminal that was closed.
        || error.raw_os_error() == Some(Errno::IO.raw_os_error())
            && rustix::termios::isatty(descriptor(stream));
    if stream == Stream::Stdout && !is_gone {
        let mut failed = failed.lock();
        failed.get_or_insert(error);
    }
}

/// Returns what is told of a panic.
fn told(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let mut text = format!("thread '{}' panicked", thread.name().unwrap_or("unnamed"));
    if let Some(place) = panic.location() {
        text.push_str(&format!(" at {place}"));
    }
    let said = panic.payload_as_str().unwrap_or("a value that is no text");
    text.push_str(&format!(":\n{said}\n"));
    let trace = std::backtrace::Backtrace::capture();
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        text.push_str(&format!("{trace}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;
    use crate::config::env::Environment;

    const IS_CHILD: &str = "GANTRY_TEST_PANICS";

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("the second panic");
        }
    }

    // fault P12: the process aborts at the second panic, and all of it was told by then.
    #[test]
    fn panics_that_end_the_process_are_told_before_it_ends() {
        if Environment::of_process().filled(IS_CHILD).is_some() {
            crate::cli::hardening::apply();
            Output::install();
            let _dropped = PanicsWhenDropped;
            panic!("the first panic");
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = format!("{module}::panics_that_end_the_process_are_told_before_it_ends");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &name, "--nocapture"]);
        let ended = child.env(IS_CHILD, "1").output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(
            ended.status.signal().is_some(),
            "{:?}: {told}",
            ended.status
        );
        let panics = [
            "the first panic",
            "the second panic",
            "panic in a destructor",
        ];
        for panic in panics {
            assert!(told.contains(panic), "`{panic}` is missing: {told}");
        }
    }
}
