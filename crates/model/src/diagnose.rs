//! The common interface of all errors of Gantry: a stable code, the responsible party, and a hint.
//!
//! `code` is documented and never changes its meaning. `fault` decides the HTTP status and the
//! JSON-RPC code, in the gateway's `http/error.rs` and nowhere else. `hint` is printed last.

/// The party that can fix an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The caller: the request is wrong or not allowed.
    Client,
    /// The MCP server: it is down, slow or violates the protocol.
    Server,
    /// The gateway, or its machine.
    Gateway,
}

/// An error with a code, a responsible party and a hint.
pub trait Diagnose: std::error::Error {
    /// Returns the stable, documented code, such as `start.spawn`.
    fn code(&self) -> &'static str;

    /// Returns the party that can fix it.
    fn fault(&self) -> Fault;

    /// Returns the server it concerns, if any.
    fn server(&self) -> Option<&str> {
        None
    }

    /// Returns what to do about it, if known.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// Returns an error's text with all its causes, for a log or an administrator.
pub fn chain(error: &(dyn std::error::Error + '_)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
