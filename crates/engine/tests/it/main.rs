//! The engine as a library: what an agent author embeds, without the gateway.

mod changes;
mod native;
