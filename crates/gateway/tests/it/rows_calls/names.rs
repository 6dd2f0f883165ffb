//! Rows about tools and their names: listed whole, told apart, routed by the registry.

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use gantry_testkit::{Era, Evilpeer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{SECOND, rest_call};
use crate::harness::{Builder, Gantry, LONG, modern, on_postgresql};

/// Returns the tools that the default agent is offered.
fn tools(gantry: &Gantry) -> Vec<Value> {
    let list = gantry.mcp("tools/list", json!({}));
    list["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{list:#}"))
        .clone()
}

fn named<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    tools.iter().find(|tool| tool["name"] == name)
}

// row 2.4, row 2.5, row 0.3
#[test]
fn all_pages_of_tools_are_listed_with_name_description_and_schema() {
    for era in [Era::Legacy, Era::Modern] {
        let peer = Evilpeer::new().era(era).tools(50).page(7);
        let gantry = Gantry::builder().server("a", &peer).start();
        gantry.wait_state("a", "ready", LONG);
        let tools = tools(&gantry);
        let own = rest_call(&gantry, "a", "tools/list", json!({})).json();
        let first = &own["result"]["tools"].as_array().unwrap()[0];
        assert_eq!(
            named(&tools, "a__echo").unwrap()["description"],
            first["description"]
        );
        assert_eq!(
            named(&tools, "a__echo").unwrap()["inputSchema"],
            first["inputSchema"]
        );
        let added = named(&tools, "a__add").unwrap();
        assert_eq!(added["outputSchema"]["required"], json!(["sum"]));
        for number in 1..=50 {
            assert!(
                named(&tools, &format!("a__tool_{number:04}")).is_some(),
                "{number}"
            );
        }
        assert_eq!(gantry.status("a")["tools"], tools.len());
        let answer = gantry.call("a__tool_0050", json!({"text": "x"}));
        assert_eq!(answer["result"]["content"][0]["text"], "tool_0050 x");
    }
}

// row 2.5
#[test]
fn a_changed_list_is_refreshed() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().era(Era::Legacy))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let session = gantry.initialize();
    assert_eq!(session.hello["capabilities"]["tools"]["listChanged"], true);
    assert!(named(&tools(&gantry), "a__grown_0001").is_none());
    gantry.call("a__grow", json!({}));
    let seen = eventually(2 * SECOND, || {
        named(&tools(&gantry), "a__grown_0001").is_some()
    });
    assert!(seen.is_some());
    let answer = gantry.call("a__grown_0001", json!({"text": "new"}));
    assert_eq!(answer["result"]["content"][0]["text"], "grown_0001 new");
}

// row 2.6
#[test]
fn a_list_that_fails_later_hides_the_tools_and_says_why() {
    let peer = Evilpeer::new()
        .era(Era::Legacy)
        .fault("hang=tools/list")
        .fault_after(1);
    // Time enough to start in, since the list that hangs is waited for as long.
    let members = json!({"life": {"handshake": "3s", "health_every": "1m"}});
    let builder = Gantry::builder().server_with("a", &peer, &members);
    let gantry = builder.server("b", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    gantry.wait_state("b", "ready", LONG);
    assert!(named(&tools(&gantry), "a__echo").is_some());
    gantry.call("a__grow", json!({}));
    let marked = gantry.wait_status("a", LONG, |status| status["tools"] == 0);
    assert!(
        marked["reason"].as_str().unwrap().contains("tools/list"),
        "{marked:#}"
    );
    // The lists follow the status within a moment.
    let hidden = eventually(LONG, || named(&tools(&gantry), "a__echo").is_none());
    assert!(hidden.is_some(), "{:?}", tools(&gantry));
    assert!(named(&tools(&gantry), "b__echo").is_some());
}

// row 2.14, row 2.15, row 4.4
#[test]
fn tools_are_known_by_server_and_tool_and_never_collide() {
    let names = ["serverA", "brave_search", "my.server-1"];
    let gantry = Gantry::start(&names);
    let tools = tools(&gantry);
    let echoes = tools
        .iter()
        .filter(|tool| tool["name"].as_str().unwrap().ends_with("echo"));
    assert_eq!(echoes.count(), names.len());
    let listed = gantry
        .rest_as(&gantry.agent, "GET", "/api/v1/tools", None)
        .json();
    for server in names {
        let answer = gantry.call(&format!("{server}:echo"), json!({"text": server}));
        assert_eq!(
            answer["result"]["content"][0]["text"], server,
            "the identity is accepted"
        );
        let items = listed["items"].as_array().unwrap();
        let listed = items
            .iter()
            .find(|tool| tool["id"] == format!("{server}:echo"));
        let listed = listed.unwrap_or_else(|| panic!("no {server}:echo in {}", items[0]));
        let exposed = listed["name"].as_str().unwrap();
        let charset = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        assert!(
            exposed.chars().all(charset) && exposed.len() <= 128,
            "{exposed}"
        );
        assert!(named(&tools, exposed).is_some());
        let answer = gantry.call(exposed, json!({"text": server}));
        assert_eq!(answer["result"]["content"][0]["text"], server);
        let path = format!("/mcp/servers/{server}");
        let params = json!({"name": "echo", "arguments": {"text": "own"}});
        let own = modern(
            &mut gantry.connect(),
            &gantry.agent,
            &path,
            "tools/call",
            params,
        );
        assert_eq!(own.message()["result"]["content"][0]["text"], "own");
        let rows = gantry.audit_rows(&format!("server={server}"));
        assert_eq!(rows.len(), 3);
        assert!(
            rows.iter()
                .all(|row| row["tool"] == "echo" && row["status"] == "ok")
        );
    }
    assert!(named(&tools, "serverA__echo").is_some());
}

/// Starts two servers with the same tools and bare names; returns whose `echo` was called.
fn bare(builder: Builder) -> (Gantry, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let journal = |name: &str| folder.path().join(name);
    let mut builder = builder.flags(&["--expose", "bare"]);
    for name in ["first", "second"] {
        builder = builder.server(name, &Evilpeer::new().journal(&journal(name)));
    }
    let gantry = builder.start();
    for name in ["first", "second"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let answer = gantry.call("echo", json!({"text": "whose?", "nonce": "n"}));
    assert_eq!(
        answer["result"]["content"][0]["text"], "whose?",
        "{answer:#}"
    );
    let called = |name: &str| Journal::read(&journal(name)).unwrap().executed("n") == 1;
    let whose = ["first", "second"]
        .into_iter()
        .find(|name| called(name))
        .unwrap();
    (gantry, whose.to_owned(), folder)
}

fn warnings(gantry: &Gantry) -> Vec<String> {
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    let warnings = health["warnings"].as_array().unwrap().iter();
    warnings
        .map(|warning| warning.as_str().unwrap().to_owned())
        .collect()
}

// row 4.5
#[test]
fn of_two_equal_bare_names_the_second_is_refused_and_told() {
    let (gantry, whose, _folder) = bare(Gantry::builder());
    assert_eq!(whose, "first");
    let tools = tools(&gantry);
    assert_eq!(
        tools.iter().filter(|tool| tool["name"] == "echo").count(),
        1
    );
    let told = warnings(&gantry);
    let says = |text: &&String| text.contains("echo") && text.contains("second");
    assert!(told.iter().any(|text| says(&text)), "{told:?}");
    // Its identity stays its own.
    let answer = gantry.call("second:echo", json!({"text": "still"}));
    assert_eq!(answer["result"]["content"][0]["text"], "still");
}

// row 4.5
#[test]
fn with_last_wins_the_later_in_the_file_wins_with_a_warning() {
    let (gantry, whose, _folder) = bare(Gantry::builder().flags(&["--on-collision", "last_wins"]));
    assert_eq!(whose, "second");
    let told = warnings(&gantry);
    assert!(
        told.iter()
            .any(|text| text.contains("echo") && text.contains("first")),
        "{told:?}"
    );
}

// row 3.6
#[test]
fn of_two_servers_with_one_name_the_binding_of_the_agent_decides() {
    // A server that starts again wants its journal.
    let (gantry, _, _folder) = bare(Gantry::builder());
    let bound = |server: &str| {
        let agent = json!({"name": format!("of-{server}"), "grant": [format!("{server}:*")]});
        let made = gantry.rest("POST", "/api/v1/agents", Some(&agent));
        assert_eq!(made.status, 201, "{}", made.text());
        let key = json!({"kind": "agent", "agent": agent["name"]});
        let key = gantry.rest("POST", "/api/v1/keys", Some(&key)).json();
        (server.to_owned(), key["key"].as_str().unwrap().to_owned())
    };
    let [first, second] = ["first", "second"].map(bound);
    // Calls both ways, and looks where the calls went.
    let calls = |(server, key): &(String, String), before: usize| {
        let params = json!({"name": "echo", "arguments": {"text": server}});
        let mut connection = gantry.connect();
        let mcp = modern(&mut connection, key, "/mcp", "tools/call", params.clone()).message();
        assert_eq!(mcp["result"]["content"][0]["text"], **server, "{mcp:#}");
        let rest = gantry.rest_as(key, "POST", "/api/v1/tools/call", Some(&params));
        assert_eq!(rest.status, 200, "{}", rest.text());
        let rows = gantry.audit_rows(&format!("agent=of-{server}"));
        assert_eq!(rows.len(), before + 2);
        assert!(
            rows.iter().all(|row| row["server"] == **server),
            "{rows:#?}"
        );
    };
    calls(&first, 0);
    calls(&second, 0);
    // Nor does the name go over to the other while its own server is gone.
    let pid = gantry.status("first")["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    gantry.wait_status("first", LONG, |status| status["restart_count"] == 1);
    calls(&second, 2);
    gantry.wait_state("first", "ready", LONG);
    calls(&first, 2);
}

// row 3.6
#[test]
fn of_two_servers_with_one_name_the_binding_of_the_agent_decides_on_postgresql() {
    on_postgresql(of_two_servers_with_one_name_the_binding_of_the_agent_decides);
}

// row 4.6, row 4.8
#[test]
fn an_unknown_tool_is_named_in_the_answer() {
    let gantry = Gantry::start(&["a"]);
    for name in ["nope", "a__nope", "b__echo", "a:nope"] {
        let answer = gantry.call(name, json!({}));
        assert_eq!(answer["error"]["code"], -32602, "{answer:#}");
        assert_eq!(answer["error"]["message"], format!("Unknown tool: {name}"));
        let body = json!({"name": name, "arguments": {}});
        let rest = gantry.rest_as(&gantry.agent, "POST", "/api/v1/tools/call", Some(&body));
        assert_eq!(rest.status, 404, "{}", rest.text());
        assert_eq!(rest.json()["detail"], format!("Unknown tool: {name}"));
    }
    let output = gantry.cli(&["call", "a__nope"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("Unknown tool: a__nope"));
    let rows = gantry.audit_rows("status=refused");
    let count: u64 = rows.iter().filter_map(|row| row["repeats"].as_u64()).sum();
    assert_eq!(count, 9, "{rows:#?}");
    assert!(rows.iter().all(|row| row["code"] == "tool.unknown"));
}
