//! What the clients' story tells of one server: what they call, read and get, and what comes of it.

use serde_json::{Value, json};

use super::Behind;

/// Names as the gateway exposes them, and what they are given; `clients/story.py` and `story.mjs` read it.
pub(super) struct Plot {
    /// A tool that gives back what it is given.
    pub(super) call: (&'static str, Value),
    pub(super) called: &'static str,
    /// A call that ends in an error of the tool's.
    pub(super) error: (&'static str, Value),
    /// How what it says ends.
    pub(super) failed: &'static str,
    /// A call that takes its time and reports [`REPORTS`].
    pub(super) slow: (&'static str, Value),
    pub(super) slept: &'static str,
    /// One that takes a minute, and reports soon.
    pub(super) long: (&'static str, Value),
    pub(super) resource: &'static str,
    /// How what is read begins.
    pub(super) read: &'static str,
    pub(super) prompt: (&'static str, Value),
    pub(super) prompted: &'static str,
}

/// How far the slow call is, and of how much.
pub(super) const REPORTS: [(f64, f64); 3] = [(1.0, 3.0), (2.0, 3.0), (3.0, 3.0)];

impl Plot {
    /// Returns the plot that fits a server called `a`.
    pub(super) fn of(behind: Behind) -> Self {
        match behind {
            Behind::Peer | Behind::PythonHttp | Behind::PythonSse | Behind::Made(..) => {
                Self::ours()
            }
            Behind::EverythingHttp | Behind::EverythingSse => Self::everything(),
        }
    }

    /// Of our own peer; the servers made with an SDK have the same names.
    fn ours() -> Self {
        Self {
            call: ("a__echo", json!({"text": "hello"})),
            called: "hello",
            error: ("a__fail", json!({"message": "as asked"})),
            failed: "as asked",
            slow: ("a__slow", json!({"ms": 300, "progress": 3})),
            slept: "slept 300 ms",
            long: ("a__slow", json!({"ms": 60_000, "progress": 600})),
            resource: "test://static-text",
            read: "the static text",
            prompt: ("a__with_arguments", json!({"a": "hello"})),
            prompted: "Say hello.",
        }
    }

    /// Of the reference server for everything.
    fn everything() -> Self {
        let slow = "a__trigger-long-running-operation";
        let nowhere = json!({"name": "a.gz", "data": "ftp://nowhere/", "outputType": "resource"});
        Self {
            call: ("a__echo", json!({"message": "hello"})),
            called: "Echo: hello",
            error: ("a__gzip-file-as-resource", nowhere),
            failed: "Only http, https, and data URLs are supported.",
            slow: (slow, json!({"duration": 0.3, "steps": 3})),
            slept: "Long running operation completed. Duration: 0.3 seconds, Steps: 3.",
            long: (slow, json!({"duration": 60, "steps": 600})),
            resource: "demo://resource/static/document/features.md",
            read: "# Everything Server - Features",
            prompt: ("a__args-prompt", json!({"city": "Berlin"})),
            prompted: "What's weather in Berlin?",
        }
    }

    /// Returns the plot as the clients take it.
    pub(super) fn told(&self) -> String {
        let plot = json!({
            "call": self.call,
            "error": self.error,
            "slow": self.slow,
            "long": self.long,
            "resource": self.resource,
            "prompt": self.prompt,
        });
        plot.to_string()
    }

    /// Returns the name that the server itself gives a tool.
    pub(super) fn own(exposed: &str) -> &str {
        exposed.strip_prefix("a__").unwrap_or(exposed)
    }
}
