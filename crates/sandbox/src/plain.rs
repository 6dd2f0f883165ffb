//! The sandbox on platforms without an init: a supervised process and a truthful report.
//!
//! Only the server's own process group is controlled. Entry point: [`Sandbox::spawn`].

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::watch;

use crate::command::{Command, Floor, Limits, Network, Profile, Runtime};
use crate::error::{SandboxError, SpawnError};
use crate::exit::{Exit, Usage};
use crate::hidden::Hidden;
use crate::report::{
    HostReport,
    PromiseState::{Enforced, NotAsked, NotEnforced},
    Report,
};
use crate::root::Root;
use crate::{SandboxOptions, Spawned};

const WHY: &str = "not available on this platform";

/// Starts supervised processes. Cheap to clone; one per gateway.
#[derive(Clone, Debug)]
pub struct Sandbox {
    host: Arc<HostReport>,
    /// Whether there are folders that no process should see.
    hides: bool,
}

/// The process group of one command. Dropping it kills the group.
#[derive(Debug)]
pub struct Tree {
    pid: u32,
    limits: Limits,
    ended: watch::Receiver<Option<Exit>>,
}

/// Reads the usage of a tree; always empty on this platform.
#[derive(Debug)]
pub struct Meter(());

impl Meter {
    /// Returns no usage: not supported on this platform.
    pub fn read(&self) -> Usage {
        Usage::default()
    }

    /// Returns zero: not supported on this platform.
    pub fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns zero: not supported on this platform.
    pub fn socket_bytes(&self, _most: u64) -> u64 {
        0
    }

    /// Returns zeros: not supported on this platform.
    pub fn unnamed_files(&self, _devices: &[u64]) -> (u64, u64) {
        (0, 0)
    }
}

/// The verified properties of a gVisor; never created on this platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GVisorProof {
    /// The release, as a date.
    pub release: u32,
    /// The kernel that a guest sees.
    pub kernel: String,
}

/// Creates no sockets: a process here has no network namespace.
#[derive(Clone, Debug)]
pub struct Inside(());

impl Inside {
    /// Always fails: a process here has no network namespace.
    pub async fn dial(&self, _port: u16) -> io::Result<TcpStream> {
        Err(io::Error::new(io::ErrorKind::Unsupported, WHY))
    }

    /// Always fails: a process here has no network namespace.
    pub async fn listen(&self, _port: u16) -> io::Result<TcpListener> {
        Err(io::Error::new(io::ErrorKind::Unsupported, WHY))
    }
}

impl Sandbox {
    /// Reports that no isolation is supported on this platform.
    pub fn probe(_options: SandboxOptions) -> Result<Self, SandboxError> {
        let means = [
            "pid namespace",
            "memory limit",
            "cpu limit",
            "pids limit",
            "landlock",
            "seccomp",
        ];
        let mut host = HostReport::default();
        for name in means {
            host.add(name, Err::<&str, _>(WHY.to_owned()));
        }
        Ok(Self {
            host: Arc::new(host),
            hides: false,
        })
    }

    /// Returns a sandbox whose reports say that these folders are visible: this platform cannot
    /// hide them.
    #[must_use]
    pub fn hiding(self, hidden: Hidden) -> Self {
        Self {
            hides: !hidden.folders.is_empty(),
            ..self
        }
    }

    /// Returns what the host supports.
    pub fn host(&self) -> &HostReport {
        &self.host
    }

    /// Always fails: gVisor runs on Linux.
    pub async fn probe_runtime(&self, _program: &Path) -> Result<GVisorProof, String> {
        Err(WHY.to_owned())
    }

    /// Runs a command in its own process group.
    pub async fn spawn(&self, command: &Command) -> Result<Spawned, SpawnError> {
        let is_whole = command.floor == Floor::Whole;
        if is_whole || command.root != Root::Host || command.runtime != Runtime::Kernel {
            return Err(SpawnError::NoOwnRoot {
                why: WHY.to_owned(),
            });
        }
        if !command.cwd.is_dir() {
            return Err(SpawnError::CwdMissing {
                cwd: command.cwd.clone(),
            });
        }
        let mut child = Process::new(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&command.cwd)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| {
                let program = command.program.clone();
                if source.kind() == io::ErrorKind::NotFound {
                    SpawnError::ProgramNotFound {
                        program,
                        searched: "along PATH".to_owned(),
                    }
                } else {
                    SpawnError::ProgramNotExecutable { program, source }
                }
            })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (ending, ended) = watch::channel(None);
        let tree = Tree {
            pid: child.id(),
            limits: command.limits,
            ended,
        };
        // One thread per process waits for its end: there is no pidfd here.
        tokio::task::spawn_blocking(move || {
            let status = child.wait().map_or(0, ExitStatusExt::into_raw);
            let exit = Exit::from_wait_status(status);
            ending.send_replace(Some(exit));
        });
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(SpawnError::Ended);
        };
        let watch = |source| SpawnError::Setup {
            step: "watch the pipes",
            source,
        };
        Ok(Spawned {
            tree,
            stdin: Sender::from_owned_fd(OwnedFd::from(stdin)).map_err(watch)?,
            stdout: Receiver::from_owned_fd(OwnedFd::from(stdout)).map_err(watch)?,
            stderr: Receiver::from_owned_fd(OwnedFd::from(stderr)).map_err(watch)?,
            report: report(command, self.hides),
        })
    }
}

impl Tree {
    /// Returns the process id of the server.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the limits of the tree; none is enforced.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Waits until the server has ended. Cancel safe; may be called again.
    pub async fn wait(&mut self) -> Exit {
        let exit = self.ended.wait_for(Option::is_some).await;
        exit.ok().and_then(|exit| exit.clone()).unwrap_or_default()
    }

    /// Sends SIGTERM to the server's process group.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the server's process group.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Returns no usage: not supported on this platform.
    pub fn usage(&self) -> Usage {
        self.meter().read()
    }

    /// Returns a meter for the tree's usage, independent of the task that waits for its end.
    pub fn meter(&self) -> Meter {
        Meter(())
    }

    /// Returns the handle for sockets inside the tree's network namespace.
    pub fn inside(&self) -> Inside {
        Inside(())
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(group) = group.filter(|_| self.ended.borrow().is_none()) {
            kill_process_group(group, signal).ok();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.kill();
    }
}

fn report(command: &Command, hides: bool) -> Report {
    let mut report = Report::default();
    let hosted = command.profile == Profile::Hosted;
    let asked = |asked: bool| {
        if asked {
            (NotEnforced, WHY)
        } else {
            (NotAsked, "not asked for")
        }
    };
    report.add(
        "tree",
        NotEnforced,
        "only the server's process group is ended, and not if the gateway is killed",
    );
    for (name, wanted) in [
        ("memory", command.limits.memory_bytes.is_some()),
        ("cpu", command.limits.cpu.is_some()),
        ("pids", command.limits.pids.is_some()),
        ("filesystem", hosted),
        ("syscalls", true),
        ("network", command.network != Network::Full),
        ("user", hosted),
    ] {
        let (state, detail) = asked(wanted);
        report.add(name, state, detail);
    }
    if hides {
        report.add(
            "data_folder",
            NotEnforced,
            format!("visible to this server, keys included: {WHY}"),
        );
    }
    report.add(
        "environment",
        Enforced,
        "exactly the variables given, nothing inherited",
    );
    report.add(
        "descriptors",
        Enforced,
        "only 0, 1 and 2 are inherited; their number is not limited",
    );
    report.add("privileges", NotEnforced, WHY);
    report
}
