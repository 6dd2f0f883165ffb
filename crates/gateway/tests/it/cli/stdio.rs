//! `gantry stdio` as a client meets it: the real program on two pipes.

mod alone;
mod bounds;
mod eras;
mod failing;
mod spoken;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{LONG, PROGRAM};

/// A client that starts `gantry stdio` and speaks with it.
pub(super) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Client {
    /// Starts it on a data folder, with further flags.
    pub(super) fn start(data: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("stdio").args(flags).arg("--data").arg(data);
        Self::spawn(command.current_dir(data.parent().unwrap()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (tx, lines) = sync_channel(1000);
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                tx.send(line).ok();
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    /// Sends a line as it is.
    fn line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn send(&mut self, id: Value, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.line(&message.to_string());
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Returns the next message; whatever is no message fails the test.
    fn next(&self, within: Duration) -> Option<Value> {
        let line = self.lines.recv_timeout(within).ok()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}")))
    }

    /// Returns the answer to a request, what comes before it left aside.
    fn answer(&self, id: &Value) -> Value {
        loop {
            let message = self.next(LONG).expect("there is an answer");
            if message.get("id") == Some(id) && message.get("method").is_none() {
                return message;
            }
        }
    }

    fn ask(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(id.clone(), method, params);
        self.answer(&id)
    }

    /// Shakes hands as a client of the handshake era.
    pub(super) fn initialize(&mut self, version: &str) -> Value {
        let info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
        let hello = self.ask(json!("hello"), "initialize", params);
        self.notify("notifications/initialized", json!({}));
        hello
    }

    /// Asks as a client of the stateless era.
    pub(super) fn stateless(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(id.clone(), method, with_meta(params));
        self.answer(&id)
    }

    /// Closes the input and returns how the program ended.
    pub(super) fn close(mut self) -> ExitStatus {
        drop(self.input.take());
        self.ended(Duration::from_secs(10))
    }

    fn ended(&mut self, within: Duration) -> ExitStatus {
        let mut status = None;
        let ended = eventually(within, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended.is_some(), "it still runs after {within:?}");
        status.unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits until nobody holds a connection to a gateway that has ended: a request that is sent on one
/// that is cut, before that is noticed, may have arrived, for all its sender knows.
fn let_go(authority: &str) {
    let port: u16 = authority.rsplit(':').next().unwrap().parse().unwrap();
    let far_end = format!(":{port:04X}");
    let is_held = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let is_there = words.next().is_some_and(|far| far.ends_with(&far_end));
        // Established, or closed by the other end only.
        is_there && matches!(words.next(), Some("01" | "08"))
    };
    let held = || {
        let all = fs::read_to_string("/proc/net/tcp").unwrap();
        all.lines().any(is_held)
    };
    let gone = eventually(LONG, || !held());
    assert!(gone.is_some(), "somebody holds on to {authority}");
}

fn with_meta(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params
}

/// Returns the first text of a tool's result.
fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer:#}"))
}
