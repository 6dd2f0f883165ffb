//! Requests of servers that clients answer: of the handshake era on a stream, with responses that the
//! client posts (`open`); of the stateless era as `input_required`, while the call is suspended until the
//! client comes back (`suspended`). Entry points: [`OpenRequests`], [`SuspendedCalls`].

mod open;
mod suspended;

pub(super) use self::open::{OpenRequests, RequestGuard};
pub(super) use self::suspended::SuspendedCalls;
