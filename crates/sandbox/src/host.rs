//! Probes what this host supports: starts test trees with every feature that might work.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::cgroup::{Cgroups, Controller, Group};
use crate::command::{Profile, Syscalls};
use crate::error::{SandboxError, SpawnError};
use crate::image::Image;
use crate::job::{Job, PrivateDir};
use crate::launch::{LaunchError, Notes, launch};
use crate::plan::{FIRST_UID, Identity, UIDS};
use crate::protocol::{
    FLAG_LOOPBACK, FLAG_MOUNT_PROC, FLAG_PROBE, KEEP_ID, STAGE_ID_MAP, STAGE_PRIVATE_DIR,
    STAGE_PROC, STAGE_SECCOMP, STAGE_UNSHARE,
};
use crate::reaper::Reaper;
use crate::report::HostReport;
use crate::seccomp::{self, Sockets};

pub(crate) const NEW_MOUNT: u32 = 0x0002_0000;
pub(crate) const NEW_UTS: u32 = 0x0400_0000;
pub(crate) const NEW_IPC: u32 = 0x0800_0000;
pub(crate) const NEW_USER: u32 = 0x1000_0000;
pub(crate) const NEW_PID: u32 = 0x2000_0000;
pub(crate) const NEW_NETWORK: u32 = 0x4000_0000;

const NAMESPACES: [(u32, &str); 4] = [
    (NEW_PID, "pid namespace"),
    (NEW_MOUNT, "mount namespace"),
    (NEW_IPC, "ipc namespace"),
    (NEW_NETWORK, "network namespace"),
];

mod reasons;
mod roots;

const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;

/// The supported features, as needed for planning a tree.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) mode: Mode,
    pub(crate) identity: Identity,
    pub(crate) landlock_abi: i32,
    pub(crate) seccomp: bool,
    pub(crate) private_dirs: bool,
    /// Where cgroups are mounted; no tree may write there.
    pub(crate) cgroup_mounts: Vec<PathBuf>,
    /// Whether hosted trees can run as a separate user.
    pub(crate) own_user: Result<(), String>,
    /// Whether trees can have a separate root.
    pub(crate) own_root: Result<(), String>,
    /// Whether trees can have a range of ids.
    pub(crate) id_range: Result<(), String>,
    pub(crate) report: HostReport,
}

/// The namespaces of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// `CLONE_NEW*` bits without the user namespace.
    pub(crate) namespaces: u32,
    /// Whether they require a user namespace.
    pub(crate) user: bool,
}

impl Mode {
    pub(crate) fn unshare(self) -> u32 {
        self.namespaces | if self.user { NEW_USER } else { 0 }
    }

    pub(crate) fn has(self, namespace: u32) -> bool {
        self.namespaces & namespace != 0
    }
}

impl Host {
    /// Probes what the host supports.
    pub(crate) fn probe(
        image: &Image,
        reaper: &Reaper,
        cgroups: &Cgroups,
    ) -> Result<Self, SandboxError> {
        let identity = Identity::current();
        let attempt = |mode| attempt(image, reaper, identity, mode);
        let (mode, notes, refusals) = best_mode(identity, attempt)?;
        let mut report = HostReport::default();
        report.add(
            "user namespace",
            if mode.user {
                Ok("around the others")
            } else if mode.namespaces != 0 {
                Ok("not needed: the gateway can create the others itself")
            } else {
                Err("useless without the others".to_owned())
            },
        );
        for (namespace, name) in NAMESPACES {
            let refusal = refusals.iter().find(|(refused, _)| *refused == namespace);
            report.add(
                name,
                match refusal {
                    Some((_, reason)) if !mode.has(namespace) => Err(reason.clone()),
                    _ => Ok("new for every tree"),
                },
            );
        }
        let mount_failure = |stage| match notes.failed(stage) {
            Some(error) => Err(error.to_string()),
            None if !mode.has(NEW_MOUNT) => Err("needs a mount namespace".to_owned()),
            None => Ok(()),
        };
        let private_dirs = mount_failure(STAGE_PRIVATE_DIR);
        report.add(
            "own /proc",
            mount_failure(STAGE_PROC).map(|()| "shows only the tree"),
        );
        report.add(
            "own /tmp",
            private_dirs.clone().map(|()| "for hosted trees"),
        );
        for (controller, name) in [
            (Controller::Memory, "memory limit"),
            (Controller::Cpu, "cpu limit"),
            (Controller::Pids, "pids limit"),
        ] {
            report.add(name, cgroups.describe(controller));
        }
        let abi = notes.landlock_abi;
        let landlock = if abi > 0 {
            Ok(format!("ABI {abi}"))
        } else {
            Err("not in this kernel".to_owned())
        };
        report.add("landlock", landlock);
        let seccomp = notes
            .failed(STAGE_SECCOMP)
            .map_or(Ok(()), |error| Err(error.to_string()));
        report.add(
            "seccomp",
            seccomp.clone().map(|()| "filters of system calls"),
        );
        let own_user = own_user(identity, mode);
        report.add("own user", own_user.clone().map(|()| "for hosted trees"));
        let roots = roots::probe(image, reaper, identity, mode, &own_user, &report);
        roots.describe(&mut report);
        Ok(Self {
            own_root: roots.own_root,
            id_range: roots.id_range,
            mode,
            identity,
            landlock_abi: abi,
            seccomp: seccomp.is_ok(),
            private_dirs: private_dirs.is_ok(),
            cgroup_mounts: cgroups.mounts().to_vec(),
            own_user,
            report,
        })
    }
}

type Attempt = Result<Notes, LaunchError>;
type Refusals = Vec<(u32, String)>;

/// Finds the largest set of namespaces that works, and why the others do not.
fn best_mode(
    identity: Identity,
    attempt: impl Fn(Mode) -> Attempt,
) -> Result<(Mode, Notes, Refusals), SandboxError> {
    let all = NAMESPACES
        .iter()
        .fold(0, |all, (namespace, _)| all | namespace);
    // Without a user namespace, only root can create namespaces.
    let ways: &[bool] = if identity.uid == 0 {
        &[false, true]
    } else {
        &[true]
    };
    for user in ways {
        let mode = Mode {
            namespaces: all,
            user: *user,
        };
        if let Ok(notes) = refused(attempt(mode))? {
            return Ok((mode, notes, Vec::new()));
        }
    }
    let mut refusals = Vec::new();
    for user in ways {
        let mut mode = Mode {
            namespaces: 0,
            user: *user,
        };
        refusals.clear();
        for (namespace, _) in NAMESPACES {
            match refused(attempt(Mode {
                namespaces: namespace,
                user: *user,
            }))? {
                Ok(_) => mode.namespaces |= namespace,
                Err(reason) => refusals.push((namespace, reason)),
            }
        }
        // The other namespaces are useful only with a PID namespace.
        if mode.has(NEW_PID)
            && let Ok(notes) = refused(attempt(mode))?
        {
            return Ok((mode, notes, refusals));
        }
    }
    for (namespace, _) in NAMESPACES {
        if !refusals.iter().any(|(refused, _)| *refused == namespace) {
            refusals.push((namespace, "useless without a PID namespace".to_owned()));
        }
    }
    match refused(attempt(Mode::default()))? {
        Ok(notes) => Ok((Mode::default(), notes, refusals)),
        Err(_) => Err(SandboxError::Probe(SpawnError::Ended)),
    }
}

/// Separates a refusal by the host from an internal error.
fn refused(outcome: Attempt) -> Result<Result<Notes, String>, SandboxError> {
    match outcome {
        Ok(notes) => Ok(Ok(notes)),
        Err(LaunchError::Step(record)) if matches!(record.stage, STAGE_UNSHARE | STAGE_ID_MAP) => {
            Ok(Err(reasons::of_namespaces(record.value)))
        }
        // With only some namespaces a later step may fail: also a refusal.
        Err(LaunchError::Step(record)) => Ok(Err(format!(
            "{}: {}",
            crate::plan::step(record.stage),
            io::Error::from_raw_os_error(record.value)
        ))),
        Err(LaunchError::Other(error)) => Err(SandboxError::Probe(error)),
    }
}

/// Starts and ends one test tree.
fn attempt(image: &Image, reaper: &Reaper, identity: Identity, mode: Mode) -> Attempt {
    let mut flags = FLAG_PROBE;
    if mode.has(NEW_MOUNT) && mode.has(NEW_PID) {
        flags |= FLAG_MOUNT_PROC;
    }
    if mode.has(NEW_NETWORK) {
        flags |= FLAG_LOOPBACK;
    }
    let filters = seccomp::filters(Profile::Hosted, Syscalls::AllowList, Sockets::Profile)
        .unwrap_or_default();
    let (uid_map, gid_map) = identity.maps(mode);
    let mut job = Job {
        flags,
        unshare: mode.unshare(),
        uid_map,
        gid_map,
        uid: KEEP_ID,
        gid: KEEP_ID,
        filters: filters.programs,
        cwd: "/".into(),
        ..Job::default()
    };
    if mode.has(NEW_MOUNT) {
        let target = "/tmp".into();
        job.private_dirs = vec![PrivateDir {
            target,
            hidden: false,
            options: "size=1m",
            kept: Vec::new(),
        }];
    }
    launch(image, reaper, &mut job, Group::default()).map(|running| running.notes)
}

/// Returns whether hosted trees can run as a separate user, or why not.
fn own_user(identity: Identity, mode: Mode) -> Result<(), String> {
    let needed = [CAP_SETUID, CAP_SETGID];
    if identity.uid != 0 {
        return Err(format!(
            "the gateway runs as uid {}, only root can assign another",
            identity.uid
        ));
    }
    if mode.user
        || needed
            .iter()
            .any(|cap| identity.capabilities >> cap & 1 == 0)
    {
        return Err("the gateway's root may not change users".to_owned());
    }
    let mapped =
        |file: &str| fs::read_to_string(file).is_ok_and(|map| maps_range(&map, FIRST_UID, UIDS));
    if mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map") {
        Ok(())
    } else {
        Err(format!("uids from {FIRST_UID} on are not mapped here"))
    }
}

/// Returns whether one line of a uid map (inside, outside, count) covers a range of ids.
fn maps_range(map: &str, first: u32, count: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line
            .split_whitespace()
            .map(|field| field.parse::<u64>().unwrap_or(0));
        let (start, _, length) = (fields.next(), fields.next(), fields.next());
        let (start, length) = (start.unwrap_or(0), length.unwrap_or(0));
        start <= u64::from(first) && start + length >= u64::from(first) + u64::from(count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_map_gives_no_own_user() {
        assert!(maps_range(
            "         0          0 4294967295\n",
            FIRST_UID,
            UIDS
        ));
        assert!(maps_range("0 1000 1\n1 100000 65536\n", FIRST_UID, UIDS));
        assert!(!maps_range("0 1000 1\n", FIRST_UID, UIDS));
        assert!(!maps_range("", FIRST_UID, UIDS));
    }
}
