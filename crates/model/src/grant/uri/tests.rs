//! Spellings of URIs that a grant must, and must not, take for the same.

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;

fn names(pattern: &str, uri: &str) -> bool {
    NormalUri::of(uri).is_some_and(|uri| UriPattern::new(pattern).matches(&uri))
}

// row 3.2
#[test]
fn no_spelling_leads_out_of_a_grant() {
    for uri in [
        "file:///secret",
        "file:///public/../secret",
        "file:///public/x/../../secret",
        "file:///public/%2e%2e/secret",
        "file:///public/%2E./secret",
        "file:///public/.%2e/secret",
        "file:///public/..%2fsecret",
        "file:///public/%2e%2e%2fsecret",
        "file:///public/%252e%252e/secret",
        "file:///public/%25252e%25252e/secret",
        "file:///public/%2525252525252e./secret",
        "file:///public/%%32%65%%32%65/secret",
        "file:///public/..%5csecret",
        "file:///public\\..\\secret",
        "file:///public/\\../secret",
        "file:///public//../secret",
        "file:///public/..;/secret",
        "file:///public/..;a=b/secret",
        "file:///public/\u{ff0e}\u{ff0e}/secret",
        "file:///public/%c0%ae%c0%ae/secret",
        "file:///public/%u002e%U002E/secret",
        "file:///public/%25u002e%25u002e/secret",
        "file:///public/..\u{ff0f}secret",
        "file:///public/..%EF%BC%8Fsecret",
        "file:///public/..%25EF%25BC%258Fsecret",
        "file:///public/a\u{ff0f}..\u{ff0f}..\u{ff0f}secret",
        "file:///public/..\u{2215}secret",
        "file:///public/..%e2%88%95secret",
        "file:///public/..\u{2044}secret",
        "file:///public/..\u{29f8}secret",
        "file:///public/..\u{ff3c}secret",
        "file:///public/..%ef%bc%bcsecret",
        "file:///public/..\u{fe68}secret",
        "file:///public/\u{ff0e}.\u{ff0f}secret",
        "file:///public/a?x=\u{ff0f}..\u{ff0f}..\u{ff0f}secret",
        "file:///public/\u{ff05}2e\u{ff05}2e/secret",
        "file:///public\u{ff0f}..\u{ff0f}secret",
        "file://x\u{ff0f}public/a",
        "file:///public/a%00/../../secret",
        "file:///public/a?/../../secret",
        "file:///public/a#/../../secret",
        "file:///public/a%3f/../../../secret",
        "file:///public/..",
        "FILE:///secret",
        "file://other/public/a",
        "file:public/a",
        "/public/a",
        " file:///public/a",
        "file:///public/a ",
        "file:///public/.. /secret",
        "file:///public/..%20/secret",
        "file:///public/.\u{200b}./secret",
        "file:///public/.%e2%80%8b./secret",
        "file:///public/a\n",
    ] {
        assert!(!names("file:///public/*", uri), "{uri:?}");
    }
    for (pattern, uri) in [
        ("note://*", "note://../secret"),
        ("note://*", "note://%2e%2e/secret"),
        ("note://*", "note://..%2fsecret"),
        ("note://*", "note://..\u{ff0f}secret"),
        ("http://public/*", "http://public@secret/"),
        ("http://public*", "http://public@secret/"),
        ("http://*@public/*", "http://secret@public/"),
        ("note://MyNote", "note://mynote"),
        ("/public/*", "file:///public/a"),
        ("file://host/public/*", "file:///public/a"),
        ("docs/*", "docs/../secret"),
        ("docs/*", "../docs/a"),
        ("docs/*", "docs/../../docs/a"),
        ("file:///%2a", "file:///secret"),
    ] {
        assert!(!names(pattern, uri), "{pattern} {uri:?}");
    }
    let long = format!("file:///public/{}", "a/".repeat(5_000));
    assert!(!names("file:///public/*", &long));
}

#[test]
fn spellings_of_the_same_are_the_same() {
    for uri in [
        "file:///public/a",
        "FILE:///public/a",
        "file:///public/./a",
        "file:///x/../public/a",
        "file:///%70ublic/a",
        "file:///public/a%20b",
        "file:///public/a b",
        "file:///public/100%",
        "file:///public/a//b",
        "file:///public/a;v=1",
        "file:///public/über",
        "file:///public/1\u{2044}2",
        "file:///public/100\u{ff05}",
        "file:///public/...",
        "file:///public/a?b=c/d&e=%2F",
        "file:/public/a",
        "file://localhost/public/a",
        "FILE://LocalHost/public/a",
        "file://%6cocalhost/public/a",
    ] {
        assert!(names("file:///public/*", uri), "{uri:?}");
    }
    for (pattern, uri) in [
        ("https://Example.COM/*", "https://example.com/a"),
        ("https://example.com/*", "HTTPS://EXAMPLE.com/a"),
        ("file:///My%20Docs/*", "file:///My Docs/a"),
        ("file:///My Docs/*", "file:///My%20Docs/a"),
        ("file:////public//*", "file:////public//a"),
        ("test://static-text", "test://static-text"),
        ("test://template/{id}/*", "test://template/{id}/data"),
        ("*://x/*", "db://x/a"),
        ("*a*", "db://x/a"),
        ("urn:a:*", "urn:a:b"),
        ("memo", "memo"),
        ("/srv/*", "/srv/a"),
        ("file:/srv/*", "file:///srv/a"),
        ("file://localhost/srv/*", "file:/srv/a"),
        ("file://host/srv/*", "file://host/srv/a"),
        ("file://*", "file:///srv/a"),
        ("file://*a", "file://host/srv/a"),
        ("file:*", "file:///srv/a"),
    ] {
        assert!(names(pattern, uri), "{pattern} {uri:?}");
    }
}

// row 3.2
#[test]
fn no_spelling_leads_around_a_denial() {
    for uri in [
        "file:///secret/a",
        "file:/secret/a",
        "file:secret/a",
        "file:////secret/a",
        "file://localhost/secret/a",
        "file://127.0.0.1/secret/a",
        "file://*/secret/a",
        "FILE:///secret//a",
        "file:///secret%2fa",
        "/secret/a",
        "//secret/a",
        " file:///secret/a",
    ] {
        let denies = |uri| UriPattern::new("file:///secret/*").may_match(&uri);
        assert!(NormalUri::of(uri).is_none_or(denies), "{uri:?}");
    }
}

#[test]
fn only_dot_segments_are_rewritten() {
    let forwarded = |uri: &'static str| NormalUri::of(uri).unwrap().forwarded(uri).into_owned();
    assert_eq!(forwarded("file:///x/../a/./b/%2e"), "file:///a/b/");
    assert_eq!(forwarded("FILE:///%61%20b//c"), "FILE:///%61%20b//c");
    assert_eq!(forwarded("file:///../../a"), "file:///a");
}

#[test]
fn a_beginning_is_enough_for_a_template() {
    let may = |pattern: &str, beginning| UriPattern::new(pattern).may_begin_with(beginning);
    assert!(may("file:///public/*", "file:///public/"));
    assert!(may("file:///public/*", "file:///public/more/"));
    assert!(may("file:///public/*", "file:///"));
    assert!(!may("file:///public/*", "file:///secret/"));
    assert!(may("db://users/7", "db://") && !may("db://users/7", "db://users/7/"));
    let covers = |pattern: &str, beginning| UriPattern::new(pattern).covers_below(beginning);
    assert!(covers("*", "db://") && covers("file:/secret/*", "file:///secret/of/"));
    assert!(!covers("file:///secret/*", "file:///") && !covers("*/a", "db://a/a"));
}

proptest! {
    #[test]
    fn what_is_plain_is_its_own_form(uri in "[a-zA-Z]{1,4}:(//)?[a-zA-Z./%?#2eE;@\\\\é-]{0,24}") {
        if let Some(normal) = NormalUri::of(&uri) {
            // The slow way says the same as the short one.
            if is_plain(&uri) {
                let parts = Parts::split(&uri).unwrap();
                let (path, dots) = parts.direct_path().unwrap();
                prop_assert_eq!(dots, 0);
                let scheme = parts.scheme;
                prop_assert_eq!(&join(scheme, parts.authority, &path, parts.rest), &uri);
                let careless = parts.careless_path(0).unwrap();
                prop_assert_eq!(&join(scheme, parts.authority, &careless, parts.rest), &uri);
                prop_assert!(careless_rest(parts.rest).is_some());
            }
            prop_assert!(!normal.careless.split(['/', '\\']).any(|segment| segment == ".."));
            let direct = normal.forwarded(&uri).into_owned();
            let again = NormalUri::of(&direct);
            prop_assert!(again.is_some_and(|again| again.direct.is_none()), "{}", direct);
        }
    }

    #[test]
    fn no_text_is_too_odd(uri in any::<String>(), pattern in any::<String>()) {
        names(&pattern, &uri);
    }
}
