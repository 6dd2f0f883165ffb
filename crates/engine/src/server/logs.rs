//! What a server says beside the protocol: its stderr and stray lines on its stdout. Kept in a
//! bounded ring, its secrets taken out and control characters escaped, for `gantry logs` and for the reason of a crash.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::Guard;
use gantry_model::naming::is_invisible;
use gantry_model::secret::Redactor;

use super::known::KnownSecrets;
use crate::clock::unix_ms;

const RING_BYTES: usize = 64 * 1024;
const LINE_BYTES: usize = 2 * 1024;
/// How much is kept of a stray line.
const STRAY_BYTES: usize = 400;
/// How much beyond a cut is looked at, so that a secret that lies across it is found.
const OVERLAP: usize = 2 * 1024;
const TAIL_LINES: usize = 20;
/// How much is shown of the exception that a traceback ends with.
const EXCEPTION_BYTES: usize = 300;

/// Where a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// The server's stderr.
    Stderr,
    /// A line on its stdout that is no message.
    Stdout,
    /// A log message of the protocol.
    Message,
    /// Gantry itself, about the server.
    Gantry,
}

/// One line that a server wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Where.
    pub stream: LogStream,
    /// What, with control characters escaped.
    pub text: String,
}

/// The last 64 KiB of what a server said.
pub(crate) struct Logs {
    state: Mutex<State>,
    known: Arc<KnownSecrets>,
}

#[derive(Default)]
struct State {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// A line of stderr that has not ended yet, escaped.
    partial: String,
    /// How many of the lines are of the server's earlier lives.
    earlier: usize,
}

impl Logs {
    pub(crate) fn new(known: Arc<KnownSecrets>) -> Self {
        Self {
            state: Mutex::default(),
            known,
        }
    }

    /// Returns what takes the server's secrets out of what it says.
    pub(crate) fn redactor(&self) -> Guard<Arc<Redactor>> {
        self.known.redactor()
    }

    /// Returns the secrets that are known of the server.
    pub(crate) fn known(&self) -> Arc<KnownSecrets> {
        Arc::clone(&self.known)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that what comes now is of a new life of the server.
    pub(crate) fn begin_life(&self) {
        let mut state = self.lock();
        state.end_line(&self.redactor());
        state.earlier = state.lines.len();
    }

    /// Takes bytes of stderr as they come; a line without an end is cut.
    pub(crate) fn stderr(&self, bytes: &[u8]) {
        let (mut state, redactor) = (self.lock(), self.redactor());
        for chunk in bytes.split_inclusive(|byte| *byte == b'\n') {
            let content = chunk.strip_suffix(b"\n");
            escape_into(&mut state.partial, content.unwrap_or(chunk));
            state.cut(&redactor);
            if content.is_some() {
                state.end_line(&redactor);
            }
        }
    }

    /// Takes one whole line.
    pub(crate) fn line(&self, stream: LogStream, bytes: &[u8]) {
        self.take(stream, bytes, LINE_BYTES);
    }

    /// Takes the beginning of a line on stdout that is no message.
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
        // The end of the window may be the beginning of a secret, which what was redacted before it
        // has brought nearer.
        let safe = match window == bytes.len() {
            true => text.len(),
            false => text.len().saturating_sub(overlap),
        };
        text.truncate(text.floor_char_boundary(most.min(safe)));
        self.lock().push(stream, text);
    }

    /// Returns the last lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<LogLine> {
        let state = self.lock();
        let partial = state.partial_line(&self.redactor());
        let skip = (state.lines.len() + usize::from(partial.is_some())).saturating_sub(count);
        let lines = state.lines.iter().cloned().chain(partial);
        lines.skip(skip).collect()
    }

    /// Returns the exception that a traceback on stderr ends with, if there is one.
    pub(crate) fn exception(&self) -> Option<String> {
        let tail = self.stderr_tail();
        let is_frame =
            |line: &str| line.starts_with("Traceback (") || line.starts_with("  File \"");
        let lines = tail.lines().skip_while(|line| !is_frame(line));
        let is_last = |line: &&str| !line.starts_with([' ', '\t']) && !line.is_empty();
        let last = lines
            .filter(|line| is_last(line) && !is_frame(line))
            .last()?;
        Some(last[..last.floor_char_boundary(EXCEPTION_BYTES)].to_owned())
    }

    /// Returns the last lines of stderr of this life as one text, for the reason of a crash.
    pub(crate) fn stderr_tail(&self) -> String {
        let state = self.lock();
        let partial = state.partial_line(&self.redactor());
        let lines = state.lines.iter().skip(state.earlier).chain(&partial);
        let stderr: Vec<_> = lines
            .filter(|line| line.stream == LogStream::Stderr)
            .map(|line| line.text.as_str())
            .collect();
        stderr[stderr.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl State {
    /// Returns the line that has not ended yet as if it had.
    fn partial_line(&self, redactor: &Redactor) -> Option<LogLine> {
        (!self.partial.is_empty()).then(|| LogLine {
            at_ms: unix_ms(),
            stream: LogStream::Stderr,
            text: redactor.redact(&self.partial).into_owned(),
        })
    }

    /// Ends the line that has not ended yet.
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

    /// Cuts a line that goes on and on. What lies behind the cut stays, so that a secret that lies
    /// across the next one is found whole.
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
            at_ms: unix_ms(),
            stream,
            text,
        });
        while self.bytes > RING_BYTES
            && let Some(gone) = self.lines.pop_front()
        {
            self.bytes -= gone.text.len() + size_of::<LogLine>();
            self.earlier = self.earlier.saturating_sub(1);
        }
    }
}

/// Returns how much behind a cut is looked at, so that a secret that lies across it is found whole.
fn overlap(redactor: &Redactor) -> usize {
    OVERLAP.max(redactor.longest())
}

/// Makes bytes safe to show: invalid UTF-8 replaced, control characters as `\u{..}`.
fn escape_into(out: &mut String, bytes: &[u8]) {
    // Nearly everything is plain, and a flood of it costs little then. fault S16
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

/// Returns bytes as a short, safe quotation.
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
