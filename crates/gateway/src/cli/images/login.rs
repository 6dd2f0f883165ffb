//! `gantry images login | logout | logins`: the project's credentials for image registries.
//!
//! A password is typed without echo, or read from stdin, never an argument. Entry points:
//! [`log_in`], [`log_out`], [`list`].

use std::io::{self, IsTerminal as _, Read as _};

use serde_json::{Value, json};

use crate::cli::CliContext;
use crate::cli::as_json::AsJson;
use crate::cli::client::{Client, segment};
use crate::cli::failure::{Exit, Failure};
use crate::cli::format::{number, text, time};
use crate::cli::prompt;
use crate::cli::screen::Screen;
use crate::config::env::GANTRY_REGISTRY_PASSWORD;

/// The longest password that is read from stdin.
const LONGEST: u64 = 64 << 10;

/// Where the password comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PasswordFrom {
    /// The environment, or the terminal.
    User,
    /// The whole of stdin.
    Stdin,
}

/// Stores credentials for a registry.
pub(super) async fn log_in(
    client: &Client,
    context: &CliContext,
    registry: &str,
    username: &str,
    from: PasswordFrom,
    shown: AsJson,
) -> Result<(), Failure> {
    let password = match from {
        PasswordFrom::Stdin => from_stdin()?,
        PasswordFrom::User => password(context, username)?,
    };
    let path = format!("/api/v1/images/logins/{}", segment(registry));
    let body = json!({ "username": username, "password": password });
    let login = client.put(&path, &body).await?;
    let line = format!(
        "images of {} are pulled as {} from now on; the password is tried with the next pull",
        text(&login, "/registry"),
        text(&login, "/username")
    );
    shown.done(&context.screen, &login, &line);
    Ok(())
}

/// Deletes the credentials of a registry.
pub(super) async fn log_out(
    client: &Client,
    screen: &Screen,
    registry: &str,
    shown: AsJson,
) -> Result<(), Failure> {
    let path = format!("/api/v1/images/logins/{}", segment(registry));
    client.delete(&path).await?;
    let done = json!({ "registry": registry });
    shown.done(screen, &done, &format!("logged out of {registry}"));
    Ok(())
}

/// Lists the registries with stored credentials.
pub(super) async fn list(client: &Client, screen: &Screen, shown: AsJson) -> Result<(), Failure> {
    let answer = client.get("/api/v1/images/logins").await?;
    let row = |login: &Value| {
        let username = text(login, "/username");
        let username = match username.is_empty() {
            true => "(token)".to_owned(),
            false => username,
        };
        let since = number(login, "/since_ms").map_or_else(String::new, time);
        vec![text(login, "/registry"), username, since]
    };
    shown.list(screen, &answer, &["registry", "username", "since"], row);
    Ok(())
}

/// Returns the password from the environment, or asks for it.
pub(super) fn password(context: &CliContext, username: &str) -> Result<String, Failure> {
    let of_environment = context.environment.filled(GANTRY_REGISTRY_PASSWORD);
    if let Some(password) = of_environment {
        return Ok(password.to_owned());
    }
    let missing = || {
        Failure::new(Exit::Usage, "there is no password").hint(
            "set `GANTRY_REGISTRY_PASSWORD`, pass `--password-stdin`, or run it on a terminal",
        )
    };
    if !io::stdin().is_terminal() {
        return Err(missing());
    }
    prompt::secret(&format!("Password of {username}")).ok_or_else(missing)
}

fn from_stdin() -> Result<String, Failure> {
    let mut password = String::new();
    let read = io::stdin()
        .lock()
        .take(LONGEST)
        .read_to_string(&mut password);
    read.map_err(|error| Failure::plain(Exit::Failed, "the password cannot be read", &error))?;
    let password = password.trim_end_matches(['\r', '\n']);
    match password.is_empty() {
        true => Err(Failure::new(Exit::Usage, "there is no password on stdin")),
        false => Ok(password.to_owned()),
    }
}
