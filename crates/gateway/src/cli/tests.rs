//! What the command line understands.

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
        "gantry call a__b --json-args {} --raw",
        "gantry call --data d --async a__b --url x --n 3",
        "gantry add a --env A=1 --profile hosted --start lazy -- npx -y x",
        "gantry rm a",
        "gantry auth a --no-browser --json --wait 1m",
        "gantry auth a --remove",
        "gantry ls --json",
        "gantry key new --agent x --label y --out f",
        "gantry key revoke key_1",
        "gantry agent new x --grant files:* --exclude files:rm",
        "gantry logs a -f --since 10m",
        "gantry calls -f --since 2026-01-31T12:00:00Z --run r",
        "gantry bench --for 1s -c 2 a__b x=1",
        "gantry stdio --server a --folder . --no-start",
        "gantry completions zsh",
        "gantry man call",
        "gantry why x a__b --json",
        "gantry calls --limit 5 --server a --status error --json",
        "gantry logs a -n 5",
        "gantry restart a --data d",
        "gantry doctor --json",
        "gantry up --no-discover --trust",
        "gantry approve .mcp.json --yes --json",
        "gantry config check --config a.json --json",
        "gantry config explain a --no-discover --startup sequential --json",
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
        "gantry add a npx",
        "gantry bench --for 1h a__b",
        "gantry auth a --remove --no-browser",
        "gantry key new --admin --agent x",
        "gantry logs a --since soon",
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
