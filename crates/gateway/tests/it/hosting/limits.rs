//! Rows 1.16 and 1.17, fault P9: limits bite their own server only, and the status says which.

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{RUNGS, Rig, SECOND};

/// Asserts that the neighbour still answers, soon and without a restart.
fn is_unharmed(rig: &Rig, neighbour: &str) {
    let begun = Stopwatch::start();
    assert_eq!(rig.tool(neighbour, "echo", json!({"text": "x"})), "x");
    assert!(begun.elapsed() < 2 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(rig.gantry.status(neighbour)["restart_count"], 0);
}

// row 1.17, faults P9 and C9
#[test]
fn a_memory_hog_ends_and_is_reported_as_out_of_memory() {
    let rig = Rig::new(None);
    rig.server("neighbour", "namespaces", &json!({}));
    for rung in RUNGS {
        rig.server(rung, rung, &json!({"resource_limits": {"memory": "128M"}}));
        rig.call(rung, "eat", json!({"bytes": 400 << 20}));
        let killed = |now: &Value| {
            let attempts = now["attempts"].as_array();
            attempts.is_some_and(|attempts| attempts.iter().any(|one| one["oom_killed"] == true))
        };
        rig.gantry.wait_status(rung, 10 * SECOND, killed);
        is_unharmed(&rig, "neighbour");
        rig.gantry.wait_state(rung, "ready", 10 * SECOND);
    }
}

// row 1.17, fault P9
#[test]
fn a_fork_bomb_ends_at_its_limit() {
    let rig = Rig::new(None);
    rig.server("neighbour", "namespaces", &json!({}));
    for rung in RUNGS {
        rig.server(rung, rung, &json!({"resource_limits": {"pids": 48}}));
        let bomb = "for i in $(seq 1 400); do sleep 20 < /dev/null > /dev/null 2>&1 & done";
        let said = rig.call(rung, "shell", json!({"script": bomb})).to_string();
        // gVisor's own threads are counted, too, and it ends where it gets none.
        if !said.contains("process limit reached") {
            assert!(said.contains("can't fork"), "{rung}: {said}");
            let used = rig.gantry.status(rung)["usage"]["pids"].as_u64();
            assert!(used <= Some(48), "{rung}: {used:?}");
            rig.call(rung, "crash", json!({"code": 1}));
        }
        let told = |now: &Value| now["attempts"][0]["pids_limit_hit"] == true;
        rig.gantry.wait_status(rung, 10 * SECOND, told);
        is_unharmed(&rig, "neighbour");
    }
}

// row 1.16
#[test]
fn a_processor_hog_stays_near_its_share() {
    let rig = Rig::new(None);
    for rung in RUNGS {
        rig.server(rung, rung, &json!({"resource_limits": {"cpu": 0.5}}));
        rig.shell(rung, "(while :; do :; done) > /dev/null 2>&1 & (while :; do :; done) > /dev/null 2>&1 & echo");
        let used = || {
            let status = rig.gantry.status(rung);
            let cpu = status["usage"]["cpu_ms"].as_f64();
            cpu.unwrap_or_else(|| panic!("{:#}", status["usage"])) / 1000.0
        };
        let (before, begun) = (used(), Stopwatch::start());
        std::thread::sleep(2 * SECOND);
        let share = (used() - before) / begun.elapsed().as_secs_f64();
        // A busy machine gives it less.
        assert!((0.05..=0.7).contains(&share), "{rung}: {share}");
        rig.gantry
            .rest("DELETE", &format!("/api/v1/mcp/servers/{rung}"), None);
    }
}

// rows 1.16 and 1.17, fault P9
#[test]
fn a_disk_filler_meets_the_end_of_its_own_disk() {
    let rig = Rig::new(None);
    rig.server("neighbour", "namespaces", &json!({}));
    for rung in RUNGS {
        let members = json!({"resource_limits": {"disk": "32M"}, "volumes": ["/data"]});
        rig.server(rung, rung, &members);
        for place in ["/data", "/tmp"] {
            let fill = format!("dd if=/dev/zero of={place}/big bs=1M count=64 2>&1; ls -l {place}");
            let said = rig.shell(rung, &fill);
            assert!(said.contains("No space left"), "{rung} {place}: {said}");
            rig.shell(rung, &format!("rm {place}/big"));
        }
        let many = "exec 2> /dev/null; i=0; while [ $i -lt 20000 ] && echo > /data/f$i; do i=$((i+1)); done; echo $i";
        let said = rig.shell(rung, many);
        let made = said
            .lines()
            .last()
            .and_then(|made| made.parse::<u32>().ok());
        assert!(made.is_some_and(|made| made < 5000), "{rung}: {said}");
        let status = rig.gantry.status(rung);
        assert!(status["usage"]["disk_bytes"].as_u64().unwrap() > 0);
        is_unharmed(&rig, "neighbour");
    }
}

// row 1.16, fault P9: an ordinary user's gateway measures, says so, and stops
#[test]
fn where_the_disk_cannot_be_bounded_the_server_over_its_limit_is_stopped_with_the_reason() {
    let rig = Rig::new(Some(crate::harness::NOBODY));
    let members = json!({
        "resource_limits": {"disk": "16M"}, "volumes": ["/data"], "restart_policy": "never",
    });
    let status = rig.server("a", "namespaces", &members);
    let limits = status["hosting"]["limits"].as_array().unwrap();
    let disk = limits.iter().find(|limit| limit["name"] == "disk").unwrap();
    assert_eq!(disk["state"], "not_enforced", "{disk}");
    rig.call(
        "a",
        "shell",
        json!({"script": "dd if=/dev/zero of=/data/big bs=1M count=32; sleep 5"}),
    );
    let mut reason = String::new();
    let stopped = eventually(20 * SECOND, || {
        let status = rig.gantry.status("a");
        reason = status["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("on disk")
    });
    assert!(stopped.is_some(), "{reason}");
}
