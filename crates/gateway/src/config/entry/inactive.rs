//! The spec of an entry that is disabled or invalid: its content as written, shown with the reason.
//!
//! Expands no variable and checks nothing. Entry points: [`disabled`] and [`misconfigured`].

use std::collections::BTreeMap;

use gantry_model::diagnose::Diagnose as _;
use gantry_model::spec::{
    ImageLaunch, InactiveReason, Launch, ProcessLaunch, Profile, RemoteLaunch, ServerSpec, Source,
    Written,
};

use super::Entry;
use crate::config::diagnostic::Diagnostic;
use crate::config::document::{Document, Value};

/// Returns the spec of a disabled entry; `None` if its name is invalid.
pub(super) fn disabled(document: &Document, entry: &Entry) -> Option<ServerSpec> {
    let switch = ["disabled", "enabled"].into_iter().find_map(|key| {
        let node = entry.node.find(key)?;
        Some((key, document.line(&node.span)))
    });
    let (key, line) = switch?;
    let path = document.path.display();
    let change = match key {
        "disabled" => "remove `disabled` there",
        _ => "set `enabled` to `true` there",
    };
    let why = format!("disabled at `{path}:{line}`; {change} to let it run");
    shown(entry, InactiveReason::Disabled(why))
}

/// Returns the spec of an invalid entry; `None` if its name is invalid.
pub(super) fn misconfigured(entry: &Entry, mistakes: &[Diagnostic]) -> Option<ServerSpec> {
    let diagnostics = mistakes.iter().map(|diagnostic| match diagnostic.hint() {
        Some(hint) => format!("{}; {hint}", diagnostic.in_its_file()),
        None => diagnostic.in_its_file(),
    });
    let why = diagnostics.collect::<Vec<_>>().join("; ");
    shown(entry, InactiveReason::Misconfigured(why))
}

fn shown(entry: &Entry, inactive: InactiveReason) -> Option<ServerSpec> {
    let name = entry.name.parse().ok()?;
    let text = |key: &str| match &entry.node.find(key)?.value {
        Value::Text(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Table(_) => None,
    };
    let command = text("command");
    let url = ["url", "httpUrl", "serverUrl"].into_iter().find_map(text);
    let image = text("image").filter(|_| command.is_none());
    let launch = match (command, url) {
        (None, None) if image.is_some() => Launch::Image(ImageLaunch {
            args: arguments(entry),
            env: variables(entry),
            ..ImageLaunch::new(image.unwrap_or_default())
        }),
        (None, Some(url)) => Launch::Remote(RemoteLaunch::new(url)),
        (command, _) => Launch::Process(ProcessLaunch {
            command: command.unwrap_or_default(),
            args: arguments(entry),
            env: variables(entry),
            cwd: None,
            profile: match text("profile").as_deref() {
                Some("hosted") => Profile::Hosted,
                Some(_) | None => Profile::Local,
            },
            limits: Default::default(),
            hosting: Default::default(),
            written: Written::default(),
        }),
    };
    let mut spec = ServerSpec::new(name, launch);
    spec.description = text("description");
    spec.source = Source::File;
    spec.inactive = Some(inactive);
    Some(spec)
}

fn arguments(entry: &Entry) -> Vec<String> {
    let list = entry.node.find("args").and_then(|node| node.as_list());
    let texts = list
        .into_iter()
        .flatten()
        .filter_map(|node| match &node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Table(_) => {
                None
            }
        });
    texts.collect()
}

/// Returns the names of its variables, without values.
fn variables(entry: &Entry) -> BTreeMap<String, String> {
    let table = ["env", "environment"].into_iter();
    let mut table = table.filter_map(|name| entry.node.find(name)?.as_table());
    let table = table.next();
    let members = table.into_iter().flat_map(|table| &table.members);
    members
        .map(|member| (member.key.clone(), String::new()))
        .collect()
}
