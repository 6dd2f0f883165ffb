//! Valid entries, and the diagnostics of invalid ones.

use super::*;
use crate::config::document::Syntax;
use crate::config::env::Environment;
use crate::config::file::{Root, entries};

fn reading(text: &str, syntax: Syntax) -> Vec<Reading> {
    let (name, root, owner) = match syntax {
        Syntax::Json | Syntax::Yaml => ("mcp.json", Root::Servers, Owner::Client),
        Syntax::Toml => ("gantry.toml", Root::Own, Owner::Gantry),
    };
    let document = Document::parse(Path::new(name), text.as_bytes(), syntax).unwrap();
    let environment: Environment = [("TOKEN".to_owned(), "s3".to_owned())]
        .into_iter()
        .collect();
    let inputs = BTreeMap::new();
    let fill = Fill::From(Values {
        environment: &environment,
        folder: Path::new("/project"),
        inputs: &inputs,
        secrets: Default::default(),
    });
    let (entries, mistakes) = entries(&document, &root);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    entries
        .iter()
        .map(|entry| read(&document, entry, owner, fill))
        .collect()
}

fn one(entry: &str) -> ServerSpec {
    let text = format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
    let mut readings = reading(&text, Syntax::Json);
    assert!(
        readings[0].mistakes.is_empty(),
        "{:?}",
        readings[0].mistakes
    );
    readings.remove(0).spec.unwrap()
}

fn problem(entry: &str) -> String {
    let text = format!(r#"{{"mcpServers": {{"a": {entry}, "b": {{"command": "x"}}}}}}"#);
    let readings = reading(&text, Syntax::Json);
    assert!(readings[0].spec.is_none());
    assert!(readings[1].spec.is_some(), "the neighbour stays");
    let mistakes = readings[0].mistakes.iter().map(ToString::to_string);
    mistakes.collect::<Vec<_>>().join("\n")
}

fn process(spec: &ServerSpec) -> &ProcessLaunch {
    spec.launch.process().unwrap()
}

fn remote(spec: &ServerSpec) -> &gantry_model::spec::RemoteLaunch {
    spec.launch.remote().unwrap()
}

#[test]
fn only_as_a_transport_stdio_is_passed_over() {
    let spec = one(r#"{"command": "x", "description": "stdio"}"#);
    assert_eq!(spec.description.as_deref(), Some("stdio"));
    let spec = one(r#"{"url": "https://example.com/mcp", "type": "stdio"}"#);
    assert!(spec.launch.remote().is_some());
}

#[test]
fn an_entry_of_a_remote_server() {
    // rows 0.6, 2.20, 3.4
    use gantry_model::spec::TransportPreference;
    let spec = one(
        r#"{"type": "sse", "url": "https://example.com/${MODE:-sse}", "headers": {"Authorization": "Bearer ${TOKEN}"},
            "proxy": "http://proxy:3128", "allow_private": true, "ca_file": "ca.pem",
            "reconnect": {"first": "10ms", "failures": 2},
            "tools": {"settings": {"search": {"timeout": "5s", "idempotent": true}}}}"#,
    );
    let launch = remote(&spec);
    assert_eq!(launch.url, "https://example.com/sse");
    assert_eq!(launch.headers["Authorization"], "Bearer s3");
    assert_eq!(launch.transport, TransportPreference::Sse);
    assert_eq!(launch.proxy.as_deref(), Some("http://proxy:3128"));
    assert_eq!(
        launch.ca_file.as_deref(),
        Some(Path::new("/project/ca.pem"))
    );
    assert_eq!((launch.allow_private, launch.reconnect.failures), (true, 2));
    assert!(spec.tools.settings["search"].idempotent);
    assert_eq!(spec.concurrency(), 32);
    let wish = |entry: &str| remote(&one(entry)).transport;
    assert_eq!(
        wish(r#"{"url": "http://localhost/x"}"#),
        TransportPreference::Auto
    );
    assert_eq!(
        wish(r#"{"httpUrl": "http://localhost/x"}"#),
        TransportPreference::StreamableHttp
    );
    assert_eq!(
        wish(r#"{"type": "http", "url": "http://[::1]/x"}"#),
        TransportPreference::StreamableHttp
    );
}

#[test]
fn an_entry_as_clients_write_it() {
    // rows 0.3, 4.9, 4.10
    let spec = one(
        r#"{"type": "stdio", "command": "npx", "args": ["-y", "server-${TOKEN}"], // here
            "env": {"KEY": "${TOKEN}", "MODE": "${MODE:-fast}"}, "timeout": 5000,}"#,
    );
    assert_eq!(process(&spec).command, "npx");
    assert_eq!(process(&spec).args, ["-y", "server-s3"]);
    assert_eq!(process(&spec).env["KEY"], "s3");
    assert_eq!(process(&spec).env["MODE"], "fast");
    assert_eq!(process(&spec).cwd.as_deref(), Some(Path::new("/project")));
    assert_eq!(spec.calls.timeout.as_secs(), 5);
    assert_eq!(spec.source, Source::File);
    assert_eq!(spec.start, Start::Eager); // row 2.10
    assert_eq!(spec.concurrency(), 32); // row 2.9
}

#[test]
fn gantrys_own_members() {
    let spec = one(
        r#"{"command": "./server", "cwd": "sub", "concurrency": 1, "start": "lazy", "profile": "hosted",
            "limits": {"cpu": 0.5, "memory": "64M"}, "calls": {"queue": 3, "late_grace": "50ms"},
            "life": {"handshake": "2s", "restart": {"ladder": ["1s", 1500]}},
            "tools": {"include": ["read_*"], "exclude": ["read_all"]}}"#,
    );
    assert_eq!(process(&spec).command, "/project/./server");
    assert_eq!(
        process(&spec).cwd.as_deref(),
        Some(Path::new("/project/sub"))
    );
    assert_eq!(process(&spec).limits.cpu, Some(0.5));
    assert_eq!(process(&spec).limits.memory_bytes, Some(64 << 20));
    assert_eq!((spec.concurrency(), spec.calls.queue), (1, 3));
    assert_eq!(spec.lifecycle.handshake.as_secs(), 2);
    assert_eq!(spec.lifecycle.restart.backoff[1].as_millis(), 1500);
    assert_eq!(spec.start, Start::Lazy);
    assert!(spec.tools.leaves_out("read_all").is_some());
    assert!(spec.tools.leaves_out("read_one").is_none());
}

#[test]
fn both_syntaxes_make_the_same_spec() {
    let toml = "[servers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nenv = { K = \"${TOKEN}\" }\n\
                [servers.a.limits]\ncpu = 0.5\n[servers.a.tools]\nexclude = [\"x\"]\n";
    let spec = reading(toml, Syntax::Toml).remove(0).spec.unwrap();
    let same = one(
        r#"{"command": "npx", "args": ["-y", "x"], "env": {"K": "${TOKEN}"}, "limits": {"cpu": 0.5},
            "tools": {"exclude": ["x"]}}"#,
    );
    assert_eq!(spec, same);
}

#[test]
fn a_mistake_names_file_place_server_and_field() {
    assert_eq!(
        problem(r#"{"args": []}"#),
        "mcp.json:1:17: server `a`: `command` is missing"
    );
    let check = |entry: &str, said: &str| {
        let found = problem(entry);
        assert!(found.contains(said), "{entry}: {found}");
    };
    check(
        r#"{"command": "x", "args": ["a", 2]}"#,
        "`args[1]` must be a text, not a number",
    );
    check(
        r#"{"command": "x", "env": {"K": "${NO}"}}"#,
        "`env.K` uses the variable `NO`, which is not set",
    ); // fault K1
    check(r#"{"type": "sse"}"#, "`url` is missing");
    check(
        r#"{"url": "http://x", "command": "y"}"#,
        "`command` and `url` exclude each other",
    );
    check(
        r#"{"url": "http://x", "headers": {"X-A": "a\r\nb"}}"#,
        "header `X-A` cannot be used",
    ); // fault H10
    check(
        r#"{"url": "http://x", "tools": {"settings": {"t": {"retry": 1}}}}"#,
        "`tools.settings.t.retry` is not known",
    );
    check(
        r#"{"url": "file:///x"}"#,
        "`url` cannot be used: the scheme `file` is not allowed",
    ); // fault G7
    check(
        r#"{"command": "x", "timeout": -1}"#,
        "`timeout` must be a time",
    );
    check(r#"{"command": "x", "limits": {"cpu": 0}}"#, "0.01 to 1024"); // fault G6
    check(
        r#"{"command": "x", "limits": {"memory": "1e309G"}}"#,
        "4 MiB to 64 TiB",
    ); // fault G6
    check(r#"{"command": "x y; z"}"#, "shell line"); // fault G3
    check(
        r#"{"command": "x", "start": "later"}"#,
        "`start` must be one of",
    );
    // All errors are reported at once.
    let both = problem(r#"{"command": 1, "args": "x"}"#);
    assert_eq!(both.lines().count(), 2, "{both}");
}

#[test]
fn what_is_switched_off_or_unknown_does_no_harm() {
    let text = r#"{"other": 1, "mcpServers": {"a": {"command": "x", "disabled": true},
        "b": {"command": "x", "colour": "red", "agrs": [], "autoApprove": [], "tools": []}}}"#;
    let readings = reading(text, Syntax::Json);
    assert!(readings[0].spec.is_none() && readings[0].mistakes.is_empty());
    assert!(readings[1].spec.is_some());
    assert_eq!(
        readings[1].warnings,
        [
            "mcp.json:2:31: server `b`: `colour` is not known and has no effect",
            "mcp.json:2:48: server `b`: `agrs` is not known and has no effect; did you mean `args`?"
        ]
    );
    let own = reading(
        "[servers.a]\ncommand = \"x\"\nagrs = []\nx-roo = {}\n",
        Syntax::Toml,
    );
    assert_eq!(own[0].mistakes.len(), 1);
    assert_eq!(own[0].mistakes[0].kind(), Kind::UnknownKey);
}
