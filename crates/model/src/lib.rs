//! What things are in Gantry: values, and decisions over them.
//!
//! Nothing here performs I/O, reads a clock or knows tokio, so every decision can be tested
//! as a plain function. Only `jsonrpc`, `mcp`, `spec` and `event` are part of a wire or a stored
//! form; everything else reaches people through the gateway's own views.
#![warn(missing_docs)]

pub mod address_range;
pub mod backoff;
pub mod breaker;
pub mod caller;
pub mod diagnose;
pub mod era;
pub mod event;
pub mod event_stream;
pub mod grant;
pub mod hex;
pub mod hidden;
pub mod hook;
pub mod id;
pub mod jsonrpc;
pub mod limits;
pub mod mcp;
pub mod naming;
pub mod pin;
pub mod reconnect;
pub mod restart;
pub mod secret;
pub mod settings;
pub mod shape;
pub mod spec;
pub mod status;
pub mod suspension;
pub mod trace;
