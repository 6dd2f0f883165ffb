//! `gantry doctor`: what this machine can enforce, found by trying, and how the running gateway is.

use std::process::ExitCode;

use clap::Args;
use gantry_sandbox::{Sandbox, SandboxOptions};
use serde_json::{Value, json};

use super::Surroundings;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, pretty, text};
use super::screen::Screen;

/// What `gantry doctor` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checks the machine and, if there is one, the gateway; a gateway that is not well exits with 1.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let sandbox = Sandbox::probe(SandboxOptions {
        instance: format!("doctor-{}", std::process::id()),
    });
    let sandbox = sandbox.map_err(|error| {
        Failure::plain(Exit::Failed, "processes cannot be started here", &error)
    })?;
    let health = match surroundings.client(Role::Admin) {
        Ok(client) => client.get("/api/v1/health").await.ok(),
        Err(_) => None,
    };
    let screen = &surroundings.screen;
    let well = health
        .as_ref()
        .is_none_or(|health| health["ok"] == Value::Bool(true));
    if options.json {
        screen.line(&pretty(&json!({"host": sandbox.host(), "gateway": health})));
    } else {
        screen.line(&screen.strong("This machine"));
        for fact in &sandbox.host().facts {
            let mark = if fact.available {
                screen.good("✓")
            } else {
                screen.doubtful("✗")
            };
            screen.line(&format!(
                "  {mark} {:<18} {}",
                fact.name,
                Screen::safe(&fact.detail)
            ));
        }
        screen.line("");
        screen.line(&screen.strong("The gateway of this folder"));
        match &health {
            Some(health) => gateway(health, screen),
            None => screen.line("  not running; start it with `gantry up`"),
        }
    }
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Exit::Failed as u8)
    })
}

fn gateway(health: &Value, screen: &Screen) {
    let mark = if health["ok"] == Value::Bool(true) {
        screen.good("✓")
    } else {
        screen.bad("✗")
    };
    screen.line(&format!("  {mark} version {}", text(health, "/version")));
    let states = health["servers"].as_object().into_iter().flatten();
    for (state, count) in states {
        screen.line(&format!("    {count} {state}"));
    }
    let (mark, state) = match health.pointer("/audit/writable") {
        Some(Value::Bool(true)) => (screen.good("✓"), "can be written".to_owned()),
        _ => (
            screen.bad("✗"),
            format!("cannot be written: {}", text(health, "/audit/reason")),
        ),
    };
    screen.line(&format!("  {mark} audit {}", Screen::safe(&state)));
    for warning in list(health, "/warnings") {
        screen.line(&format!(
            "  {} {}",
            screen.doubtful("!"),
            Screen::safe(&text(warning, ""))
        ));
    }
}
