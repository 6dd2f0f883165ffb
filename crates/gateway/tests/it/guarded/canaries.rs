//! Two hundred secrets that a server echoes everywhere, in twelve encodings: none is found in anything that
//! the gateway says, writes or keeps; and texts that only look like them pass unaltered. faults K3 and K4

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use gantry_testkit::otlp::{OtlpReceiver, ReceiverMood};
use gantry_testkit::wait::eventually;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::Scripted;
use crate::harness::{Gantry, LONG, on_postgresql};

const CANARIES: usize = 200;
/// Parts of secrets that are looked for; of so many random letters no other text has them.
const PART: usize = 12;

/// Returns a value of random letters and of signs that every encoding writes differently.
fn canary(number: usize) -> String {
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut letters = |count: usize| -> String {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let next = (0..count).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(alphabet[(state >> 33) as usize % alphabet.len()])
        });
        next.collect()
    };
    format!("{}/\"{}", letters(20), letters(20))
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn url(text: &str) -> String {
    text.replace('/', "%2F").replace('"', "%22")
}

fn escaped(text: &str) -> String {
    let quoted = json!(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Returns a value in twelve encodings, as texts that are put into JSON strings.
fn encodings(value: &str) -> Vec<String> {
    let behind = |count: usize| format!("{}{value}.", "x".repeat(count));
    vec![
        value.to_owned(),
        STANDARD.encode(behind(0)),
        STANDARD.encode(behind(1)),
        STANDARD.encode(behind(2)),
        URL_SAFE.encode(behind(3)),
        URL_SAFE.encode(behind(4)),
        URL_SAFE.encode(behind(5)),
        url(value),
        url(value).replace("%2F", "%2f"),
        escaped(value),
        hex(value),
        hex(value).to_uppercase(),
    ]
}

/// What no place may have: the middle of each encoding, where no look-alike is the same.
struct Parts {
    all: HashSet<[u8; PART]>,
    /// Which two bytes any of them begins with: most of a long file is looked at no further.
    beginnings: Vec<bool>,
}

impl Parts {
    fn has(&self, window: &[u8]) -> bool {
        let beginning = usize::from(window[0]) << 8 | usize::from(window[1]);
        self.beginnings[beginning] && self.all.contains(window)
    }
}

fn parts(values: &[String]) -> Parts {
    let texts = values.iter().flat_map(|value| encodings(value));
    let parts = texts.map(|text| {
        let start = text.len() / 2 - PART / 2;
        text.as_bytes()[start..start + PART].try_into().unwrap()
    });
    let all: HashSet<[u8; PART]> = parts.collect();
    let mut beginnings = vec![false; 1 << 16];
    for part in &all {
        beginnings[usize::from(part[0]) << 8 | usize::from(part[1])] = true;
    }
    Parts { all, beginnings }
}

fn assert_clean(place: &str, bytes: &[u8], parts: &Parts) {
    let windows = bytes.windows(PART).enumerate();
    for (at, window) in windows {
        if parts.has(window) {
            let around = &bytes[at.saturating_sub(80)..(at + 80).min(bytes.len())];
            panic!("{place} has a secret: {}", String::from_utf8_lossy(around));
        }
    }
}

/// Looks through every file of a folder.
fn assert_files_clean(folder: &Path, parts: &Parts) {
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        assert!(
            !path.to_string_lossy().contains("/core"),
            "{}",
            path.display()
        );
        if path.is_dir() {
            assert_files_clean(&path, parts);
        } else if let Ok(bytes) = fs::read(&path) {
            assert_clean(&path.display().to_string(), &bytes, parts);
        }
    }
}

/// Texts that look like secrets, or like parts or encodings of some, and are none.
fn look_alikes(values: &[String]) -> Vec<String> {
    let own = values.iter().take(8).flat_map(|value| {
        let reversed: String = value.chars().rev().collect();
        [
            value[..19].to_owned(),
            reversed,
            value.to_lowercase(),
            value.replace('/', "-"),
        ]
    });
    let others = [
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB",
        "${CANARY_1} \\u0022 \\/ %2F%22 [redacted]",
        "password=hunter2&token=none",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    ];
    own.chain(others.map(str::to_owned)).collect()
}

// faults K3, K4, K8
#[test]
fn two_hundred_canaries_in_twelve_encodings_are_found_nowhere() {
    let values: Vec<String> = (0..CANARIES).map(canary).collect();
    let parts = parts(&values);
    let all: Vec<String> = values.iter().flat_map(|value| encodings(value)).collect();
    let spread = |from: usize| -> Vec<&String> { all.iter().skip(from).step_by(7).collect() };
    let server = Scripted::new();
    server.greets(&json!({"instructions": spread(0)[..40].iter().map(|text| text.as_str()).collect::<Vec<_>>().join(" ")}));
    let schema =
        json!({"type": "object", "properties": {"x": {"enum": spread(1), "description": all[5]}}});
    server.answers(
        "tools/list",
        &json!({"tools": [
        {"name": "leak", "description": all.join("|"), "inputSchema": schema}]}),
    );
    server.answers(
        "prompts/list",
        &json!({"prompts": [{"name": "p", "description": all[300..340].join(" "), "title": all[24]}]}),
    );
    let resources =
        json!([{"uri": "file:///r", "name": "r", "description": all[100..140].join(" ")}]);
    server.answers("resources/list", &json!({"resources": resources}));
    server.answers(
        "resources/templates/list",
        &json!({"resourceTemplates": []}),
    );
    let contents = json!([{"uri": "file:///r", "text": all[..600].join("\n")},
        {"uri": "file:///r", "blob": STANDARD.encode(values[..20].join(" "))}]);
    server.answers("resources/read", &json!({"contents": contents}));
    let content = json!([{"type": "text", "text": all.join("\n")}]);
    server.answers(
        "tools/call",
        &json!({"content": content, "structuredContent": {"all": all, "n": 12_345_678}}),
    );
    let stderr: String = all
        .iter()
        .map(|text| format!("said {text} once\n"))
        .collect();
    server.write("stderr", &stderr);
    let notes: String = spread(3)
        .iter()
        .map(|text| {
            let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
            "params": {"level": "error", "logger": text, "data": {"said": text}}});
            format!("{note}\n")
        })
        .collect();
    server.write("before_tools_call", &notes);

    let receiver = OtlpReceiver::start(ReceiverMood::Takes);
    let gantry = Gantry::builder()
        .flags(&["--log", "trace", "--otlp", &receiver.url()])
        .under(&["sh", "-c", "ulimit -c unlimited && exec \"$@\"", "sh"])
        .start();
    let traces = json!({"traces": "bodies"});
    let set = gantry.rest("PATCH", "/api/v1/settings", Some(&traces));
    assert_eq!(set.status, 200, "{}", set.text());
    let names = || (0..CANARIES).map(|number| format!("CANARY_{number}"));
    let env: serde_json::Map<String, Value> = names()
        .map(|name| (name.clone(), format!("${{{name}}}").into()))
        .collect();
    let mut body = server.body("a", &env.into());
    body["start"] = "lazy".into();
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    for (name, value) in names().zip(&values) {
        let set = json!({"value": value, "servers": ["a"]});
        let set = gantry.rest("PUT", &format!("/api/v1/secrets/{name}"), Some(&set));
        assert_eq!(set.status, 201, "{}", set.text());
        assert_clean("the answer to a secret", set.text().as_bytes(), &parts);
    }
    // Results, definitions, progress, resources and errors.
    let mut session = gantry.initialize();
    let mut said = vec![session.hello.to_string()];
    for method in ["tools/list", "prompts/list", "resources/list"] {
        said.push(session.request(method, json!({})).to_string());
    }
    let called = gantry.call("a__leak", json!({}));
    let count = called["result"]["_meta"]["io.gantry/redacted"].as_u64();
    assert!(
        count >= Some(2 * all.len() as u64),
        "{count:?}: {}",
        called["error"]
    );
    assert_eq!(called["result"]["structuredContent"]["n"], 12_345_678);
    said.push(called.to_string());
    said.push(
        session
            .send("tools/call", json!({"name": "a__leak", "arguments": {}}))
            .text(),
    );
    said.push(
        gantry
            .mcp("resources/read", json!({"uri": "file:///r"}))
            .to_string(),
    );
    server.fails(
        "tools/call",
        &json!({"code": 7, "message": all.join(" "), "data": {"why": all}}),
    );
    let failed = gantry.call("a__leak", json!({}));
    assert!(failed["error"].is_object(), "{failed:#}");
    said.push(failed.to_string());
    // Logs, events, metrics, the record of calls and of acts.
    let logs = || {
        gantry
            .rest("GET", "/api/v1/mcp/servers/a/logs?lines=1000", None)
            .text()
    };
    assert!(
        eventually(LONG, || logs().contains("[redacted]")).is_some(),
        "{}",
        logs()
    );
    gantry.events("a", "secrets_used", 1);
    for path in [
        "/api/v1/mcp/servers/a",
        "/api/v1/mcp/servers/a/logs?lines=1000",
        "/api/v1/mcp/servers/a/events?limit=1000",
        "/api/v1/mcp/servers/a/tools",
        "/api/v1/tools",
        "/api/v1/acts?limit=1000",
        "/api/v1/calls?limit=1000",
        "/api/v1/secrets",
        "/api/v1/health",
        "/metrics",
        "/api/v1/keys",
        "/api/v1/agents",
    ] {
        said.push(gantry.rest("GET", path, None).text());
    }
    let rows = gantry.audit_rows("server=a");
    assert!(rows.len() >= 3, "{rows:#?}");
    for row in rows {
        let path = format!("/api/v1/calls/{}", row["id"].as_str().unwrap());
        said.push(gantry.rest("GET", &path, None).text());
    }
    for (place, said) in said.iter().enumerate() {
        assert_clean(&format!("answer {place}"), said.as_bytes(), &parts);
    }
    // What is exported of the calls, with their arguments and results.
    receiver.wait_spans(LONG, |spans| spans.len() >= 3);
    for export in receiver.exports() {
        assert_clean("exported spans", &export.body, &parts);
    }
    assert_clean("stdout", gantry.stdout().as_bytes(), &parts);
    assert_clean("the log at level trace", gantry.stderr().as_bytes(), &parts);
    for process in fs::read_dir("/proc").unwrap() {
        let path = process.unwrap().path().join("cmdline");
        let bytes = fs::read(&path).unwrap_or_default();
        assert_clean(&path.display().to_string(), &bytes, &parts);
    }
    // Look-alikes pass byte for byte.
    fs::remove_file(server.path().join("error_tools_call")).unwrap();
    let texts = look_alikes(&values);
    assert_eq!(texts.len(), 40);
    let result = json!({"content": texts.iter().map(|text| json!({"type": "text", "text": text})).collect::<Vec<_>>(),
        "structuredContent": {"n": 1e300, "k": {"a": [null, true, 0.1]}}});
    server.answers("tools/call", &result);
    let passed = gantry.call("a__leak", json!({}));
    let mut passed = passed["result"].clone();
    passed.as_object_mut().unwrap().shift_remove("_meta");
    passed.as_object_mut().unwrap().shift_remove("resultType");
    assert_eq!(passed.to_string(), result.to_string(), "unaltered");
    let assert_kept_clean = |gantry: &Gantry| {
        assert_files_clean(gantry.data().parent().unwrap(), &parts);
        for (place, bytes) in gantry.at_rest() {
            assert_clean(&place, &bytes, &parts);
        }
        assert_clean("a backup", &gantry.backup(), &parts);
    };
    assert_kept_clean(&gantry);
    // Nothing is left after they are gone, in the database, its log or a copy.
    assert_eq!(
        gantry.rest("DELETE", "/api/v1/mcp/servers/a", None).status,
        204
    );
    for name in names() {
        let gone = gantry.rest("DELETE", &format!("/api/v1/secrets/{name}"), None);
        assert_eq!(gone.status, 204);
    }
    // It ends as by a fault of its own, and leaves no core though its starter allows one.
    let mut gantry = gantry;
    gantry.signal(Signal::ABORT);
    assert_eq!(gantry.wait(LONG), None, "a signal ended it");
    assert_kept_clean(&gantry);
}

// faults K3, K4, K8
#[test]
fn two_hundred_canaries_in_twelve_encodings_are_found_nowhere_on_postgresql() {
    on_postgresql(two_hundred_canaries_in_twelve_encodings_are_found_nowhere);
}
