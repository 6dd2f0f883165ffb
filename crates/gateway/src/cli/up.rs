//! `gantry up`: starts the gateway with its servers and serves until it is stopped.
//!
//! Joins flags, files and the data folder into what `app` and the engine take, tells the person what
//! happens, and stops on the first signal, at once on the second. Entry point: [`run`].

mod keys;
mod live;
mod options;
mod tell;

use std::fs::DirBuilder;
use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_engine::{Engine, EngineConfig, EngineError, Project};
use gantry_model::spec::ServerSpec;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::session::link_path;
use crate::app::listen::{self, ListenError, Place};
use crate::app::signals::{Hangup, SignalRequest, Signals};
use crate::app::users;
use crate::app::{self, VERSION};
use crate::config::approval::Approvals;
use crate::config::plan::Plan;
use crate::data_folder::{DataFolder, Running};
use crate::http::BrowserSessions;

use super::Surroundings;
use super::failure::{Exit, Failure};
use super::files::{self, Setup, TrustFolder};
use super::prompt;

pub(super) use keys::DEFAULT_AGENT;
pub(super) use live::NOTICE;
pub(super) use options::{Flags, Options};

/// More threads than this only add switching.
const MOST_THREADS: usize = 8;

/// How long everything may take beyond the time after which servers are killed: the last answers, and
/// the record of calls.
const LAST: Duration = Duration::from_secs(10);

/// Starts and serves.
pub(super) fn run(options: Options, surroundings: &Surroundings) -> Result<ExitCode, Failure> {
    let folder = DataFolder::open(&surroundings.data_path()?)
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    let mut setup = Setup::new(&options.files, folder.clone(), surroundings)?;
    let plan = agree(&mut setup, &options, surroundings)?;
    let settings = &plan.settings;
    let place = Place {
        address: options.address(settings),
        port: options.port(settings),
        remembered: folder.port(),
    };
    let listener = listen::bind(&place).map_err(|error| taken(&error, &folder))?;

    let mut config = EngineConfig::new(folder.path());
    config.environment = surroundings.environment.for_servers();
    config.hidden_folders = others(surroundings).into_iter().collect();
    options.settle(settings, &mut config);
    let store = options.store(settings, &surroundings.environment);
    let store =
        store.map_err(|error| Failure::plain(Exit::Usage, "invalid `GANTRY_STORE`", &error))?;
    config.store = store.unwrap_or(config.store);
    config.dropped_log_lines = surroundings.screen.output().dropped();
    // Questions have been answered; from here on no reader is waited for.
    surroundings.screen.output().serve();

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
        setup,
        plan,
        options,
        surroundings,
    };
    let done = runtime.block_on(gateway.run(config));
    // Whatever still runs after a second signal ends with us, servers included.
    runtime.shutdown_background();
    done
}

/// Returns the folder in which other gateways keep their keys. It is made if need be: one that came later
/// would be visible to servers that run already.
fn others(surroundings: &Surroundings) -> Option<PathBuf> {
    let root = surroundings.environment.state_root()?;
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&root);
    if let Err(error) = made {
        tracing::debug!(%error, folder = %root.display(), "no folder for other gateways");
    }
    Some(root)
}

/// Reads the files, and asks the person at the terminal about those that nobody vouches for, and for
/// the inputs that they need. What is not approved waits.
fn agree(
    setup: &mut Setup,
    options: &Options,
    surroundings: &Surroundings,
) -> Result<Plan, Failure> {
    let screen = &match options.json {
        true => surroundings.screen.beside_stdout(),
        false => surroundings.screen,
    };
    let mut plan = setup.plan(screen)?;
    let can_ask = !options.json && prompt::is_possible();
    let mut approved = Vec::new();
    for file in plan.unapproved.iter().filter(|_| options.trust || can_ask) {
        files::show(file, screen);
        if options.trust {
            approved.push(file.clone());
            continue;
        }
        files::show_folder(&plan, screen);
        if prompt::yes("Let it run?") {
            approved.push(file.clone());
        }
    }
    let folder = match options.trust && !plan.kept_out.is_empty() {
        true => TrustFolder::Yes,
        false => TrustFolder::No,
    };
    if folder == TrustFolder::Yes {
        files::show_folder(&plan, screen);
    }
    if !approved.is_empty() || folder == TrustFolder::Yes {
        setup.approve(&approved, folder)?;
        plan = setup.plan(screen)?;
    }
    setup.record_parts(&plan);
    if options.trust && !plan.ignored.is_empty() {
        let ignored = plan.ignored.into_iter();
        let mistakes: Vec<_> = ignored.map(|ignored| ignored.mistake).collect();
        return Err(files::refused(&mistakes, screen));
    }
    if !options.json && setup.ask_inputs(&plan) {
        plan = setup.plan(screen)?;
    }
    // What is logged from here on comes after the rows of the screen.
    surroundings.screen.output().hold();
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    let elsewhere = plan
        .servers
        .iter()
        .filter(|planned| planned.is_kept_out && planned.spec.needs_approval.is_none());
    let elsewhere: Vec<&str> = elsewhere
        .map(|planned| planned.spec.name.as_str())
        .collect();
    if !elsewhere.is_empty() {
        tracing::info!(
            servers = elsewhere.join(", "),
            "these servers from your home configuration run in a neutral folder, not here, until you \
             trust this folder: `{}`",
            screen.command("approve .")
        );
    }
    if options.aborts(&plan.settings) && !plan.mistakes.is_empty() {
        return Err(files::refused(&plan.mistakes, screen));
    }
    Ok(plan)
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

/// Tells whether a process is there.
pub(super) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Everything that a start needs.
struct Gateway<'a> {
    folder: DataFolder,
    listener: TcpListener,
    setup: Setup,
    plan: Plan,
    options: Options,
    surroundings: &'a Surroundings,
}

impl Gateway<'_> {
    async fn run(self, config: EngineConfig) -> Result<ExitCode, Failure> {
        let hangup = hangup(self.surroundings);
        let mut signals = Signals::listen(hangup, config.stop.kill_after.saturating_add(LAST))
            .map_err(|error| Failure::plain(Exit::Failed, "cannot listen for signals", &error))?;
        let (stop, reload) = (CancellationToken::new(), Notify::new());
        let engine = OnceLock::new();
        let screen = self.surroundings.screen;
        let folder = self
            .options
            .while_used
            .then(|| self.folder.path().to_owned());
        let watching = async {
            let _held = tokio::select! {
                biased;
                name = asked(&mut signals, &reload) => {
                    tracing::info!(signal = name, "asked to stop");
                    None
                }
                left = unused(folder.as_deref()) => left,
            };
            stop.cancel();
            signals.stop().await
        };
        tokio::select! {
            biased;
            name = watching => {
                // What is cut off now was not cancelled: its server may have done it.
                if let Some(engine) = engine.get() {
                    engine.cut_off();
                }
                screen.error_line(&format!("{name} again: stopping at once"));
                Ok(ExitCode::from(130))
            }
            done = self.serve(config, (&stop, &reload), &engine) => done.map(|()| ExitCode::SUCCESS),
        }
    }

    async fn serve(
        self,
        config: EngineConfig,
        (stop, reload): (&CancellationToken, &Notify),
        started: &OnceLock<Engine>,
    ) -> Result<(), Failure> {
        let began = tokio::time::Instant::now();
        let failed =
            |error: &dyn gantry_model::diagnose::Diagnose| Failure::of(Exit::Failed, error);
        let engine = Engine::start(config)
            .await
            .map_err(|error| failed(&error))?;
        let engine = started.get_or_init(|| engine).clone();
        if let Err(failure) = Box::pin(self.prepare(&engine, stop)).await {
            engine.drain().await;
            return Err(failure);
        }
        let Self {
            folder,
            listener,
            setup,
            plan,
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
        let (screen, form) = match options.json {
            true => (surroundings.screen.beside_stdout(), tell::Form::Json),
            false => (surroundings.screen, tell::Form::Words),
        };
        let browsers = BrowserSessions::default();
        let report = tell::StartupReport {
            screen,
            form,
            url: &url,
            folder: &folder,
            plan: &plan,
            link: match screen.is_terminal() {
                true => link(&folder, &engine, &browsers, &url),
                false => None,
            },
            began,
        };
        let serving = app::serve(
            listener,
            engine.clone(),
            app::Options {
                browsers,
                guarded: Arc::clone(&setup.guarded),
                ..options.serving(&plan.settings)
            },
            stop.cancelled(),
        );
        let telling = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = report.tell(&engine) => {}
            }
        };
        let mut live = live::Live::new(setup, &plan, options.wants_example(), screen);
        let project = engine.default_project();
        let watching = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = live.run(&project, reload) => {}
            }
        };
        let (served, (), ()) = tokio::join!(serving, telling, watching);
        folder.withdraw();
        served.map_err(|error| Failure::plain(Exit::Failed, "cannot serve", &error))
    }

    /// Everything between an engine that runs and a gateway that serves.
    async fn prepare(&self, engine: &Engine, stop: &CancellationToken) -> Result<(), Failure> {
        let approvals = Approvals::load(&self.folder);
        let project = engine.default_project();
        live::note_approvals(&project, &self.folder, &approvals).await;
        let specs = self.specs(&project)?;
        project.set_notices(live::notices(&self.plan, &[]));
        let applying = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                applied = project.apply(specs) => {
                    let applied = applied.map_err(|error| clash(&error))?;
                    project.set_notices(live::notices(&self.plan, &applied.shadowed));
                    Ok(())
                }
            }
        };
        // Servers come up while the keys of a first start are made.
        let (applied, kept) = tokio::join!(
            applying,
            keys::keep(&self.folder, engine, &self.surroundings.screen)
        );
        applied.and(kept)?;
        let unknown = |error| Failure::plain(Exit::Failed, "cannot tell the port", &error);
        let port = self.listener.local_addr().map_err(unknown)?.port();
        let running = Running {
            pid: std::process::id(),
            url: self.options.shown_url(&self.listener).map_err(unknown)?,
            started_ms: gantry_engine::unix_ms(),
            version: VERSION.to_owned(),
            on_demand: self.options.while_used,
            folder: Some(self.setup.folder.clone()),
        };
        let kept = |error| Failure::of(Exit::Failed, &error);
        if self.options.port(&self.plan.settings) != Some(0) {
            self.folder.remember_port(port).map_err(kept)?;
        }
        self.folder.announce(&running).map_err(kept)
    }

    /// Returns what the files ask for; the example if nothing asks for anything.
    fn specs(&self, project: &Arc<Project>) -> Result<Vec<ServerSpec>, Failure> {
        live::wanted(project, &self.plan, self.options.wants_example()).map_err(|error| {
            Failure::plain(Exit::Failed, "cannot tell this program's path", &error)
        })
    }
}

/// Returns a link that signs a browser in, once, with the admin key that is on file.
fn link(
    folder: &DataFolder,
    engine: &Engine,
    browsers: &BrowserSessions,
    url: &str,
) -> Option<String> {
    let key = std::fs::read_to_string(folder.admin_key()).ok()?;
    let admin = engine.authenticate(key.trim())?;
    let code = browsers.new_code(&admin);
    Some(format!("{url}{}", link_path(&code)))
}

/// Returns what SIGHUP means: at a terminal, and wherever no service manager is, that it was closed.
fn hangup(surroundings: &Surroundings) -> Hangup {
    let is_seen = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    // Shells that a service manager started have its variables too.
    match surroundings.environment.has_manager() && !is_seen {
        true => Hangup::Reload,
        false => Hangup::Stop,
    }
}

/// Waits for the signal to stop, and returns its name; wishes to reload are passed on meanwhile.
async fn asked(signals: &mut Signals, reload: &Notify) -> &'static str {
    loop {
        match signals.next().await {
            SignalRequest::Stop(name) => return name,
            SignalRequest::Reload => reload.notify_one(),
        }
    }
}

/// Waits until nobody uses a gateway that was started on demand; any other is always wanted.
async fn unused(folder: Option<&Path>) -> Option<std::fs::File> {
    if let Some(folder) = folder {
        match users::none_left(folder).await {
            Ok(held) => return Some(held),
            // The data folder is gone, and nobody can come to this gateway any more.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => tracing::warn!(%error, "cannot tell whether somebody uses this gateway"),
        }
    }
    std::future::pending().await
}

/// What servers of files fail with needs another hint: the API is not served yet.
fn clash(error: &EngineError) -> Failure {
    let failure = Failure::of(Exit::Failed, error);
    if let EngineError::Conflict { name } = error {
        return failure.hint(format!(
            "`{name}` was registered by the admin API; give it another name in the file, or start \
             without the file and remove it there"
        ));
    }
    if let EngineError::StartFailed { .. } = error {
        return failure.hint("fix it, or start without it: `gantry up --on-start-failure isolate`");
    }
    failure
}
