//! Whose gateway an entry of ours in a client's file leads to: this folder's, or another's.
//!
//! Only what leads here is replaced or removed without a word. Entry point: [`leads`].

use std::path::{Path, PathBuf};

use crate::app::data::DataFolder;
use crate::config::clients::ours::Way;

use super::super::failure::{Exit, Failure};
use super::super::screen::Screen;
use super::Task;
use super::key::Keys;

/// Where an entry leads.
#[derive(Debug)]
pub(super) enum Leads {
    /// To the gateway that the person means now.
    Here,
    /// To another one.
    Elsewhere(Elsewhere),
}

/// Another gateway.
#[derive(Debug)]
pub(super) struct Elsewhere {
    /// What a person knows it by: its folder, its URL, or both.
    pub(super) place: String,
    /// Its data folder, if it runs on this machine.
    pub(super) data: Option<DataFolder>,
}

impl Elsewhere {
    /// Says what is there, and what to type instead.
    pub(super) fn refusal(&self, task: &Task<'_>) -> Failure {
        let client = task.client.id;
        let hint = match task.options.remove {
            true => format!(
                "run `gantry connect {client} --remove` in that folder, or add `--yes` to take it out all the same"
            ),
            false => format!(
                "keep both: `gantry connect {client} --name {}`; or replace that one: `gantry connect {client} --yes`",
                other_name(&task.folder)
            ),
        };
        Failure::new(Exit::Failed, self.text(task)).hint(hint)
    }

    /// Says what is there.
    pub(super) fn text(&self, task: &Task<'_>) -> String {
        let (name, path) = (&task.options.name, task.place.path.display());
        format!(
            "`{name}` in `{path}` leads to another gateway: {}",
            self.place
        )
    }

    /// Says that nothing was changed, and what to type instead.
    pub(super) fn declined(&self, task: &Task<'_>) -> Failure {
        let client = task.client.id;
        let name = other_name(&task.folder);
        Failure::new(Exit::Failed, "nothing was changed").hint(format!(
            "to have both, run `gantry connect {client} --name {name}`"
        ))
    }

    /// Revokes the key that the entry held there, and says what came of it.
    pub(super) async fn revoke(&self, keys: &Keys<'_>, screen: &Screen) {
        let revoked = match &self.data {
            Some(data) => keys.revoke_at(data).await,
            None => None,
        };
        let line = match revoked {
            Some(0) => return,
            Some(_) => format!("{} its key at that gateway is revoked", screen.good("✓")),
            None => format!(
                "{} its key is still valid at that gateway; revoke it there with `gantry key ls` and `gantry key revoke`",
                screen.doubtful("!")
            ),
        };
        screen.line(&line);
    }
}

/// Returns a name under which a folder's gateway can stand beside another.
fn other_name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name: String = name.chars().filter(|letter| plain(*letter)).collect();
    format!("gantry-{}", if name.is_empty() { "2" } else { &name })
}

/// Tells where an entry leads.
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
    let ours = task.surroundings.url.as_ref();
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
            let state_home = task.surroundings.environment.state_home();
            DataFolder::default_path(state_home, Path::new(folder))
                .map_err(|error| Failure::of(Exit::Failed, &error))?
        }
        // It takes the folder that its client starts it in.
        (None, None) => return Ok(Leads::Here),
    };
    let ours = task.folder.join(task.surroundings.data_path()?);
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
    if !is_same && let Some((data, folder)) = running_elsewhere(task, url) {
        let place = match folder {
            Some(folder) => format!("that of the folder `{}`, {url}", folder.display()),
            None => url.to_owned(),
        };
        return Leads::Elsewhere(Elsewhere {
            place,
            data: Some(data),
        });
    }
    let elsewhere = Leads::Elsewhere(Elsewhere {
        place: url.to_owned(),
        data: None,
    });
    if ours.is_none() {
        // Nobody can be asked; a gateway keeps its port.
        return match was_ours(task, url) {
            true => Leads::Here,
            false => elsewhere,
        };
    }
    // What was written by hand names a variable in the place of a key.
    if is_same && !key.starts_with(crate::config::clients::ours::KEY_PREFIX) {
        return Leads::Here;
    }
    // A key that was lost leaves its label; without one, another folder's gateway may have had this port.
    if keys.opens(key).await || (is_same && keys.is_known().await) {
        Leads::Here
    } else {
        elsewhere
    }
}

/// Finds the running gateway of another folder behind a URL.
fn running_elsewhere(task: &Task<'_>, url: &str) -> Option<(DataFolder, Option<PathBuf>)> {
    let ours = task.surroundings.data_path().ok();
    let ours = ours.map(|ours| real(&task.folder.join(ours)));
    others(task).into_iter().find_map(|data| {
        let running = data.running()?;
        let is_it = same_url(url, &format!("{}/mcp", running.url.trim_end_matches('/')));
        let is_other = task.surroundings.url.is_some() || Some(real(data.path())) != ours;
        let is_alive = Path::new("/proc").join(running.pid.to_string()).exists();
        (is_it && is_other && is_alive).then_some((data, running.folder))
    })
}

/// Tells whether the gateway of this folder had a URL when it ran last, and no other folder's had.
fn was_ours(task: &Task<'_>, url: &str) -> bool {
    let port_of = |data: &DataFolder| {
        data.port()
            .map(|port| format!("http://127.0.0.1:{port}/mcp"))
    };
    let Ok(ours) = task.surroundings.data_path() else {
        return false;
    };
    let ours = DataFolder::at(task.folder.join(ours));
    let is_it = |data: &DataFolder| port_of(data).is_some_and(|known| same_url(&known, url));
    let mut others = others(task).into_iter();
    is_it(&ours) && !others.any(|data| real(data.path()) != real(ours.path()) && is_it(&data))
}

/// Returns the data folders that gateways have on this machine, where they usually are.
fn others(task: &Task<'_>) -> Vec<DataFolder> {
    let root = task.surroundings.environment.state_root();
    let entries = root.and_then(|root| std::fs::read_dir(root).ok());
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| DataFolder::at(entry.path())).collect()
}

fn same_url(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
