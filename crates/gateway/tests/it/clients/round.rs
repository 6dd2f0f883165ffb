//! The round: import, import again, connect, connect again, import again, and back.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use gantry::config::{document, entry, file};
use serde_json::{Map, Value, json};

use super::{FILES, Home, fixture, known, parsed, text};
use crate::harness::{Gantry, modern};

/// Returns what a client's file says of its servers, those of the folder included.
fn servers(home: &Home, client: &str, file: &Value) -> Map<String, Value> {
    let root = known(client).root;
    let mut servers = Map::new();
    let folder = home.folder();
    let here = &file["projects"][folder.to_str().unwrap()]["mcpServers"];
    for found in [here, &file[root]] {
        servers.extend(found.as_object().cloned().unwrap_or_default());
    }
    servers
}

fn keys(gantry: &Gantry) -> usize {
    let keys = gantry.rest("GET", "/api/v1/keys", None).json();
    keys["items"].as_array().unwrap().len()
}

/// One file of a client, as the round finds it.
struct Case<'a> {
    home: &'a Home,
    client: &'static str,
    file: PathBuf,
    original: String,
    /// The member that holds the servers; none if the file is nothing but servers.
    root: Option<&'static str>,
    /// What the file says of the servers that count.
    wanted: Map<String, Value>,
    /// What names the file beside its client.
    flags: &'static [&'static str],
    /// How many keys connecting makes.
    keys: usize,
}

impl Case<'_> {
    fn told(&self, words: &[&str]) -> String {
        self.home.told(&[words, self.flags].concat())
    }

    fn content(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }
}

#[test]
fn every_client_is_imported_connected_and_imported_again_without_loss() {
    let gantry = Gantry::start(&["a"]);
    for (client, _) in FILES {
        let home = Home::new(gantry.data());
        let (file, original) = home.has(client);
        let wanted = servers(&home, client, &parsed(&file));
        let case = Case {
            home: &home,
            client,
            file,
            original,
            root: Some(known(client).root),
            wanted,
            flags: &[],
            keys: usize::from(!["claude-desktop", "kode"].contains(&client)),
        };
        round(&gantry, &case);
    }
}

/// Where each client's file for everybody in a folder is; those that are left out have none.
const PROJECT: [(&str, &str); 9] = [
    ("claude-code", ".mcp.json"),
    ("cursor", ".cursor/mcp.json"),
    ("vscode", ".vscode/mcp.json"),
    ("roo", ".roo/mcp.json"),
    ("kilo", ".kilocode/mcp.json"),
    ("gemini", ".gemini/settings.json"),
    ("kode", ".mcprc"),
    ("kode", ".kode.json"),
    ("copilot", ".github/mcp.json"),
];

/// A file that is nothing but servers.
const BARE: &str = r#"{
	// at the top, without a member above
	"everything": { "type": "stdio", "command": "npx", "args": ["-y", "everything"], "env": { "DEBUG": "s3cr3t-kode" } }, // one
	"sse": { "type": "sse", "url": "https://example.com/sse" }
}
"#;

#[test]
fn the_files_of_a_folder_make_the_same_round_and_hold_no_key() {
    let gantry = Gantry::start(&["a"]);
    for (client, path) in PROJECT {
        let home = Home::new(gantry.data());
        let root = (path != ".mcprc").then_some(known(client).root);
        let original = match root {
            Some(_) => fixture(client),
            None => BARE.to_owned(),
        };
        home.write(&format!("shop/{path}"), &original);
        let file = home.folder().join(path);
        let said = parsed(&file);
        let wanted = root
            .map_or(&said, |root| &said[root])
            .as_object()
            .unwrap()
            .clone();
        let case = Case {
            home: &home,
            client,
            file,
            original,
            root,
            wanted,
            flags: &["--scope", "project"],
            keys: 0,
        };
        round(&gantry, &case);
    }
    // Whoever has no such file says so.
    let home = Home::new(gantry.data());
    for client in ["claude-desktop", "cline"] {
        let refused = home.refused(2, &["connect", client, "--scope", "project"]);
        assert!(
            refused.contains("has no file for the scope `project`"),
            "{refused}"
        );
    }
}

fn round(gantry: &Gantry, case: &Case<'_>) {
    let Case {
        home,
        client,
        file,
        original,
        ..
    } = case;
    let (client, name) = (*client, file.display());
    let keys_before = keys(gantry);

    // Import reads only, and gives everything back.
    case.told(&["import", client]);
    assert_eq!(
        case.content(),
        *original,
        "{name}: import writes nothing there"
    );
    let own = home.own();
    let back: Value =
        serde_json::from_str(&text(&home.run(&["import", "--back", client]))).unwrap();
    let given = back[known(client).root].as_object().unwrap();
    assert_eq!(*given, case.wanted, "{name}: nothing is lost");
    assert_eq!(back.get("inputs"), parsed(file).get("inputs"), "{name}");

    assert_understood(home, client);

    // A second import changes nothing.
    let again = case.told(&["import", client]);
    assert!(again.contains("nothing was changed"), "{name}: {again}");
    assert_eq!(home.own(), own, "{name}");

    // A dry run shows the change and makes none.
    let shown = case.told(&["connect", client, "--dry-run"]);
    let is_shown = shown.contains("+++ ") && shown.contains("gantry");
    assert!(is_shown, "{name}: {shown}");
    assert_eq!(
        (case.content(), keys(gantry)),
        (original.clone(), keys_before),
        "{name}"
    );

    // Connect adds one entry, which works, and leaves every line as it was.
    case.told(&["connect", client]);
    let connected = case.content();
    assert_ne!(connected, *original, "{name}");
    let backup = format!("{name}.bak");
    assert_eq!(fs::read_to_string(&backup).unwrap(), *original, "{name}");
    assert_comments_stay(client, original, &connected);
    let mut after = parsed(file);
    let there = match case.root {
        Some(root) => &mut after[root],
        None => &mut after,
    };
    let entry = there
        .as_object_mut()
        .unwrap()
        .shift_remove("gantry")
        .unwrap();
    fs::write(home.at("before"), original).unwrap();
    assert_eq!(
        after,
        parsed(&home.at("before")),
        "{name}: nothing else changed"
    );
    answers(gantry, client, &entry);
    let keys_now = keys(gantry);
    assert_eq!(
        keys_now,
        keys_before + case.keys,
        "{name}: a key of its own"
    );

    // Connecting twice is connecting once.
    let again = case.told(&["connect", client]);
    assert!(again.contains("connected already"), "{name}: {again}");
    assert_eq!(
        (case.content(), keys(gantry)),
        (connected, keys_now),
        "{name}"
    );

    // Importing again never takes Gantry into itself.
    let again = case.told(&["import", client]);
    assert!(again.contains("it is Gantry itself"), "{name}: {again}");
    assert_eq!(home.own(), own, "{name}");

    // And back: the same bytes, and no key is left.
    case.told(&["connect", "--remove", client]);
    // Of a file on one line, the line break that came with the entry stays.
    let bytes = |text: String| match client {
        "kilo" => text.replace("60}\n}", "60}}"),
        _ => text,
    };
    assert_eq!(bytes(case.content()), *original, "{name}: byte for byte");
    assert_eq!(keys(gantry), keys_before, "{name}");
}

/// What was written is what `gantry up` reads: nothing is wrong with it.
fn assert_understood(home: &Home, client: &str) {
    let path = home.folder().join("gantry.toml");
    let document = document::Document::read(&path, document::Syntax::Toml).unwrap();
    let entries = file::entries(&document, &file::Root::Own).0;
    assert!(!entries.is_empty(), "{client}");
    let folder = home.folder();
    for entry in entries {
        let fill = entry::Fill::AsWritten { folder: &folder };
        let reading = entry::read(&document, &entry, entry::Owner::Gantry, fill);
        assert!(
            reading.mistakes.is_empty() && reading.warnings.is_empty(),
            "{client}: `{}`: {:#?} {:?}",
            entry.name,
            reading.mistakes,
            reading.warnings
        );
    }
}

/// Every line of the original is there, in order; a comma may have joined one.
fn assert_comments_stay(client: &str, original: &str, connected: &str) {
    // A file on one line is spread over several; its members are compared elsewhere.
    if client == "kilo" {
        return;
    }
    let mut lines = connected.lines();
    for line in original.lines() {
        let found = lines.by_ref().any(|now| {
            let comma = line.split_once(" //").map_or_else(
                || format!("{line},"),
                |(before, comment)| format!("{before}, //{comment}"),
            );
            now == line || now == comma
        });
        assert!(found, "{client}: `{line}` is gone from\n{connected}");
    }
}

/// Uses an entry as its client would.
fn answers(gantry: &Gantry, client: &str, entry: &Value) {
    let Some(command) = entry["command"].as_str() else {
        let url = entry.get("httpUrl").unwrap_or(&entry["url"]);
        assert_eq!(
            *url,
            json!(format!("http://{}/mcp", gantry.authority)),
            "{client}"
        );
        let key = entry["headers"]["Authorization"].as_str().unwrap();
        let key = key.strip_prefix("Bearer ").unwrap();
        assert_ne!(key, gantry.agent, "{client} has a key of its own");
        let answer = modern(&mut gantry.connect(), key, "/mcp", "tools/list", json!({}));
        let tools = answer.message()["result"]["tools"].clone();
        assert!(!tools.as_array().unwrap().is_empty(), "{client}: {tools}");
        return;
    };
    let args: Vec<&str> = entry["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap())
        .collect();
    let mut child = Command::new(command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}});
    writeln!(input, "{hello}").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    drop(input);
    child.wait().unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert!(
        answer["result"]["serverInfo"].is_object(),
        "{client}: {line}"
    );
}
