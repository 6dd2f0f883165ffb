//! `gantry doctor`: what this machine can enforce, what the data folder and each server need,
//! whether keys work, and the health of the running gateway.
//!
//! Changes nothing, unless asked to acknowledge damage. Every finding says what to do about it.
//! Entry point: [`run`].

mod folder;
mod keys;
mod needs;
mod rungs;

use std::process::ExitCode;

use clap::Args;
use gantry_engine::probe_host;
use serde_json::{Value, json};

use super::CliContext;
use super::failure::{Exit, Failure};
use super::files::Files;
use super::find::Role;
use super::format::{list, pretty, text, wrap};
use super::screen::Screen;
use super::status::kept;

/// Arguments of `gantry doctor`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    files: Files,
    /// Acknowledge damage of the audit journal, so that the health is no longer degraded
    #[arg(long)]
    acknowledge: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Good,
    /// It works with restrictions.
    Doubtful,
    /// Something does not start, or is not stored.
    Bad,
}

/// The result of a check.
#[derive(Debug)]
struct Finding {
    grade: Grade,
    what: String,
    detail: String,
    /// What to do about it.
    advice: Option<String>,
}

impl Finding {
    fn new(grade: Grade, what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            grade,
            what: what.into(),
            detail: detail.into(),
            advice: None,
        }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    fn json(&self) -> Value {
        let grade = match self.grade {
            Grade::Good => "good",
            Grade::Doubtful => "doubtful",
            Grade::Bad => "bad",
        };
        json!({"grade": grade, "what": self.what, "detail": self.detail, "advice": self.advice})
    }

    fn show(&self, screen: &Screen) {
        let mark = match self.grade {
            Grade::Good => screen.good("✓"),
            Grade::Doubtful => screen.doubtful("!"),
            Grade::Bad => screen.bad("✗"),
        };
        let mut detail = Screen::safe(&self.detail);
        if let Some(advice) = &self.advice {
            detail = format!("{detail}; {}", Screen::safe(advice));
        }
        let detail = screen.typed(&detail);
        let room = screen.width().saturating_sub(24).max(30);
        let mut lines = wrap(&detail, room).into_iter();
        let first = lines.next().unwrap_or_default();
        let line = format!("  {mark} {:<18} {first}", Screen::safe(&self.what));
        screen.line(line.trim_end());
        lines.for_each(|line| screen.line(&format!("{:23}{line}", "")));
    }
}

/// Runs all checks; exits with 1 if a server cannot start or the gateway is unhealthy.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let search = context.environment.get("PATH").unwrap_or_default();
    let host = probe_host(search).await.map_err(|error| {
        Failure::plain(Exit::Failed, "processes cannot be started here", &error)
    })?;
    let facts = host.facts.iter();
    let machine: Vec<Finding> = facts
        .map(|fact| {
            let grade = if fact.available {
                Grade::Good
            } else {
                Grade::Doubtful
            };
            let finding = Finding::new(grade, fact.name, fact.detail.as_str());
            match rungs::advise(fact.name, &fact.detail).filter(|_| !fact.available) {
                Some(advice) => finding.advise(advice),
                None => finding,
            }
        })
        .collect();
    let mut servers = needs::of_files(&options.files, context)?;
    let client = context.client(Role::Admin);
    let acknowledged = match (&client, options.acknowledge) {
        (Ok(client), true) => Some(client.post("/api/v1/health/acknowledge", None).await?),
        (Err(_), true) => return client.map(|_| ExitCode::SUCCESS),
        (_, false) => None,
    };
    let health = match client {
        Ok(client) => {
            needs::of_gateway(&client, context, &mut servers).await;
            client.get("/api/v1/health").await.ok()
        }
        Err(_) => None,
    };
    let tried = keys::tried(context).await?;
    let is_running = health.is_some() || tried.admin.is_some();
    let folder = folder::findings(&context.data_path()?, is_running, &tried);
    let clients = tried.clients;
    let gateway = health.as_ref().map(gateway).unwrap_or_default();

    let all = [&machine, &folder, &clients, &servers, &gateway];
    let well = all
        .iter()
        .copied()
        .flatten()
        .all(|finding| finding.grade != Grade::Bad);
    let screen = &context.screen;
    if options.json {
        let shown = |findings: &[Finding]| findings.iter().map(Finding::json).collect::<Vec<_>>();
        screen.line(&pretty(&json!({
            "ok": well,
            "host": host,
            "folder": shown(&folder),
            "clients": shown(&clients),
            "servers": shown(&servers),
            "gateway": health,
            "acknowledged": acknowledged.as_ref().map(|told| &told["acknowledged"]),
        })));
    } else {
        let title = |text: &str| screen.line(&screen.strong(text));
        if let Some(told) = &acknowledged {
            let count = text(told, "/acknowledged");
            let reports = if count == "1" { "report" } else { "reports" };
            screen.line(&format!(
                "Acknowledged {count} {reports} of damage to the audit journal"
            ));
            screen.line("");
        }
        title("This machine");
        machine.iter().for_each(|finding| finding.show(screen));
        screen.line("");
        title("The data folder");
        folder.iter().for_each(|finding| finding.show(screen));
        if !clients.is_empty() {
            screen.line("");
            title("Connected clients");
            clients.iter().for_each(|finding| finding.show(screen));
        }
        if !servers.is_empty() {
            screen.line("");
            title("What servers need");
            servers.iter().for_each(|finding| finding.show(screen));
        }
        screen.line("");
        title("The gateway of this folder");
        match health {
            Some(_) => gateway.iter().for_each(|finding| finding.show(screen)),
            None if is_running => screen.line("  running, but it refuses the admin key"),
            None => screen.advise("  not running; start it with `gantry up`"),
        }
    }
    Ok(match well {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Exit::Failed as u8),
    })
}

/// Reports why the database cannot be written, if so.
fn database(health: &Value) -> Option<Finding> {
    let error = text(health, "/audit/store_error");
    let error = match error.is_empty() {
        true => text(health, "/audit/last_fold_error"),
        false => error,
    };
    let waiting = text(health, "/audit/unfolded_records");
    (!error.is_empty()).then(|| {
        Finding::new(
            Grade::Bad,
            "database",
            format!("cannot be written: {error}"),
        )
        .advise(format!(
            "calls continue, {waiting} records wait in the journal"
        ))
    })
}

fn gateway(health: &Value) -> Vec<Finding> {
    let is_ok = health["ok"] == Value::Bool(true);
    let grade = if is_ok { Grade::Good } else { Grade::Bad };
    let mut findings = vec![Finding::new(grade, "version", text(health, "/version"))];
    let states = health["servers"].as_object().into_iter().flatten();
    for (state, count) in states {
        let grade = match state.as_str() {
            "ready" | "idle" | "starting" | "disabled" => Grade::Good,
            _ => Grade::Doubtful,
        };
        findings.push(Finding::new(grade, "servers", format!("{count} {state}")));
    }
    findings.push(match health.pointer("/audit/writable") {
        Some(Value::Bool(true)) => Finding::new(Grade::Good, "audit", "can be written"),
        _ => {
            let why = text(health, "/audit/reason");
            Finding::new(Grade::Bad, "audit", format!("cannot be written: {why}"))
        }
    });
    findings.extend(database(health));
    for damage in list(health, "/audit/damage") {
        findings.push(
            Finding::new(Grade::Bad, "journal", text(damage, "/detail"))
                .advise("when it is resolved, run `gantry doctor --acknowledge`"),
        );
    }
    findings.push(Finding::new(Grade::Good, "on record", kept(health)));
    let warnings = list(health, "/warnings").iter();
    findings.extend(
        warnings.map(|warning| Finding::new(Grade::Doubtful, "warning", text(warning, ""))),
    );
    findings
}
