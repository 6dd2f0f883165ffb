//! The first hour with Gantry, as `docs/first-hour.md` tells it: two folders, a client, edits, approvals,
//! connecting and removing, each step typed into a real terminal.
//!
//! Which servers it is played with is the caller's choice. Entry point: [`FirstHour::play`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Connection, LONG, PROGRAM, Terminal};

/// What the hour is played with: entries of `mcpServers`, and a tool that each server has.
pub(crate) struct FirstHour {
    /// The first folder's server.
    pub(crate) files: (Value, &'static str),
    /// The one that is added to it later.
    pub(crate) extra: (Value, &'static str),
    /// The second folder's.
    pub(crate) notes: (Value, &'static str),
    /// Where their programs are.
    pub(crate) path: String,
}

/// A person, their home, and what they play with.
struct Person {
    home: TempDir,
    path: String,
}

impl Person {
    fn at(&self, path: &str) -> PathBuf {
        self.home.path().canonicalize().unwrap().join(path)
    }

    /// Types a line of `gantry` into a terminal in a folder.
    fn types(&self, folder: &str, line: &str) -> Terminal {
        let program = self.at("bin");
        let path = format!("{}:{}", program.display(), self.path);
        let line = format!("exec gantry {line}");
        Terminal::open_with(&self.at(""), &self.at(folder), &line, &path)
    }

    /// Runs a verb to its end and returns what was on the screen.
    fn done(&self, folder: &str, line: &str) -> String {
        let mut terminal = self.types(folder, line);
        let code = terminal.ends();
        let shown = terminal.shown();
        assert_eq!(code, 0, "{line}: {shown}");
        shown
    }

    /// Runs a verb for a program, which reads JSON.
    fn read(&self, folder: &str, arguments: &[&str]) -> Value {
        let output = Command::new(PROGRAM)
            .args(arguments)
            .arg("--json")
            .env_clear()
            .env("HOME", self.at(""))
            .current_dir(self.at(folder))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn status(&self, folder: &str, server: &str) -> Value {
        self.read(folder, &["status", server])
    }

    fn wait(&self, folder: &str, server: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let reached = eventually(3 * LONG, || {
            last = self.status(folder, server);
            last["state"] == state
        });
        assert!(reached.is_some(), "{server} is not {state}: {last:#}");
        last
    }

    fn write(&self, file: &str, servers: &[(&str, &Value)]) {
        let servers = servers.iter();
        let servers = servers.map(|(name, entry)| ((*name).to_owned(), (*entry).clone()));
        let servers: serde_json::Map<String, Value> = servers.collect();
        let text = serde_json::to_string_pretty(&json!({"mcpServers": servers})).unwrap();
        fs::write(
            self.at(file),
            format!("// what this folder needs\n{text}\n"),
        )
        .unwrap();
    }

    fn client(&self) -> Value {
        let text = fs::read_to_string(self.at(".cursor/mcp.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Lists tools as the client does, with what stands in its file.
    fn listed(&self, name: &str) -> Vec<String> {
        let entry = self.client()["mcpServers"][name].clone();
        let url = entry["url"].as_str().unwrap_or_else(|| panic!("{entry:#}"));
        let authority = url.trim_start_matches("http://").trim_end_matches("/mcp");
        let headers = [
            (
                "Authorization",
                entry["headers"]["Authorization"].as_str().unwrap(),
            ),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
        let answer = Connection::open(authority)
            .unwrap()
            .request("POST", "/mcp", &headers, body.as_bytes())
            .unwrap();
        if answer.status != 200 {
            return Vec::new();
        }
        let tools = answer.message()["result"]["tools"].take();
        let names = tools.as_array().into_iter().flatten();
        names
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect()
    }
}

impl FirstHour {
    /// Plays it.
    pub(crate) fn play(&self) {
        let home = tempfile::tempdir().unwrap();
        for folder in ["shop", "blog", "bin", ".cursor"] {
            fs::create_dir(home.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(PROGRAM, home.path().join("bin/gantry")).unwrap();
        let person = Person {
            home,
            path: self.path.clone(),
        };
        let (mut shop, pid) = self.start(&person);
        self.edit(&person, &mut shop, &pid);
        let blog = self.connect(&person);
        self.remove(&person, &mut shop, &pid);
        self.leave(&person);
        let shown = shop.stops() + &blog.stops();
        assert!(
            !shown.contains("gantry_agent_"),
            "no key is shown:\n{shown}"
        );
        // The next day it is as it was left, and nothing is asked.
        let mut shop = person.types("shop", "up");
        shop.reads("Stop with Ctrl-C.");
        person.wait("shop", "files", "ready");
        assert_eq!(person.status("shop", "extra")["name"], Value::Null);
        let shown = shop.stops();
        assert!(!shown.contains("[y/N]"), "{shown}");
    }

    /// A file that came with a folder is shown and asked about, and then runs.
    fn start(&self, person: &Person) -> (Terminal, Value) {
        let (files, tool) = &self.files;
        person.write("shop/.mcp.json", &[("files", files)]);
        let mut up = person.types("shop", "up");
        let shown = up.reads("Let it run? [y/N] ");
        assert!(shown.contains("files: runs "), "{shown}");
        up.types("y\n");
        up.reads("Stop with Ctrl-C.");
        let pid = person.wait("shop", "files", "ready")["pid"].clone();
        let tools = person.done("shop", "tools");
        assert!(tools.contains(&format!("files__{tool}")), "{tools}");
        (up, pid)
    }

    /// Edits: an entry that is added waits, what was approved runs on, and the change is what is shown.
    fn edit(&self, person: &Person, up: &mut Terminal, pid: &Value) {
        let (files, extra) = (&self.files.0, &self.extra.0);
        let runs_on = || assert_eq!(person.status("shop", "files")["pid"], *pid, "it runs on");
        person.write("shop/.mcp.json", &[("files", files), ("extra", extra)]);
        up.reads("`.mcp.json` needs approval: extra (new)");
        up.reads("gantry approve .mcp.json");
        person.wait("shop", "extra", "needs_approval");
        runs_on();
        approve(person, "+ extra: runs ", "files: runs ");
        up.reads("configuration applied; changed: extra");
        person.wait("shop", "extra", "ready");
        runs_on();
        let tools = person.done("shop", "tools");
        assert!(
            tools.contains(&format!("extra__{}", self.extra.1)),
            "{tools}"
        );

        // Another time limit, and the entry is asked about again.
        let mut slower = extra.clone();
        slower["timeout"] = json!(90_000);
        person.write("shop/.mcp.json", &[("files", files), ("extra", &slower)]);
        up.reads("needs approval: extra (changed)");
        approve(person, "+   timeout = 90000", "files: runs ");
        person.wait("shop", "extra", "ready");
        runs_on();
    }

    /// A client and two folders: the second does not take the first one's place without a word.
    fn connect(&self, person: &Person) -> Terminal {
        let shown = person.done("shop", "connect cursor");
        assert!(shown.contains("Cursor is connected over HTTP"), "{shown}");
        person.write("blog/.mcp.json", &[("notes", &self.notes.0)]);
        let mut blog = person.types("blog", "up");
        blog.reads("Let it run? [y/N] ");
        blog.types("y\n");
        blog.reads("Stop with Ctrl-C.");
        person.wait("blog", "notes", "ready");
        let mut connect = person.types("blog", "connect cursor");
        let shown = connect.reads("Replace it? [y/N] ");
        let other = person.at("shop");
        assert!(shown.contains(other.to_str().unwrap()), "{shown}");
        connect.types("n\n");
        assert_eq!(connect.ends(), 1, "{}", connect.shown());
        connect.sees("gantry connect cursor --name gantry-blog");
        person.done("blog", "connect cursor --name gantry-blog");
        let has = |tools: Vec<String>, tool: String| assert!(tools.contains(&tool), "{tools:?}");
        has(person.listed("gantry"), format!("files__{}", self.files.1));
        has(
            person.listed("gantry-blog"),
            format!("notes__{}", self.notes.1),
        );
        blog
    }

    /// A server that comes from a file is taken out of the file, and the rest stays approved.
    fn remove(&self, person: &Person, up: &mut Terminal, pid: &Value) {
        let mut rm = person.types("shop", "rm extra");
        let shown = rm.reads("Remove `extra` from the file? [y/N] ");
        assert!(shown.contains(".mcp.json`"), "{shown}");
        rm.types("y\n");
        assert_eq!(rm.ends(), 0, "{}", rm.shown());
        up.reads("configuration applied; removed: extra");
        let left = fs::read_to_string(person.at("shop/.mcp.json")).unwrap();
        assert!(left.starts_with("// what this folder needs"), "{left}");
        assert!(
            left.contains("\"files\"") && !left.contains("\"extra\""),
            "{left}"
        );
        let waits = person.read("shop", &["approve"]);
        assert_eq!(waits["files"], json!([]), "{waits:#}");
        assert_eq!(person.status("shop", "files")["pid"], *pid, "it runs on");
    }

    /// What everybody needs is not removed by mistake; what is disconnected leaves no key.
    fn leave(&self, person: &Person) {
        let mut rm = person.types("shop", "agent rm default");
        let shown = rm.reads("Remove it? [y/N] ");
        assert!(shown.contains("Cursor: its key is in `"), "{shown}");
        rm.types("n\n");
        assert_eq!(rm.ends(), 1, "{}", rm.shown());
        let doctor = person.done("shop", "doctor");
        assert!(doctor.contains("the gateway accepts it"), "{doctor}");
        let mut keys = Vec::new();
        for (folder, name) in [("shop", "gantry"), ("blog", "gantry-blog")] {
            let entry = person.client()["mcpServers"][name].clone();
            let bearer = entry["headers"]["Authorization"].as_str().unwrap();
            keys.push(bearer.trim_start_matches("Bearer ").to_owned());
            let line = format!("connect cursor --name {name} --remove");
            let shown = person.done(folder, &line);
            assert!(shown.contains("its key is revoked"), "{shown}");
        }
        assert_eq!(person.client()["mcpServers"], json!({}));
        holds_none(&person.at(".cursor"), &keys);
    }
}

/// Approves what waits in the shop; the change is shown, and the rest is not.
fn approve(person: &Person, change: &str, rest: &str) {
    let mut approve = person.types("shop", "approve");
    let shown = approve.reads("Let it run? [y/N] ");
    assert!(shown.contains(change) && !shown.contains(rest), "{shown}");
    approve.types("y\n");
    assert_eq!(approve.ends(), 0, "{}", approve.shown());
}

/// Asserts that no file of a folder holds one of these keys.
fn holds_none(folder: &Path, keys: &[String]) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for key in keys {
            assert!(!text.contains(key.as_str()), "{}", path.display());
        }
    }
}
