//! Determines whose gateway an entry in a client's file points to: this folder's, or another's.
//!
//! Only entries of this folder's gateway are replaced or removed without a question. Entry point:
//! [`leads`].

use std::path::{Path, PathBuf};

use crate::config::clients::ours::Way;
use crate::data_folder::DataFolder;

use super::super::failure::{Exit, Failure};
use super::Task;
use super::key::Keys;

/// Where an entry points to.
#[derive(Debug)]
pub(super) enum Leads {
    /// The selected gateway.
    Here,
    /// To another one.
    Elsewhere(Elsewhere),
}

/// Another gateway.
#[derive(Debug)]
pub(super) struct Elsewhere {
    /// How a user recognises it: its folder, its URL, or both.
    pub(super) place: String,
    /// Its data folder, if known.
    pub(super) data: Option<DataFolder>,
}

impl Elsewhere {
    /// Describes the entry, and the command to use instead.
    pub(super) fn refusal(&self, task: &Task<'_>) -> Failure {
        let client = task.client.id;
        let failure = Failure::new(Exit::Failed, self.text(task));
        match task.options.remove {
            true => failure.hint_elsewhere(format!(
                "run `gantry connect {client} --remove` in that folder, or add `--yes` to remove it anyway"
            )),
            false => failure.hint(format!(
                "keep both: `gantry connect {client} --name {}`; or replace that one: `gantry connect {client} --yes`",
                other_name(&task.folder)
            )),
        }
    }

    /// Describes the existing entry.
    pub(super) fn text(&self, task: &Task<'_>) -> String {
        let (name, path) = (&task.options.name, task.place.path.display());
        format!(
            "`{name}` in `{path}` points to another gateway: {}",
            self.place
        )
    }

    /// Reports that nothing was changed, and the command to use instead.
    pub(super) fn declined(&self, task: &Task<'_>) -> Failure {
        let client = task.client.id;
        let name = other_name(&task.folder);
        Failure::new(Exit::Failed, "nothing was changed").hint(format!(
            "to have both, run `gantry connect {client} --name {name}`"
        ))
    }
}

/// Returns an entry name under which a second gateway can be added.
fn other_name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name: String = name.chars().filter(|letter| plain(*letter)).collect();
    format!("gantry-{}", if name.is_empty() { "2" } else { &name })
}

/// Determines where an entry points to.
pub(super) async fn leads(task: &Task<'_>, way: &Way, keys: &Keys<'_>) -> Result<Leads, Failure> {
    match way {
        Way::Stdio { args, .. } => stdio(task, args),
        Way::Http { url, key } => Ok(http(task, url, key, keys).await),
    }
}

fn stdio(task: &Task<'_>, args: &[String]) -> Result<Leads, Failure> {
    let value = |flag: &str| {
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == flag {
                return args.next().cloned();
            }
            if let Some(rest) = arg.strip_prefix(flag)
                && let Some(value) = rest.strip_prefix('=')
            {
                return Some(value.to_owned());
            }
        }
        None
    };
    let elsewhere = |place: String| Ok(Leads::Elsewhere(Elsewhere { place, data: None }));
    let ours = task.context.url.as_ref();
    let url = value("--url");
    if url.is_some() || ours.is_some() {
        return match (url, ours) {
            (Some(url), Some(ours)) if same_url(&url, ours) => Ok(Leads::Here),
            (Some(url), _) => elsewhere(url),
            (None, _) => elsewhere(args.join(" ")),
        };
    }
    let folder = value("--folder");
    let data = match (value("--data"), &folder) {
        (Some(data), _) => PathBuf::from(data),
        (None, Some(folder)) => {
            let state_home = task.context.environment.state_home();
            DataFolder::default_path(state_home, Path::new(folder))
                .map_err(|error| Failure::of(Exit::Failed, &error))?
        }
        // It uses the folder in which its client starts it.
        (None, None) => return Ok(Leads::Here),
    };
    let ours = task.folder.join(task.context.data_path()?);
    if real(&data) == real(&ours) {
        return Ok(Leads::Here);
    }
    elsewhere(match folder {
        Some(folder) => format!("that of the folder `{folder}`"),
        None => format!("that of `{}`", data.display()),
    })
}

async fn http(task: &Task<'_>, url: &str, key: &str, keys: &Keys<'_>) -> Leads {
    if keys.is_noted(key) {
        return Leads::Here;
    }
    let ours = task.url().ok();
    let ours = ours.map(|ours| format!("{}/mcp", ours.trim_end_matches('/')));
    let is_same = ours.as_deref().is_some_and(|ours| same_url(url, ours));
    // The folder that issued the key owns the entry, whether or not its gateway runs.
    let mut others = others(task);
    let giver = others.iter().position(|data| keys.is_noted_in(data, key));
    let giver = giver.map(|at| others.swap_remove(at));
    let is_named = is_same && task.context.url.is_some();
    let runs = || others.iter().find(|data| runs_at(data, url)).cloned();
    let sure = match &giver {
        Some(giver) => Some(giver.clone()).filter(|_| !is_named),
        None if is_same => None,
        None => runs(),
    };
    if let Some(data) = sure {
        return Leads::Elsewhere(Elsewhere {
            place: place(&data, url),
            data: Some(data),
        });
    }
    let had_port = || {
        let had = || others.iter().filter(|data| had_url(data, url));
        let with_note = had().find(|data| data.client_keys().contains_key(keys.label()));
        with_note.or_else(|| had().next()).cloned()
    };
    let elsewhere = Leads::Elsewhere(Elsewhere {
        place: url.to_owned(),
        data: giver.or_else(had_port),
    });
    if ours.is_none() {
        // No gateway can be asked; gateways keep their ports.
        return match was_ours(task, url, &others) {
            true => Leads::Here,
            false => elsewhere,
        };
    }
    // A hand-written entry names a variable instead of a key.
    if is_same && !key.starts_with(crate::config::clients::ours::KEY_PREFIX) {
        return Leads::Here;
    }
    // A lost key leaves its label; without one, another folder's gateway may have had this port.
    if keys.opens(key).await || (is_same && keys.is_known().await) {
        Leads::Here
    } else {
        elsewhere
    }
}

/// Returns how a user recognises the gateway of a data folder.
fn place(data: &DataFolder, url: &str) -> String {
    match data.running().and_then(|running| running.folder) {
        Some(folder) => format!("that of the folder `{}`, {url}", folder.display()),
        None => format!("that of `{}`, {url}", data.path().display()),
    }
}

/// Returns whether the gateway of a data folder runs at a URL.
fn runs_at(data: &DataFolder, url: &str) -> bool {
    data.running().is_some_and(|running| {
        let is_it = same_url(url, &format!("{}/mcp", running.url.trim_end_matches('/')));
        is_it && Path::new("/proc").join(running.pid.to_string()).exists()
    })
}

/// Returns whether the gateway of a data folder last ran at a URL; gateways keep their ports.
fn had_url(data: &DataFolder, url: &str) -> bool {
    let known = data.port();
    known.is_some_and(|port| same_url(&format!("http://127.0.0.1:{port}/mcp"), url))
}

/// Returns whether this folder's gateway last ran at a URL, and no other folder's did.
fn was_ours(task: &Task<'_>, url: &str, others: &[DataFolder]) -> bool {
    let Ok(ours) = task.context.data_path() else {
        return false;
    };
    let ours = DataFolder::at(task.folder.join(ours));
    had_url(&ours, url) && !others.iter().any(|data| had_url(data, url))
}

/// Returns the default data folders on this machine, except the selected gateway's.
fn others(task: &Task<'_>) -> Vec<DataFolder> {
    let ours = task.context.data_path().ok();
    let ours = ours.filter(|_| task.context.url.is_none());
    let ours = ours.map(|ours| real(&task.folder.join(ours)));
    let root = task.context.environment.state_root();
    let entries = root.and_then(|root| std::fs::read_dir(root).ok());
    let entries = entries.into_iter().flatten().flatten();
    let folders = entries.map(|entry| DataFolder::at(entry.path()));
    folders
        .filter(|data| Some(real(data.path())) != ours)
        .collect()
}

fn same_url(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
