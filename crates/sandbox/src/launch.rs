//! Starts one init with its job and follows it until the program runs or is known not to.
//!
//! Works on the calling thread: a caller that goes away in between cannot leave half a tree behind.

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
    FLAG_CGROUP_KILL, FLAG_CGROUP_V2, FLAG_OWN_ROOT, KEEP_ID, KIND_FAILED, KIND_LANDLOCK,
    KIND_NOTE, KIND_RESIDENT, KIND_SERVER, KIND_STARTED, Record, STAGE_STEP,
};
use crate::reaper::{Init, Reaper};

/// How long the init may stay silent on its way.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);
/// Room in the pipes for messages; the kernel's default is a quarter of it.
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

/// What the init told on its way.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Protections that could not be given.
    pub(crate) missing: Vec<Record>,
    pub(crate) landlock_abi: i32,
}

/// Why a launch ended without a tree.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The init says which step failed.
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

/// An init that has its job and has not yet said anything.
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
    /// Whether a step was noted at all.
    pub(crate) fn has(&self, stage: u8) -> bool {
        self.missing.iter().any(|note| note.stage == stage)
    }

    /// Returns why a step of making the root failed without which it goes.
    pub(crate) fn step_failed(&self, index: usize) -> Option<io::Error> {
        let is_meant = |note: &&Record| {
            note.stage == STAGE_STEP && usize::try_from(note.data).is_ok_and(|data| data == index)
        };
        let note = self.missing.iter().find(is_meant)?;
        Some(io::Error::from_raw_os_error(note.value))
    }

    /// Returns the errno with which a step failed.
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
    let failure = match progress.follow(&control).and_then(|init_pid| {
        let watch = |source| SpawnError::Setup {
            step: "watch the init",
            source,
        };
        Ok(reaper.watch(init_pid).map_err(watch)?)
    }) {
        Ok(init) => {
            if init.pid != child.id() {
                // The outer init has done its part and is ending.
                child.wait().ok();
            }
            let [stdin, stdout, stderr] = ours;
            let server_pid = progress.server.unwrap_or(init.pid);
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

/// Makes everything a job needs, starts the outer init and sends the job.
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
    // Sent before there is anyone to receive: it fits the socket, and nobody is left if it fails.
    control::send_job(control.as_fd(), &fds).map_err(setup("send the job"))?;
    let child = start(image, theirs).map_err(setup("start the init"))?;
    Ok(Prepared {
        child,
        control,
        ours: pipes.ours,
    })
}

impl Progress {
    /// Reads records until the program runs; returns who is resident.
    fn follow(&mut self, control: &OwnedFd) -> Result<u32, LaunchError> {
        loop {
            if let (true, Some(resident)) = (self.started, self.resident) {
                return Ok(resident);
            }
            match control::receive_within(control.as_fd(), LONGEST_SILENCE) {
                Ok(Some(Received { record, .. })) if record.kind == KIND_FAILED => {
                    return Err(LaunchError::Step(record));
                }
                Ok(Some(received)) => self.take(received),
                Ok(None) => return Err(SpawnError::Ended.into()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(SpawnError::Silent {
                        waited: LONGEST_SILENCE,
                    }
                    .into());
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

    /// Ends what there is of the tree and has it collected.
    fn abandon(&mut self, child: &mut Child, control: &OwnedFd, stuck: bool, reaper: &Reaper) {
        // The init sees the end of the stream, while its last records can still be read.
        rustix::net::shutdown(control, Shutdown::Write).ok();
        if self.resident != Some(child.id()) {
            // The outer init ends by itself once it has told who is resident.
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
            // Out of descriptors: it is our child and not reaped, so its number is still its own.
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
            // Best effort: a user's sum of pipe memory is limited.
            fcntl_setpipe_size(pipe, PIPE_BYTES).ok();
        }
        let theirs = [their_stdin, their_stdout, their_stderr];
        // So that the server may open `/dev/stderr` by name.
        if job.flags & FLAG_OWN_ROOT != 0 {
            // Whoever it is there: nobody outside its tree can reach them.
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
