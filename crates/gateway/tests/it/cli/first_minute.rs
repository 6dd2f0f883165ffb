//! The first minute in README.md, word for word what the program prints.
//!
//! `docs/first-minute --write` makes it in a real terminal; here the same commands run again.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{LONG, PROGRAM};

/// How often the terminal is tried, which has waits of its own.
const TRIES: usize = 3;

/// Makes what differs from run to run the same. A server's line comes before the endpoint or after it,
/// whichever is there first: it is put first.
fn settled(text: &str, home: &Path) -> String {
    let text = text.replace(home.to_str().unwrap(), "~");
    let (mut servers, mut lines) = (Vec::new(), Vec::new());
    // Isolation depends on the machine, and the sign-in link is for terminals only.
    let is_left_out = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("isolation ") || line.starts_with("browser ")
    };
    for line in text.lines().filter(|line| !is_left_out(line)) {
        let words: Vec<String> = line.split_whitespace().map(word).collect();
        let is_server = line.starts_with("  ✓ ");
        let lines = if is_server { &mut servers } else { &mut lines };
        lines.push(words.join(" "));
    }
    servers.extend(lines);
    servers.join("\n").trim().to_owned()
}

/// Returns what README.md shows: what `up` prints, and what is done in another terminal.
fn readme() -> (String, String) {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let shown = readme.split("<!-- first minute").nth(1).unwrap();
    let shown = shown.split("```text\n").nth(1).unwrap();
    halves(shown.split("```").next().unwrap())
}

fn halves(shown: &str) -> (String, String) {
    let halves = shown.split_once("# in another terminal, in the same folder\n");
    let (up, others) = halves.unwrap_or_else(|| panic!("only one terminal:\n{shown}"));
    (up.to_owned(), others.to_owned())
}

fn word(word: &str) -> String {
    let digits = word.chars().any(|letter| letter.is_ascii_digit());
    let is_figure = digits
        && word
            .chars()
            .all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | ':' | '-' | 'Z'));
    if let Some((before, after)) = word.split_once("127.0.0.1:") {
        let after = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
        return format!("{before}[address]{after}");
    }
    if let Some((before, after)) = word.split_once("gantry/shop-") {
        return format!("{before}gantry/shop{}", &after[8..]);
    }
    match word {
        "µs" | "ms" | "s" => "[unit]".to_owned(),
        // The sum is no matter of the moment.
        "5" | "2" | "3" => word.to_owned(),
        _ if is_figure => "[figure]".to_owned(),
        _ if word.starts_with("call_") => "[call]".to_owned(),
        _ => word.to_owned(),
    }
}

#[test]
fn the_first_minute_is_as_the_readme_shows_it() {
    let (up, others) = readme();
    let home = tempfile::tempdir().unwrap();
    let (shop, printed) = (home.path().join("shop"), home.path().join("printed"));
    fs::create_dir(&shop).unwrap();
    fs::create_dir(home.path().join(".cursor")).unwrap();
    let gantry = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .args(words)
            .env_clear()
            .env("HOME", home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("NO_COLOR", "1")
            .current_dir(&shop)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let mut child = gantry(&["up"])
        .stdout(fs::File::create(&printed).unwrap())
        .spawn()
        .unwrap();
    let text = || fs::read_to_string(&printed).unwrap_or_default();
    let told = eventually(LONG, || {
        text().contains("Stop with Ctrl-C.") && text().contains("✓ example ")
    });
    let outcome = std::panic::catch_unwind(|| {
        assert!(told.is_some(), "it never came up:\n{}", text());
        let printed = format!("$ gantry up\n{}", text());
        let advice = "run `docs/first-minute --write`";
        assert_eq!(
            settled(&up, home.path()),
            settled(&printed, home.path()),
            "{advice}"
        );
        let mut again = String::new();
        for line in others
            .lines()
            .filter_map(|line| line.strip_prefix("$ gantry "))
        {
            let words: Vec<&str> = line.split(' ').collect();
            let output = gantry(&words).output().unwrap();
            again.push_str(&format!(
                "$ gantry {line}\n{}",
                String::from_utf8_lossy(&output.stdout)
            ));
        }
        assert_eq!(
            settled(&others, home.path()),
            settled(&again, home.path()),
            "{advice}"
        );
        for verb in ["connect", "call", "logs"] {
            assert!(others.contains(&format!("$ gantry {verb} ")), "{verb}");
        }
    });
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    child.wait().unwrap();
    outcome.unwrap();
}

/// In the terminal that the capture in README.md was made in.
#[test]
fn a_terminal_shows_the_first_minute_as_the_readme_does() {
    let there = Command::new("tmux").arg("-V").output();
    assert!(
        there.is_ok_and(|output| output.status.success()),
        "`tmux` is not here; `.ci/needs` brings it"
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/first-minute");
    let nowhere = Path::new("/nowhere");
    let (up, others) = readme();
    let wanted = (settled(&up, nowhere), settled(&others, nowhere));
    let mut seen = (String::new(), String::new());
    for _ in 0..TRIES {
        let output = Command::new(&script).arg(PROGRAM).output().unwrap();
        if !output.status.success() {
            seen.0 = String::from_utf8_lossy(&output.stderr).into_owned();
            continue;
        }
        let (up, others) = halves(&String::from_utf8(output.stdout).unwrap());
        seen = (settled(&up, nowhere), settled(&others, nowhere));
        if seen == wanted {
            return;
        }
    }
    assert_eq!(wanted, seen, "run `docs/first-minute --write`");
}
