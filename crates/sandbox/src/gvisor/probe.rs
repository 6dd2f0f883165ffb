//! Proves that a `runsc` is a working gVisor: runs a small program in it that prints the kernel it
//! sees.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::Instant;

use super::{bundle, finish, limits, runtime_root};
use crate::cgroup::Group;
use crate::command::{Command, GVisor, Network};
use crate::host::{Host, NEW_NETWORK, NEW_UTS};
use crate::image::{INIT, Image};
use crate::job::Job;
use crate::launch::{LaunchError, launch};
use crate::own::Layout;
use crate::plan::{FIRST_UID, step};
use crate::protocol::{FLAG_LOOPBACK, FLAG_OWN_ROOT, STEP_DEVICE, STEP_READ_ONLY};
use crate::reaper::Reaper;
use crate::steps::Step;

/// The oldest tested release.
const OLDEST: u32 = 20_240_729;
/// Time limit for a guest to start and print its output.
const PATIENCE: Duration = Duration::from_secs(20);
const MAX_OUTPUT: usize = 64 * 1024;

/// The verified properties of a gVisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GVisorProof {
    /// The release, as a date: 20240729.
    pub release: u32,
    /// The kernel version that a guest sees in `/proc/version`.
    pub kernel: String,
}

/// The results so far, by program.
#[derive(Debug, Default)]
pub(crate) struct Proofs(Mutex<Vec<(Key, Result<GVisorProof, String>)>>);

/// The identity of a program file when it was tested.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    path: PathBuf,
    inode: u64,
    modified: Option<SystemTime>,
}

impl Proofs {
    /// Returns the result for a program; tests it if the file is new or changed. Blocks.
    pub(crate) fn of(
        &self,
        image: &Image,
        reaper: &Reaper,
        host: &Host,
        program: &Path,
    ) -> Result<GVisorProof, String> {
        let metadata =
            fs::metadata(program).map_err(|error| format!("`{}`: {error}", program.display()))?;
        let key = Key {
            path: program.to_owned(),
            inode: metadata.ino(),
            modified: metadata.modified().ok(),
        };
        // Held during the test, so that other callers wait for the result.
        let mut proofs = self.0.lock();
        if let Some((_, known)) = proofs.iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        let runtime = GVisor {
            program: program.to_owned(),
        };
        let outcome = prove(image, reaper, host, &runtime);
        proofs.retain(|(known, _)| known.path != key.path);
        proofs.push((key, outcome.clone()));
        outcome
    }
}

fn prove(
    image: &Image,
    reaper: &Reaper,
    host: &Host,
    runtime: &GVisor,
) -> Result<GVisorProof, String> {
    host.own_root.clone()?;
    let run = |job: &mut Job| run(image, reaper, job);
    let told = run(&mut version_job(host, runtime)?)?;
    let release = release(&told.out)
        .ok_or_else(|| format!("does not print a gVisor version: {}", told.summary()))?;
    if release < OLDEST {
        return Err(format!(
            "release {release} is older than the oldest supported one ({OLDEST})"
        ));
    }
    let told = run(&mut witness_job(host, runtime)?)?;
    let kernel = told.out.lines().next().unwrap_or_default().to_owned();
    let own = fs::read_to_string("/proc/version").unwrap_or_default();
    if kernel.is_empty() {
        return Err(format!("does not run a guest: {}", told.summary()));
    }
    if kernel == own.trim_end() || !told.out.contains("gVisor") {
        return Err(format!(
            "is not gVisor: its guest runs on the kernel `{kernel}`"
        ));
    }
    Ok(GVisorProof { release, kernel })
}

/// Parses the release date from the output of `runsc --version`.
fn release(text: &str) -> Option<u32> {
    let line = text.lines().find(|line| line.contains("version"))?;
    let mut words = line.split(|letter: char| !letter.is_ascii_digit());
    words.find(|word| word.len() == 8)?.parse().ok()
}

fn namespaces(host: &Host) -> Result<Job, String> {
    let mode = host.mode;
    let mut job = Job {
        flags: FLAG_OWN_ROOT,
        unshare: mode.unshare() | NEW_UTS,
        host_name: "probe".to_owned(),
        cwd: "/".into(),
        limits: limits(),
        ..Job::default()
    };
    if mode.has(NEW_NETWORK) {
        job.flags |= FLAG_LOOPBACK;
    }
    if mode.user {
        let identity = host.identity;
        job.uid_map = format!("0 {} 1", identity.uid);
        job.gid_map = format!("0 {} 1", identity.gid);
    } else {
        host.own_user.clone()?;
        job.range_map = format!("0 {FIRST_UID} 1");
        job.first_id = FIRST_UID;
    }
    Ok(job)
}

/// Returns the job that prints the program's version, in a root that contains nothing else.
fn version_job(host: &Host, runtime: &GVisor) -> Result<Job, String> {
    let program = fs::canonicalize(&runtime.program).map_err(|error| error.to_string())?;
    let mut job = namespaces(host)?;
    job.steps = vec![
        Step::memory_root("/new", "mode=755,size=1m"),
        Step::memory("/dev", "mode=755,size=64k"),
        Step::bind("/dev/null", "/dev/null").with(STEP_DEVICE),
        Step::bind(program, "/runsc").with(STEP_READ_ONLY),
        Step::proc("/proc"),
        Step::seal("/"),
    ];
    job.candidates = vec!["/runsc".into()];
    job.arguments = ["runsc", "--version"].map(str::to_owned).into();
    Ok(job)
}

/// Returns the job that runs the init as the only program of a guest.
fn witness_job(host: &Host, runtime: &GVisor) -> Result<Job, String> {
    let mut job = namespaces(host)?;
    runtime_root(&mut job, runtime);
    job.steps.extend([
        Step::memory_root("/new/rootfs", "mode=755,size=1m"),
        Step::file("/witness", 0o755, INIT),
    ]);
    let command = Command {
        program: "/witness".to_owned(),
        ..Command::default()
    };
    let bundle = bundle(&command, "probe", true, &Layout::default());
    finish(&mut job, bundle, Network::None);
    Ok(job)
}

/// The output of a program.
struct GuestOutput {
    out: String,
    err: String,
}

impl GuestOutput {
    fn summary(&self) -> String {
        let said = if self.err.trim().is_empty() {
            &self.out
        } else {
            &self.err
        };
        let line = said.lines().rfind(|line| !line.trim().is_empty());
        line.map_or("no output".to_owned(), |line| {
            format!("it says «{}»", line.trim())
        })
    }
}

/// Runs a job until its output ends.
fn run(image: &Image, reaper: &Reaper, job: &mut Job) -> Result<GuestOutput, String> {
    let running = launch(image, reaper, job, Group::default()).map_err(|error| match error {
        LaunchError::Step(record) => {
            let index = usize::try_from(record.data).unwrap_or(usize::MAX);
            let what = match job.steps.get(index) {
                Some(part) if record.stage == crate::protocol::STAGE_STEP => part.to_string(),
                _ => step(record.stage).to_owned(),
            };
            format!(
                "cannot {what}: {}",
                io::Error::from_raw_os_error(record.value)
            )
        }
        LaunchError::Other(error) => error.to_string(),
    })?;
    drop(running.stdin);
    let until = Instant::now() + PATIENCE;
    let out = read(&running.stdout, until);
    let err = read(&running.stderr, until);
    running.init.kill();
    Ok(GuestOutput {
        out: out.map_err(|error| format!("does not start in time: {error}"))?,
        err: err.unwrap_or_default(),
    })
}

fn read(pipe: &OwnedFd, until: Instant) -> io::Result<String> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(pipe, PollFlags::IN)];
        if poll(&mut polled, Some(&left))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match rustix::io::read(pipe.as_fd(), &mut buffer)? {
            0 => break,
            length if all.len() < MAX_OUTPUT => all.extend_from_slice(&buffer[..length]),
            _ => {}
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        for (text, expected) in [
            (
                "runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n",
                Some(20_240_729),
            ),
            (
                "runsc version release-20260706.0\nspec: 1.1.0\n",
                Some(20_260_706),
            ),
            ("runsc version VERSION_MISSING\n", None),
            ("", None),
        ] {
            assert_eq!(release(text), expected, "{text}");
        }
    }
}
