//! Registrations that race: of two under one name one wins, on one gateway and on two; and one that is
//! removed while it is called.

use std::sync::Barrier;
use std::thread;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use crate::faults_client::Posted;
use crate::harness::{Gantry, LONG, on_postgresql};

const SERVERS: &str = "/api/v1/mcp/servers";
const RACING: usize = 6;

fn server(name: &str, number: usize) -> Value {
    let argv = Evilpeer::new().name(name).argv();
    json!({"name": name, "command": argv[0], "args": argv[1..], "profile": "local", "start": "eager",
        "description": format!("number {number}")})
}

// fault D7
#[test]
fn of_registrations_under_one_name_one_wins() {
    let gantry = Gantry::start(&["a"]);
    for round in 0..5 {
        let name = format!("raced-{round}");
        let begin = Barrier::new(RACING);
        let answers: Vec<(usize, u16, Value)> = thread::scope(|scope| {
            let racing = |number: usize| {
                let (gantry, name, begin) = (&gantry, &name, &begin);
                scope.spawn(move || {
                    begin.wait();
                    let body = server(name, number);
                    let answer = gantry.rest("POST", SERVERS, Some(&body));
                    (number, answer.status, answer.json())
                })
            };
            let racing: Vec<_> = (0..RACING).map(racing).collect();
            racing.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let won: Vec<_> = answers.iter().filter(|one| one.1 == 201).collect();
        assert_eq!(won.len(), 1, "{answers:#?}");
        for (_, status, answer) in answers.iter().filter(|one| one.1 != 201) {
            assert_eq!((*status, &answer["code"]), (409, &json!("server.exists")));
        }
        // What is there is the winner's, whole.
        let shown = gantry.wait_state(&name, "ready", LONG);
        assert_eq!(shown["description"], format!("number {}", won[0].0));
        assert_eq!(shown["id"], won[0].2["id"]);
    }
}

// fault D7
#[test]
fn of_registrations_under_one_name_one_wins_on_postgresql() {
    on_postgresql(of_registrations_under_one_name_one_wins);
}

// fault D7
#[test]
fn a_server_that_is_removed_while_it_is_called_ends_its_calls() {
    let gantry = Gantry::builder().start();
    let made = gantry.rest("POST", SERVERS, Some(&server("gone", 0)));
    assert_eq!(made.status, 201, "{}", made.text());
    gantry.wait_state("gone", "ready", LONG);
    let key = gantry.agent_with("caller", &["gone:*"]);
    let call = json!({"name": "gone__slow", "arguments": {"ms": 60_000}});
    let calls = Posted::stateless(&key, "tools/call", call);
    let mut open: Vec<_> = (0..3).map(|_| calls.open(&gantry)).collect();
    let running = || gantry.audit_rows("tool=slow&status=running").len() == 3;
    assert!(eventually(LONG, running).is_some());
    let watch = Stopwatch::start();
    let removed = gantry.rest("DELETE", &format!("{SERVERS}/gone"), None);
    assert_eq!(removed.status, 204, "{}", removed.text());
    for connection in &mut open {
        let answer = connection.answer().unwrap().message();
        let code = answer["error"]["data"]["code"].as_str().unwrap_or_default();
        assert!(code.starts_with("server."), "{answer:#}");
    }
    assert!(watch.elapsed().as_secs() < 5, "{:?}", watch.elapsed());
    let rows = || gantry.audit_rows("tool=slow");
    let ended = || rows().iter().all(|row| row["status"] != "running");
    assert!(eventually(LONG, ended).is_some(), "{:#?}", rows());
    assert_eq!(rows().len(), 3);
    // It is as if it had never been, and the name is free.
    let after = json!({"name": "gone__echo", "arguments": {"text": "x"}});
    let after = Posted::stateless(&key, "tools/call", after);
    let after = after.open(&gantry).answer().unwrap().message();
    assert!(after["error"].is_object(), "{after:#}");
    let again = gantry.rest("POST", SERVERS, Some(&server("gone", 1)));
    assert_eq!(again.status, 201, "{}", again.text());
}

// fault D7
#[test]
fn a_server_that_is_removed_while_it_is_called_ends_its_calls_on_postgresql() {
    on_postgresql(a_server_that_is_removed_while_it_is_called_ends_its_calls);
}
