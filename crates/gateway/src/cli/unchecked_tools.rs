//! Tools of a server that are refused or not fully checked, and why. Shown by `up`, `ls` and
//! `status` in the same words.

use serde_json::Value;

use super::client::{Client, segment};
use super::failure::Failure;
use super::format::{list, number, text};
use super::screen::Screen;

/// How many reasons per server are shown in a list of servers.
const SHOWN: usize = 3;

/// Returns how many tools have unchecked parts and how many are refused; nothing if none.
pub(super) fn counts(unchecked: u64, refused: u64) -> Option<String> {
    let mut parts = Vec::new();
    if unchecked > 0 {
        parts.push(format!("{unchecked} with unchecked parts"));
    }
    if refused > 0 {
        parts.push(format!("{refused} refused"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the same for a server in a response.
pub(super) fn counts_of(server: &Value) -> Option<String> {
    let count = |pointer: &str| number(server, pointer).unwrap_or_default();
    let counts = counts(count("/unchecked_tools"), count("/refused_tools"));
    let unapproved = match count("/unapproved") {
        0 => None,
        count => Some(format!("{count} not approved")),
    };
    let parts: Vec<String> = counts.into_iter().chain(unapproved).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the number of tools of a server, with these counts.
pub(super) fn tools_of(server: &Value) -> String {
    let tools = text(server, "/tools");
    match counts_of(server) {
        Some(counts) => format!("{tools} ({counts})"),
        None => tools,
    }
}

/// Returns why parts of tools are not checked, and why tools are not offered.
fn reasons(server: &Value) -> Vec<String> {
    let unchecked = list(server, "/unchecked").iter().map(|part| {
        let (tool, part, why) = (
            text(part, "/tool"),
            text(part, "/part"),
            text(part, "/reason"),
        );
        format!("`{tool}` is not checked against {part}: {why}")
    });
    let excluded = list(server, "/excluded").iter().map(|excluded| {
        let (tool, why) = (text(excluded, "/tool"), text(excluded, "/reason"));
        format!("`{tool}` is not offered: {why}")
    });
    unchecked.chain(excluded).collect()
}

/// Explains, below a list of servers, why some of their tools are refused or not fully checked.
pub(super) async fn explain(
    client: &Client,
    servers: &[Value],
    screen: &Screen,
) -> Result<(), Failure> {
    let mut is_first = true;
    for server in servers {
        if counts_of(server).is_none() {
            continue;
        }
        let name = text(server, "/name");
        let path = format!("/api/v1/mcp/servers/{}", segment(&name));
        let server = client.get(&path).await?;
        let reasons = reasons(&server);
        if is_first {
            screen.line("");
            is_first = false;
        }
        for reason in reasons.iter().take(SHOWN) {
            let line = Screen::safe(&format!("{name}: {reason}"));
            screen.line(&format!("{} {line}", screen.doubtful("!")));
        }
        if reasons.len() > SHOWN {
            let more = reasons.len() - SHOWN;
            let line = format!("{name}: {more} more, see `gantry status {name}`");
            screen.advise(&format!("{} {}", screen.doubtful("!"), Screen::safe(&line)));
        }
    }
    Ok(())
}
