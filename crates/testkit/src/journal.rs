//! The far-end record: what a server really executed, written by `evilpeer --journal FILE` and read
//! by the tests. One line per event, each a single append, so that several processes may share a
//! file and a kill never tears a line. Entry point: [`Journal::read`].

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// One event at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The server process began to serve.
    Started {
        /// Its process id as it sees it itself.
        pid: u32,
    },
    /// A `tools/call` was executed.
    Call {
        /// The `nonce` argument, if there was one.
        nonce: Option<String>,
        /// The JSON-RPC method.
        method: String,
        /// The tool's name.
        tool: String,
        /// The JSON-RPC id exactly as it arrived.
        id: String,
    },
    /// A call in flight was cancelled by `notifications/cancelled`.
    Cancelled {
        /// The `nonce` argument of the cancelled call, if there was one.
        nonce: Option<String>,
    },
    /// An answer to a request that the server had sent.
    Answer {
        /// Which request it answers (`ping`, `roots`, …), or `unknown`.
        request: String,
        /// The message exactly as it arrived.
        message: String,
    },
    /// A line arrived that is no JSON-RPC message.
    Garbled {
        /// The first 200 characters, escaped.
        line: String,
    },
    /// The server saw the end of its input.
    Ended,
}

/// The events of one journal file, in order.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// All events, oldest first.
    pub entries: Vec<Entry>,
}

impl Journal {
    /// Reads a journal; a file that is not there yet is an empty journal.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        // A write that crosses a page is seen in two pieces: what has no end yet is not there yet.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(whole.unwrap_or(0));
        let text = String::from_utf8(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let entries = text
            .lines()
            .map(|line| {
                parse(line).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("no journal line: `{line}`"),
                    )
                })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { entries })
    }

    /// Returns how many calls were executed.
    pub fn calls(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Call { .. }))
            .count()
    }

    /// Returns the nonces of all executed calls, in order, repeats included.
    pub fn nonces(&self) -> Vec<&str> {
        let nonce = |entry: &'_ Entry| matches!(entry, Entry::Call { .. });
        self.entries
            .iter()
            .filter(|entry| nonce(entry))
            .filter_map(Entry::nonce)
            .collect()
    }

    /// Returns how often the call with this nonce was executed.
    pub fn executed(&self, nonce: &str) -> usize {
        self.nonces()
            .into_iter()
            .filter(|seen| *seen == nonce)
            .count()
    }

    /// Returns whether the call with this nonce was cancelled while in flight.
    pub fn cancelled(&self, nonce: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry, Entry::Cancelled { nonce: Some(seen) } if seen == nonce))
    }

    /// Returns the answers to a request the server had sent, as raw JSON.
    pub fn answers(&self, wanted: &str) -> Vec<&str> {
        self.entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Answer { request, message } if request == wanted => Some(message.as_str()),
                Entry::Started { .. }
                | Entry::Call { .. }
                | Entry::Cancelled { .. }
                | Entry::Answer { .. }
                | Entry::Garbled { .. }
                | Entry::Ended => None,
            })
            .collect()
    }

    /// Returns how often a server process began to serve.
    pub fn starts(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Started { .. }))
            .count()
    }
}

impl Entry {
    fn nonce(&self) -> Option<&str> {
        match self {
            Self::Call { nonce, .. } | Self::Cancelled { nonce } => nonce.as_deref(),
            Self::Started { .. } | Self::Answer { .. } | Self::Garbled { .. } | Self::Ended => None,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |nonce: &Option<String>| nonce.as_deref().map_or("-".to_owned(), escape);
        match self {
            Self::Started { pid } => write!(out, "started {pid}"),
            Self::Call {
                nonce,
                method,
                tool,
                id,
            } => {
                write!(
                    out,
                    "call {} {} {} {}",
                    word(nonce),
                    escape(method),
                    escape(tool),
                    escape(id)
                )
            }
            Self::Cancelled { nonce } => write!(out, "cancelled {}", word(nonce)),
            Self::Answer { request, message } => {
                write!(out, "answer {} {}", escape(request), escape(message))
            }
            Self::Garbled { line } => write!(out, "garbled {}", escape(line)),
            Self::Ended => write!(out, "ended"),
        }
    }
}

/// The appending end of a journal.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
}

impl Writer {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().append(true).create(true).open(path)?,
        })
    }

    /// Appends one line with a single write, which is complete when this returns.
    pub(crate) fn record(&self, entry: &Entry) -> io::Result<()> {
        (&self.file).write_all(format!("{entry}\n").as_bytes())
    }
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let mut next = || words.next().map(unescape);
    let nonce = |word: String| (word != "-").then_some(word);
    let entry = match kind {
        "started" => Entry::Started {
            pid: next()?.parse().ok()?,
        },
        "call" => Entry::Call {
            nonce: nonce(next()?),
            method: next()?,
            tool: next()?,
            id: next()?,
        },
        "cancelled" => Entry::Cancelled {
            nonce: nonce(next()?),
        },
        "answer" => Entry::Answer {
            request: next()?,
            message: next()?,
        },
        "garbled" => Entry::Garbled { line: next()? },
        "ended" => Entry::Ended,
        _ => return None,
    };
    words.next().is_none().then_some(entry)
}

/// Writes blanks, control characters and `%` as `%XX`, so that a value is one word of one line.
fn escape(value: &str) -> String {
    let mut word = String::with_capacity(value.len());
    for character in value.chars() {
        if character.is_control() || character.is_whitespace() || character == '%' {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                write!(word, "%{byte:02x}").expect("a string takes every write");
            }
        } else {
            word.push(character);
        }
    }
    // A lone `-` means «none», so the value `-` is written in full.
    if word == "-" { "%2d".to_owned() } else { word }
}

fn unescape(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = (*first == b'%')
            .then(|| tail.get(..2).and_then(|two| std::str::from_utf8(two).ok()))
            .flatten()
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_survives_the_file_format() {
        let entries = [
            Entry::Started { pid: 7 },
            Entry::Call {
                nonce: Some("a b%c\n".into()),
                method: "tools/call".into(),
                tool: "echo".into(),
                id: "\"g 1\"".into(),
            },
            Entry::Call {
                nonce: None,
                method: "tools/call".into(),
                tool: "add".into(),
                id: "12".into(),
            },
            Entry::Cancelled {
                nonce: Some("n1".into()),
            },
            Entry::Answer {
                request: "ping".into(),
                message: r#"{"id": "ü", "x":1}"#.into(),
            },
            Entry::Garbled { line: "%%%".into() },
            Entry::Ended,
        ];
        for entry in entries {
            assert_eq!(parse(&entry.to_string()), Some(entry));
        }
        assert_eq!(
            Entry::Cancelled {
                nonce: Some("n1".into())
            }
            .to_string(),
            "cancelled n1"
        );
    }
}
