//! A call that needs an approval, whose client is asked as well.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::BOTH;
use super::client::{Client, Generation, everything};
use crate::harness::{Gantry, LONG};

fn started(ask_client: bool) -> (Gantry, String) {
    let gantry = Gantry::builder().server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    let settings = json!({"approvals.ask_client": ask_client, "approvals.timeout": "1m"});
    let set = gantry.rest("PATCH", "/api/v1/settings", Some(&settings));
    assert_eq!(set.status, 200, "{}", set.text());
    let key = gantry.agent_with("bot", &["ask a:echo"]);
    (gantry, key)
}

/// Waits until a call is held, and returns its id.
fn held(gantry: &Gantry) -> String {
    let mut call = Value::Null;
    let reached = eventually(LONG, || {
        let held = gantry.rest("GET", "/api/v1/approvals", None).json();
        call = held["items"][0]["call"].clone();
        call.is_string()
    });
    assert!(reached.is_some(), "nothing is held");
    call.as_str().unwrap().to_owned()
}

fn decide(gantry: &Gantry, verb: &str) -> u16 {
    let path = format!("/api/v1/approvals/{}/{verb}", held(gantry));
    gantry.rest("POST", &path, Some(&json!({}))).status
}

#[test]
fn a_client_that_can_be_asked_allows_or_refuses_its_call_once() {
    let (gantry, key) = started(true);
    for generation in BOTH {
        let client = Client::open(&gantry, &key, generation, everything());
        let asked = |text: &str| {
            let waiting = client.begin("a__echo", json!({"text": text})).asked_first();
            assert_eq!(waiting.methods(), ["elicitation/create"]);
            waiting
        };
        let accept = |allow: bool| move |_: &str| json!({"result": {"action": "accept", "content": {"allow": allow}}});
        // Escapes make it longer than the arguments are, and what is left out is not concealed.
        let waiting = asked(&"\u{202e}".repeat(400));
        assert!(waiting.message.len() < 2200, "{}", waiting.message.len());
        assert!(waiting.message.ends_with(" …"), "{}", waiting.message);
        client.go_on_with(waiting, accept(true));
        let done = client.go_on_with(asked("yes"), accept(true));
        let said = &done.answer["result"]["content"][0]["text"];
        assert_eq!(said, "yes", "{:#}", done.answer);
        let done = client.go_on_with(asked("no"), accept(false));
        let code = &done.answer["error"]["data"]["code"];
        assert_eq!(code, "approval.refused", "{:#}", done.answer);
        let decline = |_: &str| json!({"result": {"action": "decline"}});
        let done = client.go_on_with(asked("never"), decline);
        let code = &done.answer["error"]["data"]["code"];
        assert_eq!(code, "approval.refused", "{:#}", done.answer);

        // One that says nothing leaves it to the approvers, who may be faster, too.
        let waiting = asked("dismissed");
        let cancel = |_: &str| json!({"result": {"action": "cancel"}});
        let begun = client.answered(waiting, cancel);
        assert_eq!(decide(&gantry, "allow"), 200);
        let said = begun.done();
        assert_eq!(
            said["result"]["content"][0]["text"], "dismissed",
            "{said:#}"
        );
        let waiting = asked("late");
        assert_eq!(decide(&gantry, "refuse"), 200);
        let done = client.go_on_with(waiting, accept(true));
        let code = &done.answer["error"]["data"]["code"];
        assert_eq!(code, "approval.refused", "{:#}", done.answer);
    }
    let rows = gantry.audit_rows("tool=echo&status=refused");
    assert_eq!(rows.len(), 6, "{rows:?}");
    let decided = gantry.events("a", "approval_decided", 12);
    let by_client = decided.iter().filter(|said| said.contains("by its client"));
    assert_eq!(by_client.count(), 8, "{decided:?}");
}

// fault T4: the deadline of the question is none of the call that was allowed.
#[test]
fn a_call_that_an_approver_allowed_outlives_the_question_to_its_client() {
    let (gantry, _) = started(true);
    let short = json!({"approvals.timeout": "2s"});
    let set = gantry.rest("PATCH", "/api/v1/settings", Some(&short));
    assert_eq!(set.status, 200, "{}", set.text());
    let key = gantry.agent_with("other", &["ask a:slow"]);
    let client = Client::open(&gantry, &key, Generation::Stateless, everything());
    let begin = |until: &Path| {
        let waiting = client.begin("a__slow", json!({"ms": 0, "until": until}));
        let waiting = waiting.asked_first();
        assert_eq!(decide(&gantry, "allow"), 200);
        waiting
    };
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    // The one never returns, the other returns when the question is long over.
    let (_gone, returns) = (begin(&first), begin(&second));
    thread::sleep(Duration::from_millis(3200));
    let rows = gantry.audit_rows("tool=slow&status=running");
    assert_eq!(rows.len(), 2, "both are still made: {rows:?}");
    fs::write(&first, "").unwrap();
    let ended = eventually(LONG, || gantry.audit_rows("tool=slow&status=ok").len() == 1);
    assert!(ended.is_some(), "{:?}", gantry.audit_rows("tool=slow"));
    let begun = client.answered(returns, |_| json!({"result": {"action": "cancel"}}));
    fs::write(&second, "").unwrap();
    let said = begun.done();
    assert_eq!(said["result"]["content"][0]["text"], "waited", "{said:#}");
    assert_eq!(gantry.audit_rows("tool=slow&status=ok").len(), 2);
}

#[test]
fn no_client_is_asked_unless_the_project_wants_it() {
    let (gantry, key) = started(false);
    for generation in BOTH {
        let client = Client::open(&gantry, &key, generation, everything());
        let begun = client.begin("a__echo", json!({"text": "x"}));
        assert_eq!(decide(&gantry, "allow"), 200);
        let said = begun.done();
        assert_eq!(said["result"]["content"][0]["text"], "x", "{said:#}");
    }
}
