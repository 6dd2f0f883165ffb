//! Explains the configuration: each value with its origin.

use std::process::ExitCode;

use gantry_model::secret::is_credential;
use gantry_model::spec::ServerSpec;
use gantry_model::spec::options::{ServerOption, options};
use serde_json::{Value as Json, json};

use crate::config::clients::hide;
use crate::config::diagnostic::meant;
use crate::config::document::{Document, Node, Value};
use crate::config::env::Environment;
use crate::config::plan::{Plan, Planned};

use super::super::failure::{Exit, Failure};
use super::super::format::pretty;
use super::super::screen::Screen;
use super::super::up::Flags;

/// The values under one heading: the gateway or a server.
pub(super) struct Explained {
    heading: String,
    rows: Vec<Row>,
}

struct Row {
    key: String,
    value: String,
    from: String,
}

/// Explains the gateway and every server.
pub(super) fn explain(plan: &Plan, flags: &Flags, environment: &Environment) -> Vec<Explained> {
    let gateway = flags.explain(&plan.settings).into_iter();
    let gateway = gateway.map(|(key, value, from)| Row {
        key: key.to_owned(),
        value,
        from,
    });
    let mut explained = vec![Explained {
        heading: "gateway".to_owned(),
        rows: gateway.collect(),
    }];
    for planned in &plan.servers {
        explained.push(Explained {
            heading: planned.entry.name.clone(),
            rows: of_server(plan, planned, environment),
        });
    }
    for spec in &plan.off {
        let (state, why) = spec.held().unzip();
        let row = Row {
            key: "state".to_owned(),
            value: state.map_or_else(String::new, |state| state.to_string()),
            from: why.unwrap_or_default().to_owned(),
        };
        explained.push(Explained {
            heading: spec.name.to_string(),
            rows: vec![row],
        });
    }
    let ignored = plan.ignored.iter().map(|ignored| Row {
        key: ignored.mistake.path().display().to_string(),
        value: "left out".to_owned(),
        from: ignored.to_string(),
    });
    let ignored: Vec<Row> = ignored.collect();
    if !ignored.is_empty() {
        explained.push(Explained {
            heading: "not approved".to_owned(),
            rows: ignored,
        });
    }
    explained
}

fn of_server(plan: &Plan, planned: &Planned, environment: &Environment) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(why) = &planned.spec.needs_approval {
        rows.push(Row {
            key: "state".to_owned(),
            value: "needs_approval".to_owned(),
            from: why.clone(),
        });
    }
    let shadows = plan.shadows.iter();
    for shadow in shadows.filter(|shadow| shadow.name == planned.entry.name) {
        rows.push(Row {
            key: "shadow".to_owned(),
            value: "needs_approval".to_owned(),
            from: shadow.to_string(),
        });
    }
    written(
        &planned.document,
        "",
        &planned.entry.node,
        environment,
        &mut rows,
    );
    for DefaultValue { option, value } in default_values(&planned.spec) {
        let is_below = |row: &Row, name: &str| {
            let rest = row.key.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if rows
            .iter()
            .any(|row| option.names().any(|name| is_below(row, name)))
        {
            continue;
        }
        let from = match option.name {
            "cwd" if planned.is_kept_out => {
                "default in a folder that is not trusted; `gantry approve .` trusts it"
            }
            _ => "default",
        };
        rows.push(Row {
            key: option.name.to_owned(),
            value,
            from: from.to_owned(),
        });
    }
    rows
}

/// An option, and its default.
struct DefaultValue {
    option: &'static ServerOption,
    value: String,
}

/// Returns the defaults of an entry of this kind.
fn default_values(spec: &ServerSpec) -> Vec<DefaultValue> {
    let mut shown = spec.shown();
    let values = options().filter_map(|option| {
        let value = option.shown(&option.get(&mut shown)?)?;
        Some(DefaultValue { option, value })
    });
    values.collect()
}

/// Returns what is written, without expanding variables.
fn written(
    document: &Document,
    path: &str,
    node: &Node,
    environment: &Environment,
    rows: &mut Vec<Row>,
) {
    let key = path.rsplit('.').next().unwrap_or(path);
    let secret = path.starts_with("env.") || path.starts_with("headers.") || is_credential(key);
    let below = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    if let Value::Table(table) = &node.value {
        for member in &table.members {
            written(
                document,
                &below(&member.key),
                &member.node,
                environment,
                rows,
            );
        }
        return;
    }
    let text = document.text.get(node.span.clone()).unwrap_or_default();
    let mut from = format!("{}:{}", document.path.display(), document.line(&node.span));
    for name in variables(text) {
        let state = match environment.get(name) {
            Some(_) => "set",
            None => "not set",
        };
        from.push_str(&format!(", variable `{name}` ({state})"));
    }
    let value = if secret {
        "(not shown)".to_owned()
    } else {
        shown(path, node, text)
    };
    rows.push(Row {
        key: path.to_owned(),
        value,
        from,
    });
}

/// Returns a value as in the file, with secrets in arguments and URLs hidden.
fn shown(path: &str, node: &Node, text: &str) -> String {
    let as_written = || text.split_whitespace().collect::<Vec<_>>().join(" ");
    match path {
        "args" => {
            let words = node.as_list().unwrap_or_default().iter();
            let words = words.map(|word| word.as_text().unwrap_or("…").to_owned());
            let words: Vec<String> = words.collect();
            let hidden = hide::arguments(&words);
            if hidden == words {
                as_written()
            } else {
                json!(hidden).to_string()
            }
        }
        "url" | "httpUrl" | "serverUrl" | "proxy" => {
            json!(hide::url(node.as_text().unwrap_or_default())).to_string()
        }
        _ => as_written(),
    }
}

/// Returns the names between `${` and `}`, without defaults.
fn variables(text: &str) -> Vec<&str> {
    let bodies = text
        .split("${")
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    let names = bodies.map(|body| {
        let body = body.strip_prefix("env:").unwrap_or(body);
        body.split(":-").next().unwrap_or(body)
    });
    let is_name = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    names
        .filter(is_name)
        .filter(|name| {
            !matches!(
                *name,
                "workspaceFolder" | "workspaceFolderBasename" | "userHome" | "pathSeparator"
            )
        })
        .collect()
}

/// Shows the requested headings.
pub(super) fn show(
    explained: &[Explained],
    server: Option<&str>,
    as_json: bool,
    screen: &Screen,
) -> Result<ExitCode, Failure> {
    let chosen: Vec<&Explained> = match server {
        None => explained.iter().collect(),
        Some(name) => {
            let servers = &explained[1..];
            let found = servers.iter().find(|one| one.heading == name);
            let near = meant(name, servers.iter().map(|one| one.heading.as_str()));
            let found = found.ok_or_else(|| {
                Failure::new(
                    Exit::Failed,
                    format!("no server `{}` in the files", Screen::safe(name)),
                )
                .hint(near.map_or_else(
                    || {
                        "`gantry config check` says what is wrong with a server that is left out"
                            .to_owned()
                    },
                    |near| format!("did you mean `{near}`?"),
                ))
            })?;
            vec![found]
        }
    };
    if as_json {
        let items: Vec<Json> = chosen.iter().map(|one| as_value(one)).collect();
        screen.line(&pretty(&json!({ "items": items })));
        return Ok(ExitCode::SUCCESS);
    }
    for (index, one) in chosen.iter().enumerate() {
        if index > 0 {
            screen.line("");
        }
        screen.line(&screen.strong(&Screen::safe(&one.heading)));
        let rows: Vec<Vec<String>> = one
            .rows
            .iter()
            .map(|row| vec![row.key.clone(), row.value.clone(), row.from.clone()])
            .collect();
        screen.table(&["key", "value", "from"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn as_value(explained: &Explained) -> Json {
    let values: Vec<Json> = explained
        .rows
        .iter()
        .map(|row| json!({"key": row.key, "value": row.value, "from": row.from}))
        .collect();
    json!({"name": explained.heading, "values": values})
}
