//! Faults P4 and P5 on images: a gateway that is stopped under load, and servers whose processes are.

use std::thread;

use gantry_testkit::procs;
use gantry_testkit::wait::{Stopwatch, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::super::{IMAGE, RUNGS, Rig, SECOND, USERS};
use super::{audited, call};
use gantry_testkit::image::Archive;

/// The command of one that does not want to end.
const DEAF: [&str; 6] = [
    "/bin/evilpeer",
    "--inside",
    "--fault",
    "ignore-term",
    "--fault",
    "ignore-eof",
];

fn descendants(rig: &Rig) -> Vec<u32> {
    let all = procs::descendants_of(rig.gantry.pid);
    all.iter().map(|process| process.pid).collect()
}

// fault P4, row 1.11
#[test]
fn a_gateway_that_is_stopped_under_load_answers_every_call_of_its_images() {
    for user in USERS {
        let rig = Rig::started(user, |builder| {
            let builder = builder.flags(&["--drain", "3s", "--kill-after", "5s"]);
            match user {
                Some(user) => builder.user(user),
                None => builder,
            }
        });
        rig.import(&Archive::peer(IMAGE));
        for rung in RUNGS {
            let members = json!({"concurrency": 8, "timeout": "2m", "entrypoint": DEAF});
            rig.server(rung, rung, &members);
        }
        let own = descendants(&rig);
        thread::scope(|scope| {
            let rig = &rig;
            let slow = |rung, ms| scope.spawn(move || call(rig, rung, "slow", json!({"ms": ms})));
            let mut short = Vec::new();
            let mut long = Vec::new();
            for rung in RUNGS {
                short.extend((0..2).map(|_| slow(rung, 1500)));
                long.push(slow(rung, 60_000));
            }
            for rung in RUNGS {
                let busy = |now: &Value| now["queue"]["in_flight"] == 3;
                rig.gantry.wait_status(rung, 10 * SECOND, busy);
            }
            rig.gantry.signal(Signal::TERM);
            for call in short {
                assert_eq!(call.join().unwrap().text(), "slept 1500 ms");
            }
            for call in long {
                let reply = call.join().unwrap();
                reply.fails(-31502, "server.exited", "it was stopped");
            }
        });
        let mut rig = rig;
        let ended = rig.gantry.wait(15 * SECOND);
        assert_eq!(ended, Some(0), "{}", rig.gantry.stderr());
        let alive: Vec<_> = own.into_iter().filter(|pid| procs::alive(*pid)).collect();
        assert_eq!(alive, Vec::<u32>::new());
        let rig = rig.again();
        for rung in RUNGS {
            let wanted = [(2, "ok", None), (1, "error", Some("server.exited"))];
            audited(&rig, rung, &wanted);
        }
    }
}

/// Stops the processes of a rung in which the server runs, and returns them.
fn freeze(rig: &Rig, rung: &str) -> Vec<u32> {
    let all = procs::descendants_of(rig.gantry.pid);
    let runs = |command: &str| match rung {
        "gvisor" => command.starts_with("runsc-sandbox"),
        _ => command.starts_with("/bin/evilpeer"),
    };
    let found: Vec<u32> = all
        .iter()
        .filter(|process| runs(&process.command))
        .map(|process| process.pid)
        .collect();
    assert!(!found.is_empty(), "{rung}: {all:#?}");
    for pid in &found {
        let pid = Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
    }
    found
}

// fault P5, row 1.15
#[test]
fn an_image_whose_processes_are_stopped_is_marked_and_can_still_be_ended() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in RUNGS {
            let members = json!({
                "timeout": "1s", "health_every": "200ms", "health_timeout": "2s",
            });
            let first = rig.server(rung, rung, &members);
            let frozen = freeze(&rig, rung);
            let status = rig.gantry.wait_state(rung, "unresponsive", 10 * SECOND);
            assert_eq!(status["restart_count"], 0, "{status:#}");
            let reply = call(&rig, rung, "echo", json!({"text": "x"}));
            reply.fails(-31504, "call.timeout", "did not answer within 1s");
            assert!(reply.cost <= 3 * SECOND, "{:?}", reply.cost);
            let begun = Stopwatch::start();
            let path = format!("/api/v1/mcp/servers/{rung}/restart");
            assert!(rig.gantry.rest("POST", &path, None).status < 300);
            let again =
                |now: &Value| now["state"] == "ready" && now["generation"] != first["generation"];
            rig.gantry.wait_status(rung, 15 * SECOND, again);
            assert!(begun.elapsed() <= 15 * SECOND, "{:?}", begun.elapsed());
            assert!(!frozen.iter().any(|pid| procs::alive(*pid)), "{frozen:?}");
            audited(&rig, rung, &[(1, "timeout", Some("call.timeout"))]);
            freeze(&rig, rung);
        }
        // The gateway's end overtakes them, too.
        let own = descendants(&rig);
        let mut rig = rig;
        let begun = Stopwatch::start();
        assert_eq!(rig.gantry.stop(), Some(0), "{}", rig.gantry.stderr());
        assert!(begun.elapsed() <= 20 * SECOND, "{:?}", begun.elapsed());
        let gone = eventually(SECOND, || !own.iter().any(|pid| procs::alive(*pid)));
        assert!(gone.is_some(), "some of {own:?} live");
    }
}
