//! Classifies a change of a definition by its effect on callers. Everything that is not known to be
//! harmless is breaking. Entry points: [`classify`] and [`likely_rename`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::canonical::{canonical, without_texts};
use crate::jsonrpc::{Limits, Raw, validate, without_members};

/// How a version differs from the one that is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeClass {
    /// Not at all.
    Same,
    /// It is in the first list of its server.
    First,
    /// A known server has added it.
    Added,
    /// In its texts only: descriptions, titles, examples.
    Text,
    /// Calls that were valid still are, and results have at least what they had.
    Compatible,
    /// In any other way.
    Breaking,
}

impl ChangeClass {
    /// All classes.
    pub const ALL: [Self; 6] = [
        Self::Same,
        Self::First,
        Self::Added,
        Self::Text,
        Self::Compatible,
        Self::Breaking,
    ];

    /// Returns the class as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::First => "first",
            Self::Added => "added",
            Self::Text => "text",
            Self::Compatible => "compatible",
            Self::Breaking => "breaking",
        }
    }

    /// Reads a class as stored.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }
}

/// Classifies the change from one canonical definition to another.
pub fn classify(approved: &str, now: &str) -> ChangeClass {
    if approved == now {
        return ChangeClass::Same;
    }
    let (Some(old), Some(new)) = (read(approved), read(now)) else {
        return ChangeClass::Breaking;
    };
    let (old, new) = (without_texts(old), without_texts(new));
    if old == new {
        return ChangeClass::Text;
    }
    let parsed = |text: &str| serde_json::from_str::<Map<String, Value>>(text);
    match (parsed(&old), parsed(&new)) {
        (Ok(old), Ok(new)) if is_compatible(&old, &new) => ChangeClass::Compatible,
        _ => ChangeClass::Breaking,
    }
}

/// Returns which of the removed definitions was most likely renamed to this one. Only a hint for
/// people: approvals and grants are never transferred to the new name.
pub fn likely_rename<'a>(
    now: &str,
    gone: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<&'a str> {
    let now = read(now)?;
    let whole = without_members(now, &["name"]);
    let new_form = without_texts(whole.as_raw());
    let text = description(now);
    let mut likely = None;
    for (name, old) in gone {
        let Some(old) = read(old) else { continue };
        let old_whole = without_members(old, &["name"]);
        if canonical(old_whole.as_raw()) == canonical(whole.as_raw()) {
            return Some(name);
        }
        let has_same_form =
            new_form.len() > TRIVIAL && without_texts(old_whole.as_raw()) == new_form;
        let has_same_text = text.len() > TRIVIAL && description(old) == text;
        if likely.is_none() && (has_same_form || has_same_text) {
            likely = Some(name);
        }
    }
    likely
}

/// Shorter definitions and texts do not identify a tool.
const TRIVIAL: usize = 40;

fn description(raw: Raw<'_>) -> String {
    let text = raw.get("description").and_then(Raw::string);
    text.unwrap_or_default().into_owned()
}

fn read(definition: &str) -> Option<Raw<'_>> {
    validate(definition, &Limits::default()).ok()
}

/// Which side of a call a schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// What callers send: more may be accepted than before.
    Arguments,
    /// What callers get: more may be promised than before.
    Result,
}

fn is_compatible(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let mut members: Vec<&String> = old.keys().chain(new.keys()).collect();
    members.dedup();
    members.into_iter().all(|member| {
        let (old, new) = (old.get(member), new.get(member));
        match (member.as_str(), old, new) {
            _ if old == new => true,
            ("inputSchema", Some(old), Some(new)) => fits(old, new, Side::Arguments),
            ("outputSchema", Some(old), Some(new)) => fits(old, new, Side::Result),
            // A promise that was not made before.
            ("outputSchema", None, Some(_)) => true,
            ("arguments", Some(old), Some(new)) => prompt_fits(old, new),
            _ => false,
        }
    })
}

/// Returns whether a prompt still takes the arguments that it took.
fn prompt_fits(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_array(), new.as_array()) else {
        return false;
    };
    let is_kept = old.iter().all(|argument| new.contains(argument));
    let is_optional = |argument: &Value| argument["required"] != Value::Bool(true);
    is_kept
        && new
            .iter()
            .all(|argument| old.contains(argument) || is_optional(argument))
}

/// Returns whether a schema is compatible with the old one for one side of a call.
fn fits(old: &Value, new: &Value, side: Side) -> bool {
    if old == new {
        return true;
    }
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let mut keywords: Vec<&String> = old.keys().chain(new.keys()).collect();
    keywords.sort_unstable();
    keywords.dedup();
    keywords.into_iter().all(|keyword| {
        let (old, new) = (old.get(keyword), new.get(keyword));
        match keyword.as_str() {
            _ if old == new => true,
            "properties" => properties_fit(old, new, side),
            "required" => match side {
                Side::Arguments => is_subset(new, old),
                Side::Result => is_subset(old, new),
            },
            "enum" | "type" => match (side, old, new) {
                (Side::Arguments, Some(old), Some(new)) => is_subset(Some(old), Some(new)),
                (Side::Result, Some(old), Some(new)) => is_subset(Some(new), Some(old)),
                _ => false,
            },
            "items" | "additionalProperties" => match (old, new) {
                (Some(old), Some(new)) => fits(old, new, side),
                _ => false,
            },
            "maxLength" | "maxItems" | "maximum" | "maxProperties" => {
                is_looser(old, new, side, false)
            }
            "minLength" | "minItems" | "minimum" | "minProperties" => {
                is_looser(old, new, side, true)
            }
            _ => false,
        }
    })
}

fn properties_fit(old: Option<&Value>, new: Option<&Value>, side: Side) -> bool {
    let empty = Map::new();
    let object = |value: Option<&'_ Value>| match value {
        Some(value) => value.as_object().cloned(),
        None => Some(empty.clone()),
    };
    let (Some(old), Some(new)) = (object(old), object(new)) else {
        return false;
    };
    old.iter().all(|(name, old)| {
        let new = new.get(name);
        new.is_some_and(|new| fits(old, new, side))
    })
}

/// Returns whether each of the first is among the second; a single value is a list of one.
fn is_subset(some: Option<&Value>, all: Option<&Value>) -> bool {
    let list = |value: Option<&Value>| match value {
        None => Vec::new(),
        Some(Value::Array(items)) => items.clone(),
        Some(one) => vec![one.clone()],
    };
    let all = list(all);
    list(some).iter().all(|one| all.contains(one))
}

/// Returns whether the new bound accepts all values that the old one accepted; for results the reverse.
fn is_looser(old: Option<&Value>, new: Option<&Value>, side: Side, is_lower: bool) -> bool {
    let (tight, loose) = match side {
        Side::Arguments => (old, new),
        Side::Result => (new, old),
    };
    match (tight.and_then(Value::as_f64), loose) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(tight), Some(loose)) => loose.as_f64().is_some_and(|loose| match is_lower {
            true => loose <= tight,
            false => loose >= tight,
        }),
    }
}
