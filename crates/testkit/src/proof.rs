//! How often a heavy proof repeats itself: in full under `./test --profile proof`, less in `./test`.
//!
//! Both runs assert the same; only counts differ. The runner tells a test its profile in
//! `NEXTEST_PROFILE`; without it (plain `cargo test`) the reduced count is used.

/// Returns `full` in the profile `proof`, and `reduced` in every other.
pub fn count<T>(full: T, reduced: T) -> T {
    if is_full() { full } else { reduced }
}

/// Tells whether heavy proofs run in full.
#[expect(
    clippy::disallowed_methods,
    reason = "the runner's own variable; the product never reads it"
)]
pub fn is_full() -> bool {
    std::env::var("NEXTEST_PROFILE").is_ok_and(|profile| profile == "proof")
}
