//! Protects this process's memory, which holds keys and request data.
//!
//! Core dumps are disabled, and other processes of the same user cannot attach or read
//! `/proc/PID/mem`. Applies to every verb, since every verb reads a key. Entry point: [`apply`].

use rustix::process::{Resource, Rlimit, setrlimit};

/// Disables core dumps and attaching to this process.
pub(super) fn apply() {
    // Lowering a limit is always allowed.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).ok();
    // The init of a server's tree becomes dumpable again after its exec, as user mapping requires.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).ok();
}
