//! Rows 4.4 and 4.7, fault P12: tools that run in the gateway's own process, as clients meet them.
//!
//! The program has none by itself, so an engine with some is served here, by the program's own code.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gantry::app::{Options, serve};
use gantry_engine::{Engine, EngineConfig, FirstKeys, NativeOutput, NativeTool};
use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::harness::{Answer, Connection, LONG, modern, on_postgresql, own_database};

/// Descriptors that may come late and stay: those of the store's second reader.
const LATE_FDS: usize = 2;

/// A gateway in this process.
struct Served {
    authority: String,
    keys: FirstKeys,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
    _database: Option<Arc<PgDatabase>>,
}

/// Returns a tool that joins two texts, and panics if it is told to.
fn join() -> NativeTool {
    let texts = json!({"type": "string"});
    let schema = json!({
        "type": "object",
        "properties": {"left": texts, "right": texts},
        "required": ["left", "right"],
    });
    NativeTool::new("join", "Joins two texts", schema, |call| async move {
        let word = |name: &str| call.arguments[name].as_str().unwrap_or_default().to_owned();
        if word("left") == "panic" {
            panic!("a handler that panics");
        }
        Ok(NativeOutput::text(format!(
            "{}{}",
            word("left"),
            word("right")
        )))
    })
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = EngineConfig::new(folder.path().join("data"));
        let database = own_database();
        if let Some(database) = &database {
            config.store = database.url().parse().unwrap();
        }
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
                let keys = engine
                    .default_project()
                    .first_start(|_| Ok(()))
                    .await
                    .unwrap()
                    .unwrap();
                engine.default_project().native(join()).unwrap();
                ready.send(keys).unwrap();
                let stopped = async { stopped.await.unwrap_or(()) };
                let served = serve(listener, engine, Options::default(), stopped);
                served.await.unwrap();
            });
        });
        Self {
            authority,
            keys: keys.recv().unwrap(),
            stop: Some(stop),
            running: Some(running),
            _folder: folder,
            _database: database,
        }
    }

    fn call(&self, tool: &str, arguments: Value) -> Answer {
        let mut connection = Connection::open(&self.authority).unwrap();
        let params = json!({"name": tool, "arguments": arguments});
        modern(
            &mut connection,
            &self.keys.agent,
            "/mcp",
            "tools/call",
            params,
        )
    }

    fn rest(&self, key: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut connection = Connection::open(&self.authority).unwrap();
        let answer = connection.request(method, path, &headers, body.as_bytes());
        answer.unwrap()
    }

    fn admin(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.rest(&self.keys.admin, method, path, body)
    }

    /// Returns server, tool, status and code of all rows, oldest first.
    fn rows(&self) -> Vec<[Value; 4]> {
        let page = self.admin("GET", "/api/v1/calls?limit=100", &Value::Null);
        let rows = page.json()["items"].take();
        let told = |row: &Value| ["server", "tool", "status", "code"].map(|name| row[name].clone());
        rows.as_array().unwrap().iter().rev().map(told).collect()
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

fn row(server: &str, tool: &str, status: &str, code: Option<&str>) -> [Value; 4] {
    [json!(server), json!(tool), json!(status), json!(code)]
}

// row 0.9, row 4.4, row 4.7
#[test]
fn native_tools_are_listed_routed_judged_and_recorded_beside_a_servers() {
    let served = Served::start();
    let argv = Evilpeer::new().argv();
    let body = json!({"name": "a", "command": argv[0], "args": argv[1..], "profile": "local"});
    let registered = served.admin("POST", "/api/v1/mcp/servers", &body);
    assert_eq!(registered.status, 201, "{}", registered.text());
    // Tools of the gateway's own process are the first agent's, a server registered later is not.
    let grant = json!({"agent": "default", "server": "a"});
    let granted = served.admin("POST", "/api/v1/grants", &grant);
    assert_eq!(granted.status, 201, "{}", granted.text());
    let listed = served.rest(&served.keys.agent, "GET", "/api/v1/tools", &Value::Null);
    let listed = listed.json()["items"].take();
    let named = |id: &str| {
        let items = listed.as_array().unwrap();
        let found = items.iter().find(|tool| tool["id"] == id);
        found.unwrap_or_else(|| panic!("no {id} in {listed:#}"))["name"].clone()
    };
    // The registry knows whose each name is: ours, or a server's.
    let words = json!({"left": "a", "right": "b"});
    for name in [named("native:join"), json!("native:join")] {
        let answer = served.call(name.as_str().unwrap(), words.clone()).message();
        assert_eq!(answer["result"]["content"][0]["text"], "ab", "{answer:#}");
    }
    let answer = served.call("a:echo", json!({"text": "far"}));
    assert_eq!(answer.message()["result"]["content"][0]["text"], "far");
    let body = json!({"method": "tools/call", "params": {"name": "join", "arguments": words}});
    let path = "/api/v1/mcp/servers/native/call";
    let answer = served.rest(&served.keys.agent, "POST", path, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["result"]["content"][0]["text"], "ab");
    let unfit = served.call("native:join", json!({"left": "a"})).message();
    let told = unfit["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("required field `right` is missing"), "{told}");
    let unknown = served.call("native:nothing", json!({})).message();
    assert_eq!(
        (&unknown["error"]["code"], &unknown["error"]["message"]),
        (&json!(-32602), &json!("Unknown tool: native:nothing"))
    );
    let wanted = [
        row("native", "join", "ok", None),
        row("native", "join", "ok", None),
        row("a", "echo", "ok", None),
        row("native", "join", "ok", None),
        row("native", "join", "refused", Some("schema.input")),
    ];
    let rows = served.rows();
    assert_eq!(rows[..5], wanted);
    assert_eq!(
        (rows.len(), &rows[5][2], &rows[5][3]),
        (6, &json!("refused"), &json!("tool.unknown"))
    );
}

// row 0.9, row 4.4, row 4.7
#[test]
fn native_tools_are_listed_routed_judged_and_recorded_beside_a_servers_on_postgresql() {
    on_postgresql(native_tools_are_listed_routed_judged_and_recorded_beside_a_servers);
}

// fault P12
#[test]
fn a_panic_fails_its_own_call_is_counted_and_ends_nothing_else() {
    let served = Served::start();
    let own = std::process::id();
    served.admin("GET", "/api/v1/calls", &Value::Null);
    let fds = procs::resting_fds(own, LONG);
    let panics = json!({"left": "panic", "right": "b"});
    let begun = Stopwatch::start();
    let answer = served.call("native:join", panics.clone());
    // The first panic of a process reads its symbols, to print where it was.
    assert!(begun.elapsed() <= Duration::from_secs(10));
    let message = answer.message();
    let error = &message["error"];
    assert_eq!(
        (answer.status, &error["code"], &error["data"]["code"]),
        (500, &json!(-32603), &json!("gateway.panic")),
        "{message:#}"
    );
    // Clients are told no more of a fault of ours.
    let told = "the gateway failed; see its log for this code";
    assert_eq!(error["message"], told, "{message:#}");
    assert!(error["data"]["call"].is_string(), "{message:#}");
    let body = json!({"name": "native:join", "arguments": panics});
    let problem = served.rest(&served.keys.agent, "POST", "/api/v1/tools/call", &body);
    assert_eq!(
        (problem.status, &problem.json()["code"]),
        (500, &json!("gateway.panic"))
    );
    assert_eq!(problem.json()["detail"], told, "{}", problem.text());
    let answer = served.call("native:join", json!({"left": "a", "right": "b"}));
    assert_eq!(answer.message()["result"]["content"][0]["text"], "ab");
    let figures = served.admin("GET", "/metrics", &Value::Null).text();
    for line in [
        "gantry_panics_total{project=\"local\"} 2",
        "gantry_calls_total{project=\"local\",status=\"error\"} 2",
        "gantry_calls_total{project=\"local\",status=\"ok\"} 1",
    ] {
        assert!(figures.lines().any(|shown| shown == line), "{figures}");
    }
    let panicked = || row("native", "join", "error", Some("gateway.panic"));
    let wanted = [panicked(), panicked(), row("native", "join", "ok", None)];
    assert_eq!(served.rows(), wanted);
    // Nothing of the calls that failed is held.
    let settled = eventually(LONG, || procs::open_fds(own) <= fds + LATE_FDS);
    assert!(
        settled.is_some(),
        "{fds} descriptors at first, {} now",
        procs::open_fds(own)
    );
    assert_eq!(procs::zombies_of(own), []);
}
