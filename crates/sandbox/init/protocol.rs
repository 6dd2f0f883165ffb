//! What the gateway and the init say to each other, compiled into both.
//!
//! The gateway sends one byte with the descriptors of a job (see [`MAX_FDS`]) and later single
//! command bytes; the init answers with fixed-size [`Record`]s. This file holds no logic and no `unsafe`.

/// The first field of a job: both sides are built together, a mismatch is a bug.
pub(crate) const JOB_VERSION: u32 = 1;

/// The most descriptors one job may carry: standard input, output, error, the job itself, then the
/// cgroups to join (a directory with [`FLAG_CGROUP_V2`], else `tasks` files), then (with
/// [`FLAG_CGROUP_KILL`]) one `cgroup.kill` file.
pub(crate) const MAX_FDS: usize = 12;

/// Go through everything, but end instead of running a program.
pub(crate) const FLAG_PROBE: u32 = 1;
/// Mount a `/proc` that shows only this tree.
pub(crate) const FLAG_MOUNT_PROC: u32 = 1 << 1;
/// Bring the loopback device of the new network namespace up.
pub(crate) const FLAG_LOOPBACK: u32 = 1 << 2;
/// The last descriptor of the job is a `cgroup.kill` file.
pub(crate) const FLAG_CGROUP_KILL: u32 = 1 << 3;

/// The first cgroup to join is a version 2 directory: the server can be born in it.
pub(crate) const FLAG_CGROUP_V2: u32 = 1 << 4;

/// The steps of the job make a root of the tree's own.
pub(crate) const FLAG_OWN_ROOT: u32 = 1 << 5;
/// The user namespace of the job has 65,536 ids from its first on, not only that one.
pub(crate) const FLAG_MANY_IDS: u32 = 1 << 6;
/// The program is a runtime that makes namespaces of its own: it keeps its rights in the user namespace,
/// and of it only the guest's kernel is told to end.
pub(crate) const FLAG_RUNTIME: u32 = 1 << 7;
/// Give the server a cgroup namespace.
pub(crate) const FLAG_CGROUP_NAMESPACE: u32 = 1 << 8;
/// Add the home of the user, as the tree's root knows it, to the environment.
pub(crate) const FLAG_HOME: u32 = 1 << 9;
/// Nothing runs unless every protection of the job was given: what would be noted ends the start.
pub(crate) const FLAG_WHOLE: u32 = 1 << 10;

/// The steps that make a root, in the order of the job. Targets are paths in the root that was begun last.
///
/// Begins a root in memory at the place `target`; `source` holds the options.
pub(crate) const STEP_MEMORY_ROOT: u32 = 1;
/// Begins a root of layers: `source` is their folder, `content` their names, each with a zero behind it.
pub(crate) const STEP_LAYERS_ROOT: u32 = 2;
/// Begins a root that is the folder `source`.
pub(crate) const STEP_FOLDER_ROOT: u32 = 3;
/// Prepares the scratch: the folder `source`, or memory with the options in `content`.
pub(crate) const STEP_SCRATCH: u32 = 4;
/// Looks up the user `source` in the root.
pub(crate) const STEP_USER: u32 = 5;
/// Makes a directory.
pub(crate) const STEP_DIRECTORY: u32 = 6;
/// Writes a file.
pub(crate) const STEP_FILE: u32 = 7;
/// Writes a file in which the numbers of user and group stand where `content` has zeros.
pub(crate) const STEP_FILE_FOR_USER: u32 = 8;
/// Makes a symbolic link with the text `source`.
pub(crate) const STEP_LINK: u32 = 9;
/// Shows the file or directory `source` of the host.
pub(crate) const STEP_BIND: u32 = 10;
/// Mounts memory with the options `source`.
pub(crate) const STEP_MEMORY: u32 = 11;
/// Mounts a `/proc` that shows only this tree.
pub(crate) const STEP_PROC: u32 = 12;
/// Mounts terminals of the tree's own.
pub(crate) const STEP_TERMINALS: u32 = 13;
/// Covers what is there with nothing.
pub(crate) const STEP_MASK: u32 = 14;
/// Makes the mount at the target read-only, and not what is mounted below it.
pub(crate) const STEP_SEAL: u32 = 15;

/// What is made is read-only.
pub(crate) const STEP_READ_ONLY: u32 = 1;
/// Goes without: what is missing is left out, and what fails is noted.
pub(crate) const STEP_OPTIONAL: u32 = 1 << 1;
/// Belongs to the user the tree runs as.
pub(crate) const STEP_FOR_USER: u32 = 1 << 2;
/// The source is a device.
pub(crate) const STEP_DEVICE: u32 = 1 << 3;
/// The source is a path in the scratch, or the target is.
pub(crate) const STEP_IN_SCRATCH: u32 = 1 << 4;
/// The source is a path in the root itself.
pub(crate) const STEP_IN_ROOT: u32 = 1 << 5;
/// The source is an empty directory of the gateway's that becomes the user's, or of whom owns the target.
pub(crate) const STEP_HAND_OVER: u32 = 1 << 6;
/// A place beside the root that the tree does not see: the target of a file, the source of a bind.
pub(crate) const STEP_APART: u32 = 1 << 8;
/// The target is a path in the root around this one.
pub(crate) const STEP_AROUND: u32 = 1 << 9;
/// The root can be changed while the tree lives, on the scratch.
pub(crate) const STEP_WRITABLE: u32 = 1 << 7;

/// Keeps the user or group as it is.
pub(crate) const KEEP_ID: u32 = u32::MAX;

/// Sends SIGTERM to every process of the tree.
pub(crate) const COMMAND_TERMINATE: u8 = b'T';
/// Ends the tree at once.
pub(crate) const COMMAND_KILL: u8 = b'K';

/// Makes a socket in the tree's network namespace. The first of [`SOCKET_COMMAND_LEN`] bytes; behind it
/// come what is asked for (`SOCKET_*`), the port and a number that the answer repeats, low bytes first.
pub(crate) const COMMAND_SOCKET: u8 = b'S';
pub(crate) const SOCKET_COMMAND_LEN: usize = 8;
/// Listen instead of connecting.
pub(crate) const SOCKET_LISTEN: u8 = 1;
/// On `[::1]` instead of `127.0.0.1`.
pub(crate) const SOCKET_VERSION_6: u8 = 1 << 1;

/// The resident init lives; `data` is its process id.
pub(crate) const KIND_RESIDENT: u8 = 1;
/// One protection could not be given: `stage` and `value` (errno) say which and why; `data` is an index.
pub(crate) const KIND_NOTE: u8 = 2;
/// Sent by the server process itself just before it runs its program.
pub(crate) const KIND_SERVER: u8 = 3;
/// Nothing runs: `stage` and `value` (errno) say why; `data` is an index.
pub(crate) const KIND_FAILED: u8 = 4;
/// The program runs (or has already ended).
pub(crate) const KIND_STARTED: u8 = 5;
/// The server ended; `value` is its wait status.
pub(crate) const KIND_EXITED: u8 = 6;
/// The Landlock ABI of the kernel in `value`, zero if there is none.
pub(crate) const KIND_LANDLOCK: u8 = 7;
/// Answers [`COMMAND_SOCKET`]: with the socket beside it, or why there is none in `value` (errno); `data` is
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
/// The program is there, its interpreter or loader is not.
pub(crate) const STAGE_INTERPRETER: u8 = 18;
/// A directory could not be put out of sight.
pub(crate) const STAGE_HIDE: u8 = 19;
/// The user namespace of the tree could not be made.
pub(crate) const STAGE_RANGE: u8 = 20;
/// The root could not be begun.
pub(crate) const STAGE_ROOT: u8 = 21;
/// A step of the root failed; `data` is its index.
pub(crate) const STAGE_STEP: u8 = 22;
/// The layers are not shown by the owners of the tree's user namespace.
pub(crate) const STAGE_LAYER_OWNERS: u8 = 23;
/// The user is not in the tree's root, or has no number there is room for.
pub(crate) const STAGE_LOOKUP: u8 = 24;
/// The root could not be entered.
pub(crate) const STAGE_PIVOT: u8 = 25;
/// The server has no cgroup namespace.
pub(crate) const STAGE_CGROUP_NAMESPACE: u8 = 26;
/// There is one id, and gVisor needs it: the guest runs as its root instead of as another user.
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
