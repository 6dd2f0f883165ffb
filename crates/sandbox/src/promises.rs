//! Builds the report of a tree: each promised protection, and whether it is enforced.
//!
//! A promise is derived from what was done for this tree: its namespaces, the steps of its job, and
//! the reports of its init. Never from what the host could do.

mod files;
mod limits;

use std::io;

use crate::cgroup::Group;
use crate::command::{Command, Ids, Network, Profile, Runtime};
use crate::hidden::Hidden;
use crate::host::{Host, NEW_IPC, NEW_NETWORK, NEW_PID};
use crate::launch::Notes;
use crate::plan::Plan;
use crate::protocol::{
    FLAG_MOUNT_PROC, KEEP_ID, Record, STAGE_LANDLOCK, STAGE_LOOPBACK, STAGE_ONE_USER, STAGE_PROC,
    STAGE_RLIMIT, STAGE_SECCOMP,
};
use crate::report::{
    PromiseState::{Enforced, NotAsked, NotEnforced},
    Report,
};
use crate::root::{OwnRoot, Root};

/// The most variable names that are listed.
const MOST_NAMES: usize = 12;

/// All facts about a started tree.
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
        self.disk(&mut report);
        self.root(&mut report);
        self.filesystem(&mut report);
        self.data_folder(&mut report);
        self.syscalls(&mut report);
        self.network(&mut report);
        self.ipc(&mut report);
        self.user(&mut report);
        self.environment(&mut report);
        self.descriptors(&mut report);
        self.privileges(&mut report);
        report
    }

    fn tree(&self, report: &mut Report) {
        if !self.plan.mode.has(NEW_PID) {
            let why = self.why_not("pid namespace");
            let detail = format!(
                "ended by the resident init; not if the init itself is killed (no PID namespace: {why}); \
                 sees the processes of others"
            );
            return report.add("tree", NotEnforced, detail);
        }
        let mut detail = "PID namespace: ends with its init, whatever it forked".to_owned();
        match self.notes.failed(STAGE_PROC) {
            None if self.has_own_proc() => detail.push_str("; own /proc"),
            None => {
                let why = self.why_not("mount namespace");
                detail.push_str(&format!(
                    "; the host's /proc is visible (no mount namespace: {why})"
                ));
            }
            Some(error) => detail.push_str(&format!("; the host's /proc is visible ({error})")),
        }
        report.add("tree", Enforced, detail);
    }

    fn syscalls(&self, report: &mut Report) {
        if let Runtime::GVisor(_) = self.command.runtime {
            let detail = "answered by gVisor, a kernel of the tree's own";
            return report.add("syscalls", Enforced, detail);
        }
        if let Err(why) = self.filtered() {
            return report.add("syscalls", NotEnforced, why);
        }
        let detail = match self.plan.allowed_calls {
            Some(allowed) => {
                format!("seccomp allow list: {allowed} system calls pass, no others")
            }
            None => format!("seccomp refuses {} system calls", self.plan.refused_calls),
        };
        report.add("syscalls", Enforced, detail);
    }

    fn network(&self, report: &mut Report) {
        if self.command.network == Network::Full {
            let detail = match self.command.profile {
                Profile::Local => "allowed by profile local",
                Profile::Hosted => "allowed for this server",
            };
            return report.add("network", NotAsked, detail);
        }
        if self.plan.mode.has(NEW_NETWORK) {
            let loopback = match (self.notes.failed(STAGE_LOOPBACK), self.command.network) {
                (Some(error), _) => format!("without a loopback ({error})"),
                (None, Network::Inside) => {
                    "with a loopback that the gateway can dial and listen on".to_owned()
                }
                (None, _) => "with an own loopback".to_owned(),
            };
            let detail = format!("own network namespace {loopback}");
            return report.add("network", Enforced, detail);
        }
        // A filter still leaves the local sockets of the host's services reachable.
        let why = self.why_not("network namespace");
        let rest = match self.filtered() {
            Ok(()) => "seccomp refuses internet sockets, local sockets of the host can be reached",
            Err(_) => "everything can be reached",
        };
        let detail = format!("no network namespace ({why}): {rest}");
        report.add("network", NotEnforced, detail);
    }

    fn ipc(&self, report: &mut Report) {
        if self.plan.mode.has(NEW_IPC) {
            let detail = "own IPC namespace: semaphores, message queues and shared memory";
            return report.add("ipc", Enforced, detail);
        }
        let why = self.why_not("ipc namespace");
        let detail = format!("shares semaphores and message queues with the host: {why}");
        report.add("ipc", NotEnforced, detail);
    }

    fn user(&self, report: &mut Report) {
        let own = self.host.identity.uid;
        let groups = rustix::process::getgroups().map_or(0, |groups| groups.len());
        if self.own_root().is_some()
            && let Ids::Range { first } = self.command.ids
        {
            let last = u64::from(first) + 65_535;
            let detail = format!("ids of its own, {first} to {last} outside; no other groups");
            return report.add("user", Enforced, detail);
        }
        if let Some(plan) = &self.plan.own {
            let inside = match (plan.runtime == Runtime::Kernel, self.plan.job.uid) {
                (true, uid) if self.command.user.is_none() => format!("uid {uid}"),
                (true, _) => "the image's user".to_owned(),
                (false, _) if self.notes.has(STAGE_ONE_USER) => {
                    "root, as it has but one id".to_owned()
                }
                (false, _) => "the image's user".to_owned(),
            };
            let outside = plan.ids.0;
            if !self.plan.mode.user {
                let detail = format!(
                    "the id {outside} outside, {inside} inside: picked by its name, so that another \
                     server may have the same"
                );
                return report.add("user", NotEnforced, detail);
            }
            let groups = match groups {
                0 => String::new(),
                _ => format!("; {groups} supplementary groups stay, without a number inside"),
            };
            let detail = format!(
                "the gateway's own uid {outside}, {inside} inside{groups}: only root can assign another"
            );
            return report.add("user", NotEnforced, detail);
        }
        let uid = self.plan.job.uid;
        if uid != KEEP_ID {
            let detail = format!("runs as uid {uid}, no other groups");
            return report.add("user", Enforced, detail);
        }
        let kept = match groups {
            0 => String::new(),
            _ => format!(" with its {groups} supplementary groups"),
        };
        let who = format!("runs as the gateway's own uid {own}{kept}");
        if self.command.profile == Profile::Local {
            return report.add("user", NotAsked, who);
        }
        let why = self.host.own_user.as_ref().err().map_or("", String::as_str);
        report.add("user", NotEnforced, format!("{who}: {why}"));
    }

    fn environment(&self, report: &mut Report) {
        let names: Vec<&str> = match &self.plan.own {
            Some(plan) => plan.variables.iter().map(String::as_str).collect(),
            None => {
                let given = self.command.env.iter();
                given.map(|(name, _)| name.as_str()).collect()
            }
        };
        let mut listed: Vec<&str> = names.iter().copied().take(MOST_NAMES).collect();
        if names.len() > MOST_NAMES {
            listed.push("…");
        }
        let detail = match listed.is_empty() {
            true => "empty".to_owned(),
            false => format!("only {}", listed.join(", ")),
        };
        report.add("environment", Enforced, detail);
    }

    fn privileges(&self, report: &mut Report) {
        // Each of these steps aborts the start if it fails.
        let kept = self.plan.job.kept_capabilities.count_ones();
        let detail = match (&self.command.runtime, kept) {
            (Runtime::GVisor(_), _) => {
                "no new privileges; gVisor has those of its user namespace, the server has none"
                    .to_owned()
            }
            (Runtime::Kernel, 0) => "no new privileges, no capabilities".to_owned(),
            (Runtime::Kernel, _) => {
                format!("no new privileges; {kept} capabilities of root kept for files and users")
            }
        };
        report.add("privileges", Enforced, detail);
    }

    fn own_root(&self) -> Option<&OwnRoot> {
        match &self.command.root {
            Root::Own(root) => Some(root),
            Root::Host => None,
        }
    }

    /// Returns whether it sees only its own processes.
    fn has_own_proc(&self) -> bool {
        let asked = self.own_root().is_some() || self.plan.job.flags & FLAG_MOUNT_PROC != 0;
        asked && !self.notes.has(STAGE_PROC)
    }

    /// Returns whether the system call filters are installed, or why not.
    fn filtered(&self) -> Result<(), String> {
        if self.plan.job.filters.is_empty() {
            return Err("seccomp filters do not work on this host".to_owned());
        }
        match self.notes.failed(STAGE_SECCOMP) {
            None => Ok(()),
            Some(error) => Err(format!("seccomp: {error}")),
        }
    }

    /// Returns whether Landlock confines the tree, or why not.
    fn landlocked(&self) -> Result<(), String> {
        if self.host.landlock_abi < 1 {
            return Err("this kernel has no Landlock".to_owned());
        }
        if self.plan.job.landlock_handled == [0; 3] {
            return Err("no Landlock rules".to_owned());
        }
        match self.notes.failed(STAGE_LANDLOCK) {
            None => Ok(()),
            Some(error) => Err(format!("Landlock: {error}")),
        }
    }

    /// Returns why the host does not support a feature; if it does, that it was denied this time.
    fn why_not(&self, means: &str) -> &str {
        let fact = self.host.report.fact(means).filter(|fact| !fact.available);
        fact.map_or("denied at this start", |fact| fact.detail.as_str())
    }

    fn limit_failure(&self, resource: u32) -> Option<io::Error> {
        let of_resource =
            |note: &&Record| note.stage == STAGE_RLIMIT && note.data == u64::from(resource);
        let note = self.notes.missing.iter().find(of_resource)?;
        Some(io::Error::from_raw_os_error(note.value))
    }
}
