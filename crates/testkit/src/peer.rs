//! `evilpeer`, a scripted MCP server over stdio and HTTP: well-behaved by default, in both eras of
//! the protocol, with each fault of the fault table behind a flag. [`Evilpeer`] builds its command line
//! for a test; [`run`] is the program.

mod actions;
mod background;
mod builder;
mod calls;
mod content;
mod dispatch;
pub(crate) mod era;
mod faults;
mod flights;
mod garbage;
mod gate;
mod handshake;
mod help;
mod http;
mod listing;
mod mangle;
pub(crate) mod message;
mod options;
mod output;
mod random;
mod serve;
mod state;
mod timer;
mod tools;

pub use builder::Evilpeer;
pub use options::Era;
pub use serve::run;
