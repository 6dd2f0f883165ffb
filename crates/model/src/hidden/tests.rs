//! What is taken out of texts, and what stays.

use super::*;

fn cleaned(text: &str) -> String {
    clean(text).map_or_else(|| text.to_owned(), |(clean, _)| clean)
}

// fault L2
#[test]
fn what_nobody_sees_goes() {
    for (text, expected) in [
        ("a\u{200b}b\u{2060}c\u{feff}", "abc"),
        ("a\u{202e}cba\u{202c}\u{2066}x\u{2069}", "acbax"),
        ("hi\u{e0048}\u{e0049}\u{e007f}", "hi"),
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        (
            "\u{1b}]8;;https://x\u{7}link\u{1b}]8;;\u{1b}\\ end",
            "link end",
        ),
        ("\u{1b}Mup\u{1b}(Bx\u{9b}2Jy", "upxy"),
        ("\u{1b}[8", ""),
        ("\u{1b}", ""),
        ("\u{1b}ü", "ü"),
        ("bell\u{7} null\u{0} del\u{7f}", "bell null del"),
        // Beside ASCII a joiner joins nothing.
        ("a\u{200d}b\u{200f}c", "abc"),
        // Bits in runs of selectors and joiners.
        ("x\u{fe0e}\u{fe0f}\u{fe0e}", "x\u{fe0e}"),
        ("é\u{200c}\u{200d}\u{200c}é", "é\u{200c}é"),
    ] {
        assert_eq!(cleaned(text), expected, "{text:?}");
    }
    let (_, removed) = clean("ab\u{1b}[1m\u{200b}").unwrap();
    assert_eq!(
        (removed.controls, removed.invisible, removed.first),
        (1, 1, 2)
    );
}

// fault L2
#[test]
fn ordinary_text_stays_byte_for_byte() {
    for text in [
        "",
        "plain\r\n\ttext",
        "Grüße, 世界, привет",
        "می\u{200c}خواهم",
        "ക്\u{200d}",
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
        "❤\u{fe0f} 1\u{fe0f}\u{20e3}",
        "שלום\u{200f} abc",
        "\u{1f3f4}\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
        "葛\u{e0100}城",
        "co\u{ad}operate\u{2028}next",
    ] {
        assert_eq!(clean(text), None, "{text:?}");
    }
}

// fault L2
#[test]
fn of_json_only_string_values_are_touched() {
    let json = "{ \"k\u{200b}\" : \"v\u{200b}\", \"n\": 1.50, \"e\\u200b\":[\"\\u001b[1mx\\n\", true, null] , \"s\":\"a\\u00e9\" }";
    let (clean, removed) = clean_json(json).unwrap();
    assert_eq!(
        clean,
        "{ \"k\u{200b}\" : \"v\", \"n\": 1.50, \"e\\u200b\":[\"x\\n\", true, null] , \"s\":\"a\\u00e9\" }"
    );
    assert_eq!(removed.count(), 2);
    for json in [
        r#"{"a":"plain \n \\ text"}"#,
        "{\"ü\":\"ä\"}",
        r#"{"a\u200b":"\u00e4"}"#,
    ] {
        assert_eq!(clean_json(json), None, "{json}");
    }
}

// fault L2: pairs of surrogates are read as one character
#[test]
fn escapes_of_json_are_seen_through() {
    let (clean, _) = clean_json(r#"["\udb40\udc41x\u202e"]"#).unwrap();
    assert_eq!(clean, r#"["x"]"#);
}

// fault L2
#[test]
fn what_is_shown_of_json_is_the_same_value_and_hides_nothing() {
    let value = serde_json::json!({"a\u{202e}b": "x\u{200b}y\u{e0041}\u{1b}[2J\nz", "é": "ok"});
    let shown = escape_json(&value.to_string());
    assert_eq!(
        shown,
        "{\"a\\u202eb\":\"x\\u200by\\udb40\\udc41\\u001b[2J\\nz\",\"é\":\"ok\"}"
    );
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
        value
    );
}
