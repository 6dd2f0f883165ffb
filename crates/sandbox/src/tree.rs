//! A running tree: waits for its end, asks it to end, ends it. Dropping it ends it too.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::cgroup::Group;
use crate::command::Limits;
use crate::exit::{Exit, Usage};
use crate::inside::{Channel, Inside, Told};
use crate::meter::Meter;
use crate::protocol::{COMMAND_KILL, COMMAND_TERMINATE};
use crate::reaper::Init;
use crate::sandbox::Inner;

/// How long the rest of a tree may take to go after its server ended; normally a few milliseconds.
const LAST_PROCESSES: Duration = Duration::from_secs(1);

/// The processes of one command. Dropping it ends them all.
#[derive(Debug)]
pub struct Tree {
    server_pid: u32,
    limits: Limits,
    /// Whether the kernel ends the tree with its init.
    namespaced: bool,
    /// Whether sockets that the init makes reach nothing but what the tree reaches.
    reachable: bool,
    channel: Arc<Channel>,
    init: Arc<Init>,
    group: Group,
    exit: Option<Exit>,
    sandbox: Arc<Inner>,
}

/// A running tree before a runtime watches it; dropping it ends it as well.
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
    /// Takes charge of a running tree.
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

    /// Returns the process id of the server itself, as this process numbers it.
    pub fn pid(&self) -> u32 {
        self.server_pid
    }

    /// Returns the limits the tree was given.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Waits until the server has ended and its tree with it. Safe to cancel and to call again.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = &self.exit {
            return exit.clone();
        }
        let reported = match self.channel.ended().await {
            Told::Exited(exit) => Some(exit),
            // The init was killed, and the tree with it where the kernel holds them together.
            Told::Gone | Told::Running => {
                if !self.namespaced {
                    self.group.kill();
                }
                None
            }
        };
        // The init goes last. Past the bound something hangs in the kernel; the reaper stays on it.
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

    /// Ends every process of the tree at once.
    pub fn kill(&self) {
        if self.namespaced {
            // The kernel ends the namespace with its first process, whatever state it is in.
            self.init.kill();
        } else {
            self.command(COMMAND_KILL);
            self.group.kill();
        }
    }

    /// Returns what the tree uses now, from its cgroups or from `/proc`.
    pub fn usage(&self) -> Usage {
        self.meter().read()
    }

    /// Returns what reads the tree's usage while somebody else waits for its end.
    pub fn meter(&self) -> Meter {
        Meter::new(Arc::clone(&self.init), self.group.clone())
    }

    /// Returns what makes sockets inside the tree's network namespace, while somebody else waits for its
    /// end.
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
        // Ends an init that only listens.
        self.channel.close();
        self.sandbox.reaper.remove(std::mem::take(&mut self.group));
    }
}
