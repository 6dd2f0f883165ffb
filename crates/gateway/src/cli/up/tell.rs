//! What `gantry up` tells the person: each server as it comes, then how to use the gateway.
//!
//! A server that takes long does not hold the rest back: after a moment the endpoint is shown, and the
//! late ones follow; on a terminal a line that turns says who is awaited. Never prints a key, only where
//! it is. With `--json` the gateway is told in one line on stdout, and the rest on stderr. Entry point:
//! [`Teller::tell`].

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use gantry_engine::{Engine, HostReport, Report, ServerView};
use gantry_model::id::ServerName;
use gantry_model::status::State;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::app::VERSION;
use crate::app::data::DataFolder;
use crate::config::mistake::Mistake;
use crate::config::plan::Plan;

use super::super::files::brief;
use super::super::progress::Progress;
use super::super::screen::Screen;

/// How long the endpoint waits for servers, so that their lines come first.
const MOMENT: Duration = Duration::from_millis(1500);

/// How often the servers are looked at while some are starting.
const LOOK: Duration = Duration::from_millis(20);

/// How long servers may start before the line turns that says who is awaited.
const PATIENCE: Duration = Duration::from_millis(300);

/// The line turns with every so many looks.
const TURN: u32 = 5;

/// How many of those who are awaited are named.
const NAMED: usize = 3;

/// What is told, and to whom.
pub(super) struct Teller<'a> {
    pub(super) screen: Screen,
    pub(super) url: &'a str,
    pub(super) folder: &'a DataFolder,
    pub(super) plan: &'a Plan,
    pub(super) began: Instant,
    pub(super) form: Form,
}

/// How the gateway is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// In words, with something to try.
    Words,
    /// In one line of JSON, for a program.
    Json,
}

impl Teller<'_> {
    /// Tells everything; ends when no server is starting any more.
    pub(super) async fn tell(&self, engine: &Engine) {
        self.screen
            .line(&self.screen.strong(&format!("Gantry {VERSION}")));
        self.screen.line("");
        for mistake in &self.plan.mistakes {
            self.mistake(mistake);
        }
        let ignored = self.plan.ignored.iter().map(ToString::to_string);
        let shadows = self.plan.shadows.iter().map(ToString::to_string);
        for harmless in ignored.chain(shadows) {
            let mark = self.screen.doubtful("!");
            self.screen
                .line(&format!("  {mark} {}", Screen::safe(&harmless)));
        }
        let mut told = HashSet::new();
        let mut shown = false;
        let mut progress = Progress::on_terminal(&self.screen);
        let mut looks = 0_u32;
        loop {
            let (lines, waiting) = self.servers(engine, &mut told);
            let is_time = waiting.is_empty() || self.began.elapsed() >= MOMENT;
            let use_now = is_time && !shown;
            shown |= is_time;
            if (!lines.is_empty() || use_now)
                && let Some(progress) = &mut progress
            {
                progress.wipe();
            }
            lines.iter().for_each(|line| self.screen.line(line));
            match self.form {
                _ if !use_now => {}
                Form::Words => self.usage(engine),
                Form::Json => self.screen.machine_line(&self.gateway(engine)),
            }
            if waiting.is_empty() {
                return;
            }
            if let Some(progress) = &mut progress
                && self.began.elapsed() >= PATIENCE
                && looks.is_multiple_of(TURN)
            {
                progress.tell(&awaited(told.len(), &waiting, self.began.elapsed()));
            }
            looks = looks.wrapping_add(1);
            sleep(LOOK).await;
        }
    }

    /// Returns a line for each server that has come up or failed since, and who is still on the way.
    fn servers(
        &self,
        engine: &Engine,
        told: &mut HashSet<ServerName>,
    ) -> (Vec<String>, Vec<ServerName>) {
        let servers = engine.servers();
        let width = servers
            .iter()
            .map(|server| server.spec.name.as_str().len())
            .max()
            .unwrap_or(0);
        let (mut lines, mut waiting) = (Vec::new(), Vec::new());
        for server in &servers {
            if told.contains(&server.spec.name) {
                continue;
            }
            match self.line(server, width) {
                Some(line) => {
                    lines.push(line);
                    told.insert(server.spec.name.clone());
                }
                None => waiting.push(server.spec.name.clone()),
            }
        }
        (lines, waiting)
    }

    fn line(&self, server: &ServerView, width: usize) -> Option<String> {
        let (screen, status) = (&self.screen, &server.status);
        let name = format!("{:width$}", server.spec.name.as_str());
        let after = format!("{} ms", self.began.elapsed().as_millis());
        let why = || {
            status
                .reason
                .as_deref()
                .map_or_else(String::new, |why| format!(": {}", Screen::safe(why)))
        };
        match status.state {
            State::Starting | State::Restarting => None,
            State::Ready => {
                let offer = offer(status.tools, status.resources, status.prompts);
                Some(format!(
                    "  {} {name}  ready, {offer}  {}",
                    screen.good("✓"),
                    screen.faint(&after)
                ))
            }
            State::Idle => Some(format!(
                "  {} {name}  starts with its first use",
                screen.faint("○")
            )),
            State::NeedsApproval => Some(format!(
                "  {} {name}  needs approval{}",
                screen.doubtful("!"),
                why()
            )),
            State::NeedsSignIn => Some(format!(
                "  {} {name}  needs a sign-in{}",
                screen.doubtful("!"),
                why()
            )),
            State::Unresponsive => Some(format!(
                "  {} {name}  does not answer{}",
                screen.doubtful("!"),
                why()
            )),
            State::Disconnected => Some(format!(
                "  {} {name}  not connected{}",
                screen.bad("✗"),
                why()
            )),
            State::BackingOff | State::Failed | State::Stopping | State::Stopped => Some(format!(
                "  {} {name}  not running{}",
                screen.bad("✗"),
                why()
            )),
        }
    }

    fn mistake(&self, mistake: &Mistake) {
        let (text, hint) = brief(mistake);
        self.screen
            .line(&format!("  {} {text}", self.screen.bad("✗")));
        if let Some(hint) = hint {
            self.screen.line(&format!("    hint: {hint}"));
        }
    }

    /// Returns where the gateway is, where its keys are, what it enforces, and how its servers are now.
    fn gateway(&self, engine: &Engine) -> Value {
        let servers = engine.servers();
        let servers = servers.iter().map(|server| {
            let status = &server.status;
            json!({
                "name": server.spec.name.as_str(), "state": status.state.as_str(),
                "reason": status.reason, "tools": status.tools, "resources": status.resources,
                "prompts": status.prompts,
            })
        });
        let (mistakes, ignored) = (self.plan.mistakes.iter(), self.plan.ignored.iter());
        let shadows = self.plan.shadows.iter().map(ToString::to_string);
        let notices = mistakes.map(|mistake| brief(mistake).0);
        let notices = notices
            .chain(ignored.map(ToString::to_string))
            .chain(shadows);
        json!({
            "version": VERSION,
            "pid": std::process::id(),
            "url": self.url,
            "endpoint": format!("{}/mcp", self.url),
            "keys": {"agent": self.folder.agent_key(), "admin": self.folder.admin_key()},
            "isolation": isolation(engine),
            "servers": servers.collect::<Vec<_>>(),
            "notices": notices.collect::<Vec<_>>(),
        })
    }

    /// Tells where the gateway is, where its keys are, what it enforces, and how to try it.
    fn usage(&self, engine: &Engine) {
        let (screen, url) = (&self.screen, self.url);
        let (agent, admin) = (self.folder.agent_key(), self.folder.admin_key());
        let label = |text: &str| screen.strong(&format!("{text:<11}"));
        if !engine.servers().is_empty() || !self.plan.is_empty() {
            screen.line("");
        }
        screen.line(&format!("  {} {url}/mcp", label("endpoint")));
        screen.line(&format!(
            "  {} {}  for clients",
            label("keys"),
            agent.display()
        ));
        screen.line(&format!("  {} {}  for you", label(""), admin.display()));
        screen.line(&format!("  {} {}", label("isolation"), isolation(engine)));
        screen.line("");
        screen.line("Try it:");
        screen.line("");
        for line in curl(url, &agent) {
            screen.line(&format!("  {line}"));
        }
        screen.line("");
        screen
            .line("Connect a client that takes `mcpServers`; it finds the key in its environment:");
        screen.line("");
        screen.line(&format!(
            "  export GANTRY_KEY=\"$(cat {})\"",
            quoted(&agent)
        ));
        screen.line(&format!("  {}", snippet(url)));
        screen.line("");
        screen.line(&screen.faint("Stop with Ctrl-C."));
    }
}

/// Says how many servers have come, and who is awaited for how long.
fn awaited(come: usize, waiting: &[ServerName], elapsed: Duration) -> String {
    let mut names: Vec<&str> = waiting.iter().map(ServerName::as_str).collect();
    names.truncate(NAMED);
    let more = match waiting.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{come} of {} servers have come, waiting for {}{more} ({} s)",
        come + waiting.len(),
        names.join(", "),
        elapsed.as_secs()
    )
}

/// Returns what the running servers are held by, or what this machine could hold them by.
fn isolation(engine: &Engine) -> String {
    let servers = engine.servers();
    let report = servers
        .iter()
        .find_map(|server| server.status.isolation.as_ref());
    let summary = report.map_or_else(|| possible(engine.host()), Report::summary);
    Screen::safe(&summary)
}

fn possible(host: &HostReport) -> String {
    let names = |available| {
        let facts = host
            .facts
            .iter()
            .filter(move |fact| fact.available == available);
        facts.map(|fact| fact.name).collect::<Vec<_>>().join(", ")
    };
    match names(false).as_str() {
        "" => names(true),
        missing => format!("{}; not on this machine: {missing}", names(true)),
    }
}

fn offer(tools: usize, resources: usize, prompts: usize) -> String {
    let counted = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let mut parts = vec![counted(tools, "tool", "tools")];
    if resources > 0 {
        parts.push(counted(resources, "resource", "resources"));
    }
    if prompts > 0 {
        parts.push(counted(prompts, "prompt", "prompts"));
    }
    parts.join(", ")
}

/// Returns a command that lists the tools, as a shell takes it.
fn curl(url: &str, key: &Path) -> [String; 3] {
    [
        format!(
            "curl -s {url}/mcp -H \"Authorization: Bearer $(cat {})\" \\",
            quoted(key)
        ),
        "  -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\"
            .to_owned(),
        "  -d '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}'".to_owned(),
    ]
}

/// Returns a client's entry for this gateway.
fn snippet(url: &str) -> String {
    let headers = "{\"Authorization\": \"Bearer ${GANTRY_KEY}\"}";
    format!(
        "{{\"mcpServers\": {{\"gantry\": {{\"type\": \"http\", \"url\": \"{url}/mcp\", \"headers\": {headers}}}}}}}"
    )
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@:".contains(letter);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snippets_hold_no_key_and_survive_any_path() {
        assert_eq!(quoted(Path::new("/a/b-1/agent.key")), "/a/b-1/agent.key");
        assert_eq!(quoted(Path::new("/it's a/k")), r"'/it'\''s a/k'");
        let value: serde_json::Value =
            serde_json::from_str(&snippet("http://127.0.0.1:1")).unwrap();
        assert_eq!(
            value["mcpServers"]["gantry"]["url"],
            "http://127.0.0.1:1/mcp"
        );
    }

    #[test]
    fn who_is_awaited_reads_well() {
        let names = ["a", "b", "c", "d", "e"].map(|name| name.parse().unwrap());
        assert_eq!(
            awaited(2, &names[..1], Duration::from_millis(12_900)),
            "2 of 3 servers have come, waiting for a (12 s)"
        );
        assert_eq!(
            awaited(0, &names, Duration::ZERO),
            "0 of 5 servers have come, waiting for a, b, c and 2 more (0 s)"
        );
    }

    #[test]
    fn what_a_server_offers_reads_well() {
        assert_eq!(offer(1, 0, 0), "1 tool");
        assert_eq!(offer(0, 1, 2), "0 tools, 1 resource, 2 prompts");
    }
}
