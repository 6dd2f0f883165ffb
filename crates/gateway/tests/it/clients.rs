//! Must show 7: client files × {import, connect, re-import}, through the real binary.
//!
//! The files are as people have them: comments, odd order, unknown members, tabs, other ends of lines.
//! Each case has a home of its own; nothing here touches the home of whoever runs the tests.

mod connect;
mod import;
mod inert;
mod refused;
mod round;
mod two_folders;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gantry::config::clients::document::Document;
use gantry::config::clients::{self, Client};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::PROGRAM;

/// Where each client's own file is in a home, on Linux; the fixture has the client's name.
const FILES: [(&str, &str); 10] = [
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
    ),
    ("claude-code", ".claude.json"),
    ("cursor", ".cursor/mcp.json"),
    ("vscode", ".config/Code/User/mcp.json"),
    (
        "cline",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    ),
    (
        "roo",
        ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
    ),
    (
        "kilo",
        ".config/Code/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json",
    ),
    ("gemini", ".gemini/settings.json"),
    ("kode", ".kode.json"),
    ("copilot", ".copilot/mcp-config.json"),
];

/// What every value in the fixtures begins with that must not be shown.
const SECRET: &str = "s3cr3t-";

/// A person's home with a folder to work in.
struct Home {
    place: TempDir,
    data: PathBuf,
}

impl Home {
    /// Makes an empty home; `data` is the data folder that the verbs use.
    fn new(data: PathBuf) -> Self {
        let place = tempfile::tempdir().unwrap();
        let home = Self { place, data };
        fs::create_dir(home.folder()).unwrap();
        home
    }

    fn path(&self) -> PathBuf {
        self.place.path().canonicalize().unwrap()
    }

    /// Returns the folder in which the person works.
    fn folder(&self) -> PathBuf {
        self.path().join("shop")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    /// Puts a client's fixture into its place and returns both.
    fn has(&self, client: &str) -> (PathBuf, String) {
        let (_, path) = FILES.iter().find(|(name, _)| *name == client).unwrap();
        let text = fixture(client).replace("__FOLDER__", self.folder().to_str().unwrap());
        self.write(path, &text);
        (self.at(path), text)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns what `gantry.toml` says.
    fn own(&self) -> String {
        fs::read_to_string(self.folder().join("gantry.toml")).unwrap_or_default()
    }

    /// Runs a verb as a person does in the folder.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM)
            .args(arguments)
            .arg("--data")
            .arg(&self.data)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path())
            .env("NO_COLOR", "1")
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs a verb that must succeed, and returns what it printed; nothing private is in it.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
        assert!(!text.contains(SECRET), "{arguments:?}: {text}");
        assert!(!has_key(&text), "{arguments:?}: {text}");
        text
    }

    /// Runs a verb that must fail with a code, and returns what it said.
    fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(!text.contains(SECRET) && !has_key(&text), "{text}");
        text
    }

    /// Returns the files beside one, by name.
    fn beside(&self, path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path.parent().unwrap()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns whether a text shows a key.
fn has_key(text: &str) -> bool {
    let mut after = text.split("gantry_agent_").skip(1);
    after.any(|rest| rest.starts_with(|letter: char| letter.is_ascii_alphanumeric()))
}

fn fixture(client: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients");
    fs::read_to_string(folder.join(format!("{client}.jsonc"))).unwrap()
}

fn known(client: &str) -> &'static Client {
    clients::find(client).unwrap()
}

/// Reads JSON with comments.
fn parsed(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    Document::parse(path, &text).unwrap().value().clone()
}
