//! The pages that describe the command line: committed, and the same as the program's own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use insta::assert_snapshot;

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

/// Returns the verbs that the help names.
pub(super) fn verbs() -> Vec<String> {
    let help = alone(&["--help"]);
    let verbs = help.split("Commands:").nth(1).unwrap();
    let verbs = verbs.split("\n\n").next().unwrap().lines();
    let verbs = verbs.filter_map(|line| line.split_whitespace().next());
    let verbs: Vec<String> = verbs
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect();
    assert!(verbs.len() > 15, "{help}");
    verbs
}

#[test]
fn every_verb_has_help_and_a_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let committed = pages(&docs);
    let page = |name: &str| format!("{}\n--- exit 0", committed[name].trim_end());
    assert_eq!(alone(&["man"]), page("gantry.1"));
    for verb in verbs() {
        let told = alone(&[verb.as_str(), "--help"]);
        assert!(
            told.contains("Usage: gantry") && told.ends_with("--- exit 0"),
            "{told}"
        );
        let section = format!("\n## gantry {verb}\n");
        assert!(committed["cli.md"].contains(&section), "{verb}");
        assert_eq!(
            alone(&["man", &verb]),
            page(&format!("gantry-{verb}.1")),
            "{verb}"
        );
    }
    assert_snapshot!(ends(&alone(&["man", "rm"]), 3), @r#"
    .ie \n(.g .ds Aq \(aq
    .el .ds Aq '
    .TH gantry-rm 1  "rm "
    ...
    <\fISERVER\fR>
    The server, by name or id
    --- exit 0
    "#);
    assert_snapshot!(alone(&["man", "fly"]), @"
    --- stderr
    error: there is no verb `fly`
    hint: `gantry --help` lists them
    --- exit 2
    ");
}

#[test]
fn a_page_names_only_pages_that_are_there() {
    let committed = pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"));
    for (name, text) in &committed {
        let named = text.lines().filter_map(|line| line.strip_suffix("(1)"));
        for other in named.map(|other| other.replace(r"\-", "-")) {
            let there = committed.contains_key(&format!("{other}.1"));
            assert!(there, "`{name}` names `{other}`");
        }
    }
}

#[test]
fn completions_are_for_three_shells_and_more() {
    let [bash, zsh, fish] = ["bash", "zsh", "fish"].map(|shell| alone(&["completions", shell]));
    assert_snapshot!(ends(&bash, 6), @r#"
    _gantry() {
        local i cur prev opts cmd
        COMPREPLY=()
    ...
    if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
        complete -F _gantry -o nosort -o bashdefault -o default gantry
    else
        complete -F _gantry -o bashdefault -o default gantry
    fi
    --- exit 0
    "#);
    assert_snapshot!(ends(&zsh, 6), @r#"
    #compdef gantry

    autoload -U is-at-least
    ...
    if [ "$funcstack[1]" = "_gantry" ]; then
        _gantry "$@"
    else
        compdef _gantry gantry
    fi
    --- exit 0
    "#);
    assert_snapshot!(ends(&fish, 1), @r"
    # Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
    function __fish_gantry_global_optspecs
        string join \n data= url= key-file= project= log= h/help V/version
    ...
    --- exit 0
    ");
    for verb in verbs() {
        assert!(has_line(&bash, &format!("gantry,{verb})")), "{verb}");
        assert!(has_line(&zsh, &format!("({verb})")), "{verb}");
        let offered = format!(r#""__fish_gantry_needs_command" -f -a "{verb}" -d "#);
        assert!(fish.contains(&offered), "{verb}");
    }
    assert_snapshot!(alone(&["completions", "cmd.exe"]), @"
    --- stderr
    error: invalid value 'cmd.exe' for '<SHELL>'
      [possible values: bash, elvish, fish, powershell, zsh]

    For more information, try '--help'.
    --- exit 2
    ");
}

fn has_line(text: &str, wanted: &str) -> bool {
    text.lines().any(|line| line.trim() == wanted)
}

/// Returns how a script begins, and its last lines.
fn ends(told: &str, last: usize) -> String {
    let lines: Vec<&str> = told.lines().map(str::trim_end).collect();
    let (first, last) = (&lines[..3], &lines[lines.len() - last..]);
    format!("{}\n...\n{}", first.join("\n"), last.join("\n"))
}
