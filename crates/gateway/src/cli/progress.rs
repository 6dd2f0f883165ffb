//! Waiting, made visible: a line that turns on a terminal, plain lines anywhere else.
//!
//! Goes to stderr, so that what a verb prints stays what it prints. Entry point: [`Progress`].

use std::io::{self, IsTerminal as _, Write as _};

use super::screen::Screen;

const TURNS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Something that is waited for.
pub(super) struct Progress {
    turns: bool,
    turn: usize,
    told: String,
}

impl Progress {
    /// Begins to wait.
    pub(super) fn new(screen: &Screen) -> Self {
        Self {
            turns: screen.is_terminal() && io::stderr().is_terminal(),
            turn: 0,
            told: String::new(),
        }
    }

    /// Says how things stand; told again and again, it is shown again only on a terminal.
    pub(super) fn tell(&mut self, text: &str) {
        let text = Screen::safe(text).replace('\n', " ");
        let mut out = io::stderr().lock();
        if self.turns {
            let turn = TURNS[self.turn % TURNS.len()];
            self.turn += 1;
            drop(write!(out, "\r\x1b[K{turn} {text}").and_then(|()| out.flush()));
        } else if text != self.told {
            drop(writeln!(out, "{text}"));
        }
        self.told = text;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.turns && self.turn > 0 {
            let mut out = io::stderr().lock();
            drop(write!(out, "\r\x1b[K").and_then(|()| out.flush()));
        }
    }
}
