//! Where the programs of other makers are, and how they are run: with a bound, their words kept.
//!
//! `.ci/world` brings them; a part that is missing fails the test that needs it, and says so. Entry
//! points: the paths, and [`run`].

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// Longer than any of them takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a file of a part.
pub(crate) fn part(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("target/world").join(path);
    assert!(
        file.exists(),
        "`{}` is missing: run `.ci/world`",
        file.display()
    );
    file.canonicalize().unwrap()
}

/// Returns a file that stands beside these tests.
pub(crate) fn beside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/world")
        .join(path)
}

/// The part with the SDKs, servers and frameworks that come from npm.
pub(crate) const NPM: &str = "npm";

/// Returns the Node that the clients and suites need.
pub(crate) fn node_path() -> PathBuf {
    part("node/node_modules/node/bin/node")
}

/// Returns a command of that Node on a script of a part.
pub(crate) fn node(script: &str) -> Command {
    node_on(&part(script))
}

/// Returns a command of that Node on a script that stands beside these tests.
pub(crate) fn node_beside(script: &str) -> Command {
    node_on(&beside(script))
}

fn node_on(script: &Path) -> Command {
    let node = node_path();
    let mut path = OsString::from(node.parent().unwrap());
    path.push(":/usr/local/bin:/usr/bin:/bin");
    let mut command = Command::new(node);
    command.arg(script).env("PATH", path);
    command
}

/// A program of somebody else's that runs; killed with this value, and with it what it started, as
/// `npx` does the server.
pub(crate) struct Running {
    child: Child,
    kept: TempDir,
}

/// What a program said, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    /// Starts it with a home of its own and nothing to read.
    pub(crate) fn start(command: &mut Command) -> Self {
        let kept = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(kept.path().join(name)).unwrap();
        let child = command
            .env("HOME", kept.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .process_group(0)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, kept }
    }

    /// Returns what it said so far.
    pub(crate) fn said(&self) -> String {
        let said = |name: &str| fs::read_to_string(self.kept.path().join(name)).unwrap_or_default();
        said("stdout") + &said("stderr")
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        let mut status = None;
        let ended = eventually(PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let said = |name: &str| fs::read_to_string(self.kept.path().join(name)).unwrap_or_default();
        let (stdout, stderr) = (said("stdout"), said("stderr"));
        assert!(
            ended.is_some(),
            "it still runs after {PATIENCE:?}:\n{stdout}\n{stderr}"
        );
        let code = status.and_then(|status| status.code());
        Ran {
            code,
            stdout,
            stderr,
        }
    }

    /// Kills it, as a person does who has waited long enough.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only while it is not reaped is its number certainly its own.
        if let Ok(None) = self.child.try_wait() {
            let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                kill_process_group(group, Signal::KILL).ok();
            }
            drop(self.child.wait());
        }
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    Running::start(command).end()
}
