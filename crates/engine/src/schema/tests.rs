//! Schemas with matching, mismatching and hostile values.

use std::time::Duration;

use serde_json::json;

use super::*;

pub(super) fn compile(schema: &Value) -> Result<Schema, SchemaError> {
    Schema::of_arguments(Raw::trusted(&schema.to_string()))
}

/// Checks a value on this thread, with the full time limit.
fn check_now(schema: &Schema, value: &str) -> Result<(), Vec<Issue>> {
    schema.check_until(
        Raw::trusted(value),
        Instant::now() + Duration::from_secs(10),
    )
}

pub(super) fn issues(schema: &Value, value: &Value) -> Vec<String> {
    let schema = compile(schema).unwrap();
    let issues = check_now(&schema, &value.to_string())
        .err()
        .unwrap_or_default();
    issues
        .into_iter()
        .map(|issue| format!("{}: {}", issue.path, issue.message))
        .collect()
}

#[test]
fn each_wrong_field_is_named_and_no_value_is_shown() {
    // row 3.3, fault A8
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "maximum": 7},
            "unit": {"enum": ["c", "f"]},
            "at": {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]+$"}},
                   "required": ["zip", "co/de"]},
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    let value =
        json!({"days": "hunter2", "unit": "hunter2", "at": {"zip": "hunter2"}, "extra": "hunter2"});
    let found = issues(&schema, &value);
    assert!(!found.concat().contains("hunter2"), "{found:?}");
    for wanted in [
        "/city: required field `city` is missing",
        "/days: must be an integer, not a string",
        "/unit: must be one of [\"c\",\"f\"], not a string of length 7",
        "/at/zip: must match the pattern `^[0-9]+$`",
        "/at/co~1de: required field `co/de` is missing",
        ": has fields the tool does not know: `extra`",
    ] {
        assert!(
            found.iter().any(|issue| issue == wanted),
            "{wanted} in {found:?}"
        );
    }
    assert_eq!(
        issues(&schema, &json!({"city": "Bern", "days": 3})),
        Vec::<String>::new()
    );
    assert_eq!(
        issues(&schema, &json!({"city": "Bern", "days": 9})).len(),
        1
    );
}

#[test]
fn every_kind_of_issue_says_what_is_wanted_and_what_was_given() {
    // row 3.3
    let cases = [
        (json!({"minimum": 5}), json!(4), "5", "a number"),
        (json!({"exclusiveMaximum": 5}), json!(5), "5", "a number"),
        (json!({"multipleOf": 3}), json!(4), "3", "a number"),
        (
            json!({"minLength": 9}),
            json!("hunter2"),
            "9",
            "a string of length 7",
        ),
        (
            json!({"maxLength": 3}),
            json!("hunter2"),
            "3",
            "a string of length 7",
        ),
        (
            json!({"minItems": 2}),
            json!(["hunter2"]),
            "2",
            "an array of length 1",
        ),
        (
            json!({"maxItems": 1}),
            json!([1, 2]),
            "1",
            "an array of length 2",
        ),
        (
            json!({"uniqueItems": true}),
            json!(["hunter2", "hunter2"]),
            "unique",
            "an array of length 2",
        ),
        (
            json!({"contains": {"const": 1}}),
            json!(["hunter2"]),
            "",
            "an array of length 1",
        ),
        (
            json!({"minProperties": 2}),
            json!({"a": "hunter2"}),
            "2",
            "an object with 1 fields",
        ),
        (
            json!({"maxProperties": 0}),
            json!({"a": "hunter2"}),
            "0",
            "an object with 1 fields",
        ),
        (
            json!({"const": true}),
            json!("hunter2"),
            "must be true",
            "a string of length 7",
        ),
        (
            json!({"enum": [1, 2]}),
            json!(true),
            "must be one of [1,2]",
            "a boolean",
        ),
        (
            json!({"type": ["integer", "null"]}),
            json!("hunter2"),
            "null or an integer",
            "a string",
        ),
    ];
    for (wanted, value, expected, given) in cases {
        let schema = json!({"type": "object", "properties": {"field": wanted}});
        let found = issues(&schema, &json!({"field": value}));
        let told = &found[0];
        assert!(
            told.starts_with("/field: ") && told.contains(expected),
            "{told}"
        );
        assert!(told.ends_with(given) && !told.contains("hunter2"), "{told}");
    }
}

#[test]
fn the_closest_alternative_is_explained() {
    let schema = json!({"type": "object", "properties": {"to": {"anyOf": [
        {"type": "object", "properties": {"mail": {"type": "string"}}, "required": ["mail"]},
        {"type": "null"},
    ]}}});
    assert_eq!(
        issues(&schema, &json!({"to": {}})),
        [
            "/to: fits none of 2 alternatives; for the closest, /to/mail: required field `mail` is missing"
        ]
    );
}

// row 3.3
#[test]
fn an_alternative_is_chosen_by_its_kind_and_its_constant() {
    let by_kind = json!({"type": "object", "properties": {"v": {"oneOf": [
        {"type": "integer"},
        {"type": "object", "properties": {"k": {"const": "x"}, "n": {"type": "integer"}},
         "required": ["k", "n"]},
    ]}}});
    assert_eq!(
        issues(&by_kind, &json!({"v": {"k": "x", "n": "y"}})),
        [
            "/v: fits none of 2 alternatives; for the closest, /v/n: must be an integer, not a string"
        ]
    );
    let shape = |kind: &str, size: &str| {
        json!({"type": "object", "properties": {"kind": {"const": kind}, size: {"type": "number"}},
               "required": ["kind", size]})
    };
    let shapes = json!({"type": "object", "properties": {"shape": {
        "oneOf": [shape("circle", "radius"), shape("square", "width")]}}});
    assert_eq!(
        issues(&shapes, &json!({"shape": {"kind": "square", "radius": 1}})),
        [
            "/shape: fits none of 2 alternatives; for the closest, /shape/width: required field `width` is missing"
        ]
    );
    assert_eq!(
        issues(&shapes, &json!({"shape": {"kind": "line"}})),
        [
            r#"/shape: fits none of 2 alternatives; /shape/kind decides which: one of "circle", "square""#
        ]
    );
}

// row 3.3
#[test]
fn names_and_items_that_do_not_fit_are_told() {
    let of = |wanted: Value| json!({"type": "object", "properties": {"field": wanted}});
    let short = json!({"propertyNames": {"maxLength": 3}});
    assert_eq!(
        issues(&of(short), &json!({"field": {"ab": 1, "abcd": 2}})),
        [
            "/field: the name of a field is not allowed: it is longer than 3 characters; given were `ab`, `abcd`"
        ]
    );
    let listed = json!({"contains": {"const": 1}});
    let told = issues(&of(listed), &json!({"field": [2, 3]}));
    assert!(told[0].contains("fit `contains`"), "{told:?}");
    let mut tuple = of(json!({"items": [{"type": "string"}], "additionalItems": false}));
    tuple["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    assert_eq!(
        issues(&tuple, &json!({"field": ["a", "b"]})),
        ["/field: must have at most 1 items; given was an array of length 2"]
    );
}

#[test]
fn issues_are_few_and_short() {
    let names: Vec<String> = (0..100).map(|number| format!("field{number}")).collect();
    let found = issues(&json!({"type": "object", "required": names}), &json!({}));
    assert_eq!(found.len(), MOST_TOLD);
    let long = json!({"type": "object", "properties": {"x": {"const": "y".repeat(5000)}}});
    let found = issues(&long, &json!({"x": "z".repeat(5000)}));
    assert!(
        found[0].len() < 400 && !found[0].contains("zz"),
        "{found:?}"
    );
}

const MOST_TOLD: usize = 32;

#[test]
fn schemas_without_constraints_read_no_value() {
    for schema in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}, "required": [], "additionalProperties": true}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
    ] {
        let schema = compile(&schema).unwrap();
        assert!(matches!(schema.rule, Rule::AnyObject), "{schema:?}");
        assert!(check_now(&schema, "[1]").is_err());
        let long = format!("[{}1]", "1,".repeat(1 << 20));
        assert_eq!(schema.cost(Raw::trusted(&long)), Cost::Inline);
    }
}

#[test]
fn dialects_are_honoured() {
    // In draft 7 a `$ref` hides its sibling keywords; in 2020-12 it does not.
    let schema = |dialect: &str| {
        json!({"$schema": dialect, "type": "object", "definitions": {"any": {}},
               "properties": {"x": {"$ref": "#/definitions/any", "type": "string"}}})
    };
    let old = schema("http://json-schema.org/draft-07/schema#");
    let new = schema("https://json-schema.org/draft/2020-12/schema");
    assert_eq!(issues(&old, &json!({"x": 1})).len(), 0);
    assert_eq!(issues(&new, &json!({"x": 1})).len(), 1);
}

#[test]
fn annotations_for_headers_are_refused_if_invalid() {
    // fault S19
    let property = |schema: Value| json!({"type": "object", "properties": {"x": schema}});
    for (schema, part) in [
        (
            property(json!({"type": "string", "x-mcp-header": "Bad Name\r\n"})),
            "not a header name",
        ),
        (
            property(json!({"type": "string", "x-mcp-header": 7})),
            "not a string",
        ),
        (
            property(json!({"items": {"type": "string", "x-mcp-header": "A"}})),
            "not on a property",
        ),
        (
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "Same"},
                                  "b": {"type": "string", "x-mcp-header": "same"}}}),
            "two properties",
        ),
    ] {
        let error = compile(&schema).unwrap_err().to_string();
        assert!(error.contains(part), "{error} should tell: {part}");
    }
    compile(&property(
        json!({"type": "string", "x-mcp-header": "Region"}),
    ))
    .unwrap();
}

/// Returns which parts of a schema are not checked.
pub(super) fn unchecked(schema: &Value) -> Vec<String> {
    let schema = compile(schema).unwrap();
    let parts = schema.unchecked().iter();
    parts
        .map(|part| format!("{}: {}", part.part, part.reason))
        .collect()
}

/// A chain of definitions, each made from the reference to the next.
fn chain(length: usize, link: impl Fn(Value) -> Value, last: Value) -> Value {
    let mut definitions = Map::new();
    for number in 0..length {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        definitions.insert(format!("d{number}"), link(next));
    }
    definitions.insert(format!("d{length}"), last);
    json!({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
}

#[test]
fn combinations_that_multiply_are_not_judged() {
    // fault A9: 2^40 ways to look at one value, and a chain that would eat the stack
    let doubling = chain(
        40,
        |next| json!({"anyOf": [next.clone(), next]}),
        json!({"type": "null"}),
    );
    let shorter = chain(
        10,
        |next| json!({"anyOf": [next.clone(), next]}),
        json!({"type": "null"}),
    );
    let long = chain(
        500,
        |next| json!({"allOf": [next]}),
        json!({"type": "null"}),
    );
    for schema in [doubling, long] {
        let told = unchecked(&schema);
        assert!(!told.is_empty(), "{schema}");
        let too_many = |told: &String| told.ends_with(": it combines too many alternatives");
        assert!(told.iter().all(too_many), "{told:?}");
        assert_eq!(issues(&schema, &json!({"x": 7})), Vec::<String>::new());
    }
    assert_eq!(unchecked(&shorter), Vec::<String>::new());
}

#[tokio::test]
async fn a_check_that_explodes_ends_in_time() {
    // fault A9: 2^10 looks at each of many values; 2^58 reasons why one value does not fit
    let wide = chain(
        10,
        |next| json!({"allOf": [next.clone(), next]}),
        json!({"type": "number"}),
    );
    let wide =
        json!({"properties": {"x": {"items": wide["properties"]["x"]}}, "$defs": wide["$defs"]});
    let numbers = json!({"x": vec![7; 20_000]}).to_string();
    let node = json!({"type": "object", "required": ["a"], "anyOf": [
        {"properties": {"a": {"$ref": "#/$defs/node"}}},
        {"properties": {"a": {"$ref": "#/$defs/node"}}},
    ]});
    let deep = json!({"$ref": "#/$defs/node", "$defs": {"node": node}});
    let nested = format!("{}7{}", "{\"a\":".repeat(58), "}".repeat(58));
    for (schema, value, told) in [
        (wide, numbers, "takes too long; send"),
        (deep, nested, "finding out where takes too long"),
    ] {
        let schema = Arc::new(compile(&schema).unwrap());
        assert_eq!(schema.cost(Raw::trusted(&value)), Cost::Heavy);
        let begun = tokio::time::Instant::now();
        let checked = schema
            .check(Raw::trusted(&value), &Permits::default())
            .await;
        let Err(SchemaMismatch::Issues(issues)) = checked else {
            panic!("{checked:?}")
        };
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
        assert!(
            issues.len() == 1 && issues[0].message.contains(told),
            "{issues:?}"
        );
    }
}

#[tokio::test]
async fn a_heavy_schema_still_judges() {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}},
    }, "required": ["name"]});
    let schema = Arc::new(compile(&schema).unwrap());
    let fits = json!({"name": "a", "children": [{"name": "b"}, {"name": "c", "children": []}]});
    let not = json!({"name": "a", "children": [{"name": "b"}, {"children": []}]});
    let permits = Permits::default();
    let (fits, not) = (fits.to_string(), not.to_string());
    assert_eq!(schema.cost(Raw::trusted(&fits)), Cost::Heavy);
    assert_eq!(schema.check(Raw::trusted(&fits), &permits).await, Ok(()));
    let checked = schema.check(Raw::trusted(&not), &permits).await;
    let Err(SchemaMismatch::Issues(issues)) = checked else {
        panic!("{checked:?}")
    };
    assert_eq!(issues[0].path, "/children/1/name");
}

#[test]
fn a_pattern_made_to_backtrack_costs_linear_time() {
    // fault A9
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}});
    let value = json!({"x": format!("{}!", "a".repeat(10_000))});
    assert_eq!(
        issues(&schema, &value),
        ["/x: must match the pattern `^(a+)+$`"]
    );
}

#[test]
fn the_deepest_check_fits_a_small_stack() {
    // fault A9: the longest chain that is accepted, once for each level of the deepest value
    let link = |next| json!({"allOf": [next]});
    let last = json!({"properties": {"x": {"$ref": "#/$defs/d0"}}, "required": ["y"]});
    let schema = compile(&chain(11, link, last)).unwrap();
    let value = format!("{}1{}", "{\"x\":".repeat(60), "}".repeat(60));
    let check = move || check_now(&schema, &value).unwrap_err().len();
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(check)
        .unwrap();
    assert!(thread.join().unwrap() > 0);
}

/// Checks a value with a time limit; returns whether the check was aborted as too expensive.
async fn is_too_costly(schema: &Value, value: &Value) -> bool {
    let schema = Arc::new(Schema::of_result(Raw::trusted(&schema.to_string())));
    let value = value.to_string();
    let begun = Instant::now();
    let permits = Permits::default();
    let checked = schema.check(Raw::trusted(&value), &permits).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    match checked {
        Ok(()) => false,
        Err(SchemaMismatch::Busy) => panic!("nothing else was checked"),
        Err(SchemaMismatch::Issues(issues)) => {
            let told = issues
                .iter()
                .any(|issue| issue.message.contains("takes too long"));
            assert!(told, "{issues:?}");
            true
        }
    }
}

/// Returns a schema for each item of `x`, with a definition to refer to.
fn each_item(schema: Value, definition: Value) -> Value {
    json!({"type": "object", "properties": {"x": {"items": schema}}, "$defs": {"d": definition}})
}

#[tokio::test]
async fn every_keyword_is_counted() {
    // fault A9: few subschemas, and each look at an item costs as much as the schema is long
    let numbers: Vec<f64> = (0..9_000).map(|number| f64::from(number) + 0.5).collect();
    let many = json!({"x": vec![-1.5; 60_000]});
    let named = |count: usize| (0..count).map(|number| format!("k{number}"));
    let members =
        |count| -> Map<String, Value> { named(count).map(|name| (name, json!(1))).collect() };
    let objects = json!({"x": vec![members(4_000); 100]});
    let mut other = members(4_000);
    other.insert("k3999".to_owned(), json!(2));
    let again = |count| vec![json!({"$ref": "#/$defs/d"}); count];
    let patterns = |count| (0..count).map(|number| format!("^{number}?w[a-z]{{3}}.*z?$"));
    let names: Map<String, Value> = patterns(300).map(|name| (name, json!(true))).collect();
    let pattern = |pattern: String| json!({"pattern": pattern});
    let optional = |mut schemas: Vec<Value>| {
        schemas.push(json!(true));
        json!({ "anyOf": schemas })
    };
    for (name, schema, value) in [
        (
            "enum",
            each_item(json!({"not": {"enum": numbers}}), json!({})),
            many.clone(),
        ),
        (
            "const",
            each_item(optional(again(100)), json!({"const": other})),
            objects.clone(),
        ),
        (
            "booleans",
            each_item(optional(again(1)), json!({"anyOf": vec![false; 9_000]})),
            many.clone(),
        ),
        (
            "required",
            each_item(
                json!({"allOf": again(100)}),
                json!({"required": named(4_000).collect::<Vec<_>>()}),
            ),
            objects,
        ),
        (
            "names",
            json!({"type": "object", "patternProperties": names}),
            json!(members(60_000)),
        ),
        (
            "contains",
            json!({"type": "object", "properties": {"x": {"allOf": again(400)}},
                   "$defs": {"d": {"contains": {"const": 7}, "minContains": 0}}}),
            many,
        ),
        (
            "lengths",
            json!({"type": "object", "properties": {"x": {"allOf": again(600)}},
                   "$defs": {"d": {"minLength": 7}}}),
            json!({"x": "é".repeat(1 << 20)}),
        ),
        (
            "patterns",
            each_item(
                json!({"allOf": patterns(50).map(pattern).collect::<Vec<_>>()}),
                json!({}),
            ),
            json!({"x": vec!["w".repeat(12_000); 100]}),
        ),
    ] {
        assert!(is_too_costly(&schema, &value).await, "{name}");
    }
}

#[tokio::test]
async fn a_pattern_that_is_costly_for_any_engine_judges_nothing() {
    // fault A9: too many states for an automaton, on one text
    let schema = |pattern: &str| {
        json!({"type": "object", "properties": {"x": {"pattern": pattern}},
                                        "patternProperties": {"^n": {"pattern": pattern}}})
    };
    let hard = schema("(?:0|1)*1(?:0|1){400}2");
    let mut noise = 1_u32;
    let bits: String = (0..2_000_000)
        .map(|_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if noise >> 31 == 0 { '0' } else { '1' }
        })
        .collect();
    assert!(!is_too_costly(&hard, &json!({"x": bits})).await);
    // The same as the name of a member.
    let names = json!({"type": "object", "patternProperties": {"(?:0|1)*1(?:0|1){400}2": true}});
    assert!(is_too_costly(&names, &json!({ bits: 1 })).await);
    // A long text and a plain pattern.
    let plain = schema("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==)?$");
    assert!(!is_too_costly(&plain, &json!({"x": "QUJD".repeat(200_000)})).await);
}

// fault A9: the library compares each name of a group with all before it
#[tokio::test]
async fn texts_that_are_to_be_patterns_are_counted() {
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                        "properties": {"x": {"format": "regex"}, "list": {"items": {"format": "regex"}}}});
    let names =
        |count: usize| -> String { (0..count).map(|name| format!("(?<a{name}>)")).collect() };
    assert!(!is_too_costly(&schema, &json!({"x": names(300_000)})).await);
    let sets = r"(?i)\p{L}".repeat(1_600);
    assert!(is_too_costly(&schema, &json!({"list": vec![sets; 100]})).await);
    assert_eq!(
        issues(&schema, &json!({"x": "^[a-z]+(?=b)$"})),
        Vec::<String>::new()
    );
    assert_eq!(issues(&schema, &json!({"x": "(a"})).len(), 1);
}

#[tokio::test]
async fn a_pattern_that_backtracks_without_end_judges_nothing() {
    // fault A9: no linear engine knows look-around
    let schema = json!({"type": "object", "properties": {"x": {"pattern": "^(?=(a+)+$)"}}});
    let endless = format!("{}!", "a".repeat(60));
    assert!(!is_too_costly(&schema, &json!({"x": endless})).await);
    assert!(!is_too_costly(&schema, &json!({"x": "a".repeat(60)})).await);
    // An unchecked pattern neither accepts nor rejects a value, wherever it occurs.
    let slow = json!({"pattern": "^(?=(a+)+$)"});
    for schema in [
        json!({"not": slow}),
        json!({"oneOf": [slow, {"type": "string"}]}),
        json!({"if": slow, "then": {"maxLength": 3}}),
        json!({"anyOf": [slow, {"maxLength": 3}]}),
    ] {
        let schema = Arc::new(Schema::of_result(Raw::trusted(&schema.to_string())));
        let check = async |value: Value| {
            let text = value.to_string();
            let permits = Permits::default();
            schema.check(Raw::trusted(&text), &permits).await
        };
        assert_eq!(check(json!(endless)).await, Ok(()), "{schema:?}");
        assert!(schema.unjudged_texts() > 0);
    }
    let both = json!({"properties": {"x": slow, "y": {"type": "string"}}});
    let both = Arc::new(Schema::of_result(Raw::trusted(&both.to_string())));
    let value = json!({"x": endless, "y": 7}).to_string();
    let Err(SchemaMismatch::Issues(issues)) =
        both.check(Raw::trusted(&value), &Permits::default()).await
    else {
        panic!("the rest is judged")
    };
    assert_eq!(issues[0].path, "/y", "{issues:?}");
    // A long text that is read once.
    let plain = json!({"type": "object", "properties": {"x": {"pattern": "^(?!.*[<>])[^]*$"}}});
    assert!(!is_too_costly(&plain, &json!({"x": "word ".repeat(20_000)})).await);
}

#[tokio::test]
async fn long_values_that_are_read_once_are_not_too_much() {
    let row = json!({"id": 7, "name": "some name", "tags": ["a", "b"], "at": {"zip": "1234"}});
    let schema = json!({"type": "object", "required": ["rows"], "properties": {
        "rows": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "integer"}, "name": {"type": "string", "maxLength": 40},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
            "at": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": false,
                                                "properties": {"zip": {"type": "string"}}}]}}}},
        "text": {"type": "string"}, "numbers": {"items": {"type": "number"}, "uniqueItems": true}}});
    let numbers: Vec<u32> = (0..20_000).collect();
    let value = json!({"rows": vec![row; 3_000], "text": "x".repeat(1 << 20), "numbers": numbers});
    assert!(!is_too_costly(&schema, &value).await);
}

#[tokio::test]
async fn a_value_of_too_many_parts_is_not_even_read() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "array"}}});
    assert!(is_too_costly(&schema, &json!({"x": vec![1; MOST_PARTS + 1]})).await);
    let text = json!({"x": [",[{\"\\".repeat(1 << 19)]});
    assert!(!is_too_costly(&schema, &text).await);
    assert_eq!(parts(br#"{"a,\"[":[1,"x\\",{}]}"#), 6);
}

#[test]
fn reasons_do_not_copy_the_value() {
    // fault A9: each of many alternatives is told of the value that does not fit
    let schema = json!({"type": "object", "properties": {"x": {"anyOf": vec![json!({"type": "null"}); 3_000]}}});
    let value = json!({"x": "y".repeat(1 << 20)});
    let found = issues(&schema, &value);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("/x: fits none of 3000 alternatives"),
        "{found:?}"
    );
}

#[test]
fn small_checks_stay_where_they_are() {
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string", "pattern": "^[^\\n]*$"}, "unit": {"enum": ["c", "f"]}}, "required": ["text"]});
    let schema = compile(&schema).unwrap();
    for (value, fits) in [
        (json!({"text": "a line", "unit": "c"}), true),
        (json!({"text": "two\nlines"}), false),
        (json!({"unit": "k"}), false),
    ] {
        let value = value.to_string();
        let judged = schema.judge(Raw::trusted(&value), None);
        assert_eq!(judged.map(|judged| judged.is_ok()), Some(fits), "{value}");
    }
    // A long text is one part.
    let plain =
        compile(&json!({"type": "object", "properties": {"text": {"type": "string"}}})).unwrap();
    let long = json!({"text": "x".repeat(256 << 10)}).to_string();
    assert_eq!(plain.cost(Raw::trusted(&long)), Cost::Inline);
    assert_eq!(plain.judge(Raw::trusted(&long), None), Some(Ok(())));
    let many = json!({"list": vec![1; 60_000]}).to_string();
    assert_eq!(plain.cost(Raw::trusted(&many)), Cost::Heavy);
}
