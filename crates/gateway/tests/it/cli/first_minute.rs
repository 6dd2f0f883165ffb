//! The first minute in README.md, word for word what the program prints.
//!
//! `docs/first-minute --write` makes it in a real terminal; here the same commands run again.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{LONG, PROGRAM};

/// Makes what differs from run to run the same.
fn settled(text: &str, home: &Path) -> String {
    let text = text.replace(home.to_str().unwrap(), "~");
    let mut lines = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with("isolation "))
    {
        let words: Vec<String> = line.split_whitespace().map(word).collect();
        lines.push(words.join(" "));
    }
    lines.join("\n").trim().to_owned()
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
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let shown = readme.split("<!-- first minute").nth(1).unwrap();
    let shown = shown
        .split("```text\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let (up, others) = shown
        .split_once("# in another terminal, in the same folder\n")
        .unwrap();

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
    let told = eventually(LONG, || text().contains("Stop with Ctrl-C."));
    let outcome = std::panic::catch_unwind(|| {
        assert!(told.is_some(), "it never came up:\n{}", text());
        let printed = format!("$ gantry up\n{}", text());
        let advice = "run `docs/first-minute --write`";
        assert_eq!(
            settled(up, home.path()),
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
            settled(others, home.path()),
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
