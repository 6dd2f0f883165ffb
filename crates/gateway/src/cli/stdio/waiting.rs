//! What of the folder waits for approval, said on stderr: a client that lists no tools says nothing of it.
//!
//! Entry point: [`tell`].

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use crate::data_folder::DataFolder;

use super::super::Surroundings;
use super::super::format::{list, quoted, text};
use super::super::screen::Screen;

/// How long the gateway may take to say it; the client is served in any case.
const ANSWER: Duration = Duration::from_secs(5);

/// Says which servers wait, and what to type.
pub(super) async fn tell(surroundings: &Surroundings, folder: &DataFolder, working: Option<&Path>) {
    let Ok(client) = surroundings.admin_of(folder) else {
        return;
    };
    let Ok(Ok(servers)) = timeout(ANSWER, client.get_all("/api/v1/mcp/servers")).await else {
        return;
    };
    let waiting = list(&servers, "/items")
        .iter()
        .filter(|server| server["state"] == "needs_approval");
    let waiting: Vec<String> = waiting.map(|server| text(server, "/name")).collect();
    if waiting.is_empty() {
        return;
    }
    let started_in = folder.running().and_then(|running| running.folder);
    let place = started_in.as_deref().or(working);
    let mut command = String::new();
    if let Some(place) = place {
        command.push_str(&format!("cd {} && ", quoted(place)));
    }
    command.push_str(&surroundings.screen.command("approve"));
    let names = waiting.join(", ");
    for line in [
        format!("gantry: these servers are not approved and offer nothing yet: {names}"),
        format!("gantry: to see what they would run and let them, type: {command}"),
    ] {
        surroundings.screen.error_line(&Screen::safe(&line));
    }
}
