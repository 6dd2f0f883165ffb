//! A process of its own that owns a tree, to be killed by the tests: this test binary run again.
//!
//! As an ordinary test it does nothing: it acts only when its argument names a job.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::denied::{self, Denied};
use crate::harness::{RUNAWAYS, hosted, line, marker, sandbox, script};
use crate::own_root::Layers;

const JOB: &str = "owner-job:";

/// How the owner is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rights {
    Own,
    /// As user 65534, if we may.
    Nobody,
    /// In a user namespace in which no further namespace can be made.
    NoNamespaces,
    /// Both: no namespaces, and no cgroups to end the tree with either.
    Nothing,
    /// In a user namespace in which one kind of namespace cannot be made: `mnt`, `net`, `ipc`.
    Without(&'static str),
}

/// A running owner and what it said.
pub(crate) struct Owner {
    pub(crate) process: Child,
    pub(crate) marker: String,
    pub(crate) server: u32,
    pub(crate) report: Vec<String>,
    _copy: tempfile::TempDir,
}

impl Owner {
    /// Starts an owner; returns once its tree is up.
    pub(crate) fn start(rights: Rights, profile: &str) -> Self {
        Self::denied(rights, profile, Denied::Nothing)
    }

    /// Starts an owner whose tree first runs a script of its own.
    pub(crate) fn script(rights: Rights, profile: &str, text: &str) -> Self {
        Self::run(rights, profile, Denied::Nothing, text)
    }

    /// Starts an owner that itself is refused a system call, and so whatever it starts.
    pub(crate) fn denied(rights: Rights, profile: &str, denied: Denied) -> Self {
        Self::run(rights, profile, denied, "")
    }

    fn run(rights: Rights, profile: &str, denied: Denied, text: &str) -> Self {
        // Other users may not be able to reach the build directory.
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let binary = directory.path().join("owner");
        fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
        let mut words: Vec<&str> = Vec::new();
        if matches!(rights, Rights::Nobody | Rights::Nothing) && crate::harness::is_root() {
            words.extend([
                "setpriv",
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
            ]);
        }
        let limit = |kinds: &[&str]| {
            let zero = |kind| format!("echo 0 > /proc/sys/user/max_{kind}_namespaces && ");
            kinds.iter().map(zero).collect::<String>() + "exec \"$@\""
        };
        let deny = match rights {
            Rights::NoNamespaces | Rights::Nothing => limit(&["user", "pid"]),
            Rights::Without(kind) => limit(&[kind]),
            Rights::Own | Rights::Nobody => String::new(),
        };
        if !deny.is_empty() {
            words.extend(["unshare", "-U", "-r", "sh", "-c", &deny, "sh"]);
        }
        words.push(binary.to_str().unwrap());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
            .args([
                "owner::process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .arg(format!("{JOB}{profile}:{denied:?}:{text}"))
            // What a killed owner leaves is removed with its copy.
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = spawn(&mut command);
        let (mut marker, mut server, mut report) = (String::new(), 0, Vec::new());
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            match line.split_once(": ") {
                Some(("marker", value)) => marker = value.to_owned(),
                Some(("server", value)) => server = value.parse().unwrap(),
                Some(("report", value)) => report.push(value.to_owned()),
                _ if line == "up" => break,
                _ => {}
            }
        }
        Self {
            process,
            marker,
            server,
            report,
            _copy: directory,
        }
    }

    /// What the owner reports about a promise: `state detail`.
    pub(crate) fn promise(&self, name: &str) -> &str {
        let found = self
            .report
            .iter()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        found.unwrap_or_else(|| panic!("no `{name}` in {:?}", self.report))
    }

    /// Kills the owner the hard way.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A tree in an image, which has no more programs than it needs.
const GUEST: &str = "(sleep 1000 &); echo up; sleep 1000";

fn profile_layers(profile: &str) -> Option<Layers> {
    matches!(profile, "image" | "gvisor").then(Layers::new)
}

#[test]
fn process() {
    let Some(profile) = std::env::args().find_map(|arg| arg.strip_prefix(JOB).map(str::to_owned))
    else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (profile, rest) = profile.split_once(':').unwrap();
    let (denied, text) = rest.split_once(':').unwrap();
    let text = &format!("{text}\n{RUNAWAYS}");
    // `WHAT`, `WHAT-whole` (with a floor), `WHAT-whole-late` (denied once the host was probed).
    let (profile, wanted) = profile.split_once('-').unwrap_or((profile, ""));
    let (is_whole, is_late) = (!wanted.is_empty(), wanted == "whole-late");
    if !is_late {
        denied::apply(denied);
    }
    runtime.block_on(async {
        let layers = profile_layers(profile);
        let mark = tempfile::tempdir().unwrap();
        fs::set_permissions(mark.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut command = match (profile, &layers) {
            ("gvisor", Some(layers)) => crate::gvisor::script(layers, GUEST),
            ("image", Some(layers)) => crate::own_root::script_in(layers.root(), GUEST),
            ("hosted", _) => hosted(text),
            _ => script(text),
        };
        if is_whole {
            crate::floor::demand(&mut command, mark.path());
        }
        let sandbox = sandbox();
        if is_late {
            if let gantry_sandbox::Runtime::GVisor(runtime) = &command.runtime {
                sandbox.probe_runtime(&runtime.program).await.unwrap();
            }
            denied::apply(denied);
        }
        let mut spawned = match sandbox.spawn(&command).await {
            Ok(spawned) => spawned,
            Err(error) => {
                let ran = mark.path().join("ran").exists();
                println!("\nreport: refused {error}\nreport: ran {ran}\nup");
                return;
            }
        };
        let said = line(&mut spawned).await;
        if is_whole {
            println!("\nreport: ran {}", mark.path().join("ran").exists());
        } else {
            assert_eq!(said, "up");
        }
        // The test harness has begun a line of its own.
        println!("\nmarker: {}", marker(&command));
        println!("server: {}", spawned.tree.pid());
        for promise in &spawned.report.promises {
            println!(
                "report: {} {:?} {}",
                promise.name, promise.state, promise.detail
            );
        }
        if let Err(error) = spawned.tree.inside().dial(1).await {
            println!("report: dial {error}");
        }
        println!("up");
        spawned.tree.wait().await;
    });
}

/// Starts a program that was written a moment ago. Another test's child that is about to be executed may have
/// it open for writing until then, so that it is busy.
fn spawn(command: &mut Command) -> Child {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(busy) if busy.kind() == ErrorKind::ExecutableFileBusy && tries < 100 => {
                tries += 1;
                thread::sleep(Duration::from_millis(10));
            }
            started => return started.unwrap(),
        }
    }
}
