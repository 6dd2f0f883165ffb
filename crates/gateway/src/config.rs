//! What the person who runs Gantry wants: flags, variables and files become values here.
//!
//! The environment is read in `env` and nowhere else. A file becomes a `document` of values with their
//! places, `file` finds the servers in it, `entry` makes a spec of each. Nothing here starts anything.

pub mod document;
pub mod entry;
pub mod env;
pub mod expand;
pub mod file;
pub mod mistake;
