//! Schemas with parts that cannot be checked, and schemas in other dialects.

use serde_json::{Value, json};

use crate::schema::tests::{issues, unchecked};

#[test]
fn what_cannot_be_judged_is_told_and_the_rest_is_judged() {
    // fault A9
    let property = |schema: Value| json!({"type": "object", "properties": {"x": schema, "y": {"type": "string"}}});
    let mut deep = json!({});
    for _ in 0..70 {
        deep = json!({"not": deep});
    }
    for (schema, part) in [
        (
            property(json!({"pattern": "(unclosed"})),
            "/properties/x/pattern: it is not a regular expression: a group does not end",
        ),
        (
            property(json!({"$ref": "http://127.0.0.1:9/schema.json"})),
            "/properties/x/$ref: it refers to another document: `http://127.0.0.1:9/schema.json`",
        ),
        (
            property(json!({"$ref": "file:///etc/passwd"})),
            "another document",
        ),
        (
            property(json!({"$ref": "other.json#/x"})),
            "another document",
        ),
        (
            property(json!({"$ref": "#/$defs/missing"})),
            "/properties/x/$ref: it refers to `#/$defs/missing`, which is not there",
        ),
        (property(json!({"$ref": "#nowhere"})), "which is not there"),
        (
            json!({"properties": {"y": {"type": "string"}}, "$ref": "#"}),
            ": it refers to itself without end",
        ),
        (
            json!({"properties": {"y": {"type": "string"}}, "allOf": [{"anyOf": [{"$ref": "#"}]}]}),
            "/allOf/0/anyOf/0: it refers to itself without end",
        ),
        (
            property(json!({"$id": "http://x/", "$ref": "#"})),
            "/properties/x/$ref: it lies in a schema with an address of its own",
        ),
        (property(deep), "nested deeper than 64"),
        (
            property(json!({"type": "banana"})),
            "/properties/x/type: `\"banana\"` is not a type",
        ),
        (property(json!({"type": "any"})), "is not a type"),
        (property(json!(7)), "/properties/x: it is not a schema"),
        (property(json!({"required": true})), "not a list of names"),
        (property(json!({"enum": []})), "it lists no values"),
        (property(json!({"minLength": "5"})), "it is not a count"),
        (property(json!({"multipleOf": 0})), "it is not a bound"),
        (property(json!({"anyOf": []})), "it lists no schemas"),
        (property(json!({"format": 7})), "it is not a string"),
        (property(json!({"items": "string"})), "it is not a schema"),
        (
            property(json!({"patternProperties": {"^(?!_)": {}}, "additionalProperties": false})),
            "/properties/x/patternProperties/^(?!_): names are not matched against such a pattern",
        ),
        (
            json!({"$schema": "https://example.com/own", "properties": {"y": {"type": "string"}}}),
            "/$schema: `\"https://example.com/own\"` is not a known dialect; 2020-12 is assumed",
        ),
    ] {
        let told = unchecked(&schema);
        assert!(
            told.iter().any(|told| told.contains(part)),
            "{told:?} should tell: {part}"
        );
        let found = issues(&schema, &json!({"y": 7}));
        assert_eq!(found, ["/y: must be a string, not a number"], "{schema}");
        // A removed part accepts everything.
        for value in [json!({"x": "text"}), json!({"x": {"a": 1}}), json!({})] {
            assert_eq!(
                issues(&schema, &value),
                Vec::<String>::new(),
                "{schema} for {value}"
            );
        }
    }
}

#[test]
fn what_is_too_large_as_a_whole_is_not_judged() {
    let many: Vec<Value> = (0..6000).map(|_| json!({})).collect();
    for (schema, part) in [
        (
            json!({"anyOf": many.clone(), "allOf": many}),
            ": it has more than 10000 subschemas",
        ),
        (
            json!({"type": "object", "x": "y".repeat(270_000)}),
            ": it is longer than 256 KiB",
        ),
    ] {
        assert_eq!(unchecked(&schema), [part]);
        assert_eq!(issues(&schema, &json!({"x": 1})), Vec::<String>::new());
        assert_eq!(issues(&schema, &json!([])), [": must be an object"]);
    }
}

#[test]
fn what_has_a_plain_meaning_is_judged() {
    let property = |schema: Value| json!({"type": "object", "properties": {"x": schema}});
    let drafts = [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema",
        "https://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema#",
        "http://json-schema.org/schema#",
    ];
    let mut cases = vec![
        (
            json!({"pattern": "^(?=.*[0-9]).{3,}$"}),
            json!("ab1"),
            json!("abc"),
        ),
        (
            json!({"pattern": r##"^(['"]).*\1$"##}),
            json!("'a'"),
            json!("'a\""),
        ),
        (json!({"pattern": "^[^]{2}$"}), json!("a\n"), json!("a")),
        (json!({"pattern": "^.{0,5000}$"}), json!("a"), json!("a\nb")),
        (json!({"pattern": r"\A(?P<a>\d)\Z"}), json!("1"), json!("a")),
        (
            json!({"description": null, "title": null, "type": "string"}),
            json!("a"),
            json!(1),
        ),
        (json!({"required": ["a", "a"]}), json!({"a": 1}), json!({})),
        (json!({"type": ["string", null]}), json!(null), json!(1)),
        (json!({"type": ["string", "string"]}), json!("a"), json!(1)),
        (json!({"type": "STRING"}), json!("a"), json!(1)),
        (
            json!({"type": "string", "nullable": true}),
            json!(null),
            json!(1),
        ),
        (
            json!({"type": "string", "enum": ["a"], "nullable": true}),
            json!(null),
            json!("b"),
        ),
        (
            json!({"minimum": 5, "exclusiveMinimum": true}),
            json!(6),
            json!(5),
        ),
        (
            json!({"maximum": 5, "exclusiveMaximum": false}),
            json!(5),
            json!(6),
        ),
        (json!({"minLength": 2.0}), json!("ab"), json!("a")),
        (json!({"enum": ["a", "a"]}), json!("a"), json!("b")),
        (
            json!({"items": [{"type": "string"}], "additionalItems": false}),
            json!(["a"]),
            json!([1]),
        ),
        (
            json!({"items": [{}], "additionalItems": false}),
            json!([1]),
            json!([1, 2]),
        ),
        (
            json!({"type": "object", "properties": [], "additionalProperties": null}),
            json!({"a": 1}),
            json!(1),
        ),
        (
            json!({"type": "object", "properties": null, "required": null}),
            json!({}),
            json!(1),
        ),
        (
            json!({"patternProperties": {"^[^]$": {"type": "string"}}}),
            json!({"a": "b"}),
            json!({"a": 1}),
        ),
        (
            json!({"propertyNames": {"pattern": "^(?!_)"}}),
            json!({"a": 1}),
            json!({"_a": 1}),
        ),
        (
            json!({"type": "string", "format": "no-such-format"}),
            json!("a"),
            json!(1),
        ),
        (
            json!({"$ref": "#/components/schemas/A"}),
            json!("a"),
            json!(1),
        ),
        (json!({"$ref": "#/$defs/a%20b"}), json!("a"), json!(1)),
        (json!({"$ref": "#/$defs/List<Größe>"}), json!("a"), json!(1)),
        (json!({"$ref": "#here"}), json!("a"), json!(1)),
    ]
    .into_iter()
    .map(|(schema, fits, not)| (property(schema), fits, not))
    .collect::<Vec<_>>();
    for draft in drafts {
        let mut schema = property(json!({"type": "string"}));
        schema["$schema"] = json!(draft);
        cases.push((schema, json!("a"), json!(1)));
    }
    let own = json!({"$id": "https://a.example/s#", "properties": {"x": {"$ref": "https://a.example/s#/$defs/a b"}}});
    cases.push((own, json!("a"), json!(1)));
    for (mut schema, fits, not) in cases {
        schema["$defs"] = json!({"a b": {"type": "string"}, "List<Größe>": {"type": "string"},
                                  "c": {"$anchor": "here", "type": "string"}});
        schema["components"] = json!({"schemas": {"A": {"type": "string", "description": null}}});
        assert_eq!(unchecked(&schema), Vec::<String>::new(), "{schema}");
        assert_eq!(
            issues(&schema, &json!({"x": fits})),
            Vec::<String>::new(),
            "{schema}"
        );
        assert_eq!(issues(&schema, &json!({"x": not})).len(), 1, "{schema}");
    }
}

#[test]
fn a_missing_part_never_refuses_what_the_whole_lets_through() {
    let bad = json!({"pattern": "(unclosed"});
    let property = |schema: Value| {
        json!({"type": "object", "properties": {"x": schema, "y": {"type": "string"}},
               "$defs": {"bad": {"pattern": "(unclosed"}}})
    };
    for schema in [
        property(json!({"not": bad})),
        property(json!({"not": {"anyOf": [{"$ref": "#/$defs/bad"}]}})),
        property(json!({"if": bad, "then": false})),
        property(json!({"oneOf": [bad, {"type": "string"}]})),
        property(json!({"oneOf": [bad, {"type": "string"}], "allOf": [{}]})),
        property(json!({"contains": bad, "maxContains": 0})),
        property(json!({"patternProperties": {"(unclosed": {}}, "additionalProperties": false})),
        property(json!({"properties": 7, "additionalProperties": false})),
        property(json!({"$ref": "http://x/", "unevaluatedProperties": false})),
        property(json!({"allOf": [{"$ref": "http://x/"}], "unevaluatedProperties": false})),
    ] {
        for value in [json!("text"), json!({"a": 1}), json!(["text"])] {
            let value = json!({"x": value});
            assert_eq!(
                issues(&schema, &value),
                Vec::<String>::new(),
                "{schema} for {value}"
            );
        }
        assert_eq!(issues(&schema, &json!({"y": 7})).len(), 1, "{schema}");
        assert!(!unchecked(&schema).is_empty());
    }
    // In draft 7 a reference hides its sibling keywords, even when the reference itself is removed.
    let mut hidden = property(json!({"$ref": "http://x/", "type": "string"}));
    hidden["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert_eq!(issues(&hidden, &json!({"x": 7})), Vec::<String>::new());
    // Alternatives are still checked as far as possible.
    let one = property(json!({"oneOf": [{"type": "number"}, {"type": "string", "pattern": "("}]}));
    assert_eq!(issues(&one, &json!({"x": true})).len(), 1);
}
