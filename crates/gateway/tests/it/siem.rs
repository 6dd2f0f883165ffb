//! The push of calls and administrative acts to a SIEM: a receiver that takes messages apart by itself
//! gets each of them, also over cuts and kills, and no call waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::cut::Cut;
use gantry_testkit::otlp::{OtlpReceiver, ReceiverMood};
use gantry_testkit::syslog::{SyslogMessage, SyslogReceiver};
use gantry_testkit::wait::{Stopwatch, eventually};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::harness::{Builder, Gantry, LONG, on_postgresql};

const AUTHORITY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/upstream/tls/authority.pem"
);

fn pushing(url: &str) -> Builder {
    Gantry::builder()
        .server("a", &Evilpeer::new())
        .flags(&["--siem", url])
}

fn started(url: &str) -> Gantry {
    let gantry = pushing(url).start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

fn echo(gantry: &Gantry, text: &str) {
    let begun = Stopwatch::start();
    let answer = gantry.call("a__echo", json!({"text": text}));
    assert_eq!(answer["result"]["content"][0]["text"], text);
    assert!(begun.elapsed() < Duration::from_secs(3), "calls never wait");
}

/// Returns the ids of the calls among messages, each with how often it came.
fn calls(messages: &[SyslogMessage]) -> BTreeMap<String, usize> {
    let mut ids = BTreeMap::new();
    for message in messages.iter().filter(|message| message.kind == "call") {
        *ids.entry(message.value("id").to_owned()).or_default() += 1;
    }
    ids
}

fn recorded(gantry: &Gantry) -> BTreeSet<String> {
    let rows = gantry.audit_rows("");
    let ids = rows
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned());
    ids.collect()
}

fn has_all(messages: &[SyslogMessage], ids: &BTreeSet<String>) -> bool {
    let calls = calls(messages);
    ids.iter().all(|id| calls.contains_key(id))
}

fn export(gantry: &Gantry) -> Value {
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    health["exports"][0].clone()
}

/// Returns the one message of an act.
fn act<'m>(messages: &'m [SyslogMessage], name: &str) -> &'m SyslogMessage {
    let mut found = messages
        .iter()
        .filter(|message| message.kind == "act" && message.value("act") == name);
    let (first, second) = (found.next(), found.next());
    assert!(second.is_none(), "{name} twice: {messages:#?}");
    first.unwrap_or_else(|| panic!("no {name} in {messages:#?}"))
}

// row 3.5
#[test]
fn calls_and_acts_reach_a_syslog_receiver_over_tcp() {
    let receiver = SyslogReceiver::tcp();
    reaches(&receiver, "tcp");
}

// row 3.5
#[test]
fn calls_and_acts_reach_a_syslog_receiver_over_udp() {
    let receiver = SyslogReceiver::udp();
    reaches(&receiver, "udp");
}

// row 3.5
#[test]
fn calls_and_acts_on_postgresql_reach_a_syslog_receiver() {
    on_postgresql(|| reaches(&SyslogReceiver::tcp(), "tcp"));
}

fn reaches(receiver: &SyslogReceiver, transport: &str) {
    let url = format!("syslog+{transport}://127.0.0.1:{}", receiver.port());
    let mut gantry = started(&url);
    echo(&gantry, "canary-of-a-body é");
    gantry.call("a__fail", json!({"message": "nö"}));
    gantry.call("a__nothing", json!({}));
    let changed = gantry.rest("PATCH", "/api/v1/settings", Some(&json!({"traces": "off"})));
    assert_eq!(changed.status, 200);
    let refused = gantry.rest_as(&gantry.agent, "DELETE", "/api/v1/agents/nobody", None);
    assert_eq!(refused.status, 403);
    let rows = gantry.audit_rows("");
    assert_eq!(rows.len(), 3);
    assert_eq!(gantry.stop(), Some(0));
    // What was left is sent before the end, the end itself included.
    let messages = receiver.messages();
    assert_eq!(calls(&messages).len(), rows.len(), "{messages:#?}");
    for row in &rows {
        let of_row = |message: &&SyslogMessage| message.value("id") == row["id"];
        let told: Vec<_> = messages.iter().filter(of_row).collect();
        let [told] = told.as_slice() else {
            panic!("{row:#}: {messages:#?}");
        };
        for name in [
            "status",
            "project",
            "agent",
            "key",
            "server",
            "tool",
            "method",
            "code",
            "trace",
            "error_kind",
            "surface",
        ] {
            let said = row[name].as_str().filter(|text| !text.is_empty());
            assert_eq!(told.event[name].as_str(), said, "{name} of {row:#}");
        }
        assert_eq!(told.event["duration_us"], row["duration_us"]);
        assert_eq!(
            (told.value("ended"), &told.time[23..]),
            (told.time.as_str(), "Z")
        );
        // The facility of audit logs, and how severe it is.
        let severity = if row["status"] == "ok" { 6 } else { 4 };
        assert_eq!(told.priority, 13 * 8 + severity, "{told:?}");
        assert_eq!(told.app, "gantry");
        assert!(
            told.data.contains("[origin software=\"gantry\""),
            "{told:?}"
        );
    }
    let change = act(&messages, "settings.change");
    assert_eq!(change.value("outcome"), "done");
    assert_eq!(change.event["after"]["traces"], "off", "{change:?}");
    assert_eq!(act(&messages, "agent.remove").value("outcome"), "refused");
    act(&messages, "gateway.start");
    act(&messages, "gateway.stop");
    let all = format!("{messages:?}");
    for secret in ["canary-of-a-body", &gantry.agent, &gantry.admin] {
        assert!(!all.contains(secret), "{secret}");
    }
}

// row 3.5: nothing is lost over a cut, a receiver that does not read, and a kill.
#[test]
fn what_a_receiver_missed_is_sent_again() {
    let receiver = SyslogReceiver::tcp();
    let cut = Cut::to(receiver.port());
    let mut gantry = started(&format!("syslog+tcp://127.0.0.1:{}", cut.port()));
    echo(&gantry, "before");
    receiver.wait(LONG, |messages| calls(messages).len() == 1);
    cut.cut();
    for _ in 0..5 {
        echo(&gantry, "during");
    }
    let has_failed = || export(&gantry)["error"].is_string();
    assert!(
        eventually(LONG, has_failed).is_some(),
        "{}",
        export(&gantry)
    );
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    assert_eq!(health["status"], "ok", "{health:#}");
    let warned = health["warnings"].to_string();
    assert!(
        warned.contains("audit records cannot be exported"),
        "{warned}"
    );
    let ids = recorded(&gantry);
    gantry.kill();
    cut.mend();
    let gantry = gantry.again();
    let messages = receiver.wait(LONG, |messages| has_all(messages, &ids));
    assert_eq!(ids.len(), 6, "{messages:#?}");
    // What stalls was not received either.
    cut.stall();
    for _ in 0..5 {
        echo(&gantry, "stalled");
    }
    let ids = recorded(&gantry);
    cut.cut();
    cut.mend();
    receiver.wait(LONG, |messages| has_all(messages, &ids));
    let is_well = || export(&gantry)["error"].is_null() && export(&gantry)["waiting"] == 0;
    assert!(eventually(LONG, is_well).is_some(), "{}", export(&gantry));
    assert_eq!(export(&gantry)["dropped"], 0);
}

// row 3.5
#[test]
fn calls_and_acts_are_log_records_over_otlp() {
    let receiver = OtlpReceiver::start(ReceiverMood::Refuses(503));
    let gantry = started(&receiver.url());
    echo(&gantry, "kept");
    let is_asked = || !receiver.exports().is_empty();
    assert!(eventually(LONG, is_asked).is_some());
    // What may be taken later waits; what never will is dropped and counted.
    receiver.set_mood(ReceiverMood::Takes);
    let row = gantry.audit_rows("").remove(0);
    let came = || !receiver.logs().is_empty();
    assert!(eventually(LONG, came).is_some(), "{}", export(&gantry));
    let logs = receiver.logs();
    let of_call = |log: &&_| event(log) == "gantry.call";
    let has_call = || {
        receiver
            .logs()
            .iter()
            .any(|log| event(log) == "gantry.call")
    };
    assert!(eventually(LONG, has_call).is_some(), "{logs:#?}");
    let logs = receiver.logs();
    let log = logs.iter().find(of_call).unwrap();
    assert_eq!(
        log.attributes["gantry.call.id"],
        row["id"].as_str().unwrap()
    );
    assert_eq!(log.attributes["gantry.call.tool"], "echo");
    assert_eq!(log.attributes["mcp.method.name"], "tools/call");
    assert_eq!(
        (log.severity, log.trace.as_str()),
        (9, row["trace"].as_str().unwrap())
    );
    assert_eq!(log.at_ns, row["ended_ms"].as_u64().unwrap() * 1_000_000);
    let has_act = || receiver.logs().iter().any(|log| event(log) == "gantry.act");
    assert!(eventually(LONG, has_act).is_some(), "{logs:#?}");
    assert!(
        receiver
            .exports()
            .iter()
            .all(|export| export.path == "/v1/logs")
    );
    receiver.set_mood(ReceiverMood::Refuses(400));
    echo(&gantry, "dropped");
    let has_dropped = || export(&gantry)["dropped"].as_u64() > Some(0);
    assert!(eventually(LONG, has_dropped).is_some());
    let metrics = gantry.rest("GET", "/metrics", None).text();
    let counted = metrics.lines().any(|line| {
        line.starts_with("gantry_export_dropped_total{export=\"audit\"") && !line.ends_with(" 0")
    });
    assert!(counted, "{metrics}");
    let doctor = gantry.cli(&["doctor"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(told.contains("audit records"), "{told}");
}

// row 3.5: who takes little at once gets less at once, and what is too large by itself costs nothing else.
#[test]
fn a_receiver_with_a_limit_gets_smaller_batches() {
    let receiver = OtlpReceiver::start(ReceiverMood::Refuses(503));
    let gantry = started(&receiver.url());
    for number in 0..40 {
        echo(&gantry, &number.to_string());
    }
    let ids = recorded(&gantry);
    assert!(ids.len() >= 40);
    receiver.set_mood(ReceiverMood::TakesAtMost(8 << 10));
    let came = || {
        let logs = receiver.logs();
        let came: BTreeSet<_> = logs
            .iter()
            .filter_map(|log| log.attributes.get("gantry.call.id"))
            .collect();
        ids.iter().all(|id| came.contains(id))
    };
    assert!(eventually(LONG, came).is_some(), "{}", export(&gantry));
    assert_eq!(export(&gantry)["dropped"], 0);
    receiver.set_mood(ReceiverMood::TakesAtMost(100));
    echo(&gantry, "too large");
    let rows = gantry.audit_rows("");
    let lost = rows
        .iter()
        .find(|row| !ids.contains(row["id"].as_str().unwrap()));
    let lost = lost.unwrap()["id"].as_str().unwrap();
    // Acts that were not sent yet may be too large as well.
    let is_told = || {
        let log = gantry.stderr();
        log.lines()
            .any(|line| line.contains("too large") && line.contains(lost))
    };
    assert!(eventually(LONG, is_told).is_some(), "{}", export(&gantry));
    assert!(export(&gantry)["dropped"].as_u64() >= Some(1));
}

fn event(log: &gantry_testkit::otlp::ReceivedLog) -> &str {
    &log.event
}

fn server_tls() -> rustls::ServerConfig {
    let certificate = include_bytes!("upstream/tls/good.pem");
    let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("upstream/tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

// row 3.5
#[test]
fn a_receiver_with_tls_is_believed_by_its_authority_only() {
    let config = Arc::new(server_tls());
    let receiver = SyslogReceiver::streams(move |stream: TcpStream| -> Box<dyn Read + Send> {
        let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        Box::new(rustls::StreamOwned::new(session, stream))
    });
    let url = format!("syslog+tls://localhost:{}", receiver.port());
    let mut gantry = started(&url);
    echo(&gantry, "x");
    let has_failed = || export(&gantry)["error"].is_string();
    assert!(eventually(LONG, has_failed).is_some());
    assert!(receiver.messages().is_empty());
    gantry.stop();
    let builder = pushing(&url).flags(&["--siem-ca", AUTHORITY]);
    let gantry = gantry.again_as(builder);
    let ids = recorded(&gantry);
    assert_eq!(ids.len(), 1);
    receiver.wait(LONG, |messages| has_all(messages, &ids));
}

#[test]
fn a_receiver_that_cannot_be_used_is_told_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    for (flag, variable, told) in [
        ("siem.example:514", "", "syslog+udp://HOST:514"),
        ("https://user:pass@a", "", "siem_headers"),
        ("", "syslog+tcp://a/b", "GANTRY_SIEM"),
    ] {
        let mut builder = Gantry::builder();
        if !flag.is_empty() {
            builder = builder.flags(&["--siem", flag]);
        }
        let mut command = builder
            .variable("GANTRY_SIEM", variable)
            .command(home.path());
        assert!(!command.status().unwrap().success(), "{flag}{variable}");
        let log = std::fs::read_to_string(home.path().join("stderr")).unwrap();
        assert!(log.contains(told), "{flag}{variable}: {log}");
    }
}
