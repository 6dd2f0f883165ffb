//! Packages of npm and PyPI: run by `npx` and `uvx`, at one exact version, as an argument vector.
//!
//! Names and versions must match a pattern, and only harmless flags of the runner are accepted:
//! others could run something else than the package that is shown. Entry point: [`plan`].

use std::path::Path;

use serde_json::{Map, Value, json};

use super::document::{Argument, Package, Place, TransportKind};
use super::inputs::{Answers, Slot};
use super::offer::Kind;
use super::reader::Wrong;

/// Flags of `npx` that do not change what is run.
const NPX: [&str; 8] = [
    "-y",
    "--yes",
    "-q",
    "--quiet",
    "--silent",
    "--prefer-offline",
    "--prefer-online",
    "--offline",
];
/// Flags of `uvx` that do not change what is run.
const UVX: [&str; 6] = [
    "-q",
    "--quiet",
    "--offline",
    "--isolated",
    "--no-progress",
    "--no-config",
];
/// Text in an argument that a shell would interpret.
const SHELL: [&str; 8] = ["`", "$", ";", "|", "<", ">", "&&", "\\"];
/// Variables by which a manifest could select another program, library or package than the one
/// shown.
const STEERING: [&str; 12] = [
    "PATH",
    "HOME",
    "SHELL",
    "IFS",
    "ENV",
    "BASH_ENV",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PERL5OPT",
];
const STEERING_PREFIXES: [&str; 6] = ["LD_", "DYLD_", "NPM_CONFIG_", "UV_", "PIP_", "GIT_"];

/// Returns the program that runs packages of a kind.
pub(super) fn runner(kind: Kind) -> &'static str {
    match kind {
        Kind::Npm => "npx",
        Kind::PyPi => "uvx",
        Kind::Oci | Kind::Remote => "",
    }
}

/// Checks the parts that do not depend on the user's input.
pub(super) fn check(kind: Kind, package: &Package, wrong: &mut Vec<Wrong>) {
    let at = |member: &str| format!("{}.{member}", package.at);
    let is_name = match kind {
        Kind::Npm => is_npm_name(&package.identifier),
        Kind::PyPi => is_python_name(&package.identifier),
        Kind::Oci | Kind::Remote => true,
    };
    if !is_name {
        let why = format!("is not the name of a package of {}", kind.as_str());
        wrong.push(Wrong::new(at("identifier"), why));
    }
    if package.version.is_none() {
        let why = "is missing: Gantry runs one exact version";
        wrong.push(Wrong::new(at("version"), why));
    }
    if package.has_hash {
        let why = "cannot be checked: the package is fetched by its runner";
        wrong.push(Wrong::new(at("fileSha256"), why));
    }
    if package.transport.kind != TransportKind::Stdio {
        let why = format!(
            "is `{}`: commands communicate over stdin and stdout; start it yourself and add its URL with `gantry \
             add NAME URL`",
            package.transport.kind.as_str()
        );
        wrong.push(Wrong::new(at("transport.type"), why));
    }
    let program = runner(kind);
    if let Some(hint) = package.runtime_hint.as_deref()
        && hint != program
        && !package.runtime_arguments.is_empty()
    {
        let why = format!("is `{hint}`, whose arguments cannot be given to `{program}`");
        wrong.push(Wrong::new(at("runtimeHint"), why));
    }
    for variable in &package.variables {
        check_variable(&variable.name, &variable.input, wrong);
    }
}

/// Refuses variables that are set by the manifest itself and determine what is run.
pub(super) fn check_variable(name: &str, input: &super::Input, wrong: &mut Vec<Wrong>) {
    let upper = name.to_ascii_uppercase();
    let steers = STEERING.contains(&upper.as_str())
        || STEERING_PREFIXES
            .iter()
            .any(|prefix| upper.starts_with(prefix));
    if steers && (input.value.is_some() || input.default.is_some()) {
        let why = format!("sets `{name}`, which decides what is run");
        wrong.push(Wrong::new(&input.at, why));
    }
}

/// Returns the command of a package, as the members of an entry.
pub(super) fn plan(
    kind: Kind,
    package: &Package,
    answers: &Answers,
    folder: &Path,
    wrong: &mut Vec<Wrong>,
) -> Map<String, Value> {
    let folder = Some(folder);
    let runtime = words(&package.runtime_arguments, answers, folder, wrong);
    let own = words(&package.package_arguments, answers, folder, wrong);
    let version = package.version.as_deref().unwrap_or_default();
    let target = format!("{}@{version}", package.identifier);
    let at = format!("{}.runtimeArguments", package.at);
    let mut args = Vec::new();
    match kind {
        Kind::Npm => {
            args.push("-y".to_owned());
            let is_self = |word: &str| word == package.identifier || word == target;
            let more = runtime.into_iter().filter(|word| !is_self(word));
            for word in more.filter(|word| word != "-y" && word != "--yes") {
                match NPX.contains(&word.as_str()) {
                    true => args.push(word),
                    false => wrong.push(refused(&at, &word, "npx")),
                }
            }
            args.push(target);
        }
        Kind::PyPi => {
            let mut target = Some(target);
            let mut words = runtime.into_iter();
            while let Some(word) = words.next() {
                let (flag, value) = match word.split_once('=') {
                    Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                    None => (word.clone(), None),
                };
                match flag.as_str() {
                    _ if UVX.contains(&word.as_str()) => args.push(word),
                    "--python" | "-p" => {
                        let value = value.or_else(|| words.next()).unwrap_or_default();
                        match is_python_version(&value) {
                            true => args.extend(["--python".to_owned(), value]),
                            false => wrong.push(refused(&at, &word, "uvx")),
                        }
                    }
                    // `uvx --from PACKAGE PROGRAM`, where the package must be the one that is
                    // shown.
                    "--from" => {
                        let value = value.or_else(|| words.next()).unwrap_or_default();
                        let program = words.next().unwrap_or_default();
                        let source = from_source(&value, package);
                        match source.filter(|_| is_python_name(&program)) {
                            Some(source) => {
                                args.extend(["--from".to_owned(), source, program]);
                                target = None;
                            }
                            None => wrong.push(refused(&at, &word, "uvx")),
                        }
                    }
                    _ if word == package.identifier || Some(&word) == target.as_ref() => {}
                    _ => wrong.push(refused(&at, &word, "uvx")),
                }
            }
            args.extend(target);
        }
        Kind::Oci | Kind::Remote => {}
    }
    args.extend(own);
    let mut entry = Map::new();
    entry.insert("command".to_owned(), runner(kind).into());
    entry.insert("args".to_owned(), json!(args));
    let env = variables(package, answers, folder, wrong);
    entry.insert("env".to_owned(), env.into());
    entry
}

/// Returns the variables of a package with their values.
pub(super) fn variables(
    package: &Package,
    answers: &Answers,
    folder: Option<&Path>,
    wrong: &mut Vec<Wrong>,
) -> Map<String, Value> {
    let mut env = Map::new();
    for variable in &package.variables {
        let slot = Slot::Env(variable.name.clone());
        let value = variable.input.values(&slot, answers, folder, wrong).pop();
        if let Some(value) = value {
            env.insert(variable.name.clone(), value.into());
        }
    }
    env
}

/// Returns the words of an argument list.
pub(super) fn words(
    arguments: &[Argument],
    answers: &Answers,
    folder: Option<&Path>,
    wrong: &mut Vec<Wrong>,
) -> Vec<String> {
    let mut words = Vec::new();
    for argument in arguments {
        let slot = argument.slot();
        let values = argument.input.values(&slot, answers, folder, wrong);
        for value in values {
            if let Place::Named(flag) = &argument.place {
                words.push(flag.clone());
            }
            // `--arg NAME` adds a flag without a value.
            if !value.is_empty() || matches!(argument.place, Place::Positional(_)) {
                words.push(value);
            }
        }
    }
    words
}

impl Argument {
    /// Returns where the user's value goes.
    pub(super) fn slot(&self) -> Slot {
        Slot::Arg(match &self.place {
            Place::Positional(label) => label.clone(),
            Place::Named(flag) => flag.trim_start_matches('-').to_owned(),
        })
    }

    /// Refuses suspicious values of the manifest itself.
    pub(super) fn check(&self, wrong: &mut Vec<Wrong>) {
        let texts = [&self.input.value, &self.input.default];
        let variables = self.input.variables.values();
        let inner = variables.flat_map(|variable| [&variable.value, &variable.default]);
        for text in texts.into_iter().chain(inner).flatten() {
            if let Some(found) = SHELL.iter().find(|mark| text.contains(**mark)) {
                let why = format!("has `{found}`, which is for shells: no argument needs it");
                wrong.push(Wrong::new(&self.input.at, why));
            }
        }
    }
}

fn refused(at: &str, word: &str, runner: &str) -> Wrong {
    let word: String = word.chars().take(80).collect();
    let why = format!(
        "has `{word}`: only flags of `{runner}` that do not change what is run are allowed"
    );
    Wrong::new(at, why)
}

/// Returns the value after `--from`, if it is the package itself, possibly with extras.
fn from_source(text: &str, package: &Package) -> Option<String> {
    let version = package.version.as_deref()?;
    let name = text
        .split_once("==")
        .map_or(text, |(name, _)| name)
        .split('@')
        .next()
        .unwrap_or_default();
    let bare = name.split('[').next().unwrap_or_default();
    let own = package.identifier.split('[').next().unwrap_or_default();
    let is_own = bare == own && is_python_name(name);
    let given = text.get(name.len()..).unwrap_or_default();
    let is_version =
        given.is_empty() || given == format!("=={version}") || given == format!("@{version}");
    (is_own && is_version).then(|| format!("{name}=={version}"))
}

fn is_npm_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._~".contains(c))
    };
    let is_whole = match name.strip_prefix('@') {
        Some(rest) => rest
            .split_once('/')
            .is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
        // Names of old packages may have upper-case letters.
        None => is_part(&name.to_ascii_lowercase()),
    };
    is_whole && name.len() <= 214
}

fn is_python_name(name: &str) -> bool {
    let (name, extras) = match name.split_once('[') {
        Some((name, extras)) => match extras.strip_suffix(']') {
            Some(extras) => (name, Some(extras)),
            None => return false,
        },
        None => (name, None),
    };
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.ends_with(|c: char| c.is_ascii_alphanumeric())
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    is_word(name) && name.len() <= 214 && extras.is_none_or(|extras| extras.split(',').all(is_word))
}

fn is_python_version(text: &str) -> bool {
    !text.is_empty() && text.len() < 12 && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}
