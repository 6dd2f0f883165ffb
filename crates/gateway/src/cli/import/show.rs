//! The output of `gantry import`: the files found, and the result for each server.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::clients::{BaseFolders, CLIENTS, hide, ours};

use super::super::CliContext;
use super::super::diff;
use super::super::format::{pretty, table};
use super::super::screen::Screen;
use super::sources::Source;
use super::{Options, Outcome, Taken};

/// Maximum length of a command in the table; `--json` has all of it.
const COMMAND: usize = 60;

/// Returns the command with its arguments, or the URL, without secrets.
pub(super) fn command(members: &Map<String, Value>) -> String {
    let text = |member: &str| members.get(member).and_then(Value::as_str);
    if let Some(url) = text("url") {
        return hide::url(url);
    }
    let args = members.get("args").and_then(Value::as_array);
    let args = args.into_iter().flatten().filter_map(Value::as_str);
    let args: Vec<String> = args.map(str::to_owned).collect();
    let program = text("command").or_else(|| text("image"));
    let mut words = vec![program.unwrap_or_default().to_owned()];
    words.extend(hide::arguments(&args));
    words.join(" ")
}

/// Returns the names of variables and headers whose value is selected.
pub(super) fn variables(
    members: &Map<String, Value>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<String> {
    let named = ["env", "headers"]
        .iter()
        .filter_map(|member| members.get(*member));
    let pairs = named.filter_map(Value::as_object).flatten();
    pairs
        .filter(|(_, value)| value.as_str().is_some_and(&wanted))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Lists the files found, without importing.
pub(super) fn listing(at: &BaseFolders, options: &Options, context: &CliContext) {
    let mut found = Vec::new();
    for client in &CLIENTS {
        for place in client.places(at) {
            if options.scope.is_some_and(|scope| scope != place.scope) {
                continue;
            }
            let (scope, path) = (place.scope, place.path.clone());
            match Source::read(client, place) {
                Ok(None) => {}
                Ok(Some(source)) => {
                    let servers = source.servers();
                    let servers = servers
                        .iter()
                        .filter(|(_, entry)| ours::way_of(entry).is_none());
                    let names: Vec<String> = servers.map(|(name, _)| (*name).to_owned()).collect();
                    if !names.is_empty() {
                        found.push((client, scope, path, Ok(names)));
                    }
                }
                Err(error) => found.push((client, scope, path, Err(error.to_string()))),
            }
        }
    }
    let screen = &context.screen;
    if options.json {
        let items = found.iter().map(|(client, scope, path, servers)| match servers {
            Ok(servers) => json!({"client": client.id, "scope": scope.to_string(), "path": path, "servers": servers}),
            Err(error) => json!({"client": client.id, "scope": scope.to_string(), "path": path, "error": error}),
        });
        screen.line(&pretty(&json!({"items": items.collect::<Vec<_>>()})));
        return;
    }
    if found.is_empty() {
        screen.advise("no client with servers is found; name a file: `gantry import FILE`");
        return;
    }
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|(client, scope, path, servers)| {
            let servers = match servers {
                Ok(names) => names.join(", "),
                Err(error) => format!("cannot be read: {error}"),
            };
            let path = path.display().to_string();
            vec![client.id.to_owned(), scope.to_string(), path, servers]
        })
        .collect();
    screen.table(&["client", "scope", "file", "servers"], &rows);
    screen.line("");
    screen.advise("Take them over with `gantry import CLIENT` or `gantry import --all`; `--dry-run` shows what would change.");
}

/// What was done.
pub(super) struct Report<'a> {
    pub(super) target: &'a Path,
    pub(super) sources: &'a [Source],
    pub(super) taken: &'a [Taken],
    /// Whether the target was changed.
    pub(super) written: bool,
    /// Whether others may read the target.
    pub(super) is_open: bool,
    pub(super) copy: Option<&'a Path>,
    /// What would change, on a dry run.
    pub(super) difference: Option<&'a str>,
    /// The next step: how to run the servers.
    pub(super) next: String,
}

impl Report<'_> {
    /// Returns it as JSON.
    pub(super) fn json(&self) -> Value {
        let sources = self.sources.iter().map(|source| {
            let scope = source.scope.map(|scope| scope.to_string());
            json!({"client": source.client.id, "scope": scope, "path": source.path})
        });
        let servers = self.taken.iter().map(|taken| {
            let (name, outcome, reason) = match &taken.outcome {
                Outcome::Done { name, done } => (Some(name), done.word(), None),
                Outcome::Skipped { reason } => (None, "skipped", Some(reason)),
            };
            json!({
                "name": name, "original": taken.original, "outcome": outcome, "reason": reason,
                "source": taken.source, "command": taken.shown, "variables": taken.variables,
                "notes": taken.notes,
            })
        });
        json!({
            "file": self.target, "written": self.written, "backup": self.copy,
            "sources": sources.collect::<Vec<_>>(), "servers": servers.collect::<Vec<_>>(),
            "diff": self.difference,
        })
    }

    /// Prints it.
    pub(super) fn print(&self, screen: &Screen) {
        for (number, source) in self.sources.iter().enumerate() {
            let path = source.path.display().to_string();
            screen.line(&format!(
                "{} {}",
                screen.strong(source.client.title),
                Screen::safe(&path)
            ));
            screen.line("");
            let of_source = || self.taken.iter().filter(|taken| taken.source == number);
            let rows: Vec<Vec<String>> = of_source().map(row).collect();
            screen.line(&indented(&table(
                &["server", "", "command", "variables"],
                &rows,
                usize::MAX,
            )));
            for taken in of_source() {
                for note in &taken.notes {
                    let note = Screen::safe(&format!("`{}`: {note}", taken.original));
                    screen.line(&format!("  {} {note}", screen.doubtful("!")));
                }
            }
            screen.line("");
        }
        self.last_words(screen);
    }

    fn last_words(&self, screen: &Screen) {
        let target = self.target.display();
        if let Some(difference) = self.difference {
            screen.line(&diff::painted(difference, screen));
            screen.line("");
            screen.line(&format!(
                "`{target}` would be changed as shown; values of variables are hidden"
            ));
        } else if self.written {
            let beside = self.copy.map_or_else(String::new, |copy| {
                format!("; backup in `{}`", copy.display())
            });
            screen.line(&format!("`{target}` is written{beside}"));
            self.warn_of_values(screen);
            screen.line(&self.next);
        } else {
            screen.line(&format!(
                "`{target}` has all of it already; nothing was changed"
            ));
        }
    }

    /// A file in a checkout is easily shared, and values are imported in plain text.
    fn warn_of_values(&self, screen: &Screen) {
        let mut names: Vec<&str> = Vec::new();
        for taken in self.taken {
            if matches!(taken.outcome, Outcome::Done { .. }) {
                names.extend(taken.in_clear.iter().map(String::as_str));
            }
        }
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return;
        }
        let target = self.target.display();
        screen.line(&format!(
            "{} `{target}` contains the values of {} as the clients had them: keep it to yourself, or write `${{NAME}}` for what is secret",
            screen.doubtful("!"),
            Screen::safe(&names.join(", "))
        ));
        if self.is_open {
            screen.line(&format!(
                "{} others on this machine may read it: `chmod 600 {target}`",
                screen.doubtful("!")
            ));
        }
    }
}

fn row(taken: &Taken) -> Vec<String> {
    let (name, outcome) = match &taken.outcome {
        Outcome::Done { name, done } => (name.clone(), done.word().to_owned()),
        Outcome::Skipped { reason } => (taken.original.clone(), format!("left out: {reason}")),
    };
    let mut command: String = taken.shown.chars().take(COMMAND).collect();
    if command.len() < taken.shown.len() {
        command.push('…');
    }
    vec![name, outcome, command, taken.variables.join(", ")]
}

fn indented(text: &str) -> String {
    let lines = text.lines().map(|line| format!("  {line}"));
    lines.collect::<Vec<_>>().join("\n")
}
