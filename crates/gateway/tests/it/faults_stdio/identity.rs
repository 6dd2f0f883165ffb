//! Whose answer it is: ids of other types, of nobody, of calls that are over, in any order.

use std::thread;

use gantry_testkit::journal::{Entry, Journal};
use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, proof};
use serde_json::{Value, json};

use super::{
    CALLS, EVIL, Rig, SECOND, all_echoed, all_within, canary, echo, gives_up_after, table_name,
};
use crate::harness::{LONG, modern};

fn late(rig: &Rig, server: &str) -> u64 {
    rig.gantry.status(server)["late_replies"].as_u64().unwrap()
}

// fault S8
#[test]
fn an_id_of_another_type_or_value_answers_nobody() {
    // Whether the reply is counted as an answer to nobody, or is no answer at all.
    let rows = [("huge-id", true), ("no-id", false)];
    let peer = |(fault, _): &(&str, bool)| Evilpeer::new().fault(fault);
    let rig = Rig::table(&rows, peer, &gives_up_after("1s"));
    for (place, (fault, is_answer)) in rows.iter().enumerate() {
        let server = table_name(place);
        let before = late(&rig, &server);
        let replies = rig.at_once_on(&server, CALLS, "echo", echo);
        for reply in &replies {
            let message = format!("server `{server}` did not answer within 1s");
            reply.fails(-31504, &message, "call.timeout");
        }
        all_within(&replies, 2 * SECOND);
        let (dropped, noise) = if *is_answer { (CALLS, 0) } else { (0, CALLS) };
        let dropped = before + dropped as u64;
        // A server that was not let run answers after the calls were given up.
        let counted =
            |now: &Value| now["late_replies"] == dropped && now["noise"]["lines"] == noise;
        let status = rig.gantry.wait_status(&server, LONG, counted);
        assert_eq!(status["restart_count"], 0, "{fault}");
        rig.audited(&server, &[(CALLS, "timeout", Some("call.timeout"))]);
    }
}

// fault S8
#[test]
fn an_id_written_as_an_equal_float_or_as_a_text_of_its_digits_is_tolerated() {
    let rows = ["float-id", "string-id"];
    let rig = Rig::table(&rows, |fault| Evilpeer::new().fault(fault), &json!({}));
    for place in 0..rows.len() {
        let server = table_name(place);
        let replies = rig.at_once_on(&server, CALLS, "echo", echo);
        all_echoed(&replies);
        all_within(&replies, SECOND);
        assert_eq!(rig.gantry.status(&server)["noise"]["lines"], 0);
        rig.audited(&server, &[(CALLS, "ok", None)]);
    }
}

// fault S9
#[test]
fn answers_to_nobody_and_second_answers_are_dropped_and_counted() {
    let rows = [("unknown-id=5", 5), ("twice", 1)];
    let peer = |(fault, _): &(&str, usize)| Evilpeer::new().fault(fault);
    let rig = Rig::table(&rows, peer, &json!({}));
    for (place, (fault, each)) in rows.iter().enumerate() {
        let server = table_name(place);
        let before = late(&rig, &server);
        let replies = rig.at_once_on(&server, CALLS, "echo", echo);
        all_echoed(&replies);
        all_within(&replies, SECOND);
        let counted = before + (each * CALLS) as u64;
        assert!(
            eventually(SECOND, || late(&rig, &server) == counted).is_some(),
            "{fault}"
        );
        rig.audited(&server, &[(CALLS, "ok", None)]);
    }
}

// fault S9
#[test]
fn a_late_answer_is_dropped_and_reaches_no_later_call() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new()
        .fault("late=6000")
        .fault_calls(CALLS as u64)
        .journal(&journal);
    let rig = Rig::new(&peer, &gives_up_after("3s"));
    let before = late(&rig, EVIL);
    let replies = rig.at_once("echo", echo);
    for reply in &replies {
        let message = "server `evil` did not answer within 3s";
        reply.fails(-31504, message, "call.timeout");
    }
    all_within(&replies, 4 * SECOND);
    // These are under way while the late answers come.
    let counted = before + CALLS as u64;
    let mut rounds = 0;
    while late(&rig, EVIL) < counted {
        let round = rounds;
        rounds += 1;
        assert!(rounds <= 100, "{} of {counted} came", late(&rig, EVIL));
        let replies = rig.burst(
            EVIL,
            CALLS,
            "echo",
            &|number| json!({"text": canary(1000 * round + number), "delay_ms": 250}),
        );
        for reply in &replies {
            assert_eq!(reply.text(), canary(1000 * round + reply.number));
        }
    }
    assert_eq!(late(&rig, EVIL), counted);
    let seen = Journal::read(&journal).unwrap();
    for number in 0..CALLS {
        assert!(
            seen.cancelled(&format!("n{number}")),
            "the server was told of call {number}"
        );
    }
    rig.never_restarted();
    rig.audited(
        EVIL,
        &[
            (CALLS, "timeout", Some("call.timeout")),
            (rounds * CALLS, "ok", None),
        ],
    );
}

// fault S10
#[test]
fn many_clients_with_one_id_each_get_their_own_answer() {
    // How many, and how long the first answer takes: long enough that all are there before it.
    let (clients, first_ms) = proof::count((1000, 16_000), (250, 5_000));
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new()
        .fault("shuffle=64")
        .fault("twice")
        .seed(7)
        .journal(&journal);
    let rig = Rig::new(
        &peer,
        &json!({"concurrency": clients, "calls": {"timeout": "60s", "timeout_max": "60s"}}),
    )
    // As many connections, with a call each.
    .with_room(64);
    rig.beside_neighbour(|| {
        thread::scope(|scope| {
            for client in 0..clients {
                let rig = &rig;
                scope.spawn(move || {
                    // The harness always says `"id": 1`.
                    let wanted = canary(client);
                    // In an order that has nothing to do with that in which they came.
                    let delay = first_ms + client * 7_919 % 1_000;
                    let arguments = json!({"text": wanted, "delay_ms": delay});
                    let params = json!({"name": "evil__echo", "arguments": arguments});
                    let agent = &rig.gantry.agent;
                    let mut connection = rig.gantry.connect();
                    let answer = modern(&mut connection, agent, "/mcp", "tools/call", params);
                    let answer = answer.message();
                    assert_eq!(answer["id"], 1);
                    assert_eq!(answer["result"]["content"][0]["text"], wanted);
                });
            }
            let all = |status: &Value| status["queue"]["in_flight"] == clients;
            rig.gantry.wait_status(EVIL, LONG, all);
        });
    });
    let seen = Journal::read(&journal).unwrap();
    let mut ids: Vec<&str> = seen.entries.iter().filter_map(upstream_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(
        ids.len(),
        clients,
        "each call has an id of its own upstream"
    );
    let dropped = eventually(LONG, || late(&rig, EVIL) == clients as u64);
    assert!(
        dropped.is_some(),
        "each second answer: {}",
        late(&rig, EVIL)
    );
    let echoed = |row: &Value| row["status"] == "ok" && row["tool"] == "echo";
    assert!(rig.rows(EVIL).iter().all(echoed));
    rig.audited(EVIL, &[(clients, "ok", None)]);
}

fn upstream_id(entry: &Entry) -> Option<&str> {
    match entry {
        Entry::Call { id, .. } => Some(id),
        Entry::Started { .. }
        | Entry::Cancelled { .. }
        | Entry::Answer { .. }
        | Entry::Garbled { .. }
        | Entry::Ended => None,
    }
}
