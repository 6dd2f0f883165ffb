//! Kill -9 of the gateway with images of every rung running: nothing of ours is left, and everything is
//! back with the next start. faults P3 and K4

use std::fs;

use gantry_testkit::wait::eventually;
use gantry_testkit::{procs, proof};
use serde_json::json;

use super::{RUNGS, Rig, SECOND, USERS};

/// Returns the mount points and loop devices that belong to a folder.
fn mounts(folder: &str) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = table.lines().filter(|line| line.contains(folder));
    own.map(str::to_owned).collect()
}

// faults P3 and C3, rows 1.8 and 1.20
#[test]
fn nothing_outlives_a_killed_gateway_and_all_is_back_at_the_next_start() {
    let rounds = proof::count(50, 2);
    let each = proof::count(10, 2);
    for user in USERS {
        let mut rig = Rig::new(user);
        let names: Vec<(String, &str)> = RUNGS
            .iter()
            .flat_map(|rung| (0..each).map(move |n| (format!("{rung}-{n}"), *rung)))
            .collect();
        for (name, rung) in &names {
            let members = json!({"volumes": ["/data"]});
            rig.server(name, rung, &members);
            rig.shell(name, "echo kept > /data/kept");
        }
        for round in 0..rounds {
            let folder = rig.gantry.data().display().to_string();
            let own: Vec<u32> = procs::descendants_of(rig.gantry.pid)
                .iter()
                .map(|process| process.pid)
                .collect();
            assert!(own.len() >= names.len(), "{own:?}");
            rig.gantry.kill();
            let gone = eventually(SECOND, || !own.iter().any(|pid| procs::alive(*pid)));
            assert!(gone.is_some(), "round {round}: some of {own:?} live");
            rig = rig.again();
            for (name, _) in &names {
                rig.gantry.wait_state(name, "ready", 20 * SECOND);
                assert_eq!(rig.shell(name, "cat /data/kept"), "kept");
            }
            let own = mounts(&folder);
            let most = if rig.is_root { names.len() } else { 0 };
            assert!(own.len() <= most, "{own:#?}");
        }
    }
}
