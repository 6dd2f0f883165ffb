//! What a removed part means for the schema around it.
//!
//! A schema without one of its parts accepts more, and so does what contains it, with a few
//! exceptions: `not` and `if` may change their result, `oneOf` may find a second match, and more may
//! count as unevaluated. Those are removed or weakened wherever a part is missing below them, so that
//! no value is refused that the whole schema accepts.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::{Cleaner, Dialect, below};
use crate::schema::graph::{DroppedKeywords, Edges};

impl Cleaner {
    /// Takes out what the shape of the schema forbids.
    pub(super) fn cut(&mut self, cut: &DroppedKeywords) {
        self.leave(&cut.path, cut.reason.to_owned());
        self.tainted.insert(cut.path.clone());
        let dialect = self.dialect;
        if let Some(Value::Object(members)) = self.schema.pointer_mut(&cut.path) {
            // What a reference hid stays hidden.
            let hid = dialect == Dialect::Draft7 && members.contains_key("$ref");
            members.retain(|keyword, _| match keyword.as_str() {
                "$defs" | "definitions" => true,
                keyword => !hid && !cut.keywords.contains(&keyword),
            });
        }
    }

    /// Weakens whatever a missing part could turn around.
    pub(super) fn weaken(&mut self, edges: &Edges) {
        let tainted = spread(&self.tainted, edges);
        let mut left = Vec::new();
        let mut places: Vec<&String> = tainted.iter().collect();
        // Outer ones last, so that inner ones are still where they were.
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

/// Returns the places of all schemas that apply one of these, directly or not.
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
