//! Questions to a person at a real terminal.

use std::fs;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use serde_json::json;

use super::{Folder, journaled, peer, servers};
use crate::harness::{LONG, PROGRAM, Terminal, entry};

/// Runs a verb in the folder, as a person does.
pub(super) fn open(folder: &Folder, arguments: &str) -> Terminal {
    let data = folder.data();
    let line = format!("exec {PROGRAM} --data {} {arguments}", data.display());
    Terminal::open(&folder.home(), &folder.home().join("shop"), &line)
}

fn starts(journal: &std::path::Path) -> usize {
    Journal::read(journal).map_or(0, |journal| journal.starts())
}

// fault G5
#[test]
fn up_asks_once_and_a_yes_lets_it_run() {
    let folder = Folder::new();
    let journal = folder.home().join("journal");
    folder.write(".mcp.json", &servers(&[("theirs", journaled(&journal))]));
    let mut terminal = open(&folder, "up --port 0");
    terminal.sees("Let it run? [y/N] ");
    assert!(
        terminal.shown().contains("theirs: runs "),
        "what is asked about"
    );
    assert_eq!(starts(&journal), 0);
    terminal.types("y\n");
    terminal.sees("theirs  ready");
    terminal.sees("Stop with Ctrl-C.");
    assert!(terminal.shown().contains("/#code="), "a sign-in link");
    terminal.stops();
    assert_eq!(starts(&journal), 1);
    // Its hash is remembered.
    let terminal = open(&folder, "up --port 0");
    terminal.sees("theirs  ready");
    let shown = terminal.stops();
    assert!(!shown.contains("Let it run?"), "{shown}");
}

// fault G5
#[test]
fn anything_but_a_yes_is_a_no_and_the_rest_comes_up() {
    let folder = Folder::new();
    let journal = folder.home().join("journal");
    fs::write(
        folder.home().join(".kode.json"),
        servers(&[("mine", peer())]),
    )
    .unwrap();
    folder.write(".mcp.json", &servers(&[("theirs", journaled(&journal))]));
    for answer in ["n\n", "\n", "sure\n"] {
        let mut terminal = open(&folder, "up --port 0");
        terminal.sees("Let it run? [y/N] ");
        terminal.types(answer);
        terminal.sees("mine    ready");
        terminal.sees("theirs  needs approval");
        terminal.stops();
    }
    assert_eq!(starts(&journal), 0);
    assert!(!folder.data().join("approvals/approved.json").exists());
}

// fault G5
#[test]
fn approve_asks_at_a_terminal() {
    let folder = Folder::new();
    folder.write(".mcp.json", &servers(&[("theirs", peer())]));
    for (answer, code, told) in [
        ("n\n", 1, "nothing was approved"),
        ("y\n", 0, "approved `.mcp.json`"),
    ] {
        let mut terminal = open(&folder, "approve");
        terminal.sees("Let it run? [y/N] ");
        terminal.types(answer);
        assert_eq!(terminal.ends(), code, "{}", terminal.shown());
        assert!(terminal.shown().contains(told), "{}", terminal.shown());
    }
    let mut terminal = open(&folder, "approve");
    terminal.sees("nothing needs approval");
    assert_eq!(terminal.ends(), 0);
}

// rows 2.10 and 2.17: VS Code's questions survive the import, and are asked by `gantry up`.
#[test]
fn the_inputs_of_an_imported_file_are_asked_for_once_and_kept_sealed() {
    let folder = Folder::new();
    let journal = folder.home().join("journal");
    let mut server = entry(&gantry_testkit::Evilpeer::new().journal(&journal));
    server["type"] = json!("stdio");
    server["env"] = json!({"PROBE": "${input:probe-key}"});
    let file = json!({
        "inputs": [{"type": "promptString", "id": "probe-key", "description": "Key", "password": true}],
        "servers": {"asks": server}
    });
    fs::create_dir(folder.at(".vscode")).unwrap();
    fs::write(folder.at(".vscode/mcp.json"), file.to_string()).unwrap();
    folder.told(&["import", "vscode"]);
    // Without a terminal nobody can be asked.
    let check = folder.run(&["config", "check", "--config", "gantry.toml"]);
    let told = String::from_utf8_lossy(&check.stderr);
    assert!(told.contains("needs the input `probe-key`"), "{told}");

    let typed = "typed-by-a-person";
    let mut terminal = open(&folder, "up --port 0 --trust");
    terminal.sees("input `probe-key`: ");
    terminal.types(&format!("{typed}\n"));
    terminal.sees("asks  ready");
    let pid = folder.wait("asks", "ready")["pid"].as_u64().unwrap();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(
        environment.contains(&format!("PROBE={typed}")),
        "{environment}"
    );
    let echoed = folder.told(&["call", "asks__echo", &format!("text={typed}")]);
    assert_eq!(echoed.trim(), "[redacted]");
    let shown = terminal.stops();
    assert!(!shown.contains(typed), "{shown}");
    assert_eq!(super::secrets::holding(&folder.data(), typed), [""; 0]);
    assert_eq!(super::secrets::holding(&folder.at(""), typed), [""; 0]);

    // The next start asks nobody, with a terminal or without.
    let given = |folder: &Folder| {
        let pid = folder.wait("asks", "ready")["pid"].as_u64().unwrap();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        String::from_utf8_lossy(&environment).into_owned()
    };
    let terminal = open(&folder, "up --port 0 --trust");
    terminal.sees("asks  ready");
    assert!(given(&folder).contains(&format!("PROBE={typed}")));
    let shown = terminal.stops();
    assert!(!shown.contains("input `"), "{shown}");
    // Another file gets nothing of it, though it asks by the same name; nor does the entry once it is
    // another.
    let own = fs::read_to_string(folder.at("gantry.toml")).unwrap();
    fs::write(folder.at("other.toml"), &own).unwrap();
    let mut terminal = open(&folder, "up --port 0 --config other.toml");
    terminal.sees("input `probe-key`: ");
    terminal.types("for-the-other-file\n");
    terminal.sees("asks  ready");
    assert!(given(&folder).contains("PROBE=for-the-other-file"));
    terminal.stops();
    let changed = own.replace("PROBE", "PROBE_TOO");
    assert_ne!(changed, own);
    fs::write(folder.at("gantry.toml"), changed).unwrap();
    let mut terminal = open(&folder, "up --port 0 --trust");
    terminal.sees("input `probe-key`: ");
    terminal.types("typed-once-more\n");
    terminal.sees("asks  ready");
    assert!(given(&folder).contains("PROBE_TOO=typed-once-more"));
    terminal.stops();
    let mut terminal = open(&folder, "up --port 0 --trust --ask-again");
    terminal.sees("input `probe-key`: ");
    terminal.types("and-again\n");
    terminal.sees("asks  ready");
    terminal.stops();
    for answer in [typed, "for-the-other-file", "typed-once-more", "and-again"] {
        assert_eq!(super::secrets::holding(&folder.data(), answer), [""; 0]);
    }
}

#[test]
fn who_is_awaited_is_shown_on_a_terminal_and_nowhere_else() {
    let mut folder = Folder::new();
    let slow = entry(&gantry_testkit::Evilpeer::new().fault("init-hang"));
    let text = servers(&[("quick", peer()), ("sleepy", slow)]);
    folder.write("a.json", &text);
    let terminal = open(&folder, "up --port 0 --config a.json");
    terminal.sees("quick   ready");
    terminal.sees("1 of 2 servers ready, waiting for sleepy (");
    terminal.sees("Stop with Ctrl-C.");
    let shown = terminal.shown();
    let rows = ["quick   ready", "sleepy  still starting", "endpoint "];
    let places = rows.map(|row| shown.find(row).unwrap_or_else(|| panic!("{row}: {shown}")));
    assert!(places.is_sorted(), "rows first: {shown}");
    let usage = shown.find("Stop with Ctrl-C.").unwrap();
    let turns = eventually(LONG, || {
        terminal.shown()[usage..].contains("waiting for sleepy")
    });
    assert!(turns.is_some(), "{}", terminal.shown());
    let shown = terminal.stops();
    assert!(
        shown.ends_with("\r\u{1b}[K"),
        "the line is wiped: {shown:?}"
    );
    folder.up(&["--config", "a.json"]);
    let printed = || fs::read_to_string(folder.home().join("stdout")).unwrap();
    folder.wait_until("it is up", || printed().contains("Stop with Ctrl-C."));
    folder.wait("quick", "ready");
    for text in [printed(), folder.log()] {
        assert!(!text.contains("waiting for"), "{text}");
    }
}

/// Returns the lines that stay on a screen: what was wiped is gone.
fn lines(shown: &str) -> Vec<String> {
    let lines = shown.split("\r\n");
    let last = |line: &str| {
        line.rsplit('\r')
            .next()
            .unwrap_or(line)
            .replace("\u{1b}[K", "")
    };
    lines.map(last).collect()
}

// One clear row for each server, whatever goes wrong with it, and the endpoint at the end.
#[test]
fn the_start_screen_is_whole_and_no_log_line_tears_it() {
    let folder = Folder::new();
    let typo = json!({"command": "npxx-no-such-program", "args": ["-y", "x"]});
    let crash = entry(&gantry_testkit::Evilpeer::new().fault("crash-start=3"));
    let mut unset = peer();
    unset["env"] = json!({"TOKEN": "${NO_SUCH_VARIABLE}"});
    let mut odd = peer();
    odd["colour"] = json!("red");
    let text = servers(&[
        ("typo", typo),
        ("fine", odd),
        ("crash", crash),
        ("unset", unset),
    ]);
    folder.write("a.json", &text);
    let terminal = open(&folder, "up --port 0 --config a.json");
    terminal.sees("Stop with Ctrl-C.");
    let screen = lines(&terminal.shown());
    let text = screen.join("\n");
    for raw in ["WARN", "ERROR", "gantry_engine", "/usr/local/bin:"] {
        assert!(!text.contains(raw), "{raw}: {text}");
    }
    let only = |part: &str| {
        let found: Vec<_> = screen
            .iter()
            .enumerate()
            .filter(|(_, line)| line.contains(part))
            .collect();
        assert_eq!(found.len(), 1, "`{part}` stands once: {text}");
        found[0].0
    };
    let typo = only("npxx-no-such-program");
    assert!(
        screen[typo].contains(
            "✗ typo   not running: program `npxx-no-such-program` not found; check its spelling"
        ),
        "{text}"
    );
    assert!(screen[typo].contains(" restart typo`"), "{text}");
    let crash = only("✗ crash");
    assert!(
        screen[crash].contains("exit code 3") && screen[crash].contains(" logs crash`"),
        "{text}"
    );
    let unset = only("✗ unset");
    assert!(
        screen[unset].contains("left out") && screen[unset].contains("NO_SUCH_VARIABLE"),
        "{text}"
    );
    let endpoint = only("  endpoint ");
    for row in [typo, crash, unset, only("✓ fine")] {
        assert!(row < endpoint, "{text}");
    }
    // What is told later has lines of its own, in the same words.
    let pid = folder.wait("fine", "ready")["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    terminal.sees("! fine  ");
    let later = lines(&terminal.shown());
    let told = later.iter().find(|line| line.contains("! fine  ")).unwrap();
    assert!(
        told.starts_with("  ! fine  ") && told.contains("signal 9"),
        "{told}"
    );
    // The warning about the file was not lost.
    assert!(
        later
            .iter()
            .any(|line| line.starts_with("  ! ") && line.contains("colour")),
        "{later:#?}"
    );
    assert!(!terminal.stops().contains("WARN"));
}

// Whoever asks for a log gets it as it is.
#[test]
fn a_log_that_was_asked_for_is_shown_at_once() {
    let folder = Folder::new();
    let typo = json!({"command": "npxx-no-such-program"});
    folder.write("a.json", &servers(&[("typo", typo)]));
    let terminal = open(&folder, "--log warn up --port 0 --config a.json");
    terminal.sees("WARN");
    terminal.sees("Stop with Ctrl-C.");
    // The cause stands once in each line.
    let shown = terminal.stops();
    for line in shown.lines().filter(|line| line.contains("start_failed")) {
        assert_eq!(line.matches("npxx-no-such-program").count(), 1, "{line}");
    }
}
