//! The init of a process tree: a small static program that the gateway runs from memory.
//!
//! It knows nothing of MCP. The first process sets up namespaces, forks the resident one into them
//! as a *child of the gateway* (`CLONE_PARENT`), and exits; the resident one (`resident.rs`) stays
//! with the server. No standard library, no allocator, no libc: the resident process costs a few
//! pages.
#![no_std]
#![no_main]
#![no_builtins]
#![deny(unsafe_op_in_unsafe_fn)]

mod descendants;
mod ids;
mod job;
mod memory;
mod mounts;
mod protocol;
mod report;
mod resident;
mod root;
mod server;
mod sockets;
mod sys;
mod text;
mod users;
mod witness;

use job::{FIRST_EXTRA_FD, Job, Mapping};
use protocol::{
    KIND_RESIDENT, MAX_FDS, Record, STAGE_FORK, STAGE_ID_MAP, STAGE_RANGE, STAGE_RECEIVE,
    STAGE_UNSHARE,
};
use report::{CONTROL, fail, send};

/// Descriptors of the job are moved here, so that 0, 1 and 2 are free.
const FIRST_FD: i32 = 16;
const PR_SET_CHILD_SUBREAPER: usize = 36;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call {entry}", entry = sym entry);
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "bl {entry}", entry = sym entry);

extern "C" fn entry() -> ! {
    sys::block_signals(u64::MAX);
    sys::set_name(c"gantry-init");
    // Leaves the gateway's session, so that a key press in its terminal does not signal the tree.
    sys::new_session();
    // Without a control socket it was started as a guest of gVisor, to print the kernel it runs on.
    if !sys::metadata(CONTROL).is_ok_and(sys::Metadata::is_socket) {
        witness::testify();
    }
    sys::close_from(1, false);
    let mut fds = [-1; MAX_FDS];
    let count = match sys::receive_descriptors(CONTROL, &mut fds) {
        Ok(Some(count)) if count >= FIRST_EXTRA_FD => count,
        Ok(None) => sys::exit(0),
        Ok(Some(_)) => fail(CONTROL, STAGE_RECEIVE, sys::EINVAL, 0),
        Err(errno) => fail(CONTROL, STAGE_RECEIVE, errno, 0),
    };
    for fd in &mut fds[..count] {
        match sys::duplicate_above(*fd, FIRST_FD) {
            Ok(moved) => *fd = moved,
            Err(errno) => fail(CONTROL, STAGE_RECEIVE, errno, 0),
        }
    }
    for low in 1..FIRST_FD {
        sys::close(low);
    }
    match Mapping::new(fds[3]) {
        Ok(mapping) => outer(mapping, &fds[..count]),
        Err(errno) => fail(CONTROL, STAGE_RECEIVE, errno, 0),
    }
}

/// Enters the namespaces and starts the resident init in them.
fn outer(mapping: Mapping, fds: &[i32]) -> ! {
    let Some(job) = Job::parse(mapping.bytes()) else {
        fail(CONTROL, STAGE_RECEIVE, sys::EINVAL, 0);
    };
    let mut user_namespace = None;
    if !job.range_map.is_empty() {
        match ids::make_namespace(job.range_map) {
            Ok(fd) => user_namespace = Some(fd),
            Err(errno) => fail(CONTROL, STAGE_RANGE, errno, 0),
        }
    }
    if job.unshare != 0
        && let Err(errno) = sys::unshare(job.unshare)
    {
        fail(CONTROL, STAGE_UNSHARE, errno, 0);
    }
    if !job.uid_map.is_empty()
        && let Err(errno) = ids::map_own(job.uid_map, job.gid_map)
    {
        fail(CONTROL, STAGE_ID_MAP, errno, 0);
    }
    let announce = |pid: i32| {
        send(
            CONTROL,
            Record {
                kind: KIND_RESIDENT,
                stage: 0,
                value: 0,
                data: pid as u64,
            },
        );
    };
    if job.unshare & sys::CLONE_NEWPID == 0 {
        let _ = sys::prctl(PR_SET_CHILD_SUBREAPER, 1, 0);
        announce(sys::process_id());
        resident::run(mapping, fds, user_namespace)
    }
    match sys::fork(sys::CLONE_PARENT) {
        Ok(0) => {
            sys::new_session();
            resident::run(mapping, fds, user_namespace)
        }
        Ok(pid) => {
            announce(pid);
            sys::exit(0)
        }
        Err(errno) => fail(CONTROL, STAGE_FORK, errno, 0),
    }
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(101)
}
