//! The store through its public door: `suite` runs on every kind of store, `sqlite` on the file itself,
//! `postgres` on the server, `copy` from one to the other.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod copy;
mod harness;
mod postgres;
mod sqlite;
mod suite;
