//! A diagnostic: what is wrong in a configuration file, where, and what to write instead.
//!
//! `Display` is one line, `file:line:column: message`, for logs and statuses; on a terminal it is
//! shown in its source, with values masked ([`Diagnostic::render`]). Never shows the value of a
//! variable.

mod mask;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_model::diagnose::{Diagnose, Fault};
use miette::{
    Diagnostic as Report, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource,
    SourceCode,
};

use super::document::{Span, place};

/// The widest line that is shown around a mistake, in bytes.
const WIDEST: usize = 400;

/// The kind of error; each has a stable code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The file cannot be read.
    Read,
    /// The file is too long.
    TooLong,
    /// The file is not valid JSON or TOML, or lacks the expected structure.
    Syntax,
    /// A key that is not known.
    UnknownKey,
    /// A duplicate name.
    Repeated,
    /// A value of the wrong type, or out of range.
    Value,
    /// A server's name is invalid.
    Name,
    /// A variable or an input has no value.
    Variable,
    /// Something that is refused for safety unless explicitly allowed.
    Refused,
}

/// An error at one position of a file.
#[derive(Debug, Clone)]
pub struct Diagnostic(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    path: PathBuf,
    text: Option<Arc<str>>,
    span: Span,
    kind: Kind,
    said: String,
    cause: Option<Arc<io::Error>>,
    label: Option<String>,
    help: Option<String>,
    server: Option<String>,
    shows_value: bool,
}

impl Diagnostic {
    /// Creates a diagnostic at a position.
    pub fn at(path: &Path, text: &Arc<str>, span: Span, kind: Kind) -> Self {
        let mut diagnostic = Self::of_file(path, kind);
        diagnostic.0.text = Some(Arc::clone(text));
        diagnostic.0.span = span;
        diagnostic
    }

    /// Creates a diagnostic for the whole file.
    pub fn of_file(path: &Path, kind: Kind) -> Self {
        Self(Box::new(Parts {
            path: path.to_owned(),
            text: None,
            span: 0..0,
            kind,
            said: String::new(),
            cause: None,
            label: None,
            help: None,
            server: None,
            shows_value: false,
        }))
    }

    /// Says what is wrong.
    #[must_use]
    pub fn say(mut self, said: impl Into<String>) -> Self {
        self.0.said = said.into();
        self
    }

    /// Says why.
    #[must_use]
    pub fn because(mut self, cause: io::Error) -> Self {
        self.0.cause = Some(Arc::new(cause));
        self
    }

    /// Adds a label at the position.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.0.label = Some(label.into());
        self
    }

    /// Says what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Names the server of the entry.
    #[must_use]
    pub fn of_server(mut self, server: &str) -> Self {
        self.0.server = Some(server.escape_debug().to_string());
        self
    }

    /// Shows the value at the position: its option is a number, a time or a keyword.
    #[must_use]
    pub fn show_value(mut self) -> Self {
        self.0.shows_value = true;
        self
    }

    /// Shows the file under another name.
    #[must_use]
    pub fn shown_as(mut self, path: &Path) -> Self {
        self.0.path = path.to_owned();
        self
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns its position in the file.
    pub fn span(&self) -> &Span {
        &self.0.span
    }

    /// Returns the message, without file and position.
    pub fn message(&self) -> &str {
        &self.0.said
    }

    /// Returns its kind.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the server of the entry, escaped.
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// Returns line and column, if it has a position.
    pub fn place(&self) -> Option<(usize, usize)> {
        let text = self.0.text.as_ref()?;
        Some(place(text, self.0.span.start))
    }

    /// Returns it in one line, without the server's name: `file:line:column: message`.
    pub fn in_its_file(&self) -> String {
        let path = self.0.path.display();
        let said = match &self.0.cause {
            Some(cause) => format!("{}: {cause}", self.0.said),
            None => self.0.said.clone(),
        };
        match self.place() {
            Some((line, column)) => format!("{path}:{line}:{column}: {said}"),
            None => format!("{path}: {said}"),
        }
    }

    /// Renders the diagnostic in its source, over several lines.
    pub fn render(&self, colour: bool) -> String {
        let theme = if colour {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_wrap_lines(false)
            .with_context_lines(1)
            .with_links(false)
            .without_syntax_highlighting();
        let shown = Shown {
            diagnostic: self,
            source: self
                .0
                .text
                .as_ref()
                .filter(|text| is_narrow(text, self.0.span.start))
                .map(|text| {
                    let value = self.0.shows_value.then(|| self.0.span.clone());
                    let text = mask::mask(text, &self.to_string(), value);
                    NamedSource::new(self.0.path.display().to_string(), harmless(&text))
                }),
        };
        let mut text = String::new();
        match handler.render_report(&mut text, &shown) {
            Ok(()) => text,
            Err(fmt::Error) => self.to_string(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.0.path.display())?;
        if let Some((line, column)) = self.place() {
            write!(f, "{line}:{column}:")?;
        }
        match &self.0.server {
            Some(server) => write!(f, " server `{server}`: {}", self.0.said),
            None => write!(f, " {}", self.0.said),
        }
    }
}

impl std::error::Error for Diagnostic {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_deref()?;
        Some(cause)
    }
}

impl Diagnose for Diagnostic {
    fn code(&self) -> &'static str {
        match self.0.kind {
            Kind::Read => "config.read",
            Kind::TooLong => "config.too_long",
            Kind::Syntax => "config.syntax",
            Kind::UnknownKey => "config.unknown_key",
            Kind::Repeated => "config.repeated",
            Kind::Value => "config.value",
            Kind::Name => "config.name",
            Kind::Variable => "config.variable",
            Kind::Refused => "config.refused",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        self.0.help.clone()
    }
}

/// A diagnostic as rendered in its source, which shows the position.
struct Shown<'a> {
    diagnostic: &'a Diagnostic,
    source: Option<NamedSource<String>>,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.diagnostic, f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let diagnostic = self.diagnostic;
        let mut said = harmless(&diagnostic.0.said);
        if let Some(server) = &diagnostic.0.server {
            said = format!("server `{server}`: {said}");
        }
        match &self.source {
            Some(_) => f.write_str(&said),
            None => {
                let path = diagnostic.0.path.display();
                match diagnostic.place() {
                    Some((line, column)) => write!(f, "{path}:{line}:{column}: {said}"),
                    None => write!(f, "{path}: {said}"),
                }
            }
        }
    }
}

impl std::error::Error for Shown<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.diagnostic.0.cause.as_deref()?;
        Some(cause)
    }
}

impl Report for Shown<'_> {
    fn code<'c>(&'c self) -> Option<Box<dyn fmt::Display + 'c>> {
        Some(Box::new(Diagnose::code(self.diagnostic)))
    }

    fn help<'c>(&'c self) -> Option<Box<dyn fmt::Display + 'c>> {
        let help = self.diagnostic.0.help.as_deref()?;
        Some(Box::new(harmless(help)))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref()?;
        let span = &self.diagnostic.0.span;
        // A multi-line value is marked at its start.
        let text = self.diagnostic.0.text.as_deref().unwrap_or_default();
        let end = span.end.min(text.len());
        let first_line = text.get(span.start..end).and_then(|text| text.find('\n'));
        let length = first_line.unwrap_or_else(|| end.saturating_sub(span.start));
        let label = self.diagnostic.0.label.as_deref().map(harmless);
        let label = LabeledSpan::new_primary_with_span(label, (span.start, length));
        Some(Box::new(std::iter::once(label)))
    }
}

/// Returns whether the lines around a place can be shown: a file in one line cannot.
fn is_narrow(text: &str, at: usize) -> bool {
    let line = text.get(..at).unwrap_or_default().matches('\n').count();
    let mut around = text.lines().skip(line.saturating_sub(1)).take(3);
    around.all(|line| line.len() <= WIDEST)
}

/// Escapes foreign text for terminals, byte for byte, so that columns stay correct.
fn harmless(text: &str) -> String {
    let hidden = |letter: char| {
        letter.is_control() && !matches!(letter, '\n' | '\t')
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
            || ('\u{e0000}'..='\u{e007f}').contains(&letter)
    };
    let mut shown = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\r' && letters.peek() == Some(&'\n') {
            // The end of a line in files of other systems.
            shown.push(' ');
        } else if hidden(letter) {
            shown.extend(std::iter::repeat_n('?', letter.len_utf8()));
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Returns the most similar known name, if it is close enough.
pub fn meant<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let written = written.to_lowercase().replace('-', "_");
    let near = known.into_iter().map(|name| {
        let plain = name.to_lowercase();
        (distance(&written, &plain), name)
    });
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    let most = match name.len() {
        0..=3 => 1,
        4..=7 => 2,
        _ => 3,
    };
    (distance <= most).then_some(name)
}

/// Returns the edit distance of two short texts, with transpositions.
fn distance(one: &str, other: &str) -> usize {
    const LONGEST: usize = 64;
    let one: Vec<char> = one.chars().take(LONGEST).collect();
    let other: Vec<char> = other.chars().take(LONGEST).collect();
    let width = other.len() + 1;
    let mut costs = vec![0; (one.len() + 1) * width];
    for row in 0..=one.len() {
        for column in 0..width {
            let at = row * width + column;
            costs[at] = if row == 0 || column == 0 {
                row + column
            } else {
                let replaced = usize::from(one[row - 1] != other[column - 1]);
                let mut least = (costs[at - width] + 1)
                    .min(costs[at - 1] + 1)
                    .min(costs[at - width - 1] + replaced);
                let swapped = row > 1
                    && column > 1
                    && one[row - 1] == other[column - 2]
                    && one[row - 2] == other[column - 1];
                if swapped {
                    least = least.min(costs[at - 2 * width - 2] + 1);
                }
                least
            };
        }
    }
    costs[costs.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["command", "args", "env", "cwd"];
        assert_eq!(meant("comand", known), Some("command"));
        assert_eq!(meant("agrs", known), Some("args"));
        assert_eq!(meant("Env", known), Some("env"));
        assert_eq!(meant("colour", known), None);
    }

    #[test]
    fn a_mistake_is_one_line_or_a_picture() {
        let text: Arc<str> = Arc::from("a = 1\nb = \u{1b}[2J\n");
        let diagnostic = Diagnostic::at(Path::new("x.toml"), &text, 6..7, Kind::Value)
            .say("`b` must be a text")
            .label("this")
            .help("write `b = \"…\"`");
        assert_eq!(diagnostic.to_string(), "x.toml:2:1: `b` must be a text");
        let shown = diagnostic.render(false);
        assert!(shown.contains("x.toml:2:1"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        // The ends of lines of other systems are none of the text, and a file in one long line is
        // not shown, but the place in it is.
        let text: Arc<str> = Arc::from("a = 1\r\nb = 2\r\n");
        let diagnostic = Diagnostic::at(Path::new("x.toml"), &text, 7..8, Kind::Value).say("no");
        assert!(!diagnostic.render(false).contains('?'));
        let text: Arc<str> = Arc::from(" ".repeat(10_000) + "b");
        let diagnostic = Diagnostic::at(Path::new("x.json"), &text, 10_000..10_001, Kind::Value);
        let shown = diagnostic.say("wrong").render(false);
        assert!(
            shown.contains("x.json:1:10001: wrong") && shown.len() < 200,
            "{shown}"
        );
    }
}
