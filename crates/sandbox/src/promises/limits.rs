//! The promises about limits: memory, CPU, processes, descriptors.

use std::io;

use super::Given;
use crate::cgroup::Controller;
use crate::command::{Profile, Runtime};
use crate::gvisor;
use crate::plan::{RLIMIT_DATA, RLIMIT_NOFILE, RLIMIT_NPROC};
use crate::protocol::{KEEP_ID, Record, STAGE_HIDE};
use crate::report::{
    PromiseState::{Enforced, NotAsked, NotEnforced},
    Report,
};

impl Given<'_> {
    pub(super) fn memory(&self, report: &mut Report) {
        let Some(bytes) = self.command.limits.memory_bytes else {
            return report.add("memory", NotAsked, "no limit set");
        };
        let mebibytes = bytes >> 20;
        match self.held(Controller::Memory) {
            Ok(how) => report.add("memory", Enforced, format!("{mebibytes} MiB by {how}")),
            Err(why) => {
                let mut detail = why;
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

    pub(super) fn cpu(&self, report: &mut Report) {
        match (self.command.limits.cpu, self.held(Controller::Cpu)) {
            (None, _) => report.add("cpu", NotAsked, "no limit set"),
            (Some(cpu), Ok(how)) => {
                report.add("cpu", Enforced, format!("{cpu} processors by {how}"));
            }
            (Some(_), Err(why)) => report.add("cpu", NotEnforced, why),
        }
    }

    pub(super) fn pids(&self, report: &mut Report) {
        let Some(pids) = self.command.limits.pids else {
            return report.add("pids", NotAsked, "no limit set");
        };
        let why = match self.held(Controller::Pids) {
            Ok(how) => {
                let detail = match self.command.runtime {
                    Runtime::Kernel => format!("{pids} by {how}"),
                    Runtime::GVisor(_) => {
                        let outside = gvisor::outside(&self.command.limits).pids.unwrap_or(pids);
                        format!("{pids} by the guest's kernel, {outside} outside by {how}")
                    }
                };
                return report.add("pids", Enforced, detail);
            }
            Err(why) => why,
        };
        if let Runtime::GVisor(_) = self.command.runtime {
            let detail = format!("{pids} by the guest's kernel; not outside: {why}");
            return report.add("pids", Enforced, detail);
        }
        if self.plan.process_limit.is_none() {
            return report.add("pids", NotEnforced, why);
        }
        if let Some(error) = self.limit_failure(RLIMIT_NPROC) {
            return report.add("pids", NotEnforced, format!("{why}; per user: {error}"));
        }
        // The kernel does not count the processes of the host's root user.
        if self.plan.job.uid == KEEP_ID && self.host.identity.uid == 0 {
            let detail = format!("{why}; the processes of root are not counted");
            return report.add("pids", NotEnforced, detail);
        }
        let owner = match self.plan.mode.user {
            true => "user namespace",
            false => "user",
        };
        let detail = format!("{pids} by the tree's own {owner}");
        report.add("pids", Enforced, detail);
    }

    pub(super) fn descriptors(&self, report: &mut Report) {
        let inherited = "only 0, 1 and 2 are inherited";
        let nofile = self.plan.job.limits.iter();
        let mut nofile = nofile.filter(|(resource, _)| *resource == RLIMIT_NOFILE);
        match (self.limit_failure(RLIMIT_NOFILE), nofile.next_back()) {
            (None, Some((_, most))) => {
                let detail = format!("{inherited}; each process has at most {most} open");
                report.add("descriptors", Enforced, detail);
            }
            (Some(error), _) => {
                let detail = format!("{inherited}; their number is not limited: {error}");
                report.add("descriptors", NotEnforced, detail);
            }
            (None, None) => {
                let detail = format!("{inherited}; their number is not limited");
                report.add("descriptors", NotEnforced, detail);
            }
        }
    }

    /// Returns how a controller limits the tree, or why it does not.
    fn held(&self, controller: Controller) -> Result<String, String> {
        let how = self.group.outcome(controller).map_err(str::to_owned)?;
        match self.way_out() {
            None => Ok(how.to_owned()),
            Some(way) => Err(format!("set by {how}, but the tree can leave it: {way}")),
        }
    }

    /// Returns how the tree could move to another cgroup by itself, if it could.
    fn way_out(&self) -> Option<String> {
        if self.own_root().is_some() {
            // There are no cgroups.
            return None;
        }
        let is_writable = match self.command.profile {
            Profile::Local => true,
            Profile::Hosted => self.plan.job.uid == KEEP_ID && self.landlocked().is_err(),
        };
        let open = self.host.cgroup_mounts.iter().find(|mount| {
            let cover = |dir: &crate::job::PrivateDir| dir.hidden && dir.target == **mount;
            let index = self.plan.job.private_dirs.iter().position(cover);
            index.is_none_or(|index| self.not_hidden(index).is_some())
        });
        let open = open.filter(|_| is_writable)?;
        Some(format!("`{}` is open to it", open.display()))
    }

    /// Returns why a directory of the job could not be hidden, if so.
    pub(super) fn not_hidden(&self, index: usize) -> Option<io::Error> {
        let of_index =
            |note: &&Record| note.stage == STAGE_HIDE && usize::try_from(note.data) == Ok(index);
        let note = self.notes.missing.iter().find(of_index)?;
        Some(io::Error::from_raw_os_error(note.value))
    }
}
