//! A verb whose output cannot be written says so and fails; one whose reader has gone ends quietly.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use gantry_testkit::wait::eventually;
use serde_json::json;

use super::run;
use crate::harness::{Gantry, LONG, PROGRAM};

/// Runs a verb whose stdout takes nothing: the disk is full.
fn onto_full_disk(gantry: &Gantry, words: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("--data")
        .arg(gantry.data())
        .args(words)
        .env("NO_COLOR", "1")
        .current_dir(gantry.data().parent().unwrap())
        .stdin(Stdio::null())
        .stdout(File::create("/dev/full").unwrap())
        .stderr(Stdio::piped())
        .output()
        .unwrap()
}

const VERBS: [&[&str]; 27] = [
    &["calls", "--json"],
    &["calls"],
    &["calls", "-f"],
    &["status"],
    &["status", "--json"],
    &["status", "a"],
    &["ls"],
    &["ls", "--json"],
    &["tools"],
    &["tools", "--json"],
    &["call", "a__echo", "text=x"],
    &["call", "a__echo", "text=x", "--json"],
    &["call", "a__echo", "--help"],
    &["logs", "a"],
    &["logs", "a", "--json"],
    &["logs", "a", "-f"],
    &["key", "ls"],
    &["agent", "ls", "--json"],
    &["why", "default", "a__echo"],
    &["doctor"],
    &["config", "check"],
    &["connect"],
    &["approve"],
    &["completions", "bash"],
    &["man"],
    &["--help"],
    &["--version"],
];

#[test]
fn a_verb_that_cannot_write_says_so_and_exits_with_1() {
    let gantry = Gantry::start(&["a"]);
    run(&gantry, &["call", "a__stderr", "--text", "one"]);
    for words in VERBS {
        let output = onto_full_disk(&gantry, words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        let wanted = "error: cannot write to stdout\n  because: No space left on device";
        assert!(told.contains(wanted), "{words:?}: {told}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let gantry = Gantry::start(&["a"]);
    run(&gantry, &["call", "a__stderr", "--text", "one"]);
    for words in VERBS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(PROGRAM)
            .arg("--data")
            .arg(gantry.data())
            .args(words)
            .current_dir(gantry.data().parent().unwrap())
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {told}");
        assert_eq!(told, "", "{words:?}");
    }
}

#[test]
fn verbs_that_do_not_serve_log_no_lifecycle_lines() {
    let mut dead = Gantry::start(&["a"]);
    dead.kill();
    // Removes the control groups of the dead gateway, and does not log that into its report.
    let output = dead.cli(&["doctor"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("INFO"), "{told}");
}

#[test]
fn a_client_that_takes_no_message_is_told_on_stderr() {
    let gantry = Gantry::start(&["a"]);
    let mut child = Command::new(PROGRAM)
        .args(["stdio", "--data"])
        .arg(gantry.data())
        .stdin(Stdio::piped())
        .stdout(File::create("/dev/full").unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    input.write_all(format!("{ping}\n").as_bytes()).unwrap();
    let mut status = None;
    let ended = eventually(LONG, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert!(ended.is_some(), "it still runs");
    let mut told = String::new();
    child.stderr.unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.unwrap().code(), Some(1), "{told}");
    assert!(told.contains("cannot write to stdout"), "{told}");
}

#[test]
fn a_client_that_never_reads_stderr_is_served() {
    let gantry = Gantry::start(&["a"]);
    let mut child = Command::new(PROGRAM)
        .args(["--log", "trace", "stdio", "--data"])
        .arg(gantry.data())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Kept, and never read.
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let long = "x".repeat(2000);
    for id in 0..500 {
        let params = json!({"name": "a__echo", "arguments": {"text": long}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        input.write_all(format!("{call}\n").as_bytes()).unwrap();
        let answer = lines.next().unwrap().unwrap();
        assert!(answer.contains("\"result\""), "{answer}");
    }
    drop(input);
    let mut status = None;
    let ended = eventually(LONG, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert!(ended.is_some(), "it still runs");
    assert!(status.unwrap().success());
}

// fault A2: at the bound of connections the verbs say what is the matter.
#[test]
fn without_room_for_a_connection_the_verbs_say_so() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join("bounds.toml"),
        "version = 1\n[gateway]\nconnections_per_address = 2\n",
    )
    .unwrap();
    let bounds = home.path().join("bounds.toml");
    let gantry = Gantry::builder()
        .flags(&["--config", bounds.to_str().unwrap()])
        .own_grants()
        .start();
    let mut holding: Vec<_> = (0..2).map(|_| gantry.connect()).collect();
    for connection in &mut holding {
        let answer = connection.request("GET", "/healthz", &[], b"").unwrap();
        assert_eq!(answer.status, 200);
    }
    for words in [&["status"][..], &["tools"], &["calls", "--json"]] {
        let told = run(&gantry, words);
        assert_eq!(
            told,
            "--- stderr\nerror: the gateway accepts no more connections\nhint: try again in \
             5 s, or end clients that are not needed; one address may hold \
             `connections_per_address` of `[gateway]`\n--- exit 1",
            "{words:?}"
        );
    }
    // A client behind `gantry stdio` is told so too, and served when there is room.
    let mut client = super::stdio::Client::start(&gantry.data(), &[]);
    let full = client.stateless(json!(1), "tools/list", json!({}));
    let message = full["error"]["message"].as_str().unwrap();
    assert!(message.contains("accepts no more connections"), "{full:#}");
    let hello = client.initialize("2025-11-25");
    assert_eq!(hello["error"]["data"]["code"], "stdio.down", "{hello:#}");
    drop(holding);
    let served = eventually(LONG, || {
        let tools = client.stateless(json!(2), "tools/list", json!({}));
        tools["result"]["tools"].is_array()
    });
    assert!(served.is_some());
    assert!(client.close().success());
    let free = eventually(LONG, || gantry.cli(&["status"]).status.success());
    assert!(free.is_some());
}

// What listens there is no gateway.
#[test]
fn what_is_no_gateway_is_told_in_words() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = std::thread::spawn(move || {
        for said in [&b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..], b""] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 1024];
            assert!(stream.read(&mut asked).unwrap() > 0);
            stream.write_all(said).unwrap();
        }
    });
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("key");
    std::fs::write(&key, "gantry_admin_x").unwrap();
    let url = format!("http://{address}");
    let words = ["--url", &url, "--key-file", key.to_str().unwrap(), "status"];
    for because in [
        "the other side does not speak HTTP/1.1",
        "the connection was closed before the response was complete",
    ] {
        let told = super::alone(&words);
        assert!(told.contains("error: the gateway did not answer"), "{told}");
        assert!(told.contains(because), "{told}");
    }
    serving.join().unwrap();
}
