//! Errors of starting a tree or creating the sandbox.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program is not on the search path, or its path does not exist.
    #[error("program `{program}` not found (searched {searched})")]
    ProgramNotFound {
        /// The program as given.
        program: String,
        /// Where it was searched.
        searched: String,
    },
    /// The program exists but cannot be executed.
    #[error("program `{program}` cannot be executed")]
    ProgramNotExecutable {
        /// The path of the program.
        program: String,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The program is a script or binary whose interpreter does not exist.
    #[error("the interpreter of program `{program}` does not exist")]
    InterpreterMissing {
        /// The path of the program.
        program: String,
    },
    /// The working directory does not exist.
    #[error("working directory `{cwd}` does not exist")]
    CwdMissing {
        /// The directory as given.
        cwd: PathBuf,
    },
    /// The working directory cannot be entered.
    #[error("working directory `{cwd}` cannot be entered")]
    Cwd {
        /// The directory as given.
        cwd: PathBuf,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// A writable path does not exist or cannot be accessed.
    #[error("writable path `{path}` cannot be used")]
    Writable {
        /// The path as given.
        path: PathBuf,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// This host does not support a separate root; the host's root is never used instead.
    #[error("this host does not support a separate root: {why}")]
    NoOwnRoot {
        /// The reason.
        why: String,
    },
    /// A required protection is missing, so the program was not started.
    #[error("required protections are missing: {missing}")]
    NotWhole {
        /// The missing protections, each with its reason.
        missing: String,
    },
    /// An invalid mount target in a separate root.
    #[error(
        "`{target}` is not a valid mount target: expected an absolute path without `..`, and not `/`"
    )]
    Target {
        /// The path as given.
        target: PathBuf,
    },
    /// An image has no layers, or more than the kernel supports.
    #[error("an image with {count} layers cannot be mounted: expected 1 to 500")]
    Layers {
        /// The number of layers.
        count: usize,
    },
    /// A step of building the root failed.
    #[error("cannot {step}")]
    Root {
        /// The failed step.
        step: String,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The user does not exist in the image.
    #[error("user `{user}` is not in the image, or its number is above 65,535")]
    UserUnknown {
        /// The user as given.
        user: String,
    },
    /// The runtime cannot be used.
    #[error("`{program}` cannot run servers: {why}")]
    Runtime {
        /// The path of the runtime.
        program: PathBuf,
        /// The reason.
        why: String,
    },
    /// A string that cannot be passed to a process.
    #[error("{what} contains a NUL byte, or a variable's name is empty or contains `=`")]
    InvalidText {
        /// The kind of string: program, argument, variable, path.
        what: &'static str,
    },
    /// A mandatory step of the setup failed.
    #[error("cannot {step}")]
    Setup {
        /// The failed step.
        step: &'static str,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The init did not report in time.
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

/// Why the sandbox could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The init could not be loaded into memory.
    #[error("cannot load the init into memory")]
    Image(#[source] io::Error),
    /// The thread that reaps ended trees could not be started.
    #[error("cannot start the thread that reaps ended processes")]
    Reaper(#[source] io::Error),
    /// The test tree could not be started.
    #[error("cannot start a test process tree")]
    Probe(#[source] SpawnError),
}
