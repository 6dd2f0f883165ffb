//! What a server says beside the protocol: its stderr and stray lines on its stdout. Kept in a
//! bounded ring, control characters escaped, for `gantry logs` and for the reason of a crash.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::unix_ms;

const RING_BYTES: usize = 64 * 1024;
const LINE_BYTES: usize = 2 * 1024;
const TAIL_LINES: usize = 20;

/// Where a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// The server's stderr.
    Stderr,
    /// A line on its stdout that is no message.
    Stdout,
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
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that what comes now is of a new life of the server.
    pub(crate) fn begin_life(&self) {
        let mut state = self.lock();
        state.flush();
        state.earlier = state.lines.len();
    }

    /// Takes bytes of stderr as they come; a line without an end is cut.
    pub(crate) fn stderr(&self, bytes: &[u8]) {
        let mut state = self.lock();
        for chunk in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ended = chunk.ends_with(b"\n");
            let room = LINE_BYTES.saturating_sub(state.partial.len());
            let content = &chunk[..chunk.len() - usize::from(ended)];
            escape_into(&mut state.partial, &content[..content.len().min(room)]);
            if ended || state.partial.len() >= LINE_BYTES {
                let text = std::mem::take(&mut state.partial);
                if !text.is_empty() {
                    state.push(LogStream::Stderr, text);
                }
            }
        }
    }

    /// Takes one whole line.
    pub(crate) fn line(&self, stream: LogStream, bytes: &[u8]) {
        let mut text = String::new();
        escape_into(&mut text, &bytes[..bytes.len().min(LINE_BYTES)]);
        self.lock().push(stream, text);
    }

    /// Returns the last lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<LogLine> {
        let mut state = self.lock();
        state.flush();
        let skip = state.lines.len().saturating_sub(count);
        state.lines.iter().skip(skip).cloned().collect()
    }

    /// Returns the last lines of stderr of this life as one text, for the reason of a crash.
    pub(crate) fn stderr_tail(&self) -> String {
        let mut state = self.lock();
        state.flush();
        let stderr: Vec<_> = state
            .lines
            .iter()
            .skip(state.earlier)
            .filter(|line| line.stream == LogStream::Stderr)
            .map(|line| line.text.as_str())
            .collect();
        stderr[stderr.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl State {
    /// Counts a line without its end as a line.
    fn flush(&mut self) {
        if !self.partial.is_empty() {
            let text = std::mem::take(&mut self.partial);
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

/// Makes bytes safe to show: invalid UTF-8 replaced, control characters as `\u{..}`.
fn escape_into(out: &mut String, bytes: &[u8]) {
    for character in String::from_utf8_lossy(bytes).chars() {
        match character {
            '\t' => out.push(' '),
            '\r' => {}
            c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
}

/// Bidirectional and zero-width characters, which can make text read as what it is not.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Returns bytes as a short, safe quotation.
pub(crate) fn quote(bytes: &[u8], most: usize) -> String {
    let mut out = String::new();
    escape_into(&mut out, &bytes[..bytes.len().min(most)]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_safe_to_show() {
        // fault S16
        let logs = Logs::new();
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
}
