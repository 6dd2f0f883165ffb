//! `gantry auth SERVER`: signs in to a remote server, or out of it.
//!
//! The gateway creates the link and handles the redirect; this verb shows the link, opens a browser
//! at a terminal, and waits for the outcome.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::CliContext;
use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::follow::Follow;
use super::format::{compact, list, number, text, time_span};
use super::open;
use super::screen::Screen;

/// Arguments of `gantry auth`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// Sign out: delete the tokens and revoke them
    #[arg(long, conflicts_with_all = ["again", "no_browser", "wait"])]
    remove: bool,
    /// Accept whichever authorization server the server names now, even if it was another before
    #[arg(long)]
    again: bool,
    /// Show the link without opening a browser
    #[arg(long)]
    no_browser: bool,
    /// How long to wait for the sign-in
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time_span)]
    wait: Duration,
    /// Print JSON, one line for the link and one for the outcome
    #[arg(long)]
    json: bool,
}

/// Signs in or out; a failed sign-in exits with 1.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let path = format!("/api/v1/mcp/servers/{}/auth", segment(&options.server));
    if options.remove {
        client.delete(&path).await?;
        let value = json!({"server": options.server, "state": "signed_out"});
        let line = format!("signed out of {}", options.server);
        screen.outcome(options.json, &value, &line);
        return Ok(ExitCode::SUCCESS);
    }
    let before = number(&client.get(&path).await?, "/signed_in_ms");
    let beginning = match options.again {
        true => format!("{path}?again=true"),
        false => path.clone(),
    };
    let begun = client.post(&beginning, None).await?;
    let link = text(&begun, "/link");
    show(&link, &begun, options, screen);
    let status = signed_in(&client, &path, before, options).await?;
    if options.json {
        screen.line(&compact(
            &json!({"server": options.server, "status": status}),
        ));
    } else {
        let scopes: Vec<&str> = list(&status, "/scopes")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let granted = match scopes.is_empty() {
            true => String::new(),
            false => format!(" for {}", scopes.join(", ")),
        };
        let line = format!("signed in to {}{granted}", options.server);
        screen.line(&Screen::safe(&line));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(link: &str, begun: &Value, options: &Options, screen: &Screen) {
    if options.json {
        return screen.line(&compact(begun));
    }
    screen.error_line(&format!(
        "sign in to {} here:",
        Screen::safe(&options.server)
    ));
    screen.line(&Screen::safe(link));
    if screen.is_terminal() && !options.no_browser {
        open::browser(link);
    }
}

/// Waits until the user has signed in, refused, or taken too long.
async fn signed_in(
    client: &Client,
    path: &str,
    before: Option<u64>,
    options: &Options,
) -> Result<Value, Failure> {
    let deadline = Instant::now() + options.wait;
    let server = &options.server;
    // A failed sign-in is not an event of the server, so the status is checked every second.
    let mut following = Follow::open(client, &format!("server:{server}")).await?;
    loop {
        let status = client.get(path).await?;
        let since = number(&status, "/signed_in_ms");
        if since.is_some() && since != before {
            return Ok(status);
        }
        let failure = text(&status, "/failure");
        if !failure.is_empty() {
            let message = format!("the sign-in to `{server}` failed");
            return Err(Failure::new(Exit::Failed, message).cause(failure));
        }
        if Instant::now() >= deadline {
            let message = format!("no one signed in to `{server}` within {:?}", options.wait);
            let hint = "the link stays valid for ten minutes; `gantry status` shows the result";
            return Err(Failure::new(Exit::Failed, message).hint(hint));
        }
        if let Ok(changed) = timeout_at(deadline, following.changed()).await {
            changed?;
        }
    }
}
