//! The command line of an `evilpeer`, for tests to hand to whatever starts servers.

use std::path::Path;

use super::faults::Faults;
use super::options::Era;
use crate::bin;
use crate::web::{Kind, Served};

/// Builds the argument vector of an `evilpeer`: `Evilpeer::new().fault("noise").argv()`.
#[derive(Clone, Debug, Default)]
pub struct Evilpeer {
    arguments: Vec<String>,
    tree: Option<String>,
}

impl Evilpeer {
    /// Starts with a well-behaved peer of both eras.
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses which protocol generations it speaks.
    #[must_use]
    pub fn era(self, era: Era) -> Self {
        self.flag("--era", era.name())
    }

    /// Sets the name in its `serverInfo`.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.flag("--name", name)
    }

    /// Sets the version in its `serverInfo`.
    #[must_use]
    pub fn version(self, version: &str) -> Self {
        self.flag("--version", version)
    }

    /// Adds filler tools `tool_0001` and so on.
    #[must_use]
    pub fn tools(self, count: usize) -> Self {
        self.flag("--tools", &count.to_string())
    }

    /// Pages `tools/list` by that many.
    #[must_use]
    pub fn page(self, size: usize) -> Self {
        self.flag("--page", &size.to_string())
    }

    /// Has it record every executed call in this file; see [`crate::journal`].
    #[must_use]
    pub fn journal(self, path: &Path) -> Self {
        self.flag(
            "--journal",
            path.to_str().expect("a journal's path is UTF-8"),
        )
    }

    /// Adds a fault, `name` or `name=argument`; panics if there is no such fault.
    #[must_use]
    pub fn fault(self, fault: &str) -> Self {
        if let Err(mistake) = Faults::default().add(fault) {
            panic!("{mistake}");
        }
        self.flag("--fault", fault)
    }

    /// Lets the first calls pass without faults.
    #[must_use]
    pub fn fault_after(self, calls: u64) -> Self {
        self.flag("--fault-after", &calls.to_string())
    }

    /// Ends the faults after that many calls they hit.
    #[must_use]
    pub fn fault_calls(self, calls: u64) -> Self {
        self.flag("--fault-calls", &calls.to_string())
    }

    /// Lets faults in replies hit the replies to all methods, not only to `tools/call`.
    #[must_use]
    pub fn everywhere(mut self) -> Self {
        self.arguments.push("--everywhere".into());
        self
    }

    /// Seeds the faults that are random.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.flag("--seed", &seed.to_string())
    }

    /// Starts it over HTTP.
    pub fn serve(&self, kind: Kind) -> Served {
        let mut argv = self.argv();
        let own = argv.len() - self.arguments.len();
        let http = ["http", "--kind", kind.name(), "--until-eof"];
        argv.splice(own..own, http.map(str::to_owned));
        Served::start(&argv)
    }

    /// Makes it the first process of a marked tree of five; see [`crate::tree`].
    #[must_use]
    pub fn in_tree(mut self, marker: &str) -> Self {
        self.tree = Some(marker.into());
        self
    }

    /// Returns the arguments without the program.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns program and arguments, building the program if need be.
    pub fn argv(&self) -> Vec<String> {
        let path = |program: std::path::PathBuf| {
            program
                .into_os_string()
                .into_string()
                .expect("the target directory's path is UTF-8")
        };
        let mut argv = Vec::new();
        if let Some(marker) = &self.tree {
            argv.push(path(bin::treegen()));
            argv.extend(["--marker".into(), marker.clone(), "--exec".into()]);
        }
        argv.push(path(bin::evilpeer()));
        argv.extend_from_slice(&self.arguments);
        argv
    }

    fn flag(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([name.into(), value.into()]);
        self
    }
}
