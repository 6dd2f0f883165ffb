//! Progress: a spinner on a terminal, plain lines elsewhere.
//!
//! Goes to stderr, so that stdout stays clean. Entry point: [`Progress`].

use std::io::{self, IsTerminal as _};

use super::output::{Output, Stream};
use super::screen::Screen;

const TURNS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// A wait in progress.
pub(super) struct Progress {
    turns: bool,
    width: usize,
    turn: usize,
    told: String,
    output: &'static Output,
}

impl Progress {
    /// Starts waiting.
    pub(super) fn new(screen: &Screen) -> Self {
        Self {
            turns: screen.is_terminal() && io::stderr().is_terminal(),
            width: screen.width().saturating_sub(4),
            turn: 0,
            told: String::new(),
            output: screen.output(),
        }
    }

    /// Returns whether a spinner is shown.
    pub(super) fn turns(&self) -> bool {
        self.turns
    }

    /// Updates the text; off a terminal, repetitions are not printed.
    pub(super) fn tell(&mut self, text: &str) {
        let text = Screen::safe(text).replace('\n', " ");
        if self.turns {
            let turn = TURNS[self.turn % TURNS.len()];
            self.turn += 1;
            // A line longer than the terminal could not be cleared.
            let text: String = text.chars().take(self.width).collect();
            let line = format!("\r\x1b[K{turn} {text}\r");
            self.output.write_if_idle(Stream::Stderr, &line);
            self.output.set_turning(true);
        } else if text != self.told {
            self.output.write(Stream::Stderr, &format!("{text}\n"));
        }
        self.told = text;
    }
}

impl Progress {
    /// Starts a spinner, if there is a terminal.
    pub(super) fn on_terminal(screen: &Screen) -> Option<Self> {
        let progress = Self::new(screen);
        progress.turns.then_some(progress)
    }

    /// Clears the spinner, so that another line can be printed.
    pub(super) fn wipe(&mut self) {
        if self.turns && self.turn > 0 {
            self.output.set_turning(false);
            self.output.write(Stream::Stderr, "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.wipe();
    }
}
