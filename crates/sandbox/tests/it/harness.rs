//! Commands, scripts and looks into `/proc` that all tests share.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_sandbox::{
    Command, Limits, Network, Profile, Sandbox, SandboxOptions, SpawnError, Spawned,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::timeout;

/// The variable that marks every process of a test's tree.
pub(crate) const MARKER: &str = "GANTRY_TEST_MARKER";
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Longer than anything here takes; a test that needs it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than it takes to look once, unless the machine stands still.
const LOOK: Duration = Duration::from_millis(150);

/// A tree that leaves its parents, sessions and terminals in every usual way, and then says `up`.
pub(crate) const RUNAWAYS: &str = r#"
    setsid sleep 1000 &
    (setsid sh -c 'sleep 1000 & sleep 1000' &)
    nohup sleep 1000 >/dev/null 2>&1 &
    (sleep 1000 &)
    sh -c '(setsid nohup sleep 1000 >/dev/null 2>&1 &)'
    echo up
    sleep 1000
"#;

pub(crate) fn sandbox() -> Sandbox {
    Sandbox::probe(SandboxOptions {
        instance: format!("test-{}", unique()),
    })
    .unwrap()
}

/// A number no other test process has.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The limits of a person's own server.
pub(crate) const LOCAL: Limits = Limits {
    cpu: None,
    memory_bytes: None,
    pids: Some(1024),
    nofile: 4096,
};

/// The limits of a hosted server.
pub(crate) const HOSTED: Limits = Limits {
    cpu: Some(0.5),
    memory_bytes: Some(512 << 20),
    pids: Some(128),
    nofile: 1024,
};

/// A shell script under the local profile.
pub(crate) fn script(script: &str) -> Command {
    Command {
        name: "test".to_owned(),
        program: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![
            ("PATH".to_owned(), PATH.to_owned()),
            (MARKER.to_owned(), unique()),
        ],
        profile: Profile::Local,
        limits: LOCAL,
        network: Network::Full,
        ..Command::default()
    }
}

/// The same under the hosted profile.
pub(crate) fn hosted(text: &str) -> Command {
    Command {
        cwd: PathBuf::from("/usr"),
        profile: Profile::Hosted,
        limits: HOSTED,
        network: Network::None,
        ..script(text)
    }
}

pub(crate) fn marker(command: &Command) -> String {
    command
        .env
        .iter()
        .find(|(name, _)| name == MARKER)
        .unwrap()
        .1
        .clone()
}

/// Runs a command to its end; returns what it wrote and how it ended.
pub(crate) async fn output(
    sandbox: &Sandbox,
    command: &Command,
) -> Result<(String, String, gantry_sandbox::Exit), SpawnError> {
    let Spawned {
        mut tree,
        stdin,
        mut stdout,
        mut stderr,
        ..
    } = sandbox.spawn(command).await?;
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    let ends = async {
        tokio::join!(
            stdout.read_to_string(&mut out),
            stderr.read_to_string(&mut err),
            tree.wait()
        )
    };
    let (read_out, read_err, exit) = timeout(PATIENCE, ends).await.unwrap();
    read_out.unwrap();
    read_err.unwrap();
    Ok((out, err, exit))
}

/// Reads one line of a server's output.
pub(crate) async fn line(spawned: &mut Spawned) -> String {
    let mut line = String::new();
    let mut reader = BufReader::new(&mut spawned.stdout);
    timeout(PATIENCE, reader.read_line(&mut line))
        .await
        .unwrap()
        .unwrap();
    line.trim_end().to_owned()
}

/// The processes whose environment holds a marker.
pub(crate) fn marked(marker: &str) -> BTreeSet<u32> {
    let wanted = format!("{MARKER}={marker}");
    processes()
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|pair| pair == wanted.as_bytes())
        })
        .collect()
}

pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The fields of a process's `stat` behind its name: state, parent, …
pub(crate) fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

pub(crate) fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// The children of this process that are dead and not collected.
pub(crate) fn zombies() -> usize {
    let ours = |pid: &u32| {
        stat(*pid)
            .is_some_and(|fields| fields[0] == "Z" && fields[1] == std::process::id().to_string())
    };
    processes().filter(ours).count()
}

pub(crate) fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Looks again and again until a condition holds; there is no event for what `/proc` shows. Time in
/// which the machine stood still does not count: nobody was let run.
pub(crate) async fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let mut left = within;
    let mut looked = tokio::time::Instant::now();
    while !holds() {
        assert!(!left.is_zero(), "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
        left = left.saturating_sub(looked.elapsed().min(LOOK));
        looked = tokio::time::Instant::now();
    }
}
