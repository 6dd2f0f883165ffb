//! `gantry images ls | pull | rm | prune | import | check | login | logout | logins`: the images in
//! the gateway's store, and the credentials for their registries.
//!
//! The gateway pulls and imports; Ctrl-C cancels it. Entry point: [`run`].

mod login;
pub(super) mod pulling;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::{Role, working_folder};
use super::format::{bytes, list, number, pretty, text, time, words};
use super::screen::Screen;

use self::login::PasswordFrom;
use self::pulling::work;

/// The route of pulls and imports.
const IMAGES: &str = "/api/v1/images";

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
    /// Ask the registries whether the images of servers changed under their tags; takes nothing
    Check(AsJson),
    /// Keep credentials for a registry, sealed in the data folder
    Login {
        /// The registry, as images name it, such as `ghcr.io`
        registry: String,
        /// Who pulls; the password is asked for, or read from `GANTRY_REGISTRY_PASSWORD`
        #[arg(long, value_name = "NAME")]
        username: String,
        /// Read the password from stdin
        #[arg(long)]
        password_stdin: bool,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Forget the credentials of a registry
    Logout {
        /// The registry
        registry: String,
        #[command(flatten)]
        shown: AsJson,
    },
    /// List the registries that there are credentials for
    Logins(AsJson),
}

/// Lists, pulls, imports or removes images.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get("/api/v1/images").await?;
            let heading = ["image", "digest", "size", "layers", "pulled", "servers"];
            shown.list(screen, &answer, &heading, row);
            let changed = list(&answer, "/items").iter();
            let changed = changed.filter(|image| !image["changed"].is_null());
            if changed.count() > 0 && !shown.is_wanted() {
                screen.advise(
                    "`gantry restart SERVER --pull` takes an image that changed under its tag",
                );
            }
        }
        Action::Pull {
            image,
            username,
            shown,
        } => {
            let mut body = json!({ "image": image });
            if let Some(username) = username {
                body["username"] = username.as_str().into();
                body["password"] = login::password(context, username)?.into();
            }
            let done = work(&client, IMAGES, &body, image, screen).await?;
            tell(&done, "pulled", shown, screen);
        }
        Action::Import { archive, shown } => {
            if context.url.is_some() {
                let message = "the gateway reads the archive on its own machine";
                return Err(
                    Failure::new(Exit::Usage, message).hint("run `gantry images import` there")
                );
            }
            let archive = working_folder()?.join(archive);
            let body = json!({ "archive": archive });
            let name = archive.display().to_string();
            let done = work(&client, IMAGES, &body, &name, screen).await?;
            tell(&done, "imported", shown, screen);
        }
        Action::Rm { image, shown } => {
            let path = format!("/api/v1/images?image={}", segment(image));
            let freed = client.delete(&path).await?;
            let line = format!("removed {image}{}", freed_shown(&freed, "layer"));
            shown.done(screen, &freed, &line);
        }
        Action::Prune(shown) => {
            let freed = client.post("/api/v1/images/prune", None).await?;
            let layers = freed_shown(&freed, "layer");
            let line = match list(&freed, "/images").len() {
                0 if layers.is_empty() => "nothing to remove".to_owned(),
                0 => format!("pruned{layers}"),
                1 => format!("removed 1 image{layers}"),
                count => format!("removed {count} images{layers}"),
            };
            shown.done(screen, &freed, &line);
        }
        Action::Check(shown) => {
            let answer = client.post("/api/v1/images/check", None).await?;
            let heading = ["server", "image", "runs", "tag"];
            shown.list(screen, &answer, &heading, check_row);
        }
        Action::Login {
            registry,
            username,
            password_stdin,
            shown,
        } => {
            let from = match password_stdin {
                true => PasswordFrom::Stdin,
                false => PasswordFrom::User,
            };
            login::log_in(&client, context, registry, username, from, *shown).await?;
        }
        Action::Logout { registry, shown } => {
            login::log_out(&client, screen, registry, *shown).await?;
        }
        Action::Logins(shown) => login::list(&client, screen, *shown).await?,
    }
    Ok(ExitCode::SUCCESS)
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

/// Describes what was freed, if anything.
pub(super) fn freed_shown(freed: &Value, one: &str) -> String {
    let count = number(freed, "/removed").unwrap_or_default();
    let size = bytes(number(freed, "/bytes").unwrap_or_default());
    match count {
        0 => String::new(),
        1 => format!(": 1 {one}, {size}"),
        count => format!(": {count} {one}s, {size}"),
    }
}

/// Returns the first twelve digits of a digest.
fn short(digest: &str) -> String {
    let hex = digest.trim_start_matches("sha256:");
    hex.chars().take(12).collect()
}

fn check_row(check: &Value) -> Vec<String> {
    let tag = match (text(check, "/error"), text(check, "/tag_digest")) {
        (why, _) if !why.is_empty() => format!("unknown: {why}"),
        (_, digest) if check["changed"] == true => format!("{} (changed)", short(&digest)),
        (_, digest) => short(&digest),
    };
    let runs = short(&text(check, "/digest"));
    vec![text(check, "/server"), text(check, "/image"), runs, tag]
}

fn row(image: &Value) -> Vec<String> {
    let mut digest = short(&text(image, "/digest"));
    let changed = text(image, "/changed/digest");
    if !changed.is_empty() {
        digest = format!("{digest} (tag is {} now)", short(&changed));
    }
    vec![
        text(image, "/image"),
        digest,
        bytes(number(image, "/bytes").unwrap_or_default()),
        list(image, "/layers").len().to_string(),
        number(image, "/pulled_ms").map_or_else(String::new, time),
        words(image, "/servers", ", "),
    ]
}
