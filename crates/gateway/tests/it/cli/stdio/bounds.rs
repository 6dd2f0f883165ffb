//! What a client of `gantry stdio` cannot do: fill it without end, lose an answer by sending several
//! messages at once, or keep it from ending by not reading.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_testkit::procs::open_fds;
use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Client, let_go};
use crate::harness::{Gantry, LONG, PROGRAM, needs_root};

fn pings(ids: std::ops::Range<u32>) -> String {
    let ping = |id| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    Value::from_iter(ids.map(ping)).to_string()
}

fn codes(answers: &Value) -> Vec<(Value, Value)> {
    let answers = answers
        .as_array()
        .unwrap_or_else(|| panic!("no list: {answers:#}"));
    let code = |answer: &Value| {
        (
            answer["id"].clone(),
            answer["error"]["data"]["code"].clone(),
        )
    };
    answers.iter().map(code).collect()
}

#[test]
fn a_refused_batch_is_answered() {
    let mut gantry = Gantry::start(&[]);
    let mut newer = Client::start(&gantry.data(), &[]);
    newer.initialize("2025-11-25");
    newer.line(&pings(1..3));
    let refused = newer.next(LONG).unwrap();
    assert_eq!(refused["id"], Value::Null, "{refused:#}");
    assert_eq!(
        refused["error"]["data"]["code"], "wire.batch",
        "{refused:#}"
    );
    // The one version that has batches wants every request answered.
    let mut older = Client::start(&gantry.data(), &[]);
    older.initialize("2025-03-26");
    older.line(&pings(0..40));
    let all = older.next(LONG).unwrap();
    let wanted: Vec<_> = (0..40).map(|id| (json!(id), json!("wire.batch"))).collect();
    assert_eq!(codes(&all), wanted);
    gantry.kill();
    let_go(&gantry.authority);
    older.line(&pings(7..9));
    let down = older.next(LONG).unwrap();
    let wanted = [7, 8].map(|id| (json!(id), json!("stdio.down")));
    assert_eq!(codes(&down), wanted);
    newer.line(&pings(7..9));
    let down = newer.next(LONG).unwrap();
    assert_eq!(down["error"]["data"]["code"], "stdio.down", "{down:#}");
}

#[test]
fn what_is_on_its_way_is_bounded_and_what_does_not_fit_is_told() {
    needs_root();
    let gantry = Gantry::start(&[]);
    let mut client = Client::start(&gantry.data(), &[]);
    client.initialize("2025-03-26");
    assert_eq!(
        client.ask(json!("before"), "ping", json!({}))["result"],
        json!({})
    );
    // A gateway that hangs: connections are taken by the kernel, and nothing is answered.
    gantry.signal(Signal::STOP);
    for _ in 0..2000 {
        client.notify("notifications/roots/list_changed", json!({}));
    }
    for id in 0..512 {
        client.send(json!(id), "ping", json!({}));
    }
    client.send(json!("over"), "ping", json!({}));
    client.line(&pings(1000..1002));
    let over = client.answer(&json!("over"));
    assert_eq!(over["error"]["data"]["code"], "stdio.busy", "{over:#}");
    assert_eq!(over["error"]["code"], -31429);
    let batch = client.next(LONG).unwrap();
    let wanted = [1000, 1001].map(|id| (json!(id), json!("stdio.busy")));
    assert_eq!(codes(&batch), wanted);
    let held = open_fds(client.child.id());
    assert!(held < 512 + 64 + 40, "{held} descriptors");
    gantry.signal(Signal::CONT);
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < 512 {
        let answer = client.next(LONG).expect("every request is answered");
        assert!(
            answered.insert(answer["id"].as_u64().unwrap()),
            "{answer:#}"
        );
    }
    assert_eq!(
        client.ask(json!("after"), "ping", json!({}))["result"],
        json!({})
    );
    assert!(client.close().success());
}

#[test]
fn a_client_that_does_not_read_cannot_keep_it_from_ending() {
    let gantry = Gantry::start(&["a"]);
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = Command::new(PROGRAM)
            .args(["stdio", "--data"])
            .arg(gantry.data())
            .current_dir(gantry.data().parent().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Far more answers than the pipe, the queue and the places hold, so that even lines wait.
        let mut input = child.stdin.take().unwrap();
        let written = Arc::new(AtomicUsize::new(0));
        let filling = std::thread::spawn({
            let written = Arc::clone(&written);
            let line = json!({"jsonrpc": "2.0", "id": "x".repeat(4000), "method": "ping"});
            let line = format!("{line}\n");
            move || {
                while input.write_all(line.as_bytes()).is_ok() {
                    written.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // Nothing is taken any more once the client's lines stop moving.
        let (mut before, mut looks) = (0, 0);
        let is_full = || {
            let now = written.load(Ordering::Relaxed);
            looks = if now == before { looks + 1 } else { 0 };
            before = now;
            now > 512 && looks > 100
        };
        assert!(eventually(LONG, is_full).is_some(), "stdout is not full");
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).unwrap();
        // The contract is one second; a busy machine gets another.
        let ended = eventually(Duration::from_secs(2), || {
            child
                .try_wait()
                .unwrap()
                .is_some_and(|status| status.success())
        });
        if ended.is_none() {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        filling.join().unwrap();
        assert!(ended.is_some(), "{signal:?} was not heard");
    }
}
