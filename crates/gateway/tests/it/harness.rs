//! Boots the real gateway as a child process, on a port of its own with a data folder of its own.
//!
//! Everything is blocking: a test that wants many clients starts threads. The child is killed with the
//! handle, by its process id. Entry points: [`Gantry::builder`] and [`Gantry::start`].
mod boot;
mod first_hour;
mod http;
mod mcp;
mod ports;
mod programs;
mod servers;
mod stores;
mod terminal;
mod tracer;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use boot::Builder;
pub(crate) use first_hour::FirstHour;
pub(crate) use http::{Answer, Connection};
pub(crate) use mcp::{Session, modern};
pub(crate) use ports::held_port;
pub(crate) use programs::{NOBODY, Programs, needs_root};
pub(crate) use servers::{entry, scaled};
pub(crate) use stores::{on_postgresql, own_database};
pub(crate) use terminal::Terminal;
pub(crate) use tracer::Tracer;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gantry");

/// Longer than anything that a test waits for without saying how long.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A running gateway.
pub(crate) struct Gantry {
    child: Child,
    /// The gateway's own process; another than the child's if it runs under a tracer.
    pub(crate) pid: u32,
    /// Where it listens, as `host:port`.
    pub(crate) authority: String,
    /// The key of the administrator.
    pub(crate) admin: String,
    /// The key of the default agent.
    pub(crate) agent: String,
    builder: Builder,
    home: Option<TempDir>,
}

impl Gantry {
    /// Starts to describe a gateway, on the kind of store that the test is for.
    pub(crate) fn builder() -> Builder {
        Builder::on(own_database())
    }

    /// Starts a gateway with well-behaved peers of these names and waits until they are ready.
    pub(crate) fn start(servers: &[&str]) -> Self {
        let mut builder = Self::builder();
        for name in servers {
            builder = builder.server(name, &gantry_testkit::Evilpeer::new().name(name));
        }
        let gantry = builder.start();
        for name in servers {
            gantry.wait_state(name, "ready", LONG);
        }
        gantry
    }

    pub(crate) fn home(&self) -> &Path {
        self.home
            .as_ref()
            .expect("the home goes with the handle")
            .path()
    }

    /// Returns the data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.home().join("data")
    }

    /// Returns everything that it printed.
    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(self.home().join("stdout")).unwrap_or_default()
    }

    /// Returns everything that it logged.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.home().join("stderr")).unwrap_or_default()
    }

    /// Opens a connection that can be used again and again.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.authority).expect("the gateway accepts connections")
    }

    /// Asks the REST API with the admin key.
    pub(crate) fn rest(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.rest_as(&self.admin, method, path, body)
    }

    /// Asks the REST API with any key.
    pub(crate) fn rest_as(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let bearer = format!("Bearer {key}");
        let mut headers = vec![("Authorization", bearer.as_str())];
        if body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        self.connect()
            .request(method, path, &headers, body.as_bytes())
            .expect("the gateway answers")
    }

    /// Sends one stateless MCP request as the default agent and returns the JSON-RPC answer.
    pub(crate) fn mcp(&self, method: &str, params: Value) -> Value {
        modern(&mut self.connect(), &self.agent, "/mcp", method, params).message()
    }

    /// Calls a tool as the default agent and returns the JSON-RPC answer.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        self.mcp(
            "tools/call",
            serde_json::json!({"name": tool, "arguments": arguments}),
        )
    }

    /// Has the first agent use everything, also servers that a test registers.
    fn grant_everything(&self) {
        // Some gateways are not to be reached from here.
        if std::net::TcpStream::connect(&self.authority).is_ok() {
            let all = serde_json::json!({"grant": "all"});
            self.rest("PATCH", "/api/v1/agents/default", Some(&all));
        }
    }

    /// Makes an agent that may use only this, and returns its key.
    pub(crate) fn agent_with(&self, name: &str, grant: &[&str]) -> String {
        let agent = serde_json::json!({"name": name, "grant": grant});
        let made = self.rest("POST", "/api/v1/agents", Some(&agent));
        assert_eq!(made.status, 201, "{}", made.text());
        let key = serde_json::json!({"kind": "agent", "agent": name});
        let made = self.rest("POST", "/api/v1/keys", Some(&key)).json();
        made["key"].as_str().unwrap().to_owned()
    }

    /// Opens a session of an older protocol generation.
    pub(crate) fn initialize(&self) -> Session {
        Session::open(self.connect(), &self.agent, "2025-11-25")
    }

    /// Returns one server's status.
    pub(crate) fn status(&self, server: &str) -> Value {
        self.rest("GET", &format!("/api/v1/mcp/servers/{server}"), None)
            .json()
    }

    /// Waits until a server is in a state and returns its status; panics with the last one otherwise.
    pub(crate) fn wait_state(&self, server: &str, state: &str, within: Duration) -> Value {
        self.wait_status(server, within, |status| servers::state(status) == state)
    }

    /// Waits until a server's status is as wanted.
    pub(crate) fn wait_status(
        &self,
        server: &str,
        within: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        let reached = eventually(within, || {
            last = self.status(server);
            wanted(&last)
        });
        assert!(
            reached.is_some(),
            "server `{server}` is not as wanted after {within:?}: {last:#}"
        );
        last
    }

    /// Returns the recorded calls that fit a query such as `server=a&status=ok`, oldest first.
    pub(crate) fn audit_rows(&self, query: &str) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut before = String::new();
        loop {
            let path = format!("/api/v1/calls?limit=1000&{query}{before}");
            let page = self.rest("GET", path.trim_end_matches('&'), None).json();
            rows.extend(
                page["items"]
                    .as_array()
                    .expect("a page has items")
                    .iter()
                    .cloned(),
            );
            match page["next_cursor"].as_str() {
                Some(next) => before = format!("&cursor={next}"),
                None => break,
            }
        }
        rows.reverse();
        rows
    }

    /// Waits until a server has so many events of one kind, which are written a moment after what they
    /// tell, and returns their details; panics if there are more or fewer.
    pub(crate) fn events(&self, server: &str, kind: &str, count: usize) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        eventually(LONG, || {
            let path = format!("/api/v1/mcp/servers/{server}/events?limit=1000");
            let events = self.rest("GET", &path, None).json();
            let events = events["items"].as_array().expect("a page has items").iter();
            let wanted = events.filter(|event| event["kind"] == kind);
            let details = wanted.filter_map(|event| event["detail"].as_str());
            found = details.map(str::to_owned).collect();
            found.len() >= count
        });
        assert_eq!(
            found.len(),
            count,
            "events `{kind}` of `{server}`: {found:?}"
        );
        found
    }

    /// Runs another verb of the program against this gateway.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command
            .arg("--data")
            .arg(self.data())
            .args(arguments)
            .stdin(Stdio::null());
        command.current_dir(self.home()).env("NO_COLOR", "1");
        command.envs(self.builder.store());
        command.output().expect("the program runs")
    }

    /// Sends a signal to the gateway's process.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        kill_process(pid, signal).expect("the gateway can be signalled");
    }

    /// Waits for its end and returns the exit code; `None` if a signal ended it.
    pub(crate) fn wait(&mut self, within: Duration) -> Option<i32> {
        let mut status = None;
        let ended = eventually(within, || {
            status = self.child.try_wait().expect("our child can be waited for");
            status.is_some()
        });
        assert!(
            ended.is_some(),
            "the gateway still runs after {within:?}:\n{}",
            self.stderr()
        );
        status.and_then(|status| status.code())
    }

    /// Asks it to stop and waits for its end.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait(Duration::from_secs(40))
    }

    /// Kills it with -9 and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait(LONG);
    }

    /// Starts it again on the same data folder; it must have ended.
    pub(crate) fn again(self) -> Self {
        let builder = self.builder.clone();
        self.again_as(builder)
    }

    /// Starts another one on the same data folder; it must have ended.
    pub(crate) fn again_as(mut self, builder: Builder) -> Self {
        let home = self.home.take().expect("the home goes with the handle");
        builder.start_in(home)
    }

    /// Starts it again on the same data folder and the same port; it must have ended.
    pub(crate) fn again_here(mut self) -> Self {
        let home = self.home.take().expect("the home goes with the handle");
        let port = self
            .authority
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        self.builder
            .clone()
            .port(port.expect("a port"))
            .start_in(home)
    }
}

impl Drop for Gantry {
    fn drop(&mut self) {
        let Some(home) = &self.home else { return };
        if std::thread::panicking() {
            let log = fs::read_to_string(home.path().join("stderr")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the gateway's last words ---");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        if let Ok(None) = self.child.try_wait() {
            if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::KILL).ok();
            }
            drop(self.child.kill());
            drop(self.child.wait());
            unmount_below(home.path());
        }
    }
}

/// Unmounts what a killed gateway left mounted; its next start would do so.
pub(crate) fn unmount_below(folder: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    for point in points.filter(|point| Path::new(point).starts_with(folder)) {
        rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).ok();
    }
}
