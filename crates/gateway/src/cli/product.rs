//! `gantry product show | install | upgrade | ls | uninstall`: sets of servers, described by a
//! manifest.
//!
//! A manifest is shown in full, with all additions, changes and removals, before anything is done.
//! Exactly what was shown is installed.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::{AsJson, Named};
use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, pretty, text, words};
use super::prompt;
use super::screen::Screen;

/// The maximum size of a manifest, in bytes.
const LONGEST: u64 = 1 << 20;

/// Arguments of `gantry product`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what a manifest would install, or an installed product with its manifest
    Show {
        /// A file with a manifest, `-` for stdin, or the name of an installed product
        product: String,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Install a product from its manifest, after showing all of it
    Install(Apply),
    /// Upgrade an installed product to another manifest, after showing what changes
    Upgrade(Apply),
    /// List the installed products
    Ls(AsJson),
    /// Remove a product with its servers; their volumes stay
    Uninstall(Named),
}

#[derive(Debug, Args)]
struct Apply {
    /// The manifest, JSON or YAML; `-` for stdin
    manifest: PathBuf,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Refuse any manifest with another SHA-256
    #[arg(long, value_name = "HASH")]
    sha256: Option<String>,
    #[command(flatten)]
    shown: AsJson,
}

/// Shows, installs or removes products.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    match &options.action {
        Action::Show { product, shown } => {
            let is_file = product == "-" || std::path::Path::new(product).is_file();
            let answer = match is_file {
                true => plan(&client, &manifest(product.as_ref())?).await?,
                false => {
                    let path = format!("/api/v1/products/{}", segment(product));
                    let found = client.get(&path).await;
                    found.map_err(|failure| {
                        failure.cause(format!("nor is there a file `{product}`"))
                    })?
                }
            };
            match is_file && !shown.is_wanted() {
                true => show(&answer, screen),
                false => screen.line(&pretty(&answer)),
            }
        }
        Action::Install(apply) => install(apply, &client, screen, false).await?,
        Action::Upgrade(apply) => install(apply, &client, screen, true).await?,
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/products").await?;
            shown.list(
                screen,
                &answer,
                &["product", "version", "servers", "sha256"],
                row,
            );
        }
        Action::Uninstall(Named { name, shown }) => {
            let path = format!("/api/v1/products/{}", segment(name));
            client.delete(&path).await?;
            let said = format!("uninstalled {name} with its servers");
            shown.done(screen, &json!({"uninstalled": name}), &said);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the plan, asks for confirmation, and carries it out.
async fn install(
    apply: &Apply,
    client: &Client,
    screen: &Screen,
    is_upgrade: bool,
) -> Result<(), Failure> {
    let manifest = manifest(&apply.manifest)?;
    let plan = plan(client, &manifest).await?;
    let (name, hash) = (text(&plan, "/name"), text(&plan, "/sha256"));
    if let Some(wanted) = &apply.sha256
        && !wanted.eq_ignore_ascii_case(&hash)
    {
        let message = format!("the manifest has the SHA-256 {hash}, not {wanted}");
        return Err(Failure::new(Exit::Failed, message));
    }
    let is_installed = plan.get("installed_sha256").is_some();
    match (is_installed, is_upgrade) {
        (true, false) => {
            let failure = Failure::new(Exit::Failed, format!("{name} is installed"));
            return Err(failure.hint("`gantry product upgrade` takes another manifest"));
        }
        (false, true) => {
            let failure = Failure::new(Exit::Failed, format!("{name} is not installed"));
            return Err(failure.hint("`gantry product install` installs it"));
        }
        _ => {}
    }
    if !apply.shown.is_wanted() {
        show(&plan, screen);
    }
    if !apply.yes && (!prompt::is_possible() || !prompt::yes("Continue?")) {
        let failure = Failure::new(Exit::Failed, "nothing was installed");
        return Err(failure.hint("`--yes` installs what is shown without asking"));
    }
    let mut body = json!({"manifest": manifest, "sha256": hash});
    if is_installed {
        body["installed_sha256"] = plan["installed_sha256"].clone();
    }
    let done = client.post("/api/v1/products", Some(&body)).await?;
    let said = match text(&done, "/state").as_str() {
        "pending" => format!("{name} waits for a second person as {}", text(&done, "/id")),
        _ => format!("{name} {} is installed", text(&done, "/version")),
    };
    apply.shown.done(screen, &done, &said);
    Ok(())
}

async fn plan(client: &Client, manifest: &str) -> Result<Value, Failure> {
    let body = json!({ "manifest": manifest });
    client.post("/api/v1/products/preview", Some(&body)).await
}

/// Shows a plan in full.
fn show(plan: &Value, screen: &Screen) {
    let line = |said: String| screen.line(&Screen::safe(&said));
    line(format!(
        "{} {}  {}",
        text(plan, "/name"),
        text(plan, "/version"),
        text(plan, "/description")
    ));
    line(format!("sha256 {}", text(plan, "/sha256")));
    if plan.get("installed_version").is_some() {
        line(format!("installed: {}", text(plan, "/installed_version")));
    }
    for server in list(plan, "/added") {
        line(format!("+ {}", text(server, "/name")));
        screen.line(&indented(&server["spec"], &Value::Null));
    }
    for server in list(plan, "/changed") {
        let (before, after) = (&server["before"], &server["after"]);
        line(format!("~ {}, now", text(server, "/name")));
        screen.line(&indented(before, after));
        line(format!("~ {}, then", text(server, "/name")));
        screen.line(&indented(after, before));
    }
    for name in list(plan, "/removed") {
        line(format!("- {}", text(name, "")));
    }
    for name in list(plan, "/unchanged") {
        line(format!("= {}", text(name, "")));
    }
    for reason in list(plan, "/needs_approval") {
        line(format!(
            "! a second person must approve it: {}",
            text(reason, "")
        ));
    }
}

/// Returns the members of a server that say something, and another thing than those of the `other`.
fn indented(spec: &Value, other: &Value) -> String {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let members = spec.as_object().into_iter().flatten();
    let members = members.filter(|(name, value)| match other.get(name.as_str()) {
        Some(same) => same != *value,
        None => !is_empty(value),
    });
    let members = members.map(|(name, value)| (name.clone(), value.clone()));
    let text = pretty(&Value::Object(members.collect()));
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

fn row(product: &Value) -> Vec<String> {
    vec![
        text(product, "/name"),
        text(product, "/version"),
        words(product, "/servers", " "),
        text(product, "/sha256"),
    ]
}

/// Reads a manifest, up to the maximum size.
fn manifest(path: &std::path::Path) -> Result<String, Failure> {
    let failed = |error: &std::io::Error| {
        Failure::plain(
            Exit::Failed,
            format!("cannot read `{}`", path.display()),
            error,
        )
    };
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().take(LONGEST + 1).read_to_string(&mut text),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text)),
    };
    read.map_err(|error| failed(&error))?;
    match text.len() as u64 > LONGEST {
        true => Err(Failure::new(
            Exit::Failed,
            "the manifest is longer than 1 MiB",
        )),
        false => Ok(text),
    }
}
