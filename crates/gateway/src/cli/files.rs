//! The configuration files of a verb, and the plan they make; shared by `up`, `config` and
//! `approve`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use gantry_model::diagnose::{Diagnose as _, chain};
use gantry_model::spec::Guarded;

use crate::config::approval::Approvals;
use crate::config::diagnostic::Diagnostic;
use crate::config::env::{Environment, HOME};
use crate::config::expand::Secrets;
use crate::config::guarded;
use crate::config::inputs::{Answers, AskedInput};
use crate::config::plan::{self, Given, LastGood, Plan, Unapproved};
use crate::config::source::{self, Source};
use crate::data_folder::DataFolder;

use super::failure::{Exit, Failure};
use super::screen::Screen;
use super::{CliContext, find, prompt};

/// Which files are read.
#[derive(Debug, Args)]
pub(super) struct Files {
    /// A file with servers to run, instead of those of the folder and the home; may be given
    /// several times, the later takes precedence
    #[arg(long, value_name = "FILE")]
    pub(super) config: Vec<PathBuf>,
    /// Ignore the files of the folder and the home
    #[arg(long)]
    pub(super) no_discover: bool,
}

/// The files of a verb and their variables.
pub(super) struct Setup {
    pub(super) sources: Vec<Source>,
    pub(super) folder: PathBuf,
    pub(super) data: DataFolder,
    /// Answers to inputs, each for the entry that asks.
    pub(super) inputs: Answers,
    /// Whether the project has secrets to ask for.
    pub(super) secrets: Secrets,
    /// What stays in effect while a file is being rewritten.
    pub(super) last_good: LastGood,
    environment: Environment,
    /// The working folder of the user's own servers if the folder is not trusted; by default one
    /// each.
    neutral: Option<PathBuf>,
    /// What no hosted server may write to.
    pub(super) guarded: Arc<Guarded>,
}

/// Returns the user's home as a canonical path, if any.
pub(super) fn home(context: &CliContext) -> Option<PathBuf> {
    let home = context.environment.filled(HOME).map(Path::new);
    home.and_then(|home| home.canonicalize().ok())
}

impl Setup {
    /// Finds the files; approvals are in the data folder.
    pub(super) fn new(
        files: &Files,
        data: DataFolder,
        context: &CliContext,
    ) -> Result<Self, Failure> {
        Ok(Self::of(find::working_folder()?, files, data, context))
    }

    /// Finds the files of a folder.
    pub(super) fn of(
        folder: PathBuf,
        files: &Files,
        data: DataFolder,
        context: &CliContext,
    ) -> Self {
        let home = home(context);
        let sources = match (files.config.as_slice(), files.no_discover) {
            ([], true) => Vec::new(),
            ([], false) => source::discover(&folder, home.as_deref()),
            (named, _) => source::named(named),
        };
        // The folder itself is not neutral: programs look for settings and code in parent folders
        // too.
        let servers = data.path();
        let servers = servers
            .canonicalize()
            .unwrap_or_else(|_| folder.join(servers));
        let files = sources.iter().map(|source| folder.join(&source.path));
        let guarded = Arc::new(guarded::paths(&servers, files, home.as_deref()));
        let neutral = home.filter(|_| servers.starts_with(&folder));
        Self {
            neutral,
            guarded,
            sources,
            folder,
            data,
            inputs: Answers::new(),
            secrets: Secrets::default(),
            last_good: LastGood::new(),
            environment: context.environment.clone(),
        }
    }

    /// Takes a variable away from what files can use.
    pub(super) fn hide(&mut self, variable: &str) {
        self.environment = self.environment.without(variable);
    }

    /// Reads everything again.
    pub(super) fn load(&self) -> Result<Plan, Vec<Diagnostic>> {
        self.load_with(&Approvals::load(&self.data))
    }

    /// Reads everything again, with the given approvals.
    pub(super) fn load_with(&self, approvals: &Approvals) -> Result<Plan, Vec<Diagnostic>> {
        plan::load(Given {
            sources: &self.sources,
            approvals,
            environment: &self.environment,
            folder: &self.folder,
            inputs: &self.inputs,
            secrets: self.secrets,
            last_good: &self.last_good,
            neutral: self.neutral.as_deref(),
            guarded: &self.guarded,
        })
    }

    /// Reads everything, and fails with all errors that make a file unusable.
    pub(super) fn plan(&self, screen: &Screen) -> Result<Plan, Failure> {
        self.load().map_err(|mistakes| refused(&mistakes, screen))
    }

    /// Records that these files were approved as read, and the folder if requested.
    pub(super) fn approve(&self, files: &[Unapproved], folder: TrustFolder) -> Result<(), Failure> {
        let files = files.iter().map(|file| &file.approval);
        let folder = Some(self.folder.as_path()).filter(|_| folder == TrustFolder::Yes);
        Approvals::approve(&self.data, files, folder)
            .map(drop)
            .map_err(|error| Failure::of(Exit::Failed, &error))
    }

    /// Records the parts of files approved as a whole, so that an edit asks only for what changed.
    pub(super) fn record_parts(&self, plan: &Plan) {
        if plan.unrecorded.is_empty() {
            return;
        }
        if let Err(error) = Approvals::approve(&self.data, &plan.unrecorded, []) {
            tracing::warn!(error = %chain(&error), "approvals could not be written");
        }
    }

    /// Asks for missing inputs at a terminal; returns whether one was given.
    pub(super) fn ask_inputs(&mut self, plan: &Plan) -> bool {
        if !prompt::is_possible() {
            return false;
        }
        let mut typed: BTreeMap<(&Path, &str), String> = BTreeMap::new();
        for asked in &plan.inputs {
            let answers = self.inputs.entry(asked.scope.clone()).or_default();
            if answers.contains_key(&asked.id) {
                continue;
            }
            // One question per file, whichever of its entries ask it.
            let place = (asked.file.as_path(), asked.id.as_str());
            let is_shared = |other: &AskedInput| other.id == asked.id && other.file != asked.file;
            let question = match plan.inputs.iter().any(is_shared) {
                true => format!("input `{}` of `{}`", asked.id, asked.file.display()),
                false => format!("input `{}`", asked.id),
            };
            let answer = typed.get(&place).cloned();
            if let Some(answer) = answer.or_else(|| prompt::secret(&question)) {
                typed.insert(place, answer.clone());
                answers.insert(asked.id.clone(), answer);
            }
        }
        !typed.is_empty()
    }
}

/// Whether the folder was part of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrustFolder {
    Yes,
    No,
}

/// Returns the consequences of trusting the folder, one per line; empty if there are none.
pub(super) fn asks_of_folder(plan: &Plan) -> Vec<String> {
    let names = plan.kept_out.iter();
    let lines = names.map(|name| {
        format!(
            "{}: would run in this folder and may execute code found in it (server from your home configuration)",
            name.escape_debug()
        )
    });
    lines.collect()
}

/// Shows the consequences of trusting the folder.
pub(super) fn show_folder(plan: &Plan, screen: &Screen) {
    let asks = asks_of_folder(plan);
    if !asks.is_empty() {
        screen.line(&format!(
            "{} asks to be trusted:",
            screen.strong("this folder")
        ));
    }
    for wish in &asks {
        screen.line(&format!("  {}", Screen::safe(wish)));
    }
}

/// Shows what a file would run; for a file approved before, what changed.
pub(super) fn show(file: &Unapproved, screen: &Screen) {
    let path = file.path.display().to_string();
    let path = screen.strong(&Screen::safe(&path));
    if file.is_new {
        screen.line(&format!("{path} asks for:"));
        for wish in &file.asks {
            screen.line(&format!("  {}", Screen::safe(wish)));
        }
        return;
    }
    screen.line(&format!("{path} has changed since you approved it:"));
    for line in &file.asks {
        let line = Screen::safe(line);
        let line = match line.chars().next() {
            Some('+') => screen.good(&line),
            Some('-') => screen.bad(&line),
            _ => line,
        };
        screen.line(&format!("  {line}"));
    }
    match file.unchanged {
        0 => {}
        1 => screen.line("  1 other entry is as you approved it"),
        many => screen.line(&format!("  {many} other entries are as you approved them")),
    }
}

/// Shows what needs approval, and the command to type.
pub(super) fn waits(file: &Unapproved, screen: &Screen) -> [String; 2] {
    let path = file.path.display();
    let command = screen.command(&format!("approve {path}"));
    let rest = match file.unchanged {
        0 => "",
        _ => "; approved entries keep running",
    };
    [
        format!("`{path}` needs approval: {file}{rest}"),
        format!("review and approve it in another terminal: {command}"),
    ]
}

/// Turns diagnostics into a failure, each shown in its file.
pub(super) fn refused(mistakes: &[Diagnostic], screen: &Screen) -> Failure {
    let colour = screen.for_errors().has_colour();
    let shown: Vec<String> = mistakes
        .iter()
        .map(|mistake| mistake.render(colour).trim_end().to_owned())
        .collect();
    Failure::report(Exit::Usage, shown.join("\n\n"))
}

/// Prints a diagnostic in one line, and its hint in another.
pub(super) fn brief(mistake: &Diagnostic) -> (String, Option<String>) {
    let text = gantry_model::diagnose::chain(mistake);
    (
        Screen::safe(&text),
        mistake.hint().map(|hint| Screen::safe(&hint)),
    )
}
