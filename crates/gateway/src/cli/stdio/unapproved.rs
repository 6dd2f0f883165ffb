//! Reports on stderr which servers of the folder need approval, since a client that lists no tools
//! does not say why.
//!
//! Entry point: [`tell`].

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use crate::data_folder::DataFolder;

use super::super::CliContext;
use super::super::format::{list, quoted, text};
use super::super::screen::Screen;

/// How long the gateway may take to answer; the client is served in any case.
const ANSWER: Duration = Duration::from_secs(5);

/// Prints which servers need approval, and the command to type.
pub(super) async fn tell(context: &CliContext, folder: &DataFolder, working: Option<&Path>) {
    let Ok(client) = context.admin_of(folder) else {
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
    command.push_str(&context.screen.command("approve"));
    let names = waiting.join(", ");
    for line in [
        format!("gantry: these servers are not approved and offer nothing yet: {names}"),
        format!("gantry: to review and approve them, run: {command}"),
    ] {
        context.screen.error_line(&Screen::safe(&line));
    }
}
