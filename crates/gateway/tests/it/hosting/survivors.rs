//! Kill -9 of the gateway at random moments, with images of every rung and sandboxed commands running:
//! nothing of ours is left, and everything is back with the next start. faults P3 and C3
//!
//! Two of each and two kills in `./test`; ten of each and fifty kills by `./test --profile proof
//! hosting::survivors`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use gantry_testkit::image::Archive;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{procs, proof};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{HOSTED, IMAGE, Rig, SECOND};
use crate::harness::{Connection, NOBODY};
use crate::proof::Random;

/// When a gateway is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// So long after it began to start, its servers too.
    Starting(u64),
    /// So long after calls began, which go on.
    Calling(u64),
    /// So long after the import of another image began.
    Importing(u64),
}

impl Moment {
    fn choose(random: &mut Random) -> Self {
        let ms = |random: &mut Random, most: usize| random.below(most) as u64;
        match random.below(3) {
            0 => Self::Starting(ms(random, 1500)),
            1 => Self::Calling(ms(random, 400)),
            _ => Self::Importing(ms(random, 400)),
        }
    }
}

/// Returns the mount points below a folder, and the loop devices of files in it.
fn mounts(folder: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let name = folder.display().to_string();
    let own = table.lines().filter(|line| line.contains(&name));
    own.map(str::to_owned).collect()
}

fn loop_devices(folder: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices.filter_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        file.starts_with(folder.to_str()?).then_some(file)
    });
    files.collect()
}

/// Returns whether a process has these mounts in a namespace that was made while they were there. After the end of
/// a gateway it is one of somebody else's, such as another test's: it got a copy of all mounts of the host.
fn are_copied(folder: &Path) -> bool {
    let name = folder.display().to_string();
    procs::descendants_of(1).iter().any(|process| {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", process.pid));
        table.is_ok_and(|table| table.contains(&name))
    })
}

/// Returns the folder of the gateway's cgroups in each hierarchy, as its servers' processes tell.
fn cgroups(rig: &Rig) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for process in procs::descendants_of(rig.gantry.pid) {
        let table = fs::read_to_string(format!("/proc/{}/cgroup", process.pid));
        for line in table.unwrap_or_default().lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next().unwrap(), parts.next().unwrap());
            let Some(at) = path.find("/gantry-") else {
                continue;
            };
            let end = path[at + 1..]
                .find('/')
                .map_or(path.len(), |end| at + 1 + end);
            let hierarchy = if names.is_empty() { "unified" } else { names };
            let place = Path::new("/sys/fs/cgroup").join(hierarchy);
            let place = if place.is_dir() {
                place
            } else {
                "/sys/fs/cgroup".into()
            };
            found.insert(place.join(&path[1..end]));
        }
    }
    found
}

fn groups_in(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

/// What lies in the store's folder for what is being made.
fn half_made(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("images/tmp"))
        .into_iter()
        .flatten()
        .flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The gateway, its servers, and what became of calls.
struct Scene {
    rig: Rig,
    names: Vec<(String, &'static str)>,
    /// Texts that were answered, each with what was called.
    answered: Mutex<Vec<(String, String)>>,
}

impl Scene {
    fn new(user: Option<u32>, each: usize) -> Self {
        // No registry: it would be one of the processes that are watched.
        let rig = Rig::with(user, &Archive::peer(IMAGE));
        let names: Vec<(String, &str)> = HOSTED
            .iter()
            .flat_map(|rung| (0..each).map(move |n| (format!("{rung}-{n}"), *rung)))
            .collect();
        for (name, rung) in &names {
            let entrypoint = ["/bin/evilpeer", "--inside", "--journal", "/data/journal"];
            let members = json!({
                "volumes": ["/data"], "entrypoint": entrypoint, "resource_limits": {"disk": "64M"},
            });
            rig.server(name, rung, &members);
            rig.shell(name, "echo kept > /data/kept");
        }
        Self {
            rig,
            names,
            answered: Mutex::default(),
        }
    }

    /// Calls a server until the gateway is gone.
    fn call(&self, name: &str, round: usize) {
        let path = format!("/api/v1/mcp/servers/{name}/call");
        let bearer = format!("Bearer {}", self.rig.gantry.admin);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        for number in 0.. {
            let text = format!("{name}.{round}.{number}");
            let arguments = json!({"text": text, "nonce": text, "delay_ms": 30});
            let params = json!({"name": "echo", "arguments": arguments});
            let body = json!({"method": "tools/call", "params": params}).to_string();
            let answer = Connection::open(&self.rig.gantry.authority).and_then(|mut connection| {
                connection.request("POST", &path, &headers, body.as_bytes())
            });
            let Ok(answer) = answer else { return };
            if answer.status == 200 {
                let mut answered = self.answered.lock().unwrap();
                answered.push((text, answer.text()));
            }
        }
    }

    /// Kills the gateway at a moment, and returns how long its servers lived after that.
    fn kill_at(&self, moment: Moment, round: usize) -> Duration {
        let kill = |after: u64| {
            thread::sleep(Duration::from_millis(after));
            let pid = i32::try_from(self.rig.gantry.pid).unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        };
        thread::scope(|scope| match moment {
            Moment::Starting(after) => kill(after),
            Moment::Calling(after) => {
                for (name, _) in self.names.iter().step_by(self.names.len().div_ceil(6)) {
                    scope.spawn(move || self.call(name, round));
                }
                kill(after);
            }
            Moment::Importing(after) => {
                let importing = scope.spawn(|| self.import());
                kill(after);
                importing.join().unwrap();
            }
        });
        // What lost its parent is ours now: whatever of it lives is seen.
        let us = std::process::id();
        let alive = || {
            let all = procs::descendants_of(us);
            let alive = all.into_iter().filter(|process| process.state != 'Z');
            alive.collect::<Vec<_>>()
        };
        let gone = eventually(SECOND, || alive().is_empty());
        gone.unwrap_or_else(|| {
            panic!(
                "round {round}, {moment:?}: alive after a second: {:#?}",
                alive()
            )
        })
    }

    /// Imports another image, if the gateway lives so long.
    fn import(&self) {
        let archive = self.rig.folder.path().join("another.tar");
        if !archive.exists() {
            let image = Archive::peer("registry.example/another:1").file("other", b"x", 0o644);
            image.save(&archive).unwrap();
        }
        let body = json!({"archive": archive}).to_string();
        let bearer = format!("Bearer {}", self.rig.gantry.admin);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let connection = Connection::open(&self.rig.gantry.authority);
        drop(connection.and_then(|mut connection| {
            connection.request("POST", "/api/v1/images", &headers, body.as_bytes())
        }));
    }

    /// Starts the gateway again, and returns how long it took until the last server answered.
    fn again(self) -> (Self, Duration) {
        let begun = Stopwatch::start();
        let scene = Self {
            rig: self.rig.again(),
            ..self
        };
        for (name, _) in &scene.names {
            scene.rig.gantry.wait_state(name, "ready", 30 * SECOND);
            assert_eq!(scene.rig.tool(name, "echo", json!({"text": name})), *name);
        }
        let took = begun.elapsed();
        for (name, _) in &scene.names {
            assert_eq!(scene.rig.shell(name, "cat /data/kept"), "kept");
        }
        (scene, took)
    }

    /// Asserts that of the gateways that were killed nothing is there any more.
    fn holds_only_its_own(&self, groups: &BTreeSet<PathBuf>) {
        let data = self.rig.gantry.data();
        let most = if self.rig.is_root {
            self.names.len()
        } else {
            0
        };
        let (mounts, devices) = (mounts(&data), loop_devices(&data));
        assert!(mounts.len() <= most, "{mounts:#?}");
        assert!(devices.len() <= most, "{devices:#?}");
        assert_eq!(half_made(&data), Vec::<PathBuf>::new());
        let now = cgroups(&self.rig);
        for group in groups {
            // What is still dying when a gateway starts is removed a moment later.
            let gone = || now.contains(group) || !group.exists();
            let is_gone = eventually(10 * SECOND, gone);
            assert!(is_gone.is_some(), "{} is left", group.display());
            let count = groups_in(group);
            assert!(
                count <= self.names.len(),
                "{count} groups in {}",
                group.display()
            );
        }
    }

    /// Asserts that no call was made twice and that every answer is that of its own call.
    fn calls_are_whole(&self) {
        let answered = self.answered.lock().unwrap();
        for (text, answer) in answered.iter() {
            assert!(answer.contains(text.as_str()), "{text}: {answer}");
        }
        let mut made: BTreeMap<String, usize> = BTreeMap::new();
        for (name, _) in &self.names {
            let journal = self.rig.shell(name, "cat /data/journal");
            for line in journal.lines().filter(|line| line.starts_with("call ")) {
                let nonce = line.split(' ').nth(1).unwrap_or_default().to_owned();
                if nonce != "-" {
                    *made.entry(nonce).or_default() += 1;
                }
            }
        }
        let twice: Vec<_> = made.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        let lost = answered.iter().filter(|(text, _)| !made.contains_key(text));
        assert_eq!(lost.count(), 0, "what was answered was made");
        eprintln!("{} calls answered, {} made", answered.len(), made.len());
    }
}

// faults P3 and C3, rows 1.8 and 1.20
#[test]
fn nothing_outlives_a_killed_gateway_and_all_is_back_at_the_next_start() {
    killed_over_and_over(None);
}

// faults P3 and C3, rows 1.8 and 1.20
#[test]
fn nothing_outlives_a_killed_gateway_of_an_ordinary_user_either() {
    killed_over_and_over(Some(NOBODY));
}

fn killed_over_and_over(user: Option<u32>) {
    let rounds = proof::count(50, 2);
    let each = proof::count(10, 2);
    let us = std::process::id();
    // Whatever a killed gateway leaves becomes ours, and is seen.
    rustix::process::set_child_subreaper(Pid::from_raw(i32::try_from(us).unwrap())).unwrap();
    let mut scene = Scene::new(user, each);
    let mut random = Random::new(u64::from(us));
    let mut groups = cgroups(&scene.rig);
    let (mut deaths, mut starts) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let moment = Moment::choose(&mut random);
        if let Moment::Starting(_) = moment {
            // It is killed while it starts: it ends in order first.
            assert_eq!(scene.rig.gantry.stop(), Some(0));
            scene.rig = scene.rig.again();
        }
        groups.extend(cgroups(&scene.rig));
        deaths.push(scene.kill_at(moment, round));
        scene.rig.gantry.wait(SECOND);
        let (next, took) = scene.again();
        scene = next;
        starts.push(took);
        scene.holds_only_its_own(&groups);
    }
    scene.calls_are_whole();
    deaths.sort();
    starts.sort();
    let middle = |all: &[Duration]| all[all.len() / 2];
    eprintln!(
        "user {user:?}: {rounds} kills with {} servers: all dead after {:?} (median {:?}), \
         the last answered {:?} after the start (median {:?})",
        scene.names.len(),
        deaths.last().unwrap(),
        middle(&deaths),
        starts.last().unwrap(),
        middle(&starts),
    );
    let data = scene.rig.gantry.data();
    assert_eq!(scene.rig.gantry.stop(), Some(0));
    assert_eq!(mounts(&data), Vec::<String>::new());
    // The kernel lets go of a device with the last mount namespace that had it, a moment after its processes.
    let are_free = || loop_devices(&data).is_empty() || are_copied(&data);
    let is_free = eventually(10 * SECOND, are_free);
    assert!(is_free.is_some(), "{:?}", loop_devices(&data));
    let left = procs::descendants_of(us);
    assert!(left.iter().all(|process| process.state == 'Z'), "{left:#?}");
    let is_gone = eventually(SECOND, || !groups.iter().any(|group| group.exists()));
    assert!(is_gone.is_some(), "some of {groups:?} are left");
}
