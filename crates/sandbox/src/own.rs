//! A root of a tree's own, put together: what is in it, in which order it is made.
//!
//! Only decides; the init takes the steps. The parts of the host that a hosted command sees are in
//! `host_parts`, what gVisor needs around the root in `gvisor`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::command::Command;
use crate::error::SpawnError;
use crate::gvisor::SHARED_MEMORY as SHARED_MEMORY_OF_GUEST;
use crate::hidden::Hidden;
use crate::host_parts::{self, SERVER_HOME, hosts, resolver};
use crate::protocol::{
    STEP_APART, STEP_AROUND, STEP_DEVICE, STEP_FOR_USER, STEP_HAND_OVER, STEP_IN_ROOT,
    STEP_IN_SCRATCH, STEP_READ_ONLY, STEP_WRITABLE,
};
use crate::root::{MountKind, OwnRoot, RootBase};
use crate::steps::Step;

/// The devices of every root.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// What of `/proc` is covered: Docker's list, and the kernel's command line.
const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];
/// What of `/proc` can only be read.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
/// As many as the kernel takes.
const MOST_LAYERS: usize = 500;
const SHARED_MEMORY: &str = "mode=1777,size=64m,nr_inodes=4k";

/// A root and what the rest of the plan has to know of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) steps: Vec<Step>,
    /// Where the tree can write, as it sees it.
    pub(crate) writable: Vec<PathBuf>,
    /// Those of them that its user cannot write to all the same.
    pub(crate) unwritable: Vec<PathBuf>,
    /// Of each place that gVisor mounts itself: target, where its content is, whether it is read-only.
    pub(crate) guest_mounts: Vec<(PathBuf, String, bool)>,
}

/// Where the root of a tree is made, and what is mounted in it by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It becomes the root; everything is mounted in it.
    Entered,
    /// It stays a folder: gVisor mounts devices, processes and what can be written.
    Guest,
}

impl Way {
    fn place(self) -> &'static str {
        match self {
            Self::Entered => "/new",
            Self::Guest => "/new/rootfs",
        }
    }
}

/// To whom the gateway can give folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// To nobody: there is one user, the gateway's own.
    Same,
    /// To the tree's user, who has this number outside.
    Known(u32),
    /// To the tree's user, whom the init looks up.
    LookedUp,
}

/// Puts the root of a command together.
pub(crate) fn layout(
    command: &Command,
    root: &OwnRoot,
    hidden: &Hidden,
    way: Way,
    owner: Owner,
) -> Result<Layout, SpawnError> {
    if let RootBase::Layers { lower, .. } = &root.base {
        check_layers(lower)?;
    }
    let mut layout = Layout::default();
    layout.begin(root, way);
    if let Some(user) = &command.user {
        layout.steps.push(Step::user(&user.to_string()));
    }
    match root.base {
        RootBase::HostParts => {
            layout.steps.extend(host_parts::steps(command, root));
        }
        RootBase::Layers { .. } | RootBase::Folder(_) => layout.names(command, root),
    }
    match way {
        Way::Entered => layout.kernel_places(),
        Way::Guest => layout.writable.push(PathBuf::from(SHARED_MEMORY_OF_GUEST)),
    }
    layout.scratch(way, matches!(root.base, RootBase::HostParts));
    for (target, source, read_only) in bound(command, root, hidden)? {
        layout.folder(&target, &source, read_only, way, owner)?;
    }
    for mount in &root.mounts {
        check_target(&mount.target)?;
        match &mount.kind {
            MountKind::Bind(source) => {
                let failed = |error| SpawnError::Writable {
                    path: source.clone(),
                    source: error,
                };
                let real = fs::canonicalize(source).map_err(failed)?;
                layout.folder(&mount.target, &real, mount.read_only, way, owner)?;
            }
            MountKind::Tmpfs { bytes, inodes } => {
                let options = format!("mode=1777,size={bytes},nr_inodes={inodes}");
                layout.memory(&mount.target, &options, way);
            }
        }
    }
    layout.cover(hidden);
    if !matches!(root.base, RootBase::HostParts) && command.cwd != Path::new("/") {
        check_target(&command.cwd)?;
        layout
            .steps
            .push(Step::directory(&command.cwd, 0o755).optional());
    }
    if root.writable && matches!(root.base, RootBase::Layers { .. }) {
        layout.writable.push(PathBuf::from("/"));
    } else {
        layout.steps.push(Step::seal("/"));
    }
    Ok(layout)
}

impl Layout {
    fn begin(&mut self, root: &OwnRoot, way: Way) {
        let scratch = &root.scratch;
        let options = format!(
            "mode=755,size={},nr_inodes={}",
            scratch.bytes, scratch.inodes
        );
        self.steps
            .push(Step::scratch(scratch.folder.as_deref(), options));
        self.steps.push(match &root.base {
            RootBase::HostParts => Step::memory_root(way.place(), "mode=755,size=4m,nr_inodes=4k"),
            RootBase::Layers { base, lower } => {
                let layers = Step::layers_root(way.place(), base, lower);
                layers.with(if root.writable { STEP_WRITABLE } else { 0 })
            }
            RootBase::Folder(folder) => Step::folder_root(way.place(), folder),
        });
    }

    /// The files of an image that say where it is.
    fn names(&mut self, command: &Command, root: &OwnRoot) {
        for (name, content) in [
            ("/etc/hosts", hosts(&root.hostname)),
            ("/etc/hostname", format!("{}\n", root.hostname)),
            ("/etc/resolv.conf", resolver(command.network)),
        ] {
            self.steps
                .push(Step::file(name, 0o644, content).with(STEP_APART));
            let shown = Step::bind(name, name).with(STEP_APART | STEP_READ_ONLY);
            self.steps.push(shown.optional());
        }
    }

    /// `/dev` and `/proc`.
    fn kernel_places(&mut self) {
        let steps = &mut self.steps;
        steps.push(Step::memory("/dev", "mode=755,size=64k,nr_inodes=128"));
        for device in DEVICES {
            let path = format!("/dev/{device}");
            steps.push(Step::bind(&path, &path).with(STEP_DEVICE));
        }
        for (name, text) in [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
            ("/dev/ptmx", "pts/ptmx"),
        ] {
            steps.push(Step::link(name, text));
        }
        steps.push(Step::terminals("/dev/pts").optional());
        steps.push(Step::memory("/dev/shm", SHARED_MEMORY));
        steps.push(Step::seal("/dev"));
        steps.push(Step::proc("/proc"));
        steps.extend(MASKED.iter().map(Step::mask));
        for path in READ_ONLY {
            let sealed = Step::bind(path, path).with(STEP_IN_ROOT | STEP_READ_ONLY);
            steps.push(sealed.optional());
        }
        self.writable.push(PathBuf::from("/dev/shm"));
    }

    /// `/tmp` and, for a hosted command, a home.
    fn scratch(&mut self, way: Way, home: bool) {
        let of_scratch = |name: &str, mode| Step::directory(name, mode).with(STEP_IN_SCRATCH);
        self.steps.push(of_scratch("/tmp", 0o1777));
        self.show(Path::new("/tmp"), "/tmp", STEP_IN_SCRATCH, false, way);
        if home {
            self.steps
                .push(of_scratch("/home", 0o700).with(STEP_FOR_USER));
            self.show(Path::new(SERVER_HOME), "/home", STEP_IN_SCRATCH, false, way);
        }
    }

    /// Shows a folder or file of the host.
    fn folder(
        &mut self,
        target: &Path,
        source: &Path,
        read_only: bool,
        way: Way,
        owner: Owner,
    ) -> Result<(), SpawnError> {
        let failed = |error| SpawnError::Writable {
            path: source.to_owned(),
            source: error,
        };
        let metadata = fs::metadata(source).map_err(failed)?;
        let mut flags = 0;
        if owner != Owner::Same && !read_only {
            let ours = metadata.uid() == rustix::process::geteuid().as_raw();
            let is_open = metadata.mode() & 0o002 != 0;
            if metadata.is_dir() && ours && is_empty(source) {
                flags |= STEP_HAND_OVER;
            } else if matches!(owner, Owner::Known(uid) if metadata.uid() != uid && !is_open) {
                self.unwritable.push(target.to_owned());
            }
        }
        let source = source.as_os_str().to_str().map(str::to_owned);
        let source = source.ok_or(SpawnError::InvalidText { what: "path" })?;
        self.show(target, &source, flags, read_only, way);
        Ok(())
    }

    /// Shows something at a target, mounted by us or by the guest's kernel.
    fn show(&mut self, target: &Path, source: &str, flags: u32, read_only: bool, way: Way) {
        let flags = flags | if read_only { STEP_READ_ONLY } else { 0 };
        match way {
            Way::Entered => self.steps.push(Step::bind(source, target).with(flags)),
            Way::Guest => {
                let place = self.guest_place(target, read_only);
                let mut bind = Step::bind(source, place).with(flags | STEP_AROUND);
                // Whose it becomes is told by what the root has there.
                bind.content = target.as_os_str().as_bytes().to_vec();
                self.steps.push(bind);
                self.steps.push(Step::directory(target, 0o755));
            }
        }
        if !read_only {
            self.writable.push(target.to_owned());
        }
    }

    fn memory(&mut self, target: &Path, options: &str, way: Way) {
        match way {
            Way::Entered => self.steps.push(Step::memory(target, options)),
            Way::Guest => {
                let place = self.guest_place(target, false);
                self.steps
                    .push(Step::memory(place, options).with(STEP_AROUND));
                self.steps.push(Step::directory(target, 0o755));
            }
        }
        self.writable.push(target.to_owned());
    }

    /// Notes what the guest mounts; returns where its content goes, around its root.
    fn guest_place(&mut self, target: &Path, read_only: bool) -> String {
        let place = format!("/mounts/{}", self.guest_mounts.len());
        self.guest_mounts
            .push((target.to_owned(), place.clone(), read_only));
        place
    }

    /// Covers what of the hidden folders a bound one would show.
    fn cover(&mut self, hidden: &Hidden) {
        let masks: Vec<Step> = hidden
            .directories()
            .iter()
            .flat_map(|directory| {
                self.steps.iter().filter_map(|step| {
                    let from_host = step.kind == crate::protocol::STEP_BIND
                        && step.flags & (STEP_IN_SCRATCH | STEP_IN_ROOT | STEP_APART) == 0;
                    let inner = directory.strip_prefix(Path::new(&step.source)).ok()?;
                    let covered = from_host && inner.components().next().is_some();
                    let around = step.flags & STEP_AROUND;
                    covered.then(|| Step::mask(step.target.join(inner)).with(around))
                })
            })
            .collect();
        self.steps.extend(masks);
    }
}

/// Returns what a hosted command sees at the host's own paths: target, source, whether only to read.
fn bound(
    command: &Command,
    root: &OwnRoot,
    hidden: &Hidden,
) -> Result<Vec<(PathBuf, PathBuf, bool)>, SpawnError> {
    if root.base != RootBase::HostParts {
        return Ok(Vec::new());
    }
    let mut shown: Vec<(PathBuf, PathBuf, bool)> = Vec::new();
    for path in &command.writable {
        let failed = |source| SpawnError::Writable {
            path: path.clone(),
            source,
        };
        let real = fs::canonicalize(path).map_err(failed)?;
        shown.push((path.clone(), real, false));
    }
    let given = |path: &Path| {
        let mounted = root
            .mounts
            .iter()
            .any(|mount| path.starts_with(&mount.target));
        mounted
            || host_parts::shows(path)
            || command.writable.iter().any(|own| path.starts_with(own))
    };
    let has_cwd = command.cwd.is_absolute() && command.cwd != Path::new("/");
    let in_cwd = |path: &Path| has_cwd && path.starts_with(&command.cwd);
    let mut read: Vec<PathBuf> = Vec::new();
    if has_cwd && !given(&command.cwd) {
        read.push(command.cwd.clone());
    }
    if let Some(program) = host_parts::program(command) {
        for path in [fs::canonicalize(&program).ok(), Some(program)]
            .into_iter()
            .flatten()
        {
            if !given(&path) && !in_cwd(&path) && !read.contains(&path) {
                read.push(path);
            }
        }
    }
    let covered = hidden.directories();
    for path in read {
        let Ok(real) = fs::canonicalize(&path) else {
            continue;
        };
        let is_hidden = covered.iter().any(|folder| real.starts_with(folder));
        if is_hidden && hidden.kept(&[&real]).is_empty() {
            continue;
        }
        shown.push((path, real, true));
    }
    for (target, ..) in &shown {
        check_target(target)?;
    }
    // Outer before inner.
    shown.sort_by_key(|(target, ..)| target.components().count());
    Ok(shown)
}

/// Refuses what is no name of a layer below their folder.
fn check_layers(lower: &[String]) -> Result<(), SpawnError> {
    let is_name = |name: &String| {
        let mut parts = Path::new(name).components();
        !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    match lower.iter().find(|name| !is_name(name)) {
        None if (1..=MOST_LAYERS).contains(&lower.len()) => Ok(()),
        None => Err(SpawnError::Layers { count: lower.len() }),
        Some(name) => Err(SpawnError::Target {
            target: PathBuf::from(name),
        }),
    }
}

/// Refuses a place in the root that is none.
fn check_target(target: &Path) -> Result<(), SpawnError> {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if target.is_absolute() && target != Path::new("/") && target.components().all(plain) {
        return Ok(());
    }
    Err(SpawnError::Target {
        target: target.to_owned(),
    })
}

/// Whether a folder holds nothing, or only what making a file system leaves in it.
fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        let mut names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        names.all(|name| name == "lost+found")
    })
}
