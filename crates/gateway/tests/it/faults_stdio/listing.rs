//! Lists without end, too long, with broken and double tools: the bad tool is left out, the server
//! stays.

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::{CALLS, EVIL, Rig, SECOND, all_echoed, all_within, echo, stays_down};
use crate::harness::LONG;

/// Returns the names of the server's tools that the agent is offered.
fn offered(rig: &Rig) -> Vec<String> {
    let list = rig.gantry.mcp("tools/list", json!({}));
    let tools = list["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{list:#}"));
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    names
        .filter_map(|name| name.strip_prefix("evil__"))
        .map(str::to_owned)
        .collect()
}

/// Returns why a tool is left out.
fn excluded(status: &Value, tool: &str) -> String {
    let excluded = status["excluded"].as_array().unwrap();
    let found = excluded.iter().find(|entry| entry["tool"] == tool);
    let found = found.unwrap_or_else(|| panic!("`{tool}` is not left out: {status:#}"));
    found["reason"].as_str().unwrap().to_owned()
}

fn works(rig: &Rig) {
    let replies = rig.at_once("echo", echo);
    all_echoed(&replies);
    all_within(&replies, SECOND);
    rig.never_restarted();
    rig.audited(EVIL, &[(CALLS, "ok", None)]);
}

// fault S19
#[test]
fn a_cursor_that_never_ends_is_not_followed_for_ever() {
    let rig = Rig::new(&Evilpeer::new().fault("list-loop"), &json!({}));
    let tools = offered(&rig);
    assert_eq!(tools.iter().filter(|tool| *tool == "echo").count(), 1);
    assert_eq!(rig.gantry.status(EVIL)["tools"], tools.len());
    works(&rig);
}

// fault S19
#[test]
fn a_list_whose_pages_never_end_is_read_for_sixty_four_pages() {
    let rig = Rig::new(&Evilpeer::new().fault("list-loop=new"), &json!({}));
    let tools = offered(&rig);
    // The first page has the usual tools, each further page one more.
    let pages = tools.iter().filter(|tool| tool.starts_with("page_"));
    assert_eq!(pages.count(), 63);
    assert!(tools.contains(&"page_64".to_owned()) && tools.contains(&"echo".to_owned()));
    let status = rig.gantry.status(EVIL);
    let reason = excluded(&status, "tools/list");
    assert!(reason.contains("more than 64 pages"), "{reason}");
    works(&rig);
}

// fault S19
#[test]
fn tools_beyond_the_limit_are_left_out() {
    let peer = Evilpeer::new().fault("list-huge=11000").page(2_500);
    // The default: a busy machine takes its time to judge 10,000 schemas, which stay in memory.
    let rig = Rig::cold(&peer, &json!({"life": {"handshake": "60s"}})).with_room(48);
    rig.gantry.wait_state(EVIL, "ready", 3 * LONG);
    let status = rig.gantry.status(EVIL);
    assert_eq!(status["tools"], 10_000);
    let told = status["excluded"].as_array().unwrap();
    assert!((1..=200).contains(&told.len()), "{} entries", told.len());
    let says = |entry: &Value| entry["reason"].as_str().unwrap().contains("10000");
    assert!(told.iter().any(says), "{told:#?}");
    works(&rig);
}

// fault S19
#[test]
fn a_definition_beyond_the_limit_is_left_out() {
    let rig = Rig::new(&Evilpeer::new().fault("list-bigdesc=300000"), &json!({}));
    let reason = excluded(&rig.gantry.status(EVIL), "verbose");
    assert!(reason.contains("256 KiB"), "{reason}");
    assert!(!offered(&rig).contains(&"verbose".to_owned()));
    works(&rig);
}

// fault S19
#[test]
fn a_description_longer_than_a_line_may_be_costs_the_tool_and_not_the_server() {
    let peer = Evilpeer::new().fault("list-bigdesc=10000000");
    let rig = Rig::new(&peer, &json!({}));
    let reason = excluded(&rig.gantry.status(EVIL), "verbose");
    assert!(reason.contains("256 KiB"), "{reason}");
    let tools = offered(&rig);
    assert!(!tools.contains(&"verbose".to_owned()) && tools.contains(&"echo".to_owned()));
    // The line itself, what it is read from, and what is judged of it.
    assert!(rig.peak() < 160 << 10, "{} KiB", rig.peak());
    works(&rig);
}

// fault S19, row 2.6
#[test]
fn a_list_longer_than_any_list_may_be_is_told_as_the_reason() {
    let peer = Evilpeer::new().fault("list-bigdesc=40000000");
    // A list may have 32 MiB where a line has 8.
    let rig = Rig::cold(&peer, &stays_down()).with_room(32 + 24);
    is_marked(&rig, &["tools/list", "32 MiB"]);
}

// fault S19
#[test]
fn tools_that_nobody_could_use_are_left_out_with_their_reason() {
    let rig = Rig::new(&Evilpeer::new().fault("list-badschema"), &json!({}));
    let status = rig.gantry.status(EVIL);
    let tools = offered(&rig);
    let bad = [
        "bad_type",
        "bad_string",
        "bad_null",
        "bad_header_name",
        "bad_header_kind",
        "bad_header_twice",
        "bad_missing",
    ];
    for tool in bad {
        assert!(!excluded(&status, tool).is_empty());
        assert!(!tools.contains(&tool.to_owned()), "{tool} is offered");
    }
    let unjudged = [
        "bad_pattern",
        "bad_remote_ref",
        "bad_file_ref",
        "bad_dangling_ref",
        "bad_endless_ref",
    ];
    for tool in unjudged {
        let told = status["unchecked"].as_array().unwrap().iter();
        let told: Vec<_> = told.filter(|part| part["tool"] == tool).collect();
        assert_eq!(told.len(), 1, "{tool}: {told:#?}");
    }
    assert_eq!(status["unchecked_tools"], unjudged.len(), "{status:#}");
    assert_eq!(status["refused_tools"], bad.len() + 1, "{status:#}");
    let fine = ["odd_slow_pattern", "odd_recursive", "odd_deep"];
    for tool in fine.into_iter().chain(unjudged) {
        assert!(
            tools.contains(&tool.to_owned()),
            "{tool} is not offered: {status:#}"
        );
    }
    let nameless = status["excluded"].as_array().unwrap().len();
    assert_eq!(nameless, bad.len() + 1, "one has no name: {status:#}");
    // What is left out cannot be called by its name either.
    let reply = rig.call(EVIL, "bad_type", 0, json!({}));
    reply.fails(-32602, "Unknown tool: evil__bad_type", "tool.unknown");
    // Its row names no server: there is none that offers such a tool.
    let rows = rig.gantry.audit_rows("code=tool.unknown");
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!(rows[0]["status"], "refused");
    works(&rig);
}

// fault S19
#[test]
fn a_name_that_comes_twice_is_offered_at_most_once() {
    let rig = Rig::new(&Evilpeer::new().fault("list-dup"), &json!({}));
    let status = rig.gantry.status(EVIL);
    let reason = excluded(&status, "echo");
    assert_eq!(reason, "it was listed before under the same name");
    let list = rig.gantry.mcp("tools/list", json!({}));
    let echoes = list["result"]["tools"].as_array().unwrap().iter();
    let descriptions: Vec<_> = echoes
        .filter(|tool| tool["name"] == "evil__echo")
        .map(|tool| tool["description"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        descriptions,
        ["Returns its text, after a delay if one is given"]
    );
    works(&rig);
}

/// Sees to it that a server whose list failed is up, says why, and offers nothing.
fn is_marked(rig: &Rig, words: &[&str]) {
    let says = |status: &Value| {
        let reason = status["reason"].as_str().unwrap_or_default();
        status["state"] == "ready" && words.iter().all(|word| reason.contains(word))
    };
    let status = rig.gantry.wait_status(EVIL, LONG, says);
    assert_eq!(status["tools"], 0, "{status:#}");
    assert!(offered(rig).is_empty());
    let replies = rig.at_once("echo", echo);
    all_within(&replies, SECOND);
    for reply in &replies {
        reply.fails(-32602, "Unknown tool: evil__echo", "tool.unknown");
    }
    rig.never_restarted();
    // Where people look, too.
    let row = eventually(LONG, || {
        words.iter().all(|word| rig.gantry.stdout().contains(word))
    });
    assert!(row.is_some(), "{}", rig.gantry.stdout());
    let shown = rig.gantry.cli(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
}

// fault S19, row 2.6
#[test]
fn a_failed_list_revisions_the_server_and_hides_its_tools() {
    let rig = Rig::cold(&Evilpeer::new().fault("list-error"), &stays_down());
    is_marked(&rig, &["the tool list is on strike"]);
}
