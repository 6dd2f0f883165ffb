//! Counts and bounds in a schema, as the dialects write them.

use serde_json::{Map, Value};

/// Returns a count as a whole number, however it is written; nothing if it is none.
pub(super) fn count(value: &Value) -> Option<Value> {
    if value.is_u64() {
        return Some(value.clone());
    }
    let float = value.as_f64()?;
    let is_whole = float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float);
    // Whole and in range, so that nothing is lost.
    is_whole.then(|| Value::from(float as u64))
}

/// Tells whether a value can be a bound under this keyword; draft 4 has booleans beside the bound.
pub(super) fn is_bound(keyword: &str, value: &Value) -> bool {
    match keyword {
        "multipleOf" => value.as_f64().is_some_and(|step| step > 0.0),
        "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => true,
        _ => value.is_number(),
    }
}

/// Writes the exclusive bounds of draft 4 as later dialects do.
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
