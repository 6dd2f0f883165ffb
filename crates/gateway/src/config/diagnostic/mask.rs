//! Masks values in a file's text before a diagnostic is shown in it, byte for byte, so that columns
//! stay correct.
//!
//! A word is shown if it is a key of Gantry's, or is between backticks in the message. Everything
//! else becomes `*`. The text is not parsed, so broken files are masked too. Entry point: [`mask`].

use crate::config::document::Span;
use crate::config::entry::is_known_word;

/// Separators: the syntax of JSON and TOML.
const STRUCTURE: &str = "{}[]:,.=#\"'";

/// Returns the text with `*` for every private word, with the same length in bytes. The text at
/// `value` is shown.
pub(super) fn mask(text: &str, message: &str, value: Option<Span>) -> String {
    let quoted = message.split('`').skip(1).step_by(2);
    let told: Vec<&str> = quoted
        .flat_map(|name| name.split(['.', '[', ' ']).chain([name]))
        .collect();
    let mut shown = String::with_capacity(text.len());
    for token in tokens(text) {
        let place = shown.len()..shown.len() + token.len();
        let is_value = value
            .as_ref()
            .is_some_and(|value| value.start <= place.start && place.end <= value.end);
        let is_structure = token.len() == 1 && STRUCTURE.contains(token);
        if is_value || is_structure || is_known_word(token) || told.contains(&token) {
            shown.push_str(token);
        } else {
            token
                .chars()
                .for_each(|letter| shown.push_str(&star(letter)));
        }
    }
    shown
}

/// Splits a text into blanks, separators and words. A quoted text is one word if its quote closes
/// on the same line.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let mut open = None;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let separates = |letter: char| letter.is_whitespace() || STRUCTURE.contains(letter);
        let end = match (open.take(), first) {
            (Some(quote), _) if first != quote => {
                open = Some(quote);
                closing(rest, quote).unwrap_or(rest.len())
            }
            (None, '"' | '\'') => {
                open = Some(first).filter(|_| closing(&rest[1..], first).is_some());
                1
            }
            _ if separates(first) => first.len_utf8(),
            _ => rest.find(separates).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        rest = after;
        Some(token)
    })
}

/// Returns the end of a quoted text, if it closes on this line.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    let end = text.find(|letter: char| {
        let ends = letter == '\n' || (letter == quote && !escaped);
        escaped = letter == '\\' && !escaped;
        ends
    })?;
    text[end..].starts_with(quote).then_some(end)
}

/// Returns the mask of a character, with the same length in bytes; blanks stay.
fn star(letter: char) -> String {
    match letter.len_utf8() {
        _ if letter.is_whitespace() => letter.to_string(),
        2 => "·".to_owned(),
        3 => "•".to_owned(),
        length => "*".repeat(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that no part of a file, cut anywhere, shows `s3cr3t`, and that columns stay.
    fn check(text: &str) -> String {
        let masked = |text: &str| mask(text, "server `a b`: `env.A` must be a text", None);
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let shown = masked(&text[..end]);
            assert_eq!(shown.len(), end);
            assert_eq!(
                shown.lines().count(),
                text[..end].lines().count(),
                "{shown}"
            );
            assert!(!shown.contains("s3cr"), "{shown}");
        }
        masked(text)
    }

    #[test]
    fn only_known_words_and_those_of_the_message_are_shown() {
        let text = "{\n  // s3cr3t\n  \"primaryApiKey\": \"s3cr3t\", \"mcpServers\": {\"a b\": {\"command\": \"npx --key s3cr3t\",\n\
             \"args\": [\"s3cr3t start\", \"--t=s3cr3t\"], \"env\": {\"A\": \"s3cr3t\\\" start\", \"B\": 1234567}, \"start\": \"lazy\", \"timeout\": 30}}}";
        let shown = check(text);
        for kept in [
            "\"*************\": \"******\", \"mcpServers\": {\"a b\": {\"command\": \"*** ***** ******\",",
            "\"args\": [\"****** *****\", \"**********\"], \"env\": {\"A\": \"******** *****\", \"*\": *******}, \"start\": \"****\", \"timeout\": **}}}",
        ] {
            assert!(shown.contains(kept), "{kept} not in {shown}");
        }
        let text = "# s3cr3t\n[servers.x]\nenv = { A = 's3cr3t', \"B\" = \"s3cr3t\" }\nenv.C = \"\"\"\ns3cr3t\n= s3cr3t\"\"\"\n";
        let shown = check(text);
        assert!(
            shown.contains("env = { A = '******', \"*\" = \"******\" }"),
            "{shown}"
        );
    }

    #[test]
    fn the_value_itself_is_shown_where_it_cannot_be_private() {
        let text = "start = \"later\"\nenv = \"s3cr3t\"";
        let shown = mask(text, "`start` must be one of", Some(8..15));
        assert_eq!(shown, "start = \"later\"\nenv = \"******\"");
    }

    #[test]
    fn what_is_broken_shows_no_more() {
        for text in [
            r#"{"env": {"A: "s3cr3t", "B": "s3cr3t"}}"#,
            r#"{"env": {"A": s3cr3t", "B": "s3cr3t"}}"#,
            r#"{"env": {"A": "s3cr3t, "B": "s3cr3t"}}"#,
            r#"{"env": "A": "s3cr3t"} "s3cr3t""#,
            r#"{'env': {'A': 's3cr3t'}, env: {A: s3cr3t}}"#,
            "{\"env\": {\"A\": \"s3cr3t\n\"s3cr3t\": \"s3cr3t\"}}",
            "[servers.a.env]\nA = \"s3cr3t\ns3cr3t = \"x\"\nB \"s3cr3t\"\nC: s3cr3t\n",
            "[servers.a\nenv = { A = 's3cr3t' \nB = 's3cr3t' }\nA = \"\"\"s3cr3t\n[servers.a]\ns3cr3t\n",
        ] {
            check(text);
        }
    }

    #[test]
    fn letters_of_any_width_keep_their_column() {
        let text = "{\"env\": {\"Ä\": \"é漢x\"}, ]";
        assert_eq!(mask(text, "", None), "{\"env\": {\"·\": \"·•*\"}, ]");
    }
}
