//! Bounds on what is kept of a server's notifications, and on how much one agent may listen to.

use gantry_testkit::{Era, Evilpeer, procs};
use serde_json::{Value, json};

use super::changes::{acknowledged, listen};
use super::{Events, Older};
use crate::harness::{Gantry, LONG, modern};

const URI: &str = "test://static-text";

fn start(era: Era) -> Gantry {
    let peer = Evilpeer::new().era(era).fault("say");
    let gantry = Gantry::builder().server("a", &peer).start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

fn say(gantry: &Gantry, arguments: Value) {
    let said = gantry.call("a__say", arguments);
    let text = said["result"]["content"][0]["text"].as_str();
    assert!(
        text.is_some_and(|text| text.starts_with("said")),
        "{said:#}"
    );
}

fn updated(uri: &str) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
        .to_string()
}

// fault S14, fault A5: a session that listens and has no stream open keeps what it is to be told.
#[test]
fn long_uris_of_changed_resources_fill_no_memory() {
    const TIMES: u64 = 300;
    let gantry = start(Era::Legacy);
    let session = Older::open(&gantry, "/mcp", "2025-06-18");
    session.result("resources/subscribe", json!({"uri": URI}));
    let before = procs::rss_kib(gantry.pid);
    let line = updated(&format!("{URI}/%n%/%pad%"));
    let flood = json!({"lines": [line], "times": TIMES, "pad": 200_000});
    say(&gantry, flood);
    let dropped = |status: &Value| status["dropped_notifications"] == TIMES;
    gantry.wait_status("a", LONG, dropped);
    let more = procs::rss_kib(gantry.pid).saturating_sub(before);
    // Kept they would be 60 MB.
    assert!(more < 24 << 10, "{more} KiB more");
    // What is of a length that is kept, is told.
    say(&gantry, json!({"lines": [updated(URI)]}));
    let mut events = Events::of(session.listen());
    assert_eq!(events.next().unwrap()["params"]["uri"], URI);
}

// fault S14: what waits for one client is bounded in bytes, too.
#[test]
fn long_messages_of_a_server_are_not_passed_on() {
    for era in [Era::Legacy, Era::Modern] {
        let gantry = start(era);
        let progress = |text: &str| {
            let params = json!({"progressToken": "TOKEN", "progress": 1, "message": text});
            let line =
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            line.to_string().replace("\"TOKEN\"", "%token%")
        };
        let log = |text: &str| {
            let params = json!({"level": "error", "data": text});
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
                .to_string()
        };
        let lines = [
            progress("%pad%"),
            log("%pad%"),
            progress("short"),
            log("short"),
        ];
        let meta = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"});
        let arguments = json!({"lines": lines, "pad": 100_000});
        let params = json!({"name": "a__say", "arguments": arguments, "_meta": meta});
        let mut connection = gantry.connect();
        let answer = modern(&mut connection, &gantry.agent, "/mcp", "tools/call", params);
        let mut heard = answer.messages();
        let result = heard.pop().unwrap();
        assert_eq!(result["result"]["content"][0]["text"], "said 4", "{era:?}");
        let told: Vec<&Value> = heard
            .iter()
            .map(|message| match message["params"]["message"].as_str() {
                Some(_) => &message["params"]["message"],
                None => &message["params"]["data"],
            })
            .collect();
        assert_eq!(told, ["short", "short"], "{era:?}");
        assert_eq!(gantry.status("a")["dropped_notifications"], 2, "{era:?}");
    }
}

// fault A5: one agent cannot take all subscriptions of a server.
#[test]
fn one_agent_listens_to_so_many_resources_and_the_others_keep_theirs() {
    let gantry = start(Era::Modern);
    let greedy = gantry.agent_with("greedy", &["a:*", "a:resource:*", "a:subscription:*"]);
    let wish = |from: usize, count: usize| {
        let uris: Vec<String> = (from..from + count)
            .map(|number| format!("test://template/{number}/data"))
            .collect();
        json!({ "resourceSubscriptions": uris })
    };
    let open = |key: &str, number: usize, wish: &Value| {
        let id = json!(format!("s{number}"));
        let mut events = Events::of(listen(&gantry, key, "/mcp", &id, wish));
        acknowledged(&mut events, &id, wish);
        events
    };
    let held: Vec<Events> = (0..4)
        .map(|number| open(&greedy, number, &wish(250 * number, 250)))
        .collect();
    // Refused on a further stream, in a session, and for what it listens to already.
    for asked in [wish(1000, 1), wish(0, 1)] {
        let answer = listen(&gantry, &greedy, "/mcp", &json!(9), &asked).answer();
        let answer = answer.unwrap();
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["data"]["code"]),
            (429, &json!("listen.too_many")),
            "{error:#}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("agent `greedy` has 1000 subscriptions"),
            "{message}"
        );
    }
    let mut session = crate::harness::Session::open(gantry.connect(), &greedy, "2025-06-18");
    let refused = session.send("resources/subscribe", json!({"uri": URI}));
    assert_eq!(refused.json()["error"]["data"]["code"], "listen.too_many");
    // Others are told what they listen to, and may listen to more.
    let mut other = open(&gantry.agent, 10, &json!({"resourceSubscriptions": [URI]}));
    let touched = gantry.call("a__touch", json!({"uri": URI}));
    assert!(touched["result"].is_object(), "{touched:#}");
    assert_eq!(other.next().unwrap()["params"]["uri"], URI);
    // Who lets go of some may listen again.
    drop(held);
    let again = || {
        let answer = session.send("resources/subscribe", json!({"uri": URI}));
        answer.json()["result"].is_object()
    };
    let listens = gantry_testkit::wait::eventually(LONG, again);
    assert!(listens.is_some());
}
