//! Grants over REST, MCP and the command line: allow, deny and ask, for agents, keys and all agents, with
//! groups and conditions; in listing and in calling alike.

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::problem;
use crate::harness::{Gantry, LONG};

fn add(gantry: &Gantry, body: &Value) -> Value {
    let added = gantry.rest("POST", "/api/v1/grants", Some(body));
    assert_eq!(added.status, 201, "{}", added.text());
    added.json()
}

fn tools(gantry: &Gantry, key: &str) -> Vec<String> {
    let listed = gantry.rest_as(key, "GET", "/api/v1/tools", None).json();
    let items = listed["items"].as_array().unwrap().iter();
    items
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn called(gantry: &Gantry, key: &str, tool: &str, arguments: Value) -> (u16, String) {
    let body = json!({"name": tool, "arguments": arguments});
    let answer = gantry.rest_as(key, "POST", "/api/v1/tools/call", Some(&body));
    let code = answer.json()["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.status, code)
}

/// Makes an agent and returns its key and the id of that.
fn agent(gantry: &Gantry, name: &str, grant: &[&str]) -> (String, String) {
    let key = gantry.agent_with(name, grant);
    let path = format!("/api/v1/keys?agent={name}");
    let keys = gantry.rest("GET", &path, None).json();
    (key, keys["items"][0]["id"].as_str().unwrap().to_owned())
}

fn gateway() -> Gantry {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .server("b", &Evilpeer::new().name("b"))
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry.wait_state("b", "ready", LONG);
    gantry
}

// rows 3.2, 3.6, 2.16
#[test]
fn a_deny_wins_whoever_it_is_for_in_listing_and_in_calling() {
    let gantry = gateway();
    let (key, id) = agent(&gantry, "worker", &["a:*", "b:echo"]);
    let (other, _) = agent(&gantry, "other", &["a:*"]);
    assert_eq!(called(&gantry, &key, "a:echo", json!({"text": "x"})).0, 200);
    // For all agents.
    let all = add(
        &gantry,
        &json!({"all_agents": true, "effect": "deny", "server": "a", "item": "ech*"}),
    );
    assert_eq!(all["text"], "deny a:ech*");
    for key in [&key, &other] {
        assert_eq!(
            called(&gantry, key, "a:echo", json!({"text": "x"})),
            (403, "grant.denied".into())
        );
        assert!(!tools(&gantry, key).contains(&"a__echo".to_owned()));
    }
    // The same tool on another server is another thing.
    assert_eq!(called(&gantry, &key, "b:echo", json!({"text": "x"})).0, 200);
    // For one key.
    add(
        &gantry,
        &json!({"key": id, "effect": "deny", "server": "b"}),
    );
    assert_eq!(
        called(&gantry, &key, "b:echo", json!({"text": "x"})),
        (403, "grant.denied".into())
    );
    let path = format!("/api/v1/grants/{}", all["id"].as_str().unwrap());
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    assert_eq!(
        problem(&gantry, &gantry.rest("GET", &path, None), 404),
        "grant.unknown"
    );
    assert_eq!(
        called(&gantry, &other, "a:echo", json!({"text": "x"})).0,
        200
    );
    // Each refusal is on record, with what it was for.
    let rows = gantry.audit_rows("code=grant.denied");
    assert!(rows.len() >= 3, "{rows:#?}");
    assert!(
        rows.iter()
            .all(|row| row["status"] == "refused" && row["tool"] == "echo"),
        "{rows:#?}"
    );
}

// row 3.2
#[test]
fn conditions_decide_by_the_arguments_and_an_ask_needs_an_approval() {
    let gantry = gateway();
    let (key, _) = agent(&gantry, "worker", &[]);
    let grant = json!({"agent": "worker", "server": "a", "item": "echo",
        "when": [{"at": "/text", "prefix": "ok"}]});
    let made = add(&gantry, &grant);
    assert_eq!(made["text"], r#"a:echo when /text prefix "ok""#);
    // What is allowed under a condition is listed.
    assert_eq!(tools(&gantry, &key), ["a__echo"]);
    assert_eq!(
        called(&gantry, &key, "a:echo", json!({"text": "ok then"})).0,
        200
    );
    assert_eq!(
        called(&gantry, &key, "a:echo", json!({"text": "no"})),
        (403, "grant.arguments".into())
    );
    // What cannot be told does not allow, and does deny.
    assert_eq!(
        called(&gantry, &key, "a:echo", json!({})).1,
        "grant.arguments"
    );
    add(&gantry, &json!({"agent": "worker", "server": "b"}));
    add(
        &gantry,
        &json!({"agent": "worker", "effect": "deny", "server": "b", "item": "echo",
        "when": [{"at": "/more", "equals": 1}]}),
    );
    assert_eq!(
        called(&gantry, &key, "b:echo", json!({"text": "x"})),
        (403, "grant.denied".into())
    );
    add(
        &gantry,
        &json!({"agent": "worker", "effect": "ask", "server": "b", "item": "add"}),
    );
    assert!(tools(&gantry, &key).contains(&"b__add".to_owned()));
    // Over MCP the same.
    let refused = gantry.rest_as(&key, "GET", "/api/v1/grants", None);
    assert_eq!(problem(&gantry, &refused, 403), "auth.agent_key");
}

#[test]
fn what_is_no_grant_is_refused_with_its_code() {
    let gantry = Gantry::start(&["a"]);
    for (body, status, code) in [
        (json!({"server": "a"}), 422, "request.body"),
        (
            json!({"agent": "default", "all_agents": true, "server": "a"}),
            422,
            "request.body",
        ),
        (
            json!({"agent": "nobody", "server": "a"}),
            404,
            "agent.unknown",
        ),
        (json!({"key": "key_1", "server": "a"}), 404, "key.unknown"),
        (
            json!({"all_agents": true, "server": "a b"}),
            422,
            "grant.server",
        ),
        (
            json!({"all_agents": true, "server": "a", "item": ""}),
            422,
            "grant.item",
        ),
        (
            json!({"all_agents": true, "server": "@none"}),
            404,
            "group.unknown",
        ),
        (
            json!({"all_agents": true, "server": "a", "alias": "x"}),
            422,
            "grant.alias",
        ),
        (
            json!({"all_agents": true, "server": "a", "when": [{"at": "/x", "absent": true}]}),
            422,
            "grant.condition",
        ),
        (
            json!({"all_agents": true, "server": "a", "item": "x", "when": [{"at": "x", "absent": true}]}),
            422,
            "grant.condition",
        ),
    ] {
        let refused = gantry.rest("POST", "/api/v1/grants", Some(&body));
        assert_eq!(problem(&gantry, &refused, status), code, "{body}");
    }
    for (method, path, body, status, code) in [
        (
            "POST",
            "/api/v1/groups",
            json!({"name": "a b", "servers": []}),
            422,
            "group.members",
        ),
        (
            "POST",
            "/api/v1/groups",
            json!({"name": "files", "servers": []}),
            409,
            "group.of_files",
        ),
        (
            "PATCH",
            "/api/v1/groups/none",
            json!({"servers": []}),
            404,
            "group.unknown",
        ),
        (
            "PATCH",
            "/api/v1/groups/files",
            json!({"servers": []}),
            409,
            "group.of_files",
        ),
    ] {
        let refused = gantry.rest(method, path, Some(&body));
        assert_eq!(problem(&gantry, &refused, status), code, "{path} {body}");
    }
}

// row 3.2
#[test]
fn groups_and_uses_over_the_command_line() {
    let gantry = gateway();
    let (key, key_id) = agent(&gantry, "worker", &[]);
    let run = |arguments: &[&str]| {
        let done = gantry.cli(arguments);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        (done.status.success(), text)
    };
    assert_eq!(
        run(&["group", "new", "pair", "a", "b*"]),
        (true, "@pair is a b*\n".into())
    );
    let (done, said) = run(&["grant", "add", "--agent", "worker", "@pair:echo"]);
    assert!(done && said.contains("@pair:echo for worker"), "{said}");
    let mut seen = tools(&gantry, &key);
    seen.sort();
    assert_eq!(seen, ["a__echo", "b__echo"]);
    assert_eq!(called(&gantry, &key, "b:echo", json!({"text": "x"})).0, 200);
    assert!(!run(&["group", "rm", "pair"]).0);
    assert!(run(&["group", "set", "pair", "a"]).0);
    assert_eq!(tools(&gantry, &key), ["a__echo"]);
    let (_, listed) = run(&["grant", "ls", "--agent", "worker", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let grant = &listed["items"][0];
    assert!(grant["last_used_ms"].as_u64().is_some(), "{listed:#}");
    // Nothing is unused for a day, and everything that was never used is for no days.
    let (_, unused) = run(&[
        "grant", "ls", "--agent", "worker", "--unused", "1d", "--json",
    ]);
    assert_eq!(
        serde_json::from_str::<Value>(&unused).unwrap()["items"],
        json!([])
    );
    let id = grant["id"].as_str().unwrap();
    assert!(run(&["grant", "rm", id]).0);
    assert!(!run(&["grant", "rm", id]).0);
    assert!(run(&["group", "rm", "pair"]).0);
    let (done, why) = run(&["why", "worker", "a:echo"]);
    assert!(
        !done && why.contains("no grant of `worker` names it"),
        "{why}"
    );
    let (done, said) = run(&[
        "grant",
        "add",
        "--agent",
        "worker",
        "--when",
        "/text equals x",
        "a:echo",
    ]);
    assert!(done, "{said}");
    assert!(run(&["why", "worker", "a:echo", "--arg", "text=x"]).0);
    let (done, why) = run(&["why", "worker", "a:echo", "--arg", "text=y"]);
    assert!(
        !done && why.contains("does not allow these arguments"),
        "{why}"
    );
    let (done, why) = run(&["why", "worker", "a:echo", "--arguments", r#"{"text":"x"}"#]);
    assert!(done, "{why}");
    // The grants of a key count for calls with that key.
    assert!(run(&["grant", "add", "--key", &key_id, "--deny", "a:echo"]).0);
    assert!(run(&["why", "worker", "a:echo", "--arg", "text=x"]).0);
    let with_key = [
        "why", "worker", "a:echo", "--arg", "text=x", "--key", &key_id,
    ];
    let (done, why) = run(&with_key);
    assert!(!done && why.contains("denied by `deny a:echo`"), "{why}");
    let (done, why) = run(&["why", "worker", "a:echo", "--key", "key_of_nobody"]);
    assert!(!done && why.contains("key ls` lists the keys"), "{why}");
}

// row 3.6
#[test]
fn of_two_tools_with_one_alias_the_second_is_told_to_have_no_name() {
    let gantry = gateway();
    let (key, _) = agent(&gantry, "worker", &[]);
    for server in ["a", "b"] {
        let alias = json!({"agent": "worker", "server": server, "item": "echo", "alias": "say"});
        add(&gantry, &alias);
    }
    assert_eq!(tools(&gantry, &key), ["say"]);
    let why = |tool: &str| {
        let path = format!("/api/v1/tools/why?agent=worker&tool={tool}");
        let told = gantry.rest("GET", &path, None).json();
        (told["tool"].clone(), told["steps"].to_string())
    };
    let (tool, steps) = why("say");
    assert_eq!(tool, "a:echo");
    assert!(!steps.contains("collision"), "{steps}");
    let (_, steps) = why("b:echo");
    assert!(steps.contains("collision"), "{steps}");
    assert_eq!(called(&gantry, &key, "b:echo", json!({"text": "x"})).0, 200);
}

// row 3.2
#[test]
fn a_changed_policy_is_tried_on_recorded_calls() {
    let gantry = gateway();
    let (key, _) = agent(&gantry, "worker", &["a:echo"]);
    assert_eq!(
        called(&gantry, &key, "a:echo", json!({"text": "one"})).0,
        200
    );
    assert_eq!(
        called(&gantry, &key, "a:echo", json!({"text": "two"})).0,
        200
    );
    assert_eq!(
        called(
            &gantry,
            &key,
            "a:echo",
            json!({"text": "x".repeat(200_000)})
        )
        .0,
        200
    );
    assert_eq!(
        called(&gantry, &key, "b:echo", json!({"text": "x"})).1,
        "grant.unbound"
    );
    let test = |body: Value| {
        let tested = gantry.rest("POST", "/api/v1/policy/test", Some(&body));
        assert_eq!(tested.status, 200, "{}", tested.text());
        tested.json()
    };
    let counts = |report: &Value| {
        ["calls", "same", "differ", "undecided"].map(|name| report[name].as_u64().unwrap())
    };
    assert_eq!(counts(&test(json!({}))), [4, 4, 0, 0]);
    let deny = json!({"add": [{"all_agents": true, "effect": "deny", "server": "a", "item": "echo",
        "when": [{"at": "/text", "equals": "two"}]}]});
    let report = test(deny);
    // The arguments of the third call were cut: nobody knows.
    assert_eq!(counts(&report), [4, 2, 1, 1], "{report:#}");
    let differs = report["items"].as_array().unwrap().iter();
    let differs: Vec<_> = differs
        .map(|item| {
            (
                item["recorded"].as_str().unwrap(),
                item["decision"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(differs, [("allow", "undecided"), ("allow", "deny")]);
    let opened = test(json!({"add": [{"agent": "worker", "server": "b"}]}));
    assert_eq!(counts(&opened), [4, 3, 1, 0], "{opened:#}");
    let none = test(json!({"grants": []}));
    assert_eq!(counts(&none), [4, 1, 3, 0], "{none:#}");
    // A grant for somebody who is not there would differ in nothing, and is no answer.
    let typo = json!({"add": [{"agent": "wroker", "server": "b"}]});
    let refused = gantry.rest("POST", "/api/v1/policy/test", Some(&typo));
    assert_eq!(problem(&gantry, &refused, 404), "agent.unknown");
    // Nothing was changed by all that.
    assert_eq!(
        called(&gantry, &key, "a:echo", json!({"text": "two"})).0,
        200
    );
    let done = gantry.cli(&["policy", "test", "--deny", "a:*"]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        !done.status.success() && said.contains("4 would differ"),
        "{said}"
    );
}

fn register(gantry: &Gantry, name: &str) {
    let argv = Evilpeer::new().name(name).argv();
    let spec = json!({"name": name, "command": argv[0], "args": argv[1..], "profile": "local",
        "start": "eager"});
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&spec));
    assert_eq!(made.status, 201, "{}", made.text());
    gantry.wait_state(name, "ready", LONG);
}

// row 3.2
#[test]
fn the_first_agent_has_what_files_define_and_a_new_server_is_offered_to_nobody() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .own_grants()
        .start();
    gantry.wait_state("a", "ready", LONG);
    let first = gantry.rest("GET", "/api/v1/agents/default", None).json();
    assert_eq!(first["grants"], json!(["@files:*"]));
    assert_eq!(
        called(&gantry, &gantry.agent, "a:echo", json!({"text": "x"})).0,
        200
    );
    register(&gantry, "late");
    assert_eq!(
        called(&gantry, &gantry.agent, "late:echo", json!({"text": "x"})),
        (403, "grant.unbound".into())
    );
    let seen = tools(&gantry, &gantry.agent);
    assert!(
        !seen.iter().any(|name| name.starts_with("late")),
        "{seen:?}"
    );
    // Whoever looks is told, with the command that grants it.
    let listed = gantry.cli(&["ls"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("grant add late:*"), "{listed}");
    assert!(gantry.cli(&["grant", "add", "late:*"]).status.success());
    assert_eq!(
        called(&gantry, &gantry.agent, "late:echo", json!({"text": "x"})).0,
        200
    );
    // The project may choose otherwise.
    let all = json!({"default_grant": "all_agents"});
    assert_eq!(
        gantry.rest("PATCH", "/api/v1/settings", Some(&all)).status,
        200
    );
    register(&gantry, "later");
    assert_eq!(
        called(&gantry, &gantry.agent, "later:echo", json!({"text": "x"})).0,
        200
    );
    let named = json!({"default_grant": ["nobody", "default"]});
    assert_eq!(
        gantry
            .rest("PATCH", "/api/v1/settings", Some(&named))
            .status,
        200
    );
    register(&gantry, "last");
    let grants = gantry
        .rest("GET", "/api/v1/grants?agent=default", None)
        .json();
    let texts: Vec<&Value> = grants["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["text"])
        .collect();
    assert!(texts.contains(&&json!("last:*")), "{grants:#}");
}

// row 3.2
#[test]
fn an_agent_without_grants_may_use_only_what_all_agents_are_granted() {
    let gantry = gateway();
    let sees = |key: &str, server: &str| {
        let seen = tools(&gantry, key);
        let prefix = format!("{server}__");
        let is_own = |name: &String| name.starts_with(&prefix);
        assert!(seen.iter().all(is_own), "{seen:?}");
        let tool = format!("{server}:echo");
        let called = called(&gantry, key, &tool, json!({"text": "x"}));
        assert_eq!(called.0 == 200, !seen.is_empty(), "{called:?}");
        !seen.is_empty()
    };
    let (key, _) = agent(&gantry, "none", &[]);
    assert!(!sees(&key, "a"));
    // Grants that are taken from it are gone, all of them.
    for (grants, may) in [(json!(["a:*"]), true), (json!([]), false)] {
        let body = json!({"grant": grants});
        let set = gantry.rest("PATCH", "/api/v1/agents/none", Some(&body));
        assert_eq!(set.status, 200, "{}", set.text());
        assert_eq!(sees(&key, "a"), may, "{body}");
    }
    // What is granted to others by name is not its own.
    let set = |to: Value| {
        let body = json!({"default_grant": to});
        let set = gantry.rest("PATCH", "/api/v1/settings", Some(&body));
        assert_eq!(set.status, 200, "{}", set.text());
    };
    set(json!(["default"]));
    register(&gantry, "named");
    assert!(!sees(&key, "named"));
    // What the project grants to all agents is, also to one that is made later.
    set(json!("all_agents"));
    register(&gantry, "late");
    let (later, _) = agent(&gantry, "later", &[]);
    assert!(sees(&key, "late") && sees(&later, "late"));
    let shown = gantry.rest("GET", "/api/v1/agents/none", None).json();
    assert_eq!(shown["grants"], json!([]), "its own grants");
    // Only a deny takes that from one agent.
    let deny = json!({"agent": "none", "effect": "deny", "server": "late"});
    add(&gantry, &deny);
    assert!(!sees(&key, "late") && sees(&later, "late"));
}

// fault L5
#[test]
fn annotations_count_only_for_servers_whose_annotations_are_trusted() {
    let gantry = gateway();
    let (key, _) = agent(&gantry, "reader", &["*:read_only:*"]);
    assert!(tools(&gantry, &key).is_empty());
    assert_eq!(
        called(&gantry, &key, "a:echo", json!({"text": "x"})).1,
        "grant.unbound"
    );
    let trusted = json!({"trust_annotations": ["a"]});
    assert_eq!(
        gantry
            .rest("PATCH", "/api/v1/settings", Some(&trusted))
            .status,
        200
    );
    // What does not say that it only reads is not read-only, trusted or not.
    assert!(
        tools(&gantry, &key)
            .iter()
            .all(|name| name.starts_with("a__"))
    );
    assert_eq!(
        called(&gantry, &key, "b:echo", json!({"text": "x"})).1,
        "grant.unbound"
    );
}
