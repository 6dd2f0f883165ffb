//! Reads `/proc`: which processes are alive, their parents, and their resources. Never sends
//! signals. A process that ends while it is read counts as gone. Entry points: [`with_marker`] and
//! [`wait_gone`].

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::wait;

/// The environment variable by which [`with_marker`] knows the processes of a test.
pub const MARKER_VARIABLE: &str = "GANTRY_TEST_MARKER";

/// How long a number must stay the same to count as stable.
const RESTS: Duration = Duration::from_millis(100);

/// One process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id in the reader's namespace.
    pub pid: u32,
    /// The id of its parent, 0 if the parent is outside the reader's namespace.
    pub parent: u32,
    /// The state letter: `R`, `S`, `T` (stopped), `Z` (zombie), …
    pub state: char,
    /// Its session; differs from the parent's after `setsid`.
    pub session: u32,
    /// Its arguments joined by blanks, or its short name in brackets if it has none.
    pub command: String,
}

/// Returns the processes, zombies excepted, that carry the marker: in [`MARKER_VARIABLE`], or
/// within an argument. The calling process is never among them.
pub fn with_marker(marker: &str) -> Vec<Process> {
    let variable = format!("{MARKER_VARIABLE}={marker}");
    let mine = std::process::id();
    pids()
        .filter(|pid| *pid != mine)
        .filter(|pid| {
            words(*pid, "environ").contains(&variable)
                || words(*pid, "cmdline")
                    .iter()
                    .any(|word| word.contains(marker))
        })
        .filter_map(look)
        .filter(|process| process.state != 'Z')
        .collect()
}

/// Returns the process with this id, zombies included.
pub fn look(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(file(pid, "stat")).ok()?;
    // The name is in parentheses and may itself hold blanks and parentheses.
    let (head, tail) = stat.rsplit_once(')')?;
    let mut fields = tail.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let arguments = words(pid, "cmdline");
    let command = if arguments.is_empty() {
        format!("[{}]", head.split_once('(').map_or("", |(_, name)| name))
    } else {
        arguments.join(" ")
    };
    Some(Process {
        pid,
        parent,
        state,
        session,
        command,
    })
}

/// Returns the children of a process, zombies included.
pub fn children_of(pid: u32) -> Vec<Process> {
    pids()
        .filter_map(look)
        .filter(|process| process.parent == pid)
        .collect()
}

/// Returns all descendants of a process that are still connected to it through their parents.
pub fn descendants_of(pid: u32) -> Vec<Process> {
    let all: Vec<Process> = pids().filter_map(look).collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            parents.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

/// Returns the children that have ended but were not waited for.
pub fn zombies_of(pid: u32) -> Vec<Process> {
    children_of(pid)
        .into_iter()
        .filter(|process| process.state == 'Z')
        .collect()
}

/// Returns whether the process exists and is no zombie.
pub fn alive(pid: u32) -> bool {
    look(pid).is_some_and(|process| !matches!(process.state, 'Z' | 'X'))
}

/// Returns how many files the process has open, 0 if it is gone. Panics without permission: for a
/// non-dumpable process, such as a gateway, only root has it.
pub fn open_fds(pid: u32) -> usize {
    match fs::read_dir(file(pid, "fd")) {
        Ok(open) => open.flatten().count(),
        Err(error) if is_gone(&error) => 0,
        Err(error) => panic!("cannot count the open files of process {pid}, as root can: {error}"),
    }
}

/// Returns how many files the process has open whose paths do not contain a word, such as that of
/// the gateway's store, which opens its second reader at the first concurrent queries.
pub fn open_fds_beside(pid: u32, word: &str) -> usize {
    let open = fs::read_dir(file(pid, "fd"))
        .into_iter()
        .flatten()
        .flatten();
    let paths = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    paths
        .filter(|path| !path.to_string_lossy().contains(word))
        .count()
}

fn is_gone(error: &io::Error) -> bool {
    const NO_SUCH_PROCESS: i32 = 3;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_PROCESS)
}

/// Returns how many files the process has open once the number is stable for a moment, or its value
/// after `limit`.
pub fn resting_fds(pid: u32, limit: Duration) -> usize {
    let mut last = open_fds(pid);
    let mut since = wait::now();
    wait::eventually(limit, || {
        let open = open_fds(pid);
        if open != last {
            (last, since) = (open, wait::now());
        }
        since.elapsed() >= RESTS
    });
    last
}

/// Returns the resident memory in KiB, 0 if the process is gone.
pub fn rss_kib(pid: u32) -> u64 {
    figure(pid, "status", "VmRSS:")
}

/// Returns the largest resident memory there ever was in KiB, 0 if the process is gone.
pub fn peak_rss_kib(pid: u32) -> u64 {
    figure(pid, "status", "VmHWM:")
}

/// Returns the proportional share of memory in KiB, 0 if the process is gone.
pub fn pss_kib(pid: u32) -> u64 {
    figure(pid, "smaps_rollup", "Pss:")
}

/// Returns the number of threads, 0 if the process is gone.
pub fn threads(pid: u32) -> u64 {
    figure(pid, "status", "Threads:")
}

/// Returns how many bytes the process has written in all, 0 if it is gone.
pub fn written_bytes(pid: u32) -> u64 {
    figure(pid, "io", "wchar:")
}

/// Returns the number of write operations of the process, 0 if it is gone.
pub fn writes(pid: u32) -> u64 {
    figure(pid, "io", "syscw:")
}

/// Waits until no process carries the marker and returns how long that took; after `limit`, the
/// survivors.
pub fn wait_gone(marker: &str, limit: Duration) -> Result<Duration, Vec<Process>> {
    let mut left = Vec::new();
    wait::eventually(limit, || {
        left = with_marker(marker);
        left.is_empty()
    })
    .ok_or(left)
}

/// Waits until exactly `count` processes carry the marker and returns them; after `limit`, as `Err`
/// those there are.
pub fn wait_count(
    marker: &str,
    count: usize,
    limit: Duration,
) -> Result<Vec<Process>, Vec<Process>> {
    let mut seen = Vec::new();
    let reached = wait::eventually(limit, || {
        seen = with_marker(marker);
        seen.len() == count
    });
    if reached.is_some() {
        Ok(seen)
    } else {
        Err(seen)
    }
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

fn words(pid: u32, name: &str) -> Vec<String> {
    let bytes = fs::read(file(pid, name)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches('\0');
    if text.is_empty() {
        Vec::new()
    } else {
        text.split('\0').map(str::to_owned).collect()
    }
}

fn figure(pid: u32, name: &str, label: &str) -> u64 {
    let text = fs::read_to_string(file(pid, name)).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(label))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
