//! The gateway of the matrix, with two projects and a key of each kind of caller.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use gantry_model::mcp::Method;
use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::things::{self, Things};
use crate::harness::{Answer, Connection, Gantry, LONG, Session, modern};
use crate::rest::tokens::Issuer;

/// Who asks.
pub(super) const CALLERS: [&str; 14] = [
    "none",
    "agent",
    "other agent",
    "auditor",
    "operator",
    "approver",
    "admin",
    "other admin",
    "installation",
    "revoked",
    "expired",
    "suspended",
    "rate-limited",
    "wrong audience",
];

/// Wrong keys that come from one address: fewer than it may try.
const ATTEMPTS: u32 = 15;

/// Whose things a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objects {
    Own,
    Others,
    Nobodys,
}

pub(super) struct World {
    gantry: Gantry,
    keys: BTreeMap<&'static str, Option<String>>,
    /// What the two projects have, and what nobody has.
    own: Things,
    others: Things,
    nobodys: Things,
    sessions: Mutex<BTreeMap<&'static str, Session>>,
    requests: AtomicU32,
}

/// An answer, of a stream only its head.
pub(super) struct Told(Answer);

impl Told {
    /// Returns status and code.
    pub(super) fn shown(&self) -> String {
        let Self(answer) = self;
        let body: Value = match answer.status {
            400.. => serde_json::from_slice(&answer.body).unwrap_or_default(),
            _ => Value::Null,
        };
        let code = body["code"].as_str();
        match code.or(body["error"]["data"]["code"].as_str()) {
            Some(code) => format!("{} {code}", answer.status),
            None => answer.status.to_string(),
        }
    }

    pub(super) fn text(&self) -> String {
        self.0.text()
    }
}

/// Returns status and code of the answer to a method.
fn outcome(answer: Answer) -> String {
    if answer.status >= 400 {
        return Told(answer).shown();
    }
    let error = answer.message()["error"].take();
    match (error["data"]["code"].as_str(), error["code"].as_i64()) {
        (Some(code), _) => format!("{} {code}", answer.status),
        (None, Some(code)) => format!("{} {code}", answer.status),
        (None, None) => answer.status.to_string(),
    }
}

pub(super) fn made(gantry: &Gantry, path: &str, body: &Value) -> Value {
    let made = gantry.rest("POST", path, Some(body));
    assert_eq!(made.status, 201, "{path}: {}", made.text());
    made.json()
}

/// Makes a key and returns its id and its text.
pub(super) fn key(gantry: &Gantry, path: &str, body: &Value) -> (String, String) {
    let made = made(gantry, path, body);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

/// Makes an agent that may use a server, and returns its key.
fn agent(gantry: &Gantry, project: &str, name: &str, server: &str) -> String {
    let path = format!("/api/v1/projects/{project}/agents");
    made(
        gantry,
        &path,
        &json!({"name": name, "grant": [format!("{server}:*")]}),
    );
    let path = format!("/api/v1/projects/{project}/keys");
    key(gantry, &path, &json!({"kind": "agent", "agent": name})).1
}

impl World {
    pub(super) fn start() -> Self {
        let issuer = Issuer::start();
        let folder = tempfile::tempdir().unwrap();
        let issuers = folder.path().join("issuers.json");
        fs::write(&issuers, issuer.configured(&json!({"app": "default"}))).unwrap();
        let gantry = Gantry::builder()
            .server("a", &Evilpeer::new().name("a"))
            .flags(&["--issuers", issuers.to_str().unwrap()])
            .start();
        gantry.wait_state("a", "ready", LONG);
        made(&gantry, "/api/v1/projects", &json!({"name": "other"}));
        let argv = Evilpeer::new().argv();
        let server = json!({"name": "b", "command": argv[0], "args": argv[1..], "profile": "local",
            "start": "eager"});
        made(&gantry, "/api/v1/projects/other/mcp/servers", &server);
        let role = |role: &str| {
            key(
                &gantry,
                "/api/v1/keys",
                &json!({"kind": "admin", "role": role}),
            )
            .1
        };
        let (revoked, revoked_key) = key(&gantry, "/api/v1/keys", &json!({"kind": "admin"}));
        let path = format!("/api/v1/keys/{revoked}");
        assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
        let soon = json!({"kind": "admin", "expires_in": 1});
        let expired = key(&gantry, "/api/v1/keys", &soon).1;
        let other_agent = agent(&gantry, "other", "worker", "b");
        let other_admin = key(
            &gantry,
            "/api/v1/projects/other/keys",
            &json!({"kind": "admin"}),
        );
        let suspended = agent(&gantry, "local", "stopped", "a");
        let limits = json!({"calls_per_hour": 1});
        let limited = json!({"kind": "agent", "agent": "default", "limits": limits});
        let limited = key(&gantry, "/api/v1/keys", &limited).1;
        let wrong = json!({"aud": "https://other.example/mcp"});
        let keys = [
            ("none", None),
            ("agent", Some(gantry.agent.clone())),
            ("other agent", Some(other_agent)),
            ("auditor", Some(role("auditor"))),
            ("operator", Some(role("operator"))),
            ("approver", Some(role("approver"))),
            ("admin", Some(role("admin"))),
            ("other admin", Some(other_admin.1)),
            ("installation", Some(gantry.admin.clone())),
            ("revoked", Some(revoked_key)),
            ("expired", Some(expired)),
            ("suspended", Some(suspended)),
            ("rate-limited", Some(limited)),
            ("wrong audience", Some(issuer.token(&wrong))),
        ];
        let body = json!({"kind": "agent", "name": "stopped"});
        let done = gantry.rest("POST", "/api/v1/suspensions", Some(&body));
        assert_eq!(done.status, 200, "{}", done.text());
        let ready = || {
            let server = gantry.rest("GET", "/api/v1/projects/other/mcp/servers/b", None);
            server.json()["state"] == "ready"
        };
        assert!(eventually(LONG, ready).is_some());
        let world = Self {
            keys: keys.into_iter().collect(),
            own: things::make(&gantry, "local", "a", "own"),
            others: things::make(&gantry, "other", "b", "others"),
            nobodys: things::nobodys(),
            gantry,
            sessions: Mutex::default(),
            requests: AtomicU32::new(0),
        };
        let session = |caller: &'static str| {
            let key = world.keys[caller].as_deref().unwrap();
            (
                caller,
                Session::open(world.gantry.connect(), key, "2025-11-25"),
            )
        };
        *world.sessions.lock().unwrap() = ["agent", "other agent"].map(session).into();
        world.assert_untouched();
        // It makes the one call that it may.
        let echo = json!({"name": "a__echo", "arguments": {"text": "x"}});
        assert_eq!(
            world.method("rate-limited", Method::ToolsCall, &echo),
            "200"
        );
        let ended = || world.ask("expired", "GET", "/api/v1/keys").shown();
        let ended = eventually(LONG, || ended() == "401 auth.wrong_key");
        assert!(ended.is_some(), "the key expires");
        world
    }

    /// Checks that what both projects have is still there, and that the other one works.
    pub(super) fn assert_untouched(&self) {
        things::assert_kept(&self.gantry, "local", &self.own);
        things::assert_kept(&self.gantry, "other", &self.others);
        let server = "/api/v1/projects/other/mcp/servers/b";
        let state = || self.gantry.rest("GET", server, None).json()["state"].take();
        let is_ready = eventually(LONG, || state() == "ready");
        assert!(is_ready.is_some(), "{}", state());
        let echo = json!({"name": "b__echo", "arguments": {"text": "x"}});
        let echoed = || self.method("other agent", Method::ToolsCall, &echo);
        let works = eventually(LONG, || echoed() == "200");
        assert!(works.is_some(), "{}", echoed());
    }

    /// Opens a connection; not too many of one address have wrong keys.
    fn connect(&self) -> Connection {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) / ATTEMPTS;
        let source = Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number);
        Connection::open_from(source, &self.gantry.authority).unwrap()
    }

    /// Asks one route.
    pub(super) fn ask(&self, caller: &str, method: &str, path: &str) -> Told {
        let bearer = self.keys[caller]
            .as_ref()
            .map(|key| format!("Bearer {key}"));
        let mut headers = vec![("Accept", "application/json, text/event-stream")];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        let body: &[u8] = match method {
            "POST" | "PUT" | "PATCH" => {
                headers.push(("Content-Type", "application/json"));
                body_of(path)
            }
            _ => b"",
        };
        let mut connection = self.connect();
        connection.write(method, path, &headers, body).unwrap();
        let head = connection.head().unwrap();
        let kind = head.header("content-type").unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            return Told(head);
        }
        let body = connection.body_of(&head).unwrap();
        Told(Answer { body, ..head })
    }

    /// Asks an MCP method without a session and returns status and code.
    pub(super) fn method(&self, caller: &str, method: Method, params: &Value) -> String {
        let Some(key) = &self.keys[caller] else {
            return self.ask(caller, "POST", "/mcp").shown();
        };
        let mut connection = self.connect();
        if method == Method::SubscriptionsListen {
            return listened(&mut connection, key, params);
        }
        outcome(modern(
            &mut connection,
            key,
            "/mcp",
            method.as_str(),
            params.clone(),
        ))
    }

    /// Asks an MCP method in a session of an older generation.
    pub(super) fn method_in_session(
        &self,
        caller: &'static str,
        method: Method,
        params: &Value,
    ) -> String {
        let mut sessions = self.sessions.lock().unwrap();
        let session = sessions.get_mut(caller).unwrap();
        outcome(session.send(method.as_str(), params.clone()))
    }

    /// Fills the parameters of a route with what belongs to an owner, so that asking changes nothing.
    pub(super) fn filled(&self, path: &str, method: &str, objects: Objects) -> String {
        match method {
            "GET" => self.named(path, objects),
            // Whoever may change it is told that it is not there.
            _ => self.named(path, Objects::Nobodys),
        }
    }

    /// Fills the parameters of a route with what belongs to an owner.
    pub(super) fn named(&self, path: &str, objects: Objects) -> String {
        let things = self.things(objects).iter();
        let path = things.fold(path.to_owned(), |path, (parameter, name)| {
            path.replace(&format!("{{{parameter}}}"), name)
        });
        path.replace("{project}", "nobody")
            .replace("{registry}", "registry.invalid")
            .replace("{code}", "auth.no_key")
    }

    /// Returns a text without the names of an owner's things.
    pub(super) fn without_names(&self, text: &str, objects: Objects) -> String {
        let names = self.things(objects).values();
        let text = names.fold(text.to_owned(), |text, name| match name.len() {
            // Every text has the letter.
            1 => text.replace(&format!("`{name}`"), "`NAME`"),
            _ => text.replace(name, "NAME"),
        });
        // A problem has an id of its own.
        let mut problem: Value = serde_json::from_str(&text).unwrap_or_default();
        match problem.as_object_mut() {
            Some(members) => {
                members.shift_remove("instance");
                problem.to_string()
            }
            None => text,
        }
    }

    fn things(&self, objects: Objects) -> &Things {
        match objects {
            Objects::Own => &self.own,
            Objects::Others => &self.others,
            Objects::Nobodys => &self.nobodys,
        }
    }
}

/// Returns a body with which a request changes nothing: an empty one, unless that says too little, or
/// too much.
fn body_of(path: &str) -> &'static [u8] {
    if path.ends_with("/audit/holds") {
        // Nothing would be all calls.
        br#"{"since": "never"}"#
    } else if path.ends_with("/tools/call") {
        br#"{"name": "b__echo", "arguments": {"text": "x"}}"#
    } else if path.ends_with("/call") {
        br#"{"method": "tools/list"}"#
    } else if path.contains("/groups/") {
        br#"{"servers": []}"#
    } else {
        b"{}"
    }
}

/// Begins to listen and returns status and code, without waiting for what is told.
fn listened(connection: &mut Connection, key: &str, params: &Value) -> String {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "matrix", "version": "1"},
    });
    let method = Method::SubscriptionsListen.as_str();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let bearer = format!("Bearer {key}");
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Authorization", bearer.as_str()),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", method),
    ];
    let body = body.to_string();
    connection
        .write("POST", "/mcp", &headers, body.as_bytes())
        .unwrap();
    let head = connection.head().unwrap();
    let kind = head.header("content-type").unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        return head.status.to_string();
    }
    let body = connection.body_of(&head).unwrap();
    outcome(Answer { body, ..head })
}
