//! Applies changed configuration files to the running gateway; only changed servers are touched.
//!
//! An unusable file changes nothing: the last good state stays, and status, health and log say so.
//! Entries that need approval are shown on the terminal with the command to type. Changes of
//! `[gateway]` apply at the next start. Entry point: [`Live::run`].

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gantry_engine::{Actor, Applied, Project};
use gantry_model::diagnose::chain;
use gantry_model::id::ServerName;
use gantry_model::spec::{ProcessLaunch, Profile, ServerSpec, Source, Start};
use tokio::sync::Notify;

use crate::cli::files::{Setup, waits as waits_for};
use crate::cli::screen::Screen;
use crate::config::approval::Approvals;
use crate::config::diagnostic::Diagnostic;
use crate::config::plan::{ApprovedFiles, Plan};
use crate::config::settings::Settings;
use crate::config::watch::{FileState, Watch};
use crate::data_folder::DataFolder;

/// The prefix of notices about the configuration.
pub(in crate::cli) const NOTICE: &str = "configuration: ";

/// The files of a running gateway.
pub(super) struct Live {
    setup: Setup,
    settings: Settings,
    approved_files: ApprovedFiles,
    wants_example: bool,
    /// The files that the folder's files name.
    named_files: BTreeSet<PathBuf>,
    screen: Screen,
    /// What was reported to need approval.
    waiting: Vec<String>,
    seen: (Vec<FileState>, Approvals),
}

impl Live {
    /// Remembers the current state. Files that changed since they were planned are noticed at once.
    pub(super) fn new(mut setup: Setup, plan: &Plan, wants_example: bool, screen: Screen) -> Self {
        setup.last_good.clone_from(&plan.good);
        Self {
            // The start has reported it.
            waiting: waiting(plan),
            screen,
            settings: plan.settings.clone(),
            approved_files: plan.approved_files.clone(),
            wants_example,
            named_files: plan.named_files.clone(),
            seen: (Vec::new(), Approvals::default()),
            setup,
        }
    }

    /// Watches and applies changes forever; `reload` applies at once, changed or not.
    pub(super) async fn run(&mut self, project: &Arc<Project>, reload: &Notify) {
        let mut watch = self.watch();
        let mut is_asked = false;
        loop {
            let now = self.look();
            if now != self.seen || is_asked {
                note_approvals(project, &self.setup.data, &now.1).await;
                self.seen = now;
                let watched = self.named_files.clone();
                self.apply(project).await;
                if watched != self.named_files {
                    // Checked once more below, in case a file changed before it was watched.
                    watch = self.watch();
                    is_asked = false;
                    continue;
                }
            }
            is_asked = tokio::select! {
                biased;
                () = reload.notified() => true,
                () = watch.changed() => false,
            };
            if is_asked {
                tracing::info!("the configuration files are read again, as SIGHUP asks");
                // Folders may have come or gone since.
                watch = self.watch();
            }
        }
    }

    fn watch(&self) -> Watch {
        let files = self.setup.sources.iter();
        let files = files.map(|source| self.setup.folder.join(&source.path));
        let files = files.chain(self.named_files.iter().cloned());
        Watch::over(files.chain([self.setup.data.approvals()]))
    }

    fn look(&self) -> (Vec<FileState>, Approvals) {
        let (folder, sources) = (&self.setup.folder, &self.setup.sources);
        let sources = sources.iter().map(|source| folder.join(&source.path));
        let files = sources.chain(self.named_files.iter().cloned());
        let states = files.map(|file| FileState::of(&file)).collect();
        (states, Approvals::load(&self.setup.data))
    }

    async fn apply(&mut self, project: &Arc<Project>) {
        // By recorded approvals: a newer approval is recorded first.
        let plan = match self.setup.load_with(&self.seen.1) {
            Ok(plan) => plan,
            Err(mistakes) => {
                project.set_notices(mistakes.iter().map(kept).collect());
                for mistake in &mistakes {
                    tracing::error!(error = %chain(mistake), "a configuration file is not applied, the last valid configuration stays in effect");
                }
                return;
            }
        };
        self.setup.last_good.clone_from(&plan.good);
        self.named_files.clone_from(&plan.named_files);
        let mut told = Vec::new();
        let gateway_waits = plan.unapproved.iter().any(|file| file.gateway.is_some());
        let is_the_same = plan.settings.says_the_same(&self.settings)
            && plan.approved_files == self.approved_files;
        if !gateway_waits && !is_the_same {
            told.push(format!(
                "{NOTICE}`[gateway]` has changed, and takes effect at the next start"
            ));
        }
        let specs = match wanted(project, &plan, self.wants_example) {
            Ok(specs) => specs,
            Err(error) => {
                tracing::error!(%error, "cannot determine this program's path");
                return;
            }
        };
        match project.apply(specs).await {
            Ok(applied) => {
                told.extend(notices(&plan, &applied.shadowed));
                self.tell(&plan, &applied);
            }
            Err(error) => {
                tracing::error!(error = %chain(&error), "the configuration is not applied as a whole");
                told.extend(notices(&plan, &[]));
                told.push(format!("{NOTICE}not applied as a whole: {}", chain(&error)));
            }
        }
        project.set_notices(told);
    }

    /// Reports what changed, and what needs approval.
    fn tell(&mut self, plan: &Plan, applied: &Applied) {
        let joined = |names: &[&str]| names.join(", ");
        let all: Vec<(&str, Vec<&str>)> = [
            ("added", &applied.added),
            ("changed", &applied.changed),
            ("removed", &applied.removed),
        ]
        .into_iter()
        .map(|(what, names)| (what, names.iter().map(ServerName::as_str).collect()))
        .collect();
        if all.iter().any(|(_, names)| !names.is_empty()) {
            let [added, changed, removed] = [0, 1, 2].map(|at| joined(&all[at].1));
            tracing::info!(added, changed, removed, "the configuration has changed");
        }
        // On a terminal the log is quiet, and approvals have their own lines.
        let waits = |name: &&str| {
            let mut servers = plan.servers.iter();
            servers.any(|server| {
                server.spec.name.as_str() == *name && server.spec.needs_approval.is_some()
            })
        };
        let mut parts = Vec::new();
        for (what, names) in all {
            let names: Vec<&str> = names.into_iter().filter(|name| !waits(name)).collect();
            if !names.is_empty() {
                parts.push(format!("{what}: {}", joined(&names)));
            }
        }
        if self.screen.is_terminal() && !parts.is_empty() {
            self.screen
                .line(&format!("  configuration applied; {}", parts.join("; ")));
        }
        let now = waiting(plan);
        if now != self.waiting {
            for file in &plan.unapproved {
                let [what, how] = waits_for(file, &self.screen).map(|line| Screen::safe(&line));
                let mark = self.screen.doubtful("!");
                self.screen.line(&format!("  {mark} {what}"));
                self.screen.line(&format!("    {how}"));
            }
        }
        self.waiting = now;
    }
}

/// Returns what needs approval, with its content.
fn waiting(plan: &Plan) -> Vec<String> {
    let files = plan.unapproved.iter();
    let files = files.map(|file| format!("{} {file}", file.approval.digest.as_str()));
    files.collect()
}

/// Records approved files before their servers run.
pub(super) async fn note_approvals(
    project: &Arc<Project>,
    data: &DataFolder,
    approvals: &Approvals,
) {
    use std::os::unix::fs::MetadataExt as _;
    let owner = std::fs::metadata(data.approvals()).map(|file| file.uid());
    let by = Actor::files(owner.map_or_else(|_| "a user".to_owned(), |uid| format!("user {uid}")));
    if let Err(error) = project.note_approvals(by, approvals.on_file()).await {
        tracing::error!(error = %chain(&error), "approvals of files could not be recorded");
    }
}

fn kept(mistake: &Diagnostic) -> String {
    let what = chain(mistake);
    format!("{NOTICE}not applied, the last valid configuration stays in effect: {what}")
}

/// Returns notices about the files for administrators; `shadowed` are unapproved servers whose
/// names are registered over the API.
pub(super) fn notices(plan: &Plan, shadowed: &[ServerName]) -> Vec<String> {
    let left_out = plan
        .mistakes
        .iter()
        .map(|mistake| format!("{NOTICE}left out: {}", chain(mistake)));
    let waiting = plan.unapproved.iter().map(|file| {
        let path = file.path.display();
        format!("{NOTICE}`{path}` needs approval: {file}; run `gantry approve {path}`")
    });
    let ignored = plan.ignored.iter().map(ToString::to_string);
    let shadows = plan.shadows.iter().map(ToString::to_string);
    let registered = shadowed.iter().map(|name| {
        format!("`{name}` in a file that is not approved has no effect: the one that was registered over the API counts")
    });
    let harmless = ignored.chain(shadows).chain(registered);
    left_out
        .chain(waiting)
        .chain(harmless.map(|what| format!("{NOTICE}{what}")))
        .collect()
}

/// Returns the configured servers; the example if there are none.
pub(super) fn wanted(
    project: &Arc<Project>,
    plan: &Plan,
    wants_example: bool,
) -> io::Result<Vec<ServerSpec>> {
    let by_api = project
        .servers()
        .iter()
        .any(|server| server.spec.source == Source::Api);
    if !plan.is_empty() || !wants_example || by_api {
        return Ok(plan.specs());
    }
    let program = std::env::current_exe()?;
    let launch = ProcessLaunch {
        command: program.to_string_lossy().into_owned(),
        args: vec!["example-server".to_owned()],
        env: Default::default(),
        cwd: None,
        profile: Profile::Local,
        limits: Default::default(),
        hosting: Default::default(),
        written: Default::default(),
    };
    let name = "example".parse().expect("the example's name is a name");
    let mut spec = ServerSpec::process(name, launch);
    spec.description = Some("Gantry's own example".to_owned());
    spec.start = Start::Eager;
    spec.source = Source::Builtin;
    Ok(std::iter::once(spec)
        .chain(plan.off.iter().cloned())
        .collect())
}
