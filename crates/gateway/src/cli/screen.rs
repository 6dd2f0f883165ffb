//! What the person sees: stdout and stderr, in colour only where that is wanted and can be seen.
//!
//! Text that comes from servers is made harmless first ([`Screen::safe`]): control characters and
//! direction marks never reach a terminal. A closed pipe is no reason to fail, a full disk is: see
//! [`Screen::finish`]. Everything goes through [`Output`].

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use gantry_model::naming::is_invisible;
use serde_json::Value;

use crate::config::env::Environment;

use super::failure::{Exit, Failure};
use super::format;
use super::output::{Output, Stream};

/// The person's terminal, or whatever stands in for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    colour: bool,
    /// The same for stderr, which may go elsewhere.
    error_colour: bool,
    terminal: bool,
    /// Whether lines go to stderr, since stdout is for something else.
    aside: bool,
    /// How wide tables may be; without a terminal they are as wide as what is in them.
    width: Option<usize>,
    output: &'static Output,
}

impl Screen {
    pub(super) fn new(environment: &Environment, output: &'static Output) -> Self {
        let terminal = io::stdout().is_terminal();
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let shown = size.map(|size| usize::from(size.ws_col));
        let shown = shown.filter(|width| terminal && *width >= 20);
        let coloured = |terminal: bool| {
            environment.forces_colour() || (environment.wants_colour() && terminal)
        };
        Self {
            colour: coloured(terminal),
            error_colour: coloured(io::stderr().is_terminal()),
            terminal,
            aside: false,
            width: shown.or_else(|| environment.columns()),
            output,
        }
    }

    /// Returns where everything goes.
    pub(super) fn output(&self) -> &'static Output {
        self.output
    }

    /// Waits until what was printed is written, and returns the exit code: that of a failure, if
    /// stdout did not take everything.
    pub(super) fn finish(&self, code: ExitCode) -> ExitCode {
        self.output.flush();
        match self.output.failure() {
            None => code,
            Some(error) => {
                let code = Failure::plain(Exit::Failed, "cannot write to stdout", &error);
                let code = code.show(self);
                self.output.flush();
                code
            }
        }
    }

    /// Tells whether a person is looking.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Tells whether colours are shown.
    pub(super) fn has_colour(&self) -> bool {
        self.colour
    }

    /// Returns it as it is for what goes to stderr.
    pub(super) fn for_errors(self) -> Self {
        Self {
            colour: self.error_colour,
            ..self
        }
    }

    /// Returns one whose lines all go to stderr, where stdout is for a program that reads it.
    pub(super) fn beside_stdout(self) -> Self {
        Self {
            aside: true,
            ..self.for_errors()
        }
    }

    /// Returns how wide the text may be.
    pub(super) fn width(&self) -> usize {
        self.width.unwrap_or(usize::MAX)
    }

    /// Prints a line.
    pub(super) fn line(&self, text: &str) {
        // Whoever closed the pipe has seen enough; the gateway goes on.
        self.is_seen(text);
    }

    /// Prints a line and tells whether somebody still reads.
    pub(super) fn is_seen(&self, text: &str) -> bool {
        let stream = if self.aside {
            Stream::Stderr
        } else {
            Stream::Stdout
        };
        self.output.write(stream, &format!("{text}\n"))
    }

    /// Prints a value in one line to stdout, wherever other lines go.
    pub(super) fn machine_line(&self, value: &Value) {
        // Whoever closed the pipe has seen enough; the gateway goes on.
        self.output.write(Stream::Stdout, &format!("{value}\n"));
    }

    /// Prints a text as it is.
    pub(super) fn text(&self, text: &str) {
        self.output.write(Stream::Stdout, text);
    }

    /// Prints what came of a verb, as JSON if that is wanted, else as a line, made harmless.
    pub(super) fn outcome(&self, as_json: bool, value: &Value, line: &str) {
        match as_json {
            true => self.line(&format::pretty(value)),
            false => self.line(&Self::safe(line)),
        }
    }

    /// Prints rows under a heading, as wide as the terminal.
    pub(super) fn table(&self, heading: &[&str], rows: &[Vec<String>]) {
        let text = format::table(heading, rows, self.width());
        match text.split_once('\n') {
            Some((heading, rows)) => self.line(&format!("{}\n{rows}", self.strong(heading))),
            None => self.line(&self.strong(&text)),
        }
    }

    /// Prints a line to stderr.
    pub(super) fn error_line(&self, text: &str) {
        self.output.write(Stream::Stderr, &format!("{text}\n"));
    }

    pub(super) fn strong(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn faint(&self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(super) fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(super) fn doubtful(&self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Makes text of others harmless: what is no visible character, blank, tab or line break is escaped.
    pub(super) fn safe(text: &str) -> String {
        let mut harmless = String::with_capacity(text.len());
        for letter in text.chars() {
            if matches!(letter, '\n' | '\t') || !(letter.is_control() || is_invisible(letter)) {
                harmless.push(letter);
            } else {
                harmless.extend(letter.escape_default());
            }
        }
        harmless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_servers_cannot_steer_the_terminal() {
        assert_eq!(Screen::safe("a\tb\nc é 漢"), "a\tb\nc é 漢");
        assert_eq!(
            Screen::safe("\x1b[2Jx\r\u{202e}y\u{7f}"),
            r"\u{1b}[2Jx\r\u{202e}y\u{7f}"
        );
    }
}
