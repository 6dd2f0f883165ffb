//! Row 3.3: schemas are checked before and after a call.

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use super::{rest_tool, with_journal};
use crate::harness::on_postgresql;

// row 3.3
#[test]
fn arguments_that_do_not_fit_are_refused_with_the_field_and_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = with_journal(&journal, Evilpeer::new(), &json!({}));
    let cases = [
        (json!({"a": 1}), "/b", "required field `b` is missing"),
        (json!({"a": 1, "b": "two"}), "/b", "number"),
        (json!({"a": [], "b": 2}), "/a", "number"),
    ];
    for (arguments, path, word) in &cases {
        let answer = gantry.call("a__add", arguments.clone());
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{answer:#}");
        let text = result["content"][0]["text"].as_str().unwrap();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("arguments of `add` do not fit its schema")
        );
        let line = lines.next().unwrap();
        assert!(
            line.starts_with(&format!("- {path}: ")) && line.contains(word),
            "{text}"
        );
        let rest = rest_tool(&gantry, "a", "add", arguments.clone());
        assert_eq!(rest.status, 422, "{}", rest.text());
        let problem = rest.json();
        assert_eq!(problem["code"], "schema.input");
        assert_eq!(problem["issues"][0]["path"], *path);
        assert!(
            problem["issues"][0]["message"]
                .as_str()
                .unwrap()
                .contains(word),
            "{problem:#}"
        );
    }
    let both = gantry.call("a__add", json!({}));
    let text = both["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        text.lines().count(),
        3,
        "each missing field has its line: {text}"
    );
    assert_eq!(
        Journal::read(&journal).unwrap().calls(),
        0,
        "nothing was sent upstream"
    );
    let rows = gantry.audit_rows("server=a");
    let count: u64 = rows.iter().filter_map(|row| row["repeats"].as_u64()).sum();
    assert_eq!(count, 7, "{rows:#?}");
    for row in &rows {
        assert_eq!(
            (&row["status"], &row["code"]),
            (&json!("refused"), &json!("schema.input"))
        );
        assert_eq!(row["tool"], "add");
    }
    let good = gantry.call("a__add", json!({"a": 1, "b": 2}));
    assert_eq!(good["result"]["structuredContent"], json!({"sum": 3}));
}

// row 3.3
#[test]
fn arguments_that_do_not_fit_are_refused_with_the_field_and_never_sent_on_postgresql() {
    on_postgresql(arguments_that_do_not_fit_are_refused_with_the_field_and_never_sent);
}

// row 3.3
#[test]
fn a_result_that_does_not_fit_is_an_error_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = with_journal(&journal, Evilpeer::new(), &json!({}));
    let answer = gantry.call("a__bad_output", json!({}));
    let error = &answer["error"];
    assert_eq!(error["code"], -31502, "{answer:#}");
    assert_eq!(
        error["message"],
        "result of `a:bad_output` does not fit its output schema"
    );
    assert_eq!(error["data"]["code"], "schema.output");
    assert_eq!(error["data"]["issues"][0]["path"], "/sum");
    let rest = rest_tool(&gantry, "a", "bad_output", json!({}));
    assert_eq!(
        (rest.status, &rest.json()["code"]),
        (502, &json!("schema.output"))
    );
    assert_eq!(Journal::read(&journal).unwrap().calls(), 2);
    let rows = gantry.audit_rows("server=a");
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(
            (&row["status"], &row["code"]),
            (&json!("error"), &json!("schema.output"))
        );
        assert!(
            row["schema_version"]
                .as_str()
                .is_some_and(|version| !version.is_empty())
        );
        assert_ne!(row["error"], Value::Null);
    }
}

// row 3.3
#[test]
fn a_result_that_does_not_fit_is_an_error_and_recorded_on_postgresql() {
    on_postgresql(a_result_that_does_not_fit_is_an_error_and_recorded);
}

// row 3.3
#[test]
fn a_result_that_does_not_fit_is_passed_on_or_not_checked_if_the_server_is_set_so() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let warn = json!({"output_check": "warn"});
    let gantry = with_journal(&journal, Evilpeer::new(), &warn);
    assert_eq!(gantry.status("a")["spec"]["output_check"], "warn");
    let answer = gantry.call("a__bad_output", json!({}));
    let result = &answer["result"];
    assert_eq!(
        result["structuredContent"]["sum"], "not a number",
        "{answer:#}"
    );
    let issues = &result["_meta"]["io.gantry/output-issues"];
    assert_eq!(issues[0]["path"], "/sum", "{answer:#}");
    let good = gantry.call("a__add", json!({"a": 1, "b": 2}));
    assert!(good["result"]["_meta"]["io.gantry/output-issues"].is_null());
    let rows = gantry.audit_rows("tool=bad_output");
    let row = &rows[0];
    assert_eq!(
        (&row["status"], &row["code"]),
        (&json!("ok"), &json!("schema.output"))
    );
    assert!(
        row["error"].as_str().unwrap().starts_with("`/sum`: "),
        "{row:#}"
    );
    assert!(gantry.audit_rows("tool=add")[0]["code"].is_null());
    // A tool's own setting counts before its server's.
    let tools = json!({"output_check": "strict",
        "tools": {"settings": {"bad_output": {"output_check": "off"}}}});
    let gantry = with_journal(&journal, Evilpeer::new(), &tools);
    let answer = gantry.call("a__bad_output", json!({}));
    assert_eq!(answer["result"]["structuredContent"]["sum"], "not a number");
    assert!(answer["result"]["_meta"]["io.gantry/output-issues"].is_null());
    assert!(gantry.audit_rows("tool=bad_output")[0]["code"].is_null());
}
