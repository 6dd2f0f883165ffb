//! How output looks: as wide as the terminal, coloured only where that is wanted.

use std::process::Command;

use crate::harness::{Gantry, PROGRAM};

fn shown(gantry: &Gantry, variables: &[(&str, &str)], words: &[&str]) -> String {
    let output = Command::new(PROGRAM)
        .arg("--data")
        .arg(gantry.data())
        .args(words)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("COLUMNS")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_unless_they_are_forced() {
    let gantry = Gantry::start(&["a"]);
    let words = ["ls"];
    assert!(!shown(&gantry, &[], &words).contains('\x1b'));
    assert!(shown(&gantry, &[("CLICOLOR_FORCE", "1")], &words).contains('\x1b'));
    assert!(!shown(&gantry, &[("CLICOLOR_FORCE", "0")], &words).contains('\x1b'));
    let both = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    assert!(!shown(&gantry, &both, &words).contains('\x1b'));
}

#[test]
fn tables_are_wrapped_to_the_width() {
    let gantry = Gantry::start(&["a"]);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let free = shown(&gantry, &[], &["tools"]);
    let narrow = shown(&gantry, &[("COLUMNS", "50")], &["tools"]);
    assert!(widest(&free) > 50 && widest(&narrow) <= 50, "{narrow}");
    assert!(narrow.lines().count() > free.lines().count());
}
