//! The driver contract: how one instance of a server is started and ended.
//!
//! A driver knows nothing of messages (that is `transport`), restarts or calls; the runner joins
//! them. Every driver passes `driver/suite.rs`; `docs/howto/add-a-driver.md` is the checklist.
//! Entry point: [`Drivers::of`].

#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod hosted;
mod hosting;
pub(crate) mod image;
pub(crate) mod process;
mod remote;
mod report;
#[cfg(test)]
mod suite;

use std::error::Error;
use std::future;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{Launch, RemoteLaunch, ServerSpec};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

pub use self::hosting::{HostingReport, ImageReport, LayerReport, LimitReport, LimitValue};
pub use self::process::probe_host;
use self::remote::RemoteDriver;
pub(crate) use self::report::ExitStatus;
pub use self::report::{HostFact, HostReport, IsolationReport, Promise, PromiseState, Usage};

/// Starts instances of servers.
pub(crate) trait Driver: Send + Sync {
    /// Returns what this driver can enforce on this host, and why it cannot enforce the rest.
    fn probe(&self) -> HostReport;

    /// Starts one instance; returns once its program runs, or with the reason it does not.
    fn start<'a>(
        &'a self,
        request: StartRequest<'a>,
    ) -> BoxFuture<'a, Result<Instance, DriverError>>;

    /// Returns what the isolation keeps from a server that did not come up, if that may be why.
    fn explain<'a>(
        &'a self,
        _project: &'a ProjectName,
        _spec: &'a ServerSpec,
    ) -> BoxFuture<'a, Option<String>> {
        Box::pin(future::ready(None))
    }

    /// Returns the instances of this gateway that outlived its last process; dropping one ends it.
    fn recover(&self) -> BoxFuture<'_, Result<Vec<Recovered>, DriverError>> {
        Box::pin(future::ready(Ok(Vec::new())))
    }
}

/// What a driver is asked to start.
pub(crate) struct StartRequest<'a> {
    pub(crate) spec: &'a ServerSpec,
    pub(crate) labels: Labels,
    /// Receives what a slow start is doing, such as the progress of a download.
    pub(crate) progress: &'a (dyn Fn(String) + Send + Sync),
    /// Fires when the server is stopped: a slow start gives up.
    pub(crate) stop: &'a CancellationToken,
}

/// Identifies an instance. Whatever acts for one refuses an older generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) project: ProjectName,
    pub(crate) server: ServerName,
    /// Grows with every start.
    pub(crate) generation: u64,
}

/// An instance of an earlier gateway process that still runs.
pub(crate) struct Recovered {
    pub(crate) labels: Labels,
    pub(crate) instance: Instance,
}

/// One run of a server. Dropping it ends it.
pub(crate) struct Instance {
    pub(crate) io: Io,
    pub(crate) control: Box<dyn Control>,
    /// Reads the usage while somebody else holds `control`.
    pub(crate) usage: ReadUsage,
    /// Nothing for a server that runs elsewhere.
    pub(crate) isolation: Option<IsolationReport>,
    /// What a hosted server runs, and what it is held to.
    pub(crate) hosting: Option<HostingReport>,
    /// The process id on this host, if the server is a process here.
    pub(crate) pid: Option<u32>,
}

/// Waits for the end of an instance, and brings it about. Dropping it kills the instance.
pub(crate) trait Control: Send {
    /// Waits until the instance and everything it started have ended. Safe to cancel and to repeat.
    fn exited(&mut self) -> BoxFuture<'_, ExitStatus>;

    /// Asks the instance to end (SIGTERM). Returns at once.
    fn terminate(&mut self);

    /// Ends the instance (SIGKILL). Returns at once; its streams then reach their end.
    fn kill(&mut self);
}

/// Returns the usage now, if it is known. Never waits: a driver whose figures take time samples them.
pub(crate) type ReadUsage = Arc<dyn Fn() -> Option<Usage> + Send + Sync>;

/// How messages reach an instance.
pub(crate) enum Io {
    /// Lines over a pair of byte streams.
    Streams(Streams),
    /// HTTP to this address.
    Address(Box<RemoteLaunch>),
    /// HTTP to a server inside an instance of ours, and what it prints.
    Inside(Box<InsideServer>),
}

/// A server that listens inside its own network namespace.
pub(crate) struct InsideServer {
    /// Where it answers, as seen from inside.
    pub(crate) address: RemoteLaunch,
    /// The socket of ours that leads there.
    pub(crate) socket: PathBuf,
    /// What it prints, both streams as logs.
    pub(crate) output: Vec<ByteSource>,
}

/// The standard streams of an instance.
pub(crate) struct Streams {
    pub(crate) stdin: Stdin,
    pub(crate) stdout: ByteSource,
    /// Nothing where the driver cannot tell it from stdout.
    pub(crate) stderr: Option<ByteSource>,
}

/// Where an instance reads. Dropping it is the end of its input.
pub(crate) enum Stdin {
    /// A pipe of this host: callers write to it directly.
    Pipe(pipe::Sender),
    /// Any other stream: one task writes to it for all callers.
    #[cfg_attr(not(test), expect(dead_code, reason = "processes have pipes"))]
    Stream(Box<dyn AsyncWrite + Send + Unpin>),
}

/// Where the output of an instance is read.
pub(crate) type ByteSource = Box<dyn AsyncRead + Send + Unpin>;

/// Why a driver cannot start an instance, or be used at all.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DriverError(#[from] Box<dyn Error + Send + Sync>);

impl DriverError {
    pub(crate) fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// The drivers of an engine.
#[derive(Clone)]
pub(crate) struct Drivers {
    process: Arc<dyn Driver>,
    image: Arc<dyn Driver>,
    remote: Arc<dyn Driver>,
}

impl Drivers {
    pub(crate) fn new(process: Arc<dyn Driver>, image: Arc<dyn Driver>) -> Self {
        Self {
            process,
            image,
            remote: Arc::new(RemoteDriver),
        }
    }

    /// Returns the driver that starts such a server.
    pub(crate) fn of(&self, launch: &Launch) -> Arc<dyn Driver> {
        Arc::clone(match launch {
            Launch::Process(_) => &self.process,
            Launch::Image(_) => &self.image,
            Launch::Remote(_) => &self.remote,
        })
    }

    /// Returns what can be enforced on this host.
    pub(crate) fn host(&self) -> HostReport {
        let mut facts = self.process.probe().facts;
        facts.extend(self.image.probe().facts);
        facts.extend(self.remote.probe().facts);
        HostReport { facts }
    }

    /// Ends the instances that outlived the last process of this gateway; returns their labels.
    pub(crate) async fn recover(&self) -> Result<Vec<Labels>, DriverError> {
        let mut ended = Vec::new();
        for driver in [&self.process, &self.image, &self.remote] {
            for recovered in driver.recover().await? {
                drop(recovered.instance);
                ended.push(recovered.labels);
            }
        }
        Ok(ended)
    }
}
