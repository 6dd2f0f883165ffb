//! `gantry up`: starts the gateway with its servers and serves until it is stopped.
//!
//! Joins flags, files and the data folder into what `app` and the engine take, tells the person what
//! happens, and stops on the first signal, at once on the second. Entry point: [`run`].

mod options;
mod tell;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gantry_engine::{Engine, EngineConfig, EngineError, FirstKeys};
use gantry_model::caller::KeyKind;
use gantry_model::id::AgentName;
use gantry_model::spec::{ProcessLaunch, Profile, ServerSpec, Source, Start};
use tokio_util::sync::CancellationToken;

use crate::app::data::{DataFolder, Running};
use crate::app::listen::{self, ListenError, Place};
use crate::app::signals::Signals;
use crate::app::users;
use crate::app::{self, VERSION};
use crate::config::file::{self, Problem};

use super::Surroundings;
use super::failure::{Exit, Failure};
use super::find::working_folder;

pub(super) use options::Options;

/// The agent whose key a first start writes.
const DEFAULT_AGENT: &str = "default";

/// More threads than this only add switching.
const MOST_THREADS: usize = 8;

/// Starts and serves.
pub(super) fn run(options: Options, surroundings: &Surroundings) -> Result<ExitCode, Failure> {
    let folder = DataFolder::open(&surroundings.data_path()?)
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    let wanted = read_files(&options, surroundings)?;
    let place = Place {
        address: options.address(),
        port: options.port,
        remembered: folder.port(),
    };
    let listener = listen::bind(&place).map_err(|error| taken(&error, &folder))?;

    let mut config = EngineConfig::new(folder.path());
    config.environment = surroundings.environment.for_servers();
    options.settle(&mut config);

    let threads = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(MOST_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_keep_alive(Duration::from_secs(2))
        .enable_all()
        .build()
        .map_err(|error| Failure::plain(Exit::Failed, "cannot start the runtime", &error))?;
    let gateway = Gateway {
        folder,
        listener,
        wanted,
        options,
        surroundings,
    };
    let done = runtime.block_on(gateway.run(config));
    // Whatever still runs after a second signal ends with us, servers included.
    runtime.shutdown_background();
    done
}

/// What the files ask for.
struct Wanted {
    specs: Vec<ServerSpec>,
    problems: Vec<Problem>,
}

fn read_files(options: &Options, surroundings: &Surroundings) -> Result<Wanted, Failure> {
    let folder = working_folder()?;
    let mut wanted = Wanted {
        specs: Vec::new(),
        problems: Vec::new(),
    };
    for path in &options.config {
        let loaded = file::read(path, &surroundings.environment, &folder)
            .map_err(|error| Failure::of(Exit::Usage, &error))?;
        for warning in loaded.warnings {
            tracing::warn!("{warning}");
        }
        wanted.problems.extend(loaded.problems);
        for spec in loaded.specs {
            // A later file wins, in the earlier one's place.
            match wanted
                .specs
                .iter_mut()
                .find(|known| known.name == spec.name)
            {
                Some(known) => *known = spec,
                None => wanted.specs.push(spec),
            }
        }
    }
    match wanted.problems.first() {
        Some(problem) if options.aborts() => Err(Failure::of(Exit::Usage, problem)),
        _ => Ok(wanted),
    }
}

/// A port that is taken by the gateway of this very folder is worth another message.
fn taken(error: &ListenError, folder: &DataFolder) -> Failure {
    match folder.running().filter(|running| is_alive(running.pid)) {
        Some(Running { pid, url, .. }) => Failure::new(
            Exit::Failed,
            format!(
                "the data folder `{}` is in use by the gateway with process id {pid} at {url}",
                folder.path().display()
            ),
        )
        .hint("stop that gateway first, or give this one another folder with `--data DIR`"),
        None => Failure::of(Exit::Failed, error),
    }
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Everything that a start needs.
struct Gateway<'a> {
    folder: DataFolder,
    listener: TcpListener,
    wanted: Wanted,
    options: Options,
    surroundings: &'a Surroundings,
}

impl Gateway<'_> {
    async fn run(self, config: EngineConfig) -> Result<ExitCode, Failure> {
        let mut signals = Signals::listen()
            .map_err(|error| Failure::plain(Exit::Failed, "cannot listen for signals", &error))?;
        let stop = CancellationToken::new();
        let screen = self.surroundings.screen;
        let folder = self
            .options
            .while_used
            .then(|| self.folder.path().to_owned());
        let watching = async {
            let _held = tokio::select! {
                biased;
                name = signals.next() => {
                    tracing::info!(signal = name, "asked to stop");
                    None
                }
                left = unused(folder.as_deref()) => Some(left),
            };
            stop.cancel();
            signals.next().await
        };
        tokio::select! {
            biased;
            name = watching => {
                screen.error_line(&format!("{name} again: stopping at once"));
                Ok(ExitCode::from(130))
            }
            done = self.serve(config, &stop) => done.map(|()| ExitCode::SUCCESS),
        }
    }

    async fn serve(self, config: EngineConfig, stop: &CancellationToken) -> Result<(), Failure> {
        let began = tokio::time::Instant::now();
        let failed =
            |error: &dyn gantry_model::diagnose::Diagnose| Failure::of(Exit::Failed, error);
        let engine = Engine::start(config)
            .await
            .map_err(|error| failed(&error))?;
        if let Err(failure) = self.prepare(&engine, stop).await {
            engine.drain().await;
            return Err(failure);
        }
        let Self {
            folder,
            listener,
            wanted,
            options,
            surroundings,
        } = self;
        let url = match options.shown_url(&listener) {
            Ok(url) => url,
            Err(error) => {
                engine.drain().await;
                return Err(Failure::plain(Exit::Failed, "cannot tell the port", &error));
            }
        };
        let teller = tell::Teller {
            screen: surroundings.screen,
            url: &url,
            folder: &folder,
            problems: &wanted.problems,
            began,
        };
        let serving = app::serve(
            listener,
            engine.clone(),
            options.serving(),
            stop.cancelled(),
        );
        let telling = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = teller.tell(&engine) => {}
            }
        };
        let (served, ()) = tokio::join!(serving, telling);
        folder.withdraw();
        served.map_err(|error| Failure::plain(Exit::Failed, "cannot serve", &error))
    }

    /// Everything between an engine that runs and a gateway that serves.
    async fn prepare(&self, engine: &Engine, stop: &CancellationToken) -> Result<(), Failure> {
        let specs = self.specs(engine)?;
        let applying = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                applied = engine.apply(specs) => applied.map(drop).map_err(|error| clash(&error)),
            }
        };
        // Servers come up while the keys of a first start are made.
        let (applied, kept) = tokio::join!(applying, self.keep_keys(engine));
        applied.and(kept)?;
        let unknown = |error| Failure::plain(Exit::Failed, "cannot tell the port", &error);
        let port = self.listener.local_addr().map_err(unknown)?.port();
        let running = Running {
            pid: std::process::id(),
            url: self.options.shown_url(&self.listener).map_err(unknown)?,
            started_ms: unix_ms(),
            version: VERSION.to_owned(),
        };
        let kept = |error| Failure::of(Exit::Failed, &error);
        if self.options.port != Some(0) {
            self.folder.remember_port(port).map_err(kept)?;
        }
        self.folder.announce(&running).map_err(kept)
    }

    /// Writes the keys of a first start. A lost agent's key is replaced by right of the admin key that
    /// is on file; a lost admin key is not, since nobody is there who may make one.
    async fn keep_keys(&self, engine: &Engine) -> Result<(), Failure> {
        let failed = |error| Failure::of(Exit::Failed, &error);
        let kept = |error| Failure::of(Exit::Failed, &error);
        let (admin, agent) = (self.folder.admin_key(), self.folder.agent_key());
        let folder = self.folder.clone();
        let keep = move |keys: &FirstKeys| {
            let written = folder.write_first_keys(&keys.admin, &keys.agent);
            written.map_err(std::io::Error::other)
        };
        if engine.first_start(keep).await.map_err(failed)?.is_some() {
            return Ok(());
        }
        let by = std::fs::read_to_string(&admin).ok();
        let by = by.and_then(|key| engine.authenticate(key.trim()));
        match by.filter(|caller| caller.kind == KeyKind::Admin) {
            None => {
                tracing::warn!(file = %admin.display(), "no valid admin key is on file; the verbs need `--key-file`");
            }
            Some(by) if !agent.exists() => {
                let name: AgentName = DEFAULT_AGENT
                    .parse()
                    .expect("the default agent's name is a name");
                let label = "made by `gantry up`, because the key file was missing";
                let made = engine.create_key(&by, KeyKind::Agent, &name, label).await;
                let (id, key) = made.map_err(failed)?;
                self.folder.write_key(&agent, &key).map_err(kept)?;
                tracing::warn!(%id, file = %agent.display(), "the key file was missing, a new key was made");
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns what the files ask for; the example if nothing asks for anything.
    fn specs(&self, engine: &Engine) -> Result<Vec<ServerSpec>, Failure> {
        let by_api = engine
            .servers()
            .iter()
            .any(|server| server.spec.source == Source::Api);
        if !self.options.config.is_empty() || self.options.no_example || by_api {
            return Ok(self.wanted.specs.clone());
        }
        let program: PathBuf = std::env::current_exe().map_err(|error| {
            Failure::plain(Exit::Failed, "cannot tell this program's path", &error)
        })?;
        let launch = ProcessLaunch {
            command: program.to_string_lossy().into_owned(),
            args: vec!["example-server".to_owned()],
            env: Default::default(),
            cwd: None,
            profile: Profile::Local,
            limits: Default::default(),
        };
        let name = "example".parse().expect("the example's name is a name");
        let mut spec = ServerSpec::process(name, launch);
        spec.description = Some("Gantry's own example".to_owned());
        spec.start = Start::Eager;
        spec.source = Source::Builtin;
        Ok(vec![spec])
    }
}

/// Waits until nobody uses a gateway that was started on demand; any other is always wanted.
async fn unused(folder: Option<&Path>) -> std::fs::File {
    if let Some(folder) = folder {
        match users::none_left(folder).await {
            Ok(held) => return held,
            Err(error) => tracing::warn!(%error, "cannot tell whether somebody uses this gateway"),
        }
    }
    std::future::pending().await
}

/// A name that a file and the admin API both gave away needs another hint: the API is not served yet.
fn clash(error: &EngineError) -> Failure {
    let failure = Failure::of(Exit::Failed, error);
    let EngineError::Conflict { name } = error else {
        return failure;
    };
    failure.hint(format!(
        "`{name}` was registered by the admin API; give it another name in the file, or start \
         without the file and remove it there"
    ))
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
