//! What a child is given, and that nobody else is ever taken for it.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;

use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, procs};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Held, SECOND, audited, echoes, pid_of, signal, stays_down, tidy};
use crate::harness::{Gantry, LONG, entry, needs_root};

/// Calls a tool without arguments and returns the JSON in its text.
fn told(gantry: &Gantry, tool: &str) -> Value {
    let answer = gantry.call(tool, json!({}));
    let text = answer["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("{answer:#}"))).unwrap()
}

// fault P7
#[test]
fn a_child_sees_three_descriptors_and_the_listed_variables() {
    // The gateway itself inherits more, and holds connections and other servers' pipes.
    let wrapper = [
        "sh",
        "-c",
        "exec 7</dev/null 9>/dev/null; exec \"$@\"",
        "sh",
    ];
    let mut entry = crate::harness::entry(&Evilpeer::new());
    entry["env"] = json!({"GIVEN": "by its entry"});
    let gantry = Gantry::builder()
        .server("first", &Evilpeer::new())
        .entry("second", entry)
        .under(&wrapper)
        .variable("GATEWAY_SECRET", "not for servers")
        .variable("LD_LIBRARY_PATH", "/nonexistent")
        .start();
    for name in ["first", "second"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let held = Held::of(&gantry);
    let connections: Vec<_> = (0..10).map(|_| gantry.connect()).collect();
    // One that starts when there is much to inherit.
    gantry.rest("POST", "/api/v1/mcp/servers/second/restart", None);
    gantry.wait_state("second", "ready", LONG);
    for name in ["first", "second"] {
        assert_eq!(
            told(&gantry, &format!("{name}__fds")),
            json!([0, 1, 2]),
            "{name}"
        );
        let pid = pid_of(&gantry.status(name));
        assert_eq!(procs::open_fds(pid), 3, "and so the kernel says");
    }
    let listed = [
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
        "TMPDIR", "GIVEN",
    ];
    let seen = told(&gantry, "second__env");
    assert_eq!(seen["GIVEN"], "by its entry");
    for name in seen.as_object().unwrap().keys() {
        assert!(listed.contains(&name.as_str()), "`{name}` is inherited");
    }
    drop(connections);
    audited(&gantry, "first", &[(1, "ok", None)]);
    audited(&gantry, "second", &[(2, "ok", None)]);
    tidy(&gantry);
    held.compare(&gantry);
}

/// Starts a process of ours that has exactly this number, or gives up.
fn reborn_as(pid: u32) -> Option<Child> {
    for _ in 0..500 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        if child.id() == pid {
            return Some(child);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    None
}

// fault P8
#[test]
fn a_process_number_that_was_reused_is_never_hit() {
    needs_root();
    for act in ["DELETE", "POST"] {
        let gantry = Gantry::builder()
            .server("neighbour", &Evilpeer::new())
            .start();
        gantry.wait_state("neighbour", "ready", LONG);
        // One that a file brings could not be removed.
        let mut body = entry(&Evilpeer::new());
        body["name"] = json!("a");
        body["profile"] = json!("local");
        body["start"] = json!("eager");
        body["restart"] = stays_down()["life"]["restart"].take();
        let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(made.status, 201, "{}", made.text());
        let pid = pid_of(&gantry.wait_state("a", "ready", LONG));
        let held = Held::of(&gantry);
        // The server ends and its number is given away before the gateway can look.
        signal(gantry.pid, Signal::STOP);
        signal(pid, Signal::KILL);
        assert!(eventually(LONG, || procs::look(pid).is_none()).is_some());
        let mut innocent = reborn_as(pid).expect("the number is free");
        let status = thread::scope(|scope| {
            let path = if act == "DELETE" { "" } else { "/restart" };
            let path = format!("/api/v1/mcp/servers/a{path}");
            let gantry = &gantry;
            let asked = scope.spawn(move || gantry.rest(act, &path, None).status);
            signal(gantry.pid, Signal::CONT);
            asked.join().unwrap()
        });
        assert!(matches!(status, 200 | 204), "{status}");
        match act {
            "DELETE" => assert_eq!(
                gantry.rest("GET", "/api/v1/mcp/servers/a", None).status,
                404
            ),
            _ => {
                let again = gantry.wait_state("a", "ready", LONG);
                assert_ne!(pid_of(&again), pid);
                echoes(&gantry, "a");
                audited(&gantry, "a", &[(1, "ok", None)]);
            }
        }
        let spared = eventually(SECOND / 2, || innocent.try_wait().unwrap().is_some());
        assert!(spared.is_none(), "{act}: somebody else's process was ended");
        innocent.kill().unwrap();
        innocent.wait().unwrap();
        echoes(&gantry, "neighbour");
        tidy(&gantry);
        // Of the one that was removed nothing is held.
        let held = match act {
            "DELETE" => Held::with_servers(1),
            _ => held,
        };
        held.compare(&gantry);
    }
}
