//! The sandbox itself: probes the host once, then starts trees.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use tokio::net::unix::pipe::{Receiver, Sender};

use crate::cgroup::Cgroups;
use crate::command::{Command, Floor, Network, Runtime};
use crate::error::{SandboxError, SpawnError};
use crate::floor;
use crate::gvisor::{self, GVisorProof, Proofs};
use crate::hidden::Hidden;
use crate::host::{Host, Mode, NEW_NETWORK, NEW_PID};
use crate::image::Image;
use crate::launch::{LaunchError, launch};
use crate::plan::{Plan, failure};
use crate::promises::Given;
use crate::protocol::{STAGE_CGROUP, STAGE_ID_MAP, STAGE_UNSHARE};
use crate::reaper::Reaper;
use crate::report::{HostReport, Report};
use crate::root::Root;
use crate::tree::{Parts, Tree};
use crate::{SandboxOptions, Spawned};

/// Starts process trees that cannot outlive this process. Cheap to clone; one per gateway.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
    hidden: Arc<Hidden>,
}

/// Shared by all trees. The reaper is dropped first: it empties the cgroups.
pub(crate) struct Inner {
    pub(crate) reaper: Reaper,
    image: Image,
    host: Host,
    cgroups: Cgroups,
    proofs: Proofs,
}

impl Sandbox {
    /// Probes what the host supports, and kills the leftovers of dead instances.
    pub fn probe(options: SandboxOptions) -> Result<Self, SandboxError> {
        let image = Image::new().map_err(SandboxError::Image)?;
        let reaper = Reaper::start().map_err(SandboxError::Reaper)?;
        let cgroups = Cgroups::open(&options.instance);
        let host = Host::probe(&image, &reaper, &cgroups)?;
        let inner = Inner {
            reaper,
            image,
            host,
            cgroups,
            proofs: Proofs::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
            hidden: Arc::default(),
        })
    }

    /// Returns a sandbox whose trees do not see these folders, as far as the host supports it; each
    /// report says so.
    #[must_use]
    pub fn hiding(self, hidden: Hidden) -> Self {
        Self {
            hidden: Arc::new(hidden),
            ..self
        }
    }

    /// Returns what the host supports.
    pub fn host(&self) -> &HostReport {
        &self.inner.host.report
    }

    /// Proves that a program is a working gVisor, or returns why it is not. The result is cached
    /// until the file at this path changes.
    pub async fn probe_runtime(&self, program: &Path) -> Result<GVisorProof, String> {
        let inner = Arc::clone(&self.inner);
        let program = program.to_owned();
        let proved = tokio::task::spawn_blocking(move || inner.prove(&program));
        proved.await.map_err(|_| SpawnError::Stopped.to_string())?
    }

    /// Starts a command; returns once its program runs, or with the reason of the failure.
    pub async fn spawn(&self, command: &Command) -> Result<Spawned, SpawnError> {
        // The work runs on a thread that cannot be cancelled: if the caller is gone, its result is
        // dropped, which kills the tree.
        let (inner, hidden) = (Arc::clone(&self.inner), Arc::clone(&self.hidden));
        let command = command.clone();
        let started = tokio::task::spawn_blocking(move || inner.start(&command, &hidden));
        let started = started.await.map_err(|_| SpawnError::Stopped)??;
        let watch = |source| SpawnError::Setup {
            step: "watch the tree",
            source,
        };
        Ok(Spawned {
            tree: Tree::new(started.parts).map_err(watch)?,
            stdin: Sender::from_owned_fd(started.stdin).map_err(watch)?,
            stdout: Receiver::from_owned_fd(started.stdout).map_err(watch)?,
            stderr: Receiver::from_owned_fd(started.stderr).map_err(watch)?,
            report: started.report,
        })
    }
}

/// A started tree on its way from the starting thread to the calling task.
struct Started {
    parts: Parts,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    report: Report,
}

impl Inner {
    fn prove(&self, program: &Path) -> Result<GVisorProof, String> {
        self.proofs
            .of(&self.image, &self.reaper, &self.host, program)
    }

    fn start(self: &Arc<Self>, command: &Command, hidden: &Hidden) -> Result<Started, SpawnError> {
        match self.start_in(command, hidden, self.host.mode) {
            // Supported when probed but denied now, for example because the host has run out of
            // namespaces.
            Err(LaunchError::Step(record))
                if matches!(record.stage, STAGE_UNSHARE | STAGE_ID_MAP)
                    && command.root == Root::Host
                    && command.floor == Floor::None =>
            {
                tracing::warn!(server = %command.name, errno = record.value, "namespaces denied");
                self.start_in(command, hidden, Mode::default())
            }
            outcome => outcome,
        }
        .map_err(|error| match error {
            LaunchError::Step(record) => failure(command, record),
            LaunchError::Other(error) => error,
        })
    }

    fn start_in(
        self: &Arc<Self>,
        command: &Command,
        hidden: &Hidden,
        mode: Mode,
    ) -> Result<Started, LaunchError> {
        if let Runtime::GVisor(runtime) = &command.runtime {
            let program = &runtime.program;
            self.prove(program).map_err(|why| SpawnError::Runtime {
                program: program.clone(),
                why,
            })?;
        }
        let mut group = match command.runtime {
            Runtime::Kernel => self.cgroups.create(&command.name, &command.limits),
            Runtime::GVisor(_) => {
                let outside = gvisor::outside(&command.limits);
                let mut group = self.cgroups.create(&command.name, &outside);
                group.hold_guest(command.limits.pids);
                group
            }
        };
        let mut plan = match Plan::new(&self.host, mode, command, hidden, &group) {
            Ok(plan) => plan,
            Err(error) => {
                group.remove();
                return Err(error.into());
            }
        };
        if let Err(error) = floor::check(&self.host, &self.cgroups, command, &plan, &group) {
            group.remove();
            return Err(error.into());
        }
        let running = launch(&self.image, &self.reaper, &mut plan.job, group);
        let mut running = running.map_err(|error| match error {
            LaunchError::Step(record) => {
                let known = floor::failure(command, record);
                match known.or_else(|| plan.root_failure(command, record)) {
                    Some(error) => LaunchError::Other(error),
                    None => LaunchError::Step(record),
                }
            }
            LaunchError::Other(_) => error,
        })?;
        let joins = running
            .notes
            .missing
            .iter()
            .filter(|note| note.stage == STAGE_CGROUP);
        // In reverse order, so that the indexes stay valid.
        let mut joins: Vec<_> = joins.copied().collect();
        joins.sort_by_key(|note| std::cmp::Reverse(note.data));
        for note in joins {
            let error = std::io::Error::from_raw_os_error(note.value);
            running
                .group
                .not_joined(usize::try_from(note.data).unwrap_or(usize::MAX), &error);
        }
        let given = Given {
            command,
            hidden,
            host: &self.host,
            plan: &plan,
            group: &running.group,
            notes: &running.notes,
        };
        let report = given.report();
        Ok(Started {
            parts: Parts {
                server_pid: running.server_pid,
                init: running.init,
                control: running.control,
                group: running.group,
                limits: command.limits,
                namespaced: plan.mode.has(NEW_PID),
                reachable: plan.mode.has(NEW_NETWORK) || command.network == Network::Full,
                sandbox: Arc::clone(self),
            },
            stdin: running.stdin,
            stdout: running.stdout,
            stderr: running.stderr,
            report,
        })
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("host", &self.host.report)
            .finish_non_exhaustive()
    }
}
