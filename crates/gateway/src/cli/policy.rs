//! `gantry policy test`: tries a change of grants on the recorded calls and shows which decisions would
//! differ. Nothing is changed.
//!
//! The change comes from a file, from flags, or from both. Entry point: [`run`].

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gantry_model::grant::{Condition, Grant};
use serde_json::{Value, json};

use super::CliContext;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{self, list, number, pretty, text};
use super::grant::days;

/// The maximum size of a policy file.
const LONGEST_FILE: u64 = 1 << 20;

/// Arguments of `gantry policy`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show which recorded calls would be decided otherwise; exits with 1 if any would be
    Test(Test),
}

#[derive(Debug, Args)]
struct Test {
    /// A JSON file: `{"add": [GRANT, …], "remove": [ID, …]}`, or `{"grants": [GRANT, …]}` in place of all
    /// grants; each as `POST /api/v1/grants` takes it
    file: Option<PathBuf>,
    /// The agent that the patterns below are for [default: all agents]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Allow what a pattern names, such as `files:read_*`; may be given several times
    #[arg(long, value_name = "PATTERN")]
    grant: Vec<String>,
    /// Forbid what a pattern names; may be given several times
    #[arg(long, value_name = "PATTERN")]
    deny: Vec<String>,
    /// Ask an approver for calls that match a pattern; may be given several times
    #[arg(long, value_name = "PATTERN")]
    ask: Vec<String>,
    /// Leave out a grant, by its id; may be given several times
    #[arg(long, value_name = "ID")]
    remove: Vec<String>,
    /// Maximum number of newest calls to replay
    #[arg(long, value_name = "N", default_value_t = 1000)]
    last: u32,
    /// Only calls of the last days, such as `7d`
    #[arg(long, value_name = "DAYS")]
    since: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Tries a policy.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let Action::Test(test) = &options.action;
    let body = body(test)?;
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let report = client.post("/api/v1/policy/test", Some(&body)).await?;
    let differ = number(&report, "/differ").unwrap_or(0);
    if test.json {
        screen.line(&pretty(&report));
    } else {
        let rows = rows(list(&report, "/items"));
        if !rows.is_empty() {
            let heading = ["calls", "newest", "agent", "tool", "was", "would be", "why"];
            screen.table(&heading, &rows);
        }
        let count = |name: &str| number(&report, &format!("/{name}")).unwrap_or(0);
        screen.line(&format!(
            "{}: {} the same, {differ} would differ, {} undecided, {} not judged",
            format::count(count("calls"), "call"),
            count("same"),
            count("undecided"),
            count("not_judged"),
        ));
    }
    Ok(match differ {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(Exit::Failed as u8),
    })
}

fn body(test: &Test) -> Result<Value, Failure> {
    let mut body = match &test.file {
        Some(file) => read(file)?,
        None => json!({}),
    };
    let mut add = list(&body, "/add").to_vec();
    for (effect, patterns) in [
        ("allow", &test.grant),
        ("deny", &test.deny),
        ("ask", &test.ask),
    ] {
        for pattern in patterns {
            let grant = Grant::parse(pattern).map_err(|error| Failure::of(Exit::Usage, &error))?;
            let conditions = grant.conditions().iter().map(Condition::to_json);
            let mut one = json!({
                "effect": effect, "server": grant.server(), "item": grant.item(),
                "when": conditions.collect::<Vec<_>>(),
            });
            match &test.agent {
                Some(agent) => one["agent"] = agent.as_str().into(),
                None => one["all_agents"] = true.into(),
            }
            add.push(one);
        }
    }
    let removed = list(&body, "/remove").iter().cloned();
    let remove: Vec<Value> = removed
        .chain(test.remove.iter().map(|id| Value::from(id.as_str())))
        .collect();
    if !add.is_empty() {
        body["add"] = add.into();
    }
    if !remove.is_empty() {
        body["remove"] = remove.into();
    }
    body["last"] = test.last.into();
    if let Some(since) = &test.since {
        body["since_days"] = days(since)?.into();
    }
    Ok(body)
}

fn read(file: &PathBuf) -> Result<Value, Failure> {
    let shown = file.display();
    let failed =
        |why: String| Failure::new(Exit::Usage, format!("`{shown}` cannot be used: {why}"));
    let length = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?;
    if length.len() > LONGEST_FILE {
        return Err(failed("it is longer than 1 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(failed("it is not a JSON object".to_owned())),
    }
}

/// Returns one row for all calls of a tool by an agent that differ in the same way; `--json` has each.
fn rows(items: &[Value]) -> Vec<Vec<String>> {
    let mut rows: Vec<(u64, Vec<String>)> = Vec::new();
    for item in items {
        let mut row = vec![
            text(item, "/agent"),
            format!("{}:{}", text(item, "/server"), text(item, "/item")),
            text(item, "/recorded"),
            text(item, "/decision"),
            text(item, "/why"),
        ];
        match rows.iter_mut().find(|(_, known)| known[1..] == row[..]) {
            Some((calls, _)) => *calls += 1,
            None => {
                row.insert(0, text(item, "/call"));
                rows.push((1, row));
            }
        }
    }
    let counted = rows.into_iter().map(|(calls, mut row)| {
        row.insert(0, calls.to_string());
        row
    });
    counted.collect()
}
