//! The limits of a project's callers: `rates` counts calls and bytes against the limits of keys,
//! agents and the project; `callers` counts the agents that may call, so that slots of servers are
//! kept free for others. Each gateway counts its own calls.

mod callers;
mod rates;

pub(crate) use self::callers::CallerCount;
pub use self::rates::LimitExceeded;
pub(crate) use self::rates::{CallLimits, LimitPermit};
