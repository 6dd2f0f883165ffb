//! The tenant matrix: every route and every MCP method, with every kind of caller, on what is its own
//! project's, another project's, and nobody's. What each gets stands in `tenants/matrix.txt`, made from
//! the list of routes; a route without a row fails, and so does an answer that is another.
//!
//! One gateway serves all of it. What a caller may do is asked for with bodies that do nothing (an empty
//! object, an unknown name), so that nothing changes meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use crate::harness::{Answer, Gantry, LONG, modern};
use gantry_testkit::wait::eventually;

const TABLE: &str = "tests/it/tenants/matrix.txt";

/// Who asks, with the key of each.
const CALLERS: [&str; 11] = [
    "none",
    "agent",
    "other agent",
    "auditor",
    "operator",
    "approver",
    "admin",
    "installation",
    "revoked",
    "expired",
    "suspended",
];

/// The MCP methods that are asked for something of a server.
const METHODS: [(&str, &str); 7] = [
    ("tools/list", "{}"),
    (
        "tools/call",
        r#"{"name": "OWNED__echo", "arguments": {"text": "x"}}"#,
    ),
    ("prompts/get", r#"{"name": "OWNED__nothing"}"#),
    ("resources/read", r#"{"uri": "OWNED://nothing"}"#),
    (
        "completion/complete",
        r#"{"ref": {"type": "ref/prompt", "name": "OWNED__x"}, "argument": {"name": "a", "value": ""}}"#,
    ),
    ("logging/setLevel", r#"{"level": "info"}"#),
    ("tasks/list", "{}"),
];

struct World {
    gantry: Gantry,
    keys: BTreeMap<&'static str, Option<String>>,
}

impl World {
    fn start() -> Self {
        let gantry = Gantry::start(&["a"]);
        let made = gantry.rest("POST", "/api/v1/projects", Some(&json!({"name": "other"})));
        assert_eq!(made.status, 201, "{}", made.text());
        let argv = Evilpeer::new().argv();
        let server = json!({"name": "b", "command": argv[0], "args": argv[1..], "profile": "local",
            "start": "eager"});
        let made = gantry.rest("POST", "/api/v1/projects/other/mcp/servers", Some(&server));
        assert_eq!(made.status, 201, "{}", made.text());
        let state = || {
            gantry
                .rest("GET", "/api/v1/projects/other/mcp/servers/b", None)
                .json()
        };
        assert!(
            eventually(LONG, || state()["state"] == "ready").is_some(),
            "{}",
            state()
        );
        let key = |path: &str, body: &Value| {
            let made = gantry.rest("POST", path, Some(body));
            assert_eq!(made.status, 201, "{}", made.text());
            let made = made.json();
            let text = |name: &str| made[name].as_str().unwrap().to_owned();
            (text("id"), text("key"))
        };
        let agent = |project: &str, name: &str| {
            let path = format!("/api/v1/projects/{project}/agents");
            let body = json!({"name": name, "grant": "all"});
            let made = gantry.rest("POST", &path, Some(&body));
            assert_eq!(made.status, 201, "{}", made.text());
            let body = json!({"kind": "agent", "agent": name});
            key(&format!("/api/v1/projects/{project}/keys"), &body).1
        };
        let role = |role: &str| key("/api/v1/keys", &json!({"kind": "admin", "role": role})).1;
        let (revoked, revoked_key) = key("/api/v1/keys", &json!({"kind": "admin"}));
        let path = format!("/api/v1/keys/{revoked}");
        assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
        let soon = json!({"kind": "admin", "expires_in": 1});
        let keys = [
            ("none", None),
            ("agent", Some(gantry.agent.clone())),
            ("other agent", Some(agent("other", "worker"))),
            ("auditor", Some(role("auditor"))),
            ("operator", Some(role("operator"))),
            ("approver", Some(role("approver"))),
            ("admin", Some(role("admin"))),
            ("installation", Some(gantry.admin.clone())),
            ("revoked", Some(revoked_key)),
            ("expired", Some(key("/api/v1/keys", &soon).1)),
            ("suspended", Some(agent("local", "stopped"))),
        ];
        let body = json!({"kind": "agent", "name": "stopped"});
        let done = gantry.rest("POST", "/api/v1/suspensions", Some(&body));
        assert_eq!(done.status, 200, "{}", done.text());
        Self {
            keys: keys.into_iter().collect(),
            gantry,
        }
    }

    /// Asks one route and returns the answer; of a stream only its head.
    fn ask(&self, caller: &str, method: &str, path: &str) -> Answer {
        let bearer = self.keys[caller]
            .as_ref()
            .map(|key| format!("Bearer {key}"));
        let mut headers = vec![("Accept", "application/json, text/event-stream")];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        let body: &[u8] = match method {
            "POST" | "PUT" | "PATCH" => {
                headers.push(("Content-Type", "application/json"));
                b"{}"
            }
            _ => b"",
        };
        let mut connection = self.gantry.connect();
        connection.write(method, path, &headers, body).unwrap();
        let head = connection.head().unwrap();
        let is_stream = head
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        match is_stream {
            true => head,
            false => {
                let body = connection.body_of(&head).unwrap();
                Answer { body, ..head }
            }
        }
    }

    /// Returns status and code of an answer.
    fn shown(&self, answer: &Answer) -> String {
        let code = match answer.status {
            400.. => serde_json::from_slice::<Value>(&answer.body).unwrap_or_default(),
            _ => Value::Null,
        };
        match code["code"]
            .as_str()
            .or(code["error"]["data"]["code"].as_str())
        {
            // So many wrong keys come from here that the address is told to wait.
            Some("auth.attempts") => "401 auth.wrong_key".to_owned(),
            Some(code) => format!("{} {code}", answer.status),
            None => answer.status.to_string(),
        }
    }

    /// Asks an MCP method for something of a server and returns status and code.
    fn method(&self, caller: &str, method: &str, params: &str) -> String {
        let Some(key) = self.keys[caller].clone() else {
            return self.shown(&self.ask(caller, "POST", "/mcp"));
        };
        let params = serde_json::from_str(params).unwrap();
        let answer = modern(&mut self.gantry.connect(), &key, "/mcp", method, params);
        if answer.status >= 400 {
            return self.shown(&answer);
        }
        let message = answer.message();
        match message["error"]["data"]["code"].as_str() {
            Some(code) => format!("{} {code}", answer.status),
            None => match message["error"]["code"].as_i64() {
                Some(code) => format!("{} {code}", answer.status),
                None => answer.status.to_string(),
            },
        }
    }
}

/// Returns method and path of every route of the REST API, from its committed description.
fn routes() -> Vec<(String, String)> {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document: Value = serde_json::from_str(&fs::read_to_string(text).unwrap()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            routes.push((method.to_uppercase(), path.clone()));
        }
    }
    routes.sort_by(|one, other| (&one.1, &one.0).cmp(&(&other.1, &other.0)));
    routes
}

/// Fills the parameters of a route with what belongs to an owner, so that asking changes nothing.
fn filled(path: &str, method: &str, server: &str) -> String {
    let reads = method == "GET";
    let path = match reads {
        true => path.replace("{server}", server),
        // Whoever may change it is told that it is not there.
        false => path.replace("{server}", "nothing"),
    };
    path.replace("{agent}", "nobody")
        .replace("{key}", "key_00000000000000000000000000000000")
        .replace("{call}", "call_00000000000000000000000000000000")
        .replace("{project}", "nobody")
        .replace("{grant}", "grant_00000000000000000000000000000000")
        .replace("{group}", "nobody")
        .replace("{registration}", "none")
        .replace("{product}", "nobody")
        .replace("{code}", "auth.no_key")
}

/// Groups the callers that get the same, in the order of the list.
fn grouped(answers: &[(&'static str, String)]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (caller, answer) in answers {
        match groups.iter_mut().find(|(known, _)| known == answer) {
            Some((_, callers)) => callers.push(caller),
            None => groups.push((answer.clone(), vec![caller])),
        }
    }
    let groups = groups
        .into_iter()
        .map(|(answer, callers)| format!("    {answer}: {}", callers.join(", ")));
    groups.collect::<Vec<_>>().join("\n")
}

// rows 3.2, faults T1, T2, T8, U3, U4
#[test]
fn every_route_and_method_answers_each_caller_as_the_table_says() {
    let world = World::start();
    let mut table = String::from(
        "# What each kind of caller gets, by route and owner. Generated: compare with\n\
         # `target/tenant-matrix.txt` after `tenants::` has failed, and copy it if it is right.\n",
    );
    for (method, path) in routes() {
        // Signing out and codes of sessions are the caller's own; the welcome pages are public.
        let own = filled(&path, &method, "a");
        let answers =
            CALLERS.map(|caller| (caller, world.shown(&world.ask(caller, &method, &own))));
        table.push_str(&format!("{method} {path}\n  own\n{}\n", grouped(&answers)));
        let Some(rest) = path.strip_prefix("/api/v1/") else {
            continue;
        };
        let is_scoped = !["projects", "session", "openapi.json", "docs"]
            .iter()
            .any(|noun| rest == *noun || rest.starts_with(&format!("{noun}/")));
        if !is_scoped {
            continue;
        }
        // In another project, and in one that is not there: the same but for its name.
        let answers = CALLERS.map(|caller| {
            let [other, nobody] = ["other", "nobody"].map(|project| {
                let path = format!("/api/v1/projects/{project}/{rest}");
                let path = filled(&path, &method, "b");
                let answer = world.ask(caller, &method, &path);
                let text = String::from_utf8_lossy(&answer.body).replace(project, "PROJECT");
                match world.shown(&answer) {
                    // Wrong keys are counted, whatever they are for.
                    wrong if wrong.starts_with("401") => (wrong, String::new()),
                    shown => (shown, text),
                }
            });
            if caller != "installation" && caller != "other agent" {
                assert_eq!(other, nobody, "{caller}: {method} {path}");
            }
            (caller, other.0)
        });
        table.push_str(&format!("  another project's\n{}\n", grouped(&answers)));
    }
    for (method, params) in METHODS {
        for (owner, server) in [("own", "a"), ("another project's", "b"), ("nobody's", "zz")] {
            let params = params.replace("OWNED", server);
            let answers = CALLERS.map(|caller| (caller, world.method(caller, method, &params)));
            if owner == "own" {
                table.push_str(&format!("MCP {method}\n"));
            }
            table.push_str(&format!("  {owner}\n{}\n", grouped(&answers)));
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let committed = fs::read_to_string(&file).unwrap_or_default();
    if committed != table {
        let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tenant-matrix.txt");
        fs::write(&made, &table).unwrap();
        let mut lines = table.lines().zip(committed.lines());
        let first = lines.find(|(now, then)| now != then);
        panic!("the matrix is another: {first:?}; compare {TABLE} with target/tenant-matrix.txt");
    }
}
