//! Terminal output: stdout and stderr, with colour where it is wanted and supported.
//!
//! Foreign text is escaped first ([`Screen::safe`], `format::pretty` for JSON), and everything once
//! more on output (`guarded`): control characters and direction marks never reach a terminal. A
//! closed pipe is not a failure, a full disk is: see [`Screen::finish`]. Everything goes through
//! [`Output`].

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use gantry_model::naming::is_unprintable;
use serde_json::Value;

use crate::config::env::Environment;

use super::failure::{Exit, Failure};
use super::format;
use super::output::{Output, Stream};

/// The terminal, or its replacement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    colour: bool,
    /// The same for stderr.
    error_colour: bool,
    terminal: bool,
    /// Whether lines go to stderr, because stdout is reserved.
    aside: bool,
    /// The width of tables; unlimited without a terminal.
    width: Option<usize>,
    output: &'static Output,
    /// The data folder given by the user, quoted for a shell.
    data: Option<&'static str>,
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
            data: None,
        }
    }

    /// Remembers the data folder given by the user, so that suggested commands include it.
    pub(super) fn with_data(self, data: &Path) -> Self {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        Self {
            data: Some(Box::leak(format::quoted(&data).into_boxed_str())),
            ..self
        }
    }

    /// Returns a command of this program as the user must type it.
    pub(super) fn command(&self, verb: &str) -> String {
        match self.data {
            Some(data) => format!("gantry --data {data} {verb}"),
            None => format!("gantry {verb}"),
        }
    }

    /// Returns a text with its commands as the user must type them.
    pub(super) fn typed(&self, text: &str) -> String {
        text.replace("`gantry ", &format!("`{}", self.command("")))
    }

    /// Prints a line that may contain commands to type.
    pub(super) fn advise(&self, text: &str) {
        self.line(&self.typed(text));
    }

    /// Returns the output.
    pub(super) fn output(&self) -> &'static Output {
        self.output
    }

    /// Waits until everything is written, and returns the exit code: a failure if stdout could not
    /// be written.
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

    /// Clears the terminal, or prints a separator; returns whether the reader is still there.
    pub(super) fn clear(&self) -> bool {
        match self.terminal {
            true => self.output.write(Stream::Stdout, "\x1b[H\x1b[2J"),
            false => self.is_seen(""),
        }
    }

    /// Returns whether stdout is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns whether colours are shown.
    pub(super) fn has_colour(&self) -> bool {
        self.colour
    }

    /// Returns the screen for stderr.
    pub(super) fn for_errors(self) -> Self {
        Self {
            colour: self.error_colour,
            ..self
        }
    }

    /// Returns a screen that prints to stderr, because stdout is read by a program.
    pub(super) fn beside_stdout(self) -> Self {
        Self {
            aside: true,
            ..self.for_errors()
        }
    }

    /// Returns the width for text.
    pub(super) fn width(&self) -> usize {
        self.width.unwrap_or(usize::MAX)
    }

    /// Prints a line.
    pub(super) fn line(&self, text: &str) {
        // A closed pipe is fine; the gateway continues.
        self.is_seen(text);
    }

    /// Prints a line and returns whether the reader is still there.
    pub(super) fn is_seen(&self, text: &str) -> bool {
        let text = guarded(text, self.colour);
        let stream = if self.aside {
            Stream::Stderr
        } else {
            Stream::Stdout
        };
        self.output.write(stream, &format!("{text}\n"))
    }

    /// Prints a value as one line of JSON to stdout, even if other lines go to stderr.
    pub(super) fn machine_line(&self, value: &Value) {
        // A closed pipe is fine; the gateway continues.
        self.output
            .write(Stream::Stdout, &format!("{}\n", format::compact(value)));
    }

    /// Prints a text as it is.
    pub(super) fn text(&self, text: &str) {
        self.output.write(Stream::Stdout, text);
    }

    /// Prints a verb's result as JSON or as a line, escaped.
    pub(super) fn outcome(&self, as_json: bool, value: &Value, line: &str) {
        match as_json {
            true => self.line(&format::pretty(value)),
            false => self.line(&Self::safe(line)),
        }
    }

    /// Prints a labelled value, escaped; nothing if it is empty.
    pub(super) fn field(&self, label: &str, value: &str) {
        if !value.is_empty() {
            let label = self.strong(&format!("{label:<12}"));
            let value = Self::safe(value).replace('\n', "\n             ");
            self.line(&format!("{label} {value}"));
        }
    }

    /// Prints a table as wide as the terminal.
    pub(super) fn table(&self, heading: &[&str], rows: &[Vec<String>]) {
        let text = format::table(heading, rows, self.width());
        match text.split_once('\n') {
            Some((heading, rows)) => self.line(&format!("{}\n{rows}", self.strong(heading))),
            None => self.line(&self.strong(&text)),
        }
    }

    /// Prints a line to stderr.
    pub(super) fn error_line(&self, text: &str) {
        let text = guarded(text, self.error_colour);
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

    /// Escapes foreign text: everything but visible characters, blanks, tabs and line breaks.
    pub(super) fn safe(text: &str) -> String {
        guarded(text, false).into_owned()
    }
}

/// Escapes what a terminal must not get; colours are kept.
fn guarded(text: &str, coloured: bool) -> Cow<'_, str> {
    let is_kept = |letter: char| matches!(letter, '\n' | '\t') || !is_unprintable(letter);
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let colour = coloured.then(|| colour_at(rest)).flatten();
        if let Some(length) = colour {
            harmless.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        if is_kept(letter) {
            harmless.push(letter);
        } else {
            harmless.extend(letter.escape_default());
        }
        rest = &rest[letter.len_utf8()..];
    }
    Cow::Owned(harmless)
}

/// Returns the length of a colour sequence at this position, if there is one; sequences that hide
/// text do not count.
fn colour_at(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\x1b[")?;
    let end = numbers.find(|letter: char| !matches!(letter, '0'..='9' | ';'))?;
    let hides = numbers[..end].split(';').any(|number| number == "8");
    (numbers[end..].starts_with('m') && !hides).then_some(end + 3)
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
        // C1, bidirectional isolates, zero-width, tags, separators, blank letters.
        for letter in [
            '\u{80}',
            '\u{9b}',
            '\u{9d}',
            '\u{61c}',
            '\u{2066}',
            '\u{2069}',
            '\u{200b}',
            '\u{200d}',
            '\u{feff}',
            '\u{e0041}',
            '\u{e0101}',
            '\u{2028}',
            '\u{85}',
            '\u{3164}',
        ] {
            let shown = Screen::safe(&format!("a{letter}b"));
            assert!(shown.is_ascii() && shown.starts_with("a\\u{"), "{shown}");
        }
    }

    #[test]
    fn what_goes_out_is_guarded_whoever_prints_it() {
        let ours = "\x1b[31merror:\x1b[0m \x1b[38;5;4mx";
        assert_eq!(guarded(ours, true), ours);
        assert_eq!(guarded("\x1b[1mx", false), r"\u{1b}[1mx");
        for theirs in [
            "\x1b[8mx",
            "\x1b[2J",
            "\x1b]0;x\x07",
            "\x1b[",
            "\u{9b}31m",
            "\x1b[0;8mx",
        ] {
            assert!(
                !guarded(theirs, true).contains(['\x1b', '\u{9b}']),
                "{theirs:?}"
            );
        }
    }
}
