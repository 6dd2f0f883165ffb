//! One server: callers hold its `handle`, `runner` owns its lifecycle, `link` is its open
//! connection with the calls that are `pending` on it. Calls never pass through the runner.
//! `profiles` has additional instances of the server, each for one client with capabilities;
//! `server_requests` has the requests that servers send to clients.

pub(crate) mod assemble;
pub(crate) mod attempts;
pub(crate) mod catalog;
pub(crate) mod fair;
pub(crate) mod handle;
pub(crate) mod handshake;
pub(crate) mod link;
pub(crate) mod listing;
pub(crate) mod logs;
pub(crate) mod pending;
pub(crate) mod profiles;
pub(crate) mod retry_budget;
pub(crate) mod runner;
pub(crate) mod server_requests;
pub(crate) mod status;
pub(crate) mod topics;
pub(crate) mod usage_history;
pub(crate) mod waiting;
