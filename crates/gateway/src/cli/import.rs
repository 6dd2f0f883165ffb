//! `gantry import`: imports the servers of other clients into `gantry.toml`, and exports them
//! again.
//!
//! The clients' files are only read. Shows commands and the names of variables, never their values.
//! Needs no gateway. Entry point: [`run`].

mod show;
mod sources;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::config::clients::disk::{Opened, Readers};
use crate::config::clients::takeover::{self, Differing, Done, Takeover};
use crate::config::clients::{self, BaseFolders, Client, ClientError, Scope, hide, ours};
use crate::config::docker_run::{self, DockerRunError};
use crate::config::env::HOME;
use crate::data_folder::DataFolder;

use super::CliContext;
use super::diff;
use super::failure::{Exit, Failure};
use super::find::working_folder;
use super::format::pretty;
use super::up::is_alive;

use sources::Source;

/// Arguments of `gantry import`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Clients such as `cursor`, or files; by default, what is found is listed
    #[arg(value_name = "CLIENT|FILE")]
    from: Vec<String>,
    /// Import everything that is found
    #[arg(long, conflicts_with = "from")]
    all: bool,
    /// Only this scope
    #[arg(long, value_enum)]
    scope: Option<Scope>,
    /// Read named files in this client's format [default: by their names]
    #[arg(long, value_name = "CLIENT", value_parser = client)]
    form: Option<&'static Client>,
    /// The file that the servers are merged into
    #[arg(long, value_name = "FILE", default_value = "gantry.toml")]
    into: PathBuf,
    /// Replace differing servers of the same name
    #[arg(long)]
    replace: bool,
    /// Turn entries that run `docker run` into images that Gantry runs itself
    #[arg(long)]
    images: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the servers of `gantry.toml` in this client's format, and change nothing
    #[arg(long, value_name = "CLIENT", value_parser = client, conflicts_with_all = ["from", "all", "replace", "dry_run"])]
    back: Option<&'static Client>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Finds a client by name.
pub(super) fn client(name: &str) -> Result<&'static Client, String> {
    clients::find(name).ok_or_else(|| {
        let known: Vec<&str> = clients::CLIENTS.iter().map(|client| client.id).collect();
        format!("the clients are {}", known.join(", "))
    })
}

/// The result for one server of a client.
struct Taken {
    source: usize,
    /// Its name in the client.
    original: String,
    outcome: Outcome,
    /// The command with its arguments, or the URL, without secrets.
    shown: String,
    /// The names of its variables and headers.
    variables: Vec<String>,
    /// Those of them whose value is in plain text.
    in_clear: Vec<String>,
    notes: Vec<String>,
}

enum Outcome {
    /// It is in `gantry.toml` under this name.
    Done { name: String, done: Done },
    /// It was left out.
    Skipped { reason: String },
}

/// Imports, or lists what could be imported.
pub(super) fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let folder = working_folder()?;
    let target = folder.join(&options.into);
    if let Some(client) = options.back {
        return back(client, &target, context);
    }
    let bases = BaseFolders::new(&context.environment, &folder);
    if options.from.is_empty() && !options.all {
        let bases = bases.map_err(|error| failed(&error))?;
        show::listing(&bases, options, context);
        return Ok(ExitCode::SUCCESS);
    }
    let sources = match &options.from[..] {
        [] => sources::all(&bases.map_err(|error| failed(&error))?, options.scope)?,
        names => sources::named(names, options, bases.as_ref().ok(), &folder)?,
    };
    let opened = Opened::read(&target).map_err(|error| failed(&error))?;
    let mut takeover = Takeover::parse(&target, opened.text()).map_err(|error| failed(&error))?;
    let differing = if options.replace {
        Differing::Replace
    } else {
        Differing::Keep
    };
    let mut taken = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        for (original, entry) in source.servers() {
            let how = How {
                differing,
                images: options.images,
            };
            let one = take(&mut takeover, source, number, original, entry, how);
            taken.push(one.map_err(|error| failed(&error))?);
        }
        if let Some(Value::Array(inputs)) = source.document.value().get("inputs") {
            takeover.take_inputs(source.client, inputs);
        }
    }
    let text = takeover.text();
    let changed = text != opened.text();
    let mut copy = None;
    if changed && !options.dry_run {
        copy = opened
            .replace(&text, Readers::AsBefore)
            .map_err(|error| failed(&error))?;
    }
    let difference = (changed && options.dry_run).then(|| {
        let (before, after) = (hide::toml(opened.text()), hide::toml(&text));
        diff::unified(&options.into, &before, &after)
    });
    let report = show::Report {
        next: context
            .screen
            .typed(&next_step(&target, options, &folder, context)),
        target: &options.into,
        sources: &sources,
        taken: &taken,
        written: changed && !options.dry_run,
        is_open: opened.is_open_to_others(),
        copy: copy.as_deref(),
        difference: difference.as_deref(),
    };
    if options.json {
        context.screen.line(&pretty(&report.json()));
    } else {
        report.print(&context.screen);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the next step: it depends on whether a gateway runs here, and whether it reads the file.
fn next_step(target: &Path, options: &Options, folder: &Path, context: &CliContext) -> String {
    let shown = options.into.display();
    let data = context.data_path().map(DataFolder::at).ok();
    let is_running = data.is_some_and(|data| data.running().is_some_and(|one| is_alive(one.pid)));
    let is_found = target == folder.join("gantry.toml");
    let home = context.environment.filled(HOME).map(Path::new);
    let is_home = home.and_then(|home| home.canonicalize().ok()).as_deref() == Some(folder);
    match (is_running, is_found) {
        (false, true) => "Start the servers with `gantry up`.".to_owned(),
        (false, false) => format!("Start the servers with `gantry up --config {shown}`."),
        (true, true) if is_home => {
            "The running gateway starts the servers automatically; `gantry status` shows them."
                .to_owned()
        }
        (true, true) => format!(
            "A gateway runs here: let it start the servers with `gantry approve {shown}`; `gantry \
             status` shows them."
        ),
        (true, false) => format!(
            "A gateway runs here and does not read `{shown}`: stop it, and start it with `gantry up \
             --config {shown}`."
        ),
    }
}

fn failed(error: &ClientError) -> Failure {
    Failure::of(Exit::Failed, error)
}

/// Prints `gantry.toml` in a client's format.
fn back(client: &Client, target: &Path, context: &CliContext) -> Result<ExitCode, Failure> {
    let opened = Opened::read(target).map_err(|error| failed(&error))?;
    if !opened.existed() {
        let message = format!("there is no `{}`", target.display());
        return Err(Failure::new(Exit::Failed, message).hint("name another with `--into FILE`"));
    }
    let takeover = Takeover::parse(target, opened.text()).map_err(|error| failed(&error))?;
    let file = Value::Object(takeover.back(client));
    context.screen.line(&pretty(&file));
    Ok(ExitCode::SUCCESS)
}

/// How servers are imported.
#[derive(Clone, Copy)]
struct How {
    differing: Differing,
    /// Whether commands of a container engine become images that Gantry runs.
    images: bool,
}

/// Turns a `docker run` into an image; other commands stay as they are.
fn managed(
    members: &mut serde_json::Map<String, Value>,
    notes: &mut Vec<String>,
) -> Result<(), DockerRunError> {
    let command = members.get("command").and_then(Value::as_str);
    let args = members.get("args").and_then(Value::as_array);
    let args: Option<Vec<String>> = args
        .map(|args| {
            args.iter()
                .map(|word| Some(word.as_str()?.to_owned()))
                .collect()
        })
        .unwrap_or_default();
    let (Some(command), Some(args)) = (command, args) else {
        return Ok(());
    };
    let Some(run) = docker_run::read(command, &args) else {
        return Ok(());
    };
    let run = run?;
    let env = members.get("env").and_then(Value::as_object).cloned();
    let entry = run.entry(&env.unwrap_or_default());
    for name in ["command", "args", "env", "cwd", "type"] {
        members.shift_remove(name);
    }
    members.extend(entry);
    notes.push(format!(
        "Gantry runs the image itself, without `{}`",
        run.engine
    ));
    notes.extend(run.notes);
    Ok(())
}

/// Merges one server.
fn take(
    takeover: &mut Takeover,
    source: &Source,
    number: usize,
    original: &str,
    entry: &Value,
    how: How,
) -> Result<Taken, ClientError> {
    let mut taken = Taken {
        source: number,
        original: original.to_owned(),
        outcome: Outcome::Skipped {
            reason: "it is Gantry itself".to_owned(),
        },
        shown: String::new(),
        variables: Vec::new(),
        in_clear: Vec::new(),
        notes: Vec::new(),
    };
    if ours::way_of(entry).is_some() {
        return Ok(taken);
    }
    let skipped = |reason: String| Outcome::Skipped { reason };
    let mut normal = match source.client.dialect.normalise(entry) {
        Ok(normal) => normal,
        Err(fault) => {
            taken.outcome = skipped(fault.to_string());
            return Ok(taken);
        }
    };
    if how.images
        && let Err(refused) = managed(&mut normal.members, &mut taken.notes)
    {
        taken.notes.push(format!("{refused}; it stays a command"));
    }
    taken.shown = show::command(&normal.members);
    taken.variables = show::variables(&normal.members, |_| true);
    taken.in_clear = show::variables(&normal.members, |value| !value.contains("${"));
    let Some(name) = takeover::name(original) else {
        taken.outcome = skipped("its name has no valid character".to_owned());
        return Ok(taken);
    };
    let done = takeover.take(source.client, &name, original, &normal, how.differing)?;
    if original != name.as_str() {
        taken.notes.push(format!("it is called `{name}` here"));
    }
    for member in normal.without_effect() {
        taken
            .notes
            .push(format!("`{member}` is kept and has no effect here"));
    }
    if done == Done::Kept {
        let note = "another server of this name was kept; `--replace` replaces it";
        taken.notes.push(note.to_owned());
    }
    taken.outcome = Outcome::Done {
        name: name.to_string(),
        done,
    };
    Ok(taken)
}
