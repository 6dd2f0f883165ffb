//! What Gantry serves: the gateway behind one URL, its REST API and its command line.
//!
//! # Layout
//! `config` reads what the person wants, `app` builds, serves and drains, `http` guards the door,
//! `mcp` and `api` are what is behind it, `cli` has one file per verb. What runs is `gantry-engine`.

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod example;
pub mod http;
pub mod mcp;
