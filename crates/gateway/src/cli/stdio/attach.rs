//! The gateway behind a bridge: the folder's running one, or one that is started for it.
//!
//! A gateway that is started here lives as long as some `gantry stdio` of its folder does, and ends
//! by itself after the last of them (`up --while-used`). One that a person started is only used. A
//! gateway that goes away is looked for again, never waited for. Entry point: [`Attached::find`].

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::app::data::DataFolder;
use crate::app::users;

use super::super::Surroundings;
use super::super::client::Client;
use super::super::failure::{Exit, Failure};
use super::super::find::Role;
use super::super::format::{list, text};
use super::super::wire::Wire;

/// How long a gateway may take to come up, or to go away before another comes.
const START: Duration = Duration::from_secs(45);
/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// The least time between two starts.
const APART: Duration = Duration::from_secs(5);

/// A gateway that is used, and how it is found again.
pub(super) struct Attached {
    surroundings: Surroundings,
    folder: DataFolder,
    /// Where a gateway is started; nothing if none may be.
    working: Option<PathBuf>,
    wire: Mutex<Arc<Wire>>,
    started: Mutex<Option<Started>>,
    /// Our place among the users; the kernel gives it back, however we end.
    _place: Option<File>,
}

/// A gateway that we started.
struct Started {
    child: Child,
    at: Instant,
}

impl Attached {
    /// Finds the folder's gateway or starts one, and waits until it serves.
    pub(super) async fn find(
        surroundings: Surroundings,
        folder: PathBuf,
        working: Option<PathBuf>,
        settle: Duration,
    ) -> Result<Self, Failure> {
        if surroundings.url.is_some() {
            let folder = DataFolder::at(folder);
            let wire = wire(&surroundings.client_in(&folder, Role::Agent)?)?;
            return Ok(Self {
                surroundings,
                folder,
                working: None,
                wire: Mutex::new(wire),
                started: Mutex::default(),
                _place: None,
            });
        }
        let folder =
            DataFolder::open(&folder).map_err(|error| Failure::of(Exit::Failed, &error))?;
        let deadline = Instant::now() + START;
        let place = enter(folder.path(), deadline).await?;
        let mut started = None;
        if !serves(&folder).await {
            let working = working
                .as_deref()
                .ok_or_else(|| super::super::find::no_gateway(folder.path()))?;
            started = start_alone(&folder, working, &surroundings, deadline).await?;
        }
        let client = surroundings.client_in(&folder, Role::Agent)?;
        if started.is_some() {
            settled(&surroundings, &folder, settle).await;
        }
        Ok(Self {
            wire: Mutex::new(wire(&client)?),
            surroundings,
            folder,
            working,
            started: Mutex::new(started),
            _place: Some(place),
        })
    }

    /// Returns the connections to the gateway.
    pub(super) fn wire(&self) -> Arc<Wire> {
        Arc::clone(&self.wire.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks for the gateway again after it could not be reached: it may have moved. One that we
    /// started and that ended is started again, for whoever comes later.
    pub(super) fn look_again(&self) {
        if let Ok(client) = self.surroundings.client_in(&self.folder, Role::Agent)
            && let Ok(wire) = wire(&client)
        {
            *self.wire.lock().unwrap_or_else(PoisonError::into_inner) = wire;
        }
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(working), Some(before)) = (&self.working, started.as_mut()) {
            let ended = !matches!(before.child.try_wait(), Ok(None));
            if ended && before.at.elapsed() > APART {
                match start(&self.folder, working, &self.surroundings) {
                    Ok(again) => *started = Some(again),
                    Err(error) => tracing::warn!(%error, "the gateway cannot be started again"),
                }
            }
        }
    }
}

fn wire(client: &Client) -> Result<Arc<Wire>, Failure> {
    let wire = Wire::new(client).ok_or_else(|| {
        Failure::new(Exit::Failed, "the key file holds something that is no key")
            .hint("name another with `--key-file FILE`")
    })?;
    Ok(Arc::new(wire))
}

/// Enters among the users; a gateway that is just going is given the time to go.
async fn enter(folder: &Path, deadline: Instant) -> Result<File, Failure> {
    loop {
        let entered = users::enter(folder)
            .map_err(|error| Failure::plain(Exit::Failed, "cannot use the data folder", &error))?;
        match entered {
            Some(place) => return Ok(place),
            None if Instant::now() > deadline => {
                return Err(Failure::new(
                    Exit::Failed,
                    format!(
                        "the gateway in `{}` is stopping and does not end",
                        folder.display()
                    ),
                ));
            }
            None => sleep(LOOK).await,
        }
    }
}

/// Starts a gateway, unless another `gantry stdio` just does; then that one's is used.
async fn start_alone(
    folder: &DataFolder,
    working: &Path,
    surroundings: &Surroundings,
    deadline: Instant,
) -> Result<Option<Started>, Failure> {
    let failed =
        |error: std::io::Error| Failure::plain(Exit::Failed, "cannot start a gateway", &error);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.path().join("start.lock"))
        .map_err(failed)?;
    let mut started: Option<Started> = None;
    let mut is_ours = false;
    loop {
        if serves(folder).await {
            return Ok(started);
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                Exit::NoGateway,
                format!(
                    "no gateway came up in `{}` within {START:?}",
                    folder.path().display()
                ),
            )
            .hint("start it with `gantry up` to see why"));
        }
        match &mut started {
            Some(ours) => {
                if let Some(status) = ours.child.try_wait().map_err(failed)? {
                    return Err(ended(folder, status));
                }
            }
            None if is_ours => {
                started = Some(start(folder, working, surroundings).map_err(failed)?)
            }
            None => match lock.try_lock() {
                // Whoever had it before may have started one meanwhile: look first.
                Ok(()) => is_ours = true,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            },
        }
        sleep(LOOK).await;
    }
}

fn ended(folder: &DataFolder, status: std::process::ExitStatus) -> Failure {
    let log = fs::read_to_string(log_file(folder)).unwrap_or_default();
    let failure = Failure::new(
        Exit::NoGateway,
        format!(
            "the gateway for `{}` did not start ({status})",
            folder.path().display()
        ),
    );
    let said: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    let last = said.len().saturating_sub(6);
    let failure = said[last..]
        .iter()
        .fold(failure, |failure, line| failure.cause(*line));
    failure.hint("run `gantry up` in the same folder to see all of it")
}

fn log_file(folder: &DataFolder) -> PathBuf {
    folder.path().join("gateway.log")
}

/// Starts `gantry up` in a process group of its own, so that the client's signals do not reach it.
fn start(
    folder: &DataFolder,
    working: &Path,
    surroundings: &Surroundings,
) -> std::io::Result<Started> {
    let path = log_file(folder);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let log = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["up", "--while-used", "--log", "warn", "--data"])
        .arg(folder.path())
        .current_dir(working)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    if surroundings.environment.filled("GANTRY_URL").is_some() {
        command.env_remove("GANTRY_URL");
    }
    let child = command.spawn()?;
    tracing::info!(pid = child.id(), "no gateway is running, one is started");
    Ok(Started {
        child,
        at: Instant::now(),
    })
}

/// Tells whether the gateway that the folder names is there and accepts connections.
async fn serves(folder: &DataFolder) -> bool {
    let Some(running) = folder.running() else {
        return false;
    };
    let pid = i32::try_from(running.pid).ok().and_then(Pid::from_raw);
    let Some(address) = running.url.strip_prefix("http://") else {
        return false;
    };
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
        && matches!(timeout(START, TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// Waits until no server is on its way, so that a client that lists once sees them all.
async fn settled(surroundings: &Surroundings, folder: &DataFolder, within: Duration) {
    let Ok(client) = surroundings.admin_of(folder) else {
        return;
    };
    let waiting = async {
        loop {
            let Ok(servers) = client.get("/api/v1/mcp/servers").await else {
                return;
            };
            let on_its_way = |state: &str| matches!(state, "starting" | "restarting");
            let servers = list(&servers, "/items");
            if !servers
                .iter()
                .any(|server| on_its_way(&text(server, "/state")))
            {
                return;
            }
            sleep(LOOK).await;
        }
    };
    if timeout(within, waiting).await.is_err() {
        tracing::info!("some servers are still starting; their tools follow");
    }
}
