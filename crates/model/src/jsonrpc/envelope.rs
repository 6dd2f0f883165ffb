//! Parses a message: its kind, and the positions of its parts.
//!
//! The top-level members are recorded while the validator passes over them, so a message is read
//! exactly once. Anything but the six members of JSON-RPC 2.0 in a legal combination is refused.
//! Entry points: [`parse`] for borrowed bytes, [`Frame::parse`] for an owned line or body.

use std::borrow::Cow;

use super::error::{WireError, shown};
use super::scan::{Scanner, scan};
use super::text::decode;
use super::{Limits, Raw, RequestId};

/// A parsed message, and whether there are line breaks between its tokens.
#[derive(Debug, Clone)]
pub struct Incoming<'a> {
    /// The message.
    pub message: Message<'a>,
    /// Whether the text has line breaks outside of strings.
    pub has_line_breaks: bool,
}

/// One of the three kinds of messages.
#[derive(Debug, Clone)]
pub enum Message<'a> {
    /// A request, which expects a response.
    Request(Request<'a>),
    /// A notification, which expects none.
    Notification(Notification<'a>),
    /// A response.
    Response(Response<'a>),
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The sender's id.
    pub id: RequestId<'a>,
    /// The method.
    pub method: Cow<'a, str>,
    /// The params, always an object.
    pub params: Option<Raw<'a>>,
}

/// A notification.
#[derive(Debug, Clone)]
pub struct Notification<'a> {
    /// The method.
    pub method: Cow<'a, str>,
    /// The params, always an object.
    pub params: Option<Raw<'a>>,
}

/// A response.
#[derive(Debug, Clone)]
pub struct Response<'a> {
    /// The id of the request it answers.
    pub id: RequestId<'a>,
    /// Its result or error.
    pub outcome: Outcome<'a>,
}

/// The result or error of a request.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// A result, of any kind of value.
    Result(Raw<'a>),
    /// An error, always an object; see [`ErrorBody::read`].
    Error(Raw<'a>),
}

/// The interpreted members of an error object.
#[derive(Debug, Clone)]
pub struct ErrorBody<'a> {
    /// The code.
    pub code: i64,
    /// The message.
    pub message: Cow<'a, str>,
    /// Additional data.
    pub data: Option<Raw<'a>>,
}

impl<'a> ErrorBody<'a> {
    /// Reads an error object; `None` if it lacks an integer code or a message.
    pub fn read(error: Raw<'a>) -> Option<Self> {
        let (mut code, mut message, mut data) = (None, None, None);
        for member in error.members() {
            if member.is("code") {
                code = member.value.integer();
            } else if member.is("message") {
                message = member.value.string();
            } else if member.is("data") {
                data = Some(member.value);
            }
        }
        Some(Self {
            code: code?,
            message: message?,
            data,
        })
    }
}

/// Parses one message.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Incoming<'a>, WireError> {
    let text = utf8(bytes)?;
    Parts::read(text, limits).map(|parts| parts.view(text))
}

/// A message that owns its text, so that it can be passed between tasks.
#[derive(Debug)]
pub struct Frame {
    text: String,
    parts: Parts,
}

/// A text that is not a message, and why.
#[derive(Debug)]
pub struct Refused {
    /// Why it was refused.
    pub error: WireError,
    /// The text, returned to the caller.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Parses one message and keeps its text, without copying it.
    pub fn parse(bytes: Vec<u8>, limits: &Limits) -> Result<Self, Refused> {
        let text = String::from_utf8(bytes).map_err(|error| Refused {
            error: WireError::NotUtf8 {
                at: error.utf8_error().valid_up_to(),
            },
            bytes: error.into_bytes(),
        })?;
        match Parts::read(&text, limits) {
            Ok(parts) => Ok(Self { text, parts }),
            Err(error) => Err(Refused {
                error,
                bytes: text.into_bytes(),
            }),
        }
    }

    /// Returns the message; free of cost.
    pub fn incoming(&self) -> Incoming<'_> {
        self.parts.view(&self.text)
    }

    /// Returns the whole text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(bytes).map_err(|error| WireError::NotUtf8 {
        at: error.valid_up_to(),
    })
}

/// The members a message may have, in the order of [`Parts::spans`].
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const JSONRPC: usize = 0;
const ID: usize = 1;
const METHOD: usize = 2;
const PARAMS: usize = 3;
const RESULT: usize = 4;
const ERROR: usize = 5;

/// The positions of the parts of a valid message.
#[derive(Debug, Clone, Copy)]
struct Parts {
    /// The values' ranges; empty for a member that is absent.
    spans: [(u32, u32); 6],
    line_breaks: bool,
}

impl Parts {
    fn read(text: &str, limits: &Limits) -> Result<Self, WireError> {
        let parts = scan(text, limits, |scanner| Self::members(text, scanner))?;
        parts.check(text)?;
        Ok(parts)
    }

    fn members(text: &str, scanner: &mut Scanner<'_, '_>) -> Result<Self, WireError> {
        let first = scanner.token();
        if first != b'{' {
            scanner.value(0)?;
            scanner.end()?;
            return Err(if first == b'[' {
                WireError::Batch
            } else {
                WireError::NotAnObject
            });
        }
        scanner.at += 1;
        let mut spans = [(0, 0); 6];
        if scanner.token() == b'}' {
            scanner.at += 1;
        } else {
            loop {
                let ((start, end), escaped) = scanner.string()?;
                let slot = slot(&text[start..end], escaped, start - 1)?;
                if spans[slot] != (0, 0) {
                    let key = MEMBERS[slot].to_owned();
                    return Err(WireError::DuplicateKey { key, at: start - 1 });
                }
                scanner.take(b':', "`:`")?;
                scanner.token();
                let value = scanner.at;
                scanner.value(1)?;
                spans[slot] = (value as u32, scanner.at as u32);
                match scanner.token() {
                    b',' => scanner.at += 1,
                    b'}' => {
                        scanner.at += 1;
                        break;
                    }
                    _ => return Err(scanner.unexpected("`,` or `}`")),
                }
            }
        }
        scanner.end()?;
        Ok(Self {
            spans,
            line_breaks: scanner.line_breaks,
        })
    }

    /// Checks that the members together are a legal message.
    fn check(&self, text: &str) -> Result<(), WireError> {
        let first = |slot: usize| self.value(text, slot).and_then(|v| v.bytes().next());
        match self.value(text, JSONRPC) {
            Some("\"2.0\"") => {}
            Some(other) if Raw::scanned(other, false).is_string("2.0") => {}
            _ => return Err(WireError::WrongVersion),
        }
        match first(ID) {
            None | Some(b'"' | b'-' | b'0'..=b'9') => {}
            Some(b'n') => return Err(WireError::NullId),
            Some(_) => return Err(WireError::BadId),
        }
        let (result, error) = (first(RESULT), first(ERROR));
        if let Some(method) = first(METHOD) {
            for (member, slot) in [("result", result), ("error", error)] {
                if slot.is_some() {
                    return Err(WireError::Misplaced {
                        member,
                        place: "a request",
                    });
                }
            }
            return match (method, first(PARAMS)) {
                (b'"', None | Some(b'{')) => Ok(()),
                (b'"', Some(b'[')) => Err(WireError::PositionalParams),
                (b'"', Some(_)) => Err(WireError::BadParams),
                _ => Err(WireError::BadMethod),
            };
        }
        match (result, error) {
            (None, None) => Err(WireError::Nothing),
            (Some(_), Some(_)) => Err(WireError::ResultAndError),
            _ if first(PARAMS).is_some() => Err(WireError::Misplaced {
                member: "params",
                place: "an answer",
            }),
            _ if first(ID).is_none() => Err(WireError::MissingId),
            (None, Some(error)) if error != b'{' => Err(WireError::BadError),
            _ => Ok(()),
        }
    }

    #[inline]
    fn value<'t>(&self, text: &'t str, slot: usize) -> Option<&'t str> {
        match self.spans[slot] {
            (0, 0) => None,
            (start, end) => Some(&text[start as usize..end as usize]),
        }
    }

    fn raw<'t>(&self, text: &'t str, slot: usize) -> Option<Raw<'t>> {
        self.value(text, slot)
            .map(|value| Raw::scanned(value, self.line_breaks))
    }

    /// Builds the message from its parts. Invariant: `check` passed, so all required members exist.
    fn view<'t>(&self, text: &'t str) -> Incoming<'t> {
        let id = self.raw(text, ID).and_then(RequestId::read);
        let method = self.raw(text, METHOD).and_then(Raw::string);
        let params = self.raw(text, PARAMS);
        let message = match (id, method) {
            (Some(id), Some(method)) => Message::Request(Request { id, method, params }),
            (None, Some(method)) => Message::Notification(Notification { method, params }),
            (id, None) => Message::Response(Response {
                id: id.expect("an answer has an id"),
                outcome: match (self.raw(text, RESULT), self.raw(text, ERROR)) {
                    (Some(result), _) => Outcome::Result(result),
                    (None, error) => Outcome::Error(error.expect("an answer has an outcome")),
                },
            }),
        };
        Incoming {
            message,
            has_line_breaks: self.line_breaks,
        }
    }
}

/// Returns the index of a member by its key.
#[inline]
fn slot(key: &str, escaped: bool, at: usize) -> Result<usize, WireError> {
    match key {
        "jsonrpc" => Ok(JSONRPC),
        "id" => Ok(ID),
        "method" => Ok(METHOD),
        "params" => Ok(PARAMS),
        "result" => Ok(RESULT),
        "error" => Ok(ERROR),
        _ if escaped => slot(&decode(key), false, at),
        _ => Err(unknown(key, at)),
    }
}

#[cold]
fn unknown(key: &str, at: usize) -> WireError {
    // Folded both ways, so that `ſ` counts as `s` and the Kelvin sign as `k`.
    let folded = key.to_uppercase().to_lowercase();
    let name = shown(key);
    match MEMBERS.iter().find(|member| **member == folded) {
        Some(meant) => WireError::WrongCase { name, meant, at },
        None => WireError::UnknownMember { name, at },
    }
}
