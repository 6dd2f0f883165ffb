//! `gantry doctor`: what it looks at, and when it is not content.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{alone, settings, told, without_log};
use crate::harness::Gantry;

/// Returns the part under a title.
fn part<'a>(told: &'a str, title: &str) -> &'a str {
    let after = told
        .split(title)
        .nth(1)
        .unwrap_or_else(|| panic!("no `{title}`: {told}"));
    after.split("\n\n").next().unwrap().trim_matches('\n')
}

/// Leaves of what the machine can do only what is asked of it.
fn of_any_machine(told: &str) -> String {
    let (machine, rest) = told.split_once("\n\n").unwrap();
    let asked = machine.lines().map(|line| match line.strip_prefix("  ") {
        Some(fact) => {
            let name: String = fact.chars().skip(2).take(18).collect();
            format!("  [✓!] {}", name.trim_end())
        }
        None => line.to_owned(),
    });
    let asked: Vec<String> = asked.collect();
    format!("{}\n\n{rest}", asked.join("\n"))
}

fn filters() -> insta::Settings {
    let mut settings = settings();
    settings.add_filter(r"[\d.]+ [GM]iB free", "[room] free");
    settings.add_filter(r"[✓!] port +4180 .*", "[✓!] port  4180 [state]");
    settings
}

#[test]
fn a_healthy_gateway_is_well_and_each_server_has_what_it_needs() {
    let gantry = Gantry::start(&["a"]);
    // Its stderr may tell of cgroups that other gateways left.
    let output = gantry.cli(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let told = without_log(&told(&output));
    let facts: Vec<&str> = part(&told, "This machine").lines().collect();
    assert!(facts.len() > 5, "{told}");
    let marked = |line: &&str| line.starts_with("  ✓ ") || line.starts_with("  ! ");
    assert!(facts.iter().all(marked), "{told}");
    filters().bind(|| {
        assert_snapshot!(of_any_machine(&told), @r"
        This machine
          [✓!] user namespace
          [✓!] pid namespace
          [✓!] mount namespace
          [✓!] ipc namespace
          [✓!] network namespace
          [✓!] own /proc
          [✓!] own /tmp
          [✓!] memory limit
          [✓!] cpu limit
          [✓!] pids limit
          [✓!] landlock
          [✓!] seccomp
          [✓!] own user
          [✓!] own root
          [✓!] overlay
          [✓!] id range
          [✓!] layer owners
          [✓!] rung gvisor
          [✓!] rung firecracker
          [✓!] rung e2b
          [✓!] rung namespaces
          [✓!] rung process

        The data folder
          ✓ folder  [home]/data is private
          ✓ admin key  only you can read it, and the gateway accepts it
          ✓ agent key  only you can read it, and the gateway accepts it
          ✓ disk  [room] free
          ✓ port  the gateway has it
          ✓ clock  is plausible

        What servers need
          ✓ a  [evilpeer] is [evilpeer]

        The gateway of this folder
          ✓ version  [version]
          ✓ servers  1 ready
          ✓ audit  can be written
          ✓ on record  0 calls, kept for 90 days; database [size], journal [size]
        --- exit 0
        ");
    });
    let json = gantry.cli(&["doctor", "--json"]);
    assert_eq!(json.status.code(), Some(0));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["gateway"]["ok"], &json["ok"]),
        (&json!(true), &json!(true))
    );
    assert!(json["host"]["facts"].as_array().unwrap().len() >= facts.len());
}

#[test]
fn what_keeps_a_server_from_starting_exits_with_1_and_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    let servers = json!({"mcpServers": {
        "missing": {"command": "no-such-program-here"},
        "folder": {"command": "/bin/sh", "cwd": "/nowhere"},
        "variable": {"command": "/bin/sh", "env": {"TOKEN": "${NO_SUCH_VARIABLE_HERE}"}},
        "good": {"command": "/bin/sh"},
    }});
    fs::write(&file, servers.to_string()).unwrap();
    let told = without_log(&alone(&["doctor", "--config", file.to_str().unwrap()]));
    filters().bind(|| {
        assert_snapshot!(of_any_machine(&told), @r"
        This machine
          [✓!] user namespace
          [✓!] pid namespace
          [✓!] mount namespace
          [✓!] ipc namespace
          [✓!] network namespace
          [✓!] own /proc
          [✓!] own /tmp
          [✓!] memory limit
          [✓!] cpu limit
          [✓!] pids limit
          [✓!] landlock
          [✓!] seccomp
          [✓!] own user
          [✓!] own root
          [✓!] overlay
          [✓!] id range
          [✓!] layer owners
          [✓!] rung gvisor
          [✓!] rung firecracker
          [✓!] rung e2b
          [✓!] rung namespaces
          [✓!] rung process

        The data folder
          ✓ folder  [home] is made by `gantry up`
          ✓ disk  [room] free
          [✓!] port  4180 [state]
          ✓ clock  is plausible

        What servers need
          ✗ variable  [home]/mcp.json:1:156: server `variable`: `env.TOKEN` uses the variable `NO_SUCH_VARIABLE_HERE`, which is not set; set `NO_SUCH_VARIABLE_HERE` before `gantry up`, or write `${NO_SUCH_VARIABLE_HERE:-default}`
          ✗ missing  `no-such-program-here` is not on the PATH; install it, or write the whole path of the command
          ✗ folder  its folder `/nowhere` is not there; make it, or name another as `cwd`
          ✓ good  /bin/sh is /bin/sh

        The gateway of this folder
          not running; start it with `gantry up`
        --- exit 1
        ");
    });
}

#[test]
fn keys_that_others_can_read_are_found() {
    let gantry = Gantry::start(&[]);
    let key = gantry.data().join("keys/agent.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = gantry.cli(&["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let told = told(&output);
    assert!(
        told.contains("✗ agent key          others can read it (mode 0644); run `chmod 600"),
        "{told}"
    );
}
