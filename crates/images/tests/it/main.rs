//! What whoever uses the image store meets.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod arena;
mod costs;
mod encrypted;
mod hostile;
mod hostile_registries;
mod import;
mod limits;
mod memory;
mod overlay;
mod owners;
mod puller;
mod pulls;
mod real_registry;
mod sample;
mod saved;
mod scripted;
mod tarball;

/// The gateway's own, since tests measure what pulls take.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
