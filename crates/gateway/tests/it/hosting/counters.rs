//! What the kernel counts of a server in its cgroups, read from outside of the gateway; and cgroups that an
//! ordinary user's gateway may divide. Both forms of cgroups, as the host has them.
//!
//! Entry points: [`Counters::of`] and [`Delegated::new`].

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use serde_json::Value;

const MOUNT: &str = "/sys/fs/cgroup";
/// What the limits of a server need.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// Returns where cgroups of the second form are mounted.
fn second_form() -> PathBuf {
    let beside = Path::new(MOUNT).join("unified");
    if beside.is_dir() {
        beside
    } else {
        MOUNT.into()
    }
}

/// Returns the cgroup of a process for a controller, and whether that is of the first form.
fn group(of: &str, controller: &str) -> (PathBuf, bool) {
    let table = fs::read_to_string(format!("/proc/{of}/cgroup")).unwrap_or_default();
    let mut unified = PathBuf::new();
    for line in table.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next().unwrap(), parts.next().unwrap());
        let path = path.trim_start_matches('/');
        if !names.is_empty() && names.split(',').any(|name| name == controller) {
            return (Path::new(MOUNT).join(names).join(path), true);
        }
        if names.is_empty() {
            unified = second_form().join(path);
        }
    }
    (unified, false)
}

/// The cgroups of a server.
pub(super) struct Counters {
    groups: Vec<(&'static str, PathBuf, bool)>,
    second: PathBuf,
}

impl Counters {
    /// Finds those of the process that a status shows.
    pub(super) fn of(status: &Value) -> Self {
        let pid = status["pid"]
            .as_u64()
            .unwrap_or_else(|| panic!("{status:#}"));
        let found = CONTROLLERS.map(|controller| {
            let (path, is_first) = group(&pid.to_string(), controller);
            let name = path.display().to_string();
            assert!(name.contains("gantry-"), "no cgroup of its own: {name}");
            (controller, path, is_first)
        });
        Self {
            groups: found.into(),
            second: group(&pid.to_string(), "").0,
        }
    }

    /// Returns a number of a controller: the file in the first form, and in the second with its key.
    fn number(&self, controller: &str, first: &str, second: &str) -> Option<u64> {
        let found = self.groups.iter().find(|(name, ..)| *name == controller);
        let (_, path, is_first) = found?;
        let wanted = if *is_first { first } else { second };
        let (file, key) = wanted.split_once(' ').unwrap_or((wanted, ""));
        let text = fs::read_to_string(path.join(file)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse().ok()
    }

    /// Processor time used so far, in seconds; the second form counts it also where the first limits.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let text = fs::read_to_string(self.second.join("cpu.stat")).unwrap_or_default();
        let micros = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        let micros: Option<f64> = micros.and_then(|number| number.parse().ok());
        micros.expect("the kernel counts that") / 1e6
    }

    /// How often it had to wait since its share was used up.
    pub(super) fn throttled(&self) -> u64 {
        let found = self.number("cpu", "cpu.stat nr_throttled", "cpu.stat nr_throttled");
        found.expect("the kernel counts that")
    }

    /// The most memory that it had at a time, and how often it wanted more than it may have.
    pub(super) fn memory(&self) -> Option<(u64, u64)> {
        let most = self.number("memory", "memory.max_usage_in_bytes", "memory.peak")?;
        let refused = self.number("memory", "memory.failcnt", "memory.events max")?;
        Some((most, refused))
    }

    /// How often it was refused a process.
    pub(super) fn refused_processes(&self) -> Option<u64> {
        self.number("pids", "pids.events max", "pids.events max")
    }
}

/// Cgroups that belong to an ordinary user, gone with this value.
pub(super) struct Delegated {
    groups: Vec<PathBuf>,
    user: u32,
}

impl Delegated {
    /// Makes them.
    pub(super) fn new(user: u32) -> Self {
        let name = format!("test-{}-{user}", std::process::id());
        let mut groups = Vec::new();
        for controller in CONTROLLERS.into_iter().chain([""]) {
            let (own, is_first) = group("self", controller);
            let parent = if is_first { own } else { second_form() };
            let path = parent.join(&name);
            if groups.contains(&path) {
                continue;
            }
            if !is_first && !controller.is_empty() {
                let enable = parent.join("cgroup.subtree_control");
                let all = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
                fs::write(enable, all).unwrap();
            }
            fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mine = ["tasks", "cgroup.procs", "cgroup.subtree_control", ""];
            for file in mine
                .map(|file| path.join(file))
                .iter()
                .filter(|file| file.exists())
            {
                chown(file, Some(user), Some(user)).unwrap();
            }
            groups.push(path);
        }
        Self { groups, user }
    }

    /// Returns what enters them, becomes the user, and runs what follows.
    pub(super) fn wrapper(&self) -> Vec<String> {
        let entered: Vec<String> = self
            .groups
            .iter()
            .map(|group| format!("echo $$ > {}/cgroup.procs", group.display()))
            .collect();
        let user = self.user;
        let script = format!(
            "{} && exec setpriv --reuid={user} --regid={user} --clear-groups \"$@\"",
            entered.join(" && ")
        );
        ["sh", "-c", &script, "sh"].map(str::to_owned).into()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in &self.groups {
            let inner = fs::read_dir(group).into_iter().flatten().flatten();
            for gateway in inner.filter(|entry| entry.path().is_dir()) {
                for one in fs::read_dir(gateway.path()).into_iter().flatten().flatten() {
                    fs::remove_dir(one.path()).ok();
                }
                fs::remove_dir(gateway.path()).ok();
            }
            fs::remove_dir(group).ok();
        }
    }
}
