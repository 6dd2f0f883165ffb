//! The test kit's own tests: `evilpeer` driven by pipe and over HTTP, and `treegen` counted in `/proc`.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test may panic as the test itself may"
)]

mod client;
mod faults;
mod handshake_faults;
mod legacy;
mod modern;
mod output_faults;
mod trees;
mod web;
