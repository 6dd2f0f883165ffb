//! One client's file and the gateways of two folders: neither takes the other's place without a word, and
//! no key outlives its entry. First hour 2

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{has_key, parsed, text};
use crate::harness::{Connection, LONG, PROGRAM, Terminal};

/// A person with two folders, a gateway in each, and Cursor.
struct Person {
    home: TempDir,
    gateways: Vec<Child>,
}

impl Person {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for folder in ["shop", "blog", ".cursor"] {
            fs::create_dir(home.path().join(folder)).unwrap();
        }
        Self {
            home,
            gateways: Vec::new(),
        }
    }

    fn path(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    fn file(&self) -> PathBuf {
        self.path().join(".cursor/mcp.json")
    }

    fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path())
            .env("NO_COLOR", "1")
            .current_dir(self.path().join(folder))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, folder: &str, arguments: &[&str]) -> Output {
        self.command(folder, arguments).output().unwrap()
    }

    fn told(&self, folder: &str, arguments: &[&str]) -> String {
        let output = self.run(folder, arguments);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {text}");
        assert!(!has_key(&text), "{text}");
        text
    }

    /// Runs a verb for a program, which reads JSON.
    fn read(&self, folder: &str, arguments: &[&str]) -> Value {
        let output = self.run(folder, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the data folder of a folder's gateway.
    fn data(&self, folder: &str) -> PathBuf {
        let entries = fs::read_dir(self.path().join(".local/state/gantry")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let begin = format!("{folder}-");
        let is_it = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&begin)
        };
        paths.find(is_it).unwrap()
    }

    fn refused(&self, folder: &str, arguments: &[&str]) -> String {
        let output = self.run(folder, arguments);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        text
    }

    /// Starts a gateway in a folder and waits until it serves.
    fn up(&mut self, folder: &str, port: &str) {
        let mut command = self.command(folder, &["up", "--no-example", "--port", port]);
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.gateways.push(child);
        let serves = || self.run(folder, &["status"]).status.success();
        assert!(eventually(LONG, serves).is_some(), "{folder} is not up");
    }

    /// Stops all gateways as a person does.
    fn down(&mut self) {
        for mut gateway in self.gateways.drain(..) {
            let pid = i32::try_from(gateway.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.unwrap(), Signal::TERM).unwrap();
            assert!(gateway.wait().unwrap().success());
        }
    }

    fn entry(&self, name: &str) -> Value {
        parsed(&self.file())["mcpServers"][name].clone()
    }

    /// Returns the labels of a gateway's keys that clients have.
    fn labels(&self, folder: &str) -> Vec<String> {
        let keys = self.told(folder, &["key", "ls", "--json"]);
        let keys: Value = serde_json::from_str(&keys).unwrap();
        let labels = keys["items"].as_array().unwrap().iter();
        let labels = labels.map(|key| key["label"].as_str().unwrap().to_owned());
        labels.filter(|label| label.starts_with("cursor")).collect()
    }

    /// Returns every copy beside the client's file.
    fn copies(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join(".cursor")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.to_string_lossy().contains(".bak"))
            .collect()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        for gateway in &mut self.gateways {
            drop(gateway.kill());
            drop(gateway.wait());
        }
    }
}

/// Returns whether a key opens the gateway that an entry leads to.
fn opens(entry: &Value) -> bool {
    let url = entry["url"].as_str().unwrap();
    let authority = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let bearer = entry["headers"]["Authorization"].as_str().unwrap();
    let headers = [("Authorization", bearer)];
    let mut connection = Connection::open(authority).unwrap();
    let answer = connection.request("GET", "/api/v1/tools", &headers, b"");
    answer.unwrap().status == 200
}

fn holds_a_key(path: &Path) -> bool {
    has_key(&fs::read_to_string(path).unwrap())
}

// First hour 2
#[test]
fn the_entry_of_another_folder_is_neither_replaced_nor_removed_without_a_word() {
    let mut person = Person::new();
    person.up("shop", "0");
    person.up("blog", "0");
    person.told("shop", &["connect", "cursor"]);
    let first = person.entry("gantry");
    let text = fs::read_to_string(person.file()).unwrap();
    let place = person.path().join("shop");
    for arguments in [
        &["connect", "cursor"][..],
        &["connect", "cursor", "--json"],
        &["connect", "cursor", "--stdio"],
    ] {
        let told = person.refused("blog", arguments);
        assert!(told.contains("points to another gateway"), "{told}");
        assert!(told.contains(place.to_str().unwrap()), "{told}");
        assert!(told.contains("--name gantry-blog"), "{told}");
        assert!(told.contains("gantry connect cursor --yes"), "{told}");
    }
    let told = person.refused("blog", &["connect", "cursor", "--remove"]);
    assert!(told.contains("points to another gateway"), "{told}");
    assert_eq!(fs::read_to_string(person.file()).unwrap(), text);
    assert!(opens(&first) && person.labels("blog").is_empty());
    // What would happen can be seen.
    let told = person.told("blog", &["connect", "cursor", "--dry-run"]);
    assert!(told.contains("points to another gateway"), "{told}");
    assert_eq!(fs::read_to_string(person.file()).unwrap(), text);

    // Both, side by side; each folder removes its own.
    person.told("blog", &["connect", "cursor", "--name", "gantry-blog"]);
    assert!(opens(&person.entry("gantry")) && opens(&person.entry("gantry-blog")));
    person.refused(
        "shop",
        &["connect", "cursor", "--name", "gantry-blog", "--remove"],
    );
    let second = person.entry("gantry-blog");
    let told = person.told(
        "blog",
        &["connect", "cursor", "--name", "gantry-blog", "--remove"],
    );
    assert!(told.contains("its key is revoked"), "{told}");
    assert!(!opens(&second) && opens(&person.entry("gantry")));

    // Said in so many words it is replaced, and the key that it held is worth nothing.
    let told = person.told("blog", &["connect", "cursor", "--yes"]);
    assert!(
        told.contains("its key at that gateway is revoked"),
        "{told}"
    );
    assert_ne!(person.entry("gantry")["url"], first["url"]);
    assert!(opens(&person.entry("gantry")) && !opens(&first));
    assert!(person.labels("shop").is_empty());
    let copies = person.copies();
    assert!(
        !copies.is_empty() && !copies.iter().any(|copy| holds_a_key(copy)),
        "{copies:?}"
    );
    let last = person.entry("gantry");
    person.told("blog", &["connect", "cursor", "--remove"]);
    assert!(!opens(&last) && !holds_a_key(&person.file()));
    assert!(!person.copies().iter().any(|copy| holds_a_key(copy)));
}

// First hour 2
#[test]
fn connect_asks_at_a_terminal() {
    let mut person = Person::new();
    person.up("shop", "0");
    person.up("blog", "0");
    person.told("shop", &["connect", "cursor"]);
    let first = person.entry("gantry");
    for (answer, code) in [("n\n", 1), ("y\n", 0)] {
        let line = format!("exec {PROGRAM} connect cursor");
        let mut terminal = Terminal::open(&person.path(), &person.path().join("blog"), &line);
        let shown = terminal.reads("Replace it? [y/N] ");
        assert!(
            shown.contains("points to another gateway: that of the folder"),
            "{shown}"
        );
        terminal.types(answer);
        assert_eq!(terminal.ends(), code, "{}", terminal.shown());
        assert_eq!(person.entry("gantry") == first, code == 1);
    }
}

// First hour 2: another gateway had the port before, and its key is in the file.
#[test]
fn a_gateway_on_the_port_of_another_folders_does_not_take_its_entry() {
    let mut person = Person::new();
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    person.up("shop", &port);
    person.told("shop", &["connect", "cursor"]);
    let entry = person.entry("gantry");
    person.down();
    person.up("blog", &port);
    let told = person.refused("blog", &["connect", "cursor"]);
    assert!(told.contains("points to another gateway"), "{told}");
    person.refused("blog", &["connect", "cursor", "--remove"]);
    assert_eq!(person.entry("gantry"), entry);
}

// First hour 2
#[test]
fn a_key_is_revoked_also_if_no_gateway_runs_when_its_entry_is_removed() {
    let mut person = Person::new();
    person.up("shop", "0");
    person.told("shop", &["connect", "cursor"]);
    assert_eq!(person.labels("shop").len(), 1);
    person.down();
    // As earlier versions left them.
    let old = person.path().join(".cursor/mcp.json.bak.3");
    fs::copy(person.file(), &old).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o644)).unwrap();
    let told = person.told("shop", &["connect", "cursor", "--remove"]);
    assert!(told.contains("revoked at its next start"), "{told}");
    assert!(
        told.contains("a key was removed from `") && told.contains(".bak.3`"),
        "{told}"
    );
    assert!(!holds_a_key(&old));
    person.up("shop", "0");
    assert!(person.labels("shop").is_empty(), "it is revoked");
    // One that gives way to `gantry stdio` is revoked at once.
    person.told("shop", &["connect", "cursor"]);
    person.told("shop", &["connect", "cursor", "--stdio"]);
    assert!(person.labels("shop").is_empty());
    person.told("shop", &["connect", "cursor"]);
    assert_eq!(person.labels("shop").len(), 1);
}

// First hour 2
#[test]
fn an_entry_of_stdio_belongs_to_the_folder_that_it_names() {
    let person = Person::new();
    person.told("shop", &["connect", "cursor", "--stdio"]);
    let entry = person.entry("gantry");
    person.refused("blog", &["connect", "cursor", "--stdio"]);
    person.refused("blog", &["connect", "cursor", "--remove"]);
    assert_eq!(person.entry("gantry"), entry);
    person.told("shop", &["connect", "cursor", "--stdio"]);
    assert_eq!(person.entry("gantry"), entry);
    person.told("blog", &["connect", "cursor", "--stdio", "--yes"]);
    assert_ne!(person.entry("gantry"), entry);
    person.refused("shop", &["connect", "cursor", "--remove"]);
    person.told("blog", &["connect", "cursor", "--remove"]);
    assert_eq!(person.entry("gantry"), Value::Null);
}

// First hour 2: a program hears of another gateway's key what a person hears.
#[test]
fn the_key_of_another_folder_is_revoked_for_a_program_too() {
    let mut person = Person::new();
    person.up("shop", "0");
    person.up("blog", "0");
    person.told("shop", &["connect", "cursor"]);
    let first = person.entry("gantry");
    let told = person.read("blog", &["connect", "cursor", "--yes", "--json"]);
    assert_eq!(told["keys_revoked"], 1, "{told:#}");
    assert_eq!(told["old_key"], "revoked", "{told:#}");
    assert!(!opens(&first));
    let second = person.entry("gantry");
    assert!(opens(&second));
    let told = person.read(
        "shop",
        &["connect", "cursor", "--remove", "--yes", "--json"],
    );
    assert_eq!(told["keys_revoked"], 1, "{told:#}");
    assert_eq!(told["old_key"], "revoked", "{told:#}");
    assert!(!opens(&second) && person.labels("blog").is_empty());
}

// First hour 2: the gateway whose key it is does not run when another folder takes its entry's place.
#[test]
fn a_key_is_revoked_at_the_next_start_of_another_folders_gateway() {
    for is_noted in [true, false] {
        let mut person = Person::new();
        person.up("shop", "0");
        person.told("shop", &["connect", "cursor"]);
        assert_eq!(person.labels("shop").len(), 1);
        person.down();
        if !is_noted {
            // As earlier versions left it; its port is still known, since nobody named it.
            let data = person.data("shop");
            fs::remove_file(data.join("keys/clients.json")).unwrap();
            let entry = person.entry("gantry");
            let url = entry["url"].as_str().unwrap().trim_end_matches("/mcp");
            fs::write(data.join("port"), url.rsplit(':').next().unwrap()).unwrap();
        }
        person.up("blog", "0");
        let told = person.told("blog", &["connect", "cursor", "--yes"]);
        assert!(told.contains("revoked at its next start"), "{told}");
        assert!(opens(&person.entry("gantry")));
        person.up("shop", "0");
        assert!(person.labels("shop").is_empty(), "noted: {is_noted}");
        assert_eq!(person.labels("blog").len(), 1);
        person.down();
        let remove = ["connect", "cursor", "--remove", "--yes", "--json"];
        let told = person.read("shop", &remove);
        assert_eq!(told["old_key"], "revoked_at_start", "{told:#}");
        assert_eq!(told["keys_revoked"], Value::Null, "{told:#}");
        person.up("blog", "0");
        assert!(person.labels("blog").is_empty());
    }
}

// First hour 2
#[test]
fn what_cannot_be_cleaned_or_is_gone_already_keeps_no_key_alive() {
    let mut person = Person::new();
    person.up("shop", "0");
    person.told("shop", &["connect", "cursor"]);
    let entry = person.entry("gantry");
    let old = person.path().join(".cursor/mcp.json.bak.3");
    let text_before = fs::read_to_string(person.file()).unwrap();
    fs::write(&old, format!("{text_before}{}", "\n".repeat(64 * 1024))).unwrap();
    // No file may be as large as that copy, and it is no longer cleaned.
    let line = format!("trap '' XFSZ; ulimit -f 16; exec {PROGRAM} connect cursor --remove");
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &line])
        .env_clear()
        .env("HOME", person.path())
        .env("NO_COLOR", "1")
        .current_dir(person.path().join("shop"))
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("its key is revoked"), "{told}");
    assert!(holds_a_key(&old), "the copy could be cleaned");
    assert!(!opens(&entry) && person.labels("shop").is_empty());
    fs::remove_file(&old).unwrap();

    // Somebody took the entry out by hand.
    person.told("shop", &["connect", "cursor"]);
    let entry = person.entry("gantry");
    fs::write(person.file(), "{}\n").unwrap();
    let told = person.told("shop", &["connect", "cursor", "--remove"]);
    assert!(told.contains("its key is revoked"), "{told}");
    assert!(!opens(&entry) && person.labels("shop").is_empty());
    let told = person.told("shop", &["connect", "cursor", "--remove"]);
    assert!(!told.contains("its key"), "{told}");
}

// First hour 2
#[test]
fn a_revocation_that_waits_spares_a_key_that_was_made_later() {
    let mut person = Person::new();
    person.up("shop", "0");
    person.up("blog", "0");
    person.told("shop", &["connect", "cursor"]);
    // The gateway runs, and cannot be asked.
    let keys = person.data("shop").join("keys");
    fs::rename(keys.join("admin.key"), keys.join("away")).unwrap();
    let told = person.told("blog", &["connect", "cursor", "--yes"]);
    assert!(told.contains("revoked at its next start"), "{told}");
    fs::rename(keys.join("away"), keys.join("admin.key")).unwrap();
    person.told("shop", &["connect", "cursor", "--yes"]);
    let label = person.labels("shop").concat();
    let listed = fs::read_to_string(keys.join("revoke.json")).unwrap();
    assert!(!listed.contains(&label), "{listed}");
    person.down();
    person.up("shop", "0");
    assert_eq!(person.labels("shop"), [label.as_str()], "it is in use");
    person.down();
    // Nor is it meant by what was put on the list before it was made.
    let listed = serde_json::json!({label.as_str(): 1_000});
    fs::write(keys.join("revoke.json"), listed.to_string()).unwrap();
    person.up("shop", "0");
    assert_eq!(person.labels("shop"), [label.as_str()], "it is in use");
}
