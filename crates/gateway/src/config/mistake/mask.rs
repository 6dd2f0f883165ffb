//! Takes values out of a file's text before a mistake is shown in it, byte for byte, so that places
//! stay true.
//!
//! Reads any text, however broken: names and structure are shown, and values only where their key is
//! known to hold nothing private. What it does not understand it hides. Entry point: [`mask`].

mod seen;

use self::seen::Seen;
use crate::config::document::Syntax;

/// Returns the text with `*` for everything that may be private, as long in bytes as it was.
pub(super) fn mask(text: &str, syntax: Syntax) -> String {
    let mut reader = Reader {
        text,
        place: 0,
        shown: String::with_capacity(text.len()),
        syntax,
        frames: Vec::new(),
        outer: Seen::Names,
        next: match syntax {
            Syntax::Json => Next::Value(Seen::Other),
            Syntax::Toml => Next::Key,
        },
        doubtful: false,
    };
    while reader.place < text.len() {
        reader.step();
    }
    reader.shown
}

/// What is expected next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Key,
    Value(Seen),
    /// A comma or an end; anything else is out of place.
    End,
}

/// An open table or list.
struct Frame {
    close: char,
    seen: Seen,
}

struct Reader<'t> {
    text: &'t str,
    place: usize,
    shown: String,
    syntax: Syntax,
    frames: Vec<Frame>,
    /// What holds outside of all braces: in TOML, under the last heading.
    outer: Seen,
    next: Next,
    /// A text did not end on its line: what looks like a name from here on may be none.
    doubtful: bool,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.place..]
    }

    fn show(&mut self, length: usize) {
        let part = &self.text[self.place..self.place + length];
        self.shown.push_str(part);
        self.place += length;
    }

    fn hide(&mut self, length: usize) {
        let part = &self.text[self.place..self.place + length];
        self.shown.push_str(&seen::hidden(part));
        self.place += length;
    }

    /// Returns what holds for the members of the innermost table.
    fn around(&self) -> Seen {
        self.frames.last().map_or(self.outer, |frame| frame.seen)
    }

    fn step(&mut self) {
        let rest = self.rest();
        let is_toml = self.syntax == Syntax::Toml;
        let Some(letter) = rest.chars().next() else {
            return;
        };
        let at_start = is_toml && self.frames.is_empty();
        match letter {
            '\n' => {
                self.show(1);
                if at_start {
                    self.next = Next::Key;
                }
            }
            _ if letter.is_whitespace() => self.show(letter.len_utf8()),
            '#' if is_toml => self.comment(1, "\n"),
            '/' if !is_toml && rest.starts_with("//") => self.comment(2, "\n"),
            '/' if !is_toml && rest.starts_with("/*") => self.comment(2, "*/"),
            '[' if at_start && self.next == Next::Key => self.heading(),
            '{' | '[' => self.open(letter),
            '}' | ']' => {
                self.show(1);
                if self
                    .frames
                    .last()
                    .is_some_and(|frame| frame.close == letter)
                {
                    self.frames.pop();
                }
                self.next = Next::End;
            }
            ',' => {
                self.show(1);
                self.next = match self.frames.last() {
                    Some(Frame { close: ']', seen }) => Next::Value(*seen),
                    Some(_) | None => Next::Key,
                };
            }
            ':' if !is_toml => self.assigned(),
            '=' if is_toml => self.assigned(),
            '"' | '\'' => self.quoted(letter),
            _ => self.bare(),
        }
    }

    /// A value follows; if none was expected, it is one of what stands around.
    fn assigned(&mut self) {
        self.show(1);
        if !matches!(self.next, Next::Value(_)) {
            self.next = Next::Value(Seen::Hidden);
        }
    }

    fn comment(&mut self, marks: usize, end: &str) {
        self.show(marks);
        let length = self.rest().find(end).unwrap_or(self.rest().len());
        self.hide(length);
    }

    /// Reads `[servers.NAME.env]`: names, and what holds below.
    fn heading(&mut self) {
        let line = line(self.rest());
        let end = line.rfind(']').map_or(line.len(), |end| end + 1);
        let names = line[..end].trim_matches(['[', ']']);
        let path = names
            .split('.')
            .map(|name| name.trim().trim_matches(['"', '\'']));
        self.outer = path.fold(Seen::Names, Seen::under).inside();
        self.show(end);
        (self.next, self.doubtful) = (Next::End, false);
    }

    fn open(&mut self, letter: char) {
        let seen = match self.next {
            Next::Value(seen) => seen,
            Next::Key | Next::End => self.around().stricter(),
        };
        self.show(1);
        if letter == '{' {
            let seen = seen.inside();
            self.frames.push(Frame { close: '}', seen });
            self.next = Next::Key;
        } else {
            self.frames.push(Frame { close: ']', seen });
            self.next = Next::Value(seen);
        }
    }

    /// Reads a text in quotes, which may be a name, and may not end.
    fn quoted(&mut self, quote: char) {
        let rest = self.rest();
        let triple = quote.to_string().repeat(3);
        let is_long = self.syntax == Syntax::Toml && rest.starts_with(&triple);
        let marks = if is_long { 3 } else { 1 };
        let (length, ends) = match is_long {
            true => match rest[3..].find(&triple) {
                Some(length) => (length, true),
                None => (rest.len() - 3, false),
            },
            false => inside(&rest[1..], quote),
        };
        let behind = if ends { marks } else { 0 };
        let after = &rest[marks + length + behind..];
        let name = &rest[marks..marks + length];
        if ends && self.is_name(name, after) {
            self.name(name, marks * 2 + length);
            return;
        }
        self.show(marks);
        match self.next {
            // What does not end may have swallowed anything.
            Next::Value(seen) if ends => {
                let shown = seen.shown(name);
                self.shown.push_str(&shown);
                self.place += length;
            }
            Next::Value(_) | Next::Key | Next::End => self.hide(length),
        }
        self.show(behind);
        self.next = Next::End;
        self.doubtful |= !ends;
    }

    /// Tells whether a text in quotes is the name of something: it stands where one may, and a value
    /// follows. A comma may have been forgotten before it.
    fn is_name(&self, name: &str, after: &str) -> bool {
        let follows = match self.syntax {
            Syntax::Json => after.trim_start().starts_with(':'),
            Syntax::Toml => after
                .trim_start_matches([' ', '\t'])
                .starts_with(['=', '.']),
        };
        let may = !matches!(self.next, Next::Value(_)) && follows;
        may && (!self.doubtful || seen::is_known(name))
    }

    fn name(&mut self, name: &str, length: usize) {
        let around = match self.next {
            // Parts of a dotted name, one after the other.
            Next::Value(seen) => seen,
            Next::Key | Next::End => self.around(),
        };
        self.show(length);
        let seen = around.under(name);
        self.next = Next::Value(seen);
        // TOML: `servers."a b".env = …`
        if self.syntax == Syntax::Toml && self.rest().starts_with('.') {
            self.show(1);
            self.next = Next::Key;
            let line = line(self.rest());
            if let Some((rest, _)) = line.split_once('=') {
                let path = rest
                    .split('.')
                    .map(|name| name.trim().trim_matches(['"', '\'']));
                let seen = path.fold(seen.inside(), Seen::under);
                self.show(rest.len());
                self.next = Next::Value(seen);
            }
        }
    }

    /// Reads a word without quotes: a name, a number, or something out of place.
    fn bare(&mut self) {
        let rest = self.rest();
        let ends: &[char] = match self.syntax {
            Syntax::Json => &['{', '}', '[', ']', ',', ':', '"', '\''],
            Syntax::Toml => &['{', '}', '[', ']', ',', '=', '"', '\'', '#'],
        };
        let end = rest.find(|letter: char| letter.is_whitespace() || ends.contains(&letter));
        let length = end.unwrap_or(rest.len()).max(1);
        let length = (length..=rest.len())
            .find(|end| rest.is_char_boundary(*end))
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        match self.next {
            Next::Value(seen) => {
                if seen.shows_bare(word) {
                    self.show(length);
                } else {
                    self.hide(length);
                }
                self.next = Next::End;
            }
            Next::Key if self.is_bare_name(word, after) => {
                let path = word.split('.');
                let mut around = self.around();
                let mut parts = path.peekable();
                while let Some(part) = parts.next() {
                    around = around.under(part);
                    if parts.peek().is_some() {
                        around = around.inside();
                    }
                }
                self.show(length);
                self.next = Next::Value(around);
            }
            Next::Key | Next::End => {
                self.hide(length);
                self.next = Next::End;
            }
        }
    }

    fn is_bare_name(&self, word: &str, after: &str) -> bool {
        let mark = match self.syntax {
            Syntax::Json => ':',
            Syntax::Toml => '=',
        };
        let may = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        let follows = after.trim_start_matches([' ', '\t']).starts_with(mark);
        follows && word.chars().all(may) && (!self.doubtful || word.split('.').all(seen::is_known))
    }
}

fn line(text: &str) -> &str {
    text.split('\n').next().unwrap_or(text)
}

/// Returns how long a text in quotes is, and whether it ends on its line.
fn inside(text: &str, quote: char) -> (usize, bool) {
    let mut escaped = false;
    for (place, letter) in text.char_indices() {
        match letter {
            '\n' => return (place, false),
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            _ if letter == quote => return (place, true),
            _ => {}
        }
    }
    (text.len(), false)
}

#[cfg(test)]
mod tests;
