//! Runs the few programs of the system that make and mount file systems, with a deadline and with
//! their own words in the error.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// How long such a program may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often its end is looked for.
const LOOK: Duration = Duration::from_millis(2);
/// How much of its words is kept.
const WORDS: u64 = 2 << 10;

/// Where such programs are, also for a user without the administrator's search path.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin";

/// Runs a program and waits for it; codes above `most` are failures.
pub(super) fn run(program: &str, args: &[&std::ffi::OsStr], most: i32) -> io::Result<()> {
    run_within(program, args, most, DEADLINE, Stdio::null())
}

/// Runs a program that may take so long, with its standard input.
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
        // What it wrote before it ended is there already.
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
