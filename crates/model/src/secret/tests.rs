//! What is hidden, and that nothing else is.

use std::borrow::Cow;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use super::*;

fn redactor(values: &[&str]) -> Redactor {
    let values: Vec<SecretText> = values
        .iter()
        .map(|v| SecretText::new((*v).to_owned()))
        .collect();
    Redactor::new(&values)
}

#[test]
fn a_secret_does_not_show_itself() {
    let secret = SecretText::new("hunter22".to_owned());
    assert_eq!(format!("{secret:?}"), "[redacted]");
    let redactor = Redactor::new([&secret]);
    assert!(!format!("{redactor:?}").contains("hunter22"));
}

// fault K3
#[test]
fn a_value_is_found_in_every_form() {
    let value = "pa/ss w<é>\"rd+1";
    let redactor = redactor(&[value]);
    let forms = [
        value.to_owned(),
        "cGEvc3MgdzzDqT4icmQrMQ".to_owned(),
        "pa%2Fss%20w%3C%C3%A9%3E%22rd%2B1".to_owned(),
        "pa%2fss%20w%3c%c3%a9%3e%22rd%2b1".to_owned(),
        "pa%2Fss+w%3C%C3%A9%3E%22rd%2B1".to_owned(),
        json!(value).to_string(),
        json!(json!(value).to_string()).to_string(),
        r#""pa/ss w<\u00e9>\"rd+1""#.to_owned(),
        r#""pa/ss w\u003cé\u003e\"rd+1""#.to_owned(),
        r#""pa\/ss w<é>\"rd+1""#.to_owned(),
    ];
    for form in forms {
        let clean = redactor.redact(&form);
        assert!(
            clean.contains(REDACTED) && !clean.contains("rd"),
            "{form} became {clean}"
        );
    }
}

#[test]
fn nothing_to_find_costs_nothing() {
    let empty = redactor(&["", "short"]);
    assert!(matches!(empty.redact("short"), Cow::Borrowed("short")));
    let one = redactor(&["hunter22"]);
    assert!(matches!(one.redact("hunter2"), Cow::Borrowed(_)));
    assert!(matches!(
        one.redact_json(r#"{"a":"hunter2"}"#),
        Cow::Borrowed(_)
    ));
}

#[test]
fn values_that_overlap_or_follow_each_other_are_all_gone() {
    let redactor = redactor(&["abcdef", "defghi"]);
    assert_eq!(redactor.redact("x abcdefghi y"), "x [redacted] y");
    assert_eq!(redactor.redact("abcdefabcdef"), "[redacted][redacted]");
}

#[test]
fn a_value_of_many_lines_is_found_by_the_line() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQ";
    let key = format!("-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n");
    let redactor = redactor(&[&key, "from-a-file\n"]);
    assert_eq!(redactor.redact(&format!("read {line}")), "read [redacted]");
    assert_eq!(redactor.redact("use from-a-file."), "use [redacted].");
}

#[test]
fn escapes_around_a_value_stay_whole() {
    let redactor = redactor(&["nabcdef", "00e9xyz", r"endswith\", "123456"]);
    for (json, clean) in [
        (r#"{"a":"\nabcdef"}"#, r#"{"a":"[redacted]"}"#),
        (r#"{"a":"\\nabcdef"}"#, r#"{"a":"\\[redacted]"}"#),
        (r#"{"a":"\u00e9xyz"}"#, r#"{"a":"[redacted]"}"#),
        (r#"{"a":"endswith\"x"}"#, r#"{"a":"[redacted]x"}"#),
        (r#"{"a":"endswith\\"}"#, r#"{"a":"[redacted]"}"#),
        // Numbers are numbers, and short values in names are names.
        (
            r#"{"a":[91234567.5,123456,"123456"]}"#,
            r#"{"a":[91234567.5,123456,"[redacted]"]}"#,
        ),
        (
            r#"{"123456" : "x 123456"}"#,
            r#"{"123456" : "x [redacted]"}"#,
        ),
    ] {
        assert_eq!(redactor.redact_json(json), clean);
        serde_json::from_str::<Value>(&redactor.redact_json(json)).unwrap();
    }
    assert_eq!(redactor.redact("pin 123456, \\"), "pin [redacted], \\");
    assert_eq!(redactor.redact(r"endswith\é"), "[redacted]é");
}

#[test]
fn the_name_of_a_member_is_never_altered() {
    let redactor = redactor(&["a-value-of-some-length"]);
    let json =
        r#"{"a-value-of-some-length":1,"b":"a-value-of-some-length, a-value-of-some-length"}"#;
    let (clean, count) = redactor.redact_counted(json).unwrap();
    assert_eq!(
        clean,
        r#"{"a-value-of-some-length":1,"b":"[redacted], [redacted]"}"#
    );
    assert_eq!(count, 2);
    let only = r#"{"a-value-of-some-length":1}"#;
    assert_eq!(redactor.redact_counted(only), None);
}

// fault K3
#[test]
fn a_value_in_base64_or_hex_is_found_wherever_it_begins() {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    let value = "k9f2?m4x7>q1z8~w3b6";
    let redactor = redactor(&[value]);
    let mut forms = vec![
        crate::hex::hex(value.as_bytes()),
        crate::hex::hex(value.as_bytes()).to_uppercase(),
    ];
    for before in 0..5 {
        for after in 0..4 {
            let text = format!("{}{value}{}", "x".repeat(before), "y".repeat(after));
            let encoded = STANDARD.encode(&text);
            forms.extend([encoded.replace('/', "\\/"), encoded, URL_SAFE.encode(&text)]);
        }
    }
    for form in forms {
        let text = format!(r#"{{"blob":"{form}","n":12345678}}"#);
        let clean = redactor.redact_json(&text).into_owned();
        let parsed: Value = serde_json::from_str(&clean).unwrap();
        let left = parsed["blob"].as_str().unwrap().replace(REDACTED, "");
        // What is left is what stood around it, and the signs of padding.
        assert!(
            clean.contains(REDACTED) && left.len() <= 10,
            "{form}: {clean}"
        );
    }
}

// fault K3: what a reader decodes is found as well
#[test]
fn a_value_is_found_behind_escapes_that_nobody_needs() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let value = "Zq8k4w-second/Rk39vX+value";
    let redactor = redactor(&[value]);
    let each = |write: fn(u8) -> String| value.bytes().map(write).collect::<String>();
    let wrapped = |text: &str, columns: usize, line_break: &str| {
        let lines = text.as_bytes().chunks(columns);
        let lines: Vec<_> = lines.map(String::from_utf8_lossy).collect();
        lines.join(line_break)
    };
    let base64 = STANDARD.encode(format!("{}{value}{}", "x".repeat(60), "y".repeat(60)));
    for text in [
        each(|byte| format!("\\u{byte:04x}")),
        each(|byte| format!("\\u{byte:04X}")),
        each(|byte| format!("\\\\u{byte:04x}")),
        each(|byte| format!("\\x{byte:02x}")),
        each(|byte| format!("%{byte:02x}")),
        each(|byte| format!("%25{byte:02X}")),
        each(|byte| format!("&#{byte};")),
        each(|byte| format!("&#x{byte:x};")),
        value.replacen('s', "\\u0073", 1),
        value.replacen('-', "%2d", 1),
        base64.replace('+', "\\u002b").replace('/', "\\/"),
        wrapped(&base64, 76, "\\n"),
        wrapped(&base64, 64, "\\r\\n"),
    ] {
        let json = format!(r#"{{"a": "before {text} after", "n": 1.50}}"#);
        let (clean, count) = redactor.redact_counted(&json).expect(&json);
        assert!(count > 0 && clean.contains(REDACTED), "{json}: {clean}");
        let read: Value = serde_json::from_str(&clean.replace("\\x", "x")).expect(&clean);
        let read = read["a"].as_str().unwrap();
        assert!(
            read.starts_with("before ") && read.ends_with(" after"),
            "{read}"
        );
        for part in [&text[text.len() / 2..][..10], "Rk39vX"] {
            assert!(!clean.contains(part), "{text}: {clean}");
        }
    }
    let lines = wrapped(&base64, 76, "\n");
    assert!(!redactor.redact(&lines).contains(&lines[90..110]));
    // Far from the beginning, and over the border of what is decoded at once.
    let far = each(|byte| format!("\\u{byte:04x}"));
    for filling in [(256 << 10) - 40, 600 << 10] {
        let json = format!(r#"["{}{far}"]"#, "z".repeat(filling));
        let (clean, _) = redactor.redact_counted(&json).unwrap();
        assert!(!clean.contains("u0073"), "{filling}");
    }
}

// fault K3
#[test]
fn a_value_that_json_escapes_is_found_behind_more_of_it() {
    let values = [r#"pa"ss\w0rd/Zk9+q&x"#, "pä$$w0rd-µ-𝄞-Länge77"];
    let redactor = redactor(&values);
    for value in values {
        let each = |write: &dyn Fn(char) -> String| value.chars().map(write).collect::<String>();
        let octets = |write: &dyn Fn(u8) -> String| value.bytes().map(write).collect::<String>();
        let ascii = each(&|letter| match letter.is_ascii() {
            true => letter
                .to_string()
                .replace('\\', r"\\")
                .replace('"', r#"\""#),
            false => letter
                .encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect(),
        });
        let mut nested = serde_json::to_string(value).unwrap();
        for text in [
            each(&|letter| format!("&#{};", u32::from(letter))),
            each(&|letter| format!("&#x{:X};", u32::from(letter))),
            octets(&|byte| format!("%{byte:02x}")),
            octets(&|byte| format!("\\x{byte:02x}")),
            value.replace('\\', r"\\"),
            ascii,
        ] {
            let json = serde_json::to_string(&[format!("a {text} b")]).unwrap();
            assert_eq!(
                redactor.redact_json(&json),
                r#"["a [redacted] b"]"#,
                "{text}"
            );
        }
        for _ in 0..4 {
            nested = serde_json::to_string(&nested).unwrap();
            let clean = redactor.redact_json(&nested);
            assert!(clean.contains("[redacted]"), "{nested}");
            serde_json::from_str::<String>(&clean).unwrap();
        }
    }
}

// fault K3
#[test]
fn texts_with_escapes_and_lines_stay_as_they_are() {
    let redactor = redactor(&["Zq8k4w-second/Rk39vX+value", "Zq8k4w-\u{e4}-third"]);
    for text in [
        r#"["C:\\\\Users \\\"\ud83d \udc00 \ud83d\u0041 %c3 %ff \\xc3"]"#,
        r#"["\u0048ello \u00e9 \ud83d\ude00 \\u0041"]"#,
        r#"["100%25 of %7Euser%2Fhome &amp; &#x41; &#1234567; &;"]"#,
        r#"["\x41 \xZZ \u12"]"#,
        &format!(r#"["{0}\n{0}\r\n{0}"]"#, "A1b2".repeat(19)),
    ] {
        assert_eq!(redactor.redact_json(text), text);
    }
}

// A server that knows its secret keeps the gateway busy for no longer than any text of that length.
#[test]
fn many_values_before_much_white_space_are_found() {
    let redactor = redactor(&["Zq8k4w-second"]);
    let (many, space) = ("Zq8k4w-second ".repeat(20_000), " ".repeat(1 << 19));
    let json = format!(r#"{{"a":"{many}"{space},"{many}"{space}:1}}"#);
    let (clean, count) = redactor.redact_counted(&json).unwrap();
    assert_eq!(count, 20_000);
    assert_eq!(clean.matches("Zq8k4w-second").count(), 20_000, "names stay");
}

#[test]
fn structure_that_looks_like_a_value_stays() {
    let redactor = redactor(&[r#"":"x","b"#, "[1,2,3]"]);
    let json = r#"{"a":"x","b":[1,2,3]}"#;
    assert_eq!(redactor.redact_json(json), json);
}

proptest! {
    // fault K3
    #[test]
    fn json_stays_json_and_the_value_is_gone(
        value in "[a-f0-9\\\\\"/é\n<u]{6,12}",
        before in "[a-f0-9\\\\\"/é\n<u]{0,6}",
        after in "[a-f0-9\\\\\"/é\n<u]{0,6}",
        number in any::<u32>(),
    ) {
        let redactor = redactor(&[&value]);
        let document = json!({ "k": [format!("{before}{value}{after}"), number], "n": value });
        let text = document.to_string();
        let clean = redactor.redact_json(&text);
        let parsed: Value = serde_json::from_str(&clean).unwrap();
        prop_assert_eq!(&parsed["n"], REDACTED);
        prop_assert!(!parsed["k"][0].as_str().unwrap().contains(&value));
        let inside = &text[text.find('[').unwrap() + 2..text.rfind(',').unwrap()];
        let clean = redactor.redact(inside);
        prop_assert!(!clean.contains(&value));
    }

    #[test]
    fn no_text_is_too_odd(text in any::<String>(), value in any::<String>()) {
        let redactor = redactor(&[&value, "\\\\\\\\\\\\"]);
        redactor.redact(&text);
        redactor.redact_json(&text);
        mask_members(&text);
    }

    #[test]
    fn masking_keeps_json_valid_and_every_cut_of_it_safe(
        name in "(x_)?(PASS-word|api_key|auth_orization|Cookie|accessToken)(_y)?",
        value in "VALUE[a-z\\\\\"\n]{1,12}",
        cut in any::<proptest::sample::Index>(),
    ) {
        let inner = json!({ &name: &value, "z": 1 }).to_string();
        let document = json!({
            "a": { &name: &value, "b": "seen" },
            "c": [{ &name: [&value, { "d": &value }] }],
            "text": inner,
        });
        let text = document.to_string();
        let masked = mask_members(&text);
        prop_assert!(!masked.contains("VALUE"), "{}", masked);
        let parsed: Value = serde_json::from_str(&masked).unwrap();
        prop_assert_eq!(&parsed["a"]["b"], "seen");
        prop_assert_eq!(&parsed["a"][&name], REDACTED);
        let cut = text.floor_char_boundary(cut.index(text.len()));
        let masked = mask_members(&text[..cut]);
        prop_assert!(!masked.contains("VALUE"), "{}", masked);
    }
}

#[test]
fn credentials_are_known_by_their_names() {
    for (json, clean) in [
        (r#"{"password": "x"}"#, r#"{"password": "[redacted]"}"#),
        (
            r#"{"X-Api-Key":"x","a":"y"}"#,
            r#"{"X-Api-Key":"[redacted]","a":"y"}"#,
        ),
        (
            r#"{"GITHUB_TOKEN" : "x"#,
            r#"{"GITHUB_TOKEN" : "[redacted]"#,
        ),
        (
            r#"{"set-cookie":["a","b"],"c":"d"}"#,
            r#"{"set-cookie":["[redacted]","[redacted]"],"c":"d"}"#,
        ),
        (
            r#"{"pass\u0077ord":"x"}"#,
            r#"{"pass\u0077ord":"[redacted]"}"#,
        ),
        (
            r#"{"client_secret":{"v":"x"}}"#,
            r#"{"client_secret":{"v":"[redacted]"}}"#,
        ),
        (
            r#"{"t":"{\"token\":\"x\""#,
            r#"{"t":"{\"token\":\"[redacted]\""#,
        ),
    ] {
        assert_eq!(mask_members(json), clean);
    }
}

#[test]
fn what_is_no_credential_is_not_copied() {
    for json in [
        r#"{"max_tokens":4096,"a":"b"}"#,
        r#"{"text":"the password is long","keyboard":"qwerty"}"#,
        r#"{"token":null,"next":"y"}"#,
        r#"{"password":""}"#,
        r#"["token","x"]"#,
        r#"{"text":"{\"a\":\"token\"}"}"#,
        r#"{"tok"#,
        "",
    ] {
        assert!(matches!(mask_members(json), Cow::Borrowed(_)), "{json}");
    }
}
