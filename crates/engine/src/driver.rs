//! The driver contract: how one instance of a server is started and stopped.
//!
//! A driver knows nothing of messages (that is `transport`), restarts or calls; the runner combines
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

pub use self::hosted::probe_host;
pub use self::hosting::{HostingReport, ImageReport, LayerReport, LimitReport, LimitValue};
use self::remote::RemoteDriver;
pub(crate) use self::report::ExitStatus;
pub use self::report::{HostFact, HostReport, IsolationReport, Promise, PromiseState, Usage};

/// Starts instances of servers.
pub(crate) trait Driver: Send + Sync {
    /// Returns what this driver can enforce on this host, and why it cannot enforce the rest.
    fn probe(&self) -> HostReport;

    /// Starts one instance; returns once its program runs, or with the reason of the failure.
    fn start<'a>(
        &'a self,
        request: StartRequest<'a>,
    ) -> BoxFuture<'a, Result<Instance, DriverError>>;

    /// Returns what the isolation denies to a server that failed to start, if that may be the
    /// cause.
    fn explain<'a>(
        &'a self,
        _project: &'a ProjectName,
        _spec: &'a ServerSpec,
    ) -> BoxFuture<'a, Option<String>> {
        Box::pin(future::ready(None))
    }

    /// Returns the instances of this gateway that outlived its last process; dropping one kills it.
    fn recover(&self) -> BoxFuture<'_, Result<Vec<Recovered>, DriverError>> {
        Box::pin(future::ready(Ok(Vec::new())))
    }
}

/// The parameters of a start.
pub(crate) struct StartRequest<'a> {
    pub(crate) spec: &'a ServerSpec,
    pub(crate) labels: Labels,
    /// Receives the progress of a slow start, such as a download.
    pub(crate) progress: &'a (dyn Fn(String) + Send + Sync),
    /// Fires when the server is stopped: a slow start must give up.
    pub(crate) stop: &'a CancellationToken,
}

/// Identifies an instance. Operations on an instance refuse an older generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) project: ProjectName,
    pub(crate) server: ServerName,
    /// Increases with every start.
    pub(crate) generation: u64,
}

/// An instance of an earlier gateway process that still runs.
pub(crate) struct Recovered {
    pub(crate) labels: Labels,
    pub(crate) instance: Instance,
}

/// One run of a server. Dropping it kills it.
pub(crate) struct Instance {
    pub(crate) io: Io,
    pub(crate) control: Box<dyn Control>,
    /// Reads the usage, independent of the task that holds `control`.
    pub(crate) usage: ReadUsage,
    /// `None` for a remote server.
    pub(crate) isolation: Option<IsolationReport>,
    /// The image, limits and network of a hosted server.
    pub(crate) hosting: Option<HostingReport>,
    /// The process id on this host, if the server is a local process.
    pub(crate) pid: Option<u32>,
}

/// Waits for the end of an instance, or ends it. Dropping it kills the instance.
pub(crate) trait Control: Send {
    /// Waits until the instance and all its child processes have ended. Cancel safe; may be
    /// repeated.
    fn exited(&mut self) -> BoxFuture<'_, ExitStatus>;

    /// Asks the instance to end (SIGTERM). Returns immediately.
    fn terminate(&mut self);

    /// Kills the instance (SIGKILL). Returns immediately; its streams then reach their end.
    fn kill(&mut self);
}

/// Returns the current usage, if known. Never blocks: a driver whose figures take time samples
/// them.
pub(crate) type ReadUsage = Arc<dyn Fn() -> Option<Usage> + Send + Sync>;

/// How messages reach an instance.
pub(crate) enum Io {
    /// Lines over a pair of byte streams.
    Streams(Streams),
    /// HTTP to this address.
    Address(Box<RemoteLaunch>),
    /// HTTP to a server inside an instance, and its output.
    Inside(Box<InsideServer>),
}

/// A server that listens inside its own network namespace.
pub(crate) struct InsideServer {
    /// Its address, as seen from inside.
    pub(crate) address: RemoteLaunch,
    /// The gateway's Unix socket that forwards to it.
    pub(crate) socket: PathBuf,
    /// Its output; both streams are logs.
    pub(crate) output: Vec<ByteSource>,
}

/// The standard streams of an instance.
pub(crate) struct Streams {
    pub(crate) stdin: Stdin,
    pub(crate) stdout: ByteSource,
    /// `None` if the driver cannot separate it from stdout.
    pub(crate) stderr: Option<ByteSource>,
}

/// The standard input of an instance. Dropping it closes the input.
pub(crate) enum Stdin {
    /// A pipe of this host: callers write to it directly.
    Pipe(pipe::Sender),
    /// Any other stream: one task writes for all callers.
    #[cfg_attr(not(test), expect(dead_code, reason = "processes have pipes"))]
    Stream(Box<dyn AsyncWrite + Send + Unpin>),
}

/// A stream of an instance's output.
pub(crate) type ByteSource = Box<dyn AsyncRead + Send + Unpin>;

/// Why a driver cannot start an instance, or cannot be used at all.
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

    /// Returns the driver for a launch.
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

    /// Kills the instances that outlived the last process of this gateway; returns their labels.
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
