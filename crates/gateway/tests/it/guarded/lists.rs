//! Lists are kept ready for whoever asks again: each caller's own, and nobody else's.

use std::thread;

use serde_json::{Value, json};

use crate::harness::{Gantry, Session, modern, on_postgresql};

/// Returns the names of the tools in an answer, in order.
fn names(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().unwrap().iter();
    let mut names: Vec<String> = tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Lists the tools of a key in every way there is; all must agree.
fn listed(gantry: &Gantry, key: &str) -> Vec<String> {
    let stateless = modern(&mut gantry.connect(), key, "/mcp", "tools/list", json!({}));
    let stateless = names(&stateless.message()["result"]["tools"]);
    let mut session = Session::open(gantry.connect(), key, "2025-11-25");
    let in_session = session.request("tools/list", json!({}));
    assert_eq!(names(&in_session["result"]["tools"]), stateless);
    let rest = gantry.rest_as(key, "GET", "/api/v1/tools?limit=1000", None);
    assert_eq!(names(&rest.json()["items"]), stateless);
    stateless
}

// fault T3
#[test]
fn a_list_that_was_made_for_one_caller_is_never_another_ones() {
    let gantry = Gantry::start(&["a", "b"]);
    let echo = gantry.agent_with("echoing", &["a:echo"]);
    let other = gantry.agent_with("other", &["b:*"]);
    let nothing = gantry.agent_with("nothing", &[]);
    let made = gantry.rest("POST", "/api/v1/projects", Some(&json!({"name": "acme"})));
    assert_eq!(made.status, 201, "{}", made.text());
    let agent = json!({"name": "echoing", "grant": ["*"]});
    let path = "/api/v1/projects/acme/agents";
    assert_eq!(gantry.rest("POST", path, Some(&agent)).status, 201);
    let key = json!({"kind": "agent", "agent": "echoing"});
    let made = gantry.rest("POST", "/api/v1/projects/acme/keys", Some(&key));
    let stranger = made.json()["key"].as_str().unwrap().to_owned();
    let of_b = listed(&gantry, &other);
    assert!(of_b.len() > 1 && of_b.iter().all(|name| name.starts_with("b__")));
    // Asked at the same time and again and again, in every order.
    thread::scope(|scope| {
        for round in 0..4 {
            let (gantry, of_b) = (&gantry, &of_b);
            let mut callers = [
                (&echo, vec!["a__echo".to_owned()]),
                (&other, of_b.clone()),
                (&nothing, vec![]),
                // Of the same name, in another project, with everything granted.
                (&stranger, vec![]),
            ];
            callers.rotate_left(round);
            scope.spawn(move || {
                for (key, wanted) in callers {
                    assert_eq!(listed(gantry, key), wanted);
                }
            });
        }
    });
    // Another grant is another list, at once.
    let grant = json!({"grant": ["b:echo"]});
    let changed = gantry.rest("PATCH", "/api/v1/agents/echoing", Some(&grant));
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(listed(&gantry, &echo), ["b__echo"]);
    assert_eq!(listed(&gantry, &other), of_b);
    assert_eq!(listed(&gantry, &stranger), [""; 0]);
}

// fault T3
#[test]
fn a_list_that_was_made_for_one_caller_is_never_another_ones_on_postgresql() {
    on_postgresql(a_list_that_was_made_for_one_caller_is_never_another_ones);
}
