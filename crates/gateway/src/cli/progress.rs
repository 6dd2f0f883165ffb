//! Waiting, made visible: a line that turns on a terminal, plain lines anywhere else.
//!
//! Goes to stderr, so that what a verb prints stays what it prints. Entry point: [`Progress`].

use std::io::{self, IsTerminal as _};

use super::output::{Output, Stream};
use super::screen::Screen;

const TURNS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Something that is waited for.
pub(super) struct Progress {
    turns: bool,
    width: usize,
    turn: usize,
    told: String,
    output: &'static Output,
}

impl Progress {
    /// Begins to wait.
    pub(super) fn new(screen: &Screen) -> Self {
        Self {
            turns: screen.is_terminal() && io::stderr().is_terminal(),
            width: screen.width().saturating_sub(4),
            turn: 0,
            told: String::new(),
            output: screen.output(),
        }
    }

    /// Says how things stand; told again and again, it is shown again only on a terminal.
    pub(super) fn tell(&mut self, text: &str) {
        let text = Screen::safe(text).replace('\n', " ");
        if self.turns {
            let turn = TURNS[self.turn % TURNS.len()];
            self.turn += 1;
            // A line that is longer than the terminal could not be wiped.
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
    /// Begins to wait, if there is a terminal to show it on.
    pub(super) fn on_terminal(screen: &Screen) -> Option<Self> {
        let progress = Self::new(screen);
        progress.turns.then_some(progress)
    }

    /// Wipes the line that turns, so that another can be printed.
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
