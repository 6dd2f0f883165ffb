//! How a removed part affects the schemas around it.
//!
//! A schema without one of its parts accepts more, and so do the schemas that contain it, with a
//! few exceptions: `not` and `if` may reverse their result, `oneOf` may find a second match, and
//! more properties or items may count as unevaluated. These are removed or weakened wherever a part
//! below them is missing, so that no value is rejected that the whole schema accepts.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::{Cleaner, Dialect, below};
use crate::schema::graph::{DroppedKeywords, Edges};

impl Cleaner {
    /// Removes keywords that must not be checked because of the structure of the schema.
    pub(super) fn cut(&mut self, cut: &DroppedKeywords) {
        self.leave(&cut.path, cut.reason.to_owned());
        self.tainted.insert(cut.path.clone());
        let dialect = self.dialect;
        if let Some(Value::Object(members)) = self.schema.pointer_mut(&cut.path) {
            // Keywords that a reference hid stay hidden.
            let hid = dialect == Dialect::Draft7 && members.contains_key("$ref");
            members.retain(|keyword, _| match keyword.as_str() {
                "$defs" | "definitions" => true,
                keyword => !hid && !cut.keywords.contains(&keyword),
            });
        }
    }

    /// Weakens every keyword whose result a missing part could reverse.
    pub(super) fn weaken(&mut self, edges: &Edges) {
        let tainted = spread(&self.tainted, edges);
        let mut left = Vec::new();
        let mut places: Vec<&String> = tainted.iter().collect();
        // Innermost first, so that the paths of the rest stay valid.
        places.sort_by_key(|place| std::cmp::Reverse(place.len()));
        for path in places {
            let Some(Value::Object(members)) = self.schema.pointer_mut(path) else {
                continue;
            };
            let has = |members: &Map<String, Value>, keyword: &str| {
                let place = below(path, keyword);
                let within = format!("{place}/");
                let mut behind = tainted.range(within.clone()..);
                members.contains_key(keyword)
                    && (tainted.contains(&place)
                        || behind
                            .next()
                            .is_some_and(|other| other.starts_with(&within)))
            };
            if has(members, "not") {
                members.shift_remove("not");
                left.push((below(path, "not"), "a part of it cannot be judged"));
            }
            if has(members, "if") {
                for keyword in ["if", "then", "else"] {
                    members.shift_remove(keyword);
                }
                left.push((below(path, "if"), "a part of it cannot be judged"));
            }
            if has(members, "contains") {
                members.shift_remove("maxContains");
            }
            if has(members, "oneOf")
                && let Some(alternatives) = members.shift_remove("oneOf")
            {
                let any = Value::Object(Map::from_iter([("anyOf".to_owned(), alternatives)]));
                match members.get_mut("allOf") {
                    Some(Value::Array(all)) => all.push(any),
                    _ => drop(members.insert("allOf".to_owned(), Value::Array(vec![any]))),
                }
            }
            members.shift_remove("unevaluatedProperties");
            members.shift_remove("unevaluatedItems");
        }
        for (part, reason) in left {
            self.leave(&part, reason.to_owned());
        }
    }
}

/// Returns the paths of all schemas that apply one of these, directly or not.
fn spread(tainted: &HashSet<String>, edges: &Edges) -> BTreeSet<String> {
    let mut reached: HashSet<usize> = HashSet::new();
    let places = edges.places.iter().enumerate();
    let mut waiting: Vec<usize> = places
        .filter(|(_, place)| tainted.contains(*place))
        .map(|(index, _)| index)
        .collect();
    while let Some(index) = waiting.pop() {
        if reached.insert(index) {
            waiting.extend(edges.applied_by[index].iter().copied());
        }
    }
    reached
        .into_iter()
        .map(|index| edges.places[index].clone())
        .collect()
}
