//! `gantry call` with a tool's own flags, and `gantry bench`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{run, settings, told};
use crate::harness::{Gantry, PROGRAM};

#[test]
fn flags_come_from_the_tools_schema() {
    let gantry = Gantry::start(&["a"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["call", "a__echo", "--text", "5"]), @"
        5
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "a:add", "--a", "1", "--b=-2.5"]), @r#"
        {"sum":-1.5}
        --- exit 0
        "#);
        assert_eq!(
            run(
                &gantry,
                &["call", "--json", "a__add", "--a", "1", "--b", "2"]
            ),
            run(&gantry, &["call", "a__add", "a=1", "b=2", "--raw"])
        );
        assert_snapshot!(run(&gantry, &["call", "a__add", "--help"]), @"
        Adds two numbers

        Usage: gantry call a__add --a <NUMBER> --b <NUMBER> [ARGUMENTS]

        Arguments:
          --a <NUMBER>
          [required]
          --b <NUMBER>
          [required]
          --nonce <TEXT>
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "a__slow", "-h"]), @"
        Takes its time, reports progress, obeys cancellation

        Usage: gantry call a__slow --ms <INTEGER> [ARGUMENTS]

        Arguments:
          --ms <INTEGER>
          [required]
          --progress <INTEGER>
          --nonce <TEXT>
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "a__add", "--a", "one"]), @"
        --- stderr
        error: `--a` takes a number, not `one`
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["call", "a__echo", "--txt", "x"]), @"
        --- stderr
        error: the tool has no argument `--txt`
        hint: did you mean `--text`?
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["call", "a__echo", "--text"]), @"
        --- stderr
        error: `--text` needs a text
        --- exit 2
        ");
        assert_snapshot!(run(&gantry, &["call", "nothing", "--help"]), @"
        --- stderr
        error: no tool `nothing`
        hint: `gantry tools` lists what there is
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["call", "nothing", "--text", "x"]), @"
        --- stderr
        error: Unknown tool: nothing
          because: code `tool.unknown`
        hint: `gantry tools` lists what there is
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["call", "a__echo", "text=x", "--json-args", "{}"]), @"
        --- stderr
        error: arguments are given as JSON or one by one, not both
        --- exit 2
        ");
    });
}

#[test]
fn arguments_may_be_a_document_from_a_file_or_from_stdin() {
    let gantry = Gantry::start(&["a"]);
    let file = gantry.data().join("arguments.json");
    fs::write(&file, r#"{"text": "from a file"}"#).unwrap();
    let at = format!("@{}", file.display());
    assert_eq!(
        run(&gantry, &["call", "a__echo", "--json-args", &at]),
        "from a file\n--- exit 0"
    );
    let mut child = Command::new(PROGRAM)
        .arg("--data")
        .arg(gantry.data())
        .args(["call", "--json-args", "-", "a__echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(br#"{"text": "from stdin"}"#).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(told(&output), "from stdin\n--- exit 0");
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["call", "a__echo", "--json-args", "@/nowhere"]), @"
        --- stderr
        error: cannot read the arguments from `@/nowhere`
          because: No such file or directory (os error 2)
        --- exit 2
        ");
    });
}

#[test]
fn bench_tells_how_fast_the_answers_are() {
    let gantry = Gantry::start(&["a"]);
    let words = [
        "bench", "--for", "2s", "-c", "2", "--json", "a__echo", "--text", "x",
    ];
    let output = gantry.cli(&words);
    assert!(output.status.success(), "{}", told(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = result["calls"].as_u64().unwrap();
    assert!(calls > 0, "{result:#}");
    assert_eq!(
        (&result["errors"], &result["tool"]),
        (&json!(0), &json!("a__echo"))
    );
    for (low, high) in [
        ("p50_us", "p90_us"),
        ("p90_us", "p99_us"),
        ("p99_us", "max_us"),
    ] {
        assert!(result[low].as_u64() <= result[high].as_u64(), "{result:#}");
    }
    // Every call is recorded like any other.
    let count = gantry.rest(
        "GET",
        "/api/v1/calls?tool=echo&status=ok&count=true&limit=1",
        None,
    );
    assert_eq!(count.json()["total"], calls);

    let fails = ["bench", "--for", "2s", "a__fail", "--message", "no"];
    let mut settings = settings();
    settings.add_filter(r"  (calls|calls/s|errors)  [1-9][\d.]*", "  $1  [figure]");
    settings.add_filter(r"error: \d+ calls", "error: [figure] calls");
    settings.bind(|| {
        assert_snapshot!(run(&gantry, &["bench", "--for", "2s", "a__echo", "text=x"]), @"
        a__echo, 8 at once, [duration]
          calls  [figure]
          errors  0
          calls/s  [figure]
          p50  [duration]
          p90  [duration]
          p99  [duration]
          max  [duration]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &fails), @"
        a__fail, 8 at once, [duration]
          calls  0
          errors  [figure]
          calls/s  0.0
          p50  –
          p90  –
          p99  –
          max  –
        --- stderr
        error: [figure] calls failed
          because: no
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["bench", "nothing"]), @"
        --- stderr
        error: no tool `nothing`
        hint: `gantry tools` lists what there is
        --- exit 1
        ");
    });
}
