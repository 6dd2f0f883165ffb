//! A thread that waits for every init, reaps it when it ends, and removes the cgroups of ended
//! trees.
//!
//! Dropping a tree must neither block a runtime's worker thread nor need a runtime, and no zombie
//! may stay.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::sync::watch;

use crate::cgroup::Group;
use crate::exit::Exit;

/// How often, and at which interval, the removal of a non-empty cgroup is retried.
const RETRIES: u32 = 100;
const RETRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// A resident init: a child of this process.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) pid: u32,
    pidfd: OwnedFd,
    /// How it ended, once it has been reaped. All processes of its tree have ended by then.
    ended: watch::Sender<Option<Exit>>,
}

/// A task of the thread: an init to reap, or a group to remove.
#[derive(Debug)]
enum Arrival {
    Init(Arc<Init>),
    Group(Group),
}

/// The reaper thread; ends, after a last round, when dropped.
#[derive(Debug)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// At most two entries per tree.
    arrivals: Mutex<Vec<Arrival>>,
    wake: OwnedFd,
    closing: AtomicBool,
}

impl Init {
    /// Sends SIGKILL through the pidfd, safe against reused process ids.
    pub(crate) fn kill(&self) {
        if let Err(error) = pidfd_send_signal(&self.pidfd, Signal::KILL) {
            tracing::debug!(pid = self.pid, %error, "the init is already gone");
        }
    }

    /// Returns a receiver of its exit.
    pub(crate) fn ended(&self) -> watch::Receiver<Option<Exit>> {
        self.ended.subscribe()
    }

    /// Reaps it if it has ended; returns whether it has.
    fn reap(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let exit = match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(None) | Err(Errno::INTR) => return false,
            Ok(Some(status)) => Exit {
                code: status.exit_status(),
                signal: status.terminating_signal(),
                ..Exit::default()
            },
            // Reaped elsewhere.
            Err(_) => Exit::default(),
        };
        self.ended.send_replace(Some(exit));
        true
    }
}

impl Reaper {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let closing = AtomicBool::new(false);
        let shared = Arc::new(Shared {
            arrivals: Mutex::default(),
            wake,
            closing,
        });
        let thread = std::thread::Builder::new()
            .name("gantry-reaper".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.collect()
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Starts watching a child of this process, to reap it.
    pub(crate) fn watch(&self, pid: u32) -> io::Result<Arc<Init>> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty())?;
        let init = Arc::new(Init {
            pid,
            pidfd,
            ended: watch::Sender::new(None),
        });
        self.shared.arrive(Arrival::Init(Arc::clone(&init)));
        Ok(init)
    }

    /// Kills the remaining members of a group and removes it.
    pub(crate) fn remove(&self, group: Group) {
        self.shared.arrive(Arrival::Group(group));
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that reaps ended processes panicked");
        }
    }
}

impl Shared {
    fn arrive(&self, arrival: Arrival) {
        self.arrivals.lock().push(arrival);
        self.wake();
    }

    fn wake(&self) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }

    fn collect(&self) {
        let mut inits: Vec<Arc<Init>> = Vec::new();
        let mut groups: Vec<(Group, u32)> = Vec::new();
        let mut last_rounds = RETRIES;
        loop {
            let closing = self.closing.load(Ordering::Acquire);
            let arrivals = {
                let mut arrivals = self.arrivals.lock();
                std::mem::take(&mut *arrivals)
            };
            for arrival in arrivals {
                match arrival {
                    Arrival::Init(init) => inits.push(init),
                    Arrival::Group(group) => groups.push((group, RETRIES)),
                }
            }
            inits.retain(|init| !init.reap());
            groups.retain_mut(|(group, left)| !group.remove() && still_trying(group, left));
            if closing {
                last_rounds -= 1;
                if last_rounds == 0 || inits.is_empty() && groups.is_empty() {
                    return;
                }
            }
            let busy = closing || !groups.is_empty();
            let mut polled: Vec<PollFd<'_>> = inits
                .iter()
                .map(|init| &init.pidfd)
                .chain([&self.wake])
                .map(|fd| PollFd::new(fd, PollFlags::IN))
                .collect();
            // An error (EINTR, ENOMEM) only starts the next round earlier.
            poll(&mut polled, busy.then_some(&RETRY)).ok();
            rustix::io::read(&self.wake, &mut [0u8; 8]).ok();
        }
    }
}

/// Counts a failed attempt; after the last one, the next start cleans up.
fn still_trying(group: &Group, left: &mut u32) -> bool {
    *left -= 1;
    if *left == 0 {
        tracing::warn!(?group, "cgroup has members that cannot be killed");
    }
    *left > 0
}
