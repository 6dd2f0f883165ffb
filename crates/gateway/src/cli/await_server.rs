//! Waits until a server is ready or has failed to start.
//!
//! Follows the gateway's events; the server's own timeouts bound the start. Entry point:
//! [`settled`].

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::follow::Follow;
use super::format::text;
use super::progress::Progress;
use super::screen::Screen;

/// The interval of the spinner. The gateway is asked only when the server changed.
const TURN: Duration = Duration::from_millis(100);

/// Returns the server's status when it is ready, or why it failed.
pub(super) async fn settled(
    client: &Client,
    server: &str,
    screen: &Screen,
    within: Duration,
) -> Result<Value, Failure> {
    let deadline = Instant::now() + within;
    let path = format!("/api/v1/mcp/servers/{}", segment(server));
    let mut progress = Progress::new(screen);
    let mut following = Follow::open(client, &format!("server:{server}")).await?;
    loop {
        let status = client.get(&path).await?;
        let (name, mut state) = (text(&status, "/name"), text(&status, "/state"));
        // A failed server that is restarted at this moment has not settled yet.
        let is_tried_now = status.pointer("/next_try/in_ms") == Some(&Value::from(0));
        if is_tried_now && matches!(state.as_str(), "failed" | "backing_off" | "disconnected") {
            "restarting".clone_into(&mut state);
        }
        match state.as_str() {
            "ready" | "idle" => return Ok(status),
            "starting" | "restarting" | "stopping" if Instant::now() < deadline => {
                progress.tell(&waiting(&name, &state, &status));
            }
            "starting" | "restarting" | "stopping" => {
                return Err(failure(
                    &status,
                    &name,
                    &format!("is still {state} after {within:?}"),
                ));
            }
            "needs_sign_in" => {
                let failed = failure(&status, &name, "needs a sign-in");
                return Err(failed.hint(format!("run `gantry auth {name}`")));
            }
            _ => {
                return Err(failure(
                    &status,
                    &name,
                    &format!("is {}", state.replace('_', " ")),
                ));
            }
        }
        loop {
            match timeout(TURN, following.changed()).await {
                Ok(changed) => break changed?,
                Err(_) if Instant::now() >= deadline => break,
                Err(_) => progress.tell(&waiting(&name, &state, &status)),
            }
        }
    }
}

/// Returns the progress line: the server, and what a slow start is doing, such as a download.
fn waiting(name: &str, state: &str, status: &Value) -> String {
    match text(status, "/reason") {
        why if why.is_empty() => format!("{name} is {state}"),
        why => format!("{name} is {state}: {why}"),
    }
}

fn failure(status: &Value, name: &str, what: &str) -> Failure {
    let mut failure = Failure::new(Exit::Failed, format!("server `{name}` {what}"));
    for pointer in ["/reason", "/next_try/text"] {
        let why = text(status, pointer);
        if !why.is_empty() {
            failure = failure.cause(why);
        }
    }
    for line in text(status, "/last_crash/stderr")
        .lines()
        .rev()
        .take(3)
        .collect::<Vec<_>>()
        .iter()
        .rev()
    {
        failure = failure.cause(format!("it wrote: {line}"));
    }
    failure.hint(format!(
        "`gantry logs {name}` and `gantry status {name}` say more"
    ))
}
