//! `gantry audit`: administrative acts, the hash chain of the recorded calls, their export, holds
//! on them, and the erasure of a person's data. `acts` is here, the record of calls in `record`,
//! the verification of its chain in `verify`.

mod record;
mod verify;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{self, compact, list, moment, number, pretty, text, time};
use super::screen::Screen;

/// The outcome of an act.
const OUTCOMES: [&str; 4] = ["done", "refused", "failed", "unfinished"];
/// The interface of an act.
const WAYS: [&str; 4] = ["rest", "file", "gateway", "library"];
const HEADING: [&str; 7] = ["time", "who", "from", "act", "on", "outcome", "change"];
/// Longer changes are truncated; `--json` has them whole.
const LONGEST_CHANGE: usize = 240;

/// Arguments of `gantry audit`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show administrative acts and refused attempts, newest last
    Acts(Box<Acts>),
    /// Confirm that the clock is right although it is far ahead of the newest record
    ConfirmClock(AsJson),
    /// Check recorded calls and administrative acts against their hash chain
    Verify(Box<verify::Verify>),
    /// Show the public key that the chain is signed with
    Key(AsJson),
    /// Export recorded calls, newest first
    Export(Box<record::Export>),
    /// Keep calls regardless of age, and protect them from erasure
    Hold(Box<record::Hold>),
    /// List the holds
    Holds(AsJson),
    /// Release a hold
    Release {
        /// The id of the hold
        hold: String,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Take a user's data out of the recorded calls; the rows stay
    Erase {
        /// The user, as calls name it
        #[arg(long)]
        user: String,
        #[command(flatten)]
        shown: AsJson,
    },
}

#[derive(Debug, Args)]
struct Acts {
    /// Maximum number of acts
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only acts of this name, such as `agent.change`; `agent.*` for a prefix
    #[arg(long)]
    act: Option<String>,
    /// Only acts on this: a server, an agent, a key's id, a file
    #[arg(long)]
    target: Option<String>,
    /// Only acts of this key, by its id
    #[arg(long)]
    key: Option<String>,
    /// Only acts of this actor
    #[arg(long)]
    actor: Option<String>,
    /// Only acts from this address
    #[arg(long)]
    address: Option<String>,
    /// Only acts over this interface
    #[arg(long, value_parser = WAYS)]
    via: Option<String>,
    /// Only acts with this outcome
    #[arg(long, value_parser = OUTCOMES)]
    outcome: Option<String>,
    /// Only acts since a time (`2026-01-31T12:00:00Z`) or within a period (`10m`)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Only acts until a time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows the acts, or confirms the clock.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let screen = &context.screen;
    if let Action::Verify(asked) = &options.action {
        return verify::run(asked, context).await;
    }
    let client = context.client(Role::Admin)?;
    match &options.action {
        Action::Acts(asked) => show(asked, &client.get(&path(asked)).await?, screen),
        Action::Verify(_) => {}
        Action::Key(shown) => {
            let key = client.get("/api/v1/audit/key").await?;
            shown.done(screen, &key, &text(&key, "/public_key"));
        }
        Action::Export(asked) => record::export(asked, &client, screen).await?,
        Action::Hold(asked) => record::hold(asked, &client, screen).await?,
        Action::Holds(shown) => record::holds(*shown, &client, screen).await?,
        Action::Release { hold, shown } => {
            let path = format!("/api/v1/audit/holds/{}", segment(hold));
            client.delete(&path).await?;
            let said = format!("hold {hold} is released");
            shown.done(screen, &json!({"released": hold}), &said);
        }
        Action::Erase { user, shown } => {
            let body = json!({ "user": user });
            let erased = client.post("/api/v1/audit/erase", Some(&body)).await?;
            let count = |name: &str| number(&erased, name).unwrap_or_default();
            let mut said = format!(
                "erased a user from {}",
                format::count(count("/calls"), "call")
            );
            if count("/held") > 0 {
                said.push_str(&format!("; {} are under a hold and stay", count("/held")));
            }
            shown.done(screen, &erased, &said);
        }
        Action::ConfirmClock(shown) => {
            client.post("/api/v1/audit/confirm-clock", None).await?;
            let said = "the clock is confirmed; calls older than the retention period are deleted from now on";
            shown.done(screen, &json!({"confirmed": true}), said);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn path(asked: &Acts) -> String {
    let mut path = format!("/api/v1/acts?limit={}", asked.limit);
    let filters = [
        ("act", asked.act.clone()),
        ("target", asked.target.clone()),
        ("key_id", asked.key.clone()),
        ("actor", asked.actor.clone()),
        ("address", asked.address.clone()),
        ("via", asked.via.clone()),
        ("outcome", asked.outcome.clone()),
        ("since_ms", asked.since.map(|ms| ms.to_string())),
        ("until_ms", asked.until.map(|ms| ms.to_string())),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(&value)));
        }
    }
    path
}

fn show(asked: &Acts, answer: &Value, screen: &Screen) {
    let acts = list(answer, "/items");
    if asked.json {
        screen.line(&pretty(answer));
    } else if acts.is_empty() {
        screen.line("no acts");
    } else {
        let rows: Vec<Vec<String>> = acts.iter().rev().map(row).collect();
        screen.table(&HEADING, &rows);
    }
}

fn row(act: &Value) -> Vec<String> {
    let at = number(act, "/at_ms").map_or_else(String::new, time);
    let from = Some(text(act, "/address")).filter(|address| !address.is_empty());
    let mut outcome = text(act, "/outcome");
    let code = text(act, "/code");
    if !code.is_empty() {
        outcome.push_str(&format!(" {code}"));
    }
    if let Some(repeats) = number(act, "/repeats").filter(|repeats| *repeats > 1) {
        outcome.push_str(&format!(" ×{repeats}"));
    }
    vec![
        at,
        text(act, "/actor"),
        from.unwrap_or_else(|| text(act, "/via")),
        text(act, "/act"),
        text(act, "/target"),
        outcome,
        change(act),
    ]
}

/// Returns what changed: each differing member, before and after.
fn change(act: &Value) -> String {
    let (before, after) = (&act["before"], &act["after"]);
    let empty = serde_json::Map::new();
    let (old, new) = (before.as_object(), after.as_object());
    let both = old.is_some() && new.is_some();
    let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
    let names = old
        .keys()
        .chain(new.keys().filter(|name| !old.contains_key(*name)));
    let parts = names.filter_map(|name| match (old.get(name), new.get(name)) {
        (Some(one), Some(other)) if one == other => None,
        (one, other) if both => {
            let shown = |value: Option<&Value>| value.map_or_else(|| "–".to_owned(), compact);
            Some(format!("{name} {} → {}", shown(one), shown(other)))
        }
        (one, other) => one
            .or(other)
            .map(|value| format!("{name} {}", compact(value))),
    });
    let mut shown = parts.collect::<Vec<_>>().join(", ");
    let detail = text(act, "/detail");
    if !detail.is_empty() {
        shown = format!("{detail} {shown}");
    }
    if shown.chars().count() > LONGEST_CHANGE {
        shown = shown.chars().take(LONGEST_CHANGE - 1).collect();
        shown.push('…');
    }
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_what_differs() {
        let act = json!({"before": {"grants": ["a:*"], "label": "x"}, "after": {"grants": ["*"], "label": "x"}});
        assert_eq!(change(&act), r#"grants ["a:*"] → ["*"]"#);
        assert_eq!(
            change(&json!({"after": {"kind": "agent"}})),
            r#"kind "agent""#
        );
        assert_eq!(
            change(&json!({"detail": "first", "before": null, "after": null})),
            "first"
        );
        let long = json!({"after": {"x": "y".repeat(999)}});
        assert_eq!(change(&long).chars().count(), LONGEST_CHANGE);
    }
}
