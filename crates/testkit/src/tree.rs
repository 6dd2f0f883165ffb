//! Process trees that are hard to kill, for the tests of owned trees (faults P3, P4): a child, a
//! grandchild in its own session, a daemon that left its parents, and one deaf to TERM and HUP.
//! Each member is this program started again in another mode. Entry point: [`run`].

use std::env;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use crate::procs::MARKER_VARIABLE;
use crate::signals;

const HELP: &str = "\
treegen: makes a tree of five marked processes, then waits or becomes another program

usage: treegen --marker M [--depth N] [--lifetime SECONDS] [--hold-stdio] [--exec PROGRAM ARGS…]

  --marker M          each member has GANTRY_TEST_MARKER=M and an argument M
  --depth N           N more plain descendants below the child (default 0)
  --lifetime SECONDS  members end by themselves after this time (default 600)
  --hold-stdio        members keep this process's stdout and stderr open
  --exec PROGRAM ARGS the first process becomes this program, its tree beside it

The five: the first process itself; a child; the child's child in a session of its own; a daemon
(double fork, setsid twice, its parent gone); a child that ignores TERM, HUP and INT.
";

#[derive(Clone, Debug, Default)]
struct Options {
    marker: String,
    depth: u32,
    lifetime: u64,
    hold_stdio: bool,
    mode: String,
    exec: Vec<String>,
}

/// Runs `treegen` with these arguments (without the program's name).
pub fn run(arguments: Vec<String>) -> ExitCode {
    let outcome = match parse(arguments) {
        Ok(None) => io::stdout()
            .write_all(HELP.as_bytes())
            .map(|()| ExitCode::SUCCESS),
        Ok(Some(options)) => options.play(),
        Err(usage) => Err(io::Error::new(io::ErrorKind::InvalidInput, usage)),
    };
    outcome.unwrap_or_else(|error| {
        drop(writeln!(io::stderr(), "treegen: {error}"));
        ExitCode::from(2)
    })
}

fn parse(arguments: Vec<String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        lifetime: 600,
        mode: "first".into(),
        ..Options::default()
    };
    let mut arguments = arguments.into_iter();
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{flag}` needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("`{text}` is no number"));
        match flag.as_str() {
            "--help" => return Ok(None),
            "--marker" => options.marker = value()?,
            "--mode" => options.mode = value()?,
            "--depth" => {
                options.depth = u32::try_from(number(value()?)?).map_err(|_| "too deep")?;
            }
            "--lifetime" => options.lifetime = number(value()?)?,
            "--hold-stdio" => options.hold_stdio = true,
            "--exec" => options.exec = arguments.by_ref().collect(),
            other => return Err(format!("no flag `{other}`")),
        }
    }
    if options.marker.is_empty() {
        return Err("`--marker` is needed".into());
    }
    Ok(Some(options))
}

impl Options {
    fn play(self) -> io::Result<ExitCode> {
        match self.mode.as_str() {
            "first" => self.first(),
            "child" => {
                let below = if self.depth > 0 { "child" } else { "session" };
                let deeper = Self {
                    depth: self.depth.saturating_sub(1),
                    ..self.clone()
                };
                deeper.start(below)?;
                self.wait()
            }
            "session" | "daemon" => {
                rustix::process::setsid()?;
                self.wait()
            }
            "forker" => {
                rustix::process::setsid()?;
                // The daemon reports ready on the stdin it inherits; this process just leaves.
                self.command("daemon")?.stdin(Stdio::inherit()).spawn()?;
                Ok(ExitCode::SUCCESS)
            }
            "deaf" | "waiting" => self.wait(),
            other => Err(io::Error::other(format!("no mode `{other}`"))),
        }
    }

    /// Makes the tree, then becomes the wanted program, or itself with the marker in its
    /// environment: a process cannot change the environment others see of it, but `exec` can.
    fn first(self) -> io::Result<ExitCode> {
        self.start("child")?;
        self.start("forker")?.wait()?;
        self.start("deaf")?;
        let mut last = match self.exec.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).env(MARKER_VARIABLE, &self.marker);
                command
            }
            None => {
                let mut command = self.command("waiting")?;
                command
                    .stdin(Stdio::inherit())
                    .stdout(Stdio::inherit())
                    .stderr(Stdio::inherit());
                command
            }
        };
        Err(last.exec())
    }

    /// Starts a member and returns once it, and all below it, are in place. A member says so by a
    /// byte on its stdin, which is the writing end of a pipe.
    fn start(&self, mode: &str) -> io::Result<Child> {
        let (mut reader, writer) = io::pipe()?;
        let child = self.command(mode)?.stdin(writer).spawn()?;
        reader.read_exact(&mut [0])?;
        Ok(child)
    }

    fn command(&self, mode: &str) -> io::Result<Command> {
        let program: PathBuf = env::current_exe()?;
        let mut arguments = vec!["--marker".to_owned(), self.marker.clone()];
        arguments.extend(["--mode".to_owned(), mode.to_owned()]);
        arguments.extend(["--depth".to_owned(), self.depth.to_string()]);
        arguments.extend(["--lifetime".to_owned(), self.lifetime.to_string()]);
        if self.hold_stdio {
            arguments.push("--hold-stdio".to_owned());
        }
        let mut command = if mode == "deaf" {
            signals::deaf(&program, arguments)
        } else {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        command.env(MARKER_VARIABLE, &self.marker);
        if !self.hold_stdio {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        Ok(command)
    }

    /// Reports ready (except from the first process, whose stdin is not ours) and lives on.
    fn wait(self) -> io::Result<ExitCode> {
        if self.mode != "waiting" {
            rustix::io::write(rustix::stdio::stdin(), b"r")?;
            let null = std::fs::File::open("/dev/null")?;
            rustix::stdio::dup2_stdin(&null)?;
        }
        thread::sleep(Duration::from_secs(self.lifetime));
        Ok(ExitCode::SUCCESS)
    }
}
