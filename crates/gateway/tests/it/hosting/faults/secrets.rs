//! Fault K4 on images: what a server is given in its environment is in no command line, no file and no dump.

use std::fs;
use std::process::Command;

use gantry_testkit::procs;
use serde_json::{Value, json};

use super::super::{HOSTED, Rig, SECOND, USERS};

const CANARY: &str = "kanarie-4f1d9b0c77e2";

/// Returns the processes with the value in a file of theirs.
fn with_value(processes: &[u32], file: &str) -> Vec<u32> {
    let holds = |pid: &&u32| {
        let content = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&content).contains(CANARY)
    };
    processes.iter().filter(holds).copied().collect()
}

// fault K4, row 1.3
#[test]
fn the_environment_of_an_image_is_in_no_argument_list_file_or_dump() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            let members = json!({"environment": {"API_TOKEN": CANARY}});
            let status = rig.server(rung, rung, &members);
            // It has it, whole.
            let said = rig.shell(rung, "echo ${#API_TOKEN}");
            assert_eq!(said, CANARY.len().to_string(), "{rung}");
            let own = procs::descendants_of(rig.gantry.pid);
            let pids: Vec<u32> = own.iter().map(|process| process.pid).collect();
            let mut all = pids.clone();
            all.push(rig.gantry.pid);
            assert_eq!(
                with_value(&all, "cmdline"),
                Vec::<u32>::new(),
                "{rung}: {own:#?}"
            );
            // Only its own program has it, and gVisor has it in no environment of the host.
            let holding = with_value(&all, "environ");
            let is_server = |pid: &u32| {
                let found = procs::look(*pid).map(|process| process.command);
                found.is_some_and(|command| command.contains("evilpeer"))
            };
            assert!(
                holding.iter().all(is_server),
                "{rung}: {holding:?} of {own:#?}"
            );
            assert_eq!(holding.is_empty(), rung == "gvisor", "{rung}: {own:#?}");
            for pid in &pids {
                let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
                let cores = limits
                    .lines()
                    .find(|line| line.starts_with("Max core file size"));
                let words = cores.map(|line| line.split_whitespace().nth(5).map(str::to_owned));
                assert!(
                    words.is_none() || words == Some(Some("0".to_owned())),
                    "{rung}: {pid} could leave a dump: {cores:?}"
                );
            }
            // It ends, which is kept with what it wrote.
            rig.call(rung, "crash", json!({"code": 3}));
            let again = |now: &Value| now["state"] == "ready" && now["restart_count"] == 1;
            let after = rig.gantry.wait_status(rung, 10 * SECOND, again);
            for shown in [&status, &after] {
                assert!(!shown.to_string().contains(CANARY), "{rung}: {shown:#}");
            }
        }
        let home = rig.gantry.data();
        let home = home.parent().unwrap();
        // What the layers hold was there before.
        let found = Command::new("grep")
            .args(["-rlaF", "--exclude-dir=layers", CANARY])
            .arg(home)
            .output()
            .unwrap();
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(found, "", "files that have it");
    }
}
