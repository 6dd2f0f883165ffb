//! Puts together what was promised to a tree and what became of it.

use crate::cgroup::{Controller, Group};
use crate::command::{Command, Network, Profile};
use crate::hidden::Hidden;
use crate::host::{Host, NEW_IPC, NEW_MOUNT, NEW_NETWORK, NEW_PID};
use crate::launch::Notes;
use crate::plan::{Plan, RLIMIT_DATA, RLIMIT_NOFILE, RLIMIT_NPROC};
use crate::protocol::{
    KEEP_ID, STAGE_HIDE, STAGE_LANDLOCK, STAGE_LOOPBACK, STAGE_PROC, STAGE_RLIMIT, STAGE_SECCOMP,
};
use crate::report::{
    PromiseState::{Enforced, NotAsked, NotEnforced},
    Report,
};

/// Everything that tells what a tree was given.
pub(crate) struct Given<'a> {
    pub(crate) command: &'a Command,
    pub(crate) hidden: &'a Hidden,
    pub(crate) host: &'a Host,
    pub(crate) plan: &'a Plan,
    pub(crate) group: &'a Group,
    pub(crate) notes: &'a Notes,
}

impl Given<'_> {
    /// Writes the report.
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::default();
        self.tree(&mut report);
        self.memory(&mut report);
        self.cpu(&mut report);
        self.pids(&mut report);
        self.filesystem(&mut report);
        self.data_folder(&mut report);
        self.syscalls(&mut report);
        self.network(&mut report);
        self.user(&mut report);
        report.add(
            "environment",
            Enforced,
            "exactly the variables given, nothing inherited",
        );
        let nofile = match self.limit_failure(RLIMIT_NOFILE) {
            None => format!("at most {} open", self.command.limits.nofile),
            Some(error) => format!("their number is not limited: {error}"),
        };
        report.add(
            "descriptors",
            Enforced,
            format!("only 0, 1 and 2 are inherited; {nofile}"),
        );
        self.privileges(&mut report);
        report
    }

    fn tree(&self, report: &mut Report) {
        if !self.plan.mode.has(NEW_PID) {
            let fact = self.host.report.fact("pid namespace");
            let why = fact.map_or("", |fact| fact.detail.as_str());
            let detail = format!(
                "ended by the resident init; not if the init itself is killed (no PID namespace: {why})"
            );
            return report.add("tree", NotEnforced, detail);
        }
        let mut detail = "PID namespace: ends with its init, whatever it forked".to_owned();
        if self.plan.mode.has(NEW_IPC) {
            detail.push_str("; own IPC namespace");
        }
        match self.notes.failed(STAGE_PROC) {
            None => detail.push_str("; own /proc"),
            Some(error) => detail.push_str(&format!("; the host's /proc is visible ({error})")),
        }
        report.add("tree", Enforced, detail);
    }

    fn memory(&self, report: &mut Report) {
        let Some(bytes) = self.command.limits.memory_bytes else {
            return report.add("memory", NotAsked, "no limit set");
        };
        let mebibytes = bytes >> 20;
        match self.group.outcome(Controller::Memory) {
            Ok(how) => report.add("memory", Enforced, format!("{mebibytes} MiB by {how}")),
            Err(why) => {
                let mut detail = why.to_owned();
                if let Some(data) = self.plan.data_limit
                    && self.limit_failure(RLIMIT_DATA).is_none()
                {
                    let most = data >> 20;
                    detail.push_str(&format!(
                        "; each process alone is held to {most} MiB of data"
                    ));
                }
                report.add("memory", NotEnforced, detail);
            }
        }
    }

    fn cpu(&self, report: &mut Report) {
        match (self.command.limits.cpu, self.group.outcome(Controller::Cpu)) {
            (None, _) => report.add("cpu", NotAsked, "no limit set"),
            (Some(cpu), Ok(how)) => {
                report.add("cpu", Enforced, format!("{cpu} processors by {how}"))
            }
            (Some(_), Err(why)) => report.add("cpu", NotEnforced, why),
        }
    }

    fn pids(&self, report: &mut Report) {
        let Some(pids) = self.command.limits.pids else {
            return report.add("pids", NotAsked, "no limit set");
        };
        match (
            self.group.outcome(Controller::Pids),
            self.plan.process_limit,
        ) {
            (Ok(how), _) => report.add("pids", Enforced, format!("{pids} by {how}")),
            (Err(_), Some(_)) if self.limit_failure(RLIMIT_NPROC).is_none() => {
                let owner = if self.plan.mode.user {
                    "user namespace"
                } else {
                    "user"
                };
                report.add(
                    "pids",
                    Enforced,
                    format!("{pids} by the tree's own {owner}"),
                );
            }
            (Err(why), _) => report.add("pids", NotEnforced, why),
        }
    }

    fn filesystem(&self, report: &mut Report) {
        if self.command.profile == Profile::Local {
            let detail = "files and home allowed by profile local";
            return report.add("filesystem", NotAsked, detail);
        }
        if self.host.landlock_abi < 1 {
            return report.add("filesystem", NotEnforced, "this kernel has no Landlock");
        }
        if let Some(error) = self.notes.failed(STAGE_LANDLOCK) {
            return report.add("filesystem", NotEnforced, format!("Landlock: {error}"));
        }
        let mut writable: Vec<String> = self
            .command
            .writable
            .iter()
            .map(|path| format!("`{}`", path.display()))
            .collect();
        let private = &self.plan.job.private_dirs;
        writable.extend(
            private
                .iter()
                .filter(|dir| dir.options.starts_with("mode=1777"))
                .map(|dir| format!("an own {}", dir.target.display())),
        );
        let mut detail = format!(
            "Landlock ABI {}: reads the system and its working directory, writes only {}",
            self.host.landlock_abi,
            if writable.is_empty() {
                "devices like /dev/null".to_owned()
            } else {
                writable.join(", ")
            }
        );
        for path in &self.plan.unwritable {
            detail.push_str(&format!("; its user may not write `{}`", path.display()));
        }
        report.add("filesystem", Enforced, detail);
    }

    /// Tells whether the folders of the gateway's own are out of sight.
    fn data_folder(&self, report: &mut Report) {
        // Where the owner has nothing to hide there is nothing to promise.
        if self.hidden.folders.is_empty() {
            return;
        }
        let visible = |why: String| format!("visible to this server, keys included: {why}");
        if self.plan.mode.has(NEW_MOUNT) {
            return match self.notes.failed(STAGE_HIDE) {
                None => report.add(
                    "data_folder",
                    Enforced,
                    "not visible, but for the server's own folder in it",
                ),
                Some(error) => {
                    let why = visible(format!("it cannot be covered: {error}"));
                    report.add("data_folder", NotEnforced, why);
                }
            };
        }
        let rules = &self.plan.job.landlock_rules;
        let is_open = self.hidden.folders.iter().any(|folder| {
            let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
            rules.iter().any(|(_, path)| folder.starts_with(path))
        });
        let held = self.host.landlock_abi >= 1 && self.notes.failed(STAGE_LANDLOCK).is_none();
        if self.command.profile == Profile::Hosted && held && !is_open {
            return report.add("data_folder", Enforced, "Landlock does not let it be read");
        }
        let fact = self.host.report.fact("mount namespace");
        let why = fact.map_or("", |fact| fact.detail.as_str());
        let why = visible(format!("no mount namespace ({why})"));
        report.add("data_folder", NotEnforced, why);
    }

    fn syscalls(&self, report: &mut Report) {
        let refused = self.plan.refused_calls;
        if !self.host.seccomp {
            report.add(
                "syscalls",
                NotEnforced,
                "seccomp filters do not work on this host",
            );
        } else if let Some(error) = self.notes.failed(STAGE_SECCOMP) {
            report.add("syscalls", NotEnforced, format!("seccomp: {error}"));
        } else {
            let detail = match self.plan.allowed_calls {
                Some(allowed) => {
                    format!("seccomp allow list: {allowed} system calls pass, no others")
                }
                None => format!("seccomp refuses {refused} system calls"),
            };
            report.add("syscalls", Enforced, detail);
        }
    }

    fn network(&self, report: &mut Report) {
        let held_by_filter = self.host.seccomp && self.notes.failed(STAGE_SECCOMP).is_none();
        match self.command.network {
            Network::Full => {
                let profile = match self.command.profile {
                    Profile::Local => "allowed by profile local",
                    Profile::Hosted => "allowed for this server",
                };
                report.add("network", NotAsked, profile);
            }
            Network::None | Network::Inside if self.plan.mode.has(NEW_NETWORK) => {
                let loopback = match self.notes.failed(STAGE_LOOPBACK) {
                    None => "an own loopback",
                    Some(_) => "nothing",
                };
                report.add(
                    "network",
                    Enforced,
                    format!("own network namespace with {loopback}"),
                );
            }
            Network::None | Network::Inside if held_by_filter => {
                report.add("network", Enforced, "seccomp refuses all but local sockets");
            }
            Network::None | Network::Inside => {
                report.add(
                    "network",
                    NotEnforced,
                    "neither a network namespace nor seccomp",
                );
            }
        }
    }

    fn user(&self, report: &mut Report) {
        let uid = self.plan.job.uid;
        let own = self.host.identity.uid;
        if self.command.profile == Profile::Local {
            report.add(
                "user",
                NotAsked,
                format!("runs as the gateway's own uid {own}"),
            );
        } else if uid != KEEP_ID {
            report.add("user", Enforced, format!("own uid {uid}"));
        } else {
            let why = self.host.own_user.as_ref().err().map_or("", String::as_str);
            report.add(
                "user",
                NotEnforced,
                format!("runs as the gateway's uid {own}: {why}"),
            );
        }
    }

    fn privileges(&self, report: &mut Report) {
        let kept = self.plan.job.kept_capabilities.count_ones();
        let detail = match kept {
            0 => "no new privileges, no capabilities".to_owned(),
            _ => format!("no new privileges; {kept} capabilities of root kept for files and users"),
        };
        report.add("privileges", Enforced, detail);
    }

    fn limit_failure(&self, resource: u32) -> Option<std::io::Error> {
        let of_resource = |note: &&crate::protocol::Record| {
            note.stage == STAGE_RLIMIT && note.data == u64::from(resource)
        };
        let note = self.notes.missing.iter().find(of_resource)?;
        Some(std::io::Error::from_raw_os_error(note.value))
    }
}
