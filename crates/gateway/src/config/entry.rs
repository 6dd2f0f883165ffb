//! Reads one server's entry into its spec: the members that all clients share, and Gantry's own.
//!
//! All errors of an entry are reported at once, each with its field, position and fix. An unknown
//! key is an error in Gantry's own file and a warning in a client's. Entry point: [`read`].

pub(in crate::config) mod diagnostics;
pub(in crate::config) mod fields;
mod folder;
mod image;
mod inactive;
pub(in crate::config) mod remote;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_model::id::{NameError, ServerName};
use gantry_model::spec::options::{ServerOption, named, options};
use gantry_model::spec::{
    FilePlaces, Guarded, Launch, ProcessLaunch, Profile, ServerSpec, Source, SpecError, Start,
    Written, is_shell_line,
};

use super::diagnostic::{Diagnostic, Kind, meant};
use super::document::{Document, Node, Span, Value};
use super::expand::{Values, expand};
use super::guarded;

use diagnostics::Diagnostics;
use fields::Fields;

/// One server's entry in a file.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The position of the name.
    pub name_span: Span,
    /// Its content.
    pub node: Node,
}

/// The owner of the file that an entry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Gantry's own: an unknown key is an error.
    Gantry,
    /// A client's: an unknown key is at most a warning.
    Client,
    /// A REST body: as strict as Gantry's own file, with the defaults of a hosted server.
    Api,
}

/// How variables are handled.
#[derive(Debug, Clone, Copy)]
pub enum Fill<'a> {
    /// Variables are expanded to these values.
    From(Values<'a>),
    /// Variables stay as written: the file is not approved, so it must not learn their values.
    AsWritten {
        /// The folder whose configuration is read.
        folder: &'a Path,
    },
}

impl Fill<'_> {
    fn folder(&self) -> &Path {
        match self {
            Self::From(values) => values.folder,
            Self::AsWritten { folder } => folder,
        }
    }
}

/// The default working folder of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workplace<'a> {
    /// The folder whose configuration is read.
    Folder,
    /// Not the folder, which is not trusted: its own one, or this.
    Neutral(Option<&'a Path>),
}

/// The result for an entry.
#[derive(Debug, Default)]
pub struct Reading {
    /// The spec; absent if there are errors or the entry is disabled.
    pub spec: Option<ServerSpec>,
    /// The inactive spec to show instead, with the reason.
    pub off: Option<ServerSpec>,
    /// The errors.
    pub mistakes: Vec<Diagnostic>,
    /// Ignored members.
    pub warnings: Vec<String>,
    /// A field that points into the folder, if that folder is not the working folder anyway.
    pub leads_into_folder: Option<String>,
}

impl Reading {
    /// Withdraws the spec if a hosted server could write to a guarded path.
    pub(in crate::config) fn guarded(
        mut self,
        document: &Document,
        entry: &Entry,
        guarded: &Guarded,
    ) -> Self {
        let Some(spec) = &self.spec else {
            return self;
        };
        let Err(error) = guarded::check(guarded, spec) else {
            return self;
        };
        let mut diagnostics = Diagnostics::new(document, Some(&entry.name), Owner::Gantry);
        unusable(&mut diagnostics, entry, &error);
        self.off = inactive::misconfigured(entry, &diagnostics.mistakes);
        self.mistakes.extend(diagnostics.mistakes);
        self.spec = None;
        self
    }
}

/// Members that name a file whose content is part of the approval.
const FILES: [&str; 3] = ["ca_file", "envFile", "env_file"];

/// Members of an entry that are not options: switches, and those of editors and clients.
const OTHERS: [&str; 4] = ["disabled", "enabled", "inputs", "$schema"];

/// Members of clients that are ignored silently.
pub const OF_CLIENTS: [&str; 9] = [
    "autoApprove",
    "alwaysAllow",
    "alwaysLoad",
    "trust",
    "watchPaths",
    "dev",
    "gallery",
    "version",
    "name",
];

/// Reads an entry whose default working folder is the folder.
pub fn read(document: &Document, entry: &Entry, owner: Owner, fill: Fill<'_>) -> Reading {
    read_for(document, entry, owner, fill, Workplace::Folder)
}

/// Reads an entry.
pub fn read_for(
    document: &Document,
    entry: &Entry,
    owner: Owner,
    fill: Fill<'_>,
    workplace: Workplace<'_>,
) -> Reading {
    let mut diagnostics = Diagnostics::new(document, Some(&entry.name), owner);
    let spec = spec(&mut diagnostics, entry, fill, workplace);
    let Diagnostics {
        mistakes,
        warnings,
        leads_into_folder,
        ..
    } = diagnostics;
    let spec = spec.filter(|_| mistakes.is_empty());
    let off = match (&spec, mistakes.is_empty()) {
        (Some(_), _) => None,
        (None, true) => inactive::disabled(document, entry),
        (None, false) => inactive::misconfigured(entry, &mistakes),
    };
    Reading {
        spec,
        off,
        mistakes,
        warnings,
        leads_into_folder: leads_into_folder.filter(|_| workplace != Workplace::Folder),
    }
}

fn spec(
    diagnostics: &mut Diagnostics<'_>,
    entry: &Entry,
    fill: Fill<'_>,
    workplace: Workplace<'_>,
) -> Option<ServerSpec> {
    let name = name(diagnostics, entry);
    if entry.node.as_table().is_none() {
        let help = "write `{\"command\": \"…\", \"args\": []}`";
        diagnostics.wrong(&entry.node, "the entry", "a table", help);
        return None;
    }
    let owner = diagnostics.owner;
    let mut fields = Fields::new(diagnostics, &entry.node, "", fill);
    let is_off = |fields: &mut Fields<'_, '_>| {
        fields.flag("disabled") == Some(true) || fields.flag("enabled") == Some(false)
    };
    if owner != Owner::Api && is_off(&mut fields) {
        return None;
    }
    fields.known(&known_keys(owner));
    let launch = remote::kind(&mut fields, entry)?;
    let mut spec = ServerSpec::new(name, launch);
    if owner != Owner::Api {
        (spec.start, spec.source) = (Start::Eager, Source::File);
        if let Launch::Process(process) = &mut spec.launch {
            process.profile = Profile::Local;
        }
    }
    read_options(&mut fields, &mut spec);
    if owner == Owner::Api {
        if !fields.has("start") {
            spec.start = match spec.profile() {
                Some(Profile::Hosted) => Start::Eager,      // row 1.8
                Some(Profile::Local) | None => Start::Lazy, // row 0.10
            };
        }
        return Some(spec);
    }
    match &mut spec.launch {
        Launch::Process(process) => settle(&mut fields, entry, workplace, process),
        Launch::Image(image) => image::settle(&mut fields, image),
        Launch::Remote(remote) => remote::settle(&mut fields, remote),
    }
    if diagnostics.mistakes.is_empty()
        && let Err(error) = spec.check()
    {
        unusable(diagnostics, entry, &error);
    }
    Some(spec)
}

/// Returns the server's name; a placeholder if it is invalid, so that the rest is checked too.
fn name(diagnostics: &mut Diagnostics<'_>, entry: &Entry) -> ServerName {
    entry.name.parse().unwrap_or_else(|error: NameError| {
        // The message already has the name, truncated.
        let diagnostic = diagnostics
            .document
            .diagnostic(&entry.name_span, Kind::Name);
        diagnostics.push(
            diagnostic
                .say(error.to_string())
                .label("this name")
                .help("use letters, digits, `.`, `_` and `-`, at most 64, such as `web-search`"),
        );
        "unnamed".parse().expect("a valid name")
    })
}

/// Returns every path that may occur in an entry.
fn known_keys(owner: Owner) -> Vec<&'static str> {
    let others: &[&str] = match owner {
        Owner::Api => &["name"],
        Owner::Gantry | Owner::Client => &OTHERS,
    };
    let names = options().flat_map(ServerOption::names);
    names.chain(others.iter().copied()).collect()
}

/// Reads every option that applies to the server.
fn read_options(fields: &mut Fields<'_, '_>, spec: &mut ServerSpec) {
    for option in options() {
        let is_applicable = option.get(spec).is_some();
        let written = option.names().find(|name| fields.has(name));
        let Some(written) = written.filter(|_| is_applicable) else {
            continue;
        };
        let Some(node) = fields.node(written) else {
            continue;
        };
        if option.old_names.contains(&written) {
            let what = format!(
                "`{written}` is now called `{}`; the old name is understood until the next release",
                option.name
            );
            fields.diagnostics.warn(&node.span, &what);
        }
        // Some clients write `stdio` for a URL; it is ignored.
        let value = fields
            .value(option.kind, written)
            .filter(|value| option.name != "transport" || value != "stdio");
        if let Some(value) = value
            && option.set(spec, value).is_err()
        {
            let wanted = option.kind.allowed();
            fields.diagnostics.wrong(node, written, &wanted, option.doc);
        }
    }
    let has = |name: &str| {
        named(name).is_some_and(|option| {
            let mut names = option.names();
            names.any(|name| fields.has(name))
        })
    };
    if has("timeout") && !has("timeout_max") {
        spec.calls.timeout_max = spec.calls.timeout_max.max(spec.calls.timeout);
    }
}

/// Completes a command: resolves its paths and its working folder.
fn settle(
    fields: &mut Fields<'_, '_>,
    entry: &Entry,
    workplace: Workplace<'_>,
    process: &mut ProcessLaunch,
) {
    if !fields.has("command") {
        let diagnostic = fields.diagnostics.diagnostic(&entry.name_span, Kind::Value);
        fields.diagnostics.push(
            diagnostic
                .say("`command` is missing")
                .label("this server")
                .help("a server needs `command`, the program to run, `image`, or the `url` of a remote one"),
        );
    }
    image::offer(fields, entry, process);
    process.written = written(fields.diagnostics);
    let fill = fields.fill;
    let folder = fill.folder();
    // As in every client, a relative command is resolved from the working folder.
    let is_path = process.command.contains('/') && !is_shell_line(&process.command);
    if is_path && !process.command.starts_with("${") {
        folder::note(fields, "command", &process.command);
        let path = folder.join(&process.command);
        process.command = path.to_string_lossy().into_owned();
    }
    folder::note_arguments(fields, &process.command, &process.args);
    if let Some(cwd) = &process.cwd {
        folder::note(fields, "cwd", &cwd.to_string_lossy());
    }
    process.cwd = match (process.cwd.take(), workplace) {
        (Some(cwd), _) => Some(folder.join(cwd)),
        // The folder contains the files that configure the server's isolation, so it is not used.
        (None, Workplace::Folder) if process.profile == Profile::Hosted => None,
        (None, Workplace::Folder) => Some(folder.to_owned()),
        (None, Workplace::Neutral(place)) => place.map(Path::to_owned),
    };
}

/// Returns the text before expansion, for display and storage.
fn written(diagnostics: &Diagnostics<'_>) -> Written {
    let at = |field: &str| diagnostics.written.get(field).cloned();
    let argument = |field: &String| field.strip_prefix("args[")?.strip_suffix(']')?.parse().ok();
    let args = diagnostics
        .written
        .iter()
        .filter_map(|(field, text)| Some((argument(field)?, text.clone())));
    Written {
        command: at("command"),
        args: args.collect(),
        cwd: at("cwd"),
        url: remote::URLS.into_iter().find_map(at),
        variables: diagnostics.variables.clone(),
        inputs: diagnostics.inputs.clone(),
        templates: diagnostics.templates.clone(),
        places: FilePlaces(diagnostics.places.clone()),
    }
}

/// Reports violations of the model's rules, at their position.
fn unusable(diagnostics: &mut Diagnostics<'_>, entry: &Entry, error: &SpecError) {
    let field = error.field();
    let variable = field.split_once('.').and_then(|(table, variable)| {
        let table = Some(table).filter(|table| matches!(*table, "env" | "headers"))?;
        let table = entry
            .node
            .find(table)
            .or_else(|| entry.node.find("environment"));
        let table = table?.as_table()?;
        Some(table.get(variable)?.key_span.clone())
    });
    let mut names = named(&field).into_iter().flat_map(ServerOption::names);
    let written = names.find_map(|name| entry.node.find(name));
    let span = variable
        .or_else(|| Some(written.or_else(|| entry.node.find(&field))?.span.clone()))
        .unwrap_or_else(|| entry.name_span.clone());
    let kind = match error {
        SpecError::Shell { .. }
        | SpecError::Script { .. }
        | SpecError::Variable { .. }
        | SpecError::Hosting { .. }
        | SpecError::Writable { .. }
        | SpecError::Remote { .. } => Kind::Refused,
        SpecError::Command { .. }
        | SpecError::Both { .. }
        | SpecError::Nul { .. }
        | SpecError::Range { .. }
        | SpecError::RelativeFolder { .. }
        | SpecError::Restart { .. } => Kind::Value,
    };
    let text = gantry_model::diagnose::chain(error);
    let prefix = format!("server `{}`: ", entry.name);
    let said = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
    let diagnostic = diagnostics.diagnostic(&span, kind).say(said).label("this");
    let hint = error
        .hint()
        .map(|hint| in_syntax(diagnostics.document, &hint));
    diagnostics.push(match hint {
        Some(hint) => diagnostic.help(hint),
        None => diagnostic,
    });
}

/// The model's hints are TOML; JSON files need quotes around keys.
fn in_syntax(document: &Document, hint: &str) -> String {
    if super::document::Syntax::of(&document.path) == super::document::Syntax::Toml {
        return hint.to_owned();
    }
    hint.replace("`allow_shell = ", "`\"allow_shell\": ")
        .replace("`allow_env = ", "`\"allow_env\": ")
}

/// Returns the variables and inputs of an entry, by field.
pub fn texts(entry: &Entry) -> BTreeMap<String, String> {
    fn walk(path: String, node: &Node, found: &mut BTreeMap<String, String>) {
        match &node.value {
            Value::Text(text) => {
                found.insert(path, text.clone());
            }
            Value::List(list) => {
                for (index, inner) in list.iter().enumerate() {
                    walk(format!("{path}[{index}]"), inner, found);
                }
            }
            Value::Table(table) => {
                for member in &table.members {
                    let path = match path.as_str() {
                        "" => member.key.clone(),
                        path => format!("{path}.{}", member.key),
                    };
                    walk(path, &member.node, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut found = BTreeMap::new();
    walk(String::new(), &entry.node, &mut found);
    found
}

/// Returns the files that an entry names and whose content is part of the approval, as far as their
/// paths can be expanded.
pub fn files(entry: &Entry, values: Values<'_>) -> Vec<PathBuf> {
    let named = texts(entry).into_iter().filter(|(path, _)| {
        let key = path.rsplit('.').next().unwrap_or(path);
        FILES.contains(&key)
    });
    let paths = named.map(|(_, text)| match expand(&text, values) {
        Ok(filled) => values.folder.join(filled.text),
        Err(_) => values.folder.join(text),
    });
    paths.collect()
}

/// Returns whether a word is part of a known key, and therefore not private.
pub(in crate::config) fn is_known_word(word: &str) -> bool {
    const ROOTS: [&str; 10] = [
        "mcpServers",
        "servers",
        "mcp_servers",
        "context_servers",
        "projects",
        "gateway",
        "version",
        "true",
        "false",
        "null",
    ];
    let names = options().flat_map(ServerOption::names);
    let mut words = names.flat_map(|name| name.split('.'));
    let others = [&OTHERS[..], &ROOTS, &super::settings::keys()].concat();
    words.any(|known| known == word) || others.contains(&word)
}

/// Returns the most similar known key.
fn nearest(written: &str, known: &[&'static str]) -> Option<&'static str> {
    meant(written, known.iter().copied())
}

#[cfg(test)]
mod tests;
