//! The protocol between the gateway and the init, compiled into both.
//!
//! The gateway sends one byte with the descriptors of a job (see [`MAX_FDS`]) and later single
//! command bytes; the init replies with fixed-size [`Record`]s. This file contains no logic and no
//! `unsafe`.

/// The first field of a job: both sides are built together, a mismatch is a bug.
pub(crate) const JOB_VERSION: u32 = 1;

/// The most descriptors of a job: standard input, output, error, the job itself, then the cgroups
/// to join (a directory with [`FLAG_CGROUP_V2`], else `tasks` files), then (with
/// [`FLAG_CGROUP_KILL`]) one `cgroup.kill` file.
pub(crate) const MAX_FDS: usize = 12;

/// Go through all steps, but exit instead of running a program.
pub(crate) const FLAG_PROBE: u32 = 1;
/// Mount a `/proc` that shows only this tree.
pub(crate) const FLAG_MOUNT_PROC: u32 = 1 << 1;
/// Bring the loopback device of the new network namespace up.
pub(crate) const FLAG_LOOPBACK: u32 = 1 << 2;
/// The last descriptor of the job is a `cgroup.kill` file.
pub(crate) const FLAG_CGROUP_KILL: u32 = 1 << 3;

/// The first cgroup to join is a version 2 directory: the server can be created in it.
pub(crate) const FLAG_CGROUP_V2: u32 = 1 << 4;

/// The steps of the job build a separate root for the tree.
pub(crate) const FLAG_OWN_ROOT: u32 = 1 << 5;
/// The user namespace of the job has 65,536 ids from its first one, not only that one.
pub(crate) const FLAG_MANY_IDS: u32 = 1 << 6;
/// The program is a runtime that creates its own namespaces: it keeps its capabilities in the user
/// namespace. It ends once the guest runs, and leaves the guest kernel, whose id it writes to
/// [`GUEST_ID`], as the server: SIGTERM goes to that only, and its status is the server's.
pub(crate) const FLAG_RUNTIME: u32 = 1 << 7;
/// Give the server a cgroup namespace.
pub(crate) const FLAG_CGROUP_NAMESPACE: u32 = 1 << 8;
/// Set `HOME` to the user's home directory in the tree's root.
pub(crate) const FLAG_HOME: u32 = 1 << 9;
/// Every protection of the job is mandatory: a failure that would otherwise be reported ends the
/// start.
pub(crate) const FLAG_WHOLE: u32 = 1 << 10;

/// Where a runtime writes the process id of its guest kernel.
pub(crate) const GUEST_ID: &core::ffi::CStr = c"/state/guest";

/// The steps that build a root, in the order of the job. Targets are paths in the root that was
/// started last.
///
/// Starts a root in memory at `target`; `source` holds the mount options.
pub(crate) const STEP_MEMORY_ROOT: u32 = 1;
/// Starts a root of layers: `source` is their folder, `content` their zero-terminated names.
pub(crate) const STEP_LAYERS_ROOT: u32 = 2;
/// Starts a root that is the folder `source`.
pub(crate) const STEP_FOLDER_ROOT: u32 = 3;
/// Prepares the scratch space: the folder `source`, or memory with the mount options in `content`.
pub(crate) const STEP_SCRATCH: u32 = 4;
/// Looks up the user `source` in the root.
pub(crate) const STEP_USER: u32 = 5;
/// Creates a directory.
pub(crate) const STEP_DIRECTORY: u32 = 6;
/// Writes a file.
pub(crate) const STEP_FILE: u32 = 7;
/// Writes a file and replaces the zeros in `content` by the user and group id.
pub(crate) const STEP_FILE_FOR_USER: u32 = 8;
/// Creates a symbolic link to `source`.
pub(crate) const STEP_LINK: u32 = 9;
/// Bind-mounts the file or directory `source` of the host.
pub(crate) const STEP_BIND: u32 = 10;
/// Mounts a tmpfs with the options `source`.
pub(crate) const STEP_MEMORY: u32 = 11;
/// Mounts a `/proc` that shows only this tree.
pub(crate) const STEP_PROC: u32 = 12;
/// Mounts a private `devpts`.
pub(crate) const STEP_TERMINALS: u32 = 13;
/// Covers the target with an empty file or directory.
pub(crate) const STEP_MASK: u32 = 14;
/// Makes the mount at the target read-only, without the mounts below it.
pub(crate) const STEP_SEAL: u32 = 15;

/// The created object is read-only.
pub(crate) const STEP_READ_ONLY: u32 = 1;
/// Optional: a missing source is skipped, and a failure is reported.
pub(crate) const STEP_OPTIONAL: u32 = 1 << 1;
/// The created object belongs to the tree's user.
pub(crate) const STEP_FOR_USER: u32 = 1 << 2;
/// The source is a device.
pub(crate) const STEP_DEVICE: u32 = 1 << 3;
/// The source or the target is a path in the scratch space.
pub(crate) const STEP_IN_SCRATCH: u32 = 1 << 4;
/// The source is a path in the root itself.
pub(crate) const STEP_IN_ROOT: u32 = 1 << 5;
/// The source is an empty directory of the gateway, whose ownership passes to the tree's user or to
/// the owner of the target.
pub(crate) const STEP_HAND_OVER: u32 = 1 << 6;
/// A place beside the root that the tree does not see: the target of a file, or the source of a
/// bind.
pub(crate) const STEP_APART: u32 = 1 << 8;
/// The target is a path in the enclosing root.
pub(crate) const STEP_AROUND: u32 = 1 << 9;
/// The tree may change its root; changes go to the scratch space.
pub(crate) const STEP_WRITABLE: u32 = 1 << 7;

/// Keeps the user or group unchanged.
pub(crate) const KEEP_ID: u32 = u32::MAX;

/// Sends SIGTERM to every process of the tree.
pub(crate) const COMMAND_TERMINATE: u8 = b'T';
/// Kills the tree immediately.
pub(crate) const COMMAND_KILL: u8 = b'K';

/// Creates a socket in the tree's network namespace. This is the first of [`SOCKET_COMMAND_LEN`]
/// bytes; the flags (`SOCKET_*`), the port and the request number follow, low bytes first.
pub(crate) const COMMAND_SOCKET: u8 = b'S';
pub(crate) const SOCKET_COMMAND_LEN: usize = 8;
/// Listen instead of connecting.
pub(crate) const SOCKET_LISTEN: u8 = 1;
/// On `[::1]` instead of `127.0.0.1`.
pub(crate) const SOCKET_VERSION_6: u8 = 1 << 1;

/// The resident init runs; `data` is its process id.
pub(crate) const KIND_RESIDENT: u8 = 1;
/// A protection failed: `stage` and `value` (errno) say which and why; `data` is an index.
pub(crate) const KIND_NOTE: u8 = 2;
/// Sent by the server process itself just before it runs its program.
pub(crate) const KIND_SERVER: u8 = 3;
/// The start failed: `stage` and `value` (errno) say why; `data` is an index.
pub(crate) const KIND_FAILED: u8 = 4;
/// The program runs (or has already ended).
pub(crate) const KIND_STARTED: u8 = 5;
/// The server ended; `value` is its wait status.
pub(crate) const KIND_EXITED: u8 = 6;
/// The Landlock ABI of the kernel in `value`, zero if there is none.
pub(crate) const KIND_LANDLOCK: u8 = 7;
/// The response to [`COMMAND_SOCKET`]: the socket is attached, or `value` is the errno; `data` is
/// the number of the request.
pub(crate) const KIND_SOCKET: u8 = 8;

pub(crate) const STAGE_RECEIVE: u8 = 1;
pub(crate) const STAGE_UNSHARE: u8 = 2;
pub(crate) const STAGE_ID_MAP: u8 = 3;
pub(crate) const STAGE_FORK: u8 = 4;
pub(crate) const STAGE_PROPAGATION: u8 = 5;
pub(crate) const STAGE_PROC: u8 = 6;
pub(crate) const STAGE_PRIVATE_DIR: u8 = 7;
pub(crate) const STAGE_LOOPBACK: u8 = 8;
pub(crate) const STAGE_CGROUP: u8 = 9;
pub(crate) const STAGE_RLIMIT: u8 = 10;
pub(crate) const STAGE_CAPABILITIES: u8 = 11;
pub(crate) const STAGE_USER: u8 = 12;
pub(crate) const STAGE_CWD: u8 = 13;
pub(crate) const STAGE_PRIVILEGES: u8 = 14;
pub(crate) const STAGE_LANDLOCK: u8 = 15;
pub(crate) const STAGE_SECCOMP: u8 = 16;
pub(crate) const STAGE_EXEC: u8 = 17;
/// The program exists, but its interpreter or loader does not.
pub(crate) const STAGE_INTERPRETER: u8 = 18;
/// A directory could not be hidden.
pub(crate) const STAGE_HIDE: u8 = 19;
/// The user namespace of the tree could not be created.
pub(crate) const STAGE_RANGE: u8 = 20;
/// The root could not be started.
pub(crate) const STAGE_ROOT: u8 = 21;
/// A step of the root failed; `data` is its index.
pub(crate) const STAGE_STEP: u8 = 22;
/// The layers do not show the owners of the tree's user namespace.
pub(crate) const STAGE_LAYER_OWNERS: u8 = 23;
/// The user is not in the tree's root, or its id is not mapped.
pub(crate) const STAGE_LOOKUP: u8 = 24;
/// The root could not be entered.
pub(crate) const STAGE_PIVOT: u8 = 25;
/// The server has no cgroup namespace.
pub(crate) const STAGE_CGROUP_NAMESPACE: u8 = 26;
/// There is only one id, and gVisor needs it: the guest runs as root instead of as another user.
pub(crate) const STAGE_ONE_USER: u8 = 28;
/// The host name could not be set.
pub(crate) const STAGE_HOST_NAME: u8 = 27;

/// The length of a record on the wire.
pub(crate) const RECORD_LEN: usize = 16;

/// One message from the init to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: u8,
    pub(crate) stage: u8,
    pub(crate) value: i32,
    pub(crate) data: u64,
}
