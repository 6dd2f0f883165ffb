//! Questions to a person at a terminal; where nobody is there, nothing is asked.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::screen::Screen;

/// Tells whether a person can be asked.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks for a yes; anything else is a no.
pub(super) fn yes(question: &str) -> bool {
    let answer = ask(&format!("{question} [y/N] "));
    matches!(answer.as_deref(), Some("y" | "Y" | "yes" | "Yes"))
}

/// Asks for a text that is not shown while it is typed.
pub(super) fn secret(question: &str) -> Option<String> {
    let _quiet = Quiet::new();
    let answer = ask(&format!("{question}: "));
    // The line break was not shown either.
    drop(writeln!(io::stdout().lock()));
    answer
}

fn ask(question: &str) -> Option<String> {
    let mut out = io::stdout().lock();
    // A question may name what a file of others calls something.
    out.write_all(Screen::safe(question).as_bytes()).ok()?;
    out.flush().ok()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}

/// Keeps the terminal from showing what is typed, until it is dropped.
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
            // A terminal that is gone shows nothing anyway.
            tcsetattr(io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}
