//! The same body again, and arguments that do not fit.

use std::collections::HashSet;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Entry;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FAR, Posted, Rig, SECOND};

// fault A6
#[test]
fn the_same_body_again_is_a_new_call_with_a_row_of_its_own() {
    // Together more than the gateway has room for: it keeps none of them.
    const TIMES: usize = 48;
    const BYTES: usize = 1 << 20;
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let call = rig.call("echo", json!({"text": "again", "nonce": "same"}));
    let call = call.padded(BYTES);
    let mut one = rig.gantry.connect();
    for time in 0..TIMES {
        // On one connection and on others.
        let answer = match time % 2 {
            0 => call.send(&rig.gantry),
            _ => {
                call.write(&mut one);
                one.answer().unwrap()
            }
        };
        assert_eq!(answer.status, 200);
        assert_eq!(answer.message()["result"]["content"][0]["text"], "again");
    }
    assert_eq!(rig.journal().executed("same"), TIMES);
    let rows = rig.gantry.audit_rows(&format!("server={FAR}"));
    let ids: HashSet<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!((rows.len(), ids.len()), (TIMES, TIMES));
    rig.audited(&[(TIMES, "ok", None)]);
    let upstream: HashSet<String> = rig
        .journal()
        .entries
        .into_iter()
        .filter_map(|entry| {
            if let Entry::Call { id, .. } = entry {
                return Some(id);
            }
            None
        })
        .collect();
    assert_eq!(upstream.len(), TIMES, "each has an upstream id of its own");
}

/// Arguments of `add`, and the fields that are wrong with them.
fn unfit() -> [(Value, Vec<(&'static str, &'static str)>); 4] {
    [
        (
            json!({"b": 2}),
            vec![("/a", "required field `a` is missing")],
        ),
        (
            json!({"a": "1", "b": 2}),
            vec![("/a", "must be a number, not a string")],
        ),
        (
            json!({"a": null, "b": []}),
            vec![
                ("/a", "must be a number, not null"),
                ("/b", "must be a number, not an array"),
            ],
        ),
        (
            json!({}),
            vec![
                ("/a", "required field `a` is missing"),
                ("/b", "required field `b` is missing"),
            ],
        ),
    ]
}

// fault A8
#[test]
fn arguments_that_do_not_fit_are_told_field_by_field_and_never_sent() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let agent = &rig.gantry.agent;
    for (arguments, fields) in unfit() {
        let issues: Vec<Value> = fields
            .iter()
            .map(|(path, message)| json!({"path": path, "message": message}))
            .collect();
        let body = json!({"name": "far__add", "arguments": arguments});
        let problem = Posted::new(agent, "/api/v1/tools/call", &body).send(&rig.gantry);
        assert_eq!(problem.status, 422, "{}", problem.text());
        let problem = problem.json();
        assert_eq!(
            (&problem["code"], &problem["issues"]),
            (&json!("schema.input"), &json!(issues))
        );
        assert_eq!(
            problem["detail"],
            "arguments of `add` do not fit its schema"
        );

        // A model gets it as a result that it can repair its call from.
        let text = fields.iter().fold(
            "arguments of `add` do not fit its schema".to_owned(),
            |text, (path, message)| format!("{text}\n- {path}: {message}"),
        );
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body});
        let older = Posted::new(agent, "/mcp", &call).send(&rig.gantry);
        let content = json!([{"type": "text", "text": text}]);
        assert_eq!(older.status, 200);
        assert_eq!(
            older.json()["result"],
            json!({"content": content, "isError": true})
        );
        let newer = rig.call("add", arguments.clone()).send(&rig.gantry);
        assert_eq!(newer.status, 200);
        let wanted = json!({"content": content, "isError": true, "resultType": "complete"});
        assert_eq!(newer.json()["result"], wanted);
    }
    assert_eq!(rig.journal().calls(), 0, "nothing was sent");
    rig.audited(&[(12, "refused", Some("schema.input"))]);
    let rows = rig.gantry.audit_rows("status=refused");
    assert!(
        rows.iter()
            .all(|row| row["tool"] == "add" && row["method"] == "tools/call")
    );
    assert!(
        rows.iter()
            .all(|row| row["error"] == "arguments of `add` do not fit its schema")
    );
    rig.far_is_well();
}

// fault A8
#[test]
fn a_flood_of_unfit_calls_fills_no_audit() {
    // Together more than the gateway has room for: it keeps none of them.
    const FLOOD: usize = 400;
    const BYTES: usize = 128 << 10;
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let mut connection = rig.gantry.connect();
    let call = rig.call("add", json!({"a": 1})).padded(BYTES);
    let begun = Instant::now();
    for _ in 0..FLOOD {
        call.write(&mut connection);
        assert_eq!(
            connection.answer().unwrap().message()["result"]["isError"],
            true
        );
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    let query = format!("server={FAR}&status=refused");
    let counted =
        |rows: &[Value]| -> u64 { rows.iter().filter_map(|row| row["repeats"].as_u64()).sum() };
    let all = eventually(5 * SECOND, || {
        counted(&rig.gantry.audit_rows(&query)) == FLOOD as u64
    });
    let rows = rig.gantry.audit_rows(&query);
    assert!(
        all.is_some(),
        "every refusal is counted: {}",
        counted(&rows)
    );
    // Twenty a second, and one for the others.
    let few = 25 * (seconds + 1);
    assert!(
        rows.len() <= few,
        "{} rows for {FLOOD} refusals, not {few}",
        rows.len()
    );
    let refused = |row: &Value| row["status"] == "refused" && row["code"] == "schema.input";
    assert!(rows.iter().all(refused), "{rows:#?}");
    assert_eq!(rig.rows().len(), rows.len(), "nothing else is recorded");
    assert_eq!(rig.journal().calls(), 0);
}
