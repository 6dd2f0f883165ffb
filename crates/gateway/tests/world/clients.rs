//! Must show 3 of the surfaces and 4 of the upstreams: clients of other makers, over HTTP, HTTP+SSE and
//! `gantry stdio`, each doing everything: list, call, error, progress, cancel, resource, prompt; before
//! our own peer and before servers of other makers.
//!
//! The clients made with an SDK tell one story (`clients/story.py`, `clients/story.mjs`); the Inspector is
//! asked step by step, and agents use what they are offered.

mod adk;
mod agents;
mod asks;
mod inspector;
mod mcp_remote;
mod others;
mod plot;
mod python;
pub(crate) mod story;
pub(crate) mod typescript;

use std::cell::Cell;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;

use self::plot::Plot;
use crate::harness::{Gantry, PROGRAM};
use crate::made::{Kit, Made, Over};
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
    PythonHttp,
    /// The same over HTTP+SSE.
    PythonSse,
    /// The reference server for everything, over streamable HTTP.
    EverythingHttp,
    /// The same over HTTP+SSE.
    EverythingSse,
    /// A server made with an SDK.
    Made(Kit, Over),
}

/// A gateway with one server, `a`, before which stories are told one after the other.
struct Stage {
    gantry: Gantry,
    plot: Plot,
    /// How many long calls were taken back so far.
    taken_back: Cell<usize>,
    /// Ends after the gateway.
    _behind: (Option<Remote>, Option<Made>),
}

impl Stage {
    fn set() -> Self {
        Self::before(Behind::Peer)
    }

    fn before(behind: Behind) -> Self {
        let remote = match behind {
            Behind::Peer | Behind::Made(..) => None,
            Behind::PythonHttp => Some(Remote::python("streamable-http")),
            Behind::PythonSse => Some(Remote::python("sse")),
            Behind::EverythingHttp => Some(Remote::everything("streamableHttp", Some("http"))),
            Behind::EverythingSse => Some(Remote::everything("sse", Some("sse"))),
        };
        let made = if let Behind::Made(kit, over) = behind {
            Some(Made::with(kit, over))
        } else {
            None
        };
        let gantry = match (&remote, &made) {
            (Some(Remote { entry, .. }), _) | (_, Some(Made { entry, .. })) => {
                Gantry::builder().entry("a", entry.clone()).start()
            }
            (None, None) => Gantry::builder().server("a", &Evilpeer::new()).start(),
        };
        gantry.wait_state("a", "ready", Duration::from_secs(60));
        Self {
            gantry,
            plot: Plot::of(behind),
            taken_back: Cell::new(0),
            _behind: (remote, made),
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

    /// Returns how a client reaches the gateway, as [`story::Client::tells`] takes it.
    fn link(&self, way: Way) -> Vec<String> {
        let key = &self.gantry.agent;
        match way {
            Way::Http => vec!["http".to_owned(), self.url(), key.clone()],
            Way::Sse => vec!["sse".to_owned(), self.sse_url(), key.clone()],
            Way::Stdio => [vec!["stdio".to_owned()], self.command()].concat(),
        }
    }

    /// Waits until the record says that one more long call was taken back, and that nothing else was.
    fn was_cancelled(&self) {
        let before = self.taken_back.get();
        let mut rows = Vec::new();
        let told = eventually(Duration::from_secs(20), || {
            rows = self.gantry.audit_rows("server=a&status=cancelled");
            rows.len() > before
        });
        assert!(told.is_some(), "no call was taken back");
        assert_eq!(rows.len(), before + 1, "{rows:#?}");
        let long = Plot::own(self.plot.long.0);
        assert!(rows.iter().all(|row| row["tool"] == long), "{rows:#?}");
        self.taken_back.set(before + 1);
    }
}
