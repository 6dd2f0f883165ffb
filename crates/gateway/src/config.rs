//! Configuration: flags, environment variables and files become values.
//!
//! Only `env` reads the environment. `document` parses a file and keeps the position of each value,
//! `file` finds the servers in it, `entry` turns each into a spec, `plan` merges all files. Nothing
//! is started here. Entry points: [`env::Environment`], [`source::discover`], [`plan::load`].

pub mod approval;
pub mod clients;
pub mod diagnostic;
pub mod docker_run;
pub mod document;
pub mod entry;
pub mod env;
pub mod expand;
pub mod file;
pub mod guarded;
pub mod inputs;
pub mod issuers;
pub mod manifest;
pub mod master_key;
pub mod otlp;
pub mod plan;
pub(crate) mod product;
pub mod removal;
pub mod schema;
pub mod settings;
pub mod siem;
pub mod source;
pub mod watch;
