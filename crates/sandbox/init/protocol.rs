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
