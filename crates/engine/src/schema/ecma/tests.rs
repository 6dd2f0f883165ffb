//! Patterns as ECMA-262 means them, and as other dialects write them where that is unambiguous.

use super::*;
use crate::schema::budget::{self, Budget, Weight};

/// Returns whether a pattern matches by backtracking; checks that the linear engine agrees if it
/// supports the pattern.
fn is_match(pattern: &str, text: &str) -> bool {
    let regex = parse(pattern).unwrap_or_else(|error| panic!("`{pattern}`: {error}"));
    let found = Program::new(&regex).is_match(text);
    if let Some(translated) = linear(&regex) {
        let other = regex_automata::meta::Regex::new(&translated)
            .unwrap_or_else(|error| panic!("`{pattern}` as `{translated}`: {error}"));
        assert_eq!(other.is_match(text), found, "`{pattern}` on {text:?}");
    }
    found
}

fn check(pattern: &str, fits: &[&str], not: &[&str]) {
    for text in fits {
        assert!(is_match(pattern, text), "`{pattern}` should match {text:?}");
    }
    for text in not {
        assert!(
            !is_match(pattern, text),
            "`{pattern}` should not match {text:?}"
        );
    }
}

#[test]
fn ordinary_patterns() {
    check("", &["", "x"], &[]);
    check("^$", &[""], &["x", "\n"]);
    check("^a|b$", &["ax", "xb"], &["xa", "bx"]);
    check("^(?:ab){2,3}$", &["abab", "ababab"], &["ab", "abababab"]);
    check("^[^]$", &["x", "\n", "é"], &["", "xy"]);
    check("[]", &[], &["", "x"]);
    check("^.$", &["x", "😀"], &["\n", "\r", "\u{2028}", ""]);
    check(r"^\d+$", &["0123"], &["٣", ""]);
    check(r"^\w+$", &["a_9"], &["é", "-"]);
    check(r"^\s$", &[" ", "\u{feff}", "\u{a0}"], &["x"]);
    check(
        r"\bend\b",
        &["the end", "éend", "end."],
        &["bend", "ending"],
    );
    check(r"^x\By$", &["xy"], &["x y"]);
    check(r"^[\w.\-+]+\/\-\@$", &["a.b-c+d/-@"], &["/-@"]);
    check(r"^[a\-z]+$", &["a-z"], &["b"]);
    check(r"^[\w-x]$", &["-", "x", "q"], &["."]);
    check(r"^[\]\\[]$", &["]", "\\", "["], &["a"]);
    check(
        r"^\u0041\x42\u{43}\uD83D\uDE00\cJ\0$",
        &["ABC😀\n\0"],
        &["ABC"],
    );
    check(r"^[\b]$", &["\u{8}"], &["b"]);
    check("^{$|^}]$", &["{", "}]"], &["a"]);
    check("^x{a}$", &["x{a}"], &["xa"]);
    check(r"^\p{Lu}\P{L}\p{Script=Greek}$", &["É1α"], &["é1α", "ÉÉα"]);
    check("(?i)^straße$", &["STRAßE", "Straße"], &["strase"]);
    check("^(?i:a)b$", &["Ab", "ab"], &["aB"]);
    check("^a(?s).b$", &["a\nb"], &["ab"]);
    check("(?m)^b$", &["a\nb\nc", "b"], &["ab"]);
}

#[test]
fn look_around_and_back_references() {
    check(
        "^(?=.*[0-9])(?=.*[a-z]).{4,}$",
        &["abc1"],
        &["abcd", "1234", "a1"],
    );
    check("^(?!.*--)[a-z-]+$", &["a-b"], &["a--b"]);
    check(
        "(?<=\\$)\\d+(?!\\d|%)",
        &["cost $42"],
        &["42", "$4%", "$421%"],
    );
    check("(?<!a)b", &["b", "cb"], &["ab"]);
    check(r"(?<=^(\w+) )\w+", &["one two"], &["one"]);
    check(r"(?<=\1(a))b", &["aab"], &["ab"]);
    check(r#"^(["']).*\1$"#, &["'a'", "\"b\""], &["'a\""]);
    check(r"^(?<year>\d{4})-\k<year>$", &["2024-2024"], &["2024-2025"]);
    check(r"^(?:(a)|b)*\1$", &["ab", "aa", "b"], &["abc"]);
    check(r"^(?=(a+))a*b\1$", &["aabaa"], &["aaba"]);
    check(r"^(?!(a)\1)a", &["ab"], &["aa"]);
    check("^(?:(?=a)a|(?!a).)+$", &["abca"], &["", "\n"]);
    check("^(?=a)*b$", &["b"], &["a"]);
}

#[test]
fn what_zod_writes_for_addresses() {
    let email = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    check(
        email,
        &["a@b.io", "first.last+tag@mail.example.com", "o'hara@x.co"],
        &[
            "",
            "a@b",
            ".a@b.io",
            "a..b@c.io",
            "a.@b.io",
            "a b@c.io",
            "a@b.c",
        ],
    );
    let duration = r"^P(?!$)(\d+W)?$|^P(?=\d|T\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?)?$";
    check(duration, &["P3W", "P1DT2H", "PT5M"], &["P", "PT", "5M"]);
}

#[test]
fn what_python_writes() {
    check(
        r"\A(?P<word>[a-z]+)-(?P=word)\Z",
        &["ab-ab", "ab-ab\n"],
        &["ab-ba", "xab-ab!"],
    );
    check(r"\A[a-z]+\z", &["ab"], &["ab\n"]);
    check("^a++b$", &["aab"], &["b"]);
    check("^(?>a|ab)c$", &["ac"], &["abc"]);
    check("^a(?#a comment)b$", &["ab"], &["a"]);
}

#[test]
fn lazy_and_nested_repetitions() {
    check("^a??b$", &["b", "ab"], &["aab"]);
    check("^a+?b{2}?$", &["abb", "aaabb"], &["ab"]);
    check("^(?:a{2}){1,2}$", &["aa", "aaaa"], &["a", "aaa", "aaaaa"]);
    check("^(?:a?){3}$", &["", "a", "aaa"], &["aaaa"]);
    check("^(?:a*)*$", &["", "aaa"], &["b"]);
    check(
        "^(?:(?:a|ab)(?:c|bcd))*?(?:d*)$",
        &["abcd", "acabcd", ""],
        &["x"],
    );
    assert!(is_backtracked("^(?:a|b)?(?:){1000000000}$", "a"));
    assert!(is_backtracked("^.{0,5000}$", "xy"));
    assert!(!is_backtracked("^.{0,5000}$", &"x".repeat(5_001)));
    assert!(is_backtracked("^(?:x{5}){0,1000}$", &"x".repeat(5_000)));
}

fn is_backtracked(pattern: &str, text: &str) -> bool {
    Program::new(&parse(pattern).unwrap()).is_match(text)
}

#[test]
fn what_is_ambiguous_or_wrong_is_told() {
    for (pattern, part) in [
        ("(a", "a group does not end"),
        ("a)", "unmatched"),
        ("[a", "a class does not end"),
        ("*a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("a{1}{2}", "nothing to repeat"),
        ("{1}", "nothing to repeat"),
        ("^*", "nothing to repeat"),
        ("a{2,1}", "reversed"),
        ("[b-a]", "reversed"),
        ("\\", "ends with a backslash"),
        (r"\k<x>", "no such name"),
        ("(?<1>a)", "invalid name"),
        (r"(a)\2", r"uses `\2`"),
        (r"\Ga", r"uses `\G`"),
        (r"\x4", r"uses `\x`"),
        (r"\uD800", r"uses `\u`"),
        (r"\p{Nope}", r"uses `\p{Nope}`"),
        ("a{,5}", "uses `{,`"),
        ("[[:alpha:]]", "uses `[[:`"),
        ("(?x)a b", "uses `(?x`"),
        ("(?(1)a)", "uses `(?(`"),
        (r"(?i)(a)\1", "any letter case"),
    ] {
        let error = parse(pattern).unwrap_err().to_string();
        assert!(error.contains(part), "`{pattern}`: {error}");
    }
    assert_eq!(parse(&"(".repeat(100)).unwrap_err(), PatternError::TooLarge);
    assert_eq!(
        parse(&"a".repeat(20_000)).unwrap_err(),
        PatternError::TooLarge
    );
}

// fault A9
#[test]
fn what_backtracks_without_end_uses_up_its_budget() {
    let text = format!("{}!", "a".repeat(60));
    let long = "ab".repeat(50_000);
    for (pattern, text) in [
        ("^(?=(a+)+$)", text.as_str()),
        (r"^(?:(a|aa)+)\1b$", &text),
        ("(?=.*x)y", &long),
        (r"^(\w+\s?)*(?!\w)$", &text),
        ("^(?=(?:a|b|ab)*c)", &long),
    ] {
        let program = Program::new(&parse(pattern).unwrap());
        let budget = Budget::inline(Weight::default());
        assert_eq!(
            budget::run(budget, || program.is_match(text)),
            None,
            "{pattern}"
        );
    }
    // An ordinary text is far below it.
    let program = Program::new(&parse("^(?!.*--)[a-z-]{1,200}$").unwrap());
    let budget = Budget::inline(Weight::default());
    let fits = budget::run(budget, || program.is_match(&"ab-".repeat(50)));
    assert_eq!(fits, Some((true, 0)));
}
