//! Lists that change in the process of one client with capabilities: that client hears of it, sees and
//! calls what is new, and nobody else does.

use gantry_testkit::wait::eventually;
use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use super::client::Client;
use super::{Generation, Rig, WATCHED, works};
use crate::harness::{Gantry, LONG, entry};

/// Returns the names of the tools that a client sees.
fn tools(client: &mut Client<'_>) -> Vec<String> {
    let answer = client.ask("tools/list", json!({})).answer;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

/// Adds a tool, and returns the name under which it is called.
fn grow(client: &mut Client<'_>) -> String {
    let answer = client.call("s__grow", json!({})).answer;
    works(&answer, "grown_");
    let name = answer["result"]["content"][0]["text"].as_str().unwrap();
    format!("s__{name}")
}

impl Rig {
    /// Has a client with capabilities change the list of tools: it is told, sees and calls the new one.
    pub(super) fn own_list(&self, generation: Generation) {
        let mut client = Client::able(&self.doing, generation);
        client.listen(WATCHED);
        let before = tools(&mut client);
        // The process that all share may have grown more than the client's own.
        let grown = std::iter::repeat_with(|| grow(&mut client));
        let mut grown = grown.take(1 + before.len());
        let grown = grown.find(|grown| !before.contains(grown));
        let grown = grown.expect("a new tool");
        let listed = eventually(LONG, || tools(&mut client).contains(&grown));
        assert!(listed.is_some(), "`{grown}` is listed");
        client.has_heard_of_changes();
        let answer = client.call(&grown, json!({"text": "it is there"})).answer;
        works(&answer, "it is there");
    }
}

fn started() -> Gantry {
    let peer = Evilpeer::new().era(Era::Legacy);
    let gantry = Gantry::builder().entry("s", entry(&peer)).start();
    gantry.wait_state("s", "ready", LONG);
    gantry
}

// fault T4
#[test]
fn what_one_client_changes_in_its_process_only_it_sees() {
    let gantry = started();
    let able = || Client::able(&gantry, Generation::November);
    let (mut client, mut other) = (able(), able());
    client.listen(WATCHED);
    let before = tools(&mut client);
    let grown = grow(&mut client);
    client.hears("notifications/tools/list_changed");
    let after = tools(&mut client);
    assert_eq!(after.len(), before.len() + 1);
    assert!(after.contains(&grown), "{after:?}");
    // Another session of the same key has a process of its own.
    works(&other.call("s__echo", json!({"text": "x"})).answer, "x");
    assert_eq!(tools(&mut other), before);
    let unknown = other.call(&grown, json!({})).answer;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown:#}");
    // What is listed at the process that all share is not lost either.
    let mut plain = Client::connect(&gantry, Generation::November, json!({}));
    assert_eq!(tools(&mut plain), before);
    // The new tool is gone with its process, and the client hears that too.
    let crashed = client.call("s__crash", json!({})).answer;
    assert_eq!(
        crashed["error"]["data"]["code"], "server.exited",
        "{crashed:#}"
    );
    client.hears("notifications/tools/list_changed");
    assert_eq!(tools(&mut client), before);
    let rows: Vec<Value> = gantry.audit_rows("server=s&status=ok");
    let calls = rows.iter().filter(|row| row["method"] == "tools/call");
    assert_eq!(calls.count(), 2, "{rows:#?}");
}

/// Adds tools one after the other, and looks for each at once.
fn is_listed_at_once(client: &mut Client<'_>) {
    for _ in 0..3 {
        let grown = grow(client);
        let listed = tools(client);
        assert!(listed.contains(&grown), "`{grown}` is not in {listed:?}");
    }
}

// A change that the server tells of before it answers is in the lists that its client sees next.
#[test]
fn what_a_call_adds_is_in_the_next_list() {
    let gantry = started();
    is_listed_at_once(&mut Client::able(&gantry, Generation::November));
    // And in those of clients that share a process.
    is_listed_at_once(&mut Client::connect(
        &gantry,
        Generation::November,
        json!({}),
    ));
    is_listed_at_once(&mut Client::connect(
        &gantry,
        Generation::Stateless,
        json!({}),
    ));
}

// row 3.2
#[test]
fn a_suspended_tool_leaves_the_lists_of_a_clients_own_process() {
    let gantry = started();
    let mut client = Client::able(&gantry, Generation::November);
    let grown = grow(&mut client);
    let listed = eventually(LONG, || tools(&mut client).contains(&grown));
    assert!(listed.is_some(), "it has lists of its own");
    let echo = json!({"kind": "tool", "name": "s:echo"});
    let done = gantry.rest("POST", "/api/v1/suspensions", Some(&echo));
    assert_eq!(done.status, 200, "{}", done.text());
    let after = tools(&mut client);
    assert!(
        after.contains(&grown) && !after.contains(&"s__echo".to_owned()),
        "{after:?}"
    );
    let path = "/api/v1/suspensions?kind=tool&name=s:echo";
    assert_eq!(gantry.rest("DELETE", path, None).status, 204);
    assert!(tools(&mut client).contains(&"s__echo".to_owned()));
}
