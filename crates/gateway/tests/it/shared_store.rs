//! Two gateways with data folders of their own on one store: each keeps to its own calls, a change on
//! one is seen on the other, and a registered server runs on one of them.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::thread;
use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::faults_client::Posted;
use crate::harness::{Gantry, LONG};

/// Within this time a gateway knows what another has changed.
const SEEN: Duration = Duration::from_secs(2);
/// Within this time a gateway takes over the servers of one that died.
const TAKEN_OVER: Duration = Duration::from_secs(10);

/// What gateways share.
enum Shared {
    File(TempDir),
    Server(PgDatabase),
}

impl Shared {
    fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    fn server() -> Self {
        Self::Server(PgDatabase::new())
    }

    /// Returns what `--store` takes.
    fn name(&self) -> String {
        match self {
            Self::File(folder) => {
                let file = folder.path().join("shared/gantry.db");
                file.to_str().unwrap().to_owned()
            }
            Self::Server(database) => database.url(),
        }
    }
}

/// Starts the first gateway on the store.
fn first(store: &str) -> Gantry {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("first"))
        .flags(&["--store", store])
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

/// Starts another gateway on the store; its administrator brings the keys of the first.
fn second(store: &str, first: &Gantry) -> Gantry {
    let home = tempfile::tempdir().unwrap();
    let keys = home.path().join("data/keys");
    let mut folder = fs::DirBuilder::new();
    folder.recursive(true).mode(0o700).create(&keys).unwrap();
    for name in ["admin.key", "agent.key"] {
        fs::copy(first.data().join("keys").join(name), keys.join(name)).unwrap();
    }
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("second"))
        .variable("GANTRY_STORE", store)
        .start_in(home);
    gantry.wait_state("a", "ready", LONG);
    gantry
}

fn slow(key: &str, nonce: &str, ms: u64) -> Posted {
    let arguments = json!({"ms": ms, "nonce": nonce});
    let call = json!({"name": "a__slow", "arguments": arguments});
    Posted::stateless(key, "tools/call", call)
}

fn rows_of(gantry: &Gantry, query: &str, nonce: &str) -> Vec<Value> {
    let mut rows = gantry.audit_rows(query);
    // Of a nonce that another begins with, too, only its own.
    let whole = format!("\\\"{nonce}\\\"");
    rows.retain(|row| row["input"].to_string().contains(&whole));
    rows
}

fn row_of(gantry: &Gantry, nonce: &str) -> Value {
    let mut rows = rows_of(gantry, "tool=slow", nonce);
    assert!(rows.len() <= 1, "one row per call: {rows:#?}");
    rows.pop().unwrap_or_default()
}

// rows 0.9, 3.5
#[test]
fn gateways_on_one_store_leave_each_others_calls_alone() {
    leave_each_others_calls_alone(&Shared::file());
}

// rows 0.9, 3.2
#[test]
fn who_decides_at_another_gateway_is_told_where_the_call_is_held() {
    decided_where_it_is_held(&Shared::file());
}

// rows 0.9, 3.2
#[test]
fn who_decides_at_another_gateway_of_postgresql_is_told_where_the_call_is_held() {
    decided_where_it_is_held(&Shared::server());
}

fn decided_where_it_is_held(shared: &Shared) {
    let store = shared.name();
    let one = first(&store);
    let two = second(&store, &one);
    let key = one.agent_with("asks", &["ask a:echo"]);
    let call = json!({"name": "a__echo", "arguments": {"text": "x"}});
    let mut held = Posted::stateless(&key, "tools/call", call).open(&one);
    let mut id = Value::Null;
    let waits = eventually(LONG, || {
        // A list writes the calls under way at its own gateway into the store.
        let known = one.audit_rows("agent=asks&status=running");
        id = known
            .first()
            .map(|row| row["id"].clone())
            .unwrap_or_default();
        id.is_string()
            && one.rest("GET", "/api/v1/approvals", None).json()["items"][0]["call"] == id
    });
    assert!(waits.is_some(), "{id}");
    let place = format!("/api/v1/approvals/{}", id.as_str().unwrap());
    let own = fs::read_to_string(one.data().join("gateway_id")).unwrap();
    for (method, path) in [
        ("GET", place.clone()),
        ("POST", format!("{place}/allow")),
        ("POST", format!("{place}/refuse")),
    ] {
        let told = two.rest(method, &path, None);
        let code = told.json()["code"].clone();
        assert_eq!(
            (told.status, code),
            (409, json!("approval.elsewhere")),
            "{path}"
        );
        assert!(told.text().contains(own.trim()), "{}", told.text());
    }
    // For others it is as unknown as ever.
    let made = two.rest("POST", "/api/v1/projects", Some(&json!({"name": "other"})));
    assert_eq!(made.status, 201, "{}", made.text());
    let elsewhere = format!("/api/v1/projects/other/approvals/{}", id.as_str().unwrap());
    assert_eq!(
        two.rest("GET", &elsewhere, None).json()["code"],
        "approval.unknown"
    );
    assert_eq!(
        one.rest("POST", &format!("{place}/allow"), None).status,
        200
    );
    assert_eq!(
        held.answer().unwrap().json()["result"]["content"][0]["text"],
        "x"
    );
}

// rows 0.9, 3.5
#[test]
fn gateways_on_postgresql_leave_each_others_calls_alone() {
    leave_each_others_calls_alone(&Shared::server());
}

fn leave_each_others_calls_alone(shared: &Shared) {
    let store = shared.name();
    let mut one = first(&store);
    let mut two = second(&store, &one);
    assert!(!one.data().join("gantry.db").exists());
    for _ in 0..20 {
        for gantry in [&one, &two] {
            let answer = gantry.call("a__echo", json!({"text": "x"}));
            assert_eq!(answer["result"]["content"][0]["text"], "x");
        }
    }
    let of_one = slow(&one.agent, "of-one", 60_000);
    let _of_one = of_one.open(&one);
    let _of_two = slow(&two.agent, "of-two", 60_000).open(&two);
    let runs = |gantry: &Gantry, nonce: &str| row_of(gantry, nonce)["status"] == "running";
    assert!(eventually(LONG, || runs(&one, "of-one")).is_some());
    assert!(eventually(LONG, || runs(&two, "of-two")).is_some());

    two.kill();
    let mut two = two.again();
    assert_eq!(row_of(&two, "of-two")["status"], "unknown");
    assert_eq!(row_of(&one, "of-one")["status"], "running");
    let _again = slow(&two.agent, "again-two", 60_000).open(&two);
    assert!(eventually(LONG, || runs(&two, "again-two")).is_some());
    one.kill();
    let one = one.again();
    assert_eq!(row_of(&one, "of-one")["status"], "unknown");
    assert_eq!(row_of(&one, "again-two")["status"], "running");
    assert_eq!(two.stop(), Some(0));
    let two = two.again();
    assert_eq!(row_of(&one, "of-two")["status"], "unknown");

    // One row per call, whoever is asked, and no journal is missed.
    for gantry in [&one, &two] {
        assert_eq!(gantry.audit_rows("tool=echo&status=ok").len(), 40);
        assert_eq!(gantry.audit_rows("tool=slow").len(), 3);
        let health = gantry.rest("GET", "/api/v1/health", None).json();
        assert_eq!(health["status"], "ok", "{health:#}");
    }
}

// fault U6
#[test]
fn a_key_revoked_on_one_gateway_ends_what_it_runs_on_the_other() {
    revoked_on_one_ends_on_the_other(&Shared::file());
}

// fault U6
#[test]
fn a_key_revoked_on_one_gateway_of_postgresql_ends_what_it_runs_on_the_other() {
    revoked_on_one_ends_on_the_other(&Shared::server());
}

fn revoked_on_one_ends_on_the_other(shared: &Shared) {
    let store = shared.name();
    let one = first(&store);
    let body = json!({"kind": "agent", "agent": "default"});
    let made = one.rest("POST", "/api/v1/keys", Some(&body)).json();
    let key = made["key"].as_str().unwrap().to_owned();
    let two = second(&store, &one);
    let mut connection = slow(&key, "ends", 60_000).open(&two);
    let waiting = thread::spawn(move || connection.answer().unwrap());
    assert!(eventually(LONG, || row_of(&two, "ends")["status"] == "running").is_some());
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(one.rest("DELETE", &path, None).status, 204);
    let watch = Stopwatch::start();
    let answer = waiting.join().unwrap();
    let took = watch.elapsed();
    assert!(took <= SEEN, "{took:?}");
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert_eq!(two.rest_as(&key, "GET", "/api/v1/tools", None).status, 401);
    let ended = || row_of(&two, "ends")["code"] == "auth.key_revoked";
    assert!(eventually(LONG, ended).is_some());
    limited_on_one_is_limited_on_the_other(&one, &two);
}

// fault T7: a limit that one gateway sets for the project is counted on the other, too
fn limited_on_one_is_limited_on_the_other(one: &Gantry, two: &Gantry) {
    let limit = json!({"limits.calls_per_minute": 1});
    let set = one.rest("PATCH", "/api/v1/settings", Some(&limit));
    assert_eq!(set.status, 200, "{}", set.text());
    let call = json!({"name": "a__echo", "arguments": {"text": "x"}});
    let limited = || {
        let answer = two.rest_as(&two.agent, "POST", "/api/v1/tools/call", Some(&call));
        answer.status == 429 && answer.json()["code"] == "limit.rate"
    };
    assert!(eventually(LONG, limited).is_some());
}

// fault T9: whoever writes to a project while it is deleted elsewhere does not bring it back
#[test]
fn a_deleted_project_is_not_brought_back_by_another_gateway() {
    deleted_is_not_brought_back(&Shared::file());
}

// fault T9
#[test]
fn a_deleted_project_is_not_brought_back_by_another_gateway_of_postgresql() {
    deleted_is_not_brought_back(&Shared::server());
}

fn deleted_is_not_brought_back(shared: &Shared) {
    let store = shared.name();
    let one = first(&store);
    let made = one.rest("POST", "/api/v1/projects", Some(&json!({"name": "acme"})));
    assert_eq!(made.status, 201, "{}", made.text());
    let admin = json!({"kind": "admin"});
    let made = one.rest("POST", "/api/v1/projects/acme/keys", Some(&admin));
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let two = second(&store, &one);
    let makes = |key: &str| two.rest_as(key, "POST", "/api/v1/keys", Some(&admin));
    assert!(eventually(LONG, || makes(&key).status == 201).is_some());
    thread::scope(|scope| {
        let making = scope.spawn(|| {
            // Until the other gateway has heard that the key is gone.
            let ends = eventually(LONG, || makes(&key).status == 401);
            assert!(ends.is_some());
        });
        let deleted = one.rest("DELETE", "/api/v1/projects/acme", None);
        assert_eq!(deleted.status, 204, "{}", deleted.text());
        making.join().unwrap();
    });
    for gantry in [&one, &two] {
        let listed = gantry.rest("GET", "/api/v1/projects", None).text();
        assert!(!listed.contains("acme"), "{listed}");
    }
}

// rows 0.9, 3.5
#[test]
fn a_registered_server_runs_on_one_gateway_and_is_taken_over() {
    runs_on_one_and_is_taken_over(&Shared::file());
}

// rows 0.9, 3.5
#[test]
fn a_registered_server_of_postgresql_runs_on_one_gateway_and_is_taken_over() {
    runs_on_one_and_is_taken_over(&Shared::server());
}

fn runs_on_one_and_is_taken_over(shared: &Shared) {
    let store = shared.name();
    let mut one = first(&store);
    let two = second(&store, &one);
    let far_end = tempfile::tempdir().unwrap();
    let executed = far_end.path().join("executed");
    let argv = Evilpeer::new().name("both").journal(&executed).argv();
    let body = json!({"name": "both", "command": argv[0], "args": argv[1..], "profile": "local",
        "start": "eager"});
    let made = one.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    one.wait_state("both", "ready", LONG);
    let elsewhere = |gantry: &Gantry| {
        let shown = gantry.wait_state("both", "disabled", LONG);
        assert!(
            shown.to_string().contains("runs on the gateway gw_"),
            "{shown:#}"
        );
        shown
    };
    let shown = elsewhere(&two);
    assert_eq!(shown["id"], made.json()["id"]);
    let refused = two.call("both__echo", json!({"text": "x"}));
    assert!(refused["error"].is_object(), "{refused:#}");
    let restart = two.rest("POST", "/api/v1/mcp/servers/both/restart", None);
    assert_eq!(restart.status, 409, "{}", restart.text());

    // What is changed on one gateway holds on the one that runs it.
    let patch = json!({"description": "changed"});
    let patched = two.rest("PATCH", "/api/v1/mcp/servers/both", Some(&patch));
    assert_eq!(patched.status, 200, "{}", patched.text());
    one.wait_status("both", LONG, |shown| {
        shown["description"] == "changed" && shown["state"] == "ready"
    });
    elsewhere(&two);

    // Released.
    assert_eq!(one.stop(), Some(0));
    two.wait_state("both", "ready", SEEN + Duration::from_secs(3));
    let mut one = one.again();
    elsewhere(&one);

    // Ended without a word.
    let mut two = two;
    let pid = two.status("both")["pid"].as_u64().unwrap();
    two.kill();
    one.wait_state("both", "ready", TAKEN_OVER);
    assert!(!procs::alive(u32::try_from(pid).unwrap()));
    let two = two.again();
    elsewhere(&two);

    // Stopped for longer than its lease, and continued: it gives the server up.
    let call = json!({"name": "both__slow", "arguments": {"ms": 60_000, "nonce": "under-way"}});
    let under_way = Posted::stateless(&one.agent, "tools/call", call);
    let _under_way = under_way.open(&one);
    let runs = || row_of(&one, "under-way")["status"] == "running";
    assert!(eventually(LONG, runs).is_some());
    one.signal(Signal::STOP);
    two.wait_state("both", "ready", TAKEN_OVER);
    one.signal(Signal::CONT);
    let mut nonces = vec!["under-way".to_owned()];
    if let Shared::Server(_) = shared {
        // Its lease has ended on its own clock, too: it sends nothing, not even before it has looked.
        for number in 0..10 {
            let nonce = format!("late-{number}");
            let late = one.call("both__echo", json!({"text": "late", "nonce": nonce}));
            assert!(late["error"].is_object(), "{late:#}");
            assert_eq!(Journal::read(&executed).unwrap().executed(&nonce), 0);
            nonces.push(nonce);
        }
    }
    elsewhere(&one);
    for number in 0..10 {
        let nonce = format!("other-{number}");
        let answer = two.call("both__echo", json!({"text": "x", "nonce": nonce}));
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer:#}");
        nonces.push(nonce);
    }
    // Each call is in one row, whoever is asked, and none of them was made twice.
    for nonce in &nonces {
        let is_one = || {
            // A call that came while the server was given up is on record without its server.
            let rows = [&one, &two].map(|gantry| rows_of(gantry, "", nonce));
            let ended = |rows: &Vec<Value>| rows.len() == 1 && rows[0]["status"] != "running";
            rows.iter().all(ended)
        };
        assert!(eventually(LONG, is_one).is_some(), "{nonce}");
        assert!(Journal::read(&executed).unwrap().executed(nonce) <= 1);
    }
    let removed = one.rest("DELETE", "/api/v1/mcp/servers/both", None);
    assert_eq!(removed.status, 204, "{}", removed.text());
    let gone = || two.rest("GET", "/api/v1/mcp/servers/both", None).status == 404;
    assert!(eventually(LONG, gone).is_some());
    one.stop();
}

#[test]
fn a_store_that_cannot_be_used_is_told_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let started = |flag: &str| {
        let builder = Gantry::builder().flags(&["--store", flag]);
        let status = builder.command(home.path()).status().unwrap();
        let log = fs::read_to_string(home.path().join("stderr")).unwrap();
        (status.code(), log)
    };
    let port = PgDatabase::new().port();
    let absent = format!("postgres://gantry:s3cret@127.0.0.1:{port}/absent");
    let (code, log) = started(&absent);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("/absent` refuses access"), "{log}");
    assert!(log.contains("check user, password"), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
    let (code, log) = started("mysql://db");
    assert_eq!(code, Some(2), "{log}");
    assert!(
        log.contains("a file or a `postgres://` URL, not `mysql://`"),
        "{log}"
    );
}
