//! One server's entry becomes its spec: the members that clients share, and Gantry's own.
//!
//! Every mistake names its field and place, and what to write instead; all of an entry's mistakes are
//! told at once. In Gantry's own file an unknown key is a mistake, in a client's a warning. Entry
//! point: [`read`].

pub(in crate::config) mod fields;
mod folder;
mod off;
pub(in crate::config) mod remote;
pub(in crate::config) mod told;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_model::id::ServerName;
use gantry_model::spec::{
    Allowances, CallPolicy, Launch, LifePolicy, ProcessLaunch, Profile, ResourceLimits, ServerSpec,
    Source, SpecError, Start, ToolFilter, ToolSettings, WhenUnresponsive, Written,
};

use super::document::{Document, Node, Span, Table, Value};
use super::expand::{Values, expand};
use super::mistake::{Kind, Mistake, meant};

use fields::Fields;
use told::Told;

/// One server as it stands in a file.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Where the name stands.
    pub name_span: Span,
    /// What is said of it.
    pub node: Node,
}

/// Whose file an entry stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Gantry's own: an unknown key is a mistake.
    Gantry,
    /// A client's: an unknown key is that client's, and a warning at most.
    Client,
}

/// How the variables of an entry are treated.
#[derive(Debug, Clone, Copy)]
pub enum Fill<'a> {
    /// They are filled.
    From(Values<'a>),
    /// They stay as written: nobody has approved the file, so that it learns nothing.
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

/// Where a server works whose entry does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workplace<'a> {
    /// The folder whose configuration is read.
    Folder,
    /// Not there, since nobody vouches for that folder: in one of its own, or in this one.
    Neutral(Option<&'a Path>),
}

/// What became of an entry.
#[derive(Debug, Default)]
pub struct Reading {
    /// The spec; nothing if there are mistakes or the entry is switched off.
    pub spec: Option<ServerSpec>,
    /// What is shown of it in that case, with the reason.
    pub off: Option<ServerSpec>,
    /// What is wrong.
    pub mistakes: Vec<Mistake>,
    /// What was read and is of no effect.
    pub warnings: Vec<String>,
    /// A field that leads into the folder, whichever folder that is; not looked for where the folder is
    /// the workplace anyway.
    pub leads_into_folder: Option<String>,
}

/// The members that name a file whose content matters as much as the entry itself.
const FILES: [&str; 3] = ["ca_file", "envFile", "env_file"];

/// The keys of an entry.
pub const KEYS: [&str; 30] = [
    "type",
    "transport",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "httpUrl",
    "serverUrl",
    "headers",
    "proxy",
    "allow_private",
    "ca_file",
    "auth",
    "reconnect",
    "timeout",
    "disabled",
    "enabled",
    "description",
    "concurrency",
    "start",
    "profile",
    "limits",
    "calls",
    "life",
    "tools",
    "allow_shell",
    "allow_env",
    "inputs",
    "$schema",
];
/// The keys of `limits`.
pub const LIMITS: [&str; 4] = ["cpu", "memory", "memory_bytes", "pids"];
/// The keys of `calls`.
pub const CALLS: [&str; 7] = [
    "concurrency",
    "queue",
    "timeout",
    "timeout_max",
    "late_grace",
    "ask_timeout",
    "pass_context",
];
/// The keys of `life`.
pub const LIFE: [&str; 7] = [
    "handshake",
    "probe",
    "health_every",
    "health_timeout",
    "when_unresponsive",
    "stop_grace",
    "restart",
];
/// The keys of `life.restart`.
pub const RESTART: [&str; 4] = ["at_once", "window", "ladder", "reset_after"];
/// The keys of `tools`.
pub const TOOLS: [&str; 3] = ["include", "exclude", "settings"];
/// The keys of `tools.settings.NAME`.
pub const TOOL: [&str; 2] = ["timeout", "idempotent"];

/// Members that clients put into an entry and that need no word from us.
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

/// The values of `type`.
const TYPES: [&str; 5] = ["stdio", "http", "sse", "streamable-http", "streamableHttp"];

/// Reads an entry whose server works in the folder if it does not say otherwise.
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
    let mut told = Told::new(document, Some(&entry.name), owner);
    let spec = spec(&mut told, entry, fill, workplace);
    let Told {
        mistakes,
        warnings,
        leads_into_folder,
        ..
    } = told;
    let spec = spec.filter(|_| mistakes.is_empty());
    let off = match (&spec, mistakes.is_empty()) {
        (Some(_), _) => None,
        (None, true) => off::disabled(document, entry),
        (None, false) => off::misconfigured(entry, &mistakes),
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
    told: &mut Told<'_>,
    entry: &Entry,
    fill: Fill<'_>,
    workplace: Workplace<'_>,
) -> Option<ServerSpec> {
    let name: Option<ServerName> =
        match entry.name.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                // The message has the name already, and cuts one that is too long.
                let mistake = told.document.mistake(&entry.name_span, Kind::Name);
                told.push(mistake.say(error.to_string()).label("this name").help(
                    "use letters, digits, `.`, `_` and `-`, at most 64, such as `web-search`",
                ));
                None
            }
        };
    let Some(table) = entry.node.as_table() else {
        told.wrong(
            &entry.node,
            "the entry",
            "a table",
            "write `{\"command\": \"…\", \"args\": []}`",
        );
        return None;
    };
    let mut fields = Fields::new(told, table, "", fill);
    if fields.flag("disabled") == Some(true) || fields.flag("enabled") == Some(false) {
        return None;
    }
    fields.known(&KEYS);
    let launch = launch(&mut fields, entry, workplace);
    let description = fields.plain("description");
    let start = fields
        .choice("start", &[("eager", Start::Eager), ("lazy", Start::Lazy)])
        .unwrap_or(Start::Eager);
    let allow = Allowances {
        shell: fields.flag("allow_shell").unwrap_or_default(),
        env: fields.names("allow_env").unwrap_or_default(),
    };
    let concurrency = fields.whole("concurrency", 1..=1024);
    let timeout = fields.period("timeout");
    let calls = calls(&mut fields);
    let defaults = launch.as_ref().map(LifePolicy::of).unwrap_or_default();
    let life = life(&mut fields, defaults);
    let tools = tools(&mut fields, table);
    let mut spec = ServerSpec {
        description,
        start,
        calls,
        life,
        source: Source::File,
        tools,
        allow,
        ..ServerSpec::new(name?, launch?)
    };
    if let Some(lanes) = concurrency {
        spec.calls.concurrency = u32::try_from(lanes).ok();
    }
    if let Some(timeout) = timeout {
        spec.calls.timeout = timeout;
        spec.calls.timeout_max = spec.calls.timeout_max.max(timeout);
    }
    if told.mistakes.is_empty()
        && let Err(error) = spec.check()
    {
        unusable(told, entry, &error);
    }
    Some(spec)
}

/// Reads how the server comes to life: a command, or a URL.
fn launch(fields: &mut Fields<'_, '_>, entry: &Entry, workplace: Workplace<'_>) -> Option<Launch> {
    let kind = fields.kind(&TYPES);
    if remote::is_remote(fields, kind) {
        return remote::read(fields, entry, kind).map(Launch::Remote);
    }
    process(fields, entry, workplace).map(Launch::Process)
}

fn process(
    fields: &mut Fields<'_, '_>,
    entry: &Entry,
    workplace: Workplace<'_>,
) -> Option<ProcessLaunch> {
    let command = fields.text("command");
    if command.is_none() && !fields.has("command") {
        let mistake = fields.told.mistake(&entry.name_span, Kind::Value);
        fields.told.push(
            mistake
                .say("`command` is missing")
                .label("this server")
                .help("a server over stdio needs `command`, the program to run; a remote one needs `url`"),
        );
    }
    let args = fields.texts("args");
    let env = fields.pairs("env");
    let cwd = fields.text("cwd");
    let profile = fields
        .choice(
            "profile",
            &[("local", Profile::Local), ("hosted", Profile::Hosted)],
        )
        .unwrap_or(Profile::Local);
    let limits = limits(fields);
    let written = written(fields.told);
    let fill = fields.fill;
    let folder = fill.folder();
    let mut command = command?;
    // As every client does, a command that is a path counts from the working folder.
    if command.contains('/') && !command.starts_with("${") {
        folder::note(fields, "command", &command);
        command = folder.join(&command).to_string_lossy().into_owned();
    }
    let args = args?;
    folder::note_arguments(fields, &command, &args);
    if let Some(cwd) = &cwd {
        folder::note(fields, "cwd", cwd);
    }
    let unsaid = match workplace {
        Workplace::Folder => Some(folder.to_owned()),
        Workplace::Neutral(place) => place.map(Path::to_owned),
    };
    Some(ProcessLaunch {
        command,
        args,
        env: env?,
        cwd: cwd.map(|cwd| folder.join(cwd)).or(unsaid),
        profile,
        limits,
        written,
    })
}

/// Returns what the file says where variables were filled, for whoever shows or stores it.
fn written(told: &Told<'_>) -> Written {
    let at = |field: &str| told.written.get(field).cloned();
    let argument = |field: &String| field.strip_prefix("args[")?.strip_suffix(']')?.parse().ok();
    let args = told
        .written
        .iter()
        .filter_map(|(field, text)| Some((argument(field)?, text.clone())));
    Written {
        command: at("command"),
        args: args.collect(),
        cwd: at("cwd"),
        url: ["url", "httpUrl", "serverUrl"].into_iter().find_map(at),
        variables: told.variables.clone(),
        inputs: told.inputs.clone(),
    }
}

fn limits(fields: &mut Fields<'_, '_>) -> ResourceLimits {
    let Some(mut limits) = fields.below("limits", &LIMITS) else {
        return ResourceLimits::default();
    };
    let bytes = limits.whole("memory_bytes", 4 << 20..=1 << 46);
    ResourceLimits {
        cpu: limits.real("cpu", "0.01 to 1024 cores"),
        memory_bytes: limits.bytes("memory", "4 MiB to 64 TiB").or(bytes),
        pids: limits.whole("pids", 4..=1_000_000),
    }
}

fn calls(fields: &mut Fields<'_, '_>) -> CallPolicy {
    let mut policy = CallPolicy::default();
    let Some(mut calls) = fields.below("calls", &CALLS) else {
        return policy;
    };
    let lanes = calls.whole("concurrency", 1..=1024);
    policy.concurrency = lanes.and_then(|lanes| u32::try_from(lanes).ok());
    if let Some(queue) = calls.whole("queue", 1..=65_536) {
        policy.queue = u32::try_from(queue).unwrap_or(policy.queue);
    }
    policy.timeout = calls.period("timeout").unwrap_or(policy.timeout);
    policy.timeout_max = calls.period("timeout_max").unwrap_or(policy.timeout_max);
    policy.late_grace = calls.period("late_grace").unwrap_or(policy.late_grace);
    policy.ask_timeout = calls.period("ask_timeout").unwrap_or(policy.ask_timeout);
    policy.pass_context = calls.flag("pass_context").unwrap_or(policy.pass_context);
    policy
}

fn life(fields: &mut Fields<'_, '_>, defaults: LifePolicy) -> LifePolicy {
    let mut policy = defaults;
    let Some(mut life) = fields.below("life", &LIFE) else {
        return policy;
    };
    policy.handshake = life.period("handshake").unwrap_or(policy.handshake);
    policy.probe = life.period("probe").unwrap_or(policy.probe);
    policy.health_every = life.period("health_every").unwrap_or(policy.health_every);
    policy.health_timeout = life
        .period("health_timeout")
        .unwrap_or(policy.health_timeout);
    policy.stop_grace = life.period("stop_grace").unwrap_or(policy.stop_grace);
    policy.when_unresponsive = life.choice(
        "when_unresponsive",
        &[
            ("keep", WhenUnresponsive::Keep),
            ("reconnect", WhenUnresponsive::Reconnect),
        ],
    );
    if let Some(mut restart) = life.below("restart", &RESTART) {
        let known = &mut policy.restart;
        if let Some(at_once) = restart.whole("at_once", 0..=1_000_000) {
            known.at_once = u32::try_from(at_once).unwrap_or(known.at_once);
        }
        known.window = restart.period("window").unwrap_or(known.window);
        known.reset_after = restart.period("reset_after").unwrap_or(known.reset_after);
        if let Some(ladder) = restart.periods("ladder") {
            known.ladder = ladder;
        }
    }
    policy
}

/// Reads the filter of tools; a list under that name is a client's own and says who may call.
fn tools(fields: &mut Fields<'_, '_>, table: &Table) -> ToolFilter {
    let member = table.get("tools");
    if fields.told.owner == Owner::Client
        && member.is_some_and(|member| matches!(member.node.value, Value::List(_)))
    {
        return ToolFilter::default();
    }
    let Some(mut tools) = fields.below("tools", &TOOLS) else {
        return ToolFilter::default();
    };
    let (include, exclude) = (tools.names("include"), tools.names("exclude"));
    ToolFilter {
        include,
        exclude: exclude.unwrap_or_default(),
        settings: settings(&mut tools),
    }
}

/// Reads what is said of single tools, by their own names. row 3.4
fn settings(tools: &mut Fields<'_, '_>) -> BTreeMap<String, ToolSettings> {
    let Some(node) = tools.node("settings") else {
        return BTreeMap::new();
    };
    let Some(table) = node.as_table() else {
        let help = "write a table for each tool, by its own name";
        tools.told.wrong(node, "tools.settings", "a table", help);
        return BTreeMap::new();
    };
    let mut named = Fields::new(tools.told, table, "tools.settings", tools.fill);
    let mut settings = BTreeMap::new();
    for member in &table.members {
        if let Some(mut tool) = named.below(&member.key, &TOOL) {
            let said = ToolSettings {
                timeout: tool.period("timeout"),
                idempotent: tool.flag("idempotent").unwrap_or_default(),
            };
            settings.insert(member.key.clone(), said);
        }
    }
    settings
}

/// Tells what the model's own rules refuse, at the place that it is about.
fn unusable(told: &mut Told<'_>, entry: &Entry, error: &SpecError) {
    let field = error.field();
    let variable = field.split_once('.').and_then(|(table, variable)| {
        let table = Some(table).filter(|table| matches!(*table, "env" | "headers"))?;
        let table = entry.node.find(table)?.as_table()?;
        Some(table.get(variable)?.key_span.clone())
    });
    let short = field.strip_prefix("calls.").unwrap_or(&field);
    let span = variable
        .or_else(|| Some(entry.node.find(&field)?.span.clone()))
        .or_else(|| Some(entry.node.find(short)?.span.clone()))
        .unwrap_or_else(|| entry.name_span.clone());
    let kind = match error {
        SpecError::Shell { .. }
        | SpecError::Script { .. }
        | SpecError::Variable { .. }
        | SpecError::Remote { .. } => Kind::Refused,
        SpecError::Command { .. }
        | SpecError::Both { .. }
        | SpecError::Nul { .. }
        | SpecError::Range { .. }
        | SpecError::Restart { .. } => Kind::Value,
    };
    let text = gantry_model::diagnose::chain(error);
    let prefix = format!("server `{}`: ", entry.name);
    let said = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
    let mistake = told.mistake(&span, kind).say(said).label("this");
    let hint = error.hint().map(|hint| in_syntax(told.document, &hint));
    told.push(match hint {
        Some(hint) => mistake.help(hint),
        None => mistake,
    });
}

/// Hints of the model are written as TOML; JSON files need quotes around keys.
fn in_syntax(document: &Document, hint: &str) -> String {
    if super::document::Syntax::of(&document.path) == super::document::Syntax::Toml {
        return hint.to_owned();
    }
    hint.replace("`allow_shell = ", "`\"allow_shell\": ")
        .replace("`allow_env = ", "`\"allow_env\": ")
}

/// Returns the variables and inputs that an entry uses, by field, for whoever explains it.
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

/// Returns the files that an entry names and whose content counts as its own, as far as the variables in
/// their paths can be filled.
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

/// Returns the nearest known key, for «did you mean».
fn nearest(written: &str, known: &[&'static str]) -> Option<&'static str> {
    meant(written, known.iter().copied())
}

#[cfg(test)]
mod tests;
