//! The output of `gantry up`: a row for each server, then how to use the gateway.
//!
//! A failed server's row has the cause and what to do; log lines wait until the screen is complete.
//! A slow server does not delay the rest: it is shown as starting, and its result follows. Never
//! prints a key, only its file. With `--json`, one line of JSON goes to stdout and the rest to
//! stderr. Entry point: [`StartupReport::tell`].

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use gantry_engine::{Engine, HostReport, IsolationReport, Listener, ServerStatus, ServerView};
use gantry_model::id::ServerName;
use gantry_model::status::ServerState;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::app::VERSION;
use crate::config::diagnostic::Diagnostic;
use crate::config::plan::Plan;
use crate::data_folder::DataFolder;

use super::super::files::brief;
use super::super::progress::Progress;
use super::super::screen::Screen;
use super::super::unchecked_tools;

/// How long the endpoint waits for servers, so that their rows come first.
const MOMENT: Duration = Duration::from_millis(1500);

/// The same at a terminal, where complete rows matter more.
const WHILE: Duration = Duration::from_secs(5);

/// How long servers may start before a spinner shows them.
const PATIENCE: Duration = Duration::from_millis(300);

/// The interval of the spinner; servers are checked only when one changed.
const TURN: Duration = Duration::from_millis(100);

/// How many of the starting servers are named.
const NAMED: usize = 3;

/// What is printed, and where.
pub(super) struct StartupReport<'a> {
    pub(super) screen: Screen,
    pub(super) url: &'a str,
    /// The URL of the listener with TLS.
    pub(super) secure_url: Option<String>,
    pub(super) folder: &'a DataFolder,
    pub(super) plan: &'a Plan,
    pub(super) began: Instant,
    pub(super) form: Form,
    /// A single-use sign-in link. Shown on a terminal only, since logs are read by others.
    pub(super) link: Option<String>,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Text, with something to try.
    Words,
    /// One line of JSON, for a program.
    Json,
}

impl StartupReport<'_> {
    /// Prints everything; ends when no server is starting.
    pub(super) async fn tell(&self, engine: &Engine) {
        self.screen
            .line(&self.screen.strong(&format!("Gantry {VERSION}")));
        self.screen.line("");
        // Notices about a server with a row are shown in the row.
        let named = self.plan.off.iter().map(|spec| spec.name.as_str());
        let named: HashSet<&str> = named.collect();
        let rowless = self.plan.mistakes.iter();
        for mistake in rowless.filter(|one| !one.server().is_some_and(|name| named.contains(name)))
        {
            self.mistake(mistake);
        }
        let ignored = self.plan.ignored.iter().map(ToString::to_string);
        let shadows = self.plan.shadows.iter().map(ToString::to_string);
        // A server that needs approval has its row.
        let files = self.plan.unapproved.iter();
        let files = files.filter(|file| file.gateway.is_some());
        let settings = files.map(|file| {
            let path = file.path.display();
            format!("`[gateway]` in `{path}` is not approved and has no effect: run `gantry approve {path}`")
        });
        for harmless in ignored.chain(shadows).chain(settings) {
            let mark = self.screen.doubtful("!");
            self.screen
                .advise(&format!("  {mark} {}", Screen::safe(&harmless)));
        }
        let mut told = HashSet::new();
        let mut shown = false;
        let mut progress = Progress::on_terminal(&self.screen);
        let patience = match (self.form, &progress) {
            (Form::Words, Some(_)) => WHILE,
            (Form::Words | Form::Json, _) => MOMENT,
        };
        let mut late = false;
        // Before the first check, so that no event in between is missed.
        let mut feed = engine.default_project().listen();
        feed.skip();
        loop {
            let (mut lines, waiting) = self.servers(engine, &mut told);
            let is_time = waiting.is_empty() || self.began.elapsed() >= patience;
            let use_now = is_time && !shown;
            late |= shown && !lines.is_empty();
            shown |= is_time;
            if use_now {
                let width = width(&engine.default_project().servers());
                lines.extend(waiting.iter().map(|name| self.starting(name, width)));
            }
            if (!lines.is_empty() || use_now)
                && let Some(progress) = &mut progress
            {
                progress.wipe();
            }
            lines.iter().for_each(|line| self.screen.advise(line));
            if use_now {
                match self.form {
                    Form::Words => self.usage(engine),
                    Form::Json => self.screen.machine_line(&self.gateway(engine)),
                }
                self.screen.output().release();
            }
            if waiting.is_empty() {
                if late {
                    self.all_there(engine);
                }
                return;
            }
            if let Some(progress) = &mut progress
                && self.began.elapsed() >= PATIENCE
            {
                progress.tell(&awaited(told.len(), &waiting, self.began.elapsed()));
            }
            let turn = progress.is_some().then(|| Instant::now() + TURN);
            let patience = (!shown).then(|| self.began + patience);
            let until = turn.into_iter().chain(patience).min();
            wait(&mut feed, until).await;
        }
    }

    /// Returns a row for each server that started or failed since, and the ones still starting.
    fn servers(
        &self,
        engine: &Engine,
        told: &mut HashSet<ServerName>,
    ) -> (Vec<String>, Vec<ServerName>) {
        let servers = engine.default_project().servers();
        let width = width(&servers);
        let (mut lines, mut waiting) = (Vec::new(), Vec::new());
        for server in &servers {
            if told.contains(&server.spec.name) {
                continue;
            }
            match self.row(server, width) {
                Some(line) => {
                    lines.push(line);
                    told.insert(server.spec.name.clone());
                }
                None => waiting.push(server.spec.name.clone()),
            }
        }
        (lines, waiting)
    }

    /// Returns the row of a server that is still starting when the endpoint is shown.
    fn starting(&self, name: &ServerName, width: usize) -> String {
        let name = format!("{:width$}", name.as_str());
        format!("  {} {name}  still starting", self.screen.faint("…"))
    }

    /// After late servers, repeats how many are ready and the endpoint, so that it is the last
    /// line.
    fn all_there(&self, engine: &Engine) {
        let servers = engine.default_project().servers();
        let is_ready = |server: &&ServerView| server.status.state == ServerState::Ready;
        let ready = servers.iter().filter(is_ready).count();
        self.screen.line("");
        self.screen.line(&format!(
            "  {} {}/mcp  {ready} of {} servers ready",
            self.screen.strong(&format!("{:<11}", "endpoint")),
            self.url,
            servers.len()
        ));
    }

    fn row(&self, server: &ServerView, width: usize) -> Option<String> {
        let (screen, status) = (&self.screen, &server.status);
        let name = format!("{:width$}", server.spec.name.as_str());
        let after = format!("{} ms", self.began.elapsed().as_millis());
        let why = || {
            status
                .reason
                .as_deref()
                .map_or_else(String::new, |why| format!(": {}", safe_line(why)))
        };
        let row =
            |mark: String, what: &str, why: String| Some(format!("  {mark} {name}  {what}{why}"));
        match status.state {
            ServerState::Starting | ServerState::Restarting => None,
            // It is being restarted: the result will be shown.
            ServerState::Failed | ServerState::BackingOff | ServerState::Disconnected
                if status.next_try_in().is_some_and(|wait| wait.is_zero()) =>
            {
                None
            }
            ServerState::Ready => {
                let mut offer =
                    offer(status.tools, status.resources, status.prompts) + &caveats(status);
                if let Some(first) = server.collisions.first() {
                    let (count, behind) = (server.collisions.len(), &first.listed);
                    let what = if count == 1 { "resource" } else { "resources" };
                    offer.push_str(&format!("; {count} {what} hidden behind `{behind}`"));
                }
                let after = screen.faint(&after);
                // Its tools could not be listed.
                let mark = match status.reason {
                    Some(_) => screen.doubtful("!"),
                    None => screen.good("✓"),
                };
                row(mark, &format!("ready, {offer}  {after}"), why())
            }
            ServerState::Idle => row(
                screen.faint("○"),
                "starts with its first use",
                String::new(),
            ),
            ServerState::Disabled => row(screen.faint("○"), "disabled", why()),
            ServerState::Suspended => row(screen.doubtful("!"), "suspended", why()),
            ServerState::Misconfigured => row(screen.bad("✗"), "left out", why()),
            ServerState::NeedsApproval => row(screen.doubtful("!"), "needs approval", why()),
            ServerState::NeedsSignIn => row(screen.doubtful("!"), "needs a sign-in", why()),
            ServerState::Unresponsive => row(screen.doubtful("!"), "does not answer", why()),
            ServerState::Disconnected => row(screen.bad("✗"), "not connected", failure(server)),
            ServerState::BackingOff
            | ServerState::Failed
            | ServerState::Stopping
            | ServerState::Stopped => row(screen.bad("✗"), "not running", failure(server)),
        }
    }

    fn mistake(&self, mistake: &Diagnostic) {
        let (text, hint) = brief(mistake);
        self.screen
            .line(&format!("  {} {text}", self.screen.bad("✗")));
        if let Some(hint) = hint {
            self.screen.line(&format!("    hint: {hint}"));
        }
    }

    /// Returns endpoint, key files, isolation and server states as JSON.
    fn gateway(&self, engine: &Engine) -> Value {
        let servers = engine.default_project().servers();
        let servers = servers.iter().map(|server| {
            let status = &server.status;
            json!({
                "name": server.spec.name.as_str(), "state": status.state.as_str(),
                "reason": status.reason, "tools": status.tools, "resources": status.resources,
                "prompts": status.prompts, "unchecked_tools": status.unchecked_tools,
                "refused_tools": status.refused_tools,
            })
        });
        let (mistakes, ignored) = (self.plan.mistakes.iter(), self.plan.ignored.iter());
        let shadows = self.plan.shadows.iter().map(ToString::to_string);
        let notices = mistakes.map(|mistake| brief(mistake).0);
        let notices = notices
            .chain(ignored.map(ToString::to_string))
            .chain(shadows);
        let mut gateway = json!({
            "version": VERSION,
            "pid": std::process::id(),
            "url": self.url,
            "endpoint": format!("{}/mcp", self.url),
            "keys": {"agent": self.folder.agent_key(), "admin": self.folder.admin_key()},
            "isolation": isolation(engine),
            "servers": servers.collect::<Vec<_>>(),
            "notices": notices.collect::<Vec<_>>(),
        });
        if let Some(url) = &self.secure_url {
            gateway["tls_endpoint"] = format!("{url}/mcp").into();
        }
        gateway
    }

    /// Prints endpoint, key files, isolation and an example.
    fn usage(&self, engine: &Engine) {
        let (screen, url) = (&self.screen, self.url);
        let (agent, admin) = (self.folder.agent_key(), self.folder.admin_key());
        let label = |text: &str| screen.strong(&format!("{text:<11}"));
        if !engine.default_project().servers().is_empty() || !self.plan.is_empty() {
            screen.line("");
        }
        screen.line(&format!("  {} {url}/mcp", label("endpoint")));
        if let Some(url) = &self.secure_url {
            screen.line(&format!("  {} {url}/mcp", label("with TLS")));
        }
        for (name, key, whose) in [("keys", &agent, "for clients"), ("", &admin, "for you")] {
            let note = match key.exists() {
                true => whose,
                // A data folder of its own beside a store that others made.
                false => "is not there: `gantry key new --out` makes one where an admin key is",
            };
            screen.line(&format!("  {} {}  {note}", label(name), key.display()));
        }
        screen.line(&format!("  {} {}", label("isolation"), isolation(engine)));
        if let Some(link) = &self.link {
            let note = screen.faint("works once; `gantry open` makes another");
            screen.line(&format!("  {} {link}  {note}", label("browser")));
        }
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

/// Waits for a server event, or until a deadline.
async fn wait(feed: &mut Listener, until: Option<Instant>) {
    let changed = async {
        feed.changed().await;
        // The event itself does not matter; the servers are checked again.
        feed.skip();
    };
    match until {
        Some(until) => drop(timeout_at(until, changed).await),
        None => changed.await,
    }
}

/// Returns the width of the name column.
fn width(servers: &[ServerView]) -> usize {
    let names = servers.iter().map(|server| server.spec.name.as_str().len());
    names.max().unwrap_or(0)
}

/// Returns foreign text in one line.
fn safe_line(text: &str) -> String {
    Screen::safe(text).replace('\n', " ")
}

/// Describes in one line why a server is not ready, and what to do.
fn failure(server: &ServerView) -> String {
    let (status, name) = (&server.status, &server.spec.name);
    let crash = status.last_crash.as_ref().map(|crash| crash.how.as_str());
    let why = crash.or(status.reason.as_deref()).unwrap_or_default();
    // `PATH` is long, and `gantry status` shows it.
    let (cause, is_missing) = match why.split_once(" not found (searched ") {
        Some((program, _)) => (format!("{program} not found"), true),
        None => (why.to_owned(), false),
    };
    let advice = match (is_missing, server.spec.profile()) {
        (true, _) => format!("check its spelling or install it, then `gantry restart {name}`"),
        (false, Some(_)) => format!("`gantry logs {name}` shows what it wrote"),
        (false, None) => format!("`gantry status {name}` says more"),
    };
    format!(": {}; {advice}", safe_line(&cause))
}

/// Returns how many servers are ready, and the ones still starting.
fn awaited(ready: usize, waiting: &[ServerName], elapsed: Duration) -> String {
    let mut names: Vec<&str> = waiting.iter().map(ServerName::as_str).collect();
    names.truncate(NAMED);
    let more = match waiting.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{ready} of {} servers ready, waiting for {}{more} ({} s)",
        ready + waiting.len(),
        names.join(", "),
        elapsed.as_secs()
    )
}

/// Returns the isolation of the running servers, or what this machine can enforce.
fn isolation(engine: &Engine) -> String {
    let servers = engine.default_project().servers();
    let report = servers
        .iter()
        .find_map(|server| server.status.isolation.as_ref());
    let possible = || format!("this machine has {}", possible(&engine.host()));
    let summary = report.map_or_else(possible, IsolationReport::summary);
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

/// Returns how many tools have unchecked parts or are refused, with one reason each.
fn caveats(status: &ServerStatus) -> String {
    let counts =
        unchecked_tools::counts(status.unchecked_tools as u64, status.refused_tools as u64);
    let Some(counts) = counts else {
        return String::new();
    };
    let unchecked = status
        .unchecked
        .first()
        .map(|part| (&part.tool, &part.reason));
    let refused = status.excluded.first().filter(|_| status.refused_tools > 0);
    let refused = refused.map(|(tool, reason)| (tool, reason));
    let reasons = unchecked.into_iter().chain(refused);
    let reasons: Vec<String> = reasons
        .map(|(tool, reason)| Screen::safe(&format!("{tool}: {reason}")))
        .collect();
    format!(", {counts} ({})", reasons.join("; "))
}

/// Returns a shell command that lists the tools.
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
            "2 of 3 servers ready, waiting for a (12 s)"
        );
        assert_eq!(
            awaited(0, &names, Duration::ZERO),
            "0 of 5 servers ready, waiting for a, b, c and 2 more (0 s)"
        );
    }

    #[test]
    fn what_a_server_offers_reads_well() {
        assert_eq!(offer(1, 0, 0), "1 tool");
        assert_eq!(offer(0, 1, 2), "0 tools, 1 resource, 2 prompts");
    }
}
