//! stdout and stderr, written so that a slow or stuck reader never blocks the program.
//!
//! A verb that prints and exits writes directly and remembers a failure. A serving process passes
//! its lines to a thread, as log lines always are: the queue is bounded, and what does not fit is
//! dropped and counted. Never writes on a runtime worker. Entry point: [`Output`].

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

/// How long pending lines may take to be written at the end.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Maximum number of held-back log lines; more are dropped and counted.
const MOST_HELD: usize = 256;

/// Returns to the start of the line, and clears it.
const WIPE: &str = "\r\x1b[K";

/// The destination of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// The result of a verb.
    Stdout,
    /// Errors, progress and logs.
    Stderr,
}

/// stdout and stderr of this process.
#[derive(Debug)]
pub(super) struct Output {
    stdout: Queue,
    /// The same queue as stdout's if both are the same file, so that lines keep their order.
    stderr: Queue,
    serves: AtomicBool,
    /// Whether a reader timed out at the end; that is waited for once.
    is_left: AtomicBool,
    failed: Arc<Mutex<Option<io::Error>>>,
    dropped: Arc<AtomicU64>,
    /// Whether log lines are part of the screen: on a terminal, without a log filter.
    is_tidy: AtomicBool,
    /// Log lines held back until the screen is complete.
    held: Mutex<Option<Vec<Vec<u8>>>>,
    /// Whether a spinner is on the screen.
    turns: AtomicBool,
}

impl Output {
    /// Takes over both streams for the rest of the process; panics are written there too.
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

    /// Makes log lines part of the screen.
    pub(super) fn tidy(&self) {
        self.is_tidy.store(true, Ordering::Relaxed);
    }

    /// Holds log lines back until [`Self::release`], so that they do not appear between the rows of
    /// the start screen; only on a terminal.
    pub(super) fn hold(&self) {
        if self.is_tidy.load(Ordering::Relaxed) {
            let mut held = self.held.lock();
            held.get_or_insert_default();
        }
    }

    /// Returns whether log lines are held back.
    pub(super) fn is_held(&self) -> bool {
        let held = self.held.lock();
        held.is_some()
    }

    /// Writes the held-back log lines, and further ones directly.
    pub(super) fn release(&self) {
        let held = self.held.lock().take();
        for line in held.into_iter().flatten() {
            self.log(&line);
        }
    }

    /// Records whether a spinner is on the screen: the next write clears it first.
    pub(super) fn set_turning(&self, turns: bool) {
        self.turns.store(turns, Ordering::Relaxed);
    }

    /// Returns what must be written before the next line.
    fn wipe(&self) -> &'static str {
        match self.turns.load(Ordering::Relaxed) {
            true => WIPE,
            false => "",
        }
    }

    /// Writes everything on a thread from here on: this process serves, and waits for no reader.
    pub(super) fn serve(&self) {
        self.serves.store(true, Ordering::Release);
    }

    /// Writes a text, or queues it; returns whether the reader is still connected.
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

    /// Writes on this thread, and waits for the reader; returns whether it is still connected.
    pub(super) fn write_now(&self, stream: Stream, bytes: &[u8]) -> bool {
        match write_all(stream, bytes) {
            Ok(()) => true,
            Err(error) => {
                note_failure(&self.failed, stream, error);
                false
            }
        }
    }

    /// Writes a transient text, unless other lines are queued.
    pub(super) fn write_if_idle(&self, stream: Stream, text: &str) {
        if !self.serves.load(Ordering::Acquire) || self.queue(stream).is_idle() {
            self.write(stream, text);
        }
    }

    /// Queues a log line for stderr.
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

    /// Writes a panic message to stderr and waits briefly: a nested panic, or one that cannot
    /// unwind, aborts right after. A hook cannot tell which it is.
    fn log_panic(&self, text: &str) {
        if queue::is_writer() {
            // No other thread writes any more.
            self.write_now(Stream::Stderr, text.as_bytes());
            return;
        }
        self.release();
        self.log(text.as_bytes());
        self.stderr.wait_written(Instant::now() + LAST_LINES);
    }

    /// Queues a line for a later time or the end; its text is computed then.
    pub(super) fn log_later(&self, at: Instant, summary: Summary) {
        self.stderr.push_later(at, summary);
    }

    /// Waits until everything is written, up to a deadline.
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

    /// Returns why stdout could not be written; a closed reader is not an error.
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

/// Flushes on drop, also during a panic.
pub(super) struct Flushed(pub(super) &'static Output);

impl Drop for Flushed {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Returns whether stdout and stderr are the same file, pipe or terminal.
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

/// Writes everything, without a deadline or a buffer.
fn write_all(stream: Stream, mut bytes: &[u8]) -> io::Result<()> {
    let descriptor = descriptor(stream);
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process may have made our shared pipe non-blocking.
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

/// Records that stdout could not be written, unless its reader closed it.
fn note_failure(failed: &Mutex<Option<io::Error>>, stream: Stream, error: io::Error) {
    let is_gone = error.kind() == io::ErrorKind::BrokenPipe
        // The terminal was closed.
        || error.raw_os_error() == Some(Errno::IO.raw_os_error())
            && rustix::termios::isatty(descriptor(stream));
    if stream == Stream::Stdout && !is_gone {
        let mut failed = failed.lock();
        failed.get_or_insert(error);
    }
}

/// Formats a panic.
fn told(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let mut text = format!("thread '{}' panicked", thread.name().unwrap_or("unnamed"));
    if let Some(place) = panic.location() {
        text.push_str(&format!(" at {place}"));
    }
    let said = panic
        .payload_as_str()
        .unwrap_or("a value that is not a text");
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
