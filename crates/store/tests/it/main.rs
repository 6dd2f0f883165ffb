//! The store through its public door: `suite` runs on every kind of store, `sqlite` on the file itself.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod harness;
mod sqlite;
mod suite;
