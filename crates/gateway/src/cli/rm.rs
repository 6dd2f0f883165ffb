//! `gantry rm SERVER`: stops and removes a registered server, or removes a server from its file
//! after a question.
//!
//! The rest of the file and its approvals are kept. Entry point: [`run`].

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::config::clients::disk::{Opened, Readers};
use crate::config::clients::{ClientError, hide};
use crate::config::document::Syntax;
use crate::config::removal;
use crate::data_folder::DataFolder;

use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::files::{Files, Setup, home};
use super::find::{Role, working_folder};
use super::follow::Follow;
use super::format::{list, text};
use super::screen::Screen;
use super::{CliContext, diff, prompt};

/// How long the gateway may take to apply the changed file.
const APPLIED: Duration = Duration::from_secs(15);

/// Arguments of `gantry rm`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// Remove its volumes as well, with everything in them
    #[arg(long)]
    volumes: bool,
    /// Take a server that comes from a file out of the file without asking
    #[arg(long, short)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Removes the server; exits with 1 if it is unknown.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let path = format!("/api/v1/mcp/servers/{}", segment(&options.server));
    let server = client.get(&path).await?;
    let (name, file) = (text(&server, "/name"), text(&server, "/file"));
    if server["source"] == "file" && !file.is_empty() {
        let edit = Edit {
            options,
            context,
            name,
            file: PathBuf::from(file),
        };
        return edit.run(&client, &path).await;
    }
    match options.volumes {
        true => client.delete(&format!("{path}?volumes=true")).await?,
        false => client.delete(&path).await?,
    };
    let kept = list(&server, "/hosting/volumes");
    let line = match kept.is_empty() || options.volumes {
        true => format!("{name} is removed"),
        false => format!("{name} is removed; its volumes stay, and `gantry volumes ls` lists them"),
    };
    screen.outcome(options.json, &json!({"removed": name}), &line);
    Ok(ExitCode::SUCCESS)
}

/// A server to be removed from its file.
struct Edit<'a> {
    options: &'a Options,
    context: &'a CliContext,
    name: String,
    file: PathBuf,
}

impl Edit<'_> {
    async fn run(&self, client: &Client, path: &str) -> Result<ExitCode, Failure> {
        let (name, file) = (&self.name, self.file.display());
        let origin = format!("`{name}` comes from `{file}`");
        if self.context.url.is_some() {
            return Err(Failure::new(Exit::Failed, origin)
                .hint("remove it from that file, on the gateway's machine"));
        }
        let failed = |error: ClientError| Failure::of(Exit::Failed, &error);
        let opened = Opened::read(&self.file).map_err(failed)?;
        opened.check_writable().map_err(failed)?;
        let folder = self.folder()?;
        let of_home = home(self.context).map(|home| home.join(".kode.json"));
        let project = (of_home.as_ref() == Some(&self.file)).then_some(folder.as_path());
        let left = removal::without(&self.file, opened.text(), name, project).map_err(failed)?;
        let left = left.ok_or_else(|| {
            Failure::new(Exit::Failed, format!("{origin}, and is no longer there"))
                .hint("`gantry config check` checks the files")
        })?;
        if !self.options.yes {
            self.ask(&origin, opened.text(), &left)?;
        }
        let copy = opened.replace(&left, Readers::AsBefore).map_err(failed)?;
        let next = self.next();
        let is_applied = self.applied(client, path, next.as_deref()).await;
        self.tell(copy.as_deref(), next.as_deref(), is_applied);
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the folder whose configuration the gateway reads.
    fn folder(&self) -> Result<PathBuf, Failure> {
        let data = DataFolder::at(self.context.data_path()?);
        match data.running().and_then(|running| running.folder) {
            Some(folder) => Ok(folder),
            None => working_folder(),
        }
    }

    /// Shows the diff and asks.
    fn ask(&self, origin: &str, before: &str, after: &str) -> Result<(), Failure> {
        let name = &self.name;
        if self.options.json || !prompt::is_possible() {
            let message = format!("{origin}, and would be back with the next start");
            let hint = format!(
                "remove it from the file with `gantry rm {name} --yes`, or edit the file yourself"
            );
            return Err(Failure::new(Exit::Failed, message).hint(hint));
        }
        let screen = &self.context.screen;
        let hidden = |text: &str| match Syntax::of(&self.file) {
            Syntax::Json | Syntax::Yaml => hide::json(text),
            Syntax::Toml => hide::toml(text),
        };
        let difference = diff::unified(&self.file, &hidden(before), &hidden(after));
        screen.line(&format!("{origin}. This would change there:"));
        screen.line(&diff::painted(&difference, screen));
        match prompt::yes(&format!("Remove `{name}` from the file?")) {
            true => Ok(()),
            false => Err(Failure::new(Exit::Failed, "nothing was changed")),
        }
    }

    /// Returns the file whose entry of the same name takes effect after the removal, if the gateway
    /// discovers files in its folder.
    fn next(&self) -> Option<PathBuf> {
        let files = Files {
            config: Vec::new(),
            no_discover: false,
        };
        let data = DataFolder::at(self.context.data_path().ok()?);
        let setup = Setup::of(self.folder().ok()?, &files, data, self.context);
        let mut sources = setup.sources.iter();
        sources.find(|source| setup.folder.join(&source.path) == self.file)?;
        let plan = setup.load().ok()?;
        let mut servers = plan.servers.into_iter();
        let other = servers.find(|server| server.spec.name.as_str() == self.name)?;
        other.spec.file
    }

    /// Waits until the gateway has applied the file; returns whether it has.
    async fn applied(&self, client: &Client, path: &str, next: Option<&Path>) -> bool {
        let file = self.file.display().to_string();
        let applied = async {
            let mut following = Follow::open(client, "servers").await.ok()?;
            loop {
                match (client.get(path).await, next) {
                    (Err(_), None) => return Some(()),
                    (Ok(server), _) if text(&server, "/file") != file => return Some(()),
                    (Ok(_) | Err(_), _) => following.changed().await.ok()?,
                }
            }
        };
        matches!(timeout(APPLIED, applied).await, Ok(Some(())))
    }

    fn tell(&self, copy: Option<&Path>, next: Option<&Path>, is_applied: bool) {
        let (screen, name) = (&self.context.screen, &self.name);
        let beside = copy.map(|copy| copy.display().to_string());
        if self.options.json {
            let value = json!({
                "removed": name, "file": self.file, "backup": beside, "also_in": next,
            });
            return screen.outcome(true, &value, "");
        }
        let mut line = format!("{name} is removed from `{}`", self.file.display());
        if let Some(beside) = beside {
            line.push_str(&format!("; backup in `{beside}`"));
        }
        screen.outcome(false, &Value::Null, &line);
        let mark = screen.doubtful("!");
        if let Some(next) = next {
            let line = format!(
                "`{name}` is also in `{}`, which takes effect now",
                next.display()
            );
            screen.line(&format!("{mark} {}", Screen::safe(&line)));
        }
        if !is_applied {
            screen.advise(&format!(
                "{mark} the gateway has not applied it yet; `gantry status` shows when it has"
            ));
        }
    }
}
