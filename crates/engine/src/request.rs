//! What comes into the engine and what goes out: requests of any surface and their replies.

use std::time::Duration;

use bytes::Bytes;
use gantry_model::caller::Context;
use gantry_model::era::Era;
use gantry_model::id::{CallId, ServerName};
use gantry_model::jsonrpc::Raw;
use tokio::sync::mpsc;

pub use crate::audit::Surface;

/// Which servers a request may reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All that the caller may use, under exposed names.
    All,
    /// One server, under its own names.
    Server(ServerName),
}

/// Whether a list may be answered from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lists {
    /// Served from the catalog.
    #[default]
    FromCatalog,
    /// Asked of the server itself, if the caller is an administrator; else from the catalog.
    FromServer,
}

/// One request of a caller.
#[derive(Debug)]
pub struct Request<'a> {
    /// Where it came in.
    pub surface: Surface,
    /// Which servers it may reach.
    pub scope: Scope,
    /// The MCP method.
    pub method: &'a str,
    /// Its params, a valid JSON object.
    pub params: Option<Raw<'a>>,
    /// What it belongs to in the caller's world.
    pub context: Context,
    /// Where progress goes, if the caller wants it.
    pub progress: Option<Progress>,
    /// A shorter time than the server's own.
    pub timeout: Option<Duration>,
    /// Whether lists come from memory.
    pub lists: Lists,
}

/// Where the progress of a call goes.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The caller's own token, raw JSON, put back into each notification.
    pub token: Box<str>,
    /// Takes the raw params of each notification; one that does not fit is dropped.
    pub sink: mpsc::Sender<Box<str>>,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The call it belongs to; `None` for what is served from memory.
    pub call: Option<CallId>,
    /// The raw `result`, on one line.
    pub result: Bytes,
    /// The generation of the server that shaped it; `None` for what we rendered in the older shape.
    pub upstream: Option<Era>,
    /// The tool says that it failed.
    pub is_error: bool,
}
