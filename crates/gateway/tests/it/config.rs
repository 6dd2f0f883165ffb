//! Configuration files through the real binary: what is found, what is refused and how, what is trusted,
//! and what a change does to a gateway that runs.

mod corpus;
mod edits;
mod files;
mod inert;
mod live;
mod removal;
mod rest;
mod secrets;
mod shown;
mod terminal;
mod trust;
mod workplace;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Connection, LONG, PROGRAM, entry, unmount_below};

pub(crate) use secrets::holding;

/// A person's home with a folder in it, and a gateway if one was started.
pub(crate) struct Folder {
    home: TempDir,
    gateway: Option<Child>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("shop")).unwrap();
        Self {
            home,
            gateway: None,
            variables: Vec::new(),
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    /// Returns a path in the folder.
    fn at(&self, name: &str) -> PathBuf {
        self.home().join("shop").join(name)
    }

    fn data(&self) -> PathBuf {
        self.home().join("data")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("--data")
            .arg(self.data())
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home())
            .env("NO_COLOR", "1")
            .envs(self.variables.iter().copied())
            .current_dir(self.home().join("shop"))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a verb that must succeed and returns what it printed.
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{errors}");
        text
    }

    /// Starts a gateway in the folder and waits until it serves.
    pub(crate) fn up(&mut self, flags: &[&str]) {
        let kept = |name: &str| File::create(self.home().join(name)).unwrap();
        let mut command = self.command(&["up", "--port", "0"]);
        command
            .args(flags)
            .stdout(kept("stdout"))
            .stderr(kept("stderr"));
        self.gateway = Some(command.spawn().unwrap());
        let announced = self.data().join("gateway.json");
        let up = eventually(Duration::from_secs(30), || announced.exists());
        assert!(up.is_some(), "it did not start: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home().join("stderr")).unwrap_or_default()
    }

    /// Returns where the gateway listens, as `host:port`.
    fn authority(&self) -> String {
        let running = fs::read(self.data().join("gateway.json")).unwrap();
        let running: Value = serde_json::from_slice(&running).unwrap();
        let url = running["url"].as_str().unwrap();
        url.trim_start_matches("http://").to_owned()
    }

    pub(crate) fn rest(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let key = fs::read_to_string(self.data().join("keys/admin.key")).unwrap();
        let bearer = format!("Bearer {}", key.trim());
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = Connection::open(&self.authority())
            .unwrap()
            .request(method, path, &headers, body.as_bytes())
            .unwrap();
        let json = serde_json::from_str(&answer.text()).unwrap_or(Value::Null);
        (answer.status, json)
    }

    fn status(&self, server: &str) -> Value {
        self.rest("GET", &format!("/api/v1/mcp/servers/{server}"), None)
            .1
    }

    fn names(&self) -> Vec<String> {
        let servers = self.rest("GET", "/api/v1/mcp/servers", None).1;
        let servers = servers["items"].as_array().unwrap().iter();
        servers
            .map(|server| server["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until a server is in a state and returns its status.
    pub(crate) fn wait(&self, server: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let reached = eventually(LONG, || {
            last = self.status(server);
            last["state"] == state
        });
        assert!(
            reached.is_some(),
            "`{server}` is not `{state}`: {last:#}\n{}",
            self.log()
        );
        last
    }

    /// Waits until something holds.
    fn wait_until(&self, what: &str, holds: impl FnMut() -> bool) {
        let reached = eventually(LONG, holds);
        assert!(reached.is_some(), "{what}: not so\n{}", self.log());
    }

    /// Stops the gateway as a person does, and returns the code that it ends with, which is 0.
    pub(crate) fn down(&mut self) -> i32 {
        let mut gateway = self.gateway.take().expect("a gateway was started");
        let pid = i32::try_from(gateway.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), Signal::TERM).unwrap();
        let ended = gateway.wait().unwrap();
        assert!(ended.success(), "{}", self.log());
        ended.code().unwrap_or_default()
    }

    /// Waits until the health's warnings are as wanted, and returns them.
    fn warnings(&self, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut last: Vec<String> = Vec::new();
        let reached = eventually(LONG, || {
            let health = self.rest("GET", "/api/v1/health", None).1;
            let warnings = health["warnings"].as_array().unwrap().iter();
            last = warnings
                .map(|warning| warning.as_str().unwrap().to_owned())
                .collect();
            wanted(&last)
        });
        assert!(reached.is_some(), "{last:#?}\n{}", self.log());
        last
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let Some(gateway) = &mut self.gateway else {
            return;
        };
        if let Ok(None) = gateway.try_wait() {
            let pid = i32::try_from(gateway.id()).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                kill_process(pid, Signal::KILL).ok();
            }
        }
        drop(gateway.wait());
        unmount_below(&self.home());
    }
}

/// Returns the text of an `mcpServers` file.
pub(crate) fn servers(entries: &[(&str, Value)]) -> String {
    let entries = entries.iter();
    let entries = entries.map(|(name, entry)| ((*name).to_owned(), entry.clone()));
    let servers: serde_json::Map<String, Value> = entries.collect();
    json!({ "mcpServers": servers }).to_string()
}

/// Returns a well-behaved peer's entry that tells what it sees in a journal.
fn journaled(journal: &Path) -> Value {
    entry(&gantry_testkit::Evilpeer::new().journal(journal))
}

/// Returns a well-behaved peer's entry.
pub(crate) fn peer() -> Value {
    entry(&gantry_testkit::Evilpeer::new())
}
