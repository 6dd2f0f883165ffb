//! JSON lines over a server's standard streams: `LineWriter` for its stdin, `LineReader` for its
//! stdout, `drain` for its stderr. Every buffer here is bounded.

mod bridge;
mod drain;
mod reader;
mod writer;

pub(crate) use bridge::bridge;
pub(crate) use drain::drain;
pub(crate) use reader::{End, Inbox, LineReader, Overflow, Overlong};
pub(crate) use writer::{Batching, LineWriter, SendError};
