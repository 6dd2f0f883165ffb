//! Limits a tree with cgroups, version 2 or 1, depending on where the host has each controller.
//!
//! [`Cgroups::open`] finds where the gateway may create its directory (`gantry-<instance>`) and
//! kills the leftovers of dead instances; [`Cgroups::create`] makes one [`Group`] per tree. Every
//! limit that is not possible is reported with its reason.

mod group;
mod hits;
mod mounts;
mod parent;

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use group::Group;
use mounts::{Version, hierarchies, tops};
use parent::Parent;

use crate::command::Limits;

/// A cgroup controller that Gantry uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Memory,
    Cpu,
    Pids,
}

/// The directories in which this gateway may create cgroups.
#[derive(Debug)]
pub(crate) struct Cgroups {
    parents: Vec<Parent>,
    /// Why a controller is not available.
    refused: Vec<(Controller, String)>,
    /// Why a limit cannot be set although its controller is available.
    unwritten: Vec<(Controller, String)>,
    /// Where cgroups are mounted.
    mounts: Vec<PathBuf>,
    sequence: AtomicU64,
}

impl Controller {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Cgroups {
    /// Creates the gateway's directory in every usable hierarchy.
    pub(crate) fn open(instance: &str) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mountinfo = read("/proc/self/mountinfo");
        let found = hierarchies(&mountinfo, &read("/proc/self/cgroup"));
        let mut parents: Vec<Parent> = Vec::new();
        let mut reasons: Vec<(Vec<Controller>, String)> = Vec::new();
        for hierarchy in &found {
            let free = |controller: &Controller| {
                !parents
                    .iter()
                    .any(|parent| parent.controllers.contains(controller))
            };
            // Version 2 comes first and is useful even without controllers: it counts CPU time and
            // kills a whole group at once.
            let wanted: Vec<Controller> =
                hierarchy.controllers.iter().copied().filter(free).collect();
            if wanted.is_empty() && hierarchy.version == Version::V1 {
                continue;
            }
            match Parent::open(hierarchy, instance, &wanted) {
                Ok(parent) => {
                    reasons.extend(parent.refused.clone());
                    parents.push(parent);
                }
                Err(reason) => reasons.push((wanted, reason)),
            }
        }
        let mut refused = Vec::new();
        for controller in Controller::ALL {
            if !parents
                .iter()
                .any(|parent| parent.controllers.contains(&controller))
            {
                // The last reason counts: version 1, if there is one, is what the host really uses.
                let reason = reasons
                    .iter()
                    .rfind(|(controllers, _)| controllers.contains(&controller))
                    .map_or("the host has no such cgroup controller", |(_, reason)| {
                        reason
                    });
                refused.push((controller, reason.to_owned()));
            }
        }
        let mut cgroups = Self {
            parents,
            refused,
            unwritten: Vec::new(),
            mounts: tops(&mountinfo),
            sequence: AtomicU64::new(0),
        };
        cgroups.unwritten = cgroups.try_limits();
        cgroups
    }

    /// Writes every limit once, into an empty group; returns which fail, and why.
    fn try_limits(&self) -> Vec<(Controller, String)> {
        let limits = Limits {
            cpu: Some(1.0),
            memory_bytes: Some(64 << 20),
            pids: Some(64),
            ..Limits::default()
        };
        let mut tried = self.create("probe", &limits);
        let offered = Controller::ALL.into_iter();
        let offered = offered.filter(|controller| self.describe(*controller).is_ok());
        let failed = offered.filter_map(|controller| {
            let why = tried.outcome(controller).err()?;
            Some((controller, why.to_owned()))
        });
        let failed = failed.collect();
        tried.remove();
        failed
    }

    /// Returns the directories below which cgroups are mounted. A process that can write there can
    /// escape its limits.
    pub(crate) fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// Returns how a controller is used here, or why it is not.
    pub(crate) fn describe(&self, controller: Controller) -> Result<String, String> {
        let mut unwritten = self.unwritten.iter();
        if let Some((_, why)) = unwritten.find(|(unwritten, _)| *unwritten == controller) {
            return Err(why.clone());
        }
        let holder = self
            .parents
            .iter()
            .find(|parent| parent.controllers.contains(&controller));
        match holder {
            Some(parent) => Ok(format!(
                "cgroup {} at `{}`",
                parent.version,
                parent.dir.display()
            )),
            None => Err(self
                .refused
                .iter()
                .find(|(refused, _)| *refused == controller)
                .map(|(_, reason)| reason.clone())
                .unwrap_or_default()),
        }
    }

    /// Creates the cgroups of one tree and sets its limits.
    pub(crate) fn create(&self, name: &str, limits: &Limits) -> Group {
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        let directory = format!("{}-{number}", safe_name(name));
        let mut group = Group::default();
        for parent in &self.parents {
            group.add(parent, &directory, limits);
        }
        for controller in Controller::ALL {
            if let Err(reason) = self.describe(controller) {
                group.refuse(controller, reason);
            }
        }
        group
    }
}

/// Returns whether version 2 counts socket buffers as memory, which is the kernel's default.
fn sockets_are_charged() -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let options = line
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("cgroup.memory="));
    !options
        .flat_map(|options| options.split(','))
        .any(|option| option == "nosocket")
}

/// Returns whether this host has swap.
fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1)
}

/// Returns a name that is safe as a directory name.
fn safe_name(name: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "_-".contains(c) {
            c
        } else {
            '_'
        }
    };
    name.chars().take(64).map(safe).collect()
}

#[cfg(test)]
mod tests;
