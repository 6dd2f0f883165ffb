//! Kills a gateway at one of its writes: a system call on its files, or a message to its database.

use gantry_testkit::cut::Cut;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Gantry, Tracer};

/// The system calls that change a file.
const WRITES: &str = "write,writev,pwrite64,pwritev,fsync,fdatasync,ftruncate,fallocate";

/// Where the writes of a gateway are met.
pub(super) enum Points {
    /// System calls on the database and the journal of its data folder.
    Files,
    /// Messages to PostgreSQL, which go through this proxy.
    Messages(Cut),
}

/// Watches the writes to the database and the journal.
fn traced(gantry: &Gantry, inject: Option<&str>) -> Tracer {
    let files = [gantry.database_files(), gantry.journal_files()].concat();
    Tracer::attach(gantry, WRITES, &files, inject)
}

impl Points {
    /// Does something and returns how many writes it made, and what it returned.
    pub(super) fn count<T>(&self, gantry: &Gantry, act: impl FnOnce() -> T) -> (usize, T) {
        match self {
            Self::Files => {
                let tracer = traced(gantry, None);
                let done = act();
                (tracer.most_calls_of_a_thread(), done)
            }
            Self::Messages(proxy) => {
                let before = proxy.pieces();
                let done = act();
                (proxy.pieces() - before, done)
            }
        }
    }

    /// Does something and kills the gateway at the `number`-th write meanwhile, or after it if there are
    /// fewer. Returns what was returned.
    pub(super) fn kill_at<T>(&self, gantry: &Gantry, number: usize, act: impl FnOnce() -> T) -> T {
        match self {
            Self::Files => {
                let inject = format!("signal=SIGKILL:when={number}");
                let mut tracer = traced(gantry, Some(&inject));
                let done = act();
                kill(gantry.pid);
                tracer.stop();
                done
            }
            Self::Messages(proxy) => {
                let pid = gantry.pid;
                // The last message may reach the database though nobody hears of it.
                let is_passed_on = number.is_multiple_of(2);
                proxy.at_piece(number, is_passed_on, move || kill(pid));
                let done = act();
                kill(pid);
                proxy.disarm();
                done
            }
        }
    }
}

/// Kills a process that may be gone already.
fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::KILL).ok();
    }
}
