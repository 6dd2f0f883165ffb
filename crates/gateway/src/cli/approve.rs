//! `gantry approve [FILE]...`: shows everything that the folder's files would run, and approves it;
//! for a file approved before, only what changed. `.` approves the folder itself as a working
//! folder for the user's own servers.
//!
//! A running gateway applies the approval at once. Without a terminal `--yes` is required. Entry
//! point: [`run`].

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::config::diagnostic::Diagnostic;
use crate::config::plan::{Difference, Plan, Unapproved};
use crate::data_folder::DataFolder;

use super::failure::{Exit, Failure};
use super::files::{Files, Setup, TrustFolder, asks_of_folder, refused, show, show_folder};
use super::format::pretty;
use super::screen::Screen;
use super::{CliContext, prompt};

/// Arguments of `gantry approve`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The files to approve, or `.` for the folder as a working folder [default: all that need
    /// approval]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print what needs approval as JSON, and approve only with `--yes`
    #[arg(long)]
    json: bool,
}

/// Shows, asks and approves.
pub(super) fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let data = DataFolder::open(&context.data_path()?)
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    let files = Files {
        config: Vec::new(),
        no_discover: false,
    };
    let setup = Setup::new(&files, data, context)?;
    let screen = &context.screen;
    let mut plan = setup.plan(screen)?;
    // Errors in unapproved files are shown; an unreadable file has nothing to approve.
    let spoilt: Vec<Diagnostic> = plan
        .ignored
        .iter()
        .map(|ignored| ignored.mistake.clone())
        .filter(|mistake| {
            !plan
                .unapproved
                .iter()
                .any(|file| file.path == mistake.path())
        })
        .filter(|mistake| is_named(options, &setup, mistake.path()))
        .collect();
    let unapproved = std::mem::take(&mut plan.unapproved);
    let waiting = chosen(options, &setup, unapproved)?;
    if !spoilt.is_empty() {
        return Err(refused(&spoilt, screen));
    }
    let folder = asks_for_folder(options, &setup, &plan);
    if options.json {
        let mut items: Vec<_> = waiting.iter().map(as_json).collect();
        if folder == TrustFolder::Yes {
            items.push(json!({"file": ".", "asks": asks_of_folder(&plan)}));
        }
        screen.line(&pretty(&json!({"files": items, "approved": options.yes})));
        if options.yes {
            setup.approve(&waiting, folder)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if waiting.is_empty() && folder == TrustFolder::No {
        screen.line("nothing needs approval");
        return Ok(ExitCode::SUCCESS);
    }
    for file in &waiting {
        show(file, screen);
    }
    // Approving a file of the folder trusts the folder: that file's servers run there.
    show_folder(&plan, screen);
    if !options.yes {
        if !prompt::is_possible() {
            return Err(Failure::new(Exit::Failed, "not a terminal: pass `--yes`")
                .hint("to approve it, run `gantry approve --yes`"));
        }
        if !prompt::yes("Let it run?") {
            return Err(Failure::new(Exit::Failed, "nothing was approved"));
        }
    }
    setup.approve(&waiting, folder)?;
    for file in &waiting {
        let path = Screen::safe(&file.path.display().to_string());
        screen.line(&format!("approved `{path}`{}", approved(file)));
    }
    if folder == TrustFolder::Yes && waiting.is_empty() {
        screen.line("this folder is trusted");
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the newly approved parts of a file that was approved before.
fn approved(file: &Unapproved) -> String {
    match file.is_new {
        true => String::new(),
        false => format!(": {}", Screen::safe(&file.to_string())),
    }
}

/// Returns whether the folder itself is to be approved: named, or some server needs it.
fn asks_for_folder(options: &Options, setup: &Setup, plan: &Plan) -> TrustFolder {
    let is_named = options.files.iter().any(|file| is_folder(setup, file));
    if is_named || (options.files.is_empty() && !plan.kept_out.is_empty()) {
        TrustFolder::Yes
    } else {
        TrustFolder::No
    }
}

fn is_folder(setup: &Setup, named: &Path) -> bool {
    real(&setup.folder.join(named)) == setup.folder
}

/// Returns a file that needs approval as JSON. Its texts are already escaped.
fn as_json(file: &Unapproved) -> serde_json::Value {
    let named = file.files.iter();
    let named = named.map(|(path, digest)| {
        let path = path.to_string_lossy();
        json!({"file": path.escape_debug().to_string(), "digest": digest})
    });
    let servers = file.servers.iter();
    let servers = servers.map(|(name, difference)| {
        json!({"name": name.escape_debug().to_string(), "difference": difference.word()})
    });
    let removed = file.removed.iter();
    let removed = removed.map(|name| name.escape_debug().to_string());
    json!({
        "file": file.path, "digest": file.approval.digest, "asks": file.asks,
        "variables": file.variables, "names": named.collect::<Vec<_>>(), "new": file.is_new,
        "servers": servers.collect::<Vec<_>>(), "gateway": file.gateway.map(Difference::word),
        "removed": removed.collect::<Vec<_>>(), "unchanged": file.unchanged,
    })
}

/// Returns whether a file is selected: named, or none was named.
fn is_named(options: &Options, setup: &Setup, file: &Path) -> bool {
    let at = |file: &Path| real(&setup.folder.join(file));
    options.files.is_empty() || options.files.iter().any(|named| at(named) == at(file))
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the selected files that need approval.
fn chosen(
    options: &Options,
    setup: &Setup,
    waiting: Vec<Unapproved>,
) -> Result<Vec<Unapproved>, Failure> {
    if options.files.is_empty() {
        return Ok(waiting);
    }
    let named: Vec<PathBuf> = options
        .files
        .iter()
        .map(|file| real(&setup.folder.join(file)))
        .collect();
    let known = setup.sources.iter();
    let known = known.map(|source| real(&setup.folder.join(&source.path)));
    let known: Vec<PathBuf> = known.chain([setup.folder.clone()]).collect();
    if let Some(index) = named.iter().position(|file| !known.contains(file)) {
        let file = options.files[index].display();
        return Err(Failure::new(
            Exit::Usage,
            format!("`{file}` is not one of the discovered files"),
        )
        .hint("name it with `gantry up --config FILE`, which needs no approval"));
    }
    let chosen = waiting
        .into_iter()
        .filter(|file| named.contains(&real(&file.approval.path)));
    Ok(chosen.collect())
}
