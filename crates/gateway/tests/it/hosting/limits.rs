//! Rows 1.16 and 1.17, fault P9: limits bite their own server only, and the status says which. Judged by what
//! the kernel counts in the server's cgroups; with a gateway that is root, and with one of an ordinary user
//! that has cgroups of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gantry_testkit::image::Archive;
use gantry_testkit::probes;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::counters::{Counters, Delegated};
use super::{HOSTED, IMAGE, Rig, SECOND, USERS};
use crate::harness::NOBODY;

/// A gateway that can hold servers to limits; whoever runs it has cgroups.
struct Limited {
    rig: Rig,
    _groups: Option<Delegated>,
}

impl Limited {
    fn new(user: Option<u32>) -> Self {
        let Some(user) = user else {
            let rig = Rig::new(None);
            return Self { rig, _groups: None };
        };
        let groups = Delegated::new(user);
        let wrapper = groups.wrapper();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let rig = Rig::started(Some(user), |builder| builder.user_under(user, &wrapper));
        rig.import(&Archive::peer(IMAGE));
        let _groups = Some(groups);
        Self { rig, _groups }
    }
}

/// Asserts that the status says of a limit that it is enforced.
fn is_enforced(status: &Value, name: &str) {
    let limits = status["hosting"]["limits"].as_array().unwrap();
    let limit = limits.iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!(limit["state"], "enforced", "{limit}");
}

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
    const MOST: u64 = 128 << 20;
    for user in USERS {
        let Limited { rig, _groups } = &Limited::new(user);
        rig.server("neighbour", "namespaces", &json!({}));
        for rung in HOSTED {
            let limits = json!({"resource_limits": {"memory": "128M"}});
            let status = rig.server(rung, rung, &limits);
            is_enforced(&status, "memory");
            let counters = Counters::of(&status);
            let over = AtomicBool::new(false);
            let (most, killed) = thread::scope(|scope| {
                let counting = scope.spawn(|| {
                    let (mut most, begun) = (0, Stopwatch::start());
                    while !over.load(Ordering::Relaxed) && begun.elapsed() < 30 * SECOND {
                        let (bytes, _) = counters.memory().unwrap_or_default();
                        most = most.max(bytes);
                        thread::yield_now();
                    }
                    most
                });
                rig.call(rung, "eat", json!({"bytes": 400 << 20}));
                over.store(true, Ordering::Relaxed);
                let killed = |now: &Value| {
                    let attempts = now["attempts"].as_array();
                    attempts.is_some_and(|all| all.iter().any(|one| one["oom_killed"] == true))
                };
                let killed = rig.gantry.wait_status(rung, 10 * SECOND, killed);
                (counting.join().unwrap(), killed)
            });
            assert!(
                ((MOST / 2)..=MOST).contains(&most),
                "{rung}: {most} bytes, {killed:#}"
            );
            is_unharmed(rig, "neighbour");
            rig.gantry.wait_state(rung, "ready", 10 * SECOND);
        }
    }
}

// rows 1.16 and 1.17, fault P9
#[test]
fn a_memory_hog_ends_also_where_nothing_enforces_its_limit() {
    let rig = Rig::new(Some(NOBODY));
    let limits = json!({"resource_limits": {"memory": "256M"}});
    let status = rig.server("gvisor", "gvisor", &limits);
    let reports = status["hosting"]["limits"].as_array().unwrap();
    let memory = reports.iter().find(|limit| limit["name"] == "memory");
    let memory = memory.unwrap();
    if memory["state"] == "enforced" {
        return; // This host gives an ordinary user cgroups.
    }
    let detail = memory["detail"].as_str().unwrap();
    assert!(
        detail.contains("over 256 MiB the server is stopped"),
        "{detail}"
    );
    rig.call("gvisor", "eat", json!({"bytes": 100 << 20}));
    assert_eq!(rig.gantry.status("gvisor")["restart_count"], 0);
    rig.call("gvisor", "eat", json!({"bytes": 600 << 20}));
    let stopped = |now: &Value| {
        let how = now["attempts"][0]["how"].as_str();
        how.is_some_and(|how| how.contains("of 256 MiB of memory"))
    };
    rig.gantry.wait_status("gvisor", 20 * SECOND, stopped);
    rig.gantry.wait_state("gvisor", "ready", 20 * SECOND);
}

// row 1.17, fault P9
#[test]
fn a_fork_bomb_ends_at_its_limit() {
    for user in USERS {
        let Limited { rig, _groups } = &Limited::new(user);
        rig.server("neighbour", "namespaces", &json!({}));
        for rung in HOSTED {
            let status = rig.server(rung, rung, &json!({"resource_limits": {"pids": 48}}));
            is_enforced(&status, "pids");
            let counters = Counters::of(&status);
            let bomb = "for i in $(seq 1 400); do sleep 20 < /dev/null > /dev/null 2>&1 & done";
            let said = rig.call(rung, "shell", json!({"script": bomb})).to_string();
            assert!(said.contains(" fork"), "{rung}: {said}");
            // In gVisor the guest's own kernel refuses, which nothing outside counts.
            let (refused, usage) = (
                counters.refused_processes(),
                &rig.gantry.status(rung)["usage"],
            );
            let is_guest = rung == "gvisor";
            assert!(
                is_guest || refused >= Some(1),
                "{rung}: {refused:?} refused: {said}"
            );
            assert_eq!(usage["pids_limit_hit"], true, "{rung}: {usage}");
            assert!(usage["pids"].as_u64() <= Some(48), "{rung}: {usage}");
            rig.call(rung, "crash", json!({"code": 1}));
            let told = |now: &Value| now["attempts"][0]["pids_limit_hit"] == true;
            rig.gantry.wait_status(rung, 10 * SECOND, told);
            is_unharmed(rig, "neighbour");
        }
    }
}

// rows 1.16 and 1.17
#[test]
fn a_processor_hog_stays_near_its_share() {
    const SHARE: f64 = 0.5;
    for user in USERS {
        let Limited { rig, _groups } = &Limited::new(user);
        let hogs = HOSTED.map(|rung| {
            let status = rig.server(rung, rung, &json!({"resource_limits": {"cpu": SHARE}}));
            is_enforced(&status, "cpu");
            let spin = "(while :; do :; done) > /dev/null 2>&1 &";
            rig.shell(rung, &format!("{spin} {spin} echo"));
            (rung, Counters::of(&status))
        });
        let before = hogs
            .each_ref()
            .map(|(_, hog)| (hog.cpu_seconds(), hog.throttled()));
        let begun = Stopwatch::start();
        // Two seconds in which they are let run, and as long as a busy machine needs to let them.
        eventually(2 * SECOND, || false);
        let ran = || {
            let mut used = hogs.iter().zip(before);
            used.all(|((_, hog), (seconds, _))| hog.cpu_seconds() - seconds > 0.1)
        };
        eventually(20 * SECOND, ran).expect("a processor hog does not run");
        for ((rung, hog), (seconds, throttled)) in hogs.iter().zip(before) {
            let share = (hog.cpu_seconds() - seconds) / begun.elapsed().as_secs_f64();
            let held = hog.throttled() - throttled;
            eprintln!("{rung}: {share:.3} of a core, throttled {held} times");
            // A busy machine gives it less, and then nobody has to hold it.
            assert!(share <= SHARE * 1.15, "{rung}: {share}");
            assert!(
                share < SHARE * 0.8 || held > 0,
                "{rung}: {share}, held {held} times"
            );
        }
    }
}

// rows 1.16 and 1.17, fault P9
#[test]
fn a_disk_filler_meets_the_end_of_its_own_disk() {
    let rig = Rig::new(None);
    rig.server("neighbour", "namespaces", &json!({}));
    for rung in HOSTED {
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
    let rig = Rig::new(Some(NOBODY));
    for rung in HOSTED {
        let members = json!({
            "resource_limits": {"disk": "16M"}, "volumes": ["/data"], "restart_policy": "never",
        });
        let status = rig.server(rung, rung, &members);
        let limits = status["hosting"]["limits"].as_array().unwrap();
        let disk = limits.iter().find(|limit| limit["name"] == "disk").unwrap();
        assert_eq!(disk["state"], "not_enforced", "{disk}");
        let fill = "dd if=/dev/zero of=/data/big bs=1M count=32; sleep 5";
        rig.call(rung, "shell", json!({"script": fill}));
        let mut reason = String::new();
        let stopped = eventually(20 * SECOND, || {
            let status = rig.gantry.status(rung);
            reason = status["reason"].as_str().unwrap_or_default().to_owned();
            reason.contains("on disk")
        });
        assert!(stopped.is_some(), "{rung}: {reason}");
    }
}

// row 1.17, fault P9: the memory that the kernel has for the connections of the whole machine
#[test]
fn a_server_whose_connections_nobody_reads_is_stopped_with_the_reason() {
    let built = tempfile::tempdir().unwrap();
    let program = std::fs::read(probes::build(built.path())).unwrap();
    let image = Archive::peer(IMAGE).file("probes", &program, 0o755);
    for user in USERS {
        let rig = Rig::with(user, &image);
        rig.server("flood", "namespaces", &json!({}));
        rig.call("flood", "shell", json!({"script": "/probes flood"}));
        let again = |now: &Value| now["restart_count"] == 1 && now["state"] == "ready";
        let status = rig.gantry.wait_status("flood", 20 * SECOND, again);
        let how = status["attempts"][0]["how"].as_str().unwrap();
        assert!(
            how.contains("its network connections hold more than 64 MiB"),
            "{how}"
        );
    }
}
