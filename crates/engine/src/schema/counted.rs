//! A JSON value as a compiled schema sees it: every access is charged to the budget.
//!
//! Comparisons with `const` and `enum` and the search for repeated items are charged for everything
//! they read. Errors contain only the type of the value, so that a thousand errors about a long
//! value are not a thousand copies of it. Entry point: [`Counted`], with [`Seen`] for the value.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp};
use serde_json::{Map, Number, Value};

use super::budget;

/// Arrays of up to this many items are searched for repeated ones pair by pair.
const PAIRWISE: usize = 15;

/// The representation for which schemas are compiled.
pub(super) struct Counted;

impl Json for Counted {
    type Node<'a> = Seen<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Seen<'_>) -> T) -> T {
        budget::bytes(string.len());
        if let Value::String(existing) = buffer {
            existing.clear();
            existing.push_str(string);
        } else {
            *buffer = Value::String(string.to_owned());
        }
        f(Seen(buffer))
    }
}

/// A value whose accesses are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a>(pub(super) &'a Value);

impl<'a> Node<'a, Counted> for Seen<'a> {
    type Object = Members<'a>;
    type Array = Items<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        budget::step();
        self.0.as_object().map(Members)
    }

    fn as_array(&self) -> Option<Items<'a>> {
        budget::step();
        self.0.as_array().map(|items| Items(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        budget::step();
        let text = self.0.as_str()?;
        budget::bytes(text.len());
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        budget::step();
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        budget::step();
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        budget::step();
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        budget::step();
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str();
        budget::step();
        text.map(|text| {
            budget::bytes(text.len());
            text.chars().count() as u64
        })
    }

    fn equals_value(&self, expected: &Value) -> bool {
        is_equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(match self.0 {
            Value::Null => Value::Null,
            Value::Bool(boolean) => Value::Bool(*boolean),
            Value::Number(number) => Value::Number(number.clone()),
            Value::String(_) => Value::String(String::new()),
            Value::Array(_) => Value::Array(Vec::new()),
            Value::Object(_) => Value::Object(Map::new()),
        })
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

/// The members of an object.
pub(super) struct Members<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Counted> for Members<'a> {
    type Node = Seen<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Seen<'a>> {
        budget::arrive();
        self.0.get(key.as_str()).map(Seen)
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter(self.0.iter())
    }
}

/// Iterates over the members of an object.
pub(super) struct MembersIter<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, Seen<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        budget::member(name);
        Some((name.as_str(), Seen(value)))
    }
}

/// The items of an array.
pub(super) struct Items<'a>(&'a [Value]);

impl<'a> Array<'a, Counted> for Items<'a> {
    type Node = Seen<'a>;
    type ElementsIter = ItemsIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> ItemsIter<'a> {
        ItemsIter(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        if self.0.len() > PAIRWISE {
            return is_unique_by_hash(self.0);
        }
        let mut items = self.0;
        while let Some((first, rest)) = items.split_first() {
            if rest.iter().any(|other| is_equal(first, other)) {
                return false;
            }
            items = rest;
        }
        true
    }
}

/// Iterates over the items of an array.
pub(super) struct ItemsIter<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for ItemsIter<'a> {
    type Item = Seen<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.0.next()?;
        budget::arrive();
        Some(Seen(item))
    }
}

/// Compares by the rules of JSON Schema: numbers by their mathematical value, members in any order.
fn is_equal(one: &Value, other: &Value) -> bool {
    budget::step();
    match (one, other) {
        (Value::String(one), Value::String(other)) => {
            one.len() == other.len() && {
                budget::bytes(one.len());
                one == other
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(others)) => {
            one.len() == others.len()
                && one.iter().all(|(name, value)| {
                    budget::bytes(name.len());
                    let other = others.get(name);
                    other.is_some_and(|other| is_equal(value, other))
                })
        }
        (one, other) => cmp::equal(one, other),
    }
}

fn is_unique_by_hash(items: &[Value]) -> bool {
    let mut first: HashMap<u64, &Value> = HashMap::new();
    // Items with the same hash are compared one by one, which is charged.
    let mut met: Vec<(u64, &Value)> = Vec::new();
    for item in items {
        let mut hasher = DefaultHasher::new();
        hash(item, &mut hasher);
        let hash = hasher.finish();
        match first.get(&hash) {
            None => {
                first.insert(hash, item);
            }
            Some(other) if is_equal(item, other) => return false,
            Some(_) => {
                let repeats = met.iter().any(|(known, other)| {
                    budget::step();
                    *known == hash && is_equal(item, other)
                });
                if repeats {
                    return false;
                }
                met.push((hash, item));
            }
        }
    }
    true
}

/// Hashes a value so that values equal by `is_equal` have the same hash.
fn hash(value: &Value, hasher: &mut DefaultHasher) {
    budget::step();
    match value {
        Value::Null => hasher.write_u8(0),
        Value::Bool(boolean) => hasher.write_u8(1 + u8::from(*boolean)),
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or_default();
            // 0.0 and -0.0 are equal.
            hasher.write_u64(if float == 0.0 { 0 } else { float.to_bits() });
        }
        Value::String(text) => {
            budget::bytes(text.len());
            text.hash(hasher);
        }
        Value::Array(items) => {
            hasher.write_usize(items.len());
            for item in items {
                hash(item, hasher);
            }
        }
        Value::Object(members) => {
            let mut sum = 0_u64;
            for (name, value) in members {
                budget::bytes(name.len());
                let mut member = DefaultHasher::new();
                name.hash(&mut member);
                hash(value, &mut member);
                sum = sum.wrapping_add(member.finish());
            }
            hasher.write_u64(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_unique(items: &Value) -> bool {
        Items(items.as_array().unwrap()).is_unique()
    }

    #[test]
    fn items_are_compared_by_what_they_are() {
        let many: Vec<Value> = (0..100)
            .map(|number| json!({"n": number, "a": [number]}))
            .collect();
        assert!(is_unique(&json!(many)));
        for repeated in [json!({"a": [7.0], "n": 7}), json!({"n": 7.0, "a": [7]})] {
            let mut many = many.clone();
            many.push(repeated);
            assert!(!is_unique(&json!(many)));
        }
        assert!(is_unique(&json!([1, "1", true, null, [1], {"a": 1}])));
        assert!(!is_unique(&json!([1, "1", 1.0])));
        let zeros: Vec<Value> = (1..20).map(|number| json!(number)).collect();
        let zeros = [zeros, vec![json!(0), json!(-0.0)]].concat();
        assert!(!is_unique(&json!(zeros)));
        // Different integers that are equal when converted to floating point.
        let near: Vec<Value> = (0..40_u64)
            .map(|number| json!((1_u64 << 60) + number))
            .collect();
        assert!(is_unique(&json!(near)));
        assert!(is_equal(
            &json!({"a": 1, "b": [2]}),
            &json!({"b": [2.0], "a": 1.0})
        ));
        assert!(!is_equal(&json!({"a": 1}), &json!({"a": 1, "b": 1})));
    }
}
