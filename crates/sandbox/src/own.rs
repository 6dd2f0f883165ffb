//! The layout of a separate root: its content, and the order in which it is built.
//!
//! Only decides; the init executes the steps. The parts of the host that a hosted command sees are
//! in `host_parts`, what gVisor needs around the root in `gvisor`.

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
/// The covered parts of `/proc`: Docker's list, the kernel's command line, and the machine's disks
/// (one per server).
const MASKED: [&str; 15] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];
/// The read-only parts of `/proc`.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
/// The most layers that the kernel supports.
const MOST_LAYERS: usize = 500;
const SHARED_MEMORY: &str = "mode=1777,size=64m,nr_inodes=4k";

/// A root, and the properties that the rest of the plan needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) steps: Vec<Step>,
    /// The writable paths, as the tree sees them.
    pub(crate) writable: Vec<PathBuf>,
    /// Those of them that its user cannot write to nevertheless.
    pub(crate) unwritable: Vec<PathBuf>,
    /// For each mount that gVisor makes itself: target, source, whether it is read-only.
    pub(crate) guest_mounts: Vec<(PathBuf, String, bool)>,
}

/// How the root is used, and which kernel mounts what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootUse {
    /// The tree enters it; everything is mounted in it.
    Entered,
    /// It stays a folder: gVisor mounts devices, `/proc` and the writable paths.
    Guest,
}

impl RootUse {
    fn place(self) -> &'static str {
        match self {
            Self::Entered => "/new",
            Self::Guest => "/new/rootfs",
        }
    }
}

/// The owner of folders that the gateway hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No change: there is only one user, the gateway's own.
    Same,
    /// The tree's user, with this id outside.
    Known(u32),
    /// The tree's user, whom the init looks up.
    LookedUp,
}

/// Plans the root of a command.
pub(crate) fn layout(
    command: &Command,
    root: &OwnRoot,
    hidden: &Hidden,
    used_as: RootUse,
    owner: Owner,
) -> Result<Layout, SpawnError> {
    if let RootBase::Layers { lower, .. } = &root.base {
        check_layers(lower)?;
    }
    let mut layout = Layout::default();
    layout.begin(root, used_as);
    if let Some(user) = &command.user {
        layout.steps.push(Step::user(&user.to_string()));
    }
    match root.base {
        RootBase::HostParts => {
            layout.steps.extend(host_parts::steps(command, root));
        }
        RootBase::Layers { .. } | RootBase::Folder(_) => layout.names(command, root),
    }
    match used_as {
        RootUse::Entered => layout.kernel_places(),
        RootUse::Guest => layout.writable.push(PathBuf::from(SHARED_MEMORY_OF_GUEST)),
    }
    layout.scratch(used_as, matches!(root.base, RootBase::HostParts));
    for (target, source, read_only) in bound(command, root, hidden)? {
        layout.folder(&target, &source, read_only, used_as, owner)?;
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
                layout.folder(&mount.target, &real, mount.read_only, used_as, owner)?;
            }
            MountKind::Tmpfs { bytes, inodes } => {
                let options = format!("mode=1777,size={bytes},nr_inodes={inodes}");
                layout.memory(&mount.target, &options, used_as);
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
    fn begin(&mut self, root: &OwnRoot, used_as: RootUse) {
        let scratch = &root.scratch;
        let options = format!(
            "mode=755,size={},nr_inodes={}",
            scratch.bytes, scratch.inodes
        );
        self.steps
            .push(Step::scratch(scratch.folder.as_deref(), options));
        self.steps.push(match &root.base {
            RootBase::HostParts => {
                Step::memory_root(used_as.place(), "mode=755,size=4m,nr_inodes=4k")
            }
            RootBase::Layers { base, lower } => {
                let layers = Step::layers_root(used_as.place(), base, lower);
                layers.with(if root.writable { STEP_WRITABLE } else { 0 })
            }
            RootBase::Folder(folder) => Step::folder_root(used_as.place(), folder),
        });
    }

    /// Adds `/etc/hostname`, `/etc/hosts` and `/etc/resolv.conf` for an image.
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

    /// Adds `/dev` and `/proc`.
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

    /// Adds `/tmp` and, for a hosted command, a home.
    fn scratch(&mut self, used_as: RootUse, home: bool) {
        let of_scratch = |name: &str, mode| Step::directory(name, mode).with(STEP_IN_SCRATCH);
        self.steps.push(of_scratch("/tmp", 0o1777));
        self.show(Path::new("/tmp"), "/tmp", STEP_IN_SCRATCH, false, used_as);
        if home {
            self.steps
                .push(of_scratch("/home", 0o700).with(STEP_FOR_USER));
            self.show(
                Path::new(SERVER_HOME),
                "/home",
                STEP_IN_SCRATCH,
                false,
                used_as,
            );
        }
    }

    /// Adds a folder or file of the host.
    fn folder(
        &mut self,
        target: &Path,
        source: &Path,
        read_only: bool,
        used_as: RootUse,
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
        self.show(target, &source, flags, read_only, used_as);
        Ok(())
    }

    /// Adds a mount, made by the init or by the guest's kernel.
    fn show(&mut self, target: &Path, source: &str, flags: u32, read_only: bool, used_as: RootUse) {
        let flags = flags | if read_only { STEP_READ_ONLY } else { 0 };
        match used_as {
            RootUse::Entered => self.steps.push(Step::bind(source, target).with(flags)),
            RootUse::Guest => {
                let place = self.guest_place(target, read_only);
                let mut bind = Step::bind(source, place).with(flags | STEP_AROUND);
                // Its owner becomes that of the directory it covers in the root.
                bind.content = target.as_os_str().as_bytes().to_vec();
                self.steps.push(bind);
                self.steps.push(Step::directory(target, 0o755));
            }
        }
        if !read_only {
            self.writable.push(target.to_owned());
        }
    }

    fn memory(&mut self, target: &Path, options: &str, used_as: RootUse) {
        match used_as {
            RootUse::Entered => self.steps.push(Step::memory(target, options)),
            RootUse::Guest => {
                let place = self.guest_place(target, false);
                self.steps
                    .push(Step::memory(place, options).with(STEP_AROUND));
                self.steps.push(Step::directory(target, 0o755));
            }
        }
        self.writable.push(target.to_owned());
    }

    /// Records a mount of the guest; returns where its source is placed, outside its root.
    fn guest_place(&mut self, target: &Path, read_only: bool) -> String {
        let place = format!("/mounts/{}", self.guest_mounts.len());
        self.guest_mounts
            .push((target.to_owned(), place.clone(), read_only));
        place
    }

    /// Covers the hidden folders that a bind mount would show.
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

/// Returns the host paths that a hosted command sees: target, source, whether it is read-only.
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

/// Refuses an invalid layer name.
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

/// Refuses an invalid mount target.
fn check_target(target: &Path) -> Result<(), SpawnError> {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if target.is_absolute() && target != Path::new("/") && target.components().all(plain) {
        return Ok(());
    }
    Err(SpawnError::Target {
        target: target.to_owned(),
    })
}

/// Returns whether a folder is empty, apart from `lost+found`.
fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        let mut names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        names.all(|name| name == "lost+found")
    })
}
