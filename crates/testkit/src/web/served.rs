//! A test server that runs and is reached over HTTP, as a test holds it: ended with the handle, and
//! with the test's process if that dies first.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// A running server.
#[derive(Debug)]
pub struct Served {
    /// Where it is reached.
    pub url: String,
    child: Child,
}

impl Served {
    /// Starts a program that says its URL on the first line and ends with its stdin.
    pub fn start(argv: &[String]) -> Self {
        let mut child = Command::new(&argv[0])
            .args(&argv[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{argv:?}: {error}"));
        let mut url = String::new();
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        BufReader::new(stdout)
            .read_line(&mut url)
            .expect("a pipe can be read");
        assert!(!url.is_empty(), "{argv:?} ended without a URL");
        let url = url.trim_end().to_owned();
        Self { url, child }
    }

    /// Returns host and port.
    pub fn authority(&self) -> &str {
        let rest = self.url.strip_prefix("http://").unwrap_or(&self.url);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}
