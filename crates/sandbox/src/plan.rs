//! Plans one tree: turns a command and the host's features into a job for the init.
//!
//! Only decides; `promises.rs` reports the actual result.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getegid, geteuid, getrlimit};

use crate::cgroup::{Controller, Group};
use crate::command::{Command, Network, Profile};
use crate::error::SpawnError;
use crate::hidden::Hidden;
use crate::host::{Host, Mode, NEW_MOUNT, NEW_NETWORK, NEW_PID};
use crate::job::{Job, Kept, PrivateDir};
use crate::landlock;
use crate::protocol::{
    FLAG_LOOPBACK, FLAG_MOUNT_PROC, KEEP_ID, Record, STAGE_CAPABILITIES, STAGE_CWD, STAGE_EXEC,
    STAGE_FORK, STAGE_ID_MAP, STAGE_INTERPRETER, STAGE_LOOKUP, STAGE_PIVOT, STAGE_PRIVATE_DIR,
    STAGE_PRIVILEGES, STAGE_PROPAGATION, STAGE_RANGE, STAGE_RECEIVE, STAGE_ROOT, STAGE_STEP,
    STAGE_UNSHARE, STAGE_USER,
};
use crate::root::Root;
use crate::search::{candidates, search_path};
use crate::seccomp::{self, Filters, Sockets};

mod own_root;

pub(crate) use own_root::OwnPlan;

/// The user ids of hosted trees: `FIRST_UID + hash(name) % UIDS`.
pub(crate) const FIRST_UID: u32 = 61_000;
pub(crate) const UIDS: u32 = 4_000;

pub(crate) const RLIMIT_DATA: u32 = 2;
const RLIMIT_CORE: u32 = 4;
pub(crate) const RLIMIT_NPROC: u32 = 6;
pub(crate) const RLIMIT_NOFILE: u32 = 7;

/// The capabilities that a user's own server keeps if the gateway is root: for files, users and low
/// ports. chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service.
const ROOT_CAPABILITIES: u64 = 0b100_1111_1011;

/// The directories that hosted trees get empty private versions of, with their mount options.
const PRIVATE: [(&str, &str); 3] = [
    ("/tmp", "mode=1777,size=64m"),
    ("/dev/shm", "mode=1777,size=64m"),
    ("/run", "mode=755,size=1m"),
];
/// The mount options of the cover of a hidden directory.
const HIDDEN_OPTIONS: &str = "mode=755,size=1m";
/// The private directories in which the tree may write.
const PRIVATE_WRITABLE: [&str; 2] = ["/tmp", "/dev/shm"];

/// The user and privileges of the gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The permitted capabilities.
    pub(crate) capabilities: u64,
}

/// A job, and what is needed to report on it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) job: Job,
    pub(crate) mode: Mode,
    /// How many system calls the filters refuse.
    pub(crate) refused_calls: usize,
    /// How many system calls are allowed, with an allow list.
    pub(crate) allowed_calls: Option<usize>,
    /// Canonical writable paths that the tree's user cannot write to nevertheless.
    pub(crate) unwritable: Vec<PathBuf>,
    /// The memory limit of one process, if no cgroup limits the tree.
    pub(crate) data_limit: Option<u64>,
    /// The process limit of the tree's own user, if no cgroup counts them.
    pub(crate) process_limit: Option<u64>,
    /// The plan of its separate root, if it has one.
    pub(crate) own: Option<OwnPlan>,
}

impl Identity {
    /// Returns the identity of this process.
    pub(crate) fn current() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
        let capabilities = permitted.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        Self {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            capabilities: capabilities.unwrap_or(0),
        }
    }

    /// Returns the maps of a user namespace that keep the user and group ids.
    pub(crate) fn maps(self, mode: Mode) -> (String, String) {
        if mode.user {
            (
                format!("{0} {0} 1", self.uid),
                format!("{0} {0} 1", self.gid),
            )
        } else {
            (String::new(), String::new())
        }
    }
}

impl Plan {
    /// Plans a command.
    pub(crate) fn new(
        host: &Host,
        mode: Mode,
        command: &Command,
        hidden: &Hidden,
        group: &Group,
    ) -> Result<Self, SpawnError> {
        if let Root::Own(root) = &command.root {
            return Self::own(host, mode, command, root, hidden, group);
        }
        let hosted = command.profile == Profile::Hosted;
        let mut mode = mode;
        if command.network == Network::Full {
            mode.namespaces &= !NEW_NETWORK;
        }
        let offline = command.network != Network::Full;
        let sockets = if offline && !mode.has(NEW_NETWORK) {
            Sockets::LocalOnly
        } else {
            Sockets::Profile
        };
        let candidates = candidates(command);
        let uid = if hosted && host.own_user.is_ok() && !mode.user {
            FIRST_UID + hash(&command.name) % UIDS
        } else {
            KEEP_ID
        };
        let (uid_map, gid_map) = host.identity.maps(mode);
        let mut job = Job {
            unshare: mode.unshare(),
            uid_map,
            gid_map,
            uid,
            gid: uid,
            cwd: command.cwd.clone(),
            arguments: [&command.program]
                .into_iter()
                .chain(&command.args)
                .cloned()
                .collect(),
            environment: command.env.clone(),
            ..Job::default()
        };
        if mode.has(NEW_PID) && mode.has(NEW_MOUNT) {
            job.flags |= FLAG_MOUNT_PROC;
        }
        if mode.has(NEW_NETWORK) {
            job.flags |= FLAG_LOOPBACK;
        }
        if !hosted && host.identity.uid == 0 {
            job.kept_capabilities = ROOT_CAPABILITIES & host.identity.capabilities;
        }
        let mut unwritable = Vec::new();
        if hosted {
            unwritable = confine(host, mode, command, &candidates, &mut job)?;
        }
        if mode.has(NEW_MOUNT) {
            // After the private directories, which could otherwise show hidden ones again.
            let hidden = hidden_dirs(hidden, command, &candidates);
            job.private_dirs.extend(hidden);
            job.private_dirs.extend(cgroup_dirs(host, group));
        }
        let filters = filters(host, command, sockets)?;
        job.filters = filters.programs;
        job.candidates = candidates;
        let (data_limit, process_limit) = limits(command, mode, group, &mut job);
        Ok(Self {
            job,
            mode,
            refused_calls: filters.refused,
            allowed_calls: filters.allowed,
            unwritable,
            data_limit,
            process_limit,
            own: None,
        })
    }
}

/// Builds the filters of a command, if the host supports them.
fn filters(host: &Host, command: &Command, sockets: Sockets) -> Result<Filters, SpawnError> {
    if !host.seccomp {
        return Ok(Filters::default());
    }
    seccomp::filters(command.profile, command.syscalls, sockets).map_err(|error| {
        SpawnError::Setup {
            step: "build the system call filter",
            source: io::Error::other(error.to_string()),
        }
    })
}

/// Describes a stage of the init, to follow "cannot".
pub(crate) fn step(stage: u8) -> &'static str {
    match stage {
        STAGE_RECEIVE => "take over the job",
        STAGE_UNSHARE => "make the namespaces",
        STAGE_ID_MAP => "map the user into its namespace",
        STAGE_FORK => "fork",
        STAGE_PROPAGATION => "separate the mounts",
        STAGE_PRIVATE_DIR => "mount a private directory",
        STAGE_RANGE => "map the ids of the server",
        STAGE_ROOT | STAGE_STEP => "make the root",
        STAGE_LOOKUP => "look up the user",
        STAGE_PIVOT => "enter the root",
        STAGE_CAPABILITIES => "drop capabilities",
        STAGE_USER => "become the tree's own user",
        STAGE_PRIVILEGES => "renounce new privileges",
        _ => "set up the process",
    }
}

/// Converts a failed stage of the init into an error.
pub(crate) fn failure(command: &Command, record: Record) -> SpawnError {
    let source = io::Error::from_raw_os_error(record.value);
    let found = || {
        let index = usize::try_from(record.data).unwrap_or(0);
        let path = candidates(command).into_iter().nth(index);
        path.map_or_else(
            || command.program.clone(),
            |path| path.display().to_string(),
        )
    };
    match (record.stage, source.kind()) {
        (STAGE_CWD, io::ErrorKind::NotFound) => SpawnError::CwdMissing {
            cwd: command.cwd.clone(),
        },
        (STAGE_CWD, _) => SpawnError::Cwd {
            cwd: command.cwd.clone(),
            source,
        },
        (STAGE_INTERPRETER, _) => SpawnError::InterpreterMissing { program: found() },
        (STAGE_EXEC, io::ErrorKind::NotFound) => SpawnError::ProgramNotFound {
            program: command.program.clone(),
            searched: if command.program.contains('/') {
                format!("from `{}`", command.cwd.display())
            } else {
                format!("`{}`", search_path(command))
            },
        },
        (STAGE_EXEC, _) => SpawnError::ProgramNotExecutable {
            program: found(),
            source,
        },
        (stage, _) => SpawnError::Setup {
            step: step(stage),
            source,
        },
    }
}

/// Restricts the files of a hosted tree; returns the paths that its user cannot write to.
fn confine(
    host: &Host,
    mode: Mode,
    command: &Command,
    candidates: &[PathBuf],
    job: &mut Job,
) -> Result<Vec<PathBuf>, SpawnError> {
    let mut writable = Vec::new();
    let mut unwritable = Vec::new();
    for path in &command.writable {
        let failed = |source| SpawnError::Writable {
            path: path.clone(),
            source,
        };
        let canonical = fs::canonicalize(path).map_err(failed)?;
        if job.uid != KEEP_ID
            && !hand_over(&canonical, host.identity.uid, job.uid).map_err(failed)?
        {
            unwritable.push(canonical.clone());
        }
        writable.push(canonical);
    }
    let cwd = fs::canonicalize(&command.cwd).unwrap_or_else(|_| command.cwd.clone());
    let program = candidates
        .iter()
        .find_map(|candidate| fs::canonicalize(cwd.join(candidate)).ok());
    let resolver = match command.network {
        Network::Full => fs::canonicalize("/etc/resolv.conf")
            .ok()
            .and_then(|file| file.parent().map(Path::to_owned)),
        Network::None | Network::Inside => None,
    };
    // A server without its own folder runs in `/`, which must not make everything readable.
    let readable: Vec<&Path> = [Some(&cwd), program.as_ref(), resolver.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .filter(|path| *path != Path::new("/"))
        .collect();
    if host.private_dirs && mode.has(NEW_MOUNT) {
        job.private_dirs = private_dirs(&readable, &writable);
    }
    let own: Vec<PathBuf> = job
        .private_dirs
        .iter()
        .map(|directory| directory.target.clone())
        .filter(|target| PRIVATE_WRITABLE.iter().any(|own| target == Path::new(own)))
        .collect();
    let writable: Vec<&Path> = writable.iter().chain(&own).map(PathBuf::as_path).collect();
    let ruleset = landlock::ruleset(host.landlock_abi, &readable, &writable);
    job.landlock_handled = ruleset.handled;
    job.landlock_rules = ruleset.rules;
    Ok(unwritable)
}

/// Gives an empty directory of the gateway to the tree's user; returns whether that user can write
/// there.
fn hand_over(path: &Path, own_uid: u32, uid: u32) -> io::Result<bool> {
    let metadata = fs::metadata(path)?;
    let fresh = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if metadata.uid() == uid || metadata.mode() & 0o002 != 0 {
        return Ok(true);
    }
    if metadata.is_dir() && metadata.uid() == own_uid && fresh() {
        std::os::unix::fs::chown(path, Some(uid), Some(uid))?;
        return Ok(true);
    }
    Ok(false)
}

/// Returns the directories to cover, with the paths that stay visible below them.
fn private_dirs(readable: &[&Path], writable: &[PathBuf]) -> Vec<PrivateDir> {
    let needed = readable.iter().map(|path| (*path, false));
    let mut needed: Vec<(&Path, bool)> = needed
        .chain(writable.iter().map(|path| (path.as_path(), true)))
        .collect();
    // Outer before inner; of equal paths the writable one first.
    needed.sort_by_key(|(path, writable)| (path.as_os_str().len(), !writable));
    let mut directories = Vec::new();
    for (target, options) in PRIVATE {
        let target = PathBuf::from(target);
        let is_plain = fs::symlink_metadata(&target).is_ok_and(|metadata| metadata.is_dir());
        if !is_plain || needed.iter().any(|(path, _)| *path == target) {
            continue;
        }
        let mut kept: Vec<Kept> = Vec::new();
        for (path, writable) in &needed {
            let shown = |outer: &Kept| path.starts_with(&outer.path) && outer.writable >= *writable;
            if path.starts_with(&target) && path.exists() && !kept.iter().any(shown) {
                kept.push(Kept {
                    path: path.to_path_buf(),
                    writable: *writable,
                });
            }
        }
        directories.push(PrivateDir {
            target,
            hidden: false,
            options,
            kept,
        });
    }
    directories
}

/// Returns the directories that are covered only to hide them, with the tree's own paths kept
/// visible.
fn hidden_dirs(hidden: &Hidden, command: &Command, candidates: &[PathBuf]) -> Vec<PrivateDir> {
    let program = candidates.iter().find(|candidate| candidate.is_file());
    let home = command.env.iter().find(|(name, _)| name == "HOME");
    let wanted: Vec<&Path> = [Some(command.cwd.as_path()), program.map(PathBuf::as_path)]
        .into_iter()
        .chain([home.map(|(_, home)| Path::new(home))])
        .flatten()
        .collect();
    let kept = hidden.kept(&wanted);
    let directories = hidden.directories().into_iter();
    directories
        .map(|target| PrivateDir {
            kept: kept
                .iter()
                .filter(|path| path.starts_with(&target) && **path != target)
                .map(|path| Kept {
                    path: path.clone(),
                    // Its permissions there apply unchanged.
                    writable: true,
                })
                .collect(),
            target,
            hidden: true,
            options: HIDDEN_OPTIONS,
        })
        .collect()
}

/// Returns the covers of other cgroups: a process that can write there can escape its limits, or
/// freeze itself so that it cannot be killed. A tree's own cgroups stay readable: programs size
/// their memory by them.
fn cgroup_dirs(host: &Host, group: &Group) -> Vec<PrivateDir> {
    let cover = |mount: &PathBuf| PrivateDir {
        target: mount.clone(),
        hidden: true,
        options: HIDDEN_OPTIONS,
        kept: group
            .paths()
            .filter(|path| path.starts_with(mount) && *path != mount)
            .map(|path| Kept {
                path: path.to_owned(),
                writable: false,
            })
            .collect(),
    };
    host.cgroup_mounts.iter().map(cover).collect()
}

/// Sets the per-process limits; returns those that replace a missing cgroup.
fn limits(
    command: &Command,
    mode: Mode,
    group: &Group,
    job: &mut Job,
) -> (Option<u64>, Option<u64>) {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    job.limits = vec![
        (RLIMIT_CORE, 0),
        (RLIMIT_NOFILE, command.limits.nofile.min(most)),
    ];
    let unheld = |controller| group.outcome(controller).is_err();
    let data = command
        .limits
        .memory_bytes
        .filter(|_| unheld(Controller::Memory));
    // Reserved but unused address space counts, too: allow more.
    let data = data.map(|bytes| bytes.saturating_mul(4));
    // Counted per user and user namespace, so it equals the tree only with its own user or
    // namespace.
    let counted = mode.user || job.uid != KEEP_ID;
    let processes = command
        .limits
        .pids
        .filter(|_| counted && unheld(Controller::Pids));
    job.limits.extend(data.map(|bytes| (RLIMIT_DATA, bytes)));
    // The init counts as well.
    job.limits
        .extend(processes.map(|pids| (RLIMIT_NPROC, pids.saturating_add(1))));
    (data, processes)
}

/// FNV-1a: stable over versions and machines, so that a server keeps its user id.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests;
