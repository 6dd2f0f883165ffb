//! The gateway as its users meet it: the real binary, over HTTP, MCP and the command line.
//!
//! One integration binary; each module proves rows of the requirements or faults of the catalogue.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too"
)]

mod administration;
mod asks;
mod audit_chain;
mod cli;
mod clients;
mod config;
mod durable_audit;
mod eras;
mod faults_auth;
mod faults_client;
mod faults_journal;
mod faults_process;
mod faults_stdio;
mod first_minute;
mod guarded;
mod harness;
mod hosting;
mod hosting_floor;
mod hosting_rest;
mod image_registry;
mod limits;
mod matrix;
mod mcp_registry;
mod oauth;
mod pins;
mod projects;
mod prompts;
mod proof;
mod rest;
mod rows_calls;
mod rows_lifecycle;
mod shapes;
mod shared_store;
mod siem;
mod store_away;
mod tenants;
mod tidy;
mod traces;
mod upstream;
