//! What Gantry serves: the gateway behind one URL, its REST API and its command line.
//!
//! # Layout
//! `config` reads what the person wants, `data_folder` keeps what a gateway keeps beside its database,
//! `app` builds, serves and drains, `http` is what every route shares, `mcp` and `api` are the routes,
//! `cli` has one file per verb. What runs is `gantry-engine`.

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod data_folder;
pub mod example;
pub mod http;
pub mod mcp;
