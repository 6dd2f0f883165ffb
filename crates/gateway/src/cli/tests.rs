//! What the command line understands.

use clap::CommandFactory as _;

use super::*;

#[test]
fn the_flags_fit_together() {
    Arguments::command().debug_assert();
}

#[test]
fn every_verb_takes_its_flags() {
    let lines = [
        "gantry up --config a.json --config b.json --port 0 --no-example --startup sequential --on-start-failure abort",
        "gantry up --audit disk --expose bare --on-collision last_wins --insecure-bind 0.0.0.0 --host gantry.example",
        "gantry up --drain 1s --kill-after 2s --data d --log debug",
        "gantry status a --json --url http://127.0.0.1:1 --key-file k",
        "gantry tools a --json",
        "gantry call a__b x=1 y=two",
        "gantry call a__b --json {} --raw",
        "gantry calls --limit 5 --server a --status error --json",
        "gantry logs a -n 5",
        "gantry restart a --data d",
        "gantry doctor --json",
        "gantry connect",
        "gantry connect cursor --scope project --name g --stdio --dry-run --json --url http://127.0.0.1:1",
        "gantry connect --remove claude-code --scope local",
        "gantry import",
        "gantry import cursor mcp.json --form cline --scope user --into g.toml --replace --dry-run --json",
        "gantry import --all",
        "gantry import --back vscode --into g.toml",
        "gantry example-server",
    ];
    for line in lines {
        if let Err(error) = Arguments::try_parse_from(line.split(' ')) {
            panic!("{line}: {error}");
        }
    }
    for wrong in [
        "gantry up --port x",
        "gantry call",
        "gantry call a x=1 --json {}",
        "gantry calls -n 0",
        "gantry x",
        "gantry connect emacs",
        "gantry connect cursor --scope world",
        "gantry connect --dry-run",
        "gantry import cursor --all",
        "gantry import --back emacs",
    ] {
        assert!(
            Arguments::try_parse_from(wrong.split(' ')).is_err(),
            "{wrong}"
        );
    }
}
