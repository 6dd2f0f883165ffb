//! A real terminal with a program in it: `script` makes one, and the test reads and types.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_testkit::wait::eventually;

/// Longer than a program that is asked for something takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Terminals that were opened, so that each has a file of its own.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// A terminal with a program in it.
pub(crate) struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: PathBuf,
    /// How much of what was shown was looked at.
    read: usize,
}

impl Terminal {
    /// Runs a line of a shell in a folder, as a person with this home does.
    pub(crate) fn open(home: &Path, folder: &Path, line: &str) -> Self {
        Self::open_with(home, folder, line, "/usr/local/bin:/usr/bin:/bin")
    }

    /// The same, with programs of these folders.
    pub(crate) fn open_with(home: &Path, folder: &Path, line: &str, path: &str) -> Self {
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let screen = home.join(format!("screen-{number}"));
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", line])
            .arg("/dev/null")
            .env_clear()
            .env("PATH", path)
            .env("HOME", home)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(File::create(&screen).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .expect("`script` of util-linux is there");
        let keyboard = child.stdin.take().unwrap();
        Self {
            child,
            keyboard,
            screen,
            read: 0,
        }
    }

    /// Returns everything that was ever on the screen.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.screen).unwrap()).into_owned()
    }

    /// Waits until a text is on the screen.
    pub(crate) fn sees(&self, text: &str) {
        let seen = eventually(PATIENCE, || self.shown().contains(text));
        assert!(seen.is_some(), "never saw «{text}»:\n{}", self.shown());
    }

    /// Waits until a text is on the screen that was not looked at yet, and returns what came up to it.
    pub(crate) fn reads(&mut self, text: &str) -> String {
        let mut found = None;
        let seen = eventually(PATIENCE, || {
            let shown = self.shown();
            let rest = shown.get(self.read..).unwrap_or_default();
            found = rest.find(text).map(|at| {
                let end = at + text.len();
                (rest[..end].to_owned(), self.read + end)
            });
            found.is_some()
        });
        assert!(seen.is_some(), "never read «{text}»:\n{}", self.shown());
        let (came, read) = found.unwrap();
        self.read = read;
        came
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// Waits for the program's end and returns its exit code.
    pub(crate) fn ends(&mut self) -> i32 {
        let mut status = None;
        let ended = eventually(PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended.is_some(), "it still runs:\n{}", self.shown());
        status.and_then(|status| status.code()).unwrap()
    }

    /// Stops a gateway with Ctrl-C.
    pub(crate) fn stops(mut self) -> String {
        self.types("\u{3}");
        assert_eq!(self.ends(), 0, "{}", self.shown());
        self.shown()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
