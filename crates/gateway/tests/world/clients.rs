//! Must show 3 of the surfaces: clients of other makers, over HTTP and over `gantry stdio`, each doing
//! everything: list, call, error, progress, cancel, resource, prompt.
//!
//! The Python clients tell one story (`clients/story.py`); the Inspector is asked step by step.

mod adk;
mod inspector;
mod python;

use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;

use crate::harness::{Gantry, PROGRAM};
use crate::remote::Remote;

/// How a client reaches the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Http,
    /// As the first protocol version has it.
    Sse,
    Stdio,
}

/// What stands behind the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// Our peer, over its pipes.
    Peer,
    /// A server of the Python SDK, over streamable HTTP.
    Http,
    /// The same over HTTP+SSE.
    Sse,
}

/// A gateway with one server, `a`.
struct Stage {
    gantry: Gantry,
    /// Ends after the gateway.
    _remote: Option<Remote>,
}

impl Stage {
    fn set() -> Self {
        Self::before(Behind::Peer)
    }

    fn before(behind: Behind) -> Self {
        let remote = match behind {
            Behind::Peer => None,
            Behind::Http => Some(Remote::python("streamable-http")),
            Behind::Sse => Some(Remote::python("sse")),
        };
        let gantry = match &remote {
            None => Gantry::builder().server("a", &Evilpeer::new()).start(),
            Some(remote) => Gantry::builder().entry("a", remote.entry.clone()).start(),
        };
        gantry.wait_state("a", "ready", Duration::from_secs(60));
        Self {
            gantry,
            _remote: remote,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.gantry.authority)
    }

    fn sse_url(&self) -> String {
        format!("http://{}/sse", self.gantry.authority)
    }

    /// Returns the command that a client starts which only starts programs.
    fn command(&self) -> Vec<String> {
        let data = self.gantry.data();
        let data = data.to_str().unwrap();
        [PROGRAM, "stdio", "--no-start", "--data", data]
            .map(str::to_owned)
            .to_vec()
    }

    /// Waits until the record says that the long call was taken back, and that nothing else was.
    fn was_cancelled(&self) {
        let mut rows = Vec::new();
        let told = eventually(Duration::from_secs(20), || {
            rows = self.gantry.audit_rows("server=a&status=cancelled");
            !rows.is_empty()
        });
        assert!(told.is_some(), "no call was taken back");
        assert_eq!(rows.len(), 1, "{rows:#?}");
        assert_eq!(rows[0]["tool"], "slow");
    }
}
