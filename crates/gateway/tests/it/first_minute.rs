//! Must show 1: the first command shows real tools, and what it prints works as printed.

use std::fs;
use std::process::{Command, Stdio};

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Connection, Gantry, LONG, PROGRAM};

/// The tools of the example server.
const EXAMPLE: [&str; 3] = ["example__echo", "example__now", "example__add"];

/// Does what a client does with the printed line for its environment and the printed `mcpServers`:
/// lists the tools, and returns their names.
fn listed_by_snippet(printed: &str) -> Vec<String> {
    let line = |start: &str| {
        let mut lines = printed.lines().map(str::trim);
        let found = lines.find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no line `{start}…`:\n{printed}"))
    };
    let export = line("export GANTRY_KEY=");
    let script = format!("{export}\nprintf %s \"$GANTRY_KEY\"");
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(shell.status.success(), "{shell:?}");
    let key = String::from_utf8(shell.stdout).unwrap();

    let file: Value = serde_json::from_str(line("{\"mcpServers\":")).unwrap();
    let entry = &file["mcpServers"]["gantry"];
    assert_eq!(entry["type"], "http", "{file:#}");
    let url = entry["url"].as_str().unwrap();
    let (authority, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .unwrap_or_else(|| panic!("{url}"));
    let headers = entry["headers"].as_object().unwrap();
    let expanded = |value: &Value| value.as_str().unwrap().replace("${GANTRY_KEY}", &key);
    let own: Vec<(&str, String)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), expanded(value)))
        .collect();
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    headers.extend(own.iter().map(|(name, value)| (*name, value.as_str())));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let answer = Connection::open(authority)
        .unwrap()
        .request("POST", &format!("/{path}"), &headers, body.as_bytes())
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let tools = answer.message()["result"]["tools"].take();
    let names = tools.as_array().into_iter().flatten();
    names
        .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
        .collect()
}

/// Runs `gantry up` as a person does in a folder: no flags but those that keep the test to itself.
#[test]
fn up_shows_tools_without_any_configuration_and_its_snippet_works() {
    let home = tempfile::tempdir().unwrap();
    let printed = home.path().join("printed");
    let mut child = Command::new(PROGRAM)
        .args(["up", "--port", "0"])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(fs::File::create(&printed).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let text = || fs::read_to_string(&printed).unwrap_or_default();
    // On a busy machine the endpoint may be told before the server's line.
    let told = eventually(LONG, || {
        text().contains("Stop with Ctrl-C.") && text().contains("✓ example ")
    });
    let text = text();
    let outcome = std::panic::catch_unwind(|| {
        assert!(told.is_some(), "it never came up:\n{text}");
        assert!(
            text.contains("✓ example  ready, 3 tools, 1 resource, 1 prompt"),
            "{text}"
        );
        let state = home.path().join(".local/state/gantry");
        let key = text.lines().find_map(|line| {
            line.split_whitespace()
                .find(|word| word.ends_with("agent.key"))
        });
        let key = key.expect("it says where the agent's key is");
        assert!(key.starts_with(state.to_str().unwrap()), "{key}");
        let secret = fs::read_to_string(key).unwrap();
        assert!(
            !text.contains(secret.trim()),
            "the key itself is never printed"
        ); // fault U2
        assert!(text.contains("  isolation   "), "{text}");

        let snippet: String = text
            .lines()
            .skip_while(|line| !line.trim_start().starts_with("curl "))
            .take_while(|line| !line.is_empty())
            .map(|line| format!("{line}\n"))
            .collect();
        let answered = Command::new("sh").args(["-c", &snippet]).output().unwrap();
        let answer = String::from_utf8_lossy(&answered.stdout).into_owned();
        let answer: Value =
            serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{snippet}\n{answer}"));
        let tools = answer["result"]["tools"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer:#}"));
        let names: Vec<&str> = tools
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        assert_eq!(names, EXAMPLE);
        assert_eq!(listed_by_snippet(&text), EXAMPLE);
    });
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    outcome.unwrap();
    assert!(status.success(), "{status}"); // row 2.13
}

#[test]
fn the_other_verbs_find_the_gateway_of_their_folder() {
    let gantry = Gantry::start(&["a"]);
    let shown = |arguments: &[&str]| {
        let output = gantry.cli(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}{problem}");
        text
    };
    assert!(shown(&["status"]).contains("ready"));
    assert!(shown(&["tools"]).contains("a__echo"));
    assert!(shown(&["call", "a__echo", "text=hello"]).contains("hello"));
    let calls = shown(&["calls", "--json"]);
    assert!(
        calls.contains("\"tool\"") && calls.contains("echo"),
        "{calls}"
    );
    shown(&["logs", "a"]);
    shown(&["restart", "a"]);
    shown(&["doctor"]);
}

#[test]
fn without_a_gateway_the_verbs_say_so() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(PROGRAM)
        .args(["status", "--data"])
        .arg(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("no gateway is running")
            && text.contains("hint: start it with `gantry --data "),
        "{text}"
    );
}

#[test]
fn stopping_answers_the_call_in_flight_and_leaves_nothing() {
    // fault P4, rows 2.13 and 4.12
    let mut gantry = Gantry::start(&["a"]);
    let pid = gantry.status("a")["pid"]
        .as_u64()
        .and_then(|pid| pid.try_into().ok())
        .unwrap();
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| gantry.call("a__slow", json!({"ms": 3000})));
        let in_flight = |status: &Value| status["queue"]["in_flight"] == 1;
        gantry.wait_status("a", LONG, in_flight);
        gantry.signal(Signal::TERM);
        call.join().unwrap()
    });
    assert_eq!(
        answer["result"]["content"][0]["text"], "slept 3000 ms",
        "{answer:#}"
    );
    assert_eq!(gantry.wait(LONG), Some(0), "{}", gantry.stderr());
    assert!(
        !gantry_testkit::procs::alive(pid),
        "the server outlived its gateway"
    );
    assert!(!gantry.data().join("gateway.json").exists());
    let gantry = gantry.again();
    let rows = gantry.audit_rows("server=a&tool=slow");
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!(rows[0]["status"], "ok");
}
