//! The pages that describe the command line: committed, and the same as the program's own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::alone;

fn pages(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let text = fs::read_to_string(folder.join("cli.md"));
    found.insert("cli.md".to_owned(), text.unwrap_or_default());
    for entry in fs::read_dir(folder.join("man")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        found.insert(name, fs::read_to_string(&path).unwrap());
    }
    found
}

#[test]
fn help_and_man_pages_are_committed_as_the_program_has_them() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let fresh = tempfile::tempdir().unwrap();
    let told = alone(&["reference", fresh.path().to_str().unwrap()]);
    assert_eq!(told, "--- exit 0");
    let (committed, made) = (pages(&docs), pages(fresh.path()));
    let names = |pages: &BTreeMap<String, String>| pages.keys().cloned().collect::<Vec<_>>();
    let advice = "run `cargo run -p gantry -- reference docs`";
    assert_eq!(names(&committed), names(&made), "{advice}");
    for (name, text) in &made {
        assert!(committed[name] == *text, "docs: `{name}` is old; {advice}");
    }
    assert!(made.len() > 20);
}

#[test]
fn every_verb_has_help_and_a_page() {
    let help = alone(&["--help"]);
    let verbs = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let verbs: Vec<&str> = verbs
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.len() > 15, "{help}");
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md"))
        .unwrap();
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let told = alone(&[verb, "--help"]);
        assert!(
            told.contains("Usage: gantry") && told.ends_with("--- exit 0"),
            "{told}"
        );
        assert!(page.contains(&format!("\n## gantry {verb}\n")), "{verb}");
        let page = alone(&["man", verb]);
        assert!(page.contains(&format!(".TH gantry-{verb} 1")), "{page}");
    }
    let told = alone(&["man", "fly"]);
    assert!(
        told.contains("there is no verb `fly`") && told.ends_with("--- exit 2"),
        "{told}"
    );
}

#[test]
fn completions_are_for_three_shells_and_more() {
    for (shell, part) in [
        ("bash", "complete -F _gantry"),
        ("zsh", "#compdef gantry"),
        ("fish", "complete -c gantry"),
    ] {
        let told = alone(&["completions", shell]);
        assert!(told.contains(part) && told.contains("restart"), "{shell}");
        assert!(told.ends_with("--- exit 0"));
    }
    assert!(alone(&["completions", "cmd.exe"]).ends_with("--- exit 2"));
}
