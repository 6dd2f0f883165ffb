//! `gantry images ls | pull | rm | prune | import`: the images in the gateway's store.
//!
//! Pulls and imports are the gateway's work; Ctrl-C ends them. Entry point: [`run`].

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::config::env::GANTRY_REGISTRY_PASSWORD;

use super::CliContext;
use super::as_json::AsJson;
use super::client::{Client, refusal, segment};
use super::failure::{Exit, Failure};
use super::find::{Role, working_folder};
use super::format::{bytes, list, number, pretty, text, time};
use super::progress::Progress;
use super::screen::Screen;
use super::transfer::Transfer;

/// Characters of a progress bar.
const BAR: u64 = 24;

/// What `gantry images` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the images, what they take and which servers run them
    Ls(AsJson),
    /// Pull an image; one that changed under its tag is taken
    Pull {
        /// The image: `registry/repository[:tag][@sha256:…]`
        image: String,
        /// Who pulls; the password is asked for, or read from `GANTRY_REGISTRY_PASSWORD`
        #[arg(long, value_name = "NAME")]
        username: Option<String>,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Import the images of an archive that `docker save` or another tool made, or of an OCI layout
    Import {
        /// The archive or the folder
        archive: PathBuf,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Remove an image; layers that others use stay
    Rm {
        /// The image
        image: String,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Remove every image that no server is registered with
    Prune(AsJson),
}

/// Lists, pulls, imports or removes images.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get("/api/v1/images").await?;
            let heading = ["image", "digest", "size", "layers", "pulled", "servers"];
            shown.list(screen, &answer, &heading, row);
        }
        Action::Pull {
            image,
            username,
            shown,
        } => {
            let mut body = json!({ "image": image });
            if let Some(username) = username {
                body["username"] = username.as_str().into();
                body["password"] = password(context, username)?.into();
            }
            let done = work(&client, &body, image, screen).await?;
            tell(&done, "pulled", shown, screen);
        }
        Action::Import { archive, shown } => {
            if context.url.is_some() {
                let message = "an archive is read by the gateway, on its own machine";
                return Err(
                    Failure::new(Exit::Usage, message).hint("run `gantry images import` there")
                );
            }
            let archive = working_folder()?.join(archive);
            let body = json!({ "archive": archive });
            let name = archive.display().to_string();
            let done = work(&client, &body, &name, screen).await?;
            tell(&done, "imported", shown, screen);
        }
        Action::Rm { image, shown } => {
            let path = format!("/api/v1/images?image={}", segment(image));
            let freed = client.delete(&path).await?;
            let line = format!("removed {image}{}", freed_shown(&freed, "layer"));
            screen.outcome(shown.is_wanted(), &freed, &line);
        }
        Action::Prune(shown) => {
            let freed = client.post("/api/v1/images/prune", None).await?;
            let line = match number(&freed, "/removed") {
                Some(0) | None => "nothing to remove".to_owned(),
                Some(_) => format!("pruned{}", freed_shown(&freed, "layer")),
            };
            screen.outcome(shown.is_wanted(), &freed, &line);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn password(context: &CliContext, username: &str) -> Result<String, Failure> {
    let of_environment = context.environment.filled(GANTRY_REGISTRY_PASSWORD);
    if let Some(password) = of_environment {
        return Ok(password.to_owned());
    }
    let asked = super::prompt::secret(&format!("Password of {username}"));
    asked.ok_or_else(|| {
        Failure::new(Exit::Usage, "there is no password")
            .hint("set `GANTRY_REGISTRY_PASSWORD`, or run it on a terminal")
    })
}

/// Has the gateway pull or import, and shows how far it is.
async fn work(
    client: &Client,
    body: &Value,
    what: &str,
    screen: &Screen,
) -> Result<Value, Failure> {
    let accept = "text/event-stream";
    let path = "/api/v1/images";
    let mut answer = Transfer::open(client, Method::POST, path, accept, Some(body)).await?;
    let mut progress = Progress::on_terminal(screen);
    while let Some((kind, data)) = answer.event().await? {
        match kind.as_str() {
            "progress" => {
                if let Some(progress) = &mut progress {
                    progress.tell(&bar(what, &data));
                }
            }
            "done" => return Ok(data),
            "failed" => {
                let status = number(&data, "/status").and_then(|code| u16::try_from(code).ok());
                let status = status.and_then(|code| StatusCode::from_u16(code).ok());
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let unknown = || Failure::new(Exit::Failed, format!("{what} could not be had"));
                return Err(refusal(status, &data).unwrap_or_else(unknown));
            }
            _ => {}
        }
    }
    Err(
        Failure::new(Exit::Failed, "the gateway ended before it was done")
            .hint("`gantry status` tells whether it is there"),
    )
}

/// Shows how far it is in one line.
pub(super) fn bar(what: &str, step: &Value) -> String {
    let count = |pointer: &str| number(step, pointer).unwrap_or_default();
    let (received, total) = (count("/received"), count("/total"));
    let (done, layers) = (count("/layers_done"), count("/layers"));
    let (part, whole) = match total {
        0 => (done, layers),
        total => (received.min(total), total),
    };
    let filled = (part * BAR).checked_div(whole).unwrap_or_default();
    let bar: String = (0..BAR)
        .map(|at| if at < filled { '█' } else { '░' })
        .collect();
    let size = match total {
        0 => String::new(),
        total => format!(" {} of {}", bytes(received.min(total)), bytes(total)),
    };
    format!("{bar} {done}/{layers} layers{size} {what}")
}

fn tell(done: &Value, what: &str, shown: &AsJson, screen: &Screen) {
    if shown.is_wanted() {
        screen.line(&pretty(done));
        return;
    }
    for image in list(done, "/items") {
        let (name, digest) = (text(image, "/image"), text(image, "/digest"));
        let size = bytes(number(image, "/bytes").unwrap_or_default());
        screen.line(&Screen::safe(&format!("{what} {name} {digest}, {size}")));
    }
}

/// Says what was freed, if anything was.
pub(super) fn freed_shown(freed: &Value, one: &str) -> String {
    let count = number(freed, "/removed").unwrap_or_default();
    let size = bytes(number(freed, "/bytes").unwrap_or_default());
    match count {
        0 => String::new(),
        1 => format!(": 1 {one}, {size}"),
        count => format!(": {count} {one}s, {size}"),
    }
}

fn row(image: &Value) -> Vec<String> {
    let digest = text(image, "/digest");
    let short: String = digest
        .trim_start_matches("sha256:")
        .chars()
        .take(12)
        .collect();
    let servers: Vec<String> = list(image, "/servers")
        .iter()
        .map(|name| text(name, ""))
        .collect();
    vec![
        text(image, "/image"),
        short,
        bytes(number(image, "/bytes").unwrap_or_default()),
        list(image, "/layers").len().to_string(),
        number(image, "/pulled_ms").map_or_else(String::new, time),
        servers.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_with_what_came() {
        let half = json!({"layers_done": 1, "layers": 2, "received": 512, "total": 1024});
        assert_eq!(
            bar("x", &half),
            "████████████░░░░░░░░░░░░ 1/2 layers 512 B of 1.0 KiB x"
        );
        let import = json!({"layers_done": 0, "layers": 2, "received": 0, "total": 0});
        assert_eq!(bar("x", &import), "░░░░░░░░░░░░░░░░░░░░░░░░ 0/2 layers x");
        assert!(bar("x", &json!({})).contains("0/0"));
    }
}
