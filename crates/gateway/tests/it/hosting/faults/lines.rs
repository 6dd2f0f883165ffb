//! The table of faults S1 to S21: what the server does, what its callers are told, and what else holds.

use std::time::Duration;

use gantry_testkit::proof;
use serde_json::{Value, json};

use super::super::Rig;
use super::{Reply, SECOND, call};
use crate::harness::modern;

/// The most that a line may have.
const LIMIT: u64 = 8 << 20;
/// How many calls are made at once.
const CALLS: usize = 4;
/// What is counted in the audit.
type Audited = (usize, &'static str, Option<&'static str>);

/// What the callers are told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends {
    /// Their own text.
    Echo,
    /// JSON-RPC code, code, and words of the message.
    Fails(i64, &'static str, &'static str),
    /// That it did not answer in its time.
    Timeout(Duration),
    /// That it is down, which the words say why; it was never ready.
    NeverReady(&'static str),
}

impl Ends {
    /// Returns what the audit says of such a call.
    pub(super) fn audited(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Echo => ("ok", None),
            Self::Fails(_, code, _) => ("error", Some(code)),
            Self::Timeout(_) => ("timeout", Some("call.timeout")),
            Self::NeverReady(_) => ("error", Some("server.down")),
        }
    }

    /// Asserts that a reply is such a one, in its time.
    pub(super) fn check(self, reply: &Reply, text: &str) {
        let most = match self {
            Self::Echo => assert_eq_text(reply, text),
            Self::Fails(code, name, words) => {
                reply.fails(code, name, words);
                5 * SECOND
            }
            Self::Timeout(after) => {
                reply.fails(-31504, "call.timeout", "did not answer within");
                after + 2 * SECOND
            }
            Self::NeverReady(words) => {
                reply.fails(-31503, "server.down", words);
                2 * SECOND
            }
        };
        assert!(reply.cost <= most, "{:?}: {:#}", reply.cost, reply.answer);
    }
}

fn assert_eq_text(reply: &Reply, text: &str) -> Duration {
    assert_eq!(reply.text(), text, "{:#}", reply.answer);
    3 * SECOND
}

/// One fault.
pub(super) struct Row {
    /// Its name in `docs/faults.md`.
    pub(super) id: &'static str,
    /// Arguments of the server.
    pub(super) peer: Vec<&'static str>,
    /// Members of its registration.
    pub(super) members: Value,
    pub(super) calls: usize,
    pub(super) tool: &'static str,
    /// Arguments of the tool, beside a text of each call.
    pub(super) arguments: Value,
    pub(super) ends: Ends,
    /// What its status says in the end.
    pub(super) shown: fn(&Value) -> bool,
    /// What is done after that; returns what the audit has for it.
    pub(super) after: fn(&Rig, &str) -> Vec<Audited>,
    /// Whether it is enough to try it with the host's kernel: the same fault has another row.
    is_variant: bool,
}

impl Row {
    fn new(id: &'static str, fault: &'static str, ends: Ends) -> Self {
        Self {
            id,
            peer: match fault {
                "" => Vec::new(),
                _ => vec!["--fault", fault],
            },
            members: json!({"concurrency": 2 * CALLS, "timeout": "30s", "late_grace": "300ms"}),
            calls: CALLS,
            tool: "echo",
            arguments: json!({}),
            ends,
            shown: unharmed,
            after: |_, _| Vec::new(),
            is_variant: false,
        }
    }

    /// Whether it is tried on a rung.
    pub(super) fn is_for(&self, rung: &str) -> bool {
        rung != "gvisor" || !self.is_variant || proof::is_full()
    }

    fn peer(mut self, words: &[&'static str]) -> Self {
        self.peer.extend(words);
        self
    }

    fn members(mut self, more: Value) -> Self {
        for (key, value) in more.as_object().unwrap() {
            self.members[key] = value.clone();
        }
        self
    }

    /// Makes one call with these arguments instead of several echoes.
    fn once(mut self, tool: &'static str, arguments: Value) -> Self {
        (self.calls, self.tool, self.arguments) = (1, tool, arguments);
        self
    }

    fn shown(mut self, shown: fn(&Value) -> bool) -> Self {
        self.shown = shown;
        self
    }

    fn after(mut self, after: fn(&Rig, &str) -> Vec<Audited>) -> Self {
        self.after = after;
        self
    }

    fn variant(mut self) -> Self {
        self.is_variant = true;
        self
    }
}

fn unharmed(now: &Value) -> bool {
    now["state"] == "ready" && now["restart_count"] == 0
}

fn restarted(now: &Value) -> bool {
    now["state"] == "ready" && now["restart_count"] == 1
}

fn noisy(now: &Value) -> bool {
    unharmed(now) && now["noise"]["lines"].as_u64() >= Some(CALLS as u64)
}

fn protocol(words: &'static str) -> Ends {
    Ends::Fails(-31502, "server.protocol", words)
}

fn echoes(rig: &Rig, server: &str) -> Vec<Audited> {
    Ends::Echo.check(
        &call(rig, server, "echo", json!({"text": "again"})),
        "again",
    );
    vec![(1, "ok", None)]
}

/// Members by which a server that ends stays down.
fn stays_down() -> Value {
    json!({"restart": {"at_once": 0, "window": "1m", "ladder": ["1m"], "reset_after": "10m"}})
}

/// Members by which calls are given up soon.
fn hasty() -> Value {
    json!({"timeout": "2s"})
}

/// Returns the table.
pub(super) fn rows() -> Vec<Row> {
    let timeout = Ends::Timeout(2 * SECOND);
    let exited = |how| Ends::Fails(-31502, "server.exited", how);
    let mut rows = framing(exited);
    rows.extend(envelopes(timeout));
    rows.extend(silence(timeout));
    rows.extend(loud());
    rows.extend(half_dead(exited));
    rows.extend(starts());
    rows
}

// faults S1, S2, S3, S4 and S21
fn framing(exited: impl Fn(&'static str) -> Ends) -> Vec<Row> {
    let too_large = Ends::Fails(-31502, "server.response_too_large", "over 8 MiB");
    vec![
        Row::new("S1", "noise", Ends::Echo).shown(noisy),
        Row::new(
            "S1",
            "noise=flood",
            Ends::NeverReady("wrote over 1 MiB a second to stdout"),
        )
        .members(stays_down())
        .shown(is_down)
        .variant(),
        Row::new(
            "S2",
            "flood-noline=trigger",
            exited("wrote a line over 8 MiB that is not a message"),
        )
        .once("trigger", json!({}))
        .members(stays_down())
        .shown(is_down),
        Row::new("S3", "", too_large)
            .once("big_line", json!({"bytes": LIMIT + 1}))
            .after(echoes),
        Row::new("S4", "chunk=1", Ends::Echo),
        Row::new("S4", "crlf", Ends::Echo).variant(),
        Row::new("S4", "burst=1000", Ends::Echo).variant(),
        Row::new("S4", "no-final-newline", Ends::Echo)
            .once("echo", json!({}))
            .shown(restarted)
            .variant(),
        Row::new("S21", "newline-result=cr", Ends::Echo).after(hidden_request),
        Row::new("S21", "newline-result=spaces", Ends::Echo).variant(),
    ]
}

// faults S5, S6, S7, S8 and S9
fn envelopes(timeout: Ends) -> Vec<Row> {
    vec![
        Row::new("S5", "garbage=invalid-utf8", Ends::Echo).shown(noisy),
        Row::new("S5", "garbage=reply-nul", protocol(" at byte ")).variant(),
        Row::new(
            "S5",
            "garbage=reply-deep",
            protocol("nested deeper than 64 levels"),
        )
        .variant(),
        Row::new("S6", "dupkeys=result", protocol("duplicate key `content`")),
        Row::new("S6", "dupkeys=envelope", timeout)
            .members(hasty())
            .variant(),
        Row::new("S6", "unknown-member", protocol("unknown member `vendor`")).variant(),
        Row::new("S7", "both", protocol("both `result` and `error`")),
        Row::new(
            "S7",
            "neither",
            protocol("one of `method`, `result` and `error`"),
        )
        .variant(),
        Row::new("S7", "batch", protocol("batches are not accepted")).variant(),
        Row::new("S8", "huge-id", timeout).members(hasty()),
        Row::new("S8", "string-id", Ends::Echo).variant(),
        Row::new("S9", "unknown-id=5", Ends::Echo)
            .shown(|now| now["late_replies"].as_u64() >= Some(5 * CALLS as u64)),
        Row::new("S9", "twice", Ends::Echo)
            .shown(|now| now["late_replies"].as_u64() >= Some(CALLS as u64))
            .variant(),
        Row::new("S9", "late=4000", timeout)
            .peer(&["--fault-calls", "1"])
            .once("echo", json!({}))
            .members(hasty())
            .after(late_answer)
            .variant(),
        Row::new("S10", "shuffle=4", Ends::Echo),
    ]
}

// faults S11, S12 and S13
fn silence(timeout: Ends) -> Vec<Row> {
    vec![
        Row::new("S11", "hang", timeout)
            .peer(&["--fault-calls", "1"])
            .once("echo", json!({}))
            .members(hasty())
            .after(echoes),
        Row::new("S12", "progress-forever=50", Ends::Timeout(4 * SECOND))
            .peer(&["--fault-calls", "1"])
            .once("echo", json!({}))
            .members(json!({"timeout": "2s", "timeout_max": "4s"}))
            .after(echoes),
        Row::new("S12", "drip=200", timeout)
            .members(hasty())
            .variant(),
        Row::new("S13", "no-read=call", Ends::Echo)
            .once("echo", json!({}))
            .after(stopped_reading),
    ]
}

// faults S14, S15 and S16
fn loud() -> Vec<Row> {
    vec![
        Row::new("S14", "storm=message", Ends::Echo),
        Row::new("S14", "storm=list_changed", Ends::Echo).variant(),
        Row::new("S15", "requests=all", Ends::Echo)
            .shown(|now| unharmed(now) && now["refused_requests"] == 4),
        Row::new("S15", "requests=flood", Ends::Echo).variant(),
        Row::new("S16", "stderr-flood=8", Ends::Echo).after(small_log),
        Row::new("S16", "stderr-escapes", Ends::Echo)
            .after(harmless_log)
            .variant(),
    ]
}

// fault S17
fn half_dead(exited: impl Fn(&'static str) -> Ends) -> Vec<Row> {
    let closed = exited("closed its stdout without ending, and was killed");
    let row = |fault, ends| {
        let row = Row::new("S17", fault, ends).once("echo", json!({}));
        row.shown(restarted)
    };
    vec![
        row("close-stdout=call", closed),
        row("close-stdin=call", Ends::Echo),
        Row::new("S17", "exit-after-reply", Ends::Echo)
            .once("echo", json!({}))
            .shown(restarted),
    ]
}

// faults S18, S19 and S20
fn starts() -> Vec<Row> {
    let never = |fault, words| {
        let brief = json!({"handshake_timeout": "4s"});
        let row = Row::new("S18", fault, Ends::NeverReady(words));
        row.members(stays_down()).members(brief).shown(is_down)
    };
    vec![
        never("init-hang", "did not answer"),
        never("init-error", "no licence key found").variant(),
        never("init-garbage", "expected").variant(),
        never("init-wrong-version", "1999-01-01").variant(),
        Row::new("S19", "list-loop", Ends::Echo),
        Row::new("S19", "list-bigdesc=300000", Ends::Echo)
            .shown(|now| left_out(now, "verbose", "256 KiB"))
            .variant(),
        Row::new("S19", "list-badschema", Ends::Echo)
            .shown(|now| left_out(now, "bad_type", ""))
            .variant(),
        Row::new("S19", "list-dup", Ends::Echo)
            .shown(|now| left_out(now, "echo", "listed before"))
            .variant(),
        Row::new("S20", "echo", Ends::NeverReady("echoes what it is sent"))
            .members(stays_down())
            .shown(is_down),
    ]
}

fn is_down(now: &Value) -> bool {
    now["pid"].is_null() && (now["state"] == "failed" || now["state"] == "backing_off")
}

fn left_out(now: &Value, tool: &str, why: &str) -> bool {
    let told = now["excluded"].as_array().into_iter().flatten();
    let mut told = told.filter(|one| one["tool"] == tool);
    told.any(|one| {
        one["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains(why))
    })
}

/// Calls while the answer to a call that is over comes, which must reach nobody.
fn late_answer(rig: &Rig, server: &str) -> Vec<Audited> {
    let late = |now: &Value| now["late_replies"].as_u64() >= Some(1);
    let mut calls = 0;
    while !late(&rig.gantry.status(server)) {
        assert!(calls < 100, "it never came");
        let text = format!("later {calls}");
        let reply = call(rig, server, "echo", json!({"text": text, "delay_ms": 200}));
        Ends::Echo.check(&reply, &text);
        calls += 1;
    }
    vec![(calls, "ok", None)]
}

/// Sends more than a pipe holds to a server that does not read.
fn stopped_reading(rig: &Rig, server: &str) -> Vec<Audited> {
    let big = json!({"text": "x".repeat(300 << 10)});
    let reply = call(rig, server, "echo", big);
    reply.fails(
        -31502,
        "server.not_reading",
        "has stopped reading its input",
    );
    assert!(reply.cost <= 9 * SECOND, "{:?}", reply.cost);
    let next = call(rig, server, "echo", json!({"text": "x"}));
    next.fails(
        -31502,
        "server.not_reading",
        "has stopped reading its input",
    );
    assert!(next.cost <= 2 * SECOND, "{:?}", next.cost);
    vec![(2, "error", Some("server.not_reading"))]
}

/// Hides a request behind a line break between two tokens: it stays part of its message.
fn hidden_request(rig: &Rig, server: &str) -> Vec<Audited> {
    let hidden = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"crash"}}"#;
    let name = format!("{server}__mirror");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = format!(
        "{{\"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"{name}\",\
         \"_meta\":{meta},\"arguments\":{{\"x\":\r\n{hidden}\n}}}}}}"
    );
    let bearer = format!("Bearer {}", rig.gantry.agent);
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Authorization", &bearer),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", &name),
    ];
    let mut connection = rig.gantry.connect();
    let answer = connection.request("POST", "/mcp", &headers, body.as_bytes());
    let answer = answer.unwrap().message();
    let seen = answer["result"]["content"][0]["text"].as_str();
    let seen = seen.unwrap_or_else(|| panic!("{answer:#}"));
    assert!(!seen.contains(['\n', '\r']), "{seen:?}");
    let seen: Value = serde_json::from_str(seen).unwrap();
    let sent: Value = serde_json::from_str(hidden).unwrap();
    assert_eq!(seen["arguments"]["x"], sent);
    assert!(unharmed(&rig.gantry.status(server)));
    vec![(1, "ok", None)]
}

fn log(rig: &Rig, server: &str) -> Vec<String> {
    let path = format!("/api/v1/mcp/servers/{server}/logs?lines=10000");
    let logs = rig.gantry.rest("GET", &path, None).json();
    let lines = logs["items"].as_array().unwrap().iter();
    let lines = lines.filter(|line| line["stream"] == "stderr");
    let text = lines.filter_map(|line| line["text"].as_str());
    text.map(str::to_owned).collect()
}

fn small_log(rig: &Rig, server: &str) -> Vec<Audited> {
    let kept: usize = log(rig, server).iter().map(String::len).sum();
    assert!((1..=64 << 10).contains(&kept), "{kept} bytes kept");
    Vec::new()
}

fn harmless_log(rig: &Rig, server: &str) -> Vec<Audited> {
    let lines = log(rig, server);
    assert!(
        lines.iter().any(|line| line.contains("fake prompt$")),
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.contains(char::is_control)),
        "{lines:?}"
    );
    Vec::new()
}

/// Makes one call of a row; every call carries a token for progress.
pub(super) fn make(rig: &Rig, server: &str, row: &Row, text: &str) -> Reply {
    let mut arguments = row.arguments.clone();
    if row.tool == "echo" {
        arguments["text"] = json!(text);
    }
    let watch = gantry_testkit::wait::Stopwatch::start();
    let params = json!({
        "name": format!("{server}__{}", row.tool),
        "arguments": arguments,
        "_meta": {"progressToken": text},
    });
    let mut connection = rig.gantry.connect();
    let agent = &rig.gantry.agent;
    let answer = modern(&mut connection, agent, "/mcp", "tools/call", params);
    Reply {
        answer: answer.message(),
        cost: watch.elapsed(),
    }
}
