//! The protections that are required before a program runs: checked before the start as far as the
//! host is known, and enforced by the init, which runs nothing if a step fails.
//!
//! Entry points: [`check`] before the start, [`failure`] for a step that the init reports as
//! failed.

use std::io;

use crate::cgroup::{Cgroups, Controller, Group};
use crate::command::{Command, Floor, Network, Runtime};
use crate::error::SpawnError;
use crate::host::{Host, NEW_IPC, NEW_MOUNT, NEW_NETWORK, NEW_PID};
use crate::plan::Plan;
use crate::protocol::{
    FLAG_WHOLE, Record, STAGE_CGROUP, STAGE_CGROUP_NAMESPACE, STAGE_HOST_NAME, STAGE_LANDLOCK,
    STAGE_RLIMIT, STAGE_SECCOMP,
};
use crate::root::Root;

/// Returns the job flags for the required protections.
pub(crate) fn flags(command: &Command) -> u32 {
    match command.floor {
        Floor::None => 0,
        Floor::Whole => FLAG_WHOLE,
    }
}

/// Refuses a command whose required protections are not available.
pub(crate) fn check(
    host: &Host,
    cgroups: &Cgroups,
    command: &Command,
    plan: &Plan,
    group: &Group,
) -> Result<(), SpawnError> {
    if command.floor == Floor::None {
        return Ok(());
    }
    let mut missing = Vec::new();
    if command.root == Root::Host {
        missing.push("root (a separate root was not requested)".to_owned());
    }
    let of_host = |fact: &str| {
        let fact = host.report.fact(fact).filter(|fact| !fact.available);
        fact.map_or("denied at this start", |fact| fact.detail.as_str())
    };
    for (namespace, name, fact) in [
        (NEW_PID, "tree", "pid namespace"),
        (NEW_MOUNT, "root", "mount namespace"),
        (NEW_IPC, "ipc", "ipc namespace"),
        (NEW_NETWORK, "network", "network namespace"),
    ] {
        let granted = namespace == NEW_NETWORK && command.network == Network::Full;
        if !plan.mode.has(namespace) && !granted {
            missing.push(format!("{name} (no {fact}: {})", of_host(fact)));
        }
    }
    if command.runtime == Runtime::Kernel {
        if plan.job.filters.is_empty() {
            missing.push(format!("syscalls (seccomp: {})", of_host("seccomp")));
        }
        if plan.job.landlock_handled == [0; 3] {
            missing.push(format!("filesystem (Landlock: {})", of_host("landlock")));
        }
    }
    let limits = &command.limits;
    for (controller, asked) in [
        (Controller::Memory, limits.memory_bytes.is_some()),
        (Controller::Cpu, limits.cpu.is_some()),
        (Controller::Pids, limits.pids.is_some()),
    ] {
        // A limit that the host cannot enforce at all is only reported; any other must be in
        // effect.
        if asked
            && cgroups.describe(controller).is_ok()
            && let Err(why) = group.outcome(controller)
        {
            missing.push(format!("{controller} ({why})"));
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(SpawnError::NotWhole {
            missing: missing.join(", "),
        }),
    }
}

/// Converts a failed step of the init into an error, if it was a required protection.
pub(crate) fn failure(command: &Command, record: Record) -> Option<SpawnError> {
    let (name, how) = match record.stage {
        STAGE_SECCOMP => ("syscalls", "seccomp"),
        STAGE_LANDLOCK => ("filesystem", "Landlock"),
        STAGE_CGROUP => ("limits", "it cannot join its cgroup"),
        STAGE_CGROUP_NAMESPACE => ("root", "no cgroup namespace"),
        STAGE_RLIMIT => ("limits", "a limit of its processes cannot be set"),
        STAGE_HOST_NAME => ("root", "its host name cannot be set"),
        _ => return None,
    };
    let source = io::Error::from_raw_os_error(record.value);
    (command.floor == Floor::Whole).then(|| SpawnError::NotWhole {
        missing: format!("{name} ({how}: {source})"),
    })
}
