//! A client on the other end of an `evilpeer`'s pipes: writes lines, reads lines, with a limit on
//! every wait. Kills its peer when dropped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use gantry_testkit::{Evilpeer, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    modern: bool,
}

impl Client {
    pub(crate) fn start(peer: &Evilpeer) -> Self {
        let argv = peer.argv();
        let mut child = Command::new(&argv[0])
            .args(&argv[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (tx, rx) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                let read = stdout.read_until(b'\n', &mut line);
                if read.unwrap_or(0) == 0 || tx.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            lines: rx,
            modern: false,
        }
    }

    /// Starts a peer and shakes hands in the legacy way.
    pub(crate) fn legacy(peer: &Evilpeer) -> Self {
        let mut client = Self::start(peer);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"}});
        let reply = client.ask(1, "initialize", params);
        assert_eq!(reply["result"]["protocolVersion"], "2025-11-25");
        client.tell("notifications/initialized", json!({}));
        client
    }

    /// Starts a peer that is spoken to in the modern way; every request gets its `_meta`.
    pub(crate) fn modern(peer: &Evilpeer) -> Self {
        let mut client = Self::start(peer);
        client.modern = true;
        client
    }

    pub(crate) fn write(&mut self, line: &str) {
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    pub(crate) fn request(&mut self, id: impl Into<Value>, method: &str, mut params: Value) {
        if self.modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let id = id.into();
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(&request.to_string());
    }

    pub(crate) fn tell(&mut self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.write(&message.to_string());
    }

    pub(crate) fn call(&mut self, id: u32, tool: &str, arguments: Value) {
        self.request(
            id,
            "tools/call",
            json!({"name": tool, "arguments": arguments}),
        );
    }

    /// Sends a request and returns the next message, which must be its reply.
    pub(crate) fn ask(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.request(id, method, params);
        let reply = self.message();
        assert_eq!(reply["id"], id, "{reply}");
        reply
    }

    /// Calls a tool and returns the text of its result.
    pub(crate) fn text(&mut self, id: u32, tool: &str, arguments: Value) -> String {
        let reply = self.ask(
            id,
            "tools/call",
            json!({"name": tool, "arguments": arguments}),
        );
        reply["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{reply}"))
            .into()
    }

    /// Asserts that the peer has opened nothing beside its three streams and what it inherited.
    pub(crate) fn assert_no_files_of_its_own(&mut self, id: u32) {
        let files: Vec<u32> = serde_json::from_str(&self.text(id, "fds", json!({}))).unwrap();
        let (streams, rest) = files.split_at(3);
        assert_eq!(streams, [0, 1, 2]);
        let inherited = |file: &u32| std::fs::exists(format!("/proc/self/fd/{file}")).unwrap();
        assert!(rest.iter().all(inherited), "{files:?}");
    }

    pub(crate) fn line(&self) -> Vec<u8> {
        self.lines
            .recv_timeout(LIMIT)
            .expect("a line within the limit")
    }

    pub(crate) fn has_line(&self) -> bool {
        self.lines.try_recv().is_ok()
    }

    pub(crate) fn message(&self) -> Value {
        let line = self.line();
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }

    /// Returns whether stdout stays silent until the peer has answered a `ping` after it.
    pub(crate) fn silent_until_ping(&mut self, id: u32) -> bool {
        self.request(id, "ping", json!({}));
        self.message()["id"] == id
    }

    pub(crate) fn sees_end(&self) -> bool {
        matches!(
            self.lines.recv_timeout(LIMIT),
            Err(mpsc::RecvTimeoutError::Disconnected)
        )
    }

    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait::eventually(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.expect("the peer exits within the limit")
    }

    pub(crate) fn stderr(&mut self) -> String {
        let mut text = Vec::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_end(&mut text)
            .unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns a path for a file of this test's own.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{name}-{}-{number}", std::process::id());
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}
