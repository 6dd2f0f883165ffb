//! Variable expansion in one pass: `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${input:id}`,
//! `${workspaceFolder}` and similar.
//!
//! Values are not expanded again. An unset variable is an error, never an empty text; any other
//! `${…}` is kept as written and reported. Entry point: [`expand`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use gantry_model::secret::SecretText;

use super::env::{Environment, HOME};

/// The values for expansion.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// The environment.
    pub environment: &'a Environment,
    /// The folder whose configuration is read.
    pub folder: &'a Path,
    /// Answers to inputs, by id.
    pub inputs: &'a BTreeMap<String, String>,
    /// Whether variables that are not set may be secrets of the project.
    pub secrets: Secrets,
}

/// How a variable that is not set is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Secrets {
    /// It is an error.
    #[default]
    None,
    /// In the values of `env` and `headers` it stays as written: it may be a secret of the project,
    /// which is inserted when the server starts. row 0.4
    Project,
}

/// An expanded text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filled {
    /// The text.
    pub text: String,
    /// Text that looks like a variable but is not one.
    pub odd: Vec<String>,
    /// The environment variables used, with their values.
    pub variables: BTreeMap<String, SecretText>,
    /// The inputs used, with their values.
    pub inputs: BTreeMap<String, SecretText>,
    /// The positions of `${NAME}` that may be secrets of the project.
    pub secrets: Vec<Range<usize>>,
}

/// A missing value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// A variable that is not set.
    #[error("variable `{name}` is not set")]
    Variable {
        /// Its name.
        name: String,
    },
    /// An unanswered input.
    #[error("input `{id}` was not given")]
    Input {
        /// Its id.
        id: String,
    },
}

/// A reference: the text between the braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'a> {
    /// An environment variable, and its default.
    Variable {
        /// Its name.
        name: &'a str,
        /// The default if it is unset or empty.
        default: Option<&'a str>,
    },
    /// An input, by its id.
    Input(&'a str),
    /// The folder whose configuration is read.
    Folder,
    /// The last part of its path.
    FolderName,
    /// The user's home.
    Home,
    /// The path separator.
    Separator,
}

/// Expands the variables of a text.
pub fn expand(text: &str, values: Values<'_>) -> Result<Filled, Missing> {
    let mut filled = Filled::default();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = rest.split_at(start);
        filled.text.push_str(before);
        let body = &after[2..];
        let Some(end) = body.find('}') else {
            // The rest may be secret; only a valid name is shown.
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
            let name = body.split(|letter| !is_part(letter)).next();
            let name = name.unwrap_or_default().split(":-").next();
            filled.odd.push(format!("${{{}", name.unwrap_or_default()));
            filled.text.push_str(after);
            return Ok(filled);
        };
        let reference = reference(&body[..end]);
        let known = reference.and_then(|reference| known(reference, values));
        match (reference, known) {
            (_, Some(value)) => filled.text.push_str(&value),
            (
                None
                | Some(
                    Reference::Folder
                    | Reference::FolderName
                    | Reference::Home
                    | Reference::Separator,
                ),
                None,
            ) => {
                filled.odd.push(format!("${{{}}}", &body[..end]));
                // It may contain a nested variable.
                filled.text.push_str("${");
                rest = body;
                continue;
            }
            (Some(Reference::Input(id)), None) => match values.inputs.get(id) {
                Some(value) => {
                    filled.text.push_str(value);
                    let held = SecretText::new(value.clone());
                    filled.inputs.insert(id.to_owned(), held);
                }
                None => return Err(Missing::Input { id: id.to_owned() }),
            },
            (Some(Reference::Variable { name, default }), None) => {
                let value = match (values.environment.get(name), default) {
                    // As in a shell, `:-` also covers an empty variable.
                    (Some("") | None, Some(default)) => default,
                    (Some(value), _) => value,
                    (None, None) if values.secrets == Secrets::Project => {
                        let start = filled.text.len();
                        filled.text.push_str("${");
                        filled.text.push_str(name);
                        filled.text.push('}');
                        filled.secrets.push(start..filled.text.len());
                        rest = &body[end + 1..];
                        continue;
                    }
                    (None, None) => {
                        return Err(Missing::Variable {
                            name: name.to_owned(),
                        });
                    }
                };
                filled.text.push_str(value);
                let held = SecretText::new(value.to_owned());
                filled.variables.insert(name.to_owned(), held);
            }
        }
        rest = &body[end + 1..];
    }
    filled.text.push_str(rest);
    Ok(filled)
}

/// Returns the ids of the inputs in a text.
pub fn inputs(text: &str) -> impl Iterator<Item = &str> {
    let references = text.split("${input:").skip(1);
    references
        .filter_map(|rest| rest.split_once('}').map(|(id, _)| id))
        .filter(|id| is_id(id))
}

/// Returns all references in a text, in order.
pub fn references(text: &str) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, body)) = rest.split_once("${") {
        rest = body;
        if let Some((inner, after)) = body.split_once('}')
            && let Some(reference) = reference(inner)
        {
            found.push(reference);
            rest = after;
        }
    }
    found
}

/// Parses a reference; `None` if it is not one.
fn reference(body: &str) -> Option<Reference<'_>> {
    match body {
        "workspaceFolder" | "workspaceRoot" => return Some(Reference::Folder),
        "workspaceFolderBasename" => return Some(Reference::FolderName),
        "userHome" => return Some(Reference::Home),
        "pathSeparator" | "/" => return Some(Reference::Separator),
        _ => {}
    }
    if let Some(id) = body.strip_prefix("input:") {
        return is_id(id).then_some(Reference::Input(id));
    }
    let body = body.strip_prefix("env:").unwrap_or(body);
    let (name, default) = match body.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (body, None),
    };
    is_name(name).then_some(Reference::Variable { name, default })
}

/// Returns the value of a reference that needs neither environment nor input.
fn known(reference: Reference<'_>, values: Values<'_>) -> Option<String> {
    match reference {
        Reference::Folder => Some(values.folder.to_string_lossy().into_owned()),
        Reference::FolderName => {
            let name = values.folder.file_name()?;
            Some(name.to_string_lossy().into_owned())
        }
        Reference::Home => values.environment.filled(HOME).map(str::to_owned),
        Reference::Separator => Some("/".to_owned()),
        Reference::Variable { .. } | Reference::Input(_) => None,
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !id.is_empty() && id.chars().all(allowed)
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Result<Filled, Missing> {
        fill_with(text, Secrets::None)
    }

    fn fill_with(text: &str, secrets: Secrets) -> Result<Filled, Missing> {
        let environment = [
            ("A", "1"),
            ("EMPTY", ""),
            ("NESTED", "${A}"),
            ("HOME", "/h"),
        ];
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let inputs = [("token".to_owned(), "typed".to_owned())].into();
        let values = Values {
            environment: &environment,
            folder: Path::new("/srv/shop"),
            inputs: &inputs,
            secrets,
        };
        expand(text, values)
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(fill(text).unwrap().text, expected, "{text}");
    }

    #[test]
    fn variables_are_filled_in_one_pass() {
        check("x-${A}-${A}", "x-1-1");
        check("${env:A}", "1");
        check("${B:-two}${EMPTY:-three}", "twothree");
        check("[${EMPTY}]", "[]");
        check("${NESTED}", "${A}"); // fault K2
        let missing = Missing::Variable { name: "B".into() };
        assert_eq!(fill("${B}"), Err(missing.clone())); // fault K1
        assert_eq!(fill("${env:B}"), Err(missing));
        let used = fill("${A}${EMPTY}").unwrap().variables;
        assert_eq!(used.keys().collect::<Vec<_>>(), ["A", "EMPTY"]);
    }

    // row 0.4, fault K2: what a variable holds is not taken for the name of a secret
    #[test]
    fn what_the_environment_does_not_have_is_left_for_the_project_s_secrets() {
        let filled = fill_with("${NESTED}-${B}-${env:B}", Secrets::Project).unwrap();
        assert_eq!(filled.text, "${A}-${B}-${B}");
        assert_eq!(filled.secrets, [5..9, 10..14]);
    }

    #[test]
    fn folders_and_inputs_are_known() {
        check("${workspaceFolder}/x", "/srv/shop/x");
        check("${workspaceFolderBasename}", "shop");
        check("${userHome}${pathSeparator}y", "/h/y");
        check("${input:token}", "typed");
        let missing = Missing::Input { id: "other".into() };
        assert_eq!(fill("${input:other}"), Err(missing));
        assert_eq!(
            inputs("a${input:x}b${input:y z}${input:q}").collect::<Vec<_>>(),
            ["x", "q"]
        );
    }

    #[test]
    fn what_a_text_refers_to_is_what_would_be_filled() {
        let variable = |name| Reference::Variable {
            name,
            default: None,
        };
        assert_eq!(
            references("${A}${env:B}x${input:c}${a b${D}${workspaceFolder}${"),
            [
                variable("A"),
                variable("B"),
                Reference::Input("c"),
                variable("D"),
                Reference::Folder
            ]
        );
        let text = "x${B:-two${A}${userHome}";
        let names = |reference: &Reference<'_>| matches!(reference, Reference::Variable { name, .. } if fill(text).unwrap().variables.contains_key(*name));
        assert!(
            references(text)
                .iter()
                .all(|one| names(one) || *one == Reference::Home)
        );
    }

    #[test]
    fn what_is_no_variable_stays_and_is_named() {
        for text in ["${}", "${A", "${A%x}", "${1A}", "a${b c}"] {
            let filled = fill(text).unwrap();
            assert_eq!(filled.text, text);
            assert_eq!(filled.odd.len(), 1, "{text}");
        }
        assert_eq!(fill("$A").unwrap().odd, [""; 0]);
        check("${A%x}${A}", "${A%x}1");
    }
}
