//! Why a value does not match a schema, in a form that a model can repair its call from.
//!
//! Names the field, what the schema wants there, and of what was given its kind and length: never a value
//! itself, since it may be a secret.

use gantry_model::jsonrpc::pointer_step;
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use crate::error::Issue;

/// The maximum number of issues that are reported.
const MOST: usize = 32;
/// The longest message.
const LONGEST: usize = 300;
/// The longest part of the schema, such as a constant, that a message quotes.
const LONGEST_PART: usize = 200;
/// The maximum number of alternatives whose own issues are examined.
const MOST_ALTERNATIVES: usize = 16;
/// The maximum number of issues reported for the closest alternative.
const MOST_OF_ONE: usize = 3;
/// The maximum number of names of fields that a message lists.
const MOST_NAMES: usize = 8;

/// Lists the issues of a value; only the first ones if there are many. The value itself is needed for its
/// lengths, since the errors hold no copies of its parts.
pub(super) fn list<'i>(
    errors: impl Iterator<Item = ValidationError<'i>>,
    value: &Value,
) -> Vec<Issue> {
    let mut issues: Vec<Issue> = Vec::new();
    for error in errors.take(MOST) {
        let issue = tell(&error, value.pointer(error.instance_path().as_str()));
        if !issues.contains(&issue) {
            issues.push(issue);
        }
    }
    issues
}

/// Explains why the library rejects a part of a schema.
pub(super) fn of_schema(error: &ValidationError<'_>) -> String {
    cut(&error.masked_with("the value").to_string(), LONGEST)
}

pub(crate) fn too_costly() -> Issue {
    whole("checking it against the schema takes too long; send something simpler")
}

pub(super) fn unexplained() -> Issue {
    whole("it does not fit the schema, and finding out where takes too long")
}

pub(super) fn no_object() -> Issue {
    whole("must be an object")
}

pub(super) fn unreadable() -> Issue {
    whole("contains a number or a text that cannot be read")
}

/// Returns the message for a string that does not match its pattern.
pub(super) fn must_match(pattern: &str) -> String {
    format!("must match the pattern `{}`", cut(pattern, LONGEST_PART))
}

fn whole(message: &str) -> Issue {
    Issue {
        path: String::new(),
        message: message.to_owned(),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's own words do for the rest"
)]
fn tell(error: &ValidationError<'_>, instance: Option<&Value>) -> Issue {
    let given = || instance.map_or_else(|| kind_of(error.instance()).to_owned(), given);
    let mut path = error.instance_path().to_string();
    let message = match error.kind() {
        ValidationErrorKind::Required { property } => {
            let field = property.as_str().unwrap_or_default();
            path.push('/');
            path.push_str(&pointer_step(field));
            format!("required field `{}` is missing", cut(field, LONGEST_PART))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names = names(unexpected.iter());
            format!("has fields the tool does not know: {names}")
        }
        ValidationErrorKind::PropertyNames { error } => {
            let wrong = cut(&error.masked_with("it").to_string(), LONGEST_PART);
            let members = instance.and_then(Value::as_object);
            let names = members.map_or_else(String::new, |members| names(members.keys()));
            format!("the name of a field is not allowed: {wrong}; given were {names}")
        }
        ValidationErrorKind::AdditionalItems { limit } => {
            format!("must have at most {limit} items; given was {}", given())
        }
        ValidationErrorKind::UnevaluatedItems { .. } => {
            format!("has items the tool does not know; given was {}", given())
        }
        ValidationErrorKind::Contains => format!(
            "too few or too many of its items fit `contains` of the schema; given was {}",
            given()
        ),
        ValidationErrorKind::Type { kind } => {
            format!(
                "must be {}, not {}",
                wanted(kind),
                kind_of(error.instance())
            )
        }
        ValidationErrorKind::Enum { options } => {
            let options = cut(&options.to_string(), LONGEST_PART);
            format!("must be one of {options}, not {}", given())
        }
        ValidationErrorKind::Constant { expected_value } => {
            let wanted = cut(&expected_value.to_string(), LONGEST_PART);
            format!("must be {wanted}, not {}", given())
        }
        ValidationErrorKind::Custom { message, .. } => message.clone(),
        ValidationErrorKind::FalseSchema => "is not allowed here".to_owned(),
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            alternatives(context, error.instance_path().as_str())
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            "fits more than one of the alternatives, of which exactly one is wanted".to_owned()
        }
        _ => {
            let wrong = cut(&error.masked_with("the value").to_string(), LONGEST_PART);
            format!("{wrong}; given was {}", given())
        }
    };
    Issue {
        path: cut(&path, 2 * LONGEST),
        message: cut(&message, LONGEST),
    }
}

/// Describes what the closest alternative for the value at this path still requires.
fn alternatives(context: &[Vec<ValidationError<'static>>], at: &str) -> String {
    let mut message = format!("fits none of {} alternatives", context.len());
    let examined = &context[..context.len().min(MOST_ALTERNATIVES)];
    let decides = (examined.len() == context.len()).then(|| deciding_field(context));
    if let Some((path, options)) = decides.flatten() {
        let options = cut(&options.join(", "), LONGEST_PART);
        message.push_str(&format!("; {path} decides which: one of {options}"));
        return message;
    }
    // A wrong type at this level, or a wrong constant, means that another alternative was intended.
    let distance = |errors: &&Vec<ValidationError<'static>>| {
        let is_wrong_kind = errors.iter().any(|error| {
            matches!(error.kind(), ValidationErrorKind::Type { .. })
                && error.instance_path().as_str() == at
        });
        let is_wrong_one = errors.iter().any(|error| constant(error).is_some());
        (is_wrong_kind, is_wrong_one, errors.len())
    };
    let closest = examined.iter().min_by_key(distance);
    let is_plain = |error: &&ValidationError<'static>| {
        !matches!(
            error.kind(),
            ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. }
        )
    };
    let told = closest.into_iter().flatten().filter(is_plain);
    let told: Vec<String> = told
        .take(MOST_OF_ONE)
        .map(|error| {
            let Issue { path, message } = tell(error, None);
            let at = if path.is_empty() { "it" } else { &path };
            format!("{at}: {message}")
        })
        .collect();
    if !told.is_empty() {
        message.push_str(&format!("; for the closest, {}", told.join("; ")));
    }
    message
}

/// Finds the field whose constant differs between all alternatives and fits none of them, and its
/// values.
fn deciding_field(context: &[Vec<ValidationError<'static>>]) -> Option<(String, Vec<String>)> {
    let (first, others) = context.split_first()?;
    if others.is_empty() {
        return None;
    }
    first.iter().find_map(|error| {
        let at = error.instance_path().as_str();
        let mut options = vec![constant(error)?.to_string()];
        for errors in others {
            let same = |other: &&ValidationError<'static>| other.instance_path().as_str() == at;
            let mut same = errors.iter().filter(same);
            options.push(same.find_map(constant)?.to_string());
        }
        Some((at.to_owned(), options))
    })
}

/// Returns the constant that the value was expected to be.
fn constant<'e>(error: &'e ValidationError<'_>) -> Option<&'e Value> {
    if let ValidationErrorKind::Constant { expected_value } = error.kind() {
        Some(expected_value.as_ref())
    } else {
        None
    }
}

fn names<'n>(all: impl ExactSizeIterator<Item = &'n String>) -> String {
    let more = if all.len() > MOST_NAMES { ", …" } else { "" };
    let names: Vec<_> = all
        .take(MOST_NAMES)
        .map(|name| format!("`{}`", cut(name, 64)))
        .collect();
    format!("{}{more}", names.join(", "))
}

fn wanted(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => article(&kind.to_string()),
        TypeKind::Multiple(kinds) => {
            let kinds: Vec<_> = kinds
                .iter()
                .map(|kind| article(&kind.to_string()))
                .collect();
            kinds.join(" or ")
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Describes what was given without saying it: its kind, and its length.
fn given(value: &Value) -> String {
    match value {
        Value::String(text) => format!("a string of length {}", text.chars().count()),
        Value::Array(items) => format!("an array of length {}", items.len()),
        Value::Object(members) => format!("an object with {} fields", members.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => kind_of(value).to_owned(),
    }
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {kind}"),
        other => format!("a {other}"),
    }
}

/// Shortens a text and escapes control characters.
fn cut(text: &str, longest: usize) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if out.len() >= longest {
            out.push('…');
            break;
        }
        if character.is_control() {
            out.extend(character.escape_debug());
        } else {
            out.push(character);
        }
    }
    out
}
