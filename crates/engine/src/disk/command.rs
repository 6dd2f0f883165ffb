//! Runs the system programs that create and mount file systems, with a deadline and with their
//! output in the error.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The deadline of a program.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often the program's end is checked.
const LOOK: Duration = Duration::from_millis(2);
/// How many bytes of its output are kept.
const WORDS: u64 = 2 << 10;

/// The search path, also for a user without the administrator's `PATH`.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin";

/// Runs a program and waits for it; exit codes above `most` are failures.
pub(super) fn run(program: &str, args: &[&std::ffi::OsStr], most: i32) -> io::Result<()> {
    run_within(program, args, most, DEADLINE, Stdio::null())
}

/// Runs a program with a deadline and an input.
pub(super) fn run_within(
    program: &str,
    args: &[&std::ffi::OsStr],
    most: i32,
    deadline: Duration,
    stdin: impl Into<Stdio>,
) -> io::Result<()> {
    let child = Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let missing = |error: io::Error| {
        if error.kind() == io::ErrorKind::NotFound {
            io::Error::new(error.kind(), format!("`{program}` not found"))
        } else {
            error
        }
    };
    let mut child = child.map_err(missing)?;
    let code = wait(&mut child, deadline)?;
    if code.is_some_and(|code| code <= most) {
        return Ok(());
    }
    let mut words = String::new();
    if let Some(stderr) = child.stderr.take() {
        // All its output is available once it has ended.
        stderr.take(WORDS).read_to_string(&mut words)?;
    }
    let how = code.map_or_else(
        || "was killed".to_owned(),
        |code| format!("exit code {code}"),
    );
    let words = words.trim().replace('\n', "; ");
    Err(io::Error::other(format!("`{program}`: {how}: {words}")))
}

fn wait(child: &mut Child, deadline: Duration) -> io::Result<Option<i32>> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if waited >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(LOOK);
        waited += LOOK;
    }
}
