//! The calls that are made, and the check that an answer is the right one.
//!
//! Every echo has a text that no other call has, so an answer that went astray is an error.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Failure;

/// The protocol version that is asked for.
pub(crate) const PROTOCOL: &str = "2025-06-18";

/// The first message of a session.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#;

/// The second.
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What is called, again and again.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Workload {
    /// A tool that gives back `bytes` of text after `delay_ms`; `{}` in its name is the connection's
    /// number.
    Echo {
        tool: String,
        bytes: usize,
        delay_ms: u64,
    },
    /// The list of tools, which must be so many.
    List { tools: usize },
}

/// The members of an answer that tell whose it is and whether it went well.
#[derive(Deserialize)]
pub(crate) struct Answer<'a> {
    pub(crate) id: Option<u64>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Echoed<'a> {
    #[serde(borrow)]
    content: [Text<'a>; 1],
    #[serde(default, rename = "isError")]
    is_error: bool,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl Workload {
    /// Writes the call number `id` of a connection.
    pub(crate) fn request(&self, connection: usize, id: u64) -> String {
        match self {
            Self::Echo {
                tool,
                bytes,
                delay_ms,
            } => {
                let text = text(connection, id, *bytes);
                let tool = tool.replace("{}", &connection.to_string());
                let delay = if *delay_ms == 0 {
                    String::new()
                } else {
                    format!(r#","delay_ms":{delay_ms}"#)
                };
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{text}"{delay}}}}}}}"#
                )
            }
            Self::List { .. } => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#),
        }
    }

    /// Returns what is wrong with the answer to that call.
    pub(crate) fn check(&self, connection: usize, id: u64, answer: &[u8]) -> Result<(), Failure> {
        let wrong = || Err(format!("wrong answer to call {id}: {}", cut(answer)).into());
        match self {
            Self::Echo { bytes, .. } => {
                let Ok(Answer {
                    id: Some(given),
                    result: Some(result),
                }) = serde_json::from_slice(answer)
                else {
                    return wrong();
                };
                match serde_json::from_str::<Echoed<'_>>(result.get()) {
                    Ok(Echoed {
                        content: [echoed],
                        is_error: false,
                    }) if given == id && echoed.text == text(connection, id, *bytes) => Ok(()),
                    _ => wrong(),
                }
            }
            // Parsing each list would take the generator longer than a gateway needs to send it.
            Self::List { tools } => {
                let count = |needle: &str| memmem::find_iter(answer, needle).count();
                match count(r#""inputSchema":"#) {
                    found if found != *tools => {
                        Err(format!("{found} tools instead of {tools}").into())
                    }
                    _ if count(&format!(r#""id":{id}"#)) != 1 => wrong(),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Returns the start of an answer, for a message.
pub(crate) fn cut(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned()
}

fn text(connection: usize, id: u64, bytes: usize) -> String {
    let mut text = format!("{connection}:{id}:");
    text.extend(std::iter::repeat_n('.', bytes.saturating_sub(text.len())));
    text
}
