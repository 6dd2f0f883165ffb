//! Metrics: what a platform team looks at, with labels that no caller can multiply.

use gantry_testkit::wait::eventually;
use serde_json::json;

use super::call;
use crate::harness::{Gantry, LONG};

/// Returns the series of the metrics: names with labels, without values.
fn series(gantry: &Gantry) -> Vec<String> {
    let text = gantry.rest("GET", "/metrics", None).text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
        .collect()
}

fn value(gantry: &Gantry, name: &str) -> Option<String> {
    let text = gantry.rest("GET", "/metrics", None).text();
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.map(str::to_owned)
}

// row 3.5, fault T8
#[test]
fn metrics_tell_of_servers_and_refusals_and_no_caller_adds_a_series() {
    let gantry = Gantry::start(&["a", "b"]);
    let own = gantry.agent_with("own", &["a:echo"]);
    let make = |gantry: &Gantry| {
        gantry.call("a__echo", json!({"text": "x"}));
        gantry.call("a__fail", json!({"message": "no"}));
        gantry.call("a__add", json!({"a": 1}));
        gantry.call("a__nothing", json!({}));
        call(
            gantry,
            &own,
            "a__add",
            json!({"a": 1, "b": 2}),
            &[],
            json!({}),
        );
    };
    make(&gantry);
    let reached = r#"gantry_server_calls_total{server="a",status="ok",project="local"}"#;
    let is_counted = || {
        series(&gantry)
            .iter()
            .any(|series| has_labels(series, reached))
    };
    assert!(
        eventually(LONG, is_counted).is_some(),
        "{:#?}",
        series(&gantry)
    );
    for expected in [
        r#"gantry_server_calls_total{server="a",status="error",project="local"}"#,
        r#"gantry_server_ready{server="b",project="local"}"#,
        r#"gantry_server_calls_waiting{server="a",project="local"}"#,
        r#"gantry_server_restarts{server="a",project="local"}"#,
        r#"gantry_refusals_total{code="schema.input",project="local"}"#,
        r#"gantry_refusals_total{code="tool.unknown",project="local"}"#,
        r#"gantry_refusals_total{code="grant.unbound",project="local"}"#,
        r#"gantry_calls_total{status="refused",project="local"}"#,
    ] {
        let is_there = || series(&gantry).iter().any(|one| has_labels(one, expected));
        assert!(eventually(LONG, is_there).is_some(), "{expected}");
    }
    assert_eq!(
        value(&gantry, "gantry_audit_writable").as_deref(),
        Some("1")
    );
    // Agents, tools, users and methods of any name change nothing in what is counted by what.
    let before = series(&gantry);
    for number in 0..20 {
        // In a name there is no line break: clients put it into a header.
        let hostile = format!("x{number}\"}} 1 gantry_fake{{a=\"");
        let text = hostile.replacen(' ', "\n", 1);
        let agent = gantry.agent_with(&format!("agent-{number}"), &["a:echo"]);
        let headers = [("X-Gantry-User-Id", "ann"), ("X-Gantry-Session-Id", "s")];
        call(
            &gantry,
            &agent,
            "a__echo",
            json!({ "text": text }),
            &headers,
            json!({}),
        );
        call(&gantry, &agent, &hostile, json!({}), &headers, json!({}));
        call(
            &gantry,
            &agent,
            &format!("b__{number}"),
            json!({}),
            &headers,
            json!({}),
        );
        gantry.mcp(&format!("no/such-{number}"), json!({}));
    }
    assert_eq!(gantry.audit_rows("status=ok&agent=agent-19").len(), 1);
    let mut after = series(&gantry);
    // One code that was not there before may come: it is ours.
    after.retain(|series| !series.starts_with("gantry_refusals_total"));
    let fresh: Vec<_> = after
        .iter()
        .filter(|series| !before.contains(series))
        .collect();
    assert!(fresh.is_empty(), "{fresh:#?}");
    let codes = series(&gantry);
    let codes = codes
        .iter()
        .filter(|series| series.starts_with("gantry_refusals_total"));
    assert!(codes.count() <= 6);
}

/// Returns whether a series has the name and the labels of another, in any order.
fn has_labels(series: &str, expected: &str) -> bool {
    let parts = |text: &str| {
        let (name, labels) = text.split_once('{').unwrap_or((text, ""));
        let mut labels: Vec<String> = labels
            .trim_end_matches('}')
            .split(',')
            .map(str::to_owned)
            .collect();
        labels.sort();
        (name.to_owned(), labels)
    };
    parts(series) == parts(expected)
}
