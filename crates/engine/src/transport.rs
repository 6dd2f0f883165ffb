//! How messages travel to and from a server. A transport moves whole lines or events and knows
//! nothing of calls, of lifecycles, or of how the server came to life (that is `driver`).

pub(crate) mod events;
pub(crate) mod http;
mod pace;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod streamable_http;
