//! The servers that a connected client still starts itself, in addition to Gantry.

use std::fs;

use crate::config::clients::Client;
use crate::config::clients::ours::{self, Way};
use crate::config::clients::takeover::Takeover;

use super::super::format::{list, text};
use super::super::screen::Screen;
use super::Task;
use super::key::Keys;

/// The other servers of a client.
pub(super) struct Neighbours {
    /// Those that Gantry offers too, so that the client sees them twice.
    twice: Vec<String>,
    others: Vec<String>,
}

impl Neighbours {
    /// Compares the client's file with Gantry's servers.
    pub(super) async fn find(task: &Task<'_>, way: &Way, keys: &Keys<'_>) -> Self {
        let mut behind = Vec::new();
        let own = task.folder.join("gantry.toml");
        if let Ok(file) = fs::read_to_string(&own)
            && let Ok(file) = Takeover::parse(&own, &file)
        {
            behind = file.names();
        }
        if matches!(way, Way::Http { .. })
            && let Ok(admin) = keys.admin()
            && let Ok(servers) = admin.get("/api/v1/mcp/servers").await
        {
            behind.extend(
                list(&servers, "/items")
                    .iter()
                    .map(|server| text(server, "/name")),
            );
        }
        let servers = task.document.servers(&task.place.at);
        let direct = servers
            .iter()
            .filter(|(_, entry)| ours::way_of(entry).is_none());
        let direct = direct.map(|(name, _)| (*name).to_owned());
        let (twice, others) = direct.partition(|name| behind.contains(name));
        Self { twice, others }
    }

    /// Returns the names of all.
    pub(super) fn all(&self) -> Vec<&str> {
        let all = self.twice.iter().chain(&self.others);
        all.map(String::as_str).collect()
    }

    /// Prints them, with what to do.
    pub(super) fn tell(&self, client: &Client, screen: &Screen) {
        let (title, mark) = (client.title, screen.doubtful("!"));
        if !self.twice.is_empty() {
            let names = Screen::safe(&self.twice.join(", "));
            screen.line(&format!(
                "{mark} {title} also starts these itself, so it has them twice: {names}"
            ));
            screen.line("  Remove them from its file, and keep those behind Gantry.");
        }
        if !self.others.is_empty() {
            let names = Screen::safe(&self.others.join(", "));
            screen.line(&format!(
                "{mark} {title} starts these itself, bypassing Gantry: {names}"
            ));
            screen.advise(&format!(
                "  Take them over with `gantry import {}`, then remove them from its file.",
                client.id
            ));
        }
    }
}
