//! Keeps this process's memory to itself: it holds keys and what servers were sent.
//!
//! No core dump is ever written, and no other process of the same user may attach to it or look into it
//! through `/proc`. Every verb is so, since every verb reads a key. Entry point: [`apply`].

use rustix::process::{Resource, Rlimit, setrlimit};

/// Forbids core dumps and looks into this process's memory.
pub(super) fn apply() {
    // Lowering a limit is always allowed.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).ok();
    // The init of a server's tree can be dumped again after its exec, as it must be to map its user.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).ok();
}
