//! Every member of a file is shown in the prompt, whether or not the reader knows it.

use gantry_model::spec::options::{ServerOption, options, put};
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::config::document::{Document, Syntax};
use crate::config::entry::OF_CLIENTS;
use crate::config::env::Environment;
use crate::config::file::{Root, entries};
use crate::config::settings;

/// Returns the lines of a whole file, as shown.
fn asked_of(text: &str, syntax: Syntax) -> Vec<String> {
    let (name, root) = match syntax {
        Syntax::Json | Syntax::Yaml => (".mcp.json", Root::Servers),
        Syntax::Toml => ("gantry.toml", Root::Own),
    };
    let document = Document::parse(Path::new(name), text.as_bytes(), syntax).unwrap();
    let environment = Environment::default();
    let inputs = BTreeMap::new();
    let values = Values {
        environment: &environment,
        folder: Path::new("/srv/shop"),
        inputs: &inputs,
        secrets: Default::default(),
    };
    let (entries, mistakes) = entries(&document, &root);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let entries = entries.iter();
    let asked = entries.map(|entry| of_entry(entry, &BTreeMap::new(), values));
    let asked = asked.chain(document.root.find("gateway").map(|gateway| {
        let named = settings::files(gateway, Path::new("/srv/shop/gantry.toml"));
        let named = named.into_iter().map(|path| (path, None));
        of_gateway(gateway, &named.collect())
    }));
    asked
        .flat_map(|asked| asked.lines)
        .map(|line| line.shown)
        .collect()
}

fn lines(entry: &Json) -> String {
    let file = json!({"mcpServers": {"a": entry}}).to_string();
    asked_of(&file, Syntax::Json).join("\n")
}

/// Gives each key a unique value.
fn marked(keys: &[&str], count: &mut usize) -> Map<String, Json> {
    let members = keys.iter().map(|key| {
        *count += 1;
        ((*key).to_owned(), json!(format!("mark-{count:03}")))
    });
    members.collect()
}

// fault G5: no key that the reader knows, or does not, can be left out of what is shown.
#[test]
fn every_member_is_shown_at_every_depth() {
    let mut count = 0;
    let mut entry = marked(&OF_CLIENTS, &mut count);
    let others = [
        "envFile", "x-other", "Command", "unknown", "disabled", "inputs",
    ];
    entry.extend(marked(&others, &mut count));
    let names: Vec<&str> = options().flat_map(ServerOption::names).collect();
    for name in &names {
        count += 1;
        put(&mut entry, name, json!(format!("mark-{count:03}")));
    }
    let tool = marked(&["timeout", "idempotent", "output_check"], &mut count);
    put(&mut entry, "tools.settings", json!({ "search": tool }));
    put(&mut entry, "env", marked(&["A", "B"], &mut count).into());
    put(
        &mut entry,
        "headers",
        marked(&["Authorization"], &mut count).into(),
    );
    entry["args"] = json!(["mark-901", {"deep": ["mark-902"]}, 7]);
    let shown = lines(&Json::Object(entry.clone()));
    let written = json!(entry).to_string();
    let marks = written.split("mark-").skip(1).map(|rest| &rest[..3]);
    for mark in marks {
        assert!(shown.contains(&format!("mark-{mark}")), "{mark}:\n{shown}");
    }
    for key in names.iter().chain(&OF_CLIENTS).chain(&others) {
        let in_headline = ["command", "image", "cwd", "url", "httpUrl", "serverUrl"].contains(key);
        assert!(
            in_headline || shown.contains(&format!("  {key}")),
            "{key}:\n{shown}"
        );
    }
}

// fault G5
#[test]
fn every_key_of_the_gateway_is_shown() {
    let settings: Vec<String> = settings::keys()
        .iter()
        .map(|key| format!("{key} = \"mark-{key}\"\n"))
        .collect();
    let file = format!("[gateway]\n{}", settings.concat());
    let shown = asked_of(&file, Syntax::Toml);
    for key in settings::keys() {
        let line = format!("[gateway] {key} = \"mark-{key}\"");
        assert!(shown.contains(&line), "{line}: {shown:#?}");
    }
}

// fault G5
#[test]
fn where_a_variable_goes_is_said() {
    let entry = json!({
        "serverUrl": "https://mcp.example.com/mcp", "proxy": "http://evil:8080",
        "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}, "ca_file": "ca.pem", "allow_private": true,
        "auth": {"client_secret": "${env:SECRET:-none}"}
    });
    insta::assert_snapshot!(lines(&entry), @r#"
    a: connects to https://mcp.example.com/mcp
      proxy = "http://evil:8080"
      headers.Authorization = "Bearer ${GITHUB_TOKEN}"
      ca_file = "ca.pem"
      allow_private = true
      auth.client_secret = "${env:SECRET:-none}"
      names the file /srv/shop/ca.pem, which cannot be read now
      reads from your environment: SECRET → sent as client_secret when signing in to https://mcp.example.com/mcp via proxy http://evil:8080
      reads from your environment: GITHUB_TOKEN → sent as header Authorization to https://mcp.example.com/mcp via proxy http://evil:8080
    "#);
    let entry = json!({
        "command": "npx", "args": ["-y", "a b", ",", "${HOME}"], "env": {"T": "x${A}${input:key}", "U": "plain"},
        "cwd": "sub"
    });
    insta::assert_snapshot!(lines(&entry), @r#"
    a: runs npx -y 'a b' ',' '${HOME}', sets T, U, in sub
      env.T = "x${A}${input:key}"
      env.U = "plain"
      reads from your environment: HOME → given as argument to npx
      reads from your environment: A → given as variable T to npx
      asks you for: key → given as variable T to npx
    "#);
}

// fault G5
#[test]
fn what_goes_nowhere_is_said_to_be_unused() {
    let shown = lines(&json!({"env": {"T": "${A}"}}));
    let line = "reads from your environment: A → not used: the entry has no command, image or URL";
    assert!(shown.contains(line), "{shown}");
}

// fault G5
#[test]
fn nothing_that_is_shown_steers_a_terminal_or_hides() {
    let odd = "x\u{1b}[2J\r\n\u{202e}\u{2066}\u{61c}\u{9b}\u{7f}\u{200b}\u{a0}\u{3164}\u{e0041}y";
    let invisible = ('\0'..=char::MAX).filter(|letter| is_invisible(*letter));
    let odd: &str = &invisible.chain(odd.chars()).collect::<String>();
    let entry = json!({
        "command": odd, "args": [odd], "env": {odd: odd}, odd: odd, "url": odd, "proxy": odd,
        "cwd": odd, "headers": {odd: format!("${{A}}{odd}")}, "ca_file": odd
    });
    let file = json!({"mcpServers": {odd: entry}}).to_string();
    for line in asked_of(&file, Syntax::Json) {
        let harmless = |letter: char| letter == '→' || (' '..='~').contains(&letter);
        assert!(line.chars().all(harmless), "{line:?}");
    }
}

// fault G5: who is trusted, and what is read, is a part of what is approved.
#[test]
fn what_the_settings_of_the_gateway_read_is_shown() {
    let file = r#"[gateway]
issuers = "issuers.json"
otlp = "https://traces.example"
otlp_headers = "env:GITHUB_TOKEN"
"#;
    insta::assert_snapshot!(asked_of(file, Syntax::Toml).join("\n"), @r#"
    [gateway] issuers = "issuers.json"
    [gateway] otlp = "https://traces.example"
    [gateway] otlp_headers = "env:GITHUB_TOKEN"
    [gateway] names the file /srv/shop/issuers.json, which cannot be read now
    [gateway] reads from your environment: GITHUB_TOKEN → used in `otlp_headers`
    "#);
}

// fault G5: issue 10, security 2
#[test]
fn letters_that_pass_for_others_are_escaped() {
    for (text, expected) in [
        (
            "https://g\u{456}thub.com/\u{430}",
            r"https://g\u{456}thub.com/\u{430}",
        ),
        ("https://\u{430}\u{440}.com", r"https://\u{430}\u{440}.com"),
        ("n\u{440}x", r"n\u{440}x"),
        ("/\u{ff4e}\u{ff50}x", r"/\u{ff4e}\u{ff50}x"),
        ("\u{1d427}", r"\u{1d427}"),
        (
            "/home/j\u{f6}rg/\u{43c}\u{438}\u{440}/a\u{6587}",
            "/home/j\u{f6}rg/\u{43c}\u{438}\u{440}/a\u{6587}",
        ),
    ] {
        assert_eq!(shown(text), expected);
    }
}
