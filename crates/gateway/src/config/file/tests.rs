//! What a file may say, and what is said about one that is wrong.

use super::*;

fn load(text: &str) -> Result<Loaded, FileError> {
    let environment = [("TOKEN", "s3")]
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    parse(
        Path::new("mcp.json"),
        text.as_bytes(),
        &environment,
        Path::new("/project"),
    )
}

fn one(entry: &str) -> ServerSpec {
    let mut loaded = load(&format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#)).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    loaded.specs.remove(0)
}

fn problem(entry: &str) -> String {
    let loaded = load(&format!(
        r#"{{"mcpServers": {{"a": {entry}, "b": {{"command": "x"}}}}}}"#
    ))
    .unwrap();
    assert_eq!(loaded.specs.len(), 1, "the neighbour stays");
    let found = &loaded.problems[0];
    let source = std::error::Error::source(found).map(|source| match source.source() {
        Some(deeper) => format!("{source}: {deeper}"),
        None => source.to_string(),
    });
    format!("{found}: {}", source.unwrap_or_default())
}

fn refused(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

fn process(spec: &ServerSpec) -> &gantry_model::spec::ProcessLaunch {
    let gantry_model::spec::Launch::Process(process) = &spec.launch;
    process
}

#[test]
fn an_entry_as_clients_write_it() {
    // rows 0.3, 4.9, 4.10
    let spec = one(
        r#"{"type": "stdio", "command": "npx", "args": ["-y", "server-${TOKEN}"],
            "env": {"KEY": "${TOKEN}", "MODE": "${MODE:-fast}"}, "timeout": 5000}"#,
    );
    assert_eq!(process(&spec).command, "npx");
    assert_eq!(process(&spec).args, ["-y", "server-s3"]);
    assert_eq!(process(&spec).env["KEY"], "s3");
    assert_eq!(process(&spec).env["MODE"], "fast");
    assert_eq!(process(&spec).cwd.as_deref(), Some(Path::new("/project")));
    assert_eq!(spec.calls.timeout.as_secs(), 5);
    assert_eq!(spec.source, gantry_model::spec::Source::File);
    assert_eq!(spec.start, gantry_model::spec::Start::Eager); // row 2.10
    assert_eq!(spec.concurrency(), 32); // row 2.9
}

#[test]
fn gantrys_own_members() {
    let spec = one(
        r#"{"command": "./server", "cwd": "sub", "concurrency": 1, "start": "lazy", "profile": "hosted",
            "limits": {"cpu": 0.5}, "calls": {"queue": 3, "late_grace": "50ms"}, "life": {"handshake": "2s"}}"#,
    );
    assert_eq!(process(&spec).command, "/project/./server");
    assert_eq!(
        process(&spec).cwd.as_deref(),
        Some(Path::new("/project/sub"))
    );
    assert_eq!(process(&spec).limits.cpu, Some(0.5));
    assert_eq!((spec.concurrency(), spec.calls.queue), (1, 3));
    assert_eq!(spec.life.handshake.as_secs(), 2);
    assert_eq!(spec.start, gantry_model::spec::Start::Lazy);
}

#[test]
fn a_mistake_names_file_server_and_field() {
    let text = problem(r#"{"args": []}"#);
    assert_eq!(
        text,
        "server `a` in `mcp.json` cannot be used: `command` must be the program to run"
    );
    assert!(problem(r#"{"command": "x", "args": ["a", 2]}"#).ends_with("`args[1]` must be a text"));
    assert!(
        problem(r#"{"command": "x", "env": {"K": "${NO}"}}"#) // fault K1
            .ends_with("`env.K` uses the variable `NO`, which is not set")
    );
    assert!(problem(r#"{"url": "http://x"}"#).contains("`url` names a remote server"));
    assert!(problem(r#"{"command": "x", "timeout": -1}"#).contains("`timeout` must be"));
    assert!(problem(r#"{"command": "x", "limits": {"cpu": 0}}"#).contains("0.01 to 1024")); // fault G6
    assert!(problem(r#"{"command": "x y; z"}"#).contains("shell line")); // fault G3
    assert!(problem(r#"{"command": "x", "start": "later"}"#).contains("`start` must be"));
}

#[test]
fn a_broken_file_is_refused_with_the_place() {
    // fault G1
    assert_eq!(
        refused("{\n  \"mcpServers\": {,\n"),
        "mcp.json:2:18: key must be a string"
    );
    assert!(refused("{}").contains("there is no member `mcpServers`"));
    assert!(
        refused(r#"{"mcpServers": {"a": {}, "a": {}}}"#).contains("`a` stands here a second time")
    );
    assert!(refused("[]").contains("expected an object with a member `mcpServers`"));
}

#[test]
fn what_is_switched_off_or_unknown_does_no_harm() {
    let loaded = load(
        r#"{"other": 1, "mcpServers": {"a": {"command": "x", "disabled": true},
            "b": {"command": "x", "colour": "red", "autoApprove": []}}}"#,
    )
    .unwrap();
    assert_eq!(loaded.specs.len(), 1);
    assert_eq!(
        loaded.warnings,
        ["`mcp.json`: server `b`: `colour` is not known and has no effect"]
    );
}
