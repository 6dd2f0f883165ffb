//! Questions to a user at a terminal; without one, nothing is asked.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::screen::Screen;

/// Returns whether a user can be asked.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks a yes/no question; anything but yes is no.
pub(super) fn yes(question: &str) -> bool {
    let answer = ask(&format!("{question} [y/N] "));
    matches!(answer.as_deref(), Some("y" | "Y" | "yes" | "Yes"))
}

/// Asks for a text.
pub(super) fn text(question: &str) -> Option<String> {
    ask(&format!("{question}: "))
}

/// Prints a text for the user who answers the questions.
pub(super) fn say(text: &str) {
    // The next question notices that the terminal is gone.
    drop(writeln!(io::stdout().lock(), "{}", Screen::safe(text)));
}

/// Asks for a text without echo.
pub(super) fn secret(question: &str) -> Option<String> {
    let _quiet = Quiet::new();
    let answer = ask(&format!("{question}: "));
    // The line break was not echoed either.
    drop(writeln!(io::stdout().lock()));
    answer
}

fn ask(question: &str) -> Option<String> {
    let mut out = io::stdout().lock();
    // A question may contain foreign text.
    out.write_all(Screen::safe(question).as_bytes()).ok()?;
    out.flush().ok()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}

/// Disables the terminal's echo until dropped.
struct Quiet(Option<Termios>);

impl Quiet {
    fn new() -> Self {
        let Ok(before) = tcgetattr(io::stdin()) else {
            return Self(None);
        };
        let mut quiet = before.clone();
        quiet.local_modes &= !LocalModes::ECHO;
        let done = tcsetattr(io::stdin(), OptionalActions::Now, &quiet);
        Self(done.is_ok().then_some(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // If the terminal is gone, there is nothing to restore.
            tcsetattr(io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}
