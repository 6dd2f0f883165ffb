//! Counts and bounds in a schema, in the forms of all dialects.

use serde_json::{Map, Value};

/// Returns a count as an integer, even if it is written like `3.0`; `None` if it is not a count.
pub(super) fn count(value: &Value) -> Option<Value> {
    if value.is_u64() {
        return Some(value.clone());
    }
    let float = value.as_f64()?;
    let is_whole = float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float);
    // The conversion is exact: the value is whole and in range.
    is_whole.then(|| Value::from(float as u64))
}

/// Returns whether a value can be a bound under this keyword; in draft 4 the exclusive bounds are
/// booleans.
pub(super) fn is_bound(keyword: &str, value: &Value) -> bool {
    match keyword {
        "multipleOf" => value.as_f64().is_some_and(|step| step > 0.0),
        "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => true,
        _ => value.is_number(),
    }
}

/// Translates the exclusive bounds of draft 4 to those of later dialects.
pub(super) fn translate_exclusive(schema: &mut Map<String, Value>) {
    for (bound, exclusive) in [
        ("minimum", "exclusiveMinimum"),
        ("maximum", "exclusiveMaximum"),
    ] {
        let Some(&Value::Bool(is_exclusive)) = schema.get(exclusive) else {
            continue;
        };
        schema.shift_remove(exclusive);
        if is_exclusive && let Some(value) = schema.shift_remove(bound) {
            schema.insert(exclusive.to_owned(), value);
        }
    }
}
