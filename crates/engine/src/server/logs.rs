//! The log of a server: its stderr, and the lines on its stdout that are not messages. Kept in a
//! bounded ring, with secrets redacted and control characters escaped, for `gantry logs` and crash
//! reports.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::Guard;
use gantry_model::naming::is_invisible;
use gantry_model::secret::Redactor;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::unix_ms;
use crate::events::Batch;
use crate::known_secrets::KnownSecrets;

const RING_BYTES: usize = 64 * 1024;
const LINE_BYTES: usize = 2 * 1024;
/// How many bytes are kept of a line on stdout that is not a message.
const STRAY_BYTES: usize = 400;
/// How many bytes are read beyond a cut, to find a secret that spans it.
const OVERLAP: usize = 2 * 1024;
const TAIL_LINES: usize = 20;
/// How many bytes of the exception at the end of a traceback are shown.
const EXCEPTION_BYTES: usize = 300;
/// What gVisor writes before the reason why it cannot start a program.
const GVISOR: &str = "running container: ";
const GVISOR_START: &str = "starting sandbox: ";

/// The source of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// The server's stderr.
    Stderr,
    /// A line on its stdout that is not a message.
    Stdout,
    /// A log message of the protocol.
    Message,
    /// Gantry's own messages about the server.
    Gantry,
}

/// One line of a server's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Its number, which only increases, even when the server is replaced by another of the same
    /// name. `None` for an unfinished line.
    pub number: Option<u64>,
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The source.
    pub stream: LogStream,
    /// The text, with control characters escaped.
    pub text: String,
    /// The start of the server that wrote it, counted from 1.
    pub attempt: u64,
}

/// The last 64 KiB of a server's log.
pub(crate) struct Logs {
    ring: Mutex<Ring>,
    known: Arc<KnownSecrets>,
    /// The number of the next line.
    end: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    /// The number of the next line.
    end: u64,
    /// The number of the very first line.
    begun: u64,
    bytes: usize,
    /// The unfinished last line of stderr, escaped.
    partial: String,
    /// How many of the lines belong to earlier instances.
    earlier: usize,
    /// The number of the current start.
    attempt: u64,
}

impl Logs {
    pub(crate) fn new(known: Arc<KnownSecrets>) -> Self {
        // Numbers start at the time, so that they are higher than those of a replaced server.
        let end = unix_ms();
        Self {
            ring: Mutex::new(Ring {
                end,
                begun: end,
                ..Ring::default()
            }),
            known,
            end: watch::Sender::new(end),
        }
    }

    /// Returns a receiver that is notified of every new line, and holds the number of the next.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Returns at most `most` lines from a number on, and advances the number.
    pub(crate) fn read(&self, from: &mut u64, most: usize) -> Batch<LogLine> {
        let state = self.ring.lock();
        let first = state.end - state.lines.len() as u64;
        let start = (*from).clamp(first, state.end);
        // Earlier numbers belong to a replaced server.
        let skipped = start.saturating_sub(*from).min(start - state.begun);
        let lines = state.lines.iter().skip((start - first) as usize);
        let items: Vec<LogLine> = lines.take(most).cloned().collect();
        *from = start + items.len() as u64;
        Batch { items, skipped }
    }

    /// Notifies the readers that follow the log.
    fn announce(&self, end: u64) {
        self.end.send_if_modified(|known| {
            let grows = end > *known;
            *known = end.max(*known);
            grows
        });
    }

    /// Returns the redactor of the server's secrets.
    pub(crate) fn redactor(&self) -> Guard<Arc<Redactor>> {
        self.known.redactor()
    }

    /// Returns the known secrets of the server.
    pub(crate) fn known(&self) -> Arc<KnownSecrets> {
        Arc::clone(&self.known)
    }

    /// Marks the start of a new instance, with its number.
    pub(crate) fn begin_instance(&self, attempt: u64) {
        let mut state = self.ring.lock();
        state.end_line(&self.redactor());
        state.attempt = attempt;
        state.earlier = state.lines.len();
        let end = state.end;
        drop(state);
        self.announce(end);
    }

    /// Adds bytes of stderr; a line that is too long is cut.
    pub(crate) fn stderr(&self, bytes: &[u8]) {
        let (mut state, redactor) = (self.ring.lock(), self.redactor());
        for chunk in bytes.split_inclusive(|byte| *byte == b'\n') {
            let content = chunk.strip_suffix(b"\n");
            escape_into(&mut state.partial, content.unwrap_or(chunk));
            state.cut(&redactor);
            if content.is_some() {
                state.end_line(&redactor);
            }
        }
        let end = state.end;
        drop(state);
        self.announce(end);
    }

    /// Adds one complete line.
    pub(crate) fn line(&self, stream: LogStream, bytes: &[u8]) {
        self.take(stream, bytes, LINE_BYTES);
    }

    /// Adds the beginning of a line on stdout that is not a message.
    pub(crate) fn stray(&self, bytes: &[u8]) {
        self.take(LogStream::Stdout, bytes, STRAY_BYTES);
    }

    fn take(&self, stream: LogStream, bytes: &[u8], most: usize) {
        let redactor = self.redactor();
        let overlap = overlap(&redactor);
        let window = bytes.len().min(most + overlap);
        let mut text = String::new();
        escape_into(&mut text, &bytes[..window]);
        let mut text = redactor.redact(&text).into_owned();
        // The end of the window may be the start of a secret, and redaction may have moved it.
        let safe = match window == bytes.len() {
            true => text.len(),
            false => text.len().saturating_sub(overlap),
        };
        text.truncate(text.floor_char_boundary(most.min(safe)));
        let mut state = self.ring.lock();
        state.push(stream, text);
        let end = state.end;
        drop(state);
        self.announce(end);
    }

    /// Returns the last lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<LogLine> {
        let state = self.ring.lock();
        let partial = state.partial_line(&self.redactor());
        let skip = (state.lines.len() + usize::from(partial.is_some())).saturating_sub(count);
        let lines = state.lines.iter().cloned().chain(partial);
        lines.skip(skip).collect()
    }

    /// Returns the exception at the end of a traceback on stderr, if there is one, or why gVisor could
    /// not start the program.
    pub(crate) fn exception(&self) -> Option<String> {
        let tail = self.stderr_tail();
        let refusal = tail
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix(GVISOR));
        if let Some(refusal) = refusal {
            let why = refusal
                .rsplit_once(GVISOR_START)
                .map_or(refusal, |(_, why)| why);
            return Some(why[..why.floor_char_boundary(EXCEPTION_BYTES)].to_owned());
        }
        let is_frame =
            |line: &str| line.starts_with("Traceback (") || line.starts_with("  File \"");
        let lines = tail.lines().skip_while(|line| !is_frame(line));
        let is_last = |line: &&str| !line.starts_with([' ', '\t']) && !line.is_empty();
        let last = lines
            .filter(|line| is_last(line) && !is_frame(line))
            .last()?;
        Some(last[..last.floor_char_boundary(EXCEPTION_BYTES)].to_owned())
    }

    /// Returns the last lines of this instance's stderr as one text, for crash reports.
    pub(crate) fn stderr_tail(&self) -> String {
        let state = self.ring.lock();
        let partial = state.partial_line(&self.redactor());
        let lines = state.lines.iter().skip(state.earlier).chain(&partial);
        let stderr: Vec<_> = lines
            .filter(|line| line.stream == LogStream::Stderr)
            .map(|line| line.text.as_str())
            .collect();
        stderr[stderr.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Ring {
    /// Returns the unfinished line as if it had ended.
    fn partial_line(&self, redactor: &Redactor) -> Option<LogLine> {
        (!self.partial.is_empty()).then(|| LogLine {
            number: None,
            at_ms: unix_ms(),
            stream: LogStream::Stderr,
            text: redactor.redact(&self.partial).into_owned(),
            attempt: self.attempt,
        })
    }

    /// Ends the unfinished line.
    fn end_line(&mut self, redactor: &Redactor) {
        if !self.partial.is_empty() {
            let text = redactor.redact(&self.partial).into_owned();
            self.partial.clear();
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (line, after) = rest.split_at(rest.floor_char_boundary(LINE_BYTES));
                self.push(LogStream::Stderr, line.to_owned());
                rest = after;
            }
        }
    }

    /// Cuts a line that is too long. The text after the cut stays, so that a secret that spans the
    /// next cut is found whole.
    fn cut(&mut self, redactor: &Redactor) {
        let most = LINE_BYTES + overlap(redactor);
        if self.partial.len() < most {
            return;
        }
        self.partial = redactor.redact(&self.partial).into_owned();
        while self.partial.len() >= most {
            let end = self.partial.floor_char_boundary(LINE_BYTES);
            let rest = self.partial.split_off(end);
            let text = std::mem::replace(&mut self.partial, rest);
            self.push(LogStream::Stderr, text);
        }
    }

    fn push(&mut self, stream: LogStream, text: String) {
        self.bytes += text.len() + size_of::<LogLine>();
        self.lines.push_back(LogLine {
            number: Some(self.end),
            at_ms: unix_ms(),
            stream,
            text,
            attempt: self.attempt,
        });
        self.end += 1;
        while self.bytes > RING_BYTES
            && let Some(gone) = self.lines.pop_front()
        {
            self.bytes -= gone.text.len() + size_of::<LogLine>();
            self.earlier = self.earlier.saturating_sub(1);
        }
    }
}

/// Returns how many bytes after a cut are examined, so that a secret that spans it is found whole.
fn overlap(redactor: &Redactor) -> usize {
    OVERLAP.max(redactor.longest())
}

/// Appends bytes in printable form: invalid UTF-8 replaced, control characters as `\u{..}`.
fn escape_into(out: &mut String, bytes: &[u8]) {
    // Nearly all input is plain, so that a flood is cheap. fault S16
    let is_plain = bytes.is_ascii() && !bytes.iter().any(u8::is_ascii_control);
    if is_plain && let Ok(text) = std::str::from_utf8(bytes) {
        out.push_str(text);
        return;
    }
    for character in String::from_utf8_lossy(bytes).chars() {
        match character {
            '\t' => out.push(' '),
            '\r' => {}
            c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
}

/// Returns bytes as a short, printable quotation.
pub(crate) fn quote(bytes: &[u8], most: usize) -> String {
    let mut out = String::new();
    escape_into(&mut out, &bytes[..bytes.len().min(most)]);
    out
}

#[cfg(test)]
mod tests {
    use gantry_model::secret::SecretText;

    use super::*;

    #[test]
    fn the_ring_is_bounded_and_safe_to_show() {
        // fault S16
        let logs = Logs::new(Arc::default());
        for _ in 0..1000 {
            logs.stderr(&[b'x'; 4096]);
        }
        logs.stderr(b"\n\x1b[31mred\x1b[0m\nlast");
        let kept: usize = logs
            .last(usize::MAX)
            .iter()
            .map(|line| line.text.len())
            .sum();
        assert!(kept <= RING_BYTES);
        let tail = logs.stderr_tail();
        assert!(tail.ends_with("\\u{1b}[31mred\\u{1b}[0m\nlast"), "{tail}");
    }

    // fault P1
    #[test]
    fn a_program_that_gvisor_cannot_start_is_named() {
        let logs = Logs::new(Arc::default());
        logs.stderr(
            b"running container: starting container: starting root container: starting sandbox: ",
        );
        logs.stderr(b"creating process: failed to load /bin/x: no such file or directory\n");
        let why = "creating process: failed to load /bin/x: no such file or directory";
        assert_eq!(logs.exception().as_deref(), Some(why));
    }

    #[tokio::test]
    async fn lines_are_followed_by_number_and_what_went_is_counted() {
        let logs = Logs::new(Arc::default());
        let mut news = logs.subscribe();
        let mut at = *news.borrow();
        logs.stderr(b"one\ntwo\nhalf");
        news.changed().await.unwrap();
        let read = logs.read(&mut at, 1);
        assert_eq!((read.items[0].text.as_str(), read.skipped), ("one", 0));
        let texts = |lines: &[LogLine]| lines.iter().map(|line| line.text.clone()).collect();
        let rest: Vec<String> = texts(&logs.read(&mut at, 9).items);
        assert_eq!(rest, ["two"], "a line that has not ended is not followed");
        assert_eq!(logs.last(1)[0].number, None);
        logs.stderr(b"\n");
        for _ in 0..RING_BYTES {
            logs.line(LogStream::Gantry, b"x");
        }
        let read = logs.read(&mut at, 1);
        let gone = read.items[0].number.unwrap() - rest.len() as u64 - logs.ring.lock().begun;
        assert_eq!(read.skipped, gone - 1);
        // A reader that followed a replaced server of the same name has missed no line of this one.
        let mut before = 5;
        assert!(logs.read(&mut before, 1).skipped < RING_BYTES as u64);
    }

    #[test]
    fn a_secret_is_not_kept_wherever_a_line_is_cut() {
        // fault K2
        let secret = SecretText::new("hunter22-hunter22".to_owned());
        let logs = Logs::new(Arc::new(KnownSecrets::new(vec![secret.clone()])));
        for before in LINE_BYTES - 20..LINE_BYTES + 20 {
            let text = format!(
                "{}{}{}",
                "x".repeat(before),
                secret.expose(),
                "y".repeat(9000)
            );
            for chunk in text.as_bytes().chunks(1000) {
                logs.stderr(chunk);
            }
            logs.stderr(b"\n");
            logs.line(LogStream::Gantry, text.as_bytes());
            logs.stray(&text.as_bytes()[before - STRAY_BYTES + 5..]);
            let kept = logs.last(usize::MAX);
            let leaks = |line: &&LogLine| line.text.contains("hunter") || line.text.contains("22");
            assert_eq!(kept.iter().find(leaks), None);
        }
    }

    #[test]
    fn no_part_of_a_secret_that_is_longer_than_a_line_is_kept() {
        // fault K2
        let secret: String = (0..1000).map(|n| format!("{n:05}")).collect();
        let secret = SecretText::new(secret);
        let texts = [
            secret.expose().to_owned(),
            format!("{}{}", "x".repeat(1500), secret.expose()),
            format!("{0} {0} {0}", secret.expose()),
        ];
        for text in texts {
            let logs = Logs::new(Arc::new(KnownSecrets::new(vec![secret.clone()])));
            logs.line(LogStream::Gantry, text.as_bytes());
            logs.stray(text.as_bytes());
            logs.stray(format!("{0}{0}", text).as_bytes());
            for chunk in format!("{text}{}\n", "y".repeat(20_000))
                .as_bytes()
                .chunks(700)
            {
                logs.stderr(chunk);
            }
            let kept = logs.last(usize::MAX);
            let leaks = |line: &&LogLine| line.text.bytes().any(|byte| byte.is_ascii_digit());
            assert_eq!(kept.iter().find(leaks), None);
        }
    }
}
