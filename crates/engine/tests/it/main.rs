//! The engine as a library: what an agent author embeds, without the gateway.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod changes;
mod library;
mod native;
mod projects;
