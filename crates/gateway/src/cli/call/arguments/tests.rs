//! What the words of a command line become.

use serde_json::json;

use super::*;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "maxCount": {"type": "integer"},
            "ratio": {"type": ["number", "null"]},
            "dry_run": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "mode": {"type": "string", "enum": ["fast", "slow"]},
            "where": {"$ref": "#/$defs/place"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "anything": {},
            "json": {"type": "string"},
        },
        "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}, "name": {"type": "string"}}}},
    })
}

fn read(words: &[&str]) -> Result<Parsed, Failure> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Tokens::of(&words)?.read(&schema())
}

fn arguments(words: &[&str]) -> Value {
    Value::Object(read(words).unwrap().arguments)
}

fn refused(words: &[&str]) -> String {
    format!("{:?}", read(words).unwrap_err())
}

#[test]
fn flags_have_the_types_of_the_schema() {
    let words = [
        "--text",
        "5",
        "--max-count",
        "3",
        "--ratio=0.5",
        "--dry-run",
    ];
    let expected = json!({"text": "5", "maxCount": 3, "ratio": 0.5, "dry_run": true});
    assert_eq!(arguments(&words), expected);
    assert_eq!(arguments(&["--max_count", "-3"]), json!({"maxCount": -3}));
    assert_eq!(arguments(&["--no-dry-run"]), json!({"dry_run": false}));
    assert_eq!(arguments(&["--dry_run=false"]), json!({"dry_run": false}));
    assert_eq!(arguments(&["--maybe", "7"]), json!({"maybe": "7"}));
    assert_eq!(arguments(&["--anything", "[1]"]), json!({"anything": [1]}));
    assert_eq!(arguments(&["--text="]), json!({"text": ""}));
}

#[test]
fn lists_are_repeated_or_json_and_what_is_nested_has_dots() {
    let words = [
        "--tags", "a", "--tags", "b", "--sizes", "[1,2]", "--sizes", "3",
    ];
    assert_eq!(
        arguments(&words),
        json!({"tags": ["a", "b"], "sizes": [1, 2, 3]})
    );
    let words = ["--where.x", "1", "--where.name", "here"];
    assert_eq!(
        arguments(&words),
        json!({"where": {"x": 1, "name": "here"}})
    );
    assert_eq!(
        arguments(&["--where", "{\"x\":2}"]),
        json!({"where": {"x": 2}})
    );
}

#[test]
fn pairs_are_typed_too_and_what_does_not_fit_is_the_gateways_to_judge() {
    let words = ["text=5", "maxCount=three", "other=[true]", "more=x=y"];
    let expected = json!({"text": "5", "maxCount": "three", "other": [true], "more": "x=y"});
    assert_eq!(arguments(&words), expected);
    assert!(refused(&["nothing"]).contains("is not an argument"));
}

#[test]
fn a_tools_own_argument_goes_before_a_flag_of_ours() {
    let parsed = read(&["--json", "x", "--async", "--timeout", "2s", "--help"]).unwrap();
    assert_eq!(parsed.arguments["json"], "x");
    let expected = Own {
        later: true,
        help: true,
        timeout: Some(Duration::from_secs(2)),
        ..Own::default()
    };
    assert_eq!(parsed.own, expected);
}

#[test]
fn a_mistake_is_named_and_a_near_name_suggested() {
    assert!(refused(&["--max-count", "three"]).contains("takes an integer, not `three`"));
    assert!(refused(&["--mode", "fats"]).contains("one of `fast`, `slow`"));
    assert!(refused(&["--txt", "x"]).contains("did you mean `--text`?"));
    assert!(refused(&["--entirely-else", "x"]).contains("--help"));
    assert!(refused(&["--text"]).contains("`--text` needs a text"));
    assert!(refused(&["--"]).contains("names no argument"));
}

#[test]
fn without_a_schema_everything_goes() {
    let words = ["--a", "1", "b=two"].map(str::to_owned);
    let parsed = Tokens::of(&words).unwrap().read(&Value::Null).unwrap();
    assert_eq!(Value::Object(parsed.arguments), json!({"a": 1, "b": "two"}));
}
