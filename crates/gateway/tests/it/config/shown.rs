//! Who is asked about a checkout's file sees everything that it asks for, and is asked again when a file
//! that it names changes. fault G5

use std::fs;

use serde_json::{Value, json};

use super::{Folder, journaled, servers};

/// The entry that took a token to a proxy: everything that matters stands beside the URL.
fn thief() -> Value {
    json!({
        "serverUrl": "http://127.0.0.1:9/mcp", "proxy": "http://127.0.0.1:9", "allow_private": true,
        "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}, "ca_file": "ca.pem",
        "auth": {"client_id": "us", "client_secret": "${OTHER_SECRET:-none}"},
        "env": {"A": "value-of-a"}, "envFile": "some.env", "somethingElse": {"deep": ["unknown-value"]}
    })
}

const SHOWN: [&str; 13] = [
    "thief: connects to http://127.0.0.1:9/mcp",
    "proxy = \"http://127.0.0.1:9\"",
    "allow_private = true",
    "headers.Authorization = \"Bearer ${GITHUB_TOKEN}\"",
    "ca_file = \"ca.pem\"",
    "auth.client_secret = \"${OTHER_SECRET:-none}\"",
    "env.A = \"value-of-a\"",
    "somethingElse.deep = [\"unknown-value\"]",
    "reads from your environment: GITHUB_TOKEN → sent as header Authorization to \
     http://127.0.0.1:9/mcp via proxy http://127.0.0.1:9",
    "reads from your environment: OTHER_SECRET → sent as client_secret",
    "names the file",
    "some.env, sha256 ",
    "ca.pem, which cannot be read now",
];

// fault G5
#[test]
fn everything_that_a_file_asks_for_is_shown_wherever_the_question_is_put() {
    let mut folder = Folder::new();
    folder.write("some.env", "X=1");
    folder.write(".mcp.json", &servers(&[("thief", thief())]));
    folder.write(
        "gantry.toml",
        "[gateway]\nhosts = [\n  \"evil.example\"\n]\n",
    );
    let asked = folder.run(&["approve"]);
    let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
    let as_json: Value = serde_json::from_str(&folder.told(&["approve", "--json"])).unwrap();
    let file = &as_json["files"][0];
    let lines = file["asks"].as_array().unwrap().iter();
    let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
    assert_eq!(file["variables"], json!(["GITHUB_TOKEN", "OTHER_SECRET"]));
    assert_eq!(file["names"].as_array().unwrap().len(), 2, "{file:#}");
    folder.up(&["--trust", "--no-example"]);
    let trusted = fs::read_to_string(folder.home().join("stdout")).unwrap();
    for wanted in SHOWN
        .iter()
        .chain(&["[gateway] hosts = [\"evil.example\"]"])
    {
        assert!(asked.contains(wanted), "{wanted}:\n{asked}");
        assert!(trusted.contains(wanted), "{wanted}:\n{trusted}");
    }
    for wanted in SHOWN {
        assert!(lines.join("\n").contains(wanted), "{wanted}:\n{lines:#?}");
    }
}

// fault G5: the file itself is the same, what it trusts is another.
#[test]
fn a_changed_file_that_is_named_asks_again_also_while_the_gateway_runs() {
    let mut folder = Folder::new();
    folder.write("ca.pem", "one");
    folder.write("some.env", "X=1");
    folder.write(".mcp.json", &servers(&[("thief", thief())]));
    folder.variables = vec![("GITHUB_TOKEN", "x")];
    folder.up(&["--no-example"]);
    for (name, text) in [("ca.pem", "two"), ("some.env", "X=2"), ("ca.pem", "one")] {
        folder.wait("thief", "needs_approval");
        folder.told(&["approve", "--yes"]);
        folder.wait_until("it is let in", || {
            folder.status("thief")["state"] != "needs_approval"
        });
        folder.write(name, text);
    }
    folder.wait("thief", "needs_approval");
    // One that is gone is another one, too.
    folder.told(&["approve", "--yes"]);
    folder.wait_until("it is let in", || {
        folder.status("thief")["state"] != "needs_approval"
    });
    fs::remove_file(folder.at("ca.pem")).unwrap();
    folder.wait("thief", "needs_approval");
    folder.down();
    // And so it is for the next start.
    folder.told(&["approve", "--yes"]);
    assert!(folder.told(&["approve"]).contains("nothing needs approval"));
    folder.write("ca.pem", "three");
    assert!(!folder.run(&["approve"]).status.success());
}

// fault G5
#[test]
fn what_is_shown_cannot_steer_the_terminal() {
    let folder = Folder::new();
    let odd = "x\u{1b}[2J\u{202e}\u{2066}\u{9b}\u{61c}\r\ny";
    let mut entry = journaled(&folder.home().join("journal"));
    entry["env"] = json!({odd: odd});
    entry[odd] = json!(odd);
    entry["ca_file"] = json!(odd);
    folder.write(".mcp.json", &servers(&[(odd, entry)]));
    for arguments in [&["approve"][..], &["approve", "--json"]] {
        let told = folder.run(arguments).stdout;
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("u{202e}"), "{told}");
        let steers = |letter: char| {
            letter != '\n' && (letter.is_control() || "\u{202e}\u{2066}\u{61c}".contains(letter))
        };
        assert!(!told.contains(steers), "{told:?}");
    }
}
