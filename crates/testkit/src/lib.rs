//! The parts of Gantry's tests: a scripted MCP server (`evilpeer`), the server that the conformance
//! suites expect (`fixture`), an authorization server (`authserver`), a generator of process trees
//! (`treegen`), databases ([`postgres`]), a proxy that can be cut ([`cut`]), and readers of
//! `/proc`. Plain threads without a runtime keep the crate quick to compile. [`image`] builds
//! images of it, and [`registry`] pushes them to a real registry. Start at [`Evilpeer`],
//! [`fixture`], [`procs`] and [`journal`].

pub mod authserver;
pub mod bin;
pub mod cut;
pub mod deny;
pub mod fixture;
pub mod image;
pub mod journal;
pub mod mcp_registry;
pub mod otlp;
pub mod peer;
pub mod postgres;
pub mod probes;
pub mod procs;
pub mod proof;
pub mod registry;
pub mod syslog;
pub mod tree;
pub mod wait;
pub mod web;

mod signals;

pub use authserver::{AuthOptions, AuthServer, IssuerSaid};
pub use peer::{Era, Evilpeer};
pub use web::{Kind, Served};
