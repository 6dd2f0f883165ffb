//! The round: import, import again, connect, connect again, import again, and back.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use gantry::config::{document, entry, file};
use serde_json::{Map, Value, json};

use super::{FILES, Home, known, parsed, text};
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

#[test]
fn every_client_is_imported_connected_and_imported_again_without_loss() {
    let gantry = Gantry::start(&["a"]);
    for (client, _) in FILES {
        let home = Home::new(gantry.data());
        let (file, original) = home.has(client);
        let content = || fs::read_to_string(&file).unwrap();
        let wanted = servers(&home, client, &parsed(&file));
        let keys_before = keys(&gantry);

        // Import reads only, and gives everything back.
        home.told(&["import", client]);
        assert_eq!(content(), original, "{client}: import writes nothing there");
        let own = home.own();
        let back: Value =
            serde_json::from_str(&text(&home.run(&["import", "--back", client]))).unwrap();
        let given = back[known(client).root].as_object().unwrap();
        assert_eq!(*given, wanted, "{client}: nothing is lost");
        assert_eq!(back.get("inputs"), parsed(&file).get("inputs"), "{client}");

        assert_understood(&home, client);

        // A second import changes nothing.
        let again = home.told(&["import", client]);
        assert!(again.contains("nothing was changed"), "{client}: {again}");
        assert_eq!(home.own(), own, "{client}");

        // A dry run shows the change and makes none.
        let shown = home.told(&["connect", client, "--dry-run"]);
        assert!(
            shown.contains("+++ ") && shown.contains("gantry"),
            "{client}: {shown}"
        );
        assert_eq!(
            (content(), keys(&gantry)),
            (original.clone(), keys_before),
            "{client}"
        );

        // Connect adds one entry, which works, and leaves every line as it was.
        home.told(&["connect", client]);
        let connected = content();
        assert_ne!(connected, original, "{client}");
        let backup = format!("{}.bak", file.display());
        assert_eq!(fs::read_to_string(&backup).unwrap(), original, "{client}");
        assert_comments_stay(client, &original, &connected);
        let mut after = parsed(&file);
        let entry = after[known(client).root]
            .as_object_mut()
            .unwrap()
            .shift_remove("gantry");
        fs::write(home.at("before"), &original).unwrap();
        assert_eq!(
            after,
            parsed(&home.at("before")),
            "{client}: nothing else changed"
        );
        answers(&gantry, client, &entry.unwrap());
        let keys_now = keys(&gantry);
        let own_key = usize::from(!["claude-desktop", "kode"].contains(&client));
        assert_eq!(
            keys_now,
            keys_before + own_key,
            "{client}: a key of its own"
        );

        // Connecting twice is connecting once.
        let again = home.told(&["connect", client]);
        assert!(again.contains("connected already"), "{client}: {again}");
        assert_eq!(
            (content(), keys(&gantry)),
            (connected, keys_now),
            "{client}"
        );

        // Importing again never takes Gantry into itself.
        let again = home.told(&["import", client]);
        assert!(again.contains("it is Gantry itself"), "{client}: {again}");
        assert_eq!(home.own(), own, "{client}");

        // And back: the same bytes, and no key is left.
        home.told(&["connect", "--remove", client]);
        // Of a file on one line, the line break that came with the entry stays.
        let bytes = |text: String| match client {
            "kilo" => text.replace("60}\n}", "60}}"),
            _ => text,
        };
        assert_eq!(bytes(content()), original, "{client}: byte for byte");
        assert_eq!(keys(&gantry), keys_before, "{client}");
    }
}

/// What was written is what `gantry up` reads: nothing is wrong with it.
fn assert_understood(home: &Home, client: &str) {
    let path = home.folder().join("gantry.toml");
    let document = document::Document::read(&path, document::Syntax::Toml).unwrap();
    let entries = file::entries(&document, &file::Root::Own).unwrap();
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
