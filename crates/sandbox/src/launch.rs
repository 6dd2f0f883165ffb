//! Starts one init with its job and waits until the program runs or has failed.
//!
//! Runs on the calling thread: a cancelled caller cannot leave a half-started tree behind.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::cgroup::Group;
use crate::control::{self, Received};
use crate::error::SpawnError;
use crate::image::{Image, sealed_data};
use crate::job::Job;
use crate::protocol::{
    FLAG_CGROUP_KILL, FLAG_CGROUP_V2, FLAG_OWN_ROOT, FLAG_RUNTIME, KEEP_ID, KIND_FAILED,
    KIND_LANDLOCK, KIND_NOTE, KIND_RESIDENT, KIND_SERVER, KIND_STARTED, Record, STAGE_STEP,
};
use crate::reaper::{Init, Reaper};

/// How long the init may take between two reports.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);
/// The same with gVisor, which starts a kernel meanwhile.
const LONGEST_GUEST_START: Duration = Duration::from_secs(60);
/// The name of the process that is gVisor's guest kernel.
const GUEST_KERNEL: &[u8] = b"runsc-sandbox";
/// The size of the pipes; the kernel's default is a quarter of it.
const PIPE_BYTES: usize = 256 * 1024;

/// A tree that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) init: Arc<Init>,
    pub(crate) server_pid: u32,
    pub(crate) control: OwnedFd,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) group: Group,
    pub(crate) notes: Notes,
}

/// The reports of the init during the start.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Protections that failed.
    pub(crate) missing: Vec<Record>,
    pub(crate) landlock_abi: i32,
}

/// Why a launch failed.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The step that the init reports as failed.
    Step(Record),
    Other(SpawnError),
}

#[derive(Default)]
struct Progress {
    resident: Option<u32>,
    server: Option<u32>,
    started: bool,
    notes: Notes,
}

/// An init that has its job and has not reported yet.
struct Prepared {
    child: Child,
    control: OwnedFd,
    ours: [OwnedFd; 3],
}

struct Pipes {
    ours: [OwnedFd; 3],
    theirs: [OwnedFd; 3],
}

impl Notes {
    /// Returns whether a stage was reported.
    pub(crate) fn has(&self, stage: u8) -> bool {
        self.missing.iter().any(|note| note.stage == stage)
    }

    /// Returns why an optional step of building the root failed.
    pub(crate) fn step_failed(&self, index: usize) -> Option<io::Error> {
        let is_meant = |note: &&Record| {
            note.stage == STAGE_STEP && usize::try_from(note.data).is_ok_and(|data| data == index)
        };
        let note = self.missing.iter().find(is_meant)?;
        Some(io::Error::from_raw_os_error(note.value))
    }

    /// Returns the error of a stage.
    pub(crate) fn failed(&self, stage: u8) -> Option<io::Error> {
        let note = self.missing.iter().find(|note| note.stage == stage)?;
        Some(io::Error::from_raw_os_error(note.value))
    }
}

impl From<SpawnError> for LaunchError {
    fn from(error: SpawnError) -> Self {
        Self::Other(error)
    }
}

/// Runs a job.
pub(crate) fn launch(
    image: &Image,
    reaper: &Reaper,
    job: &mut Job,
    group: Group,
) -> Result<Running, LaunchError> {
    let Prepared {
        mut child,
        control,
        ours,
    } = match prepare(image, job, &group) {
        Ok(prepared) => prepared,
        Err(error) => {
            reaper.remove(group);
            return Err(error.into());
        }
    };
    let mut progress = Progress::default();
    let silence = match job.flags & FLAG_RUNTIME {
        0 => LONGEST_SILENCE,
        _ => LONGEST_GUEST_START,
    };
    let failure = match progress.follow(&control, silence).and_then(|init_pid| {
        let watch = |source| SpawnError::Setup {
            step: "watch the init",
            source,
        };
        Ok(reaper.watch(init_pid).map_err(watch)?)
    }) {
        Ok(init) => {
            if init.pid != child.id() {
                // The outer init has finished and is exiting.
                child.wait().ok();
            }
            let [stdin, stdout, stderr] = ours;
            let server = match job.flags & FLAG_RUNTIME {
                0 => progress.server,
                _ => guest_kernel(init.pid),
            };
            let server_pid = server.unwrap_or(init.pid);
            let notes = progress.notes;
            return Ok(Running {
                init,
                server_pid,
                control,
                stdin,
                stdout,
                stderr,
                group,
                notes,
            });
        }
        Err(failure) => failure,
    };
    let stuck = matches!(failure, LaunchError::Other(SpawnError::Silent { .. }));
    progress.abandon(&mut child, &control, stuck, reaper);
    reaper.remove(group);
    Err(failure)
}

/// Returns the guest kernel among the children of an init.
fn guest_kernel(init: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children")).ok()?;
    let mut children = children.split_whitespace();
    let found = children.find(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(GUEST_KERNEL))
    });
    found?.parse().ok()
}

/// Prepares everything a job needs, starts the outer init and sends the job.
fn prepare(image: &Image, job: &mut Job, group: &Group) -> Result<Prepared, SpawnError> {
    let setup = |step| move |source| SpawnError::Setup { step, source };
    let pipes = Pipes::new(job).map_err(setup("make the pipes"))?;
    let (control, theirs) = control::pair().map_err(setup("make the control socket"))?;
    let joins = group.join().map_err(setup("open the cgroups"))?;
    let kill_switch = if job.unshare == 0 {
        group.kill_switch()
    } else {
        None
    };
    if kill_switch.is_some() {
        job.flags |= FLAG_CGROUP_KILL;
    }
    if group.starts_with_v2() {
        job.flags |= FLAG_CGROUP_V2;
    }
    let blob = sealed_data("gantry-job", &job.encode()?).map_err(setup("write the job"))?;
    let fds: Vec<BorrowedFd<'_>> = pipes
        .theirs
        .iter()
        .chain([&blob])
        .chain(&joins)
        .chain(&kill_switch)
        .map(AsFd::as_fd)
        .collect();
    // Sent before the receiver exists: it fits the socket buffer, and on failure no process is
    // left.
    control::send_job(control.as_fd(), &fds).map_err(setup("send the job"))?;
    let child = start(image, theirs).map_err(setup("start the init"))?;
    Ok(Prepared {
        child,
        control,
        ours: pipes.ours,
    })
}

impl Progress {
    /// Reads records until the program runs; returns the process id of the resident init.
    fn follow(&mut self, control: &OwnedFd, silence: Duration) -> Result<u32, LaunchError> {
        loop {
            if let (true, Some(resident)) = (self.started, self.resident) {
                return Ok(resident);
            }
            match control::receive_within(control.as_fd(), silence) {
                Ok(Some(Received { record, .. })) if record.kind == KIND_FAILED => {
                    return Err(LaunchError::Step(record));
                }
                Ok(Some(received)) => self.take(received),
                Ok(None) => return Err(SpawnError::Ended.into()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(SpawnError::Silent { waited: silence }.into());
                }
                Err(source) => {
                    return Err(SpawnError::Setup {
                        step: "hear from the init",
                        source,
                    }
                    .into());
                }
            }
        }
    }

    fn take(&mut self, Received { record, sender }: Received) {
        match record.kind {
            KIND_RESIDENT => self.resident = u32::try_from(record.data).ok(),
            KIND_SERVER => self.server = sender,
            KIND_STARTED => self.started = true,
            KIND_NOTE => self.notes.missing.push(record),
            KIND_LANDLOCK => self.notes.landlock_abi = record.value,
            _ => {}
        }
    }

    /// Kills what exists of the tree and has it reaped.
    fn abandon(&mut self, child: &mut Child, control: &OwnedFd, stuck: bool, reaper: &Reaper) {
        // The init sees the end of the stream, and its last records can still be read.
        rustix::net::shutdown(control, Shutdown::Write).ok();
        if self.resident != Some(child.id()) {
            // The outer init exits by itself once it has reported the resident one.
            if stuck {
                child.kill().ok();
            }
            child.wait().ok();
        }
        while let Ok(Some(received)) = control::receive(control.as_fd()) {
            self.take(received);
        }
        let Some(resident) = self.resident else {
            return;
        };
        match reaper.watch(resident) {
            Ok(init) if resident != child.id() => init.kill(),
            Ok(_) => {}
            // Out of descriptors: it is an unreaped child, so its process id is not reused.
            Err(_) => {
                if let Some(pid) = i32::try_from(resident).ok().and_then(Pid::from_raw) {
                    if resident != child.id() {
                        kill_process(pid, Signal::KILL).ok();
                    }
                    waitpid(Some(pid), WaitOptions::empty()).ok();
                }
            }
        }
    }
}

impl Pipes {
    fn new(job: &Job) -> io::Result<Self> {
        let (their_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        for pipe in [&stdin, &stdout] {
            // Best effort: the total pipe memory of a user is limited.
            fcntl_setpipe_size(pipe, PIPE_BYTES).ok();
        }
        let theirs = [their_stdin, their_stdout, their_stderr];
        // So that the server can open `/dev/stderr` by name.
        if job.flags & FLAG_OWN_ROOT != 0 {
            // Open to every user: only the tree can reach these pipes.
            for pipe in &theirs {
                fchmod(pipe, Mode::from_raw_mode(0o666))?;
            }
        } else if job.uid != KEEP_ID {
            let owner = job.uid;
            for pipe in &theirs {
                fchown(pipe, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
            }
        }
        Ok(Self {
            ours: [stdin, stdout, stderr],
            theirs,
        })
    }
}

/// Starts the outer init: its only descriptor is the control socket, its environment is empty.
fn start(image: &Image, control: OwnedFd) -> io::Result<Child> {
    Command::new(image.path())
        .arg0("gantry-init")
        .env_clear()
        .current_dir("/")
        .stdout(Stdio::from(control.try_clone()?))
        .stderr(Stdio::from(control.try_clone()?))
        .stdin(Stdio::from(control))
        .spawn()
}
