//! Why a tree could not be started, or the sandbox not be made: what failed, on what.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a command does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program is nowhere on the search path, or its path leads nowhere.
    #[error("program `{program}` not found (searched {searched})")]
    ProgramNotFound {
        /// The program as it was given.
        program: String,
        /// Where it was looked for.
        searched: String,
    },
    /// The program is there but may not or cannot be executed.
    #[error("program `{program}` cannot be executed")]
    ProgramNotExecutable {
        /// The file that was found.
        program: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The program is a script or binary whose interpreter does not exist.
    #[error("the interpreter of program `{program}` does not exist")]
    InterpreterMissing {
        /// The file that was found.
        program: String,
    },
    /// The working directory does not exist.
    #[error("working directory `{cwd}` does not exist")]
    CwdMissing {
        /// The directory as it was given.
        cwd: PathBuf,
    },
    /// The working directory cannot be entered.
    #[error("working directory `{cwd}` cannot be entered")]
    Cwd {
        /// The directory as it was given.
        cwd: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A path that should be writable does not exist or cannot be reached.
    #[error("writable path `{path}` cannot be used")]
    Writable {
        /// The path as it was given.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// This host cannot give a root of the tree's own, and the host's is never given instead.
    #[error("this host cannot give a server a root of its own: {why}")]
    NoOwnRoot {
        /// What is missing.
        why: String,
    },
    /// A protection is missing that must hold before the program runs. It has not run.
    #[error("not everything holds that must hold before it runs: {missing}")]
    NotWhole {
        /// Which protections, each with the reason.
        missing: String,
    },
    /// A place in a root of the tree's own is none.
    #[error(
        "`{target}` is no place in a root: expected an absolute path without `..`, and not `/`"
    )]
    Target {
        /// The path as it was given.
        target: PathBuf,
    },
    /// An image has no layers, or more than the kernel puts together.
    #[error("{count} layers make no root: expected 1 to 500")]
    Layers {
        /// How many there are.
        count: usize,
    },
    /// Part of a root of the tree's own cannot be made.
    #[error("cannot {step}")]
    Root {
        /// What was being done, and with what.
        step: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The user is not known in the tree's own root.
    #[error("user `{user}` is not in the image, or its number is above 65,535")]
    UserUnknown {
        /// The user as it was given.
        user: String,
    },
    /// The runtime is not what it should be.
    #[error("`{program}` cannot run servers: {why}")]
    Runtime {
        /// The runtime.
        program: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A string holds what no process can be given.
    #[error("{what} holds a NUL byte, or a variable's name is empty or holds `=`")]
    InvalidText {
        /// Which string: program, argument, variable, path.
        what: &'static str,
    },
    /// One step of the set-up failed, and going on without it would be wrong.
    #[error("cannot {step}")]
    Setup {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The init said nothing for too long.
    #[error("the init did not report within {waited:?}")]
    Silent {
        /// How long was waited.
        waited: Duration,
    },
    /// The init ended before the program ran.
    #[error("the init ended before the program ran")]
    Ended,
    /// The runtime is shutting down.
    #[error("the runtime is shutting down")]
    Stopped,
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The init could not be put into memory.
    #[error("cannot hold the init in memory")]
    Image(#[source] io::Error),
    /// The thread that collects ended trees could not be started.
    #[error("cannot start the thread that collects ended processes")]
    Reaper(#[source] io::Error),
    /// The throw-away tree did not run.
    #[error("cannot run a throw-away process tree")]
    Probe(#[source] SpawnError),
}
