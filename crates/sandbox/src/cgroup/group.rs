//! The cgroups of one tree: limits, usage, whether a limit was hit, removal.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use tokio::time::Instant;

use super::Controller;
use super::hits::Hits;
use super::mounts::Version;
use super::parent::Parent;
use crate::command::Limits;
use crate::exit::Usage;

/// The period of CPU bandwidth control, in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// Version 1 limits socket buffers separately: to this fraction of the memory, but at least this
/// much.
const SOCKET_SHARE: u64 = 8;
const LEAST_SOCKET_BYTES: u64 = 4 << 20;
const SOCKET_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";
const SOCKET_USAGE: &str = "memory.kmem.tcp.usage_in_bytes";

/// The groups of one tree, one directory per hierarchy in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    dirs: Vec<Dir>,
    /// The result of each limit.
    outcomes: Vec<(Controller, Result<String, String>)>,
    /// The limit of the guest's processes, which a runtime enforces itself.
    guest_pids: Option<u64>,
    /// Shared by all clones, so that the end of the tree sees every earlier reading of the
    /// counters.
    hits: Arc<Mutex<Hits>>,
}

/// The processes of gVisor itself, and how many it has for each guest process.
const RUNTIME_PROCESSES: u64 = 2;
const PER_GUEST: u64 = 2;
/// A guest with this many eighths of its processes counts as having reached its limit: its threads
/// are not visible.
const NEARLY: u64 = 6;

#[derive(Clone, Debug)]
struct Dir {
    path: PathBuf,
    version: Version,
    controllers: Vec<Controller>,
}

impl Group {
    /// Creates the tree's directory in one hierarchy and writes the limits of its controllers.
    pub(crate) fn add(&mut self, parent: &Parent, name: &str, limits: &Limits) {
        let asked: Vec<Controller> = parent
            .controllers
            .iter()
            .copied()
            .filter(|controller| match controller {
                Controller::Memory => limits.memory_bytes.is_some(),
                Controller::Cpu => limits.cpu.is_some(),
                Controller::Pids => limits.pids.is_some(),
            })
            .collect();
        if asked.is_empty() && parent.version == Version::V1 {
            return;
        }
        let path = parent.dir.join(name);
        if let Err(error) = fs::create_dir(&path) {
            for controller in asked {
                let reason = format!("cannot make the cgroup `{}`: {error}", path.display());
                self.outcomes.push((controller, Err(reason)));
            }
            return;
        }
        for controller in asked {
            let outcome = match set_limit(&path, parent.version, controller, limits) {
                Ok(more) => Ok(format!("cgroup {}{more}", parent.version)),
                Err(error) => Err(format!("cannot set it in `{}`: {error}", path.display())),
            };
            self.outcomes.push((controller, outcome));
        }
        let controllers = parent.controllers.clone();
        self.dirs.push(Dir {
            path,
            version: parent.version,
            controllers,
        });
    }

    /// Records why a controller is not available.
    pub(crate) fn refuse(&mut self, controller: Controller, reason: String) {
        self.outcomes.push((controller, Err(reason)));
    }

    /// Records that the tree could not join one of the directories, by its index in [`Self::join`].
    pub(crate) fn not_joined(&mut self, index: usize, error: &io::Error) {
        if index < self.dirs.len() {
            let dir = self.dirs.remove(index);
            for (controller, outcome) in &mut self.outcomes {
                if dir.controllers.contains(controller) {
                    *outcome = Err(format!("cannot join `{}`: {error}", dir.path.display()));
                }
            }
            // The directory is empty.
            if let Err(error) = fs::remove_dir(&dir.path) {
                tracing::debug!(cgroup = %dir.path.display(), %error, "cgroup stays");
            }
        }
    }

    /// Returns how a limit is enforced, or why it is not.
    pub(crate) fn outcome(&self, controller: Controller) -> Result<&str, &str> {
        let found = self.outcomes.iter().find(|(known, _)| *known == controller);
        match found {
            Some((_, Ok(how))) => Ok(how),
            Some((_, Err(reason))) => Err(reason),
            None => Err("the limit was not written"),
        }
    }

    /// Returns the directories of the tree.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.dirs.iter().map(|dir| dir.path.as_path())
    }

    /// Opens the files for joining: the directory of version 2, else `tasks`. A single-threaded
    /// process that writes `0` to `tasks` waits for no global lock; through `cgroup.procs` the
    /// first write after a while waits about 10 ms.
    pub(crate) fn join(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |dir: &Dir| match dir.version {
            Version::V2 => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(rustix::fs::open(&dir.path, flags, Mode::empty())?)
            }
            Version::V1 => open_for_writing(&dir.path.join("tasks")),
        };
        self.dirs.iter().map(open).collect()
    }

    /// Returns whether the first of [`Self::join`] is a directory. There is at most one, and it is
    /// first.
    pub(crate) fn starts_with_v2(&self) -> bool {
        self.dirs
            .first()
            .is_some_and(|dir| dir.version == Version::V2)
    }

    /// Opens the file that kills the whole group at once, if there is one.
    pub(crate) fn kill_switch(&self) -> Option<OwnedFd> {
        let dir = self.dirs.iter().find(|dir| dir.version == Version::V2)?;
        open_for_writing(&dir.path.join("cgroup.kill")).ok()
    }

    /// Kills every member.
    pub(crate) fn kill(&self) {
        for dir in &self.dirs {
            kill_members(&dir.path);
        }
    }

    /// Returns the usage of the tree; `None` for values that no cgroup counts here.
    pub(crate) fn usage(&self) -> (Option<Duration>, Option<u64>, Option<u64>) {
        let cpu = self.dirs.iter().find_map(|dir| {
            (dir.version == Version::V2)
                .then(|| field(&dir.path.join("cpu.stat"), "usage_usec"))
                .flatten()
                .map(Duration::from_micros)
        });
        let memory = self.holder(Controller::Memory).and_then(|dir| {
            let (current, cache) = match dir.version {
                Version::V2 => ("memory.current", "inactive_file"),
                Version::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
            };
            let current = number(&dir.path.join(current))?;
            let cache = field(&dir.path.join("memory.stat"), cache).unwrap_or(0);
            let sockets = match dir.version {
                Version::V2 => 0,
                Version::V1 => number(&dir.path.join(SOCKET_USAGE)).unwrap_or(0),
            };
            Some(current.saturating_sub(cache) + sockets)
        });
        let pids = self
            .holder(Controller::Pids)
            .and_then(|dir| number(&dir.path.join("pids.current")));
        // So that an old out-of-memory kill is not taken as the cause of a later exit.
        self.out_of_memory();
        self.out_of_processes();
        (cpu, memory, pids)
    }

    /// Returns whether a member was recently killed for running out of memory.
    pub(crate) fn out_of_memory(&self) -> bool {
        let kills = self.holder(Controller::Memory).and_then(|dir| {
            let file = match dir.version {
                Version::V2 => "memory.events",
                Version::V1 => "memory.oom_control",
            };
            field(&dir.path.join(file), "oom_kill")
        });
        let mut hits = self.hits.lock();
        hits.memory.observe(kills, Instant::now())
    }

    /// Records that a runtime limits its guest to this many processes.
    pub(crate) fn hold_guest(&mut self, pids: Option<u64>) {
        self.guest_pids = pids;
    }

    /// Returns how many processes the guest has, given the number in the tree; `None` without a
    /// guest.
    fn guests(&self, in_tree: u64) -> Option<u64> {
        let most = self.guest_pids?;
        let in_group = self.holder(Controller::Pids).and_then(|dir| {
            let members = fs::read_to_string(dir.path.join("cgroup.procs")).ok()?;
            u64::try_from(members.lines().count()).ok()
        });
        let all = in_group.unwrap_or(in_tree);
        let seen = all.saturating_sub(RUNTIME_PROCESSES) / PER_GUEST;
        // As long as the tree runs, the guest has at least one process.
        let guests = seen.max(all.min(1)).min(most);
        // The runtime refuses further processes without reporting it.
        let reached = u64::from(guests >= most.saturating_mul(NEARLY) / 8);
        self.hits
            .lock()
            .guests
            .observe(Some(reached), Instant::now());
        Some(guests)
    }

    /// Returns whether the limit of processes was reached recently.
    pub(crate) fn out_of_processes(&self) -> bool {
        let refusals = self
            .holder(Controller::Pids)
            .and_then(|dir| field(&dir.path.join("pids.events"), "max"));
        let mut hits = self.hits.lock();
        let now = Instant::now();
        let inside = hits.guests.observe(None, now);
        hits.pids.observe(refusals, now) || inside
    }

    /// Removes the directories and kills remaining members; returns whether all are removed.
    pub(crate) fn remove(&mut self) -> bool {
        self.dirs.retain(|dir| match fs::remove_dir(&dir.path) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(_) => {
                kill_members(&dir.path);
                true
            }
        });
        self.dirs.is_empty()
    }

    fn holder(&self, controller: Controller) -> Option<&Dir> {
        self.dirs
            .iter()
            .find(|dir| dir.controllers.contains(&controller))
    }
}

impl Usage {
    /// Replaces values by those that the cgroups count.
    pub(crate) fn prefer(&mut self, group: &Group) {
        let (cpu, memory, pids) = group.usage();
        self.cpu = cpu.unwrap_or(self.cpu);
        self.memory_bytes = memory.unwrap_or(self.memory_bytes);
        let guests = group.guests(self.pids);
        self.pids = guests.or(pids).unwrap_or(self.pids);
        self.pids_limit_hit = group.out_of_processes();
    }
}

/// Writes one limit into a group; returns a remark for the report.
pub(super) fn set_limit(
    dir: &Path,
    version: Version,
    controller: Controller,
    limits: &Limits,
) -> io::Result<String> {
    let plain = |()| String::new();
    let put = |file: &str, text: String| write(&dir.join(file), &text);
    match controller {
        Controller::Memory => {
            let bytes = limits.memory_bytes.unwrap_or(u64::MAX);
            let (limit, swap, swap_limit) = match version {
                Version::V2 => ("memory.max", "memory.swap.max", 0),
                Version::V1 => (
                    "memory.limit_in_bytes",
                    "memory.memsw.limit_in_bytes",
                    bytes,
                ),
            };
            put(limit, bytes.to_string())?;
            // The file is missing if the kernel does not count swap.
            let unswapped = match put(swap, swap_limit.to_string()) {
                Err(_) if super::has_swap() => "; swap does not count",
                _ => "",
            };
            match version {
                Version::V1 => {
                    let sockets = (bytes / SOCKET_SHARE).max(LEAST_SOCKET_BYTES);
                    put(SOCKET_LIMIT, sockets.to_string())?;
                    let sockets = sockets >> 20;
                    Ok(format!(
                        ", and {sockets} MiB for the buffers of sockets{unswapped}"
                    ))
                }
                Version::V2 if !super::sockets_are_charged() => {
                    let why = "the kernel was started with `cgroup.memory=nosocket`, \
                        so buffers of sockets do not count";
                    Err(io::Error::new(io::ErrorKind::Unsupported, why))
                }
                Version::V2 => Ok(unswapped.to_owned()),
            }
        }
        Controller::Cpu => {
            let quota = (limits.cpu.unwrap_or(1.0) * CPU_PERIOD as f64).max(1_000.0) as u64;
            match version {
                Version::V2 => put("cpu.max", format!("{quota} {CPU_PERIOD}")).map(plain),
                Version::V1 => {
                    put("cpu.cfs_period_us", CPU_PERIOD.to_string())?;
                    put("cpu.cfs_quota_us", quota.to_string()).map(plain)
                }
            }
        }
        Controller::Pids => {
            let pids = limits.pids.unwrap_or(u64::MAX);
            put("pids.max", pids.to_string()).map(plain)
        }
    }
}

/// Kills the members of one group; returns how many there were.
pub(super) fn kill_members(dir: &Path) -> usize {
    let members = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let members: Vec<Pid> = members
        .lines()
        .filter_map(|line| line.parse().ok().and_then(Pid::from_raw))
        .collect();
    if !members.is_empty() && write(&dir.join("cgroup.kill"), "1").is_err() {
        for pid in &members {
            if let Ok(pidfd) = pidfd_open(*pid, PidfdFlags::empty())
                && let Err(error) = pidfd_send_signal(&pidfd, Signal::KILL)
            {
                tracing::debug!(pid = pid.as_raw_nonzero(), %error, "cannot end a member");
            }
        }
    }
    members.len()
}

/// Writes to a control file, which must exist.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let file = open_for_writing(path)?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

fn open_for_writing(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Reads the number after a key in a file of `key number` lines.
fn field(path: &Path, key: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.lines().find_map(|line| {
        line.split_once(' ')
            .filter(|(name, _)| *name == key)?
            .1
            .trim()
            .parse()
            .ok()
    })
}
