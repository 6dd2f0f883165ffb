//! One server: `handle` is what callers hold, `runner` owns its lifecycle, `link` is its open
//! connection with the calls that are `pending` on it. Calls never pass through the runner. A server
//! has further lives in `profiles`, each for one client that can be asked; what they ask is the matter
//! of `server_requests`.

pub(crate) mod assemble;
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
pub(crate) mod waiting;
