//! A running tree: wait, terminate, kill. Dropping it kills it, too.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::cgroup::Group;
use crate::command::Limits;
use crate::exit::{Exit, Usage};
use crate::inside::{Channel, Inside, TreeState};
use crate::meter::Meter;
use crate::protocol::{COMMAND_KILL, COMMAND_TERMINATE};
use crate::reaper::Init;
use crate::sandbox::Inner;

/// How long the rest of a tree may take to end after its server; normally a few milliseconds.
const LAST_PROCESSES: Duration = Duration::from_secs(1);

/// The processes of one command. Dropping it kills them all.
#[derive(Debug)]
pub struct Tree {
    server_pid: u32,
    limits: Limits,
    /// Whether the kernel kills the tree together with its init.
    namespaced: bool,
    /// Whether the tree has its own network namespace, so that sockets of the init reach only the
    /// tree.
    reachable: bool,
    channel: Arc<Channel>,
    init: Arc<Init>,
    group: Group,
    exit: Option<Exit>,
    sandbox: Arc<Inner>,
}

/// A running tree that no runtime watches yet; dropping it kills it as well.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) server_pid: u32,
    pub(crate) init: Arc<Init>,
    pub(crate) control: OwnedFd,
    pub(crate) group: Group,
    pub(crate) limits: Limits,
    pub(crate) namespaced: bool,
    pub(crate) reachable: bool,
    pub(crate) sandbox: Arc<Inner>,
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.sandbox.reaper.remove(std::mem::take(&mut self.group));
    }
}

impl Tree {
    /// Takes over a running tree.
    pub(crate) fn new(mut parts: Parts) -> io::Result<Self> {
        let channel = Channel::new(parts.control.try_clone()?)?;
        Ok(Self {
            server_pid: parts.server_pid,
            limits: parts.limits,
            namespaced: parts.namespaced,
            reachable: parts.reachable,
            channel: Arc::new(channel),
            init: Arc::clone(&parts.init),
            group: std::mem::take(&mut parts.group),
            exit: None,
            sandbox: Arc::clone(&parts.sandbox),
        })
    }

    /// Returns the process id of the server, or of gVisor's guest kernel, in this process's PID
    /// namespace.
    pub fn pid(&self) -> u32 {
        self.server_pid
    }

    /// Returns the limits of the tree.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Waits until the server and its whole tree have ended. Cancel safe; may be called again.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = &self.exit {
            return exit.clone();
        }
        let reported = match self.channel.ended().await {
            TreeState::Exited(exit) => Some(exit),
            // The init was killed, and with a PID namespace its tree, too.
            TreeState::Gone | TreeState::Running => {
                if !self.namespaced {
                    self.group.kill();
                }
                None
            }
        };
        // The init ends last. After the time limit something hangs in the kernel; the reaper keeps
        // waiting.
        let mut ended = self.init.ended();
        let ended = timeout(LAST_PROCESSES, ended.wait_for(Option::is_some)).await;
        let init_exit = ended
            .ok()
            .and_then(Result::ok)
            .and_then(|exit| exit.clone());
        let mut exit = reported.or(init_exit).unwrap_or_default();
        exit.oom_killed = !exit.success() && self.group.out_of_memory();
        exit.pids_limit_hit = self.group.out_of_processes();
        self.exit = Some(exit.clone());
        exit
    }

    /// Sends SIGTERM to every process of the tree.
    pub fn terminate(&self) {
        self.command(COMMAND_TERMINATE);
    }

    /// Kills every process of the tree.
    pub fn kill(&self) {
        if self.namespaced {
            // The kernel kills a PID namespace together with its first process, whatever state it
            // is in.
            self.init.kill();
        } else {
            self.command(COMMAND_KILL);
            self.group.kill();
        }
    }

    /// Returns the current usage, from the tree's cgroups or from `/proc`.
    pub fn usage(&self) -> Usage {
        self.meter().read()
    }

    /// Returns a meter for the tree's usage, independent of the task that waits for its end.
    pub fn meter(&self) -> Meter {
        Meter::new(Arc::clone(&self.init), self.group.clone())
    }

    /// Returns the handle for sockets inside the tree's network namespace, independent of the task
    /// that waits for its end.
    pub fn inside(&self) -> Inside {
        Inside::new(Arc::clone(&self.channel), self.reachable)
    }

    fn command(&self, command: u8) {
        if let Err(error) = self.channel.command(&[command]) {
            tracing::debug!(pid = self.init.pid, %error, "the init is already gone");
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.kill();
        // Ends an init that only waits for commands.
        self.channel.close();
        self.sandbox.reaper.remove(std::mem::take(&mut self.group));
    }
}
