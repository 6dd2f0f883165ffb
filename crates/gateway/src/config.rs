//! What the person who runs Gantry wants: flags, variables and files become values here.
//!
//! The environment is read in `env` and nowhere else. A file becomes a `document` of values with their
//! places, `file` finds the servers in it, `entry` makes a spec of each, `plan` joins all files. Nothing
//! here starts anything. Entry points: [`env::Environment`], [`source::discover`], [`plan::load`].

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

pub mod plan;
pub mod removal;
pub mod schema;
pub mod settings;
pub mod source;
pub mod watch;
