//! Runs a tree in gVisor: its bundle, and the command that runs it.
//!
//! `runsc run` is a child of the init, in the same namespaces and in a root that contains only
//! itself, the bundle and the tree's root. The init writes the bundle to memory of the mount
//! namespace, so that the environment in it never reaches a disk or a command line. No other
//! command of `runsc` is used: it would need process ids of the inner namespace.
//!
//! The command ends as soon as the guest runs, and the init becomes the parent of the guest kernel:
//! if it stayed, it would hold the server's pipes open after the server has closed them.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use crate::command::{Command, GVisor, Limits, Network};
use crate::host_parts::SERVER_HOME;
use crate::job::Job;
use crate::own::Layout;
use crate::protocol::{FLAG_RUNTIME, GUEST_ID, STEP_AROUND, STEP_DEVICE, STEP_READ_ONLY};
use crate::root::{OwnRoot, RootBase};
use crate::search::search_path;
use crate::steps::Step;

mod probe;

pub use probe::GVisorProof;
pub(crate) use probe::Proofs;

/// Shared memory; without its own size limit it is limited only by the total memory.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";
const SHARED_MEMORY_BYTES: u64 = 64 << 20;
const RLIMIT_CORE: u32 = 4;
const RLIMIT_NOFILE: u32 = 7;
/// The descriptor limit of the runtime itself; the guest has the limit of its command.
const NOFILE: u64 = 65_536;
/// Placeholder ids, which the init replaces by those of the tree.
const UID: u32 = u32::MAX - 15;
const GID: u32 = u32::MAX - 14;

/// Fills a job that runs a command in gVisor.
pub(crate) fn fill(
    job: &mut Job,
    command: &Command,
    root: &OwnRoot,
    runtime: &GVisor,
    layout: &Layout,
) {
    runtime_root(job, runtime);
    job.steps.extend(layout.steps.iter().cloned());
    let writable = root.writable && matches!(root.base, RootBase::Layers { .. });
    let bundle = bundle(command, &root.hostname, !writable, layout);
    finish(job, bundle, command.network);
}

/// Returns the limits outside the guest: gVisor has several processes and threads for each guest
/// process.
pub(crate) fn outside(limits: &Limits) -> Limits {
    let threads = |pids: u64| pids.saturating_mul(4).saturating_add(64);
    Limits {
        pids: limits.pids.map(threads),
        ..*limits
    }
}

/// Returns the limits of the runtime's own processes.
pub(crate) fn limits() -> Vec<(u32, u64)> {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    vec![(RLIMIT_CORE, 0), (RLIMIT_NOFILE, NOFILE.min(most))]
}

/// Adds the steps for the root in which the runtime runs.
pub(crate) fn runtime_root(job: &mut Job, runtime: &GVisor) {
    let program = fs::canonicalize(&runtime.program).unwrap_or_else(|_| runtime.program.clone());
    let first = job.first_id;
    let own = format!("mode=700,uid={first},gid={first},size=16m,nr_inodes=4k");
    let steps = &mut job.steps;
    steps.push(Step::memory_root("/new", "mode=755,size=4m,nr_inodes=4k"));
    steps.push(Step::bind(program, "/runsc").with(STEP_READ_ONLY));
    steps.push(Step::memory("/dev", "mode=755,size=64k,nr_inodes=64"));
    for device in ["/dev/null", "/dev/zero", "/dev/urandom"] {
        steps.push(Step::bind(device, device).with(STEP_DEVICE));
    }
    steps.push(Step::proc("/proc"));
    steps.push(Step::memory("/tmp", &own));
    steps.push(Step::memory("/state", &own));
    for folder in ["/bundle", "/mounts", "/rootfs"] {
        steps.push(Step::directory(folder, 0o755));
    }
}

/// Adds the bundle and the command that runs it.
pub(crate) fn finish(job: &mut Job, bundle: Vec<u8>, network: Network) {
    let bundle = Step::file_for_user("/bundle/config.json", 0o600, bundle);
    job.steps.push(bundle.with(STEP_AROUND));
    job.flags |= FLAG_RUNTIME;
    job.cwd = PathBuf::from("/");
    job.candidates = vec![PathBuf::from("/runsc")];
    // Uses the tree's network namespace, which has only a loopback unless the full network is
    // granted.
    let network = match network {
        Network::None => "--network=none",
        Network::Inside | Network::Full => "--network=host",
    };
    let guest_id = format!("--pid-file={}", GUEST_ID.to_string_lossy());
    job.arguments = [
        "runsc",
        "--root=/state",
        "--platform=systrap",
        network,
        "--overlay2=none",
        "--ignore-cgroups",
        "run",
        "--detach",
        &guest_id,
        "--bundle=/bundle",
        "server",
    ]
    .map(str::to_owned)
    .into();
}

/// Returns the configuration of the guest, with placeholders for its user and group id.
pub(crate) fn bundle(
    command: &Command,
    host_name: &str,
    read_only: bool,
    layout: &Layout,
) -> Vec<u8> {
    let given = |name: &str| command.env.iter().any(|(variable, _)| variable == name);
    let mut environment: Vec<String> = command
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut default = |name: &str, value: &str| {
        if !given(name) {
            environment.push(format!("{name}={value}"));
        }
    };
    default("PATH", search_path(command));
    if matches!(&command.root, crate::root::Root::Own(root) if root.base == RootBase::HostParts) {
        default("HOME", SERVER_HOME);
        default("TMPDIR", "/tmp");
    }
    let words = std::iter::once(&command.program).chain(&command.args);
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({
            "destination": SHARED_MEMORY,
            "type": "tmpfs",
            "source": "shm",
            "options": ["nosuid", "nodev", "mode=1777", format!("size={SHARED_MEMORY_BYTES}")],
        }),
    ];
    mounts.extend(
        layout
            .guest_mounts
            .iter()
            .map(|(target, content, read_only)| {
                let access = if *read_only { "ro" } else { "rw" };
                json!({
                    "destination": target.to_string_lossy(),
                    "type": "bind",
                    "source": content,
                    "options": ["rbind", "nosuid", "nodev", access],
                })
            }),
    );
    let namespaces: Vec<Value> = ["pid", "ipc", "uts", "mount"]
        .into_iter()
        .chain((command.network == Network::None).then_some("network"))
        .map(|kind| json!({ "type": kind }))
        .collect();
    let limit = |kind: &str, most: u64| json!({"type": kind, "hard": most, "soft": most});
    let mut limits = vec![limit("RLIMIT_NOFILE", command.limits.nofile)];
    // Enforced by the guest's kernel: beyond it a fork fails, and the guest keeps running.
    limits.extend(command.limits.pids.map(|pids| limit("RLIMIT_NPROC", pids)));
    let none: [&str; 0] = [];
    let config = json!({
        "ociVersion": "1.0.2",
        "hostname": host_name,
        "root": {"path": "/rootfs", "readonly": read_only},
        "mounts": mounts,
        "linux": {"namespaces": namespaces},
        "process": {
            "terminal": false,
            "user": {"uid": UID, "gid": GID},
            "args": words.collect::<Vec<_>>(),
            "env": environment,
            "cwd": command.cwd.to_string_lossy(),
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": none, "effective": none, "inheritable": none, "permitted": none,
                "ambient": none,
            },
            "rlimits": limits,
        },
    });
    // The placeholder cannot occur in a text of the command: its quotes would be escaped.
    let text = config.to_string();
    let user = json!({"uid": UID, "gid": GID}).to_string();
    let place = format!("\"user\":{user}");
    text.replacen(&place, "\"user\":{\"uid\":\0,\"gid\":\0}", 1)
        .into_bytes()
}
