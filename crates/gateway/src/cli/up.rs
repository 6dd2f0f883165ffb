//! `gantry up`: starts the gateway with its servers and serves until it is stopped.
//!
//! Merges flags, files and the data folder into the configuration of `app` and the engine, reports
//! progress, and stops on the first signal, at once on the second. Entry point: [`run`].

mod approved;
mod inputs;
mod keys;
mod live;
mod options;
mod reach;
mod report;

use std::fs::DirBuilder;
use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_engine::{Engine, EngineConfig, EngineError, Project};
use gantry_model::diagnose::chain;
use gantry_model::spec::ServerSpec;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::session::link_path;
use crate::app::listen::{self, ListenAddress, ListenError};
use crate::app::signals::{Hangup, SignalRequest, Signals};
use crate::app::tls::Tls;
use crate::app::users;
use crate::app::{self, SecureListener, VERSION};
use crate::config::approval::Approvals;
use crate::config::env::GANTRY_MASTER_KEY;
use crate::config::expand::Secrets;
use crate::config::master_key::KeySource;
use crate::config::plan::Plan;
use crate::config::watch::{FileState, Watch};
use crate::data_folder::{DataFolder, Running};
use crate::http::BrowserSessions;

use super::CliContext;
use super::failure::{Exit, Failure};
use super::files::{self, Setup, TrustFolder};
use super::prompt;
use reach::reached;

pub(super) use keys::DEFAULT_AGENT;
pub(super) use live::NOTICE;
use options::Secure;
pub(super) use options::{Flags, Options};

/// More threads only add context switches.
const MOST_THREADS: usize = 8;

/// The deadline after servers are killed: for the last responses, and the audit records.
const LAST: Duration = Duration::from_secs(10);

/// Starts and serves.
pub(super) fn run(options: Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let folder = DataFolder::open(&context.data_path()?)
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    let mut setup = Setup::new(&options.files, folder.clone(), context)?;
    setup.secrets = Secrets::Project;
    // No file may put the master key into the environment of a server.
    setup.hide(GANTRY_MASTER_KEY);
    let mut plan = agree(&mut setup, &options, context)?;
    if let Some(KeySource::Variable(name)) =
        options.master_key(&plan.settings, &context.environment)
    {
        setup.hide(&name);
        plan = setup.plan(&context.screen)?;
    }
    let mut settings = plan.settings.clone();
    options.replace(&mut settings);
    let settings = &approved::copied(settings, &plan.approved_files, &folder)?;
    let place = ListenAddress {
        address: options.address(settings),
        port: options.port(settings),
        remembered: folder.port(),
    };
    let listener = listen::bind(&place).map_err(|error| taken(&error, &folder))?;
    let secure = options.secure(settings)?.map(listen_securely).transpose()?;

    let mut config = EngineConfig::new(folder.path());
    config.environment = context.environment.for_servers();
    config.hidden_folders = others(context).into_iter().collect();
    options.settle(settings, &mut config);
    config.issuers = options.issuers(settings)?;
    let store = options.store(settings, &context.environment);
    let store =
        store.map_err(|error| Failure::plain(Exit::Usage, "invalid `GANTRY_STORE`", &error))?;
    config.store = store.unwrap_or(config.store);
    if let Some(source) = options.master_key(settings, &context.environment) {
        config.hidden_folders.extend(source.own_folder());
        let key = source.read(&context.environment);
        config.master_key = Some(key.map_err(|why| {
            Failure::new(Exit::Usage, format!("no master key from `{source}`: {why}"))
        })?);
    }
    config.traces = options.traces(settings, &context.environment)?;
    config.siem = options.siem(settings, &context.environment)?;
    config.dropped_log_lines = context.screen.output().dropped();
    // Questions have been answered; from here on no reader is waited for.
    context.screen.output().serve();

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
        secure,
        setup,
        plan,
        options,
        context,
    };
    let done = runtime.block_on(gateway.run(config));
    // What still runs after a second signal, servers included, ends with this process.
    runtime.shutdown_background();
    done
}

/// Returns the folder with the data folders of all gateways, creating it if necessary: if created
/// later, it would be visible to servers that already run.
fn others(context: &CliContext) -> Option<PathBuf> {
    let root = context.environment.state_root()?;
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&root);
    if let Err(error) = made {
        tracing::debug!(%error, folder = %root.display(), "no folder for other gateways");
    }
    Some(root)
}

/// Reads the files, and asks at a terminal for approvals and inputs. Unapproved entries stay
/// inactive.
fn agree(setup: &mut Setup, options: &Options, context: &CliContext) -> Result<Plan, Failure> {
    let screen = &match options.json {
        true => context.screen.beside_stdout(),
        false => context.screen,
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
    if inputs::answer(setup, &plan, options, context)? {
        plan = setup.plan(screen)?;
    }
    // From here on log lines come after the rows of the screen.
    context.screen.output().hold();
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

/// Binds the listener with TLS; fails if its certificate files are invalid.
fn listen_securely(secure: Secure) -> Result<Arc<SecureListener>, Failure> {
    let tls = Tls::load(secure.files).map_err(|error| Failure::of(Exit::Failed, &error))?;
    let place = ListenAddress {
        address: secure.address.ip(),
        port: Some(secure.address.port()),
        remembered: None,
    };
    let listener = listen::bind(&place).map_err(|error| Failure::of(Exit::Failed, &error))?;
    let tls = Arc::new(tls);
    Ok(Arc::new(SecureListener { listener, tls }))
}

/// Reloads the certificate files of TLS whenever they change; never returns.
async fn renew(secure: Option<&SecureListener>) {
    let Some(tls) = secure.map(|secure| &secure.tls) else {
        return std::future::pending().await;
    };
    let look = || -> Vec<FileState> {
        let paths = tls.files().paths();
        paths.map(|path| FileState::of(&path)).collect()
    };
    let mut watch = Watch::over(tls.files().paths());
    let mut seen = look();
    loop {
        watch.changed().await;
        let now = look();
        if now == seen {
            continue;
        }
        seen = now;
        match tls.reload() {
            Ok(()) => tracing::info!("the certificate was read again; new connections use it"),
            Err(error) => {
                tracing::error!(error = %chain(&error), "the changed certificate cannot be used; the last one stays in use");
            }
        }
    }
}

/// A port taken by the gateway of this very folder has its own message.
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

/// Returns whether a process exists.
pub(super) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Everything needed for a start.
struct Gateway<'a> {
    folder: DataFolder,
    listener: TcpListener,
    secure: Option<Arc<SecureListener>>,
    setup: Setup,
    plan: Plan,
    options: Options,
    context: &'a CliContext,
}

impl Gateway<'_> {
    async fn run(self, config: EngineConfig) -> Result<ExitCode, Failure> {
        let hangup = hangup(self.context);
        let mut signals = Signals::listen(hangup, config.stop.kill_after.saturating_add(LAST))
            .map_err(|error| Failure::plain(Exit::Failed, "cannot listen for signals", &error))?;
        let (stop, reload) = (CancellationToken::new(), Notify::new());
        let engine = OnceLock::new();
        let screen = self.context.screen;
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
                // A call cut off now is not cancelled: its server may have executed it.
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
        if !reached(&config.store, stop, &self.context.screen).await? {
            return Ok(());
        }
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
            secure,
            setup,
            plan,
            options,
            context,
        } = self;
        let url = match options.shown_url(&listener) {
            Ok(url) => url,
            Err(error) => {
                engine.drain().await;
                return Err(Failure::plain(
                    Exit::Failed,
                    "cannot determine the port",
                    &error,
                ));
            }
        };
        let (screen, form) = match options.json {
            true => (context.screen.beside_stdout(), report::Form::Json),
            false => (context.screen, report::Form::Words),
        };
        let browsers = BrowserSessions::default();
        let report = report::StartupReport {
            screen,
            form,
            url: &url,
            secure_url: secure.as_ref().and_then(|secure| {
                let bound = secure.listener.local_addr().ok()?;
                Some(format!("https://{bound}"))
            }),
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
                secure: secure.clone(),
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
                () = renew(secure.as_deref()) => {}
            }
        };
        // Nothing is trusted to a disk that has lost something: the next start recovers what is there.
        let failing = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                reason = engine.disk_failed() => {
                    stop.cancel();
                    Some(reason)
                }
            }
        };
        let (served, (), (), failed) = tokio::join!(serving, telling, watching, failing);
        folder.withdraw();
        if let Some(reason) = failed {
            let failure = Failure::new(Exit::Failed, format!("stopped: {reason}"));
            return Err(failure.hint("check the disk, then start the gateway again"));
        }
        served.map_err(|error| Failure::plain(Exit::Failed, "cannot serve", &error))
    }

    /// Everything between a running engine and a serving gateway.
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
        // Servers start while the keys of a first start are created.
        let (applied, kept) = tokio::join!(
            applying,
            keys::keep(&self.folder, engine, &self.context.screen)
        );
        applied.and(kept)?;
        let unknown = |error| Failure::plain(Exit::Failed, "cannot determine the port", &error);
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

    /// Returns the configured servers; the example if there are none.
    fn specs(&self, project: &Arc<Project>) -> Result<Vec<ServerSpec>, Failure> {
        live::wanted(project, &self.plan, self.options.wants_example()).map_err(|error| {
            Failure::plain(Exit::Failed, "cannot determine this program's path", &error)
        })
    }
}

/// Returns a single-use link that signs a browser in with the stored admin key.
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

/// Returns the meaning of SIGHUP: reload under a service manager without a terminal, else stop.
fn hangup(context: &CliContext) -> Hangup {
    let is_seen = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    // Shells started by a service manager inherit its variables.
    match context.environment.has_manager() && !is_seen {
        true => Hangup::Reload,
        false => Hangup::Stop,
    }
}

/// Waits for a stop signal and returns its name; reload requests are forwarded meanwhile.
async fn asked(signals: &mut Signals, reload: &Notify) -> &'static str {
    loop {
        match signals.next().await {
            SignalRequest::Stop(name) => return name,
            SignalRequest::Reload => reload.notify_one(),
        }
    }
}

/// Waits until no one uses a gateway started on demand; never returns for others.
async fn unused(folder: Option<&Path>) -> Option<std::fs::File> {
    if let Some(folder) = folder {
        match users::none_left(folder).await {
            Ok(held) => return Some(held),
            // The data folder is gone, so no one can reach this gateway any more.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => tracing::warn!(%error, "cannot determine whether this gateway is in use"),
        }
    }
    std::future::pending().await
}

/// Failures of servers in files need another hint: the API is not served yet.
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
