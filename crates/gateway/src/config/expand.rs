//! `${NAME}` and `${NAME:-default}` in a file's texts, filled from the environment in one pass.
//!
//! What a variable holds is never looked at again, and anything that is no variable name stays as it
//! is written. A variable that is not set is an error, never an empty text. Entry point: [`expand`].

use super::env::Environment;

/// A variable that is used and not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("variable `{variable}` is not set")]
pub struct Missing {
    /// Its name.
    pub variable: String,
}

/// Fills the variables of a text.
pub fn expand(text: &str, environment: &Environment) -> Result<String, Missing> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = rest.split_at(start);
        filled.push_str(before);
        let body = &after[2..];
        match body
            .find('}')
            .and_then(|end| Some((reference(&body[..end])?, end)))
        {
            Some((Reference { name, default }, end)) => {
                let value = match (environment.get(name), default) {
                    // As in a shell, `:-` also covers a variable that is set to nothing.
                    (Some(""), Some(default)) | (None, Some(default)) => default,
                    (Some(value), _) => value,
                    (None, None) => {
                        return Err(Missing {
                            variable: name.to_owned(),
                        });
                    }
                };
                filled.push_str(value);
                rest = &body[end + 1..];
            }
            None => {
                filled.push_str("${");
                rest = body;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
}

/// Reads what stands between the braces; `None` if that is no reference to a variable.
fn reference(body: &str) -> Option<Reference<'_>> {
    let body = body.strip_prefix("env:").unwrap_or(body);
    let (name, default) = match body.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (body, None),
    };
    let mut letters = name.chars();
    let first = letters.next()?;
    let is_name = (first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    is_name.then_some(Reference { name, default })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let environment = [("A", "1"), ("EMPTY", ""), ("NESTED", "${A}")];
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let found = expand(text, &environment).map_err(|missing| missing.variable);
        assert_eq!(
            found,
            expected.map(str::to_owned).map_err(str::to_owned),
            "{text}"
        );
    }

    #[test]
    fn variables_are_filled_in_one_pass() {
        check("x-${A}-${A}", Ok("x-1-1"));
        check("${env:A}", Ok("1"));
        check("${B:-two}${EMPTY:-three}", Ok("twothree"));
        check("[${EMPTY}]", Ok("[]"));
        check("${NESTED}", Ok("${A}")); // fault K2
        check("${B}", Err("B")); // fault K1
    }

    #[test]
    fn what_is_no_variable_stays() {
        for text in ["$A", "${}", "${A", "${A%x}", "${1A}", "$${", "a${b c}"] {
            check(text, Ok(text));
        }
        check("${A%x}${A}", Ok("${A%x}1"));
    }
}
