//! The gateway behind one URL, its REST API and its command line.
//!
//! # Layout
//!
//! `config` reads the configuration, `data_folder` keeps files next to the database, `app` builds,
//! serves and drains, `http` is shared by all routes, `mcp` and `api` are the routes, `cli` has one
//! file per verb. The servers are run by `gantry-engine`.

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod data_folder;
pub mod example;
pub mod http;
pub mod mcp;
