//! What the person who runs Gantry wants: flags, variables and `mcpServers` files become values here.
//!
//! The environment is read in `env` and nowhere else; files are read in `file`. Nothing here starts
//! or opens anything but the named files. Entry points: [`env::Environment`] and [`file::read`].

pub mod clients;
pub mod env;
pub mod expand;
pub mod file;

mod entry;
