//! The gateway behind a bridge: the folder's running one, or one that is started for it.
//!
//! A gateway that is started here lives as long as some `gantry stdio` of its folder does, and ends
//! by itself after the last of them (`up --while-used`). One that a person started is only used. A
//! gateway that goes away is looked for again; one that was started on demand is started again, by
//! whoever notices first, a few times at most. Entry point: [`Attached::find`].

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, test_kill_process};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::app::users;
use crate::data_folder::DataFolder;

use super::super::Surroundings;
use super::super::client::Client;
use super::super::failure::{Exit, Failure};
use super::super::find::Role;
use super::super::follow::Follow;
use super::super::format::{list, text};
use super::super::wire::Wire;
use super::tries::{self, Tries};
use super::waiting;

/// How long a gateway may take to come up, or to go away before another comes.
const START: Duration = Duration::from_secs(45);
/// How often is looked meanwhile: other processes start, stop and hold locks, and none of them tells.
const LOOK: Duration = Duration::from_millis(20);
/// How often is looked whether a gateway that was started on demand is still there: one that was killed
/// says nothing.
const WATCH: Duration = Duration::from_millis(500);

/// A gateway that is used, and how it is found again.
pub(super) struct Attached {
    surroundings: Surroundings,
    folder: DataFolder,
    /// Where a gateway is started; nothing if none may be.
    working: Option<PathBuf>,
    /// How long its servers may take before the client is served.
    settle: Duration,
    wire: Mutex<Arc<Wire>>,
    /// One at a time looks for it, for all who found it gone.
    finding: tokio::sync::Mutex<Finding>,
    tasks: TaskTracker,
    /// Our place among the users; the kernel gives it back, however we end.
    _place: Option<File>,
}

/// What is known of the gateway that was used last.
#[derive(Default)]
struct Finding {
    /// Its process, if it is ours.
    child: Option<Child>,
    /// Whether it was started for clients like ours, by whichever of them.
    is_on_demand: bool,
    tries: Tries,
}

impl Finding {
    /// Tells whether the gateway's process is there; one that is ours and has ended is reaped.
    fn is_alive(&mut self, folder: &DataFolder) -> bool {
        if let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(None) => return true,
                Ok(Some(_)) | Err(_) => self.child = None,
            }
        }
        folder
            .running()
            .is_some_and(|running| is_process(running.pid))
    }
}

impl Attached {
    /// Finds the folder's gateway or starts one, and waits until it serves.
    pub(super) async fn find(
        surroundings: Surroundings,
        folder: PathBuf,
        working: Option<PathBuf>,
        settle: Duration,
    ) -> Result<Arc<Self>, Failure> {
        if surroundings.url.is_some() {
            let folder = DataFolder::at(folder);
            let wire = wire(&surroundings.client_in(&folder, Role::Agent)?)?;
            return Ok(Arc::new(Self {
                surroundings,
                folder,
                working: None,
                settle,
                wire: Mutex::new(wire),
                finding: tokio::sync::Mutex::default(),
                tasks: TaskTracker::new(),
                _place: None,
            }));
        }
        let folder =
            DataFolder::open(&folder).map_err(|error| Failure::of(Exit::Failed, &error))?;
        let deadline = Instant::now() + START;
        let place = enter(folder.path(), deadline).await?;
        let mut child = None;
        if !serves(&folder).await {
            let working = working
                .as_deref()
                .ok_or_else(|| super::super::find::no_gateway(folder.path()))?;
            child = start_alone(&folder, working, &surroundings, deadline).await?;
        }
        let client = surroundings.client_in(&folder, Role::Agent)?;
        if child.is_some() {
            settled(&surroundings, &folder, settle).await;
        }
        waiting::tell(&surroundings, &folder, working.as_deref()).await;
        let finding = Finding {
            is_on_demand: is_on_demand(&folder),
            child,
            tries: Tries::default(),
        };
        Ok(Arc::new(Self {
            wire: Mutex::new(wire(&client)?),
            surroundings,
            folder,
            working,
            settle,
            finding: tokio::sync::Mutex::new(finding),
            tasks: TaskTracker::new(),
            _place: Some(place),
        }))
    }

    /// Returns the connections to the gateway.
    pub(super) fn wire(&self) -> Arc<Wire> {
        Arc::clone(&self.wire.lock())
    }

    /// Tells whether the gateway is no longer where these connections lead.
    pub(super) async fn has_left(&self, wire: &Arc<Wire>) -> bool {
        let mut finding = self.finding.lock().await;
        self.surroundings.url.is_none()
            && (!Arc::ptr_eq(wire, &self.wire()) || !finding.is_alive(&self.folder))
    }

    /// Looks for the gateway after it could not be reached: it may have moved, and one that was
    /// started on demand is started again. Whoever leaves meanwhile does not leave it half done.
    pub(super) async fn find_again(self: &Arc<Self>) -> Result<(), String> {
        let attached = Arc::clone(self);
        let finding = self.tasks.spawn(async move { attached.find_now().await });
        match finding.await {
            Ok(found) => found,
            Err(_) => Err("it could not be looked for".to_owned()),
        }
    }

    /// Has a gateway that was started on demand started again when it is gone; never ends.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            sleep(WATCH).await;
            let is_gone = {
                let mut finding = self.finding.lock().await;
                finding.is_on_demand && !finding.is_alive(&self.folder)
            };
            if is_gone && let Err(why) = self.find_again().await {
                tracing::debug!(why, "the gateway is gone");
            }
        }
    }

    async fn find_now(&self) -> Result<(), String> {
        let mut finding = self.finding.lock().await;
        if self.surroundings.url.is_some() || serves(&self.folder).await {
            self.use_found(&mut finding);
            return Ok(());
        }
        let Some(working) = self.working.as_deref().filter(|_| finding.is_on_demand) else {
            return Err("no gateway is running".to_owned());
        };
        // One that is going, or was ended by a signal, is given the time to go.
        finding.is_alive(&self.folder);
        let wait = finding.tries.next(Instant::now()).map_err(tries::refusal)?;
        sleep(wait).await;
        finding.tries.started(Instant::now());
        tracing::warn!("the gateway is gone and is started again");
        let deadline = Instant::now() + START;
        let started = start_alone(&self.folder, working, &self.surroundings, deadline).await;
        let child = started.map_err(|failure| failure.in_one_line())?;
        finding.child = child.or(finding.child.take());
        settled(&self.surroundings, &self.folder, self.settle).await;
        self.use_found(&mut finding);
        Ok(())
    }

    /// Sends everything to the gateway that the folder names from here on.
    fn use_found(&self, finding: &mut Finding) {
        if let Ok(client) = self.surroundings.client_in(&self.folder, Role::Agent)
            && let Ok(wire) = wire(&client)
        {
            *self.wire.lock() = wire;
        }
        finding.is_on_demand = self.surroundings.url.is_none() && is_on_demand(&self.folder);
    }
}

fn is_on_demand(folder: &DataFolder) -> bool {
    folder.running().is_some_and(|running| running.on_demand)
}

/// Tells whether a process is there, and not only waits to be reaped by whoever started it.
fn is_process(pid: u32) -> bool {
    let is_there = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let is_there = is_there.is_some_and(|pid| test_kill_process(pid).is_ok());
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    is_there && !state.trim_start().starts_with(['Z', 'X'])
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
) -> Result<Option<Child>, Failure> {
    let failed =
        |error: std::io::Error| Failure::plain(Exit::Failed, "cannot start a gateway", &error);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.path().join("start.lock"))
        .map_err(failed)?;
    let mut started: Option<Child> = None;
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
                if let Some(status) = ours.try_wait().map_err(failed)? {
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
) -> std::io::Result<Child> {
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
    Ok(child)
}

/// Tells whether the gateway that the folder names is there and accepts connections.
async fn serves(folder: &DataFolder) -> bool {
    let Some(running) = folder.running() else {
        return false;
    };
    let Some(address) = running.url.strip_prefix("http://") else {
        return false;
    };
    is_process(running.pid)
        && matches!(timeout(START, TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// Waits until no server is on its way, so that a client that lists once sees them all.
async fn settled(surroundings: &Surroundings, folder: &DataFolder, within: Duration) {
    let Ok(client) = surroundings.admin_of(folder) else {
        return;
    };
    let waiting = async {
        let Ok(mut following) = Follow::open(&client, "servers").await else {
            return;
        };
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
            if following.changed().await.is_err() {
                return;
            }
        }
    };
    if timeout(within, waiting).await.is_err() {
        tracing::info!("some servers are still starting; their tools follow");
    }
}
