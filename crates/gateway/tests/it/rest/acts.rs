//! Administrative acts on record: who did what, from where, what was before and after, what became of
//! it; refused attempts, what files did, and what a kill cut off.

use std::time::Duration;

use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, wait};
use serde_json::{Value, json};

use super::{items, problem, walk};
use crate::config::{Folder, holding, peer, servers};
use crate::harness::{Gantry, LONG, entry, on_postgresql};

const SECRET: &str = "hunter2-correct-horse";
const OTHER: &str = "hunter3-battery-staple";

fn acts(gantry: &Gantry, query: &str) -> Vec<Value> {
    items(&gantry.rest("GET", &format!("/api/v1/acts?limit=1000&{query}"), None))
}

/// Returns the one act of a name on a target.
fn act(gantry: &Gantry, name: &str, target: &str) -> Value {
    let found = acts(gantry, &format!("act={name}&target={target}"));
    assert_eq!(found.len(), 1, "{name} on {target}: {found:#?}");
    found.into_iter().next().unwrap()
}

fn does(gantry: &Gantry, method: &str, path: &str, body: Option<Value>, status: u16) -> Value {
    let answer = gantry.rest(method, path, body.as_ref());
    assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    match status {
        204 => Value::Null,
        _ => answer.json(),
    }
}

/// Returns a body that registers a peer with a secret in its environment.
fn registered(name: &str, secret: &str) -> Value {
    let mut body = entry(&Evilpeer::new());
    body["name"] = name.into();
    body["profile"] = "local".into();
    body["start"] = "eager".into();
    body["env"] = json!({"API_TOKEN": secret, "PLAIN": format!("{secret}-plain")});
    body
}

#[test]
fn every_administrative_act_is_on_record_with_what_changed() {
    // Acts are counted here: none but those of this test.
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .own_grants()
        .start();
    gantry.wait_state("a", "ready", LONG);
    let operator = items(&gantry.rest("GET", "/api/v1/keys?agent=operator", None));
    let operator = operator[0]["id"].as_str().unwrap().to_owned();
    let by_operator = |act: &Value, outcome: &str| {
        assert_eq!(act["key"], operator, "{act:#}");
        assert_eq!(act["actor"], "operator");
        assert_eq!(
            (&act["address"], &act["via"]),
            (&json!("127.0.0.1"), &json!("rest"))
        );
        assert_eq!(act["outcome"], outcome, "{act:#}");
        assert!(act["ended_ms"].as_u64() >= act["at_ms"].as_u64(), "{act:#}");
    };
    // Agents: grants and filters, before and after.
    let agents = "/api/v1/agents";
    does(
        &gantry,
        "POST",
        agents,
        Some(json!({"name": "r", "grant": ["a:echo"]})),
        201,
    );
    let change = json!({"grant": "all", "tools": {"exclude": ["a:slow"]}});
    does(&gantry, "PATCH", "/api/v1/agents/r", Some(change), 200);
    let key = does(
        &gantry,
        "POST",
        "/api/v1/keys",
        Some(json!({"kind": "agent", "agent": "r", "label": "l"})),
        201,
    );
    let (id, text) = (key["id"].as_str().unwrap(), key["key"].as_str().unwrap());
    does(&gantry, "DELETE", &format!("/api/v1/keys/{id}"), None, 204);
    does(&gantry, "DELETE", "/api/v1/agents/r", None, 204);
    let created = act(&gantry, "agent.create", "r");
    by_operator(&created, "done");
    assert_eq!(
        (&created["before"], &created["after"]["grants"]),
        (&Value::Null, &json!(["a:echo"]))
    );
    let changed = act(&gantry, "agent.change", "r");
    by_operator(&changed, "done");
    assert_eq!(changed["before"]["grants"], json!(["a:echo"]));
    assert_eq!(changed["after"]["grants"], json!(["*"]));
    assert_eq!(changed["after"]["tools"]["exclude"], json!(["a:slow"]));
    let made = act(&gantry, "key.create", id);
    by_operator(&made, "done");
    assert_eq!(
        (&made["after"]["agent"], &made["after"]["kind"]),
        (&json!("r"), &json!("agent"))
    );
    let revoked = act(&gantry, "key.revoke", id);
    by_operator(&revoked, "done");
    assert_eq!(revoked["before"]["label"], "l");
    assert_eq!(
        act(&gantry, "agent.remove", "r")["before"]["grants"],
        json!(["*"])
    );
    // Servers: what is secret is a fingerprint, of which a change shows.
    let list = "/api/v1/mcp/servers";
    does(
        &gantry,
        "POST",
        "/api/v1/mcp/servers/preview",
        Some(registered("p", SECRET)),
        200,
    );
    does(
        &gantry,
        "POST",
        "/api/v1/mcp/servers/test",
        Some(registered("t", SECRET)),
        200,
    );
    does(&gantry, "POST", list, Some(registered("b", SECRET)), 201);
    does(&gantry, "POST", "/api/v1/mcp/servers/b/restart", None, 200);
    does(
        &gantry,
        "PATCH",
        "/api/v1/mcp/servers/b",
        Some(json!({"env": {"API_TOKEN": OTHER}})),
        200,
    );
    does(
        &gantry,
        "PUT",
        "/api/v1/mcp/servers/b",
        Some(registered("b", SECRET)),
        200,
    );
    does(&gantry, "DELETE", "/api/v1/mcp/servers/b", None, 204);
    by_operator(&act(&gantry, "server.preview", "p"), "done");
    let tested = act(&gantry, "server.test", "t");
    assert_eq!(tested["after"]["state"], "ready", "{tested:#}");
    let registered = act(&gantry, "server.register", "b");
    by_operator(&registered, "done");
    let env = &registered["after"]["launch"]["process"]["env"];
    let print = env["API_TOKEN"].as_str().unwrap();
    assert!(print.starts_with("hmac-sha256:"), "{registered:#}");
    assert_ne!(env["API_TOKEN"], env["PLAIN"]);
    by_operator(&act(&gantry, "server.restart", "b"), "done");
    let replaced = acts(&gantry, "act=server.replace&target=b");
    assert_eq!(replaced.len(), 2);
    for (act, way) in [
        (&replaced[1], ["before", "after"]),
        (&replaced[0], ["after", "before"]),
    ] {
        let of = |side: &str| act[side]["launch"]["process"]["env"]["API_TOKEN"].clone();
        assert_eq!(of(way[0]), print, "{act:#}");
        assert_ne!(of(way[1]), print, "{act:#}");
        assert!(
            act["before"]["calls"].is_null(),
            "only what differs: {act:#}"
        );
    }
    let removed = act(&gantry, "server.remove", "b");
    assert_eq!(
        removed["before"]["launch"]["process"]["env"]["API_TOKEN"],
        print
    );
    // What the gateway and its files did.
    assert_eq!(act(&gantry, "server.register", "a")["via"], "file");
    let first = acts(&gantry, "act=key.create&actor=gateway");
    assert_eq!(
        first[0]["after"].as_object().unwrap().len(),
        2,
        "{first:#?}"
    );
    let started = acts(&gantry, "act=gateway.start");
    assert_eq!((started.len(), &started[0]["outcome"]), (1, &json!("done")));
    let all = gantry.rest("GET", "/api/v1/acts?limit=1000", None).text();
    for secret in [
        SECRET,
        OTHER,
        text,
        gantry.admin.as_str(),
        gantry.agent.as_str(),
    ] {
        assert!(!all.contains(secret), "a secret is on record");
    }
    // Pages like every other list.
    let whole = items(&gantry.rest("GET", "/api/v1/acts?limit=1000", None));
    for limit in [1, 3, 1000] {
        let ids = |acts: Vec<Value>| acts.iter().map(|act| act["id"].clone()).collect::<Vec<_>>();
        assert_eq!(
            ids(walk(&gantry, "/api/v1/acts", limit)),
            ids(whole.clone())
        );
    }
    for bad in [
        "limit=0",
        "cursor=x",
        "outcome=well",
        "since=soon",
        "wrong=1",
    ] {
        let refused = gantry.rest("GET", &format!("/api/v1/acts?{bad}"), None);
        assert_eq!(problem(&gantry, &refused, 400), "request.query", "{bad}");
    }
    for (query, count) in [
        ("act=agent.*&outcome=done", 3),
        ("target=r&since=2020-01-01T00:00:00Z", 3),
        ("target=r&until_ms=1000", 0),
        ("address=127.0.0.1&act=server.replace", 2),
        ("via=file", 1),
    ] {
        assert_eq!(acts(&gantry, query).len(), count, "{query}");
    }
}

#[test]
fn every_administrative_act_is_on_record_with_what_changed_on_postgresql() {
    on_postgresql(every_administrative_act_is_on_record_with_what_changed);
}

#[test]
fn a_hold_that_is_released_is_on_record_with_what_it_held() {
    let gantry = Gantry::start(&["a"]);
    let body = json!({"agent": "default", "reason": "a lawsuit"});
    let hold = does(&gantry, "POST", "/api/v1/audit/holds", Some(body), 201);
    let id = hold["id"].as_str().unwrap();
    let path = format!("/api/v1/audit/holds/{id}");
    does(&gantry, "DELETE", &path, None, 204);
    let (placed, released) = (
        act(&gantry, "audit.hold", id),
        act(&gantry, "audit.release", id),
    );
    assert_eq!(placed["after"]["reason"], "a lawsuit");
    assert_eq!(
        (&released["before"], &released["after"]),
        (&placed["after"], &Value::Null)
    );
}

#[test]
fn refused_attempts_are_on_record_and_a_flood_of_them_is_a_count() {
    let gantry = Gantry::start(&["a"]);
    let agent_key = items(&gantry.rest("GET", "/api/v1/keys?agent=default", None));
    let agent_key = agent_key[0]["id"].as_str().unwrap().to_owned();
    // An agent's key on administrators' routes.
    let mut connection = gantry.connect();
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [("Authorization", bearer.as_str())];
    for number in 0..300 {
        let path = format!("/api/v1/mcp/servers/none-{number}");
        let answer = connection.request("DELETE", &path, &headers, b"").unwrap();
        assert_eq!(answer.status, 403);
    }
    for path in ["/api/v1/keys", "/api/v1/acts", "/api/v1/health"] {
        assert_eq!(gantry.rest_as(&gantry.agent, "GET", path, None).status, 403);
    }
    let refused = acts(&gantry, &format!("outcome=refused&key_id={agent_key}"));
    assert_eq!(refused.len(), 2, "{refused:#?}");
    let (reads, removals) = (&refused[0], &refused[1]);
    assert_eq!(
        (&removals["act"], &removals["repeats"]),
        (&json!("server.remove"), &json!(300))
    );
    assert_eq!(
        (&removals["target"], &removals["code"]),
        (&json!("none-0"), &json!("auth.agent_key"))
    );
    assert_eq!(
        (&removals["actor"], &removals["address"]),
        (&json!("default"), &json!("127.0.0.1"))
    );
    assert_eq!(
        (&reads["act"], &reads["repeats"]),
        (&json!("admin.read"), &json!(3))
    );
    assert_eq!(reads["target"], "/api/v1/keys");
    // What an administrator asked for and did not get, be it in the engine or before it.
    let operator = items(&gantry.rest("GET", "/api/v1/keys?agent=operator", None));
    let operator = operator[0]["id"].as_str().unwrap().to_owned();
    does(
        &gantry,
        "DELETE",
        &format!("/api/v1/keys/{operator}"),
        None,
        409,
    );
    does(
        &gantry,
        "POST",
        "/api/v1/mcp/servers",
        Some(json!({"name": "x", "command": "y", "image": "z"})),
        422,
    );
    does(
        &gantry,
        "PUT",
        "/api/v1/mcp/servers/nobody",
        Some(json!({})),
        404,
    );
    does(
        &gantry,
        "POST",
        "/api/v1/mcp/servers/nobody/restart",
        None,
        404,
    );
    does(
        &gantry,
        "PATCH",
        "/api/v1/agents/nobody",
        Some(json!({"grant": "all"})),
        404,
    );
    let shell = json!({"name": "s", "command": "sh", "args": ["-c", "true"]});
    let code = does(&gantry, "POST", "/api/v1/mcp/servers", Some(shell), 422)["code"].clone();
    let session = gantry.rest(
        "POST",
        "/mcp",
        Some(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})),
    );
    assert_eq!(session.status, 403);
    for (name, target, wanted) in [
        ("key.revoke", operator.as_str(), "key.last_admin"),
        ("server.register", "/api/v1/mcp/servers", "request.body"),
        ("server.register", "s", code.as_str().unwrap()),
        ("server.replace", "nobody", "server.unknown"),
        ("server.restart", "nobody", "server.unknown"),
        ("agent.change", "nobody", "agent.unknown"),
        ("mcp.request", "/mcp", "auth.admin_key"),
    ] {
        let mut found = Vec::new();
        // What is refused on `/mcp` is written a moment after its answer.
        eventually(LONG, || {
            found = acts(
                &gantry,
                &format!("act={name}&target={target}&outcome=refused"),
            );
            !found.is_empty()
        });
        assert_eq!(found.len(), 1, "{name}: {found:#?}");
        assert_eq!(
            (&found[0]["code"], &found[0]["key"]),
            (&json!(wanted), &json!(operator))
        );
    }
    // What was asked to be is told even of what was refused.
    let grants = acts(&gantry, "act=agent.change&target=nobody");
    assert_eq!(grants[0]["after"]["grants"], json!(["*"]));
}

#[test]
fn an_act_that_a_kill_cuts_off_is_unfinished() {
    let mut gantry = Gantry::start(&["a"]);
    let mut body = entry(&Evilpeer::new().fault("init-hang"));
    body["name"] = "hangs".into();
    body["profile"] = "local".into();
    let bearer = format!("Bearer {}", gantry.admin);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    let mut connection = gantry.connect();
    let body = body.to_string();
    connection
        .write(
            "POST",
            "/api/v1/mcp/servers/test",
            &headers,
            body.as_bytes(),
        )
        .unwrap();
    let begun = wait::eventually(LONG, || acts(&gantry, "act=server.test").len() == 1);
    assert!(begun.is_some());
    gantry.kill();
    let mut gantry = gantry.again();
    let cut = act(&gantry, "server.test", "hangs");
    assert_eq!(
        (&cut["outcome"], &cut["ended_ms"]),
        (&json!("unfinished"), &Value::Null)
    );
    assert_eq!(cut["actor"], "operator");
    // The next starts and stops are there, and a server that its file left as it was is no news.
    assert_eq!(gantry.stop(), Some(0));
    let gantry = gantry.again();
    assert_eq!(acts(&gantry, "act=gateway.start").len(), 3);
    let stops = acts(&gantry, "act=gateway.stop");
    assert_eq!((stops.len(), &stops[0]["outcome"]), (1, &json!("done")));
    assert_eq!(acts(&gantry, "via=file").len(), 1);
}

#[test]
fn an_act_that_a_kill_cuts_off_is_unfinished_on_postgresql() {
    on_postgresql(an_act_that_a_kill_cuts_off_is_unfinished);
}

// fault G5: what a person approves, and what files change then, is on record too.
#[test]
fn approvals_and_changes_of_files_are_on_record() {
    let mut folder = Folder::new();
    let acts = |folder: &Folder, query: &str| {
        let (_, page) = folder.rest("GET", &format!("/api/v1/acts?limit=100&{query}"), None);
        page["items"].as_array().unwrap().clone()
    };
    folder.write(".mcp.json", &servers(&[("one", peer())]));
    folder.up(&[]);
    folder.wait("one", "needs_approval");
    assert_eq!(acts(&folder, "act=file.approve").len(), 0);
    folder.told(&["approve", "--yes"]);
    folder.wait("one", "ready");
    let approved = acts(&folder, "act=file.approve");
    assert_eq!(approved.len(), 1, "{approved:#?}");
    assert!(
        approved[0]["target"]
            .as_str()
            .unwrap()
            .ends_with("/.mcp.json")
    );
    assert_eq!(approved[0]["after"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(approved[0]["via"], "file");
    let replaced = acts(&folder, "act=server.replace&target=one");
    assert_eq!(replaced.len(), 1, "{replaced:#?}");
    assert!(
        replaced[0]["before"]["needs_approval"].is_string(),
        "{replaced:#?}"
    );
    assert!(replaced[0]["after"]["needs_approval"].is_null());
    assert!(
        approved[0]["id"].as_u64() < replaced[0]["id"].as_u64(),
        "before what follows from it"
    );
    // Another content is another approval; a server that is gone from its file was removed by it.
    let mut two = peer();
    two["env"] = json!({"API_TOKEN": SECRET});
    folder.write(".mcp.json", &servers(&[("two", two)]));
    folder.told(&["approve", "--yes"]);
    folder.wait("two", "ready");
    assert_eq!(acts(&folder, "act=file.approve").len(), 2);
    let removed = acts(&folder, "act=server.remove&target=one");
    assert_eq!((removed.len(), &removed[0]["via"]), (1, &json!("file")));
    let (_, all) = folder.rest("GET", "/api/v1/acts?limit=100", None);
    assert!(!all.to_string().contains(SECRET));
}

// A secret that was replaced or removed over REST is in no file of the data folder a second later.
#[test]
fn a_secret_that_was_removed_leaves_no_bytes_in_the_data_folder() {
    let mut gantry = Gantry::start(&["a"]);
    let path = "/api/v1/mcp/servers/b";
    let is_gone = |gantry: &Gantry, secret: &str| {
        let mut left = Vec::new();
        let gone = eventually(Duration::from_secs(2), || {
            left = holding(&gantry.data(), secret);
            left.is_empty()
        });
        assert!(gone.is_some(), "{secret} is in {left:?}");
    };
    does(
        &gantry,
        "POST",
        "/api/v1/mcp/servers",
        Some(registered("b", SECRET)),
        201,
    );
    does(
        &gantry,
        "PATCH",
        path,
        Some(json!({"env": {"API_TOKEN": OTHER, "PLAIN": OTHER}})),
        200,
    );
    is_gone(&gantry, SECRET);
    gantry.wait_state("b", "ready", LONG);
    gantry.call("b__echo", json!({"text": OTHER}));
    does(&gantry, "PUT", path, Some(registered("b", SECRET)), 200);
    is_gone(&gantry, OTHER);
    does(&gantry, "DELETE", path, None, 204);
    is_gone(&gantry, SECRET);
    let remote = json!({"name": "far", "url": format!("http://127.0.0.1:9/mcp?key={OTHER}"),
        "headers": {"Authorization": format!("Bearer {SECRET}")}, "allow_private": true});
    does(&gantry, "POST", "/api/v1/mcp/servers", Some(remote), 201);
    does(&gantry, "DELETE", "/api/v1/mcp/servers/far", None, 204);
    for secret in [SECRET, OTHER] {
        is_gone(&gantry, secret);
    }
    assert_eq!(gantry.stop(), Some(0));
    for secret in [SECRET, OTHER] {
        assert_eq!(holding(&gantry.data(), secret), [""; 0]);
    }
}
