//! The validator against tables of good and bad text, and against serde_json.

use std::collections::HashSet;
use std::fmt;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::Config;
use serde_json::Value;

use super::*;
use crate::jsonrpc::minify;

const WIDE: Limits = Limits { max_depth: 120 };

fn check(text: &str) -> Result<(), String> {
    validate(text, &Limits::default())
        .map(drop)
        .map_err(|error| error.to_string())
}

// fault S5: numbers pass byte-exact, whatever their size
#[test]
fn accepts_what_rfc_8259_allows() {
    for text in [
        "0",
        "-0",
        "1e400",
        "-1E+400",
        "9223372036854775808",
        "1.0",
        "0.5e-7",
        "\"\"",
        "[]",
        "{}",
        " { } ",
        "[ ]",
        "true",
        "false",
        "null",
        r#""\u0000""#,
        r#""\ud83d\ude00""#,
        "\"\u{7f}\"",
        "\"\u{2028}\"",
        r#""\"\\\/\b\f\n\r\t\u00e9""#,
        r#"{"":1," ":2}"#,
        "\t\r\n1\n",
        r#"[{"a":{"a":[{"a":1}]}},{"a":2}]"#,
    ] {
        assert_eq!(
            validate(text, &Limits::default()).map(Raw::text),
            Ok(text.trim_ascii()),
            "{text}"
        );
    }
}

// fault S5
#[test]
fn refuses_what_it_does_not_and_says_where() {
    let table = [
        ("", "the message ends at byte 0, expected a value"),
        ("\u{feff}{}", "expected a value at byte 0"),
        ("\0", "expected a value at byte 0"),
        ("{}\0", "expected nothing more at byte 2"),
        ("01", "expected nothing more at byte 1"),
        ("-", "the message ends at byte 1, expected a digit"),
        ("+1", "expected a value at byte 0"),
        (".5", "expected a value at byte 0"),
        ("1.", "the message ends at byte 2, expected a digit"),
        ("1.e1", "expected a digit at byte 2"),
        ("1e", "the message ends at byte 2, expected a digit"),
        ("0x10", "expected nothing more at byte 1"),
        ("NaN", "expected a value at byte 0"),
        ("tru", "expected a value at byte 0"),
        ("truex", "expected nothing more at byte 4"),
        ("nul", "expected a value at byte 0"),
        ("[1,]", "expected a value at byte 3"),
        ("[1 2]", "expected `,` or `]` at byte 3"),
        ("[1}", "expected `,` or `]` at byte 2"),
        ("[", "the message ends at byte 1, expected a value"),
        ("[1", "the message ends at byte 2, expected `,` or `]`"),
        ("]", "expected a value at byte 0"),
        ("{,}", "expected a key at byte 1"),
        (r#"{"a":1,}"#, "expected a key at byte 7"),
        (r#"{"a" 1}"#, "expected `:` at byte 5"),
        (r#"{"a"}"#, "expected `:` at byte 4"),
        (r#"{"a":1]"#, "expected `,` or `}` at byte 6"),
        (r#"{a:1}"#, "expected a key at byte 1"),
        (r#"{'a':1}"#, "expected a key at byte 1"),
        ("\"a", "the message ends at byte 2, expected `\"`"),
        (
            "\"a\nb\"",
            "expected no control character in a string at byte 2",
        ),
        (
            "\"a\tb\"",
            "expected no control character in a string at byte 2",
        ),
        (
            "\"\0\"",
            "expected no control character in a string at byte 1",
        ),
        (r#""\x""#, "expected a valid escape at byte 1"),
        (r#""\u12"#, "expected four hex digits at byte 5"),
        (r#""\u12g4""#, "expected four hex digits at byte 5"),
        (r#""\u+123""#, "expected four hex digits at byte 3"),
        ("\"\\", "the message ends at byte 2, expected an escape"),
        (r#""\ud800""#, "lone surrogate escape at byte 1"),
        (r#""\udc00""#, "lone surrogate escape at byte 1"),
        (r#""\ud800\u0041""#, "lone surrogate escape at byte 1"),
        (r#""\ud800\ud800""#, "lone surrogate escape at byte 1"),
        (r#"{"\udead":1}"#, "lone surrogate escape at byte 2"),
        ("// c\n1", "expected a value at byte 0"),
        ("1 2", "expected nothing more at byte 2"),
    ];
    for (text, message) in table {
        assert_eq!(check(text), Err(message.to_owned()), "{text:?}");
    }
}

// fault S6: duplicates at any depth, compared decoded
#[test]
fn refuses_duplicate_keys() {
    let many: String = (0..500).map(|n| format!("\"key{n}\":{n},")).collect();
    let late = format!("{{{many}\"key250\":0}}");
    let nested = format!("[{{\"x\":{{{many}\"\\u006bey499\":0}}}}]");
    let table = [
        (r#"{"a":1,"a":2}"#, Some(7)),
        (r#"{"a":1,"\u0061":2}"#, Some(7)),
        (r#"{"\u0061":1,"a":2}"#, Some(12)),
        (r#"{"x":[{"y":{"b":1,"c":{"b":1},"b":2}}]}"#, Some(30)),
        (r#"{"":1,"":2}"#, Some(6)),
        (r#"{"a\u0000":1,"a\u0000":2}"#, Some(13)),
        (r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#, None),
        (r#"{"a":1,"A":2,"a ":3}"#, None),
        (r#"{"a\u0000":1,"a":2}"#, None),
        (&late, late.rfind("\"key250")),
        (&nested, nested.rfind("\"\\u006b")),
    ];
    for (text, at) in table {
        let found = match validate(text, &Limits::default()) {
            Ok(_) => None,
            Err(WireError::DuplicateKey { at, .. }) => Some(at),
            Err(other) => panic!("{text}: {other}"),
        };
        assert_eq!(found, at, "{text}");
    }
    assert_eq!(
        check(r#"{"\n\u202e":1,"\n\u202e":2}"#),
        Err("duplicate key `\\n\\u{202e}` at byte 14".to_owned())
    );
}

#[test]
fn keys_around_the_edge_between_few_and_many_are_all_compared() {
    for count in 1..40 {
        let keys: Vec<String> = (0..count).map(|n| format!("k{n:02}")).collect();
        let object = |keys: &[String]| {
            let members: Vec<String> = keys.iter().map(|key| format!("\"{key}\":[{{}}]")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert_eq!(check(&object(&keys)), Ok(()));
        for first in 0..count {
            let mut twice = keys.clone();
            twice.push(keys[first].clone());
            assert!(
                check(&object(&twice)).is_err(),
                "{count} keys, {first} twice"
            );
        }
    }
}

// fault S5: 100,000 levels cost no stack and no memory
#[test]
fn bounds_nesting() {
    let nested = |open: &str, close: &str, levels: usize| {
        format!("{}1{}", open.repeat(levels), close.repeat(levels))
    };
    assert_eq!(check(&nested("[", "]", 64)), Ok(()));
    assert_eq!(check(&nested("{\"a\":", "}", 64)), Ok(()));
    assert_eq!(
        check(&nested("[", "]", 65)),
        Err("nested deeper than 64 levels at byte 64".to_owned())
    );
    assert!(check(&nested("{\"a\":[", "]}", 33)).is_err());
    assert!(check(&"[".repeat(100_000)).is_err());
    assert!(check(&nested("[", "]", 100_000)).is_err());
    assert!(check(&format!("{}[]{}", "[".repeat(64), "]".repeat(64))).is_err());
}

#[test]
fn finds_specials_at_every_offset_of_long_strings() {
    for length in 0..200 {
        for at in 0..=length {
            let filler = "é".repeat(at / 2) + &"x".repeat(length - at / 2);
            let split = filler
                .char_indices()
                .map(|(i, _)| i)
                .nth(at / 2)
                .unwrap_or(filler.len());
            for (special, fine) in [
                ("\\n", true),
                ("\n", false),
                ("\u{1f}", false),
                ("\\q", false),
            ] {
                let text = format!("\"{}{special}{}\"", &filler[..split], &filler[split..]);
                assert_eq!(check(&text).is_ok(), fine, "{text:?}");
            }
        }
    }
}

// fault S21
#[test]
fn notes_line_breaks_between_tokens_only() {
    for (text, breaks) in [
        ("{\"a\":[1, 2]}", false),
        ("{\"a\":\"\\n\\r\"}", false),
        ("{\"a\":\n1}", true),
        ("[1\r,2]", true),
        ("1\n", true),
    ] {
        assert_eq!(
            validate(text, &WIDE).map(Raw::is_one_line),
            Ok(!breaks),
            "{text:?}"
        );
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[ -~]{0,100}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 24, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::vec((any::<String>(), inner), 0..24)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Text near JSON: tokens thrown together, so that the accept sets are compared where it matters.
fn nearly_json() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        4 => proptest::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\u0061\"", "\"b\"", "1", "-", "0", ".5", "e1",
            "E-2", "true", "null", " ", "\n", "\t", "\"", "\\", "\\ud800", "\\udc00", "\\u00e9",
            "\"\\\"\"", "é", "\u{1}", "{\"a\":1}", "[1,2]", ",\"c\":", "{\"a\":",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(token, 0..16).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(Config { cases: 4096, failure_persistence: None, ..Config::default() })]

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _outcome = crate::jsonrpc::parse(&bytes, &Limits::default());
        let _id = crate::jsonrpc::salvage_id(&bytes);
        let _id = crate::jsonrpc::salvage_id_from_tail(&bytes);
        let _text = minify(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn agrees_with_serde_json_about_text_near_json(text in nearly_json()) {
        let ours = validate(&text, &WIDE);
        match serde_json::from_str::<Strict>(&text) {
            Ok(Strict) => prop_assert!(ours.is_ok(), "{:?}: {:?}", text, ours),
            Err(error) if error.to_string().starts_with("duplicate key") => {
                prop_assert!(ours.is_err(), "{:?}", text);
            }
            // Numbers out of a float's range are serde_json's own limit.
            Err(error) if error.to_string().starts_with("number out of range") => {}
            Err(error) => prop_assert!(ours.is_err(), "{:?}: serde_json says {}", text, error),
        }
    }

}

proptest! {
    #![proptest_config(Config { cases: 256, failure_persistence: None, ..Config::default() })]

    #[test]
    fn accepts_every_value(value in json()) {
        for text in [value.to_string(), format!("{value:#}")] {
            let raw = validate(&text, &WIDE);
            prop_assert!(raw.is_ok(), "{}: {:?}", text, raw);
            prop_assert_eq!(raw.map(Raw::is_one_line), Ok(!text.contains('\n')));
        }
    }

    #[test]
    fn minifying_keeps_the_value_and_breaks_no_line(value in json()) {
        let small = minify(&format!("{value:#}"));
        prop_assert_eq!(&small, &value.to_string());
        prop_assert!(!small.contains(['\n', '\r']));
    }

    #[test]
    fn truncation_is_always_an_error(value in json(), cut in any::<proptest::sample::Index>()) {
        let text = format!("[{value}]");
        let mut end = cut.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert!(validate(&text[..end], &WIDE).is_err());
    }
}

/// Any JSON value, refused by serde_json if an object has a key twice.
struct Strict;

impl<'de> serde::Deserialize<'de> for Strict {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Strict;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_str<E>(self, _: &str) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_unit<E>(self) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut a: A) -> Result<Strict, A::Error> {
                while a.next_element::<Strict>()?.is_some() {}
                Ok(Strict)
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut a: A) -> Result<Strict, A::Error> {
                let mut keys = HashSet::new();
                let mut twice = false;
                while let Some((key, Strict)) = a.next_entry::<String, Strict>()? {
                    twice |= !keys.insert(key);
                }
                if twice {
                    Err(serde::de::Error::custom("duplicate key"))
                } else {
                    Ok(Strict)
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
