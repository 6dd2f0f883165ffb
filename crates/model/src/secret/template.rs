//! A text with references `${NAME}` to secrets of the project. Filled in one pass: the values are
//! not searched for references (fault K2). Any other `${…}` is plain text.
//!
//! Entry points: [`Template::parse`] and [`Template::fill`].

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SecretText;

/// The longest name of a secret.
const LONGEST: usize = 128;

/// The name of a secret: a letter or `_`, then letters, digits and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

/// The error of an invalid secret name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name is a letter or `_` and then letters, digits and `_`, at most 128 characters"
)]
pub struct SecretNameError;

impl SecretName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        match is_name(text) {
            true => Ok(Self(text.to_owned())),
            false => Err(SecretNameError),
        }
    }
}

impl TryFrom<String> for SecretName {
    type Error = SecretNameError;

    fn try_from(text: String) -> Result<Self, SecretNameError> {
        text.parse()
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name(text: &str) -> bool {
    let mut letters = text.bytes();
    let begins = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    begins
        && text.len() <= LONGEST
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

/// A text with references to secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Text(SecretText),
    Secret(SecretName),
}

impl Template {
    /// Parses every `${NAME}` of a text; `None` if there is none.
    pub fn parse(text: &str) -> Option<Self> {
        let places: Vec<Range<usize>> = places(text).collect();
        Self::at(text, &places)
    }

    /// Parses only the `${NAME}` at these positions; the rest is literal.
    pub fn at(text: &str, places: &[Range<usize>]) -> Option<Self> {
        let (mut parts, mut copied) = (Vec::new(), 0);
        for place in places {
            let name = text.get(place.start + 2..place.end.checked_sub(1)?)?;
            let name: SecretName = name.parse().ok()?;
            if copied < place.start {
                parts.push(Part::Text(SecretText::new(
                    text[copied..place.start].to_owned(),
                )));
            }
            parts.push(Part::Secret(name));
            copied = place.end;
        }
        if parts.is_empty() {
            return None;
        }
        if copied < text.len() {
            parts.push(Part::Text(SecretText::new(text[copied..].to_owned())));
        }
        Some(Self(parts))
    }

    /// Returns the names of the referenced secrets.
    pub fn names(&self) -> impl Iterator<Item = &SecretName> {
        self.0.iter().filter_map(|part| match part {
            Part::Secret(name) => Some(name),
            Part::Text(_) => None,
        })
    }

    /// Inserts the values; the error is the first name without a value.
    pub fn fill<'v>(
        &self,
        value: impl Fn(&SecretName) -> Option<&'v SecretText>,
    ) -> Result<SecretText, SecretName> {
        let mut filled = String::new();
        for part in &self.0 {
            filled.push_str(match part {
                Part::Text(text) => text.expose(),
                Part::Secret(name) => value(name).ok_or_else(|| name.clone())?.expose(),
            });
        }
        Ok(SecretText::new(filled))
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.names().map(SecretName::as_str))
            .finish()
    }
}

/// Returns the positions of `${NAME}` in a text.
fn places(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + text.get(from..)?.find("${")?;
            from = start + 2;
            let name = text[from..].split('}').next().unwrap_or_default();
            let end = from + name.len();
            if end < text.len() && is_name(name) {
                from = end + 1;
                return Some(start..from);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<Option<String>, String> {
        let a = SecretText::new("1${B}\n\"".to_owned());
        let b = SecretText::new("2".to_owned());
        let value = |name: &SecretName| match name.as_str() {
            "A" => Some(&a),
            "B_2" => Some(&b),
            _ => None,
        };
        let Some(template) = Template::parse(text) else {
            return Ok(None);
        };
        let filled = template.fill(value).map_err(|name| name.to_string())?;
        Ok(Some(filled.expose().to_owned()))
    }

    // row 0.4, faults K1 and K2
    #[test]
    fn secrets_are_filled_in_one_pass_and_a_missing_one_is_named() {
        let check = |text: &str, expected: &str| {
            assert_eq!(filled(text).unwrap().as_deref(), Some(expected), "{text}");
        };
        check("${A}", "1${B}\n\"");
        check("Bearer ${B_2}, ${A}x", "Bearer 2, 1${B}\n\"x");
        check("${}${a b}${B_2}${", "${}${a b}2${");
        check("$${B_2}}", "$2}");
        assert_eq!(filled("x ${NO} ${A}"), Err("NO".to_owned()));
        for plain in [
            "", "A", "$A", "${A", "${A-b}", "${env:A}", "${A:-x}", "${1}",
        ] {
            assert_eq!(filled(plain), Ok(None), "{plain}");
        }
        assert!("a.b".parse::<SecretName>().is_err());
        assert!("A".repeat(129).parse::<SecretName>().is_err());
        assert!(!format!("{:?}", Template::parse("hunter22 ${A}")).contains("hunter22"));
    }

    #[test]
    fn only_the_given_places_are_filled() {
        let text = "${A}-${B_2}";
        let template = Template::at(text, std::slice::from_ref(&(5..11))).unwrap();
        let two = SecretText::new("2".to_owned());
        let filled = template.fill(|_| Some(&two)).unwrap();
        assert_eq!(filled.expose(), "${A}-2");
    }
}
