//! The resident init: the first process of the tree's PID namespace, or its subreaper if there is
//! none.
//!
//! It starts the server, reaps ended processes, forwards SIGTERM, and kills everything when the
//! server ends, on command, or when the gateway's end of the control socket closes.

use crate::descendants;
use crate::job::{FIRST_EXTRA_FD, Job, Mapping};
use crate::mounts;
use crate::protocol::{
    COMMAND_KILL, COMMAND_SOCKET, COMMAND_TERMINATE, FLAG_CGROUP_KILL, FLAG_CGROUP_V2, FLAG_LOOPBACK, FLAG_OWN_ROOT, FLAG_RUNTIME, GUEST_ID,
    KIND_EXITED, KIND_STARTED, Record, SOCKET_COMMAND_LEN, STAGE_FORK, STAGE_LOOPBACK, STAGE_RECEIVE,
};
use crate::report::{CONTROL, fail, note, send};
use crate::root::{self, Made};
use crate::server;
use crate::sockets;
use crate::sys;

const PR_SET_DUMPABLE: usize = 4;
/// After this many rounds of killing children, all descendants are searched.
const EVERYBODY: u32 = 8;

/// How many processes can end before the guest kernel is known: it, its file server, and two more.
const EARLY: usize = 4;

/// The tree as seen by its init.
struct Tree {
    /// With gVisor first the command that starts it, then its guest kernel.
    server: i32,
    /// Whether the server is gVisor.
    runtime: bool,
    /// Whether gVisor's command still runs: it ends as soon as the guest runs, so that nothing but
    /// the guest holds the server's streams, and leaves the guest kernel to this process.
    starts: bool,
    /// What ended meanwhile, with its status.
    early: [(i32, i32); EARLY],
    /// Whether the kernel kills the tree together with this process.
    namespaced: bool,
    cgroup_kill: Option<i32>,
}

/// Starts the job's server and supervises it.
pub(crate) fn run(mapping: Mapping, fds: &[i32], user_namespace: Option<i32>) -> ! {
    let Some(job) = Job::parse(mapping.bytes()) else {
        fail(CONTROL, STAGE_RECEIVE, sys::EINVAL, 0);
    };
    let mut made = Made::new(&job, user_namespace);
    if job.flags & FLAG_OWN_ROOT != 0 {
        root::make(&job, &mut made);
    } else if job.unshare & sys::CLONE_NEWNS != 0 {
        mounts::prepare(&job);
    }
    if job.flags & FLAG_LOOPBACK != 0
        && let Err(errno) = sys::raise_loopback()
    {
        note(CONTROL, STAGE_LOOPBACK, errno, 0);
    }
    let namespaced = job.unshare & sys::CLONE_NEWPID != 0;
    let runtime = job.flags & FLAG_RUNTIME != 0;
    let (cgroup_kill, cgroups) = match fds[FIRST_EXTRA_FD..].split_last() {
        Some((kill, procs)) if job.flags & FLAG_CGROUP_KILL != 0 => (Some(*kill), procs),
        _ => (None, &fds[FIRST_EXTRA_FD..]),
    };
    let born_in = cgroups.first().filter(|_| job.flags & FLAG_CGROUP_V2 != 0);
    let born_there = born_in.map(|cgroup| sys::fork_into(sys::CLONE_VFORK, *cgroup));
    let data = [fds[0], fds[1], fds[2]];
    // This process sleeps until the server runs its program or has ended; memory is not shared.
    let forked = match born_there {
        Some(Ok(0)) => server::run(&job, &made, data, cgroups, 1),
        Some(Ok(pid)) => Ok(pid),
        Some(Err(_)) | None => sys::fork(sys::CLONE_VFORK),
    };
    let server = match forked {
        Ok(0) => server::run(&job, &made, data, cgroups, 0),
        Ok(pid) => pid,
        Err(errno) => fail(CONTROL, STAGE_FORK, errno, 0),
    };
    if let Some(fd) = user_namespace {
        sys::close(fd);
    }
    mapping.release();
    for fd in fds.iter().filter(|fd| Some(**fd) != cgroup_kill) {
        sys::close(*fd);
    }
    let _ = sys::prctl(PR_SET_DUMPABLE, 0, 0);
    // From here on this process holds no part of the job.
    if !runtime {
        started();
    }
    Tree {
        server,
        runtime,
        starts: runtime,
        early: [(0, 0); EARLY],
        namespaced,
        cgroup_kill,
    }
    .watch()
}

/// Reports that the program runs, or with gVisor its guest.
fn started() {
    send(
        CONTROL,
        Record {
            kind: KIND_STARTED,
            stage: 0,
            value: 0,
            data: 0,
        },
    );
}

impl Tree {
    fn watch(&mut self) -> ! {
        let child_mask = 1 << (sys::SIGCHLD - 1);
        let Ok(signals) = sys::signal_descriptor(child_mask) else {
            self.end()
        };
        loop {
            let (commanded, child_ended) = sys::wait_readable(CONTROL, signals);
            if child_ended {
                let mut information = [0; 128];
                let _ = sys::read(signals, &mut information);
            }
            // Reap even without a signal: children may have ended before the descriptor existed.
            while let Ok(Some((pid, status))) = sys::wait_any(false) {
                if self.starts && self.follow_guest(pid, status) {
                    continue;
                }
                self.reaped(pid, status);
                if pid == self.server {
                    self.end();
                }
            }
            if commanded {
                let mut command = [0];
                match sys::read(CONTROL, &mut command) {
                    Ok(1) if command[0] == COMMAND_TERMINATE => self.terminate(),
                    Ok(1) if command[0] == COMMAND_SOCKET => {
                        // The command is written at once, so the rest is available.
                        let mut rest = [0; SOCKET_COMMAND_LEN - 1];
                        match sys::read(CONTROL, &mut rest) {
                            Ok(length) if length == rest.len() => sockets::serve(rest),
                            _ => self.end(),
                        }
                    }
                    Ok(1) if command[0] != COMMAND_KILL => {}
                    _ => self.end(),
                }
            }
        }
    }

    /// Handles the end of a process while gVisor starts; returns whether the guest goes on.
    fn follow_guest(&mut self, pid: i32, status: i32) -> bool {
        if pid != self.server {
            self.early.rotate_right(1);
            self.early[0] = (pid, status);
            return true;
        }
        self.starts = false;
        started();
        let Some(kernel) = descendants::written_id(GUEST_ID).filter(|_| status == 0) else {
            return false;
        };
        self.server = kernel;
        // A guest that ends at once may have been reaped before the command that started it.
        if let Some((_, status)) = self.early.iter().find(|(pid, _)| *pid == kernel) {
            self.reaped(kernel, *status);
            self.end();
        }
        true
    }

    /// Reports to the gateway how the server ended.
    fn reaped(&self, pid: i32, status: i32) {
        if pid == self.server {
            send(
                CONTROL,
                Record {
                    kind: KIND_EXITED,
                    stage: 0,
                    value: status,
                    data: 0,
                },
            );
        }
    }

    /// Sends SIGTERM to every process; stopped ones are continued so that they can handle it.
    fn terminate(&self) {
        for signal in [sys::SIGTERM, sys::SIGCONT] {
            if self.runtime {
                // The guest kernel forwards it to the program.
                sys::kill(self.server, signal);
            } else if self.namespaced {
                sys::kill(-1, signal);
            } else {
                descendants::signal_all(signal);
            }
        }
    }

    /// Kills the tree and exits.
    fn end(&self) -> ! {
        if !self.namespaced {
            let mut round = 0u32;
            while self.reap_all() {
                round = round.wrapping_add(1);
                if let Some(fd) = self.cgroup_kill {
                    let _ = sys::write(fd, b"1");
                }
                // Now and then search all descendants, in case the tree forks faster than its
                // levels are killed.
                if round.is_multiple_of(EVERYBODY) || descendants::kill_children() == 0 {
                    descendants::signal_all(sys::SIGKILL);
                }
                if let Ok(Some((pid, status))) = sys::wait_any(true) {
                    self.reaped(pid, status);
                }
            }
        }
        sys::exit(0)
    }

    /// Reaps ended processes; returns whether any are left.
    fn reap_all(&self) -> bool {
        loop {
            match sys::wait_any(false) {
                Ok(Some((pid, status))) => self.reaped(pid, status),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}
