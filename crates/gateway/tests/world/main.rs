//! The gateway among programs that we did not write: servers as people start them, clients of other
//! makers, and the conformance suites of the protocol.
//!
//! A second integration binary, since these take minutes and parts that `.ci/world` brings. The
//! harness is that of `it`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "../it"]
mod it {
    #[expect(
        dead_code,
        unused_imports,
        reason = "the harness offers the other binary more than is used here"
    )]
    pub(crate) mod harness;
}

mod clients;
mod conformance;
mod first_hour;
mod images;
mod judged;
mod made;
mod parts;
mod proxy;
mod remote;
mod resend;
mod servers;

use it::harness;
