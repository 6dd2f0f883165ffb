//! Server manifests of the MCP registry, `server.json` (schema 2025-12-11): read strictly, and turned into
//! the entry of a server that Gantry can run.
//!
//! Whoever wrote a manifest is a stranger: nothing of it reaches a shell, names packages and images by
//! pattern only, and asks for no part of this machine. Reads no file and asks nobody. `document` is its
//! form, `offer` what each package and remote becomes, `command` and `image` how, `inputs` what a person is
//! asked for. Entry points: [`Manifest::parse`] and [`Manifest::offers`].

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
