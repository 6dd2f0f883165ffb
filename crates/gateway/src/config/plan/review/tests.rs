//! Which parts of a file need approval after an edit, and how they are described. fault G5

use crate::config::approval::Approvals;
use crate::config::env::Environment;
use crate::config::plan::{LastGood, Plan, load};
use crate::config::source::{Source, Trust};
use crate::data_folder::DataFolder;

use super::*;
use crate::config::file::Root;

/// A folder with files, and their approvals.
struct Folder {
    place: tempfile::TempDir,
    data: DataFolder,
}

impl Folder {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let data = DataFolder::open(&place.path().join("data")).unwrap();
        Self { place, data }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.place.path().join(name), text).unwrap();
    }

    fn plan(&self) -> Plan {
        let source = |path: &str, root| Source {
            path: path.into(),
            root,
            trust: Trust::Nobody,
            required: false,
        };
        let sources = [
            source(".mcp.json", Root::Servers),
            source("gantry.toml", Root::Own),
        ];
        load(Given {
            guarded: &gantry_model::spec::Guarded::default(),
            sources: &sources,
            approvals: &Approvals::load(&self.data),
            environment: &Environment::default(),
            folder: self.place.path(),
            inputs: &BTreeMap::new(),
            secrets: Default::default(),
            last_good: &LastGood::new(),
            neutral: None,
        })
        .unwrap()
    }

    fn approve(&self) {
        let plan = self.plan();
        let files = plan.unapproved.iter().map(|file| &file.approval);
        Approvals::approve(&self.data, files, []).unwrap();
    }

    /// Returns what needs approval, and which servers may run.
    fn state(&self) -> (String, Vec<String>) {
        let plan = self.plan();
        let waiting: Vec<String> = plan.unapproved.iter().map(ToString::to_string).collect();
        let running = plan.servers.iter();
        let running = running.filter(|server| server.spec.needs_approval.is_none());
        let running = running.map(|server| server.entry.name.clone());
        (waiting.join("; "), running.collect())
    }
}

const TWO: &str = r#"{"mcpServers": {
  "a": {"command": "one", "args": ["x"], "env": {"T": "s3cr3t-one"}},
  "b": {"url": "https://example.com/mcp", "ca_file": "ca.pem"}
}}"#;

#[test]
fn only_what_is_new_or_changed_waits() {
    let folder = Folder::new();
    folder.write("ca.pem", "one");
    folder.write(".mcp.json", TWO);
    assert_eq!(folder.state(), ("a (new), b (new)".into(), vec![]));
    folder.approve();
    let both = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(folder.state(), (String::new(), both.clone()));
    // Comments, order and layout do not matter.
    let same = r#"{ // a comment
      "mcpServers": {"b": {"ca_file": "ca.pem", "url": "https://example.com/mcp"},
      "a": {"env": {"T": "s3cr3t-one"}, "args": ["x"], "command": "one"},}}"#;
    folder.write(".mcp.json", same);
    assert_eq!(folder.state().0, "");
    for (from, to, waits, runs) in [
        ("\"one\"", "\"two\"", "a (changed)", "b"),
        ("[\"x\"]", "[\"x\", \"y\"]", "a (changed)", "b"),
        ("s3cr3t-one", "s3cr3t-two", "a (changed)", "b"),
        ("\"a\":", "\"c\":", "c (new)", "b"),
        (
            "\"url\"",
            "\"allow_private\": true, \"url\"",
            "b (changed)",
            "a",
        ),
        ("\"b\":", "\"x\": 1, \"b\":", "x (new)", "a,b"),
    ] {
        folder.write(".mcp.json", &TWO.replacen(from, to, 1));
        let (waiting, running) = folder.state();
        assert_eq!(
            (waiting.as_str(), running.join(",").as_str()),
            (waits, runs),
            "{to}"
        );
    }
    folder.write(".mcp.json", TWO);
    folder.write("ca.pem", "two");
    assert_eq!(folder.state(), ("b (changed)".into(), vec!["a".to_owned()]));
}

#[test]
fn an_entry_that_is_gone_needs_nobodys_word() {
    let folder = Folder::new();
    folder.write(".mcp.json", TWO);
    folder.approve();
    let one =
        r#"{"mcpServers": {"a": {"command": "one", "args": ["x"], "env": {"T": "s3cr3t-one"}}}}"#;
    folder.write(".mcp.json", one);
    assert_eq!(folder.state(), (String::new(), vec!["a".to_owned()]));
    folder.write(".mcp.json", &one.replace("\"a\"", "\"z\""));
    let plan = folder.plan();
    assert_eq!(plan.unapproved[0].removed, ["a", "b"]);
}

#[test]
fn a_change_is_shown_and_the_rest_is_not() {
    let folder = Folder::new();
    folder.write("ca.pem", "one");
    folder.write(".mcp.json", TWO);
    folder.approve();
    let edited = TWO
        .replace("\"args\": [\"x\"]", "\"args\": [\"y\"], \"timeout\": 5")
        .replace("s3cr3t-one", "s3cr3t-two")
        .replace("\"b\": {", "\"new\": {\"command\": \"three\"},\n  \"b\": {");
    folder.write(".mcp.json", &edited);
    let plan = folder.plan();
    let asks = plan.unapproved[0].asks.join("\n");
    let hash = &Digest::of(b"s3cr3t-one").as_str()[..16].to_owned();
    let asks = asks.replace(hash.as_str(), "HASH");
    insta::assert_snapshot!(asks, @r#"
    - a: runs one x, sets T
    -   env.T = "…sha256:HASH"
    + a: runs one y, sets T
    +   timeout = 5
    +   env.T = "s3cr3t-two"
    + new: runs three
    "#);
    let kept = std::fs::read_to_string(folder.data.approvals()).unwrap();
    assert!(!kept.contains("s3cr3t"), "{kept}");
}

#[test]
fn where_a_variable_goes_is_told_again_when_that_changes() {
    let folder = Folder::new();
    let file = r#"{"mcpServers": {"a": {"url": "https://one.example/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"}}}}"#;
    folder.write(".mcp.json", file);
    folder.approve();
    folder.write(".mcp.json", &file.replace("one.example", "two.example"));
    insta::assert_snapshot!(folder.plan().unapproved[0].asks.join("\n"), @r"
    - a: connects to https://one.example/mcp
    -   reads from your environment: TOKEN → sent as header Authorization to https://one.example/mcp
    + a: connects to https://two.example/mcp
    +   reads from your environment: TOKEN → sent as header Authorization to https://two.example/mcp
    ");
}

#[test]
fn settings_of_the_gateway_wait_by_themselves() {
    let folder = Folder::new();
    let file = "[gateway]\nexpose = \"bare\"\n[servers.a]\ncommand = \"one\"\n";
    folder.write("gantry.toml", file);
    assert_eq!(folder.state().0, "a (new), [gateway] (new)");
    folder.approve();
    assert!(folder.plan().settings.expose.is_some());
    folder.write(
        "gantry.toml",
        &file.replace("\"bare\"", "\"bare\"\naudit = \"disk\""),
    );
    let plan = folder.plan();
    assert!(plan.settings.expose.is_none() && plan.settings.audit.is_none());
    assert_eq!(
        folder.state(),
        ("[gateway] (changed)".into(), vec!["a".to_owned()])
    );
    folder.write("gantry.toml", &file.replace("one", "two"));
    assert_eq!(folder.state(), ("a (changed)".into(), vec![]));
    assert!(folder.plan().settings.expose.is_some());
}

// issue 10, security 2
#[test]
fn whom_the_gateway_trusts_is_approved_with_its_settings() {
    let folder = Folder::new();
    folder.write("gantry.toml", "[gateway]\nissuers = \"issuers.json\"\n");
    folder.write("issuers.json", "one");
    folder.approve();
    assert_eq!(folder.state().0, "");
    let named: Vec<_> = folder.plan().named_files.into_iter().collect();
    assert_eq!(named, [folder.place.path().join("issuers.json")]);
    folder.write("issuers.json", "two");
    assert_eq!(folder.state().0, "[gateway] (changed)");
    assert!(folder.plan().settings.issuers.is_none());
    let hash = |text: &[u8]| Digest::of(text).as_str().to_owned();
    let asks = folder.plan().unapproved[0].asks.join("\n");
    assert!(
        asks.contains(&hash(b"one")) && asks.contains(&hash(b"two")),
        "{asks}"
    );
}

// fault G5: what was approved while it could not be read is asked about once it can.
#[test]
fn a_file_that_was_missing_is_asked_about_once_it_is_there() {
    let folder = Folder::new();
    folder.write("gantry.toml", "[gateway]\nsiem_ca = \"ca.pem\"\n");
    folder.approve();
    let path = folder.place.path().join("ca.pem");
    let plan = folder.plan();
    assert!(plan.unapproved.is_empty());
    assert_eq!(plan.approved_files["siem_ca"], (path.clone(), None));
    folder.write("ca.pem", "one");
    let plan = folder.plan();
    assert_eq!(plan.unapproved[0].to_string(), "[gateway] (changed)");
    assert!(plan.approved_files.is_empty() && plan.settings.siem.ca.is_none());
    folder.approve();
    let approved = Some(Digest::of(b"one"));
    assert_eq!(folder.plan().approved_files["siem_ca"], (path, approved));
}

#[test]
fn what_was_approved_as_a_whole_file_is_remembered_by_parts() {
    let folder = Folder::new();
    folder.write(".mcp.json", TWO);
    let path = folder.place.path().join(".mcp.json");
    let plan = folder.plan();
    let digest = plan.unapproved[0].approval.digest.as_str();
    let old = serde_json::json!({"files": {path.to_str().unwrap(): digest}});
    std::fs::write(folder.data.approvals(), old.to_string()).unwrap();
    let plan = folder.plan();
    assert!(plan.unapproved.is_empty());
    Approvals::approve(&folder.data, &plan.unrecorded, []).unwrap();
    assert!(folder.plan().unrecorded.is_empty());
    folder.write(".mcp.json", &TWO.replace("\"one\"", "\"two\""));
    assert_eq!(folder.state(), ("a (changed)".into(), vec!["b".to_owned()]));
}

#[test]
fn values_that_differ_are_never_the_same() {
    let written = |text: &str| {
        let document = crate::config::document::Document::parse(
            Path::new("a.json"),
            text.as_bytes(),
            crate::config::document::Syntax::Json,
        );
        let mut bytes = Vec::new();
        canonical(&document.unwrap().root, &mut bytes);
        bytes
    };
    let all = [
        "{}",
        "[]",
        "null",
        "\"\"",
        "0",
        "\"0\"",
        "false",
        "[null]",
        "[[]]",
        r#"{"a": 1}"#,
        r#"{"a": "1"}"#,
        r#"{"a": [1]}"#,
        r#"{"a": 1.0}"#,
        r#"["a", 1]"#,
        r#"["a1"]"#,
        r#"["a", "1"]"#,
        r#"{"a": {"b": 1}}"#,
        r#"{"a": {}, "b": 1}"#,
    ];
    for (at, one) in all.iter().enumerate() {
        for other in &all[..at] {
            assert_ne!(written(one), written(other), "{one} {other}");
        }
    }
    assert_eq!(
        written(r#"{"a": 1, "b": 2}"#),
        written(r#"{ "b": 2, "a": 1 }"#)
    );
}
