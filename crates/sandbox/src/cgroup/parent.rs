//! The gateway's directory in one hierarchy, `gantry-<instance>`, which holds one group per tree.
//!
//! The directory is locked while the gateway runs. If it can be locked, it belongs to a dead
//! instance: its processes are killed and it is removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::Controller;
use super::group::{kill_members, write};
use super::mounts::{Hierarchy, Version};

const PREFIX: &str = "gantry-";
/// The leaf to which this process moves, since version 2 forbids processes beside child groups.
const LEAF: &str = "supervisor";
const ATTEMPTS: usize = 100;
/// How often, and at which interval, the removal is retried while processes are dying.
const LATER_ATTEMPTS: usize = 200;
const LATER: Duration = Duration::from_millis(50);

/// The gateway's directory in one hierarchy.
#[derive(Debug)]
pub(crate) struct Parent {
    pub(crate) version: Version,
    pub(crate) dir: PathBuf,
    /// The controllers that groups below `dir` can use.
    pub(crate) controllers: Vec<Controller>,
    /// The controllers that they cannot use, and why.
    pub(crate) refused: Vec<(Vec<Controller>, String)>,
    _lock: File,
}

impl Parent {
    /// Creates the directory, or returns why that is not possible.
    pub(crate) fn open(
        hierarchy: &Hierarchy,
        instance: &str,
        wanted: &[Controller],
    ) -> Result<Self, String> {
        let mut refused = Vec::new();
        let (base, controllers) = match hierarchy.version {
            Version::V1 => (hierarchy.own.clone(), wanted.to_vec()),
            Version::V2 => enable_somewhere(hierarchy, wanted, &mut refused),
        };
        sweep(&base);
        let (dir, lock) = take(&base, instance)
            .map_err(|error| format!("cannot make a cgroup in `{}`: {error}", base.display()))?;
        let mut usable = controllers;
        if hierarchy.version == Version::V2 {
            usable.retain(|controller| match enable(&dir, *controller) {
                Ok(()) => true,
                Err(error) => {
                    let reason = format!("cannot enable it in `{}`: {error}", dir.display());
                    refused.push((vec![*controller], reason));
                    false
                }
            });
        }
        Ok(Self {
            version: hierarchy.version,
            dir,
            controllers: usable,
            refused,
            _lock: lock,
        })
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // Fails while a tree is still running there; the next start cleans up.
        if let Err(error) = fs::remove_dir(&self.dir) {
            tracing::debug!(directory = %self.dir.display(), %error, "cgroup stays");
        }
    }
}

/// Finds the version 2 group with the most usable controllers: the process's own group, or for root
/// the top.
fn enable_somewhere(
    hierarchy: &Hierarchy,
    wanted: &[Controller],
    refused: &mut Vec<(Vec<Controller>, String)>,
) -> (PathBuf, Vec<Controller>) {
    let own = match hierarchy.own.file_name() {
        Some(name) if name == LEAF => hierarchy.own.parent().unwrap_or(&hierarchy.own).to_owned(),
        _ => hierarchy.own.clone(),
    };
    let mut best = (own.clone(), Vec::new());
    for base in [&own, &hierarchy.mount] {
        let mut usable = Vec::new();
        for controller in wanted {
            match enable(base, *controller).or_else(|error| {
                step_aside(base)
                    .and_then(|()| enable(base, *controller))
                    .map_err(|_| error)
            }) {
                Ok(()) => usable.push(*controller),
                Err(error) => {
                    let reason = format!("cannot enable it in `{}`: {error}", base.display());
                    refused.push((vec![*controller], reason));
                }
            }
        }
        if usable.len() > best.1.len() {
            best = (base.clone(), usable);
        }
        if best.1.len() == wanted.len() || own == hierarchy.mount {
            break;
        }
    }
    best
}

/// Enables a controller for the children of a version 2 group.
pub(super) fn enable(group: &Path, controller: Controller) -> io::Result<()> {
    let lists = |file: &str| -> io::Result<bool> {
        let listed = fs::read_to_string(group.join(file))?;
        Ok(listed
            .split_whitespace()
            .any(|name| name == controller.name()))
    };
    if lists("cgroup.subtree_control")? {
        return Ok(());
    }
    if !lists("cgroup.controllers")? {
        let missing = "the controller is not in `cgroup.controllers`";
        return Err(io::Error::new(io::ErrorKind::NotFound, missing));
    }
    write(
        &group.join("cgroup.subtree_control"),
        &format!("+{controller}"),
    )
}

/// Moves this process to a leaf of its own group if it is alone there, as delegation requires.
fn step_aside(group: &Path) -> io::Result<()> {
    let members = fs::read_to_string(group.join("cgroup.procs"))?;
    let own = std::process::id().to_string();
    if members.trim() != own {
        return Err(io::Error::from(io::ErrorKind::ResourceBusy));
    }
    let leaf = group.join(LEAF);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    write(&leaf.join("cgroup.procs"), &own)
}

/// Creates and locks the directory; a second gateway of the same name uses another name.
fn take(base: &Path, instance: &str) -> io::Result<(PathBuf, File)> {
    let name = format!("{PREFIX}{}", super::safe_name(instance));
    let candidates = [
        base.join(&name),
        base.join(format!("{name}.{}", std::process::id())),
    ];
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    // Another gateway's cleanup may remove a directory before it is locked: try again.
    for dir in candidates.iter().cycle().take(ATTEMPTS) {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match File::open(dir).and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            fs::metadata(dir)?;
            Ok(lock)
        }) {
            Ok(lock) => return Ok((dir.clone(), lock)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Kills and removes the leftovers of dead instances. Processes that take time to die are removed
/// later: the kernel may need a while for a large process, and the gateway does not wait.
fn sweep(base: &Path) {
    for dir in subdirectories(base) {
        let ours = dir
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        let Ok(lock) = File::open(&dir) else { continue };
        if !ours || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        if (0..ATTEMPTS).any(|_| remove_dead(&dir).is_ok()) {
            tracing::info!(cgroup = %dir.display(), "removed the leftovers of a dead gateway");
            continue;
        }
        let later = move || {
            for _ in 0..LATER_ATTEMPTS {
                std::thread::sleep(LATER);
                if remove_dead(&dir).is_ok() {
                    return;
                }
            }
            let error = remove_dead(&dir).err();
            tracing::warn!(cgroup = %dir.display(), ?error, "cgroup stays");
            drop(lock);
        };
        let begun = std::thread::Builder::new().name("cgroup-sweep".to_owned());
        if let Err(error) = begun.spawn(later) {
            tracing::warn!(%error, "cgroups of a dead gateway cannot be removed");
        }
    }
}

/// Kills the members of a dead instance's groups and removes the groups that are empty.
fn remove_dead(dir: &Path) -> io::Result<()> {
    for group in subdirectories(dir) {
        if kill_members(&group) > 0 || fs::remove_dir(&group).is_err() {
            std::thread::yield_now();
        }
    }
    fs::remove_dir(dir)
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}
