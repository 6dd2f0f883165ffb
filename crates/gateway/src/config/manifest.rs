//! Server manifests of the MCP registry, `server.json` (schema 2025-12-11): parsed strictly, and
//! converted into the entry of a server that Gantry can run.
//!
//! A manifest is untrusted: nothing of it reaches a shell, packages and images must match a
//! pattern, and it gets no access to this machine. Reads no files and sends no requests. `document`
//! parses it, `offer` converts each package and remote with `command` and `image`, `inputs` has the
//! values that the user must enter. Entry points: [`Manifest::parse`] and [`Manifest::offers`].

mod command;
mod document;
mod image;
mod inputs;
mod offer;
mod reader;

pub use self::document::{Manifest, NAME_HELP, is_server_name};
pub use self::inputs::{Answers, Input, Question, Slot};
pub use self::offer::{Kind, Offer, Offered};
pub use self::reader::Wrong;

#[cfg(test)]
mod tests;
