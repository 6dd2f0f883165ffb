//! What every error of Gantry can say about itself: a stable code, whose fault it is, what to do.
//!
//! `code` is documented and never changes its meaning. `fault` decides the HTTP status and the
//! JSON-RPC code, in the gateway's `http/error.rs` and nowhere else. `hint` is printed last.

/// Who can mend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Whoever called us: the request is wrong or not allowed.
    Client,
    /// The MCP server behind us: it is down, late or talks nonsense.
    Server,
    /// We ourselves, or the machine we run on.
    Gateway,
}

/// An error that tells its code, whose fault it is, and what to do about it.
pub trait Diagnose: std::error::Error {
    /// Returns the stable, documented code, such as `start.spawn`.
    fn code(&self) -> &'static str;

    /// Returns who can mend it.
    fn fault(&self) -> Fault;

    /// Returns the server that it is about, if it is about one.
    fn server(&self) -> Option<&str> {
        None
    }

    /// Returns what to do about it, if that can be said.
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
