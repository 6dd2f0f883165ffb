//! The gateway behind `gantry stdio`: the folder's running one, or one started on demand.
//!
//! A gateway started on demand ends with the last `gantry stdio` of its folder (`up --while-used`);
//! one that a user started is only used. A gateway that disappears is looked for again; one started
//! on demand is restarted, a few times at most. Entry point: [`Attached::find`].

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
use crate::data_folder::{DataFolder, create_private};

use super::super::CliContext;
use super::super::failure::{Exit, Failure};
use super::super::find::Role;
use super::super::follow::Follow;
use super::super::format::{list, text};
use super::super::pool::Pool;
use super::tries::{self, Tries};
use super::unapproved;

/// How long a gateway may take to start, or to stop before another starts.
const START: Duration = Duration::from_secs(45);
/// The poll interval meanwhile: other processes start, stop and hold locks without notice.
const LOOK: Duration = Duration::from_millis(20);
/// The poll interval for a gateway started on demand: a killed one sends no notice.
const WATCH: Duration = Duration::from_millis(500);

/// The gateway in use, and how to find it again.
pub(super) struct Attached {
    context: CliContext,
    folder: DataFolder,
    /// Where a gateway may be started; absent if none may be.
    working: Option<PathBuf>,
    /// How long to wait for its servers.
    settle: Duration,
    pool: Mutex<Arc<Pool>>,
    /// Only one task searches at a time, for all that need it.
    finding: tokio::sync::Mutex<Finding>,
    tasks: TaskTracker,
    /// Our lock among the users; released by the kernel in any case.
    _place: Option<File>,
}

/// What is known of the last used gateway.
#[derive(Default)]
struct Finding {
    /// Its process, if it is ours.
    child: Option<Child>,
    /// Whether it was started on demand, by any client.
    is_on_demand: bool,
    tries: Tries,
}

impl Finding {
    /// Returns whether the gateway's process is alive; our own child is reaped.
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
        context: CliContext,
        folder: PathBuf,
        working: Option<PathBuf>,
        settle: Duration,
    ) -> Result<Arc<Self>, Failure> {
        if context.url.is_some() {
            let folder = DataFolder::at(folder);
            let client = context.client_in(&folder, Role::Agent)?;
            return Ok(Arc::new(Self {
                context,
                folder,
                working: None,
                settle,
                pool: Mutex::new(Arc::clone(client.pool())),
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
            child = start_alone(&folder, working, &context, deadline).await?;
        }
        let client = context.client_in(&folder, Role::Agent)?;
        if child.is_some() {
            settled(&context, &folder, settle).await;
        }
        unapproved::tell(&context, &folder, working.as_deref()).await;
        let finding = Finding {
            is_on_demand: is_on_demand(&folder),
            child,
            tries: Tries::default(),
        };
        Ok(Arc::new(Self {
            pool: Mutex::new(Arc::clone(client.pool())),
            context,
            folder,
            working,
            settle,
            finding: tokio::sync::Mutex::new(finding),
            tasks: TaskTracker::new(),
            _place: Some(place),
        }))
    }

    /// Returns the connections to the gateway.
    pub(super) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool.lock())
    }

    /// Returns whether the gateway has moved away from these connections.
    pub(super) async fn has_left(&self, pool: &Arc<Pool>) -> bool {
        let mut finding = self.finding.lock().await;
        self.context.url.is_none()
            && (!Arc::ptr_eq(pool, &self.pool()) || !finding.is_alive(&self.folder))
    }

    /// Searches for an unreachable gateway: it may have moved, and one started on demand is
    /// restarted. Runs as a task, so that a cancelled caller does not interrupt it.
    pub(super) async fn find_again(self: &Arc<Self>) -> Result<(), String> {
        let attached = Arc::clone(self);
        let finding = self.tasks.spawn(async move { attached.find_now().await });
        match finding.await {
            Ok(found) => found,
            Err(_) => Err("the search for a running gateway failed".to_owned()),
        }
    }

    /// Restarts a gateway started on demand whenever it is gone; never returns.
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
        if self.context.url.is_some() || serves(&self.folder).await {
            self.use_found(&mut finding);
            return Ok(());
        }
        let Some(working) = self.working.as_deref().filter(|_| finding.is_on_demand) else {
            return Err("no gateway is running".to_owned());
        };
        // A stopping or killed gateway gets time to end.
        finding.is_alive(&self.folder);
        let wait = finding.tries.next(Instant::now()).map_err(tries::refusal)?;
        sleep(wait).await;
        finding.tries.started(Instant::now());
        tracing::warn!("the gateway is gone and is started again");
        let deadline = Instant::now() + START;
        let started = start_alone(&self.folder, working, &self.context, deadline).await;
        let child = started.map_err(|failure| failure.in_one_line())?;
        finding.child = child.or(finding.child.take());
        settled(&self.context, &self.folder, self.settle).await;
        self.use_found(&mut finding);
        Ok(())
    }

    /// Switches to the gateway that the folder names now.
    fn use_found(&self, finding: &mut Finding) {
        if let Ok(client) = self.context.client_in(&self.folder, Role::Agent) {
            *self.pool.lock() = Arc::clone(client.pool());
        }
        finding.is_on_demand = self.context.url.is_none() && is_on_demand(&self.folder);
    }
}

fn is_on_demand(folder: &DataFolder) -> bool {
    folder.running().is_some_and(|running| running.on_demand)
}

/// Returns whether a process is alive, and not a zombie.
fn is_process(pid: u32) -> bool {
    let is_there = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let is_there = is_there.is_some_and(|pid| test_kill_process(pid).is_ok());
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    is_there && !state.trim_start().starts_with(['Z', 'X'])
}

/// Registers as a user; waits for a stopping gateway to end.
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
                        "the gateway in `{}` is stopping, but has not ended",
                        folder.display()
                    ),
                ));
            }
            None => sleep(LOOK).await,
        }
    }
}

/// Starts a gateway, unless another `gantry stdio` is just doing so.
async fn start_alone(
    folder: &DataFolder,
    working: &Path,
    context: &CliContext,
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
                    "no gateway started in `{}` within {START:?}",
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
            None if is_ours => started = Some(start(folder, working, context).map_err(failed)?),
            None => match lock.try_lock() {
                // The previous holder of the lock may have started one: look first.
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

/// Starts `gantry up` in its own process group, so that the client's signals do not reach it.
fn start(folder: &DataFolder, working: &Path, context: &CliContext) -> std::io::Result<Child> {
    let path = log_file(folder);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let log = create_private(&path)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["up", "--while-used", "--log", "warn", "--data"])
        .arg(folder.path())
        .current_dir(working)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    if context.environment.filled("GANTRY_URL").is_some() {
        command.env_remove("GANTRY_URL");
    }
    let child = command.spawn()?;
    tracing::info!(pid = child.id(), "no gateway is running, one is started");
    Ok(child)
}

/// Returns whether the gateway that the folder names accepts connections.
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

/// Waits until no server is starting, so that a client that lists once sees all tools.
async fn settled(context: &CliContext, folder: &DataFolder, within: Duration) {
    let Ok(client) = context.admin_of(folder) else {
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
