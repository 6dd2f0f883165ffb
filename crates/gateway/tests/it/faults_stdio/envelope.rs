//! Envelopes that are not: broken text, hostile numbers, members too many, too few, twice.

use std::thread;
use std::time::Duration;

use gantry_testkit::journal::{Entry, Journal};
use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use super::{
    CALLS, EVIL, GOOD, Reply, Rig, SECOND, all_echoed, all_within, echo, gives_up_after, table_name,
};
use crate::harness::{LONG, modern};

/// After how long calls are given up here: on a machine that stands still for a while, a call that
/// is to end at once must not end by its time.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a spoiled answer leads to.
#[derive(Debug, Clone, Copy)]
enum Ends {
    /// The call ends at once with a protocol error of these words.
    Protocol(&'static str),
    /// Whose answer it was cannot be told, so the call ends by its timeout.
    Timeout,
}

/// Runs the standard test for each row of a table of faults and what they lead to.
fn check(rows: &[(&str, Ends)]) {
    let rig = Rig::table(
        rows,
        |(fault, _)| Evilpeer::new().fault(fault),
        &gives_up_after("4s"),
    );
    for (place, (fault, ends)) in rows.iter().enumerate() {
        let server = table_name(place);
        let replies = rig.at_once_on(&server, CALLS, "echo", echo);
        match ends {
            Ends::Protocol(words) => {
                all_within(&replies, SECOND);
                replies
                    .iter()
                    .for_each(|reply| reply.breaks_protocol(&server, words));
                rig.audited(&server, &[(CALLS, "error", Some("server.protocol"))]);
            }
            Ends::Timeout => {
                replies.iter().for_each(|reply| times_out(reply, &server));
                all_within(&replies, PATIENCE + SECOND);
                rig.audited(&server, &[(CALLS, "timeout", Some("call.timeout"))]);
            }
        }
        let status = rig.gantry.status(&server);
        let alive = (&status["state"], &status["restart_count"]);
        assert_eq!(alive, (&json!("ready"), &json!(0)), "{fault}");
    }
}

/// Runs a test with a server of each era, both at once.
fn in_both_eras(test: impl Fn(Era) + Sync) {
    thread::scope(|scope| {
        for era in [Era::Legacy, Era::Modern] {
            let test = &test;
            scope.spawn(move || test(era));
        }
    });
}

fn times_out(reply: &Reply, server: &str) {
    let message = format!("server `{server}` did not answer within 4s");
    reply.fails(-31504, &message, "call.timeout");
    assert!(reply.took >= PATIENCE, "{:?}", reply.took);
}

// fault S5
#[test]
fn stray_garbage_is_skipped() {
    // The last two are good JSON, so they are heard as notifications.
    let rows = [
        ("invalid-utf8", CALLS, true),
        ("nul", CALLS, true),
        ("bom", CALLS, true),
        ("surrogate", CALLS, true),
        ("deep", 3, true), // 200 KB each: more of them would be a flood (S1)
        ("1e400", CALLS, false),
        ("2^63", CALLS, false),
    ];
    let peer = |(kind, ..): &(&str, usize, bool)| Evilpeer::new().fault(&format!("garbage={kind}"));
    let rig = Rig::table(&rows, peer, &json!({}));
    for (place, (kind, calls, is_noise)) in rows.iter().enumerate() {
        let server = table_name(place);
        let replies = rig.at_once_on(&server, *calls, "echo", echo);
        all_echoed(&replies);
        all_within(&replies, SECOND);
        let status = rig.gantry.status(&server);
        let noise = if *is_noise { *calls } else { 0 };
        assert_eq!(status["noise"]["lines"], noise, "{kind}");
        assert_eq!(status["restart_count"], 0, "{kind}");
        rig.audited(&server, &[(*calls, "ok", None)]);
    }
}

// fault S5
#[test]
fn garbage_in_an_answer_fails_that_call() {
    check(&[
        (
            "garbage=reply-invalid-utf8",
            Ends::Protocol("the message is not UTF-8 at byte "),
        ),
        ("garbage=reply-nul", Ends::Protocol(" at byte ")),
        ("garbage=reply-bom", Ends::Protocol("at byte 0")),
        (
            "garbage=reply-surrogate",
            Ends::Protocol("lone surrogate escape at byte "),
        ),
        (
            "garbage=reply-deep",
            Ends::Protocol("nested deeper than 64 levels at byte "),
        ),
    ]);
}

// fault S5
#[test]
fn numbers_are_forwarded_byte_for_byte() {
    let rows = [("1e400", "1e400"), ("2^63", "9223372036854775808")];
    for era in [Era::Legacy, Era::Modern] {
        let peer = |(kind, _): &(&str, &str)| {
            Evilpeer::new()
                .era(era)
                .fault(&format!("garbage=reply-{kind}"))
        };
        let rig = Rig::table(&rows, peer, &json!({}));
        for (place, (_, number)) in rows.iter().enumerate() {
            let server = table_name(place);
            let params = json!({"name": format!("{server}__echo"), "arguments": {"text": "x"}});
            let agent = &rig.gantry.agent;
            let answer = modern(
                &mut rig.gantry.connect(),
                agent,
                "/mcp",
                "tools/call",
                params,
            );
            let wanted = format!("\"garbage\":{number}");
            assert!(answer.text().contains(&wanted), "{}", answer.text());
            rig.audited(&server, &[(1, "ok", None)]);
        }
    }
}

// fault S6
#[test]
fn members_twice_miswritten_or_unknown_are_refused() {
    check(&[
        // It has two ids: either could be the lie.
        ("dupkeys=envelope", Ends::Timeout),
        (
            "dupkeys=result",
            Ends::Protocol("duplicate key `content` at byte "),
        ),
        (
            "wrongcase",
            Ends::Protocol("unknown member `Result` at byte "),
        ),
        (
            "unknown-member",
            Ends::Protocol("unknown member `vendor` at byte "),
        ),
    ]);
}

// fault S6
#[test]
fn what_is_judged_is_what_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let rig = Rig::new(&Evilpeer::new().journal(&journal), &json!({}));
    let call = r#""jsonrpc":"2.0","id":1"#;
    let good = r#""params":{"name":"evil__echo","arguments":{"text":"good"}}"#;
    let refused = [
        (
            format!(r#"{{{call},"method":"tools/list","method":"tools/call",{good}}}"#),
            -32600,
        ),
        (
            format!(r#"{{{call},"Method":"tools/list","method":"tools/call",{good}}}"#),
            -32600,
        ),
        (
            format!(r#"{{{call},"method":"tools/call","paramſ":{{}},{good}}}"#),
            -32600,
        ),
        (
            format!(r#"{{{call},"method":"tools/call",{good},"vendor":1}}"#),
            -32600,
        ),
        (
            format!(r#"{{{call},"method":"tools/call",{good},"params":{{"name":"evil__crash"}}}}"#),
            -32600,
        ),
        (
            format!(r#"{{{call},"m\u0065thod":"tools/list","method":"tools/call",{good}}}"#),
            -32600,
        ),
        (
            format!(
                r#"{{{call},"method":"tools/call","params":{{"name":"evil__echo","name":"evil__crash"}}}}"#
            ),
            -32600,
        ),
    ];
    let bearer = format!("Bearer {}", rig.gantry.agent);
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Authorization", &bearer),
    ];
    for (body, code) in &refused {
        let answer = rig
            .gantry
            .connect()
            .request("POST", "/mcp", &headers, body.as_bytes())
            .unwrap();
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], *code, "{body}");
    }
    assert_eq!(
        Journal::read(&journal).unwrap().calls(),
        0,
        "nothing was sent upstream"
    );
    all_echoed(&rig.at_once("echo", echo));
    let seen = Journal::read(&journal).unwrap();
    for entry in &seen.entries {
        if let Entry::Call { id, .. } = entry {
            assert!(
                id.parse::<u64>().is_ok_and(|id| id > 1),
                "the envelope is ours: {id}"
            );
        }
    }
    assert_eq!(seen.calls(), CALLS);
    rig.never_restarted();
    rig.audited(EVIL, &[(CALLS, "ok", None)]);
    // What was refused has left no row, not even one that names no server.
    let rows = rig.gantry.audit_rows("");
    let others = rows.iter().filter(|row| row["server"] != GOOD);
    assert_eq!(others.count(), CALLS, "{rows:#?}");
}

// fault S7
#[test]
fn answers_that_are_none_end_their_call_and_make_up_no_result() {
    check(&[
        (
            "both",
            Ends::Protocol("an answer has both `result` and `error`"),
        ),
        (
            "neither",
            Ends::Protocol("a message needs one of `method`, `result` and `error`"),
        ),
        (
            "wrong-version",
            Ends::Protocol("member `jsonrpc` must be \"2.0\""),
        ),
        ("batch", Ends::Protocol("batches are not accepted")),
        (
            "unknown-resulttype",
            Ends::Protocol("its result has the type \"hologram\""),
        ),
    ]);
}

// fault S7
#[test]
fn a_stray_result_without_an_id_ends_no_call() {
    in_both_eras(|era| {
        let rig = Rig::new(&Evilpeer::new().era(era).fault("say"), &json!({}));
        // What was sent before it is read.
        all_echoed(&[rig.call(EVIL, "echo", 0, echo(0))]);
        let stray = r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#;
        let slow = thread::scope(|scope| {
            let slow = scope.spawn(|| rig.call(EVIL, "slow", 1, json!({"ms": 1500})));
            let sent = |status: &Value| status["queue"]["in_flight"] == 1;
            rig.gantry.wait_status(EVIL, LONG, sent);
            // Once while two calls are in flight, and once while the slow one is alone.
            let said = rig.call(EVIL, "say", 2, json!({"lines": [stray], "again_ms": 300}));
            assert_eq!(said.text(), "said 1");
            slow.join().unwrap()
        });
        assert_eq!(slow.text(), "slept 1500 ms");
        let stray = |status: &Value| status["noise"]["lines"] == 2;
        rig.gantry.wait_status(EVIL, LONG, stray);
        rig.never_restarted();
        rig.audited(EVIL, &[(3, "ok", None)]);
    });
}

// fault S7
#[test]
fn an_error_without_an_id_ends_the_only_call_it_can_be_meant_for() {
    in_both_eras(|era| {
        // The first call is answered well: what was sent before it is read.
        let peer = Evilpeer::new().era(era).fault("null-id").fault_after(1);
        let rig = Rig::new(&peer, &gives_up_after("2s"));
        all_echoed(&[rig.call(EVIL, "echo", 0, echo(0))]);
        let why = "server `evil` broke the protocol: member `id` must not be null";
        let refused = |code: i64| json!({"code": code, "message": "cannot read that"});
        let meant = [
            rig.call(EVIL, "rpc_error", 1, refused(-32700)),
            rig.call(EVIL, "rpc_error", 2, refused(-32600)),
        ];
        for reply in &meant {
            reply.fails(-31502, why, "server.protocol");
        }
        all_within(&meant, SECOND);
        // Other errors may be meant for anything; the call is given up in its time, and told so.
        let timeout = "server `evil` did not answer within 2s";
        let other = rig.call(EVIL, "rpc_error", 4, refused(-32601));
        other.fails(-31504, timeout, "call.timeout");
        // Now the notification of that may be what the server could not read.
        let doubtful = rig.call(EVIL, "rpc_error", 5, refused(-32600));
        doubtful.fails(-31504, timeout, "call.timeout");
        rig.never_restarted();
        rig.audited(
            EVIL,
            &[
                (1, "ok", None),
                (2, "error", Some("server.protocol")),
                (2, "timeout", Some("call.timeout")),
            ],
        );
    });
}

// fault S20
#[test]
fn a_request_of_a_server_with_an_id_of_ours_is_no_echo() {
    let folder = tempfile::tempdir().unwrap();
    for (place, era) in [Era::Legacy, Era::Modern].into_iter().enumerate() {
        let journal = folder.path().join(place.to_string());
        let peer = Evilpeer::new().era(era).fault("say").journal(&journal);
        let rig = Rig::new(&peer, &json!({}));
        let asks = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":%id%,"method":"{method}"}}"#);
        let methods = [
            "ping",
            "roots/list",
            "sampling/createMessage",
            "elicitation/create",
            "tools/list",
        ];
        let lines: Vec<String> = methods.iter().map(|method| asks(method)).collect();
        let said = rig.call(EVIL, "say", 1, json!({"lines": lines}));
        assert_eq!(said.text(), "said 5");
        rig.gantry
            .wait_status(EVIL, LONG, |status| status["refused_requests"] == 4);
        rig.never_restarted();
        rig.audited(EVIL, &[(1, "ok", None)]);
    }
}

// fault S7
#[test]
fn an_error_of_the_server_is_told_as_it_is() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let arguments = |_| json!({"code": -32050, "message": "out of paper"});
    let replies = rig.at_once("rpc_error", arguments);
    all_within(&replies, SECOND);
    for reply in &replies {
        let data = json!({"tool": "rpc_error", "detail": "as asked"});
        let wanted = json!({"code": -32050, "message": "out of paper", "data": data});
        assert_eq!(reply.answer["error"], wanted);
        assert_eq!(reply.answer["result"], Value::Null);
    }
    rig.audited(EVIL, &[(CALLS, "error", Some("-32050"))]);
}
