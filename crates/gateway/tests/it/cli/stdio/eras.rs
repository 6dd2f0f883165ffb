//! Both generations of the protocol through `gantry stdio`: list, call, error, progress, cancel,
//! resource, prompt, changes.

use std::fs;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use gantry_testkit::{Era, Evilpeer, fixture};
use serde_json::{Value, json};

use super::{Client, text, with_meta};
use crate::harness::{Gantry, LONG};

type Ask = fn(&mut Client, Value, &str, Value) -> Value;

const ERAS: [(&str, Ask); 2] = [("handshake", Client::ask), ("stateless", Client::stateless)];

#[test]
fn everything_is_passed_on_in_both_eras() {
    let gantry = Gantry::start(&["a"]);
    for (era, ask) in ERAS {
        let mut client = Client::start(&gantry.data(), &[]);
        if era == "handshake" {
            let hello = client.initialize("2025-06-18");
            assert_eq!(
                hello["result"]["protocolVersion"], "2025-06-18",
                "{hello:#}"
            );
        } else {
            let hello = ask(&mut client, json!(0), "server/discover", json!({}));
            assert_eq!(
                hello["result"]["supportedVersions"],
                json!(["2026-07-28"]),
                "{hello:#}"
            );
        }
        let tools = ask(&mut client, json!("list"), "tools/list", json!({}));
        let names = tools["result"]["tools"].as_array().unwrap().iter();
        assert!(
            names.clone().any(|tool| tool["name"] == "a__echo"),
            "{era}: {tools:#}"
        );

        // Ids come back as they went, whatever their kind and size.
        for id in [
            json!(1),
            json!("1"),
            json!(-7),
            json!(9_007_199_254_740_993_u64),
            json!("é \"x\""),
        ] {
            let params = json!({"name": "a__echo", "arguments": {"text": "hällo\nyou"}});
            let answer = ask(&mut client, id.clone(), "tools/call", params);
            assert_eq!((text(&answer), &answer["id"]), ("hällo\nyou", &id), "{era}");
        }
        let params = json!({"name": "a__fail", "arguments": {"message": "no"}});
        let failed = ask(&mut client, json!(2), "tools/call", params);
        assert_eq!(failed["result"]["isError"], true, "{era}: {failed:#}");
        let params = json!({"name": "a__nothing", "arguments": {}});
        let unknown = ask(&mut client, json!(3), "tools/call", params);
        assert_eq!(unknown["error"]["code"], -32602, "{era}: {unknown:#}");

        let resources = ask(&mut client, json!(4), "resources/list", json!({}));
        let uri = resources["result"]["resources"][0]["uri"].clone();
        let read = ask(&mut client, json!(5), "resources/read", json!({"uri": uri}));
        assert!(read["result"]["contents"].is_array(), "{era}: {read:#}");
        let prompts = ask(&mut client, json!(6), "prompts/list", json!({}));
        let prompt = prompts["result"]["prompts"].as_array().unwrap().iter();
        let prompt = prompt.min_by_key(|prompt| prompt["arguments"].as_array().map_or(0, Vec::len));
        let mut arguments = json!({});
        for argument in prompt.unwrap()["arguments"]
            .as_array()
            .into_iter()
            .flatten()
        {
            arguments[argument["name"].as_str().unwrap()] = json!("x");
        }
        let params = json!({"name": prompt.unwrap()["name"], "arguments": arguments});
        let got = ask(&mut client, json!(7), "prompts/get", params);
        assert!(got["result"]["messages"].is_array(), "{era}: {got:#}");
        assert!(client.close().success());
    }
}

#[test]
fn progress_comes_before_the_answer() {
    let gantry = Gantry::start(&["a"]);
    for era in ["handshake", "stateless"] {
        let mut client = Client::start(&gantry.data(), &[]);
        let mut params = json!({
            "name": "a__slow",
            "arguments": {"ms": 200, "progress": 4},
            "_meta": {"progressToken": "tök/en"},
        });
        match era {
            "handshake" => drop(client.initialize("2025-11-25")),
            _ => params = with_meta(params),
        }
        client.send(json!(1), "tools/call", params);
        let mut steps = 0;
        let answer = loop {
            let message = client.next(LONG).unwrap();
            match message["method"].as_str() {
                Some("notifications/progress") => {
                    steps += 1;
                    assert_eq!(message["params"]["progressToken"], "tök/en");
                    assert_eq!(message["params"]["progress"], steps);
                }
                Some(_) => {}
                None => break message,
            }
        };
        assert_eq!((steps, text(&answer)), (4, "slept 200 ms"), "{era}");
    }
}

#[test]
fn a_request_is_taken_back_and_so_is_what_is_in_flight_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let cancelled = |nonce: &str| {
        let seen = || Journal::read(&journal).is_ok_and(|journal| journal.cancelled(nonce));
        assert!(
            eventually(LONG, seen).is_some(),
            "`{nonce}` was not taken back"
        );
    };
    let call =
        |nonce: &str| json!({"name": "a__slow", "arguments": {"ms": 60_000, "nonce": nonce}});
    let in_flight = |count: usize| {
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == count);
    };
    for era in ["handshake", "stateless"] {
        let mut client = Client::start(&gantry.data(), &[]);
        let dressed = |params: Value| match era {
            "handshake" => params,
            _ => with_meta(params),
        };
        if era == "handshake" {
            client.initialize("2025-11-25");
        }
        let taken_back = format!("{era}-taken-back");
        client.send(json!(7), "tools/call", dressed(call(&taken_back)));
        in_flight(1);
        // An id of another type is another request.
        client.notify("notifications/cancelled", json!({"requestId": "7"}));
        client.notify(
            "notifications/cancelled",
            json!({"requestId": 7, "reason": "enough"}),
        );
        cancelled(&taken_back);
        in_flight(0);
        let params = dressed(json!({"name": "a__echo", "arguments": {"text": "next"}}));
        client.send(json!(8), "tools/call", params);
        let next = client.next(LONG).unwrap();
        assert_eq!(
            (&next["id"], text(&next)),
            (&json!(8), "next"),
            "a request taken back has no answer"
        );

        let at_the_end = format!("{era}-at-the-end");
        client.send(json!(9), "tools/call", dressed(call(&at_the_end)));
        in_flight(1);
        assert!(client.close().success());
        cancelled(&at_the_end);
        in_flight(0);
    }
    // A call is out of the way a moment before its end is recorded.
    let mut rows = Vec::new();
    let recorded = eventually(LONG, || {
        rows = gantry.audit_rows("tool=slow");
        rows.len() == 4 && rows.iter().all(|row| row["status"] == "cancelled")
    });
    assert!(recorded.is_some(), "{rows:#?}");
}

#[test]
fn changes_are_heard_in_both_eras() {
    let gantry = Gantry::start(&["a"]);
    let mut older = Client::start(&gantry.data(), &[]);
    older.initialize("2025-06-18");
    let mut newer = Client::start(&gantry.data(), &[]);
    let wish = json!({"notifications": {"toolsListChanged": true}});
    newer.send(json!("ears"), "subscriptions/listen", with_meta(wish));
    let first = newer.next(LONG).unwrap();
    assert_eq!(
        first["method"], "notifications/subscriptions/acknowledged",
        "{first:#}"
    );
    // The older client's stream is opened beside its first requests.
    let listens = || {
        let grown = older_hears(&gantry, &older);
        grown.is_some_and(|message| message["method"] == "notifications/tools/list_changed")
    };
    assert!(eventually(LONG, listens).is_some());
    let told = newer.next(LONG).unwrap();
    assert_eq!(
        told["method"], "notifications/tools/list_changed",
        "{told:#}"
    );
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "ears"
    );
    newer.notify("notifications/cancelled", json!({"requestId": "ears"}));
    let alive = newer.stateless(json!(1), "tools/list", json!({}));
    assert!(alive["result"]["tools"].is_array());
}

/// Adds a tool and returns what the client hears within a while.
fn older_hears(gantry: &Gantry, older: &Client) -> Option<Value> {
    gantry.call("a__grow", json!({}));
    older.next(std::time::Duration::from_secs(3))
}

#[test]
fn one_server_is_offered_under_its_own_names() {
    let gantry = Gantry::start(&["a", "b"]);
    let mut client = Client::start(&gantry.data(), &["--server", "b"]);
    client.initialize("2025-11-25");
    let tools = client.ask(json!(1), "tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    assert!(tools.iter().any(|tool| tool["name"] == "echo"));
    assert!(
        tools
            .iter()
            .all(|tool| !tool["name"].as_str().unwrap().contains("__"))
    );
    let params = json!({"name": "echo", "arguments": {"text": "hi"}});
    assert_eq!(text(&client.ask(json!(2), "tools/call", params)), "hi");
    assert_eq!(gantry.audit_rows("server=b&tool=echo").len(), 1);
}

// A program on two pipes is asked like any other client.
#[test]
fn a_client_is_asked_through_the_pipes() {
    let argv = gantry_testkit::fixture::argv(gantry_testkit::Era::Legacy);
    let entry = json!({"command": argv[0], "args": argv[1..]});
    let gantry = Gantry::builder().entry("old", entry).start();
    gantry.wait_state("old", "ready", LONG);
    let mut client = Client::start(&gantry.data(), &[]);
    let info = json!({"name": "test", "version": "1"});
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": info});
    client.ask(json!(0), "initialize", hello);
    client.notify("notifications/initialized", json!({}));
    let tool = "old__test_input_required_result_list_roots";
    client.send(
        json!(1),
        "tools/call",
        json!({"name": tool, "arguments": {}}),
    );
    let asked = client.next(LONG).expect("a question");
    assert_eq!(asked["method"], "roots/list", "{asked:#}");
    let roots = json!({"roots": [{"uri": "file:///x"}]});
    client.line(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": roots}).to_string());
    assert_eq!(text(&client.answer(&json!(1))), "Found 1 root(s)");
}

// Calls of a client that can be asked overlap here too, and what one of them asks is answered.
#[test]
fn calls_overlap_and_are_asked_for() {
    let argv = fixture::argv(Era::Legacy);
    let entry = json!({"command": argv[0], "args": argv[1..]});
    let gantry = Gantry::builder().entry("f", entry).start();
    gantry.wait_state("f", "ready", LONG);
    let mut client = Client::start(&gantry.data(), &[]);
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"sampling": {}},
        "clientInfo": {"name": "able", "version": "1"},
    });
    client.ask(json!(0), "initialize", hello);
    client.notify("notifications/initialized", json!({}));
    let folder = tempfile::tempdir().unwrap();
    let until = folder.path().join("until");
    let held = json!({"name": "f__test_reconnection", "arguments": {"until": until}});
    client.send(json!(1), "tools/call", held);
    gantry.wait_status("f", LONG, |status| status["queue"]["in_flight"] == 1);
    let asks = json!({"name": "f__test_sampling", "arguments": {"prompt": "?"}});
    client.send(json!(2), "tools/call", asks);
    let question = loop {
        let message = client.next(LONG).unwrap();
        if message["method"] == "sampling/createMessage" {
            break message;
        }
    };
    let content = json!({"type": "text", "text": "Paris"});
    let result = json!({"role": "assistant", "model": "m", "content": content});
    let said = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    client.line(&said.to_string());
    assert_eq!(text(&client.answer(&json!(2))), "LLM response: Paris");
    fs::write(&until, "").unwrap();
    let answer = client.answer(&json!(1));
    assert_eq!(text(&answer), "Reconnection test completed successfully");
    assert!(client.close().success());
}
