//! `gantry connect`: adds Gantry to a client's own file, or removes it.
//!
//! Comments, order and layout of the file are kept, a backup without keys is written next to it,
//! and a second run changes nothing. A client that can send a key gets its own; a shared file, or a
//! client that cannot send one, gets `gantry stdio`. An entry of another folder's gateway is
//! replaced only after a question (`owner`). Never prints a key. Entry point: [`run`].

mod key;
mod list;
mod neighbours;
mod owner;
mod revocation;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::config::clients::disk::{Opened, Readers};
use crate::config::clients::document::Document;
use crate::config::clients::ours::{self, Way};
use crate::config::clients::{BaseFolders, Client, ClientError, Http, Place, Scope, hide};
use crate::data_folder::DataFolder;

use super::CliContext;
use super::diff;
use super::failure::{Exit, Failure};
use super::find::working_folder;
use super::format::pretty;
use super::import::client;
use super::prompt;
use super::screen::Screen;

use key::{Key, Keys};
use neighbours::Neighbours;
use owner::{Elsewhere, Leads};
use revocation::Revocation;

pub(super) use list::connections;

/// Arguments of `gantry connect`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The client, such as `cursor`; by default, the clients on this machine are listed
    #[arg(value_parser = client)]
    client: Option<&'static Client>,
    /// Scope: you everywhere, everybody in this folder, or you in this folder
    #[arg(long, value_enum, default_value_t = Scope::User)]
    scope: Scope,
    /// Gantry's name in the client's file
    #[arg(long, default_value = "gantry")]
    name: String,
    /// Have the client start `gantry stdio` instead of sending a key over HTTP
    #[arg(long, requires = "client")]
    stdio: bool,
    /// Remove Gantry from the client's file, and revoke its key
    #[arg(long, requires = "client")]
    remove: bool,
    /// Replace or remove an entry of another folder's gateway without asking
    #[arg(long, short, requires = "client", visible_alias = "replace")]
    yes: bool,
    /// Show what would change, and change nothing
    #[arg(long, requires = "client")]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Connects, disconnects or lists.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let folder = working_folder()?;
    let bases = BaseFolders::new(&context.environment, &folder);
    let bases = bases.map_err(|error| failed(&error))?;
    let Some(client) = options.client else {
        list::show(&bases, options.json, &context.screen);
        return Ok(ExitCode::SUCCESS);
    };
    let place = client.place(&bases, options.scope).ok_or_else(|| {
        let message = format!(
            "{} has no file for the scope `{}`",
            client.title, options.scope
        );
        Failure::new(Exit::Usage, message).hint("leave out `--scope`")
    })?;
    let opened = Opened::read(&place.path).map_err(|error| failed(&error))?;
    let document = Document::parse(&place.path, opened.text()).map_err(|error| failed(&error))?;
    let servers = document.servers(&place.at);
    let known = servers.iter().find(|(name, _)| *name == options.name);
    let known = known.map(|(_, entry)| (*entry).clone());
    if known
        .as_ref()
        .is_some_and(|entry| ours::way_of(entry).is_none())
    {
        let path = place.path.display();
        let message = format!("`{}` in `{path}` is another server", options.name);
        return Err(Failure::new(Exit::Failed, message).hint("choose another with `--name NAME`"));
    }
    let task = Task {
        options,
        context,
        client,
        folder,
        place,
        opened,
        document,
        known,
    };
    if options.remove {
        task.remove().await
    } else {
        task.connect().await
    }
}

fn failed(error: &ClientError) -> Failure {
    Failure::of(Exit::Failed, error)
}

/// A client's file and the requested change.
struct Task<'a> {
    options: &'a Options,
    context: &'a CliContext,
    client: &'static Client,
    /// The working folder.
    folder: PathBuf,
    place: Place,
    opened: Opened,
    document: Document,
    /// Gantry's entry, if there is one.
    known: Option<Value>,
}

impl Task<'_> {
    async fn connect(self) -> Result<ExitCode, Failure> {
        self.check_place()?;
        self.opened
            .check_writable()
            .map_err(|error| failed(&error))?;
        // A file that cannot be edited is detected before a key is created for it.
        self.text(&self.stdio()?)?;
        let keys = self.keys();
        let elsewhere = self.elsewhere(&keys).await?;
        if let Some(other) = &elsewhere {
            self.may_replace(other)?;
        }
        let (way, key) = self.way(&keys, elsewhere.is_some()).await?;
        let text = self.text(&way)?;
        let changed = text != self.opened.text();
        let holds_key = matches!(way, Way::Http { .. });
        let readers = match holds_key {
            true => Readers::Owner,
            false => Readers::AsBefore,
        };
        let mut copy = None;
        if changed && !self.options.dry_run {
            copy = match self.opened.replace(&text, readers) {
                Ok(copy) => copy,
                Err(error) => {
                    keys.undo(&key).await;
                    return Err(failed(&error));
                }
            };
        }
        if let Way::Http { key, .. } = &way
            && !self.options.dry_run
        {
            keys.note(key);
        }
        let written = changed && !self.options.dry_run;
        // Before anything that may fail, so that no key outlives its entry.
        let revocation = match written && self.has_key() && (elsewhere.is_some() || !holds_key) {
            true => revocation::revoke(&self, &keys, elsewhere.as_ref()).await,
            false => Revocation::Unneeded,
        };
        let closed = holds_key && self.opened.is_open_to_others() && !self.options.dry_run;
        if closed && !changed {
            self.opened
                .close_to_others()
                .map_err(|error| failed(&error))?;
        }
        let cleaned = self.clean_copies();
        let neighbours = Neighbours::find(&self, &way, &keys).await;
        let screen = &match self.options.json {
            true => self.context.screen.beside_stdout(),
            false => self.context.screen,
        };
        if self.options.json {
            let (kind, url) = match &way {
                Way::Http { url, .. } => ("http", Some(url)),
                Way::Stdio { .. } => ("stdio", None),
            };
            self.context.screen.line(&pretty(&json!({
                "client": self.client.id, "scope": self.options.scope.to_string(),
                "path": self.place.path, "name": self.options.name, "way": kind, "url": url,
                "written": written, "backup": copy, "key_made": matches!(key, Key::Made { .. }),
                "closed_to_others": closed, "copies_cleaned": cleaned.as_deref().unwrap_or_default(),
                "keys_revoked": revocation.number(), "old_key": revocation.word(),
                "replaces": elsewhere.as_ref().map(|other| &other.place),
                "also_direct": neighbours.all(), "diff": self.difference(&text),
            })));
        } else {
            self.tell(&way, written, copy, &text);
        }
        if elsewhere.is_some() || revocation.number().is_none() {
            revocation.tell(elsewhere.as_ref(), screen);
        }
        let cleaned = cleaned?;
        if self.options.json {
            return Ok(ExitCode::SUCCESS);
        }
        told_clean(&cleaned, screen);
        if holds_key && self.opened.is_open_to_others() {
            let (mark, done) = match closed {
                true => (
                    screen.good("✓"),
                    "others on this machine could read it; now only its owner can (mode 0600)",
                ),
                false => (
                    screen.doubtful("!"),
                    "others on this machine can read it; connecting makes it private (mode 0600)",
                ),
            };
            screen.line(&format!("{mark} {done}"));
        }
        neighbours.tell(self.client, screen);
        Ok(ExitCode::SUCCESS)
    }

    async fn remove(self) -> Result<ExitCode, Failure> {
        let screen = &self.context.screen;
        let (name, path) = (&self.options.name, self.place.path.display());
        let keys = self.keys();
        let elsewhere = self.elsewhere(&keys).await?;
        if let Some(other) = elsewhere.as_ref().filter(|_| !self.options.yes) {
            return Err(other.refusal(&self));
        }
        let text = if self.known.is_some() {
            let removed = self.document.remove(&self.place.at, name);
            removed.map_err(|error| failed(&error))?
        } else {
            self.opened.text().to_owned()
        };
        let changed = text != self.opened.text();
        let mut copy = None;
        if changed && !self.options.dry_run {
            copy = self
                .opened
                .replace(&text, Readers::AsBefore)
                .map_err(|error| failed(&error))?;
        }
        // Before anything that may fail. A missing entry may have left its key behind.
        let has_key = self.has_key() || (elsewhere.is_none() && keys.has_note());
        let revocation = match has_key && !self.options.dry_run {
            true => revocation::revoke(&self, &keys, elsewhere.as_ref()).await,
            false => Revocation::Unneeded,
        };
        let cleaned = self.clean_copies();
        if self.options.json {
            screen.line(&pretty(&json!({
                "client": self.client.id, "scope": self.options.scope.to_string(),
                "path": self.place.path, "name": name, "written": changed && !self.options.dry_run,
                "backup": copy, "keys_revoked": revocation.number(), "old_key": revocation.word(),
                "copies_cleaned": cleaned.as_deref().unwrap_or_default(),
                "diff": self.difference(&text),
            })));
            return cleaned.map(|_| ExitCode::SUCCESS);
        }
        if !changed {
            screen.line(&format!(
                "there is no `{name}` in `{path}`; nothing was changed"
            ));
        } else if let Some(difference) = self.difference(&text) {
            screen.line(&diff::painted(&difference, screen));
        } else {
            screen.line(&format!(
                "`{name}` was removed from `{path}`{}",
                beside(copy.as_ref())
            ));
        }
        match self.has_key() {
            true => revocation.tell(elsewhere.as_ref(), screen),
            false => revocation.tell_without_entry(screen),
        }
        told_clean(&cleaned?, screen);
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the other gateway that the entry points to, if any.
    async fn elsewhere(&self, keys: &Keys<'_>) -> Result<Option<Elsewhere>, Failure> {
        let Some(way) = self.known.as_ref().and_then(ours::way_of) else {
            return Ok(None);
        };
        Ok(match owner::leads(self, &way, keys).await? {
            Leads::Here => None,
            Leads::Elsewhere(other) => Some(other),
        })
    }

    /// Asks before an entry of another gateway is replaced.
    fn may_replace(&self, other: &Elsewhere) -> Result<(), Failure> {
        let screen = &self.context.screen;
        if self.options.yes {
            return Ok(());
        }
        if self.options.dry_run {
            if !self.options.json {
                let told = Screen::safe(&other.text(self));
                screen.line(&format!("{} {told}", screen.doubtful("!")));
            }
            return Ok(());
        }
        if self.options.json || !prompt::is_possible() {
            return Err(other.refusal(self));
        }
        screen.line(&Screen::safe(&other.text(self)));
        screen.output().flush();
        match prompt::yes("Replace it?") {
            true => Ok(()),
            false => Err(other.declined(self)),
        }
    }

    /// Returns whether the existing entry holds a key.
    fn has_key(&self) -> bool {
        matches!(
            self.known.as_ref().and_then(ours::way_of),
            Some(Way::Http { key, .. }) if key.starts_with(ours::KEY_PREFIX)
        )
    }

    /// Removes keys from backups that earlier versions left next to the file.
    fn clean_copies(&self) -> Result<Vec<PathBuf>, Failure> {
        match self.options.dry_run {
            true => Ok(Vec::new()),
            false => self.opened.clean_copies().map_err(|error| failed(&error)),
        }
    }

    /// A missing folder means that the client is not installed; a project's folder is created.
    fn check_place(&self) -> Result<(), Failure> {
        let parent = self.place.path.parent().unwrap_or(&self.folder);
        if self.options.scope == Scope::Project || parent.is_dir() {
            return Ok(());
        }
        Err(failed(&ClientError::Absent {
            client: self.client.title,
            folder: parent.to_owned(),
        }))
    }

    /// Returns how the client reaches the gateway, with a key if needed.
    async fn way(&self, keys: &Keys<'_>, is_anothers: bool) -> Result<(Way, Key), Failure> {
        // A shared project file must not contain a key.
        let shared = self.options.scope == Scope::Project;
        if self.options.stdio || shared || self.client.http == Http::No {
            return Ok((self.stdio()?, Key::None));
        }
        let url = format!("{}/mcp", self.url()?.trim_end_matches('/'));
        let known = match self.known.as_ref().and_then(ours::way_of) {
            Some(Way::Http { key, .. }) if !is_anothers => Some(key),
            Some(Way::Http { .. } | Way::Stdio { .. }) | None => None,
        };
        let key = if self.options.dry_run {
            Key::Known(known.unwrap_or_else(|| format!("{}{}", ours::KEY_PREFIX, hide::HIDDEN)))
        } else {
            keys.settle(known).await?
        };
        let text = key.text().to_owned();
        Ok((Way::Http { url, key: text }, key))
    }

    fn url(&self) -> Result<String, Failure> {
        if let Some(url) = &self.context.url {
            return Ok(url.clone());
        }
        let data = DataFolder::at(self.context.data_path()?);
        let running = data.running().ok_or_else(|| {
            let message = format!("no gateway is running in `{}`", data.path().display());
            Failure::new(Exit::NoGateway, message).hint(
                "start it with `gantry up`, or connect with `--stdio`, which starts one when needed",
            )
        })?;
        Ok(running.url)
    }

    fn stdio(&self) -> Result<Way, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::plain(Exit::Failed, "cannot determine this program's path", &error)
        })?;
        let absolute = |path: PathBuf| self.folder.join(path).to_string_lossy().into_owned();
        let mut args = vec!["stdio".to_owned()];
        if let Some(url) = &self.context.url {
            args.extend(["--url".to_owned(), url.clone()]);
        } else {
            args.extend([
                "--folder".to_owned(),
                self.folder.to_string_lossy().into_owned(),
            ]);
            args.extend(["--data".to_owned(), absolute(self.context.data_path()?)]);
        }
        if let Some(file) = &self.context.key_file {
            args.extend(["--key-file".to_owned(), absolute(file.clone())]);
        }
        Ok(Way::Stdio {
            command: program.to_string_lossy().into_owned(),
            args,
        })
    }

    fn text(&self, way: &Way) -> Result<String, Failure> {
        let members = match &self.known {
            Some(known) => ours::renewed(self.client, way, known),
            None => ours::entry(self.client, way),
        };
        let text = self
            .document
            .set(&self.place.at, &self.options.name, &members, &ours::MEMBERS);
        text.map_err(|error| failed(&error))
    }

    /// Returns the keys of this client's file.
    fn keys(&self) -> Keys<'_> {
        let label = key::label(self.client.id, &self.options.name, &self.place.path);
        Keys::new(self.context, label)
    }

    /// Returns the diff of a dry run.
    fn difference(&self, text: &str) -> Option<String> {
        self.options.dry_run.then(|| {
            let (before, after) = (hide::json(self.opened.text()), hide::json(text));
            diff::unified(&self.place.path, &before, &after)
        })
    }

    fn tell(&self, way: &Way, written: bool, copy: Option<PathBuf>, text: &str) {
        let screen = &self.context.screen;
        let (title, path) = (self.client.title, self.place.path.display());
        let reached = match way {
            Way::Http { url, .. } => format!("over HTTP at {url}"),
            Way::Stdio { .. } => "by starting `gantry stdio`".to_owned(),
        };
        match self.difference(text) {
            Some(difference) if difference.is_empty() => {
                screen.line(&format!(
                    "{title} is connected already {reached}; nothing would change"
                ));
            }
            Some(difference) => screen.line(&diff::painted(&difference, screen)),
            None if !written => {
                screen.line(&format!(
                    "{title} is connected already {reached}; nothing was changed"
                ));
            }
            None => {
                screen.line(&format!(
                    "{} {title} is connected {reached}",
                    screen.good("✓")
                ));
                let line = format!(
                    "  `{}` is in `{path}`{}",
                    self.options.name,
                    beside(copy.as_ref())
                );
                screen.line(&Screen::safe(&line));
                screen.line(&format!("  Restart {title} to load the change."));
            }
        }
    }
}

/// Lists the backups from which keys were removed.
fn told_clean(cleaned: &[PathBuf], screen: &Screen) {
    for copy in cleaned {
        let line = format!("a key was removed from `{}`", copy.display());
        screen.line(&format!("{} {}", screen.good("✓"), Screen::safe(&line)));
    }
}

fn beside(copy: Option<&PathBuf>) -> String {
    copy.map_or_else(String::new, |copy| {
        format!("; backup in `{}`", copy.display())
    })
}
