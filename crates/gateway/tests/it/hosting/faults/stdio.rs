//! Faults S1 to S21 on images: the whole table at one gateway, a few at a time, beside a neighbour.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gantry_testkit::proof;
use gantry_testkit::wait::Stopwatch;
use serde_json::json;

use super::super::{RUNGS, Rig, SECOND, USERS};
use super::lines::{self, Ends, Row};
use super::{audited, beside_neighbour};

/// How many faulty servers there are at a time.
const AT_ONCE: usize = 3;

/// Runs one fault on one rung.
fn run(rig: &Rig, row: &Row, rung: &str, server: &str) {
    let mut entrypoint = vec!["/bin/evilpeer", "--inside"];
    entrypoint.extend(&row.peer);
    let mut members = row.members.clone();
    members["entrypoint"] = json!(entrypoint);
    let (status, answer) = rig.register(server, rung, &members);
    assert_eq!(status, 201, "{answer:#}");
    let is_never_ready = matches!(row.ends, Ends::NeverReady(_));
    let first = if is_never_ready {
        rig.gantry.wait_status(server, 30 * SECOND, row.shown)
    } else {
        rig.gantry.wait_state(server, "ready", 30 * SECOND)
    };
    assert_eq!(first["provider"]["name"], rung, "{first:#}");
    thread::scope(|scope| {
        let calls: Vec<_> = (0..row.calls)
            .map(|number| {
                scope.spawn(move || {
                    let text = format!("{server} {number}");
                    row.ends.check(&lines::make(rig, server, row, &text), &text);
                })
            })
            .collect();
        calls.into_iter().for_each(|call| call.join().unwrap());
    });
    rig.gantry.wait_status(server, 15 * SECOND, row.shown);
    let (status, code) = row.ends.audited();
    let mut wanted = vec![(row.calls, status, code)];
    wanted.extend((row.after)(rig, server));
    // What came of the same is counted together.
    let mut sums: Vec<(usize, &str, Option<&str>)> = Vec::new();
    for (count, status, code) in wanted {
        match sums.iter_mut().find(|sum| (sum.1, sum.2) == (status, code)) {
            Some(sum) => sum.0 += count,
            None => sums.push((count, status, code)),
        }
    }
    audited(rig, server, &sums);
    let path = format!("/api/v1/mcp/servers/{server}");
    let removed = rig.gantry.rest("DELETE", &path, None);
    assert!(removed.status < 300, "{}", removed.text());
}

// faults S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S14, S15, S16, S17, S18, S19, S20 and S21
#[test]
fn an_image_that_misbehaves_on_its_pipes_harms_nobody() {
    let rows = lines::rows();
    let users = proof::count(&USERS[..], &USERS[..1]);
    for user in users {
        let rig = Rig::new(*user);
        let mut cells: Vec<(&Row, &str, String)> = Vec::new();
        for (place, row) in rows.iter().enumerate() {
            for rung in RUNGS {
                if !row.is_for(rung) {
                    continue;
                }
                let id = row.id.to_ascii_lowercase();
                cells.push((row, rung, format!("{id}-{place}-{rung}")));
            }
        }
        let next = AtomicUsize::new(0);
        let watch = Stopwatch::start();
        beside_neighbour(&rig, || {
            thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| {
                        while let Some((row, rung, server)) =
                            cells.get(next.fetch_add(1, Ordering::Relaxed))
                        {
                            run(&rig, row, rung, server);
                        }
                    });
                }
            });
        });
        eprintln!("{} faults in {:?}", cells.len(), watch.elapsed());
    }
}
