//! The promises about files: root, writable paths, disk usage, and hidden folders.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Given;
use crate::command::{Profile, Runtime};
use crate::host::NEW_MOUNT;
use crate::job::PrivateDir;
use crate::protocol::{
    KEEP_ID, STAGE_CGROUP_NAMESPACE, STAGE_HOST_NAME, STAGE_LAYER_OWNERS, STEP_APART, STEP_AROUND,
    STEP_BIND, STEP_IN_ROOT, STEP_IN_SCRATCH, STEP_MASK,
};
use crate::report::{
    PromiseState::{Enforced, NotAsked, NotEnforced},
    Report,
};
use crate::root::{MountKind, OwnRoot, RootBase};

impl Given<'_> {
    pub(super) fn root(&self, report: &mut Report) {
        let Some(root) = self.own_root() else {
            let detail = match self.command.profile {
                Profile::Local => "sees the host's root, by profile local",
                Profile::Hosted => "sees the host's root",
            };
            return report.add("root", NotAsked, detail);
        };
        // A tree whose root could not be built does not run.
        let base = match &root.base {
            RootBase::HostParts => "the host's programs and libraries".to_owned(),
            RootBase::Layers { lower, .. } => format!("{} image layers", lower.len()),
            RootBase::Folder(_) => "an unpacked image".to_owned(),
        };
        let changes = match root.writable {
            true => "changes are kept while it runs",
            false => "read-only",
        };
        let mut detail = format!("own root from {base}, {changes}");
        for (stage, what) in [
            (STAGE_LAYER_OWNERS, "owners of its files show as nobody"),
            (STAGE_HOST_NAME, "sees the host's name"),
            (STAGE_CGROUP_NAMESPACE, "sees the names of its cgroups"),
        ] {
            if let Some(error) = self.notes.failed(stage) {
                detail.push_str(&format!("; {what} ({error})"));
            }
        }
        let steps = self.plan.job.steps.iter().enumerate();
        for (index, step) in steps {
            if let Some(error) = self.notes.step_failed(index) {
                detail.push_str(&format!("; could not {step} ({error})"));
            }
        }
        report.add("root", Enforced, detail);
    }

    pub(super) fn filesystem(&self, report: &mut Report) {
        if let Some(plan) = &self.plan.own {
            let writable: Vec<String> = plan.writable.iter().map(|path| quoted(path)).collect();
            let mut detail = format!("reads its own root, writes only {}", writable.join(", "));
            if plan.runtime != Runtime::Kernel {
                detail.push_str("; its root may also write `/dev`, which counts as memory");
            }
            // A runtime that creates its own namespaces cannot be confined by Landlock.
            if self.landlocked().is_ok() && !self.plan.job.landlock_rules.is_empty() {
                let abi = self.host.landlock_abi;
                detail.push_str(&format!("; also enforced by Landlock ABI {abi}"));
            }
            for path in &self.plan.unwritable {
                detail.push_str(&format!("; its user may not write {}", quoted(path)));
            }
            return report.add("filesystem", Enforced, detail);
        }
        if self.command.profile == Profile::Local {
            let detail = "files and home allowed by profile local";
            return report.add("filesystem", NotAsked, detail);
        }
        if let Err(why) = self.landlocked() {
            return report.add("filesystem", NotEnforced, why);
        }
        let own = self.command.writable.iter().map(|path| quoted(path));
        let private = self
            .private_dirs()
            .map(|target| format!("an own {}", target.display()));
        let writable: Vec<String> = own.chain(private).collect();
        let writable = match writable.is_empty() {
            true => "devices like /dev/null".to_owned(),
            false => writable.join(", "),
        };
        let abi = self.host.landlock_abi;
        let mut detail = format!(
            "Landlock ABI {abi}: reads the system and its working directory, writes only {writable}; \
             does not cover modes, times and attributes of files"
        );
        for path in &self.plan.unwritable {
            detail.push_str(&format!("; its user may not write {}", quoted(path)));
        }
        report.add("filesystem", Enforced, detail);
    }

    /// Reports whether the tree's disk usage is limited, by its own file systems.
    pub(super) fn disk(&self, report: &mut Report) {
        if self.command.profile == Profile::Local {
            let detail = "not limited, by profile local";
            return report.add("disk", NotAsked, detail);
        }
        let mut bounded = Vec::new();
        let mut open = Vec::new();
        let mut look = |path: &Path, shown: &Path| match self.file_system_size(path) {
            Some(bytes) => bounded.push(format!("{} {} MiB", quoted(shown), bytes >> 20)),
            None => open.push(quoted(shown)),
        };
        match self.own_root() {
            Some(root) => {
                for (target, kind) in writable_mounts(root) {
                    if let MountKind::Bind(source) = kind {
                        look(source, target);
                    }
                }
                match &root.scratch.folder {
                    Some(folder) => look(folder, Path::new("/tmp")),
                    None => {
                        let (size, files) = (root.scratch.bytes >> 20, root.scratch.inodes);
                        bounded.push(format!("scratch {size} MiB and {files} files in memory"));
                    }
                }
                for (target, kind) in writable_mounts(root) {
                    if let MountKind::Tmpfs { bytes, inodes } = kind {
                        let (target, size) = (quoted(target), bytes >> 20);
                        bounded.push(format!("{target} {size} MiB and {inodes} files in memory"));
                    }
                }
            }
            None => {
                for path in &self.command.writable {
                    look(path, path);
                }
                bounded.extend(
                    self.private_dirs()
                        .map(|target| format!("{} in memory", quoted(target))),
                );
                if self.landlocked().is_err() {
                    open.push("whatever its user may write".to_owned());
                }
            }
        }
        if open.is_empty() {
            let detail = match bounded.is_empty() {
                true => "writes nothing".to_owned(),
                false => format!("bounded: {}", bounded.join(", ")),
            };
            return report.add("disk", Enforced, detail);
        }
        let detail = format!(
            "can fill the file system of {}: it has no file system of its own",
            open.join(", ")
        );
        report.add("disk", NotEnforced, detail);
    }

    /// Reports whether the gateway's own folders are hidden.
    pub(super) fn data_folder(&self, report: &mut Report) {
        // If there is nothing to hide, there is nothing to promise.
        if self.hidden.folders.is_empty() {
            return;
        }
        let visible = |why: String| format!("visible to this server, keys included: {why}");
        if self.own_root().is_some() {
            return match self.shown_in_root() {
                None => report.add("data_folder", Enforced, "not in the tree's own root"),
                Some(why) => report.add("data_folder", NotEnforced, visible(why)),
            };
        }
        if self.plan.mode.has(NEW_MOUNT) {
            return match self.shown_on_host() {
                None => report.add(
                    "data_folder",
                    Enforced,
                    "not visible, but for the server's own folder in it",
                ),
                Some(why) => report.add("data_folder", NotEnforced, visible(why)),
            };
        }
        let folders = self.hidden.folders.iter().map(|path| canonical(path));
        let folders: Vec<PathBuf> = folders.collect();
        let rules = &self.plan.job.landlock_rules;
        let is_open = folders
            .iter()
            .any(|folder| rules.iter().any(|(_, path)| folder.starts_with(path)));
        if self.command.profile == Profile::Hosted && self.landlocked().is_ok() && !is_open {
            return report.add("data_folder", Enforced, "Landlock does not let it be read");
        }
        let why = self.why_not("mount namespace");
        let why = visible(format!("no mount namespace ({why})"));
        report.add("data_folder", NotEnforced, why);
    }

    /// Returns why a separate root shows a hidden folder, if it does, judged by its mounts.
    fn shown_in_root(&self) -> Option<String> {
        let steps = &self.plan.job.steps;
        let is_covered = |place: &Path, around: u32| {
            let mut masks = steps.iter().enumerate();
            masks.any(|(index, step)| {
                step.kind == STEP_MASK
                    && step.target == place
                    && step.flags & STEP_AROUND == around
                    && self.notes.step_failed(index).is_none()
            })
        };
        let private: Vec<PathBuf> = self
            .hidden
            .private
            .iter()
            .map(|path| canonical(path))
            .collect();
        let mut hidden = self.hidden.directories();
        hidden.extend(self.hidden.folders.iter().map(|path| canonical(path)));
        let of_host = STEP_IN_SCRATCH | STEP_IN_ROOT | STEP_APART;
        let binds = steps.iter();
        let mut binds = binds.filter(|step| step.kind == STEP_BIND && step.flags & of_host == 0);
        binds.find_map(|step| {
            let source = canonical(Path::new(&step.source));
            if private.iter().any(|private| source.starts_with(private)) {
                return Some(format!("{} is mounted", quoted(&source)));
            }
            let shown = hidden.iter().find(|folder| {
                folder.strip_prefix(&source).is_ok_and(|inner| {
                    let is_all = inner.as_os_str().is_empty();
                    is_all || !is_covered(&step.target.join(inner), step.flags & STEP_AROUND)
                })
            });
            shown.map(|_| format!("{} is mounted", quoted(&source)))
        })
    }

    /// Returns why a tree on the host's root sees a hidden folder, if it does.
    fn shown_on_host(&self) -> Option<String> {
        let dirs = &self.plan.job.private_dirs;
        for folder in &self.hidden.folders {
            let folder = canonical(folder);
            let is_covered = |dir: &PrivateDir| folder.starts_with(&dir.target);
            if folder.exists() && !dirs.iter().any(is_covered) {
                return Some(format!("{} is not covered", quoted(&folder)));
            }
        }
        let is_own = |target: &PathBuf| !self.host.cgroup_mounts.contains(target);
        let mut covers = dirs.iter().enumerate();
        let failed = covers.find_map(|(index, dir)| {
            let meant = dir.hidden && is_own(&dir.target);
            meant.then(|| self.not_hidden(index)).flatten()
        });
        if let Some(error) = failed {
            return Some(format!("it cannot be covered: {error}"));
        }
        // Processes of the same user show their own view through `/proc`, which is not covered.
        let is_same_user = self.plan.job.uid == KEEP_ID && self.landlocked().is_err();
        (is_same_user && !self.has_own_proc())
            .then(|| "through the host's /proc, which could not be replaced".to_owned())
    }

    /// Returns the writable directories in memory.
    fn private_dirs(&self) -> impl Iterator<Item = &Path> {
        let dirs = self.plan.job.private_dirs.iter();
        dirs.filter(|dir| dir.options.starts_with("mode=1777"))
            .map(|dir| dir.target.as_path())
    }

    /// Returns the size of the file system of a path, unless it is that of the host's root or of
    /// the gateway's own folders.
    fn file_system_size(&self, path: &Path) -> Option<u64> {
        let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
        let own = device(path)?;
        let shared = self.hidden.folders.iter().map(PathBuf::as_path);
        let mut shared = shared.chain([Path::new("/")]);
        if shared.any(|other| device(other) == Some(own)) {
            return None;
        }
        let size = rustix::fs::statvfs(path).ok()?;
        Some(size.f_blocks.saturating_mul(size.f_frsize))
    }
}

/// Returns the writable mounts of the root, without its scratch space.
fn writable_mounts(root: &OwnRoot) -> impl Iterator<Item = (&Path, &MountKind)> {
    let mounts = root.mounts.iter().filter(|mount| !mount.read_only);
    mounts.map(|mount| (mount.target.as_path(), &mount.kind))
}

fn quoted(path: &Path) -> String {
    format!("`{}`", path.display())
}

fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
