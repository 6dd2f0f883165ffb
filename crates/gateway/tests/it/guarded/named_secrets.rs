//! Secrets of a project: given to the servers that they are bound to, to nobody else, and never shown.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Scripted;
use crate::harness::{Answer, Gantry, LONG, PROGRAM, on_postgresql};

const SERVERS: &str = "/api/v1/mcp/servers";
const VALUE: &str = "Zq8-\"k'4\\w${OTHER}\n$(x)7Lp";
const NEXT: &str = "second-Rk39vX-value";

fn offering() -> Scripted {
    let server = Scripted::new();
    let tool = json!({"name": "tell", "inputSchema": {"type": "object"}});
    server.answers("tools/list", &json!({"tools": [tool]}));
    server
}

fn does(gantry: &Gantry, method: &str, path: &str, body: &Value, status: u16) -> Value {
    let answer = gantry.rest(method, path, Some(body));
    assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    answer.json()
}

fn secret(name: &str) -> String {
    format!("/api/v1/secrets/{name}")
}

fn reason(gantry: &Gantry, server: &str) -> String {
    let status = gantry.wait_state(server, "misconfigured", LONG);
    status["reason"].as_str().unwrap_or_default().to_owned()
}

/// Runs a verb with something on its stdin.
fn typed(gantry: &Gantry, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .arg("--data")
        .arg(gantry.data())
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    let text = [&*output.stdout, &*output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

// rows 0.4, 1.3; faults K1, K2, K5, K7, K8
#[test]
fn a_secret_reaches_the_servers_that_it_is_bound_to_and_nobody_sees_it() {
    let (a, b, c) = (offering(), offering(), offering());
    let mut of_file = c.entry();
    of_file["env"] = json!({"TOKEN": "<${FILE_TOKEN}>"});
    let gantry = Gantry::builder().entry("c", of_file).start();
    let env = json!({"TOKEN": "${API_TOKEN}"});
    does(&gantry, "POST", SERVERS, &a.body("a", &env), 201);
    does(
        &gantry,
        "POST",
        SERVERS,
        &b.body("b", &json!({"TOKEN": "${HOME}"})),
        201,
    );
    // A missing one is named, with its server; the gateway's environment is not for registered ones.
    let why = reason(&gantry, "a");
    assert!(
        why.contains("`API_TOKEN`") && why.contains("`a`") && why.contains("`env.TOKEN`"),
        "{why}"
    );
    let why = reason(&gantry, "b");
    assert!(why.contains("`HOME`"), "{why}");
    let why = reason(&gantry, "c");
    assert!(
        why.contains("`FILE_TOKEN`") && why.contains("environment") && why.contains("/mcp.json:1:"),
        "{why}"
    );
    assert_eq!(a.token(), None, "it never ran");
    // Set, but not for this server.
    let made = does(
        &gantry,
        "PUT",
        &secret("API_TOKEN"),
        &json!({"value": VALUE, "servers": []}),
        201,
    );
    assert_eq!(
        (&made["version"], &made["bindings"]),
        (&json!(1), &json!([]))
    );
    let why = reason(&gantry, "a");
    assert!(why.contains("not bound to server `a`"), "{why}");
    let bound = does(
        &gantry,
        "PUT",
        &secret("API_TOKEN/bindings/a"),
        &json!({}),
        200,
    );
    assert_eq!(bound["restarted"], json!(["a"]));
    gantry.wait_state("a", "ready", LONG);
    assert_eq!(a.token().as_deref(), Some(VALUE), "literally, in one pass");
    let set = typed(
        &gantry,
        &["secret", "set", "FILE_TOKEN", "--server", "c"],
        &format!("{NEXT}\n"),
    );
    assert!(said(&set).contains("restarted c"), "{}", said(&set));
    gantry.wait_state("c", "ready", LONG);
    assert_eq!(c.token(), Some(format!("<{NEXT}>")));
    // Rotation restarts who uses it, and nobody else.
    let generation = |server: &str| gantry.status(server)["generation"].clone();
    let (before_a, before_c) = (generation("a"), generation("c"));
    let rotated = typed(&gantry, &["secret", "rotate", "API_TOKEN"], NEXT);
    assert!(said(&rotated).contains("version 2"), "{}", said(&rotated));
    gantry.wait_status("a", LONG, |status| {
        status["generation"] != before_a && status["state"] == "ready"
    });
    assert_eq!(a.token().as_deref(), Some(NEXT));
    assert_eq!(generation("c"), before_c, "untouched");
    let used = gantry.events("a", "secrets_used", 2).join("\n");
    assert!(
        used.contains("API_TOKEN (version 1)") && used.contains("API_TOKEN (version 2)"),
        "{used}"
    );
    // By exact name only, and without its value.
    for other in [
        "api_token",
        "API_TOKE?",
        "API_TOKEN%00",
        "API%5FTOKEN%20",
        "%EF%BC%A1PI_TOKEN",
        "*",
    ] {
        let answer = gantry.rest("GET", &secret(other), None);
        assert!(
            matches!(answer.status, 404 | 422),
            "{other}: {}",
            answer.text()
        );
    }
    // In its own project only: there is none of this name in another one.
    let acme = json!({"name": "acme"});
    does(&gantry, "POST", "/api/v1/projects", &acme, 201);
    let d = offering();
    let (theirs, env) = ("/api/v1/projects/acme", json!({"TOKEN": "${API_TOKEN}"}));
    let path = format!("{theirs}/mcp/servers");
    let made = does(&gantry, "POST", &path, &d.body("a", &env), 201);
    assert_eq!(made["state"], "misconfigured", "{made:#}");
    let why = made["reason"].as_str().unwrap();
    assert!(why.contains("the project does not have"), "{why}");
    assert_eq!(d.token(), None, "it never ran");
    let path = format!("{theirs}/secrets/API_TOKEN");
    assert_eq!(gantry.rest("GET", &path, None).status, 404);
    let one = gantry.rest("GET", &secret("API_TOKEN"), None).json();
    assert_eq!(
        (&one["version"], &one["last_used_by"], &one["redacted"]),
        (&json!(2), &json!("a"), &json!(true))
    );
    assert_eq!(one["bindings"], json!([{"server": "a", "in_force": true}]));
    let listed = said(&gantry.cli(&["secret", "ls"]));
    assert!(
        listed.contains("API_TOKEN") && listed.contains("FILE_TOKEN"),
        "{listed}"
    );
    let acts = gantry.rest("GET", "/api/v1/acts?limit=1000", None).text();
    assert!(
        acts.contains("secret.set") && acts.contains("secret.bind"),
        "{acts}"
    );
    let shown = [
        one.to_string(),
        acts,
        listed,
        gantry.rest("GET", "/api/v1/secrets", None).text(),
        gantry.status("a").to_string(),
        gantry.status("c").to_string(),
        gantry.rest("GET", "/metrics", None).text(),
    ];
    for (place, shown) in shown.iter().enumerate() {
        assert!(
            !shown.contains("Rk39vX") && !shown.contains("7Lp"),
            "{place}: {shown}"
        );
    }
    // What cannot be used is refused.
    for (name, body) in [
        ("A-B", json!({"value": "x"})),
        ("A", json!({"value": ""})),
        ("A", json!({"value": "a\u{0}b"})),
        (
            "A",
            json!({"value": "x", "servers": ["a"], "origin": "nowhere"}),
        ),
    ] {
        let answer = gantry.rest("PUT", &secret(name), Some(&body));
        assert_eq!(answer.status, 422, "{}", answer.text());
    }
    let gone = gantry.rest("DELETE", &secret("API_TOKEN"), None);
    assert_eq!(gone.status, 204);
    assert!(reason(&gantry, "a").contains("`API_TOKEN`"));
}

// fault K4: what an earlier release stored in clear
#[test]
fn values_in_clear_are_sealed_and_leave_the_log_and_the_free_pages() {
    let canary = "canary-of-an-earlier-release-7d21";
    let mut gantry = Gantry::start(&[]);
    let server = json!({"name": "old", "url": "https://203.0.113.9/mcp", "start": "lazy",
        "headers": {"X-Api-Token": "hunter22-before"}});
    does(&gantry, "POST", SERVERS, &server, 201);
    gantry.stop();
    // The value as earlier releases had it, and what is left of another in pages that are free.
    let script = "import re, sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1])\n\
        db.execute('pragma secure_delete = off')\n\
        found = db.execute(\"select config from project_mcp_servers where name = 'old'\").fetchone()[0]\n\
        clear = re.sub('gantry-sealed-2:[^\"]*', sys.argv[2], found)\n\
        assert clear != found\n\
        db.execute(\"update project_mcp_servers set config = ? where name = 'old'\", [clear])\n\
        db.execute('create table junk (x)')\n\
        db.executemany('insert into junk values (?)', [[sys.argv[2] * 40] for _ in range(200)])\n\
        db.commit()\n\
        db.execute('drop table junk')\n\
        db.commit()\n";
    let file = gantry.data().join("gantry.db");
    let done = std::process::Command::new("python3")
        .args(["-c", script, file.to_str().unwrap(), canary])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let held = |name: &str| {
        let bytes = fs::read(file.with_file_name(name)).unwrap_or_default();
        let parts = bytes.windows(canary.len());
        parts.filter(|part| *part == canary.as_bytes()).count()
    };
    assert!(held("gantry.db") > 100);
    let gantry = gantry.again();
    let status = gantry.status("old");
    assert_ne!(status["state"], "misconfigured", "{status}");
    for name in ["gantry.db", "gantry.db-wal"] {
        assert_eq!(held(name), 0, "{name}");
    }
    // It still has its value.
    let patch = json!({"url": "https://203.0.113.10/mcp", "headers": {"X-Api-Token": canary}});
    does(&gantry, "PATCH", &format!("{SERVERS}/old"), &patch, 200);
}

// rows 0.4, 1.3; faults K1, K2, K5, K7, K8
#[test]
fn a_secret_reaches_the_servers_that_it_is_bound_to_and_nobody_sees_it_on_postgresql() {
    on_postgresql(a_secret_reaches_the_servers_that_it_is_bound_to_and_nobody_sees_it);
}

// fault K6: backup, restore, another key and the loss of one
#[test]
fn without_its_master_key_nothing_opens_and_with_another_everything_does() {
    let a = offering();
    let mut gantry = Gantry::builder().start();
    does(
        &gantry,
        "POST",
        SERVERS,
        &a.body("a", &json!({"TOKEN": "${T}", "OWN": "hunter22-own"})),
        201,
    );
    does(
        &gantry,
        "PUT",
        &secret("T"),
        &json!({"value": NEXT, "servers": ["a"]}),
        201,
    );
    gantry.wait_state("a", "ready", LONG);
    gantry.stop();
    let key = gantry.data().join("data.key");
    let backup = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    // Lost: the error has the id of the key that is needed, and no other is made.
    let mut gantry = gantry.again();
    let why = reason(&gantry, "a");
    assert!(
        why.contains("`OWN`") && why.contains("the master key is missing"),
        "{why}"
    );
    let refused = gantry.rest(
        "PUT",
        &secret("U"),
        Some(&json!({"value": "x-value-9", "servers": []})),
    );
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (503, &json!("secret.key_missing"))
    );
    let listed = gantry.rest("GET", "/api/v1/secrets", None).text();
    assert!(
        listed.contains("\"T\"") && listed.contains("master key is missing"),
        "{listed}"
    );
    assert!(!key.exists());
    gantry.stop();
    // Restored.
    fs::write(&key, &backup).unwrap();
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    // Under a gateway that runs nothing is changed.
    let busy = gantry.cli(&["secret", "rekey"]);
    assert!(!busy.status.success());
    gantry.stop();
    let done = said(&gantry.cli(&["secret", "rekey"]));
    assert!(
        done.contains("1 secrets and tokens and 1 servers"),
        "{done}"
    );
    assert_ne!(fs::read(&key).unwrap(), backup);
    fs::remove_file(a.path().join("token")).unwrap();
    let mut gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    assert_eq!(a.token().as_deref(), Some(NEXT));
    let act = recorded(&gantry, "secret.rekey");
    assert_eq!(
        (&act["after"]["values"], &act["after"]["servers"]),
        (&json!(1), &json!(1))
    );
    gantry.stop();
    // The old key opens nothing any more.
    let new = fs::read(&key).unwrap();
    fs::write(&key, &backup).unwrap();
    let mut gantry = gantry.again();
    let why = reason(&gantry, "a");
    assert!(why.contains("the master key is the wrong one"), "{why}");
    gantry.stop();
    fs::write(&key, &new).unwrap();
    // Given up: what it had encrypted goes, and secrets can be set again.
    fs::remove_file(&key).unwrap();
    let lost = said(&gantry.cli(&["secret", "rekey", "--lost"]));
    assert!(lost.contains("removed 1 secrets"), "{lost}");
    let gantry = gantry.again();
    assert_eq!(
        recorded(&gantry, "secret.forget")["after"],
        json!({"removed": 1})
    );
    does(
        &gantry,
        "PUT",
        &secret("T"),
        &json!({"value": NEXT, "servers": ["a"]}),
        201,
    );
}

/// Returns the only act of this kind, which is done.
fn recorded(gantry: &Gantry, act: &str) -> Value {
    let acts = gantry.rest("GET", &format!("/api/v1/acts?act={act}"), None);
    let acts = acts.json()["items"].take();
    let [act] = acts.as_array().unwrap().as_slice() else {
        panic!("{acts:#}")
    };
    assert_eq!(
        (&act["outcome"], &act["actor"]),
        (&json!("done"), &json!("gantry secret rekey")),
        "{act:#}"
    );
    act.clone()
}

// fault K6: backup, restore, another key and the loss of one
#[test]
fn without_its_master_key_nothing_opens_and_with_another_everything_does_on_postgresql() {
    on_postgresql(without_its_master_key_nothing_opens_and_with_another_everything_does);
}

/// Takes connections, keeps what is sent, and answers nothing of use.
struct Ear {
    port: u16,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Ear {
    fn open(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
        let all = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut bytes = [0; 16 << 10];
                let read = stream.read(&mut bytes).unwrap_or_default();
                all.lock().unwrap().extend_from_slice(&bytes[..read]);
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        Self { port, heard }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    fn proxy(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }
}

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

// faults K4, K8: a project admin who may edit servers but not read secrets tries ten ways
#[test]
fn who_may_edit_servers_reads_no_secret_in_ten_ways() {
    let a = offering();
    a.write("stderr", &format!("my token is {NEXT}\n"));
    a.fails(
        "tools/call",
        &json!({"code": 1, "message": format!("no entry with {NEXT}"), "data": [NEXT]}),
    );
    let thief = offering();
    let evil = Ear::open(NOT_FOUND.to_owned());
    let moved = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        evil.url()
    );
    let good = Ear::open(moved);
    let gantry = Gantry::builder().start();
    let remote = json!({"name": "r", "url": good.url(), "allow_private": true, "start": "eager",
        "headers": {"Authorization": "Bearer ${T}"}});
    does(
        &gantry,
        "POST",
        SERVERS,
        &a.body("a", &json!({"TOKEN": "${T}", "OWN_TOKEN": "hunter22-own"})),
        201,
    );
    does(&gantry, "POST", SERVERS, &remote, 201);
    does(
        &gantry,
        "PUT",
        &secret("T"),
        &json!({"value": NEXT, "servers": ["a", "r"]}),
        201,
    );
    gantry.wait_state("a", "ready", LONG);
    let key = |role: &str| {
        let body = json!({"kind": "admin", "role": role});
        let made = does(&gantry, "POST", "/api/v1/keys", &body, 201);
        made["key"].as_str().unwrap().to_owned()
    };
    let (admin, approver) = (key("admin"), key("approver"));
    let tries = |method: &str, path: &str, body: &Value| -> Answer {
        let answer = gantry.rest_as(&admin, method, path, Some(body));
        let shown = answer.text();
        assert!(
            !shown.contains(NEXT) && !shown.contains("hunter22"),
            "{path}: {shown}"
        );
        answer
    };
    let patches =
        |server: &str, patch: &Value| tries("PATCH", &format!("{SERVERS}/{server}"), patch);
    // Redirect: headers do not leave their origin.
    gantry.wait_status("r", LONG, |_| good.heard().contains(NEXT));
    // URL and proxy: the server waits for the secret to be set again.
    for patch in [
        json!({"url": evil.url()}),
        json!({"url": good.url(), "proxy": evil.proxy()}),
    ] {
        assert_eq!(patches("r", &patch).status, 200);
        let why = reason(&gantry, "r");
        assert!(why.contains("was changed since"), "{why}");
    }
    // Command, environment and image. What the server was given itself is asked for again.
    let program = thief.path().join("server");
    let moves = json!({"command": program.to_str().unwrap()});
    let refused = patches("a", &moves);
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (409, &json!("secret.asked_again"))
    );
    let whole = thief.body("a", &json!({"TOKEN": "${T}"}));
    assert_eq!(tries("PUT", &format!("{SERVERS}/a"), &whole).status, 200);
    assert!(reason(&gantry, "a").contains("was changed since"));
    let mut proxied = a.body("a", &json!({"TOKEN": "${T}", "HTTPS_PROXY": evil.proxy()}));
    assert_eq!(tries("PUT", &format!("{SERVERS}/a"), &proxied).status, 200);
    assert!(reason(&gantry, "a").contains("was changed since"));
    let image =
        json!({"name": "a", "image": "registry.invalid/x:1", "environment": {"TOKEN": "${T}"}});
    assert_eq!(tries("PUT", &format!("{SERVERS}/a"), &image).status, 200);
    assert!(reason(&gantry, "a").contains("was changed since"));
    // In arguments and commands the name stays a name.
    proxied["args"] = json!(["${T}"]);
    proxied["env"] = json!({});
    proxied["command"] = program.to_str().unwrap().into();
    assert_eq!(tries("PUT", &format!("{SERVERS}/a"), &proxied).status, 200);
    gantry.wait_state("a", "ready", LONG);
    let cmdline = fs::read_to_string(format!("/proc/{}/cmdline", gantry.status("a")["pid"]));
    assert!(!cmdline.unwrap_or_default().contains(NEXT));
    // Preview and trial of a server of another name, and of the same.
    for word in ["preview", "test"] {
        let body = thief.body("t", &json!({"TOKEN": "${T}"}));
        let answer = tries("POST", &format!("{SERVERS}/{word}"), &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // Binding without the value is for approvers.
    let bind = tries("PUT", &secret("T/bindings/a"), &json!({}));
    assert_eq!(
        (bind.status, &bind.json()["code"]),
        (403, &json!("secret.needs_approver"))
    );
    // Log, error, export and everything else that can be read.
    let as_it_was = a.body("a", &json!({"TOKEN": "${T}", "OWN_TOKEN": "hunter22-own"}));
    assert_eq!(
        gantry
            .rest("PUT", &format!("{SERVERS}/a"), Some(&as_it_was))
            .status,
        200
    );
    gantry.wait_state("a", "ready", LONG);
    let failed = gantry.call("a__tell", json!({}));
    assert_eq!(
        failed["error"]["message"], "no entry with [redacted]",
        "{failed:#}"
    );
    for path in [
        "mcp/servers/a/logs",
        "mcp/servers/a",
        "mcp/servers/a/events",
        "acts?limit=1000",
        "calls?limit=1000",
        "secrets",
        "secrets/T",
        "health",
        "mcp/servers/r",
    ] {
        let answer = gantry.rest_as(&admin, "GET", &format!("/api/v1/{path}"), None);
        assert_eq!(answer.status, 200, "{path}");
        let shown = answer.text();
        assert!(
            !shown.contains(NEXT) && !shown.contains("hunter22"),
            "{path}: {shown}"
        );
    }
    assert!(!evil.heard().contains(NEXT), "{}", evil.heard());
    assert_eq!(thief.token(), None);
    // What no view shows is asked for again wherever it stands.
    let client = json!({"name": "c", "url": good.url(), "start": "lazy", "allow_private": true,
        "auth": {"kind": "client_credentials", "client_id": "me", "client_secret": "hunter22-client"}});
    does(&gantry, "POST", SERVERS, &client, 201);
    let mut arguments = a.body("d", &json!({"DB_PASSWORD": "admin"}));
    arguments["args"] = json!(["--token", "hunter22-argument"]);
    arguments["start"] = "lazy".into();
    does(&gantry, "POST", SERVERS, &arguments, 201);
    for (server, patch, place) in [
        ("c", json!({"url": evil.url()}), "`auth.client_secret`"),
        ("c", json!({"proxy": evil.proxy()}), "`auth.client_secret`"),
        (
            "c",
            json!({"auth": {"issuer": "https://evil.example"}}),
            "`auth.client_secret`",
        ),
        ("d", moves.clone(), "`args`"),
        ("d", moves.clone(), "`env.DB_PASSWORD`"),
        (
            "d",
            json!({"command": moves["command"], "args": []}),
            "`env.DB_PASSWORD`",
        ),
    ] {
        let answer = patches(server, &patch);
        let told = (answer.status, answer.text().contains(place));
        assert_eq!(told, (409, true), "{patch}: {}", answer.text());
    }
    assert_eq!(patches("c", &json!({"timeout": "9s"})).status, 200);
    // An approver is nobody whom an admin makes.
    let body = json!({"kind": "admin", "role": "approver"});
    let made = tries("POST", "/api/v1/keys", &body);
    assert_eq!(
        (made.status, &made.json()["code"]),
        (403, &json!("auth.role"))
    );
    // Who approves the change lets it have the secret.
    assert_eq!(tries("PUT", &format!("{SERVERS}/a"), &whole).status, 200);
    reason(&gantry, "a");
    let bound = gantry.rest_as(&approver, "PUT", &secret("T/bindings/a"), Some(&json!({})));
    assert_eq!(bound.status, 200, "{}", bound.text());
    gantry.wait_state("a", "ready", LONG);
    assert_eq!(thief.token().as_deref(), Some(NEXT));
}

// faults K4, K8: a project admin who may edit servers but not read secrets tries ten ways
#[test]
fn who_may_edit_servers_reads_no_secret_in_ten_ways_on_postgresql() {
    on_postgresql(who_may_edit_servers_reads_no_secret_in_ten_ways);
}
