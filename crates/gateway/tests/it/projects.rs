//! Rows 0.11 and 3.2: two projects in one engine, with the same names for everything: servers, agents,
//! tools, resources. What one has, does or hears is invisible to the other: 404, or not in the list.
//!
//! The program serves the folder's own project only, so an engine with two is served here, by the
//! program's own code, with an admin key and an agent key for each.

use std::net::TcpListener;
use std::path::Path;
use std::thread::{self, JoinHandle};

use gantry::app::{Options, serve};
use gantry_engine::{Engine, EngineConfig, FirstKeys};
use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::harness::{Answer, Connection, LONG, Session, modern};

/// The server that both projects have.
const SERVER: &str = "peer";
const RESOURCE: &str = "test://static-text";
const PROJECTS: [&str; 2] = ["local", "other"];

/// A gateway in this process, with two projects.
struct Served {
    authority: String,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

/// One project, as its people see it.
struct Tenant<'a> {
    name: &'static str,
    authority: &'a str,
    keys: FirstKeys,
}

impl Served {
    /// Starts, or starts again, and returns the first keys of both projects if they were made now.
    fn start(folder: &Path) -> (Self, Vec<FirstKeys>) {
        let mut config = EngineConfig::new(folder.join("data"));
        config.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel();
        let (ready, keys) = std::sync::mpsc::sync_channel(1);
        let running = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let engine = Engine::start(config).await.unwrap();
                let mut made = Vec::new();
                for name in PROJECTS {
                    let project = engine.open_project(name.parse().unwrap()).await.unwrap();
                    made.extend(project.first_start(|_| Ok(())).await.unwrap());
                }
                ready.send(made).unwrap();
                let stopped = async { stopped.await.unwrap_or(()) };
                let served = serve(listener, engine, Options::default(), stopped);
                served.await.unwrap();
            });
        });
        let served = Self {
            authority,
            stop: Some(stop),
            running: Some(running),
        };
        (served, keys.recv().unwrap())
    }

    /// Starts, and has each project register the same server.
    fn with_servers(folder: &Path) -> (Self, [FirstKeys; 2]) {
        let (served, keys) = Self::start(folder);
        let keys: [FirstKeys; 2] = keys.try_into().ok().expect("keys of two projects");
        for tenant in served.tenants(&keys) {
            let argv = Evilpeer::new().argv();
            let spec = json!({"name": SERVER, "command": argv[0], "args": argv[1..],
                "env": {"WHO": tenant.name}, "profile": "local", "start": "eager"});
            let first = json!({"default_grant": ["default"]});
            let set = tenant.admin("PATCH", "/api/v1/settings", Some(&first));
            assert_eq!(set.status, 200, "{}", set.text());
            let made = tenant.admin("POST", "/api/v1/mcp/servers", Some(&spec));
            assert_eq!(made.status, 201, "{}", made.text());
            tenant.ready();
        }
        (served, keys)
    }

    fn tenants(&self, keys: &[FirstKeys; 2]) -> [Tenant<'_>; 2] {
        [0, 1].map(|number| Tenant {
            name: PROJECTS[number],
            authority: &self.authority,
            keys: keys[number].clone(),
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            let ended = running.join();
            assert!(ended.is_ok() || thread::panicking(), "it was served");
        }
    }
}

impl Tenant<'_> {
    fn connect(&self) -> Connection {
        Connection::open(self.authority).unwrap()
    }

    fn rest(&self, key: &str, (method, path): (&str, &str), body: Option<&Value>) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = self
            .connect()
            .request(method, path, &headers, body.as_bytes());
        answer.unwrap()
    }

    fn admin(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.rest(&self.keys.admin, (method, path), body)
    }

    fn items(&self, path: &str) -> Vec<Value> {
        let page = self.admin("GET", path, None);
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        page.json()["items"].as_array().unwrap().clone()
    }

    fn ready(&self) {
        let path = format!("/api/v1/mcp/servers/{SERVER}");
        let state = || self.admin("GET", &path, None).json()["state"].take();
        let came = eventually(LONG, || state() == "ready");
        assert!(came.is_some(), "{}: {}", self.name, state());
    }

    fn server(&self) -> Value {
        let path = format!("/api/v1/mcp/servers/{SERVER}");
        self.admin("GET", &path, None).json()
    }

    /// Calls a tool and returns the text that it answers.
    fn call(&self, tool: &str, arguments: Value) -> String {
        let params = json!({"name": format!("{SERVER}__{tool}"), "arguments": arguments});
        let (key, connection) = (&self.keys.agent, &mut self.connect());
        let answer = modern(connection, key, "/mcp", "tools/call", params).message();
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn session(&self) -> Session {
        Session::open(self.connect(), &self.keys.agent, "2025-11-25")
    }

    /// Opens a stream and returns what reads it until a text has come.
    fn stream(&self, path: &str, session: Option<&str>) -> impl FnMut(&str) -> String + use<> {
        let key = match session {
            Some(_) => &self.keys.agent,
            None => &self.keys.admin,
        };
        let bearer = format!("Bearer {key}");
        let mut headers = vec![
            ("Authorization", bearer.as_str()),
            ("Accept", "text/event-stream"),
        ];
        headers.extend(session.map(|id| ("Mcp-Session-Id", id)));
        let mut connection = self.connect();
        connection.write("GET", path, &headers, b"").unwrap();
        assert_eq!(connection.head().unwrap().status, 200);
        move |wanted: &str| {
            let mut heard = String::new();
            while !heard.contains(wanted) {
                let chunk = connection.chunk().unwrap().expect("the stream goes on");
                heard.push_str(&String::from_utf8_lossy(&chunk));
            }
            heard
        }
    }
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

// rows 0.11, 3.2, fault T6: servers, tools, calls and their record
#[test]
fn the_same_names_are_other_things_in_another_project() {
    let folder = tempfile::tempdir().unwrap();
    let (served, keys) = Served::with_servers(folder.path());
    let tenants = served.tenants(&keys);
    let servers = tenants.each_ref().map(Tenant::server);
    let cwd = |server: &Value| {
        let pid = &server["pid"];
        std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap()
    };
    assert_ne!(id(&servers[0]), id(&servers[1]));
    assert_ne!(
        cwd(&servers[0]),
        cwd(&servers[1]),
        "each has its own folder"
    );
    let data = folder.path().join("data").canonicalize().unwrap();
    assert_eq!(cwd(&servers[0]), data.join("servers").join(SERVER));
    for (own, other) in [(0, 1), (1, 0)] {
        let (tenant, theirs) = (&tenants[own], &servers[other]);
        assert_eq!(tenant.items("/api/v1/mcp/servers").len(), 1);
        // An id is as good as a name, within its project.
        let path = format!("/api/v1/mcp/servers/{}", id(theirs));
        for (method, below) in [
            ("GET", ""),
            ("GET", "/logs"),
            ("GET", "/events"),
            ("POST", "/restart"),
        ] {
            let answer = tenant.admin(method, &format!("{path}{below}"), None);
            assert_eq!(answer.status, 404, "{method} {below}: {}", answer.text());
        }
        assert_eq!(
            tenant.admin("DELETE", &path, None).status,
            204,
            "nothing of its own"
        );
        let environment = tenant.call("env", json!({}));
        assert!(environment.contains(&format!("\"WHO\":\"{}\"", tenant.name)));
        assert_eq!(tenant.items("/api/v1/calls?tool=env").len(), 1);
    }
    for (tenant, server) in tenants.iter().zip(&servers) {
        assert_eq!(tenant.server()["pid"], server["pid"], "it runs on");
    }
    let calls = tenants
        .each_ref()
        .map(|tenant| id(&tenant.items("/api/v1/calls")[0]));
    for (tenant, theirs) in tenants.iter().zip(calls.iter().rev()) {
        let path = format!("/api/v1/calls/{theirs}");
        for key in [&tenant.keys.admin, &tenant.keys.agent] {
            assert_eq!(tenant.rest(key, ("GET", &path), None).status, 404);
        }
        let export = tenant.admin("GET", "/api/v1/calls/export", None).text();
        assert!(export.contains(tenant.name) && !export.contains(theirs.as_str()));
        let count = tenant.admin("GET", "/api/v1/calls?count=true", None);
        assert_eq!(count.json()["total"], 1);
    }
}

// fault T5
#[test]
fn no_answer_crosses_into_another_project_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let (served, keys) = Served::with_servers(folder.path());
    let tenants = served.tenants(&keys);
    let each: usize = gantry_testkit::proof::count(50_000, 150);
    thread::scope(|scope| {
        for (client, tenant) in tenants.iter().cycle().take(8).enumerate() {
            scope.spawn(move || {
                let (key, mut connection) = (&tenant.keys.agent, tenant.connect());
                for number in 0..each {
                    let canary = format!("{}-{client}-{number}.", tenant.name);
                    let params = json!({"name": format!("{SERVER}__echo"),
                        "arguments": {"text": canary}});
                    let answer = modern(&mut connection, key, "/mcp", "tools/call", params);
                    let text = answer.text();
                    assert!(text.contains(&format!("\"{canary}\"")), "{canary}: {text}");
                }
            });
        }
    });
    for tenant in &tenants {
        let count = tenant.admin("GET", "/api/v1/calls?count=true&tool=echo", None);
        assert_eq!(count.json()["total"], each * 4, "each call in one row");
        let environment = tenant.call("env", json!({}));
        assert!(environment.contains(&format!("\"WHO\":\"{}\"", tenant.name)));
    }
}

// row 3.2, fault T8: events, logs, metrics, acts and the check of the audit
#[test]
fn what_is_observed_in_a_project_is_not_shown_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let (served, keys) = Served::with_servers(folder.path());
    let [local, other] = &served.tenants(&keys);
    let mut theirs = other.stream("/api/v1/events", None);
    theirs("\"ready\"");
    local.call("stderr", json!({"text": "said-in-local"}));
    let logs = |tenant: &Tenant<'_>| {
        let path = format!("/api/v1/mcp/servers/{SERVER}/logs");
        tenant.admin("GET", &path, None).text()
    };
    assert!(eventually(LONG, || logs(local).contains("said-in-local")).is_some());
    assert!(!logs(other).contains("said-in-local"));
    let path = format!("/api/v1/mcp/servers/{SERVER}/restart");
    assert_eq!(local.admin("POST", &path, None).status, 200);
    local.ready();
    let restarts = |tenant: &Tenant<'_>| {
        let events = tenant.items("/api/v1/events?limit=100");
        let restarts = events
            .iter()
            .filter(|event| event["kind"] == "restart_requested");
        restarts.count()
    };
    assert!(eventually(LONG, || restarts(local) == 1).is_some());
    assert_eq!(restarts(other), 0);
    // The next that its stream tells is its own.
    assert_eq!(other.admin("POST", &path, None).status, 200);
    let heard = theirs("\"ready\"");
    assert_eq!(heard.matches("restart_requested").count(), 1, "{heard}");
    let metrics = |tenant: &Tenant<'_>| tenant.admin("GET", "/metrics", None).text();
    let ok = |name: &str, count: u32| {
        format!("gantry_calls_total{{project=\"{name}\",status=\"ok\"}} {count}")
    };
    assert!(
        metrics(local).contains(&ok("local", 1)),
        "{}",
        metrics(local)
    );
    let shown = metrics(other);
    assert!(shown.contains(&ok("other", 0)), "{shown}");
    assert!(
        !shown.contains("local") && !shown.contains("gantry_auth_failures"),
        "{shown}"
    );
    let acts = |tenant: &Tenant<'_>| {
        let acts = tenant.items("/api/v1/acts?limit=100");
        let named = |act: &str| acts.iter().filter(|row| row["act"] == act).count();
        [
            "server.register",
            "server.restart",
            "key.create",
            "gateway.start",
        ]
        .map(named)
    };
    assert_eq!(acts(local), [1, 1, 1, 1]);
    // The gateway's own acts stand in the log of its folder's project.
    assert_eq!(acts(other), [1, 1, 1, 0]);
    assert_eq!(
        other
            .admin("POST", "/api/v1/audit/confirm-clock", None)
            .status,
        403
    );
    assert_eq!(
        other
            .admin("POST", "/api/v1/health/acknowledge", None)
            .status,
        403
    );
    let health = |tenant: &Tenant<'_>| tenant.admin("GET", "/api/v1/health", None).json();
    let theirs = health(other);
    assert_eq!(theirs["servers"], json!({"ready": 1}));
    // The journal is the gateway's: its figures are for the administrators of its own project.
    assert_eq!(theirs["audit"]["writable"], true);
    assert_eq!(theirs["audit"]["journal_bytes"], 0);
    assert!(health(local)["audit"]["journal_bytes"].as_u64() > Some(0));
    // How much others call is not told by a check of the audit either.
    let checked = |tenant: &Tenant<'_>| tenant.admin("GET", "/api/v1/audit/verify", None).json();
    assert!(
        checked(local)["rows"].as_u64() >= Some(1),
        "{}",
        checked(local)
    );
    let theirs = checked(other);
    let told =
        ["sound", "rows", "blocks", "not_covered", "findings_total"].map(|name| &theirs[name]);
    assert_eq!(
        told,
        [&json!(true), &json!(0), &json!(0), &json!(0), &json!(0)],
        "{theirs}"
    );
}

// row 3.2, fault T4: sessions, lists, subscriptions and streams
#[test]
fn a_client_hears_nothing_of_another_project() {
    let folder = tempfile::tempdir().unwrap();
    let (served, keys) = Served::with_servers(folder.path());
    let tenants = served.tenants(&keys);
    let mut sessions = tenants.each_ref().map(Tenant::session);
    let ids = sessions
        .each_ref()
        .map(|session| session.id.clone().unwrap());
    for (tenant, theirs) in tenants.iter().zip(ids.iter().rev()) {
        let bearer = format!("Bearer {}", tenant.keys.agent);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Mcp-Session-Id", theirs.as_str()),
            ("Accept", "text/event-stream"),
        ];
        for method in ["GET", "DELETE"] {
            let answer = tenant.connect().request(method, "/mcp", &headers, b"");
            assert_eq!(answer.unwrap().status, 404, "{method}");
        }
    }
    let listens = |number: usize| tenants[number].stream("/mcp", Some(&ids[number]));
    let mut streams = [listens(0), listens(1)];
    for session in &mut sessions {
        let answer = session.request("resources/subscribe", json!({"uri": RESOURCE}));
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    let [local, other] = &tenants;
    local.call("touch", json!({"uri": RESOURCE}));
    local.call("grow", json!({}));
    let heard = streams[0]("tools/list_changed");
    assert!(heard.contains("resources/updated"), "{heard}");
    // The first that the other hears is its own.
    other.call("touch", json!({"uri": RESOURCE}));
    let heard = streams[1]("resources/updated");
    assert!(!heard.contains("list_changed"), "{heard}");
    assert_eq!(heard.matches("resources/updated").count(), 1, "{heard}");
    let tools = sessions.each_mut().map(|session| {
        let list = session.request("tools/list", json!({}));
        list["result"]["tools"].as_array().unwrap().len()
    });
    assert_eq!(tools[0], tools[1] + 1);
}

// rows 2.9, 3.2, fault T4: calls that nobody waits for
#[test]
fn an_asynchronous_call_is_unknown_in_another_project() {
    let folder = tempfile::tempdir().unwrap();
    let (served, keys) = Served::with_servers(folder.path());
    let [local, other] = &served.tenants(&keys);
    let bearer = format!("Bearer {}", local.keys.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let body = json!({"name": format!("{SERVER}__slow"), "arguments": {"ms": 60_000}});
    let path = "/api/v1/tools/call";
    let begun = local
        .connect()
        .request("POST", path, &headers, body.to_string().as_bytes());
    let begun = begun.unwrap();
    assert_eq!(begun.status, 202, "{}", begun.text());
    let place = begun.header("location").unwrap();
    for key in [&other.keys.admin, &other.keys.agent] {
        for method in ["GET", "DELETE"] {
            assert_eq!(
                other.rest(key, (method, place), None).status,
                404,
                "{method}"
            );
        }
    }
    let agent = &local.keys.agent;
    assert_eq!(
        local.rest(agent, ("GET", place), None).status,
        202,
        "it runs on"
    );
    assert_eq!(local.rest(agent, ("DELETE", place), None).status, 204);
}

// row 3.2: keys, agents and grants
#[test]
fn administrators_rule_their_own_project_only() {
    let folder = tempfile::tempdir().unwrap();
    let (served, keys) = Served::with_servers(folder.path());
    let [local, other] = &served.tenants(&keys);
    let own = |tenant: &Tenant<'_>| -> Vec<String> {
        tenant.items("/api/v1/keys").iter().map(id).collect()
    };
    let theirs = own(local);
    assert_eq!((theirs.len(), own(other).len()), (2, 2));
    assert!(own(other).iter().all(|key| !theirs.contains(key)));
    for key in &theirs {
        let revoked = other.admin("DELETE", &format!("/api/v1/keys/{key}"), None);
        assert_eq!(
            revoked.status, 204,
            "one that is not there is as good as revoked"
        );
    }
    assert_eq!(own(local), theirs);
    let nothing = json!({"grant": []});
    let changed = other.admin("PATCH", "/api/v1/agents/default", Some(&nothing));
    assert_eq!(changed.status, 200, "{}", changed.text());
    let tools = |tenant: &Tenant<'_>| {
        let answer = tenant.rest(&tenant.keys.agent, ("GET", "/api/v1/tools"), None);
        answer.json()["items"].as_array().unwrap().len()
    };
    assert_eq!(tools(other), 0);
    assert!(tools(local) > 0);
    assert_eq!(
        other.admin("DELETE", "/api/v1/agents/default", None).status,
        204
    );
    assert!(local.call("env", json!({})).contains("local"));
    let refused = other.rest(&other.keys.agent, ("GET", "/api/v1/tools"), None);
    assert_eq!(refused.status, 401);
}

// rows 0.11, 1.10: both projects are there after a restart, with their keys and servers
#[test]
fn projects_come_back_with_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let (served, keys) = Served::with_servers(folder.path());
    let before = served
        .tenants(&keys)
        .each_ref()
        .map(|tenant| id(&tenant.server()));
    drop(served);
    let (served, made) = Served::start(folder.path());
    assert!(made.is_empty(), "no keys are made anew");
    let tenants = served.tenants(&keys);
    tenants.iter().for_each(Tenant::ready);
    let after = tenants.each_ref().map(|tenant| id(&tenant.server()));
    assert_eq!(before, after);
    for tenant in &tenants {
        assert!(tenant.call("env", json!({})).contains(tenant.name));
    }
}
