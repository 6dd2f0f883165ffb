//! Lists with more tools than a page has, names that are longer than clients take, and names that two
//! servers have: everything is listed, can be called, and is counted as it is offered.

use std::collections::HashSet;

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::schemas::server_with;
use super::{FAR, NEAR};
use crate::harness::{Gantry, LONG, modern};

/// Returns the names of all pages of a list, and how many pages there were.
fn listed(gantry: &Gantry, path: &str) -> (Vec<String>, usize) {
    let (mut names, mut pages) = (Vec::new(), 0);
    let mut params = json!({});
    loop {
        let mut connection = gantry.connect();
        let answer = modern(&mut connection, &gantry.agent, path, "tools/list", params);
        let result = &answer.message()["result"];
        let tools = result["tools"].as_array().unwrap();
        names.extend(
            tools
                .iter()
                .map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        match result["nextCursor"].as_str() {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return (names, pages),
        }
    }
}

// row 2.4
#[test]
fn more_than_a_page_of_tools_is_paged_and_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let tools: Vec<Value> = (0..1_500)
        .map(|number| json!({"name": format!("t{number}"), "inputSchema": {"type": "object", "required": ["x"]}}))
        .collect();
    let program = server_with(folder.path(), &json!(tools));
    let gantry = Gantry::builder()
        .entry("many", json!({"command": program.to_str().unwrap()}))
        .server_with(
            FAR,
            &Evilpeer::new().fault("list-huge=1200").page(10),
            &json!({}),
        )
        .start();
    let many = gantry.wait_state("many", "ready", LONG);
    assert_eq!(
        (&many["tools"], &many["refused_tools"]),
        (&json!(1_500), &json!(0))
    );
    // 10 on a page: more than 64 pages, with enough on each.
    let far = gantry.wait_state(FAR, "ready", LONG);
    let count = far["tools"].as_u64().unwrap() as usize;
    assert!(count >= 1_200, "{far:#}");
    assert_eq!(far["excluded"], json!([]));
    let (names, pages) = listed(&gantry, "/mcp");
    let all: HashSet<&String> = names.iter().collect();
    assert_eq!((all.len(), names.len()), (1_500 + count, 1_500 + count));
    assert_eq!(pages, names.len().div_ceil(1_024));
    let (own, pages) = listed(&gantry, "/mcp/servers/many");
    assert_eq!((own.len(), pages, own[1_499].as_str()), (1_500, 2, "t1499"));
    // Sessions of the handshake era page likewise.
    let mut session = gantry.initialize();
    let first = session.request("tools/list", json!({}));
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), 1_024);
    let cursor = first["result"]["nextCursor"].clone();
    let second = session.request("tools/list", json!({"cursor": cursor}));
    let name = &second["result"]["tools"][0]["name"];
    assert_eq!(*name, names[1_024]);
    // The last of the list is judged and called as the first is.
    let answer = gantry.call("many__t1499", json!({"x": 1}));
    assert_eq!(answer["result"]["content"][0]["text"], "called");
    let answer = gantry.call("many__t1499", json!({}));
    assert_eq!(answer["result"]["isError"], true, "{answer:#}");
    for bad in [
        json!("nonsense"),
        json!(7),
        json!(""),
        json!("p1024.00000000"),
        json!("t999999.00000000"),
    ] {
        let answer = session.request("tools/list", json!({"cursor": bad}));
        assert_eq!(answer["error"]["code"], -32602, "{bad}: {answer:#}");
    }
    let rest = gantry.rest("GET", "/api/v1/tools?limit=1000", None).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 1_000);
    assert!(rest["next_cursor"].is_string());
}

// row 2.15
#[test]
fn long_names_are_shortened_and_lead_back() {
    let folder = tempfile::tempdir().unwrap();
    let stem = "list_all_the_open_issues_of_a_repository_with_their_labels_and";
    let names = [format!("{stem}_assignees"), format!("{stem}_milestones")];
    let tools = json!(
        names
            .clone()
            .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
    );
    let program = server_with(folder.path(), &tools);
    let start = |longest: usize| {
        let entry = json!({"command": program.to_str().unwrap()});
        let builder = Gantry::builder().entry("issues", entry);
        let file = folder.path().join("own.toml");
        let text = format!("version = 1\n[gateway]\ntool_name_length = {longest}\n");
        std::fs::write(&file, text).unwrap();
        let flags = ["--config", file.to_str().unwrap()];
        // The default needs no file.
        let flags: &[&str] = if longest == 64 { &[] } else { &flags };
        let gantry = builder.flags(flags).start();
        gantry.wait_state("issues", "ready", LONG);
        gantry
    };
    let mut before = Vec::new();
    for longest in [64, 40, 64] {
        let gantry = start(longest);
        let (short, _) = listed(&gantry, "/mcp");
        assert_eq!(short.len(), 2);
        assert!(short.iter().all(|name| name.len() == longest), "{short:?}");
        assert_ne!(short[0], short[1]);
        // The same after a restart.
        if longest == 64 {
            assert!(before.is_empty() || before == short, "{before:?} {short:?}");
            before.clone_from(&short);
        }
        let (own, _) = listed(&gantry, "/mcp/servers/issues");
        assert!(own.iter().all(|name| name.len() == longest), "{own:?}");
        let table = gantry.cli(&["tools"]);
        let table = String::from_utf8_lossy(&table.stdout).into_owned();
        for (short, name) in short.iter().zip(&names) {
            assert!(table.contains(short.as_str()), "{table}");
            assert!(table.contains(&format!("issues:{name}")), "{table}");
            for called in [
                short.clone(),
                format!("issues:{name}"),
                format!("issues__{name}"),
            ] {
                let answer = gantry.call(&called, json!({}));
                let text = &answer["result"]["content"][0]["text"];
                assert_eq!(text, "called", "{called}: {answer:#}");
            }
            let rows = gantry.audit_rows(&format!("tool={name}"));
            assert_eq!(rows.len(), 3, "{rows:#?}");
        }
        for (short, name) in own.iter().zip(&names) {
            for called in [short, name] {
                let params = json!({"name": called, "arguments": {}});
                let path = "/mcp/servers/issues";
                let mut connection = gantry.connect();
                let answer = modern(&mut connection, &gantry.agent, path, "tools/call", params);
                let text = &answer.message()["result"]["content"][0]["text"];
                assert_eq!(text, "called", "{called}");
            }
        }
    }
}

// row 4.5, fault L4
#[test]
fn tools_that_lost_their_bare_names_are_not_counted() {
    let gantry = Gantry::builder()
        .server(NEAR, &Evilpeer::new())
        .server(FAR, &Evilpeer::new())
        .flags(&["--expose", "bare"])
        .start();
    for server in [NEAR, FAR] {
        gantry.wait_state(server, "ready", LONG);
    }
    let (offered, _) = listed(&gantry, "/mcp");
    let [near, far] = [NEAR, FAR].map(|server| gantry.status(server));
    let counts = [&near, &far].map(|status| status["tools"].as_u64().unwrap() as usize);
    assert_eq!(counts.iter().sum::<usize>(), offered.len());
    assert_eq!(counts.iter().min(), Some(&0), "{near:#} {far:#}");
    let loser = if counts[0] == 0 { &near } else { &far };
    let excluded = loser["excluded"].as_array().unwrap();
    let echo = excluded.iter().find(|one| one["tool"] == "echo").unwrap();
    let reason = echo["reason"].as_str().unwrap();
    assert!(reason.contains(":echo` has the name `echo`"), "{reason}");
    let table = gantry.cli(&["ls"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let name = loser["name"].as_str().unwrap();
    let row = table.lines().find(|line| line.starts_with(name)).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..3], [name, "ready", "0"], "{table}");
}
