//! Runs a command tree that cannot outlive its owner, within limits. Knows nothing of MCP.
//!
//! ```text
//!  gateway ──exec──► A  outer init: makes the namespaces, forks B as the gateway's own child, ends
//!     │ control socket (job and commands down, records up; its end is the end of the tree)
//!     ├───────────────► B  resident init: PID 1 of the tree. Forks C, reaps, passes TERM on,
//!     │                 │  ends with C, on command, or when the gateway is gone (also by kill -9)
//!     │                 └─► C  the server: joins its cgroups, drops privileges, Landlock, seccomp,
//!     └═ stdin, stdout, stderr ═► C     exec. The data pipes go straight to it, not through B
//! ```
//!
//! When B ends, the kernel kills whatever else the tree forked, `setsid` and double forks included.
//! Where the host denies namespaces A stays, as the subreaper of the tree, and does B's part as well
//! as it can. The init (`init/`) is a static program of a few pages without a standard library,
//! compiled by `build.rs` and executed from a sealed memory file.
//!
//! With [`Root::Own`] B first builds a root in memory, step by step as the job says, and enters it; the
//! host's is gone then. A gateway that is root also makes a user namespace with ids of the tree's own,
//! which C enters last. With [`Runtime::GVisor`] C becomes `runsc run`, which serves that root, and ends
//! once its guest kernel, then a child of B, runs the program.
//!
//! [`Sandbox::probe`] finds out what the host allows; [`Sandbox::spawn`] runs a [`Command`]; its
//! [`Report`] says of every protection whether it holds, and how or why not. Nothing is dropped in
//! silence.

mod command;
mod error;
mod exit;
mod report;
mod root;

#[cfg(gantry_init)]
mod cgroup;
#[cfg(gantry_init)]
mod control;
#[cfg(gantry_init)]
mod floor;
#[cfg(gantry_init)]
mod gvisor;
mod hidden;
#[cfg(gantry_init)]
mod host;
#[cfg(gantry_init)]
mod host_parts;
#[cfg(gantry_init)]
mod image;
#[cfg(gantry_init)]
mod inside;
#[cfg(gantry_init)]
mod job;
#[cfg(gantry_init)]
mod landlock;
#[cfg(gantry_init)]
mod launch;
#[cfg(gantry_init)]
mod meter;
#[cfg(gantry_init)]
mod own;
#[cfg(gantry_init)]
mod plan;
#[cfg(gantry_init)]
mod procfs;
#[cfg(gantry_init)]
mod promises;
#[cfg(gantry_init)]
#[path = "../init/protocol.rs"]
mod protocol;
#[cfg(gantry_init)]
mod queues;
#[cfg(gantry_init)]
mod reaper;
#[cfg(gantry_init)]
mod sandbox;
#[cfg(gantry_init)]
mod search;
#[cfg(gantry_init)]
mod seccomp;
#[cfg(gantry_init)]
mod steps;
#[cfg(gantry_init)]
mod tree;

#[cfg(not(gantry_init))]
mod plain;

pub use command::{Command, Floor, GVisor, Ids, Limits, Network, Profile, Runtime, Syscalls};
pub use error::{SandboxError, SpawnError};
pub use exit::{Exit, Usage};
#[cfg(gantry_init)]
pub use gvisor::GVisorProof;
pub use hidden::Hidden;
#[cfg(gantry_init)]
pub use inside::Inside;
#[cfg(gantry_init)]
pub use meter::Meter;
#[cfg(not(gantry_init))]
pub use plain::{GVisorProof, Inside, Meter, Sandbox, Tree};
pub use report::{HostFact, HostReport, Promise, PromiseState, Report};
pub use root::{ImageUser, ImageUserError, Mount, MountKind, OwnRoot, Root, RootBase, Scratch};
#[cfg(gantry_init)]
pub use sandbox::Sandbox;
#[cfg(gantry_init)]
pub use tree::Tree;

use tokio::net::unix::pipe::{Receiver, Sender};

/// The options of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// Names the cgroup directory, `gantry-<instance>`: the same over restarts of one gateway.
    pub instance: String,
}

/// A running command and its three pipes.
#[derive(Debug)]
pub struct Spawned {
    /// The processes; dropping it kills them all.
    pub tree: Tree,
    /// Writes to the server's standard input.
    pub stdin: Sender,
    /// Reads the server's standard output.
    pub stdout: Receiver,
    /// Reads the server's standard error.
    pub stderr: Receiver,
    /// Which protections are enforced and which are not, and why.
    pub report: Report,
}
