//! Requests of servers to clients (sampling, elicitation, roots): in the handshake era on a stream,
//! with responses that the client posts (`open`); in the stateless era as `input_required`, with
//! the call suspended until the client returns (`suspended`). Entry points: [`OpenRequests`],
//! [`SuspendedCalls`].

mod open;
mod suspended;

pub(super) use self::open::{OpenRequests, RequestGuard};
pub(super) use self::suspended::SuspendedCalls;
