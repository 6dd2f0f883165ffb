//! Who may use what.

use proptest::prelude::{prop_assert_eq, proptest};

use super::*;

fn server(name: &str) -> ServerName {
    if name == ServerName::NATIVE {
        ServerName::native()
    } else {
        name.parse().unwrap()
    }
}

fn set(grants: &[(&str, &str)]) -> GrantSet {
    GrantSet::new(
        grants
            .iter()
            .map(|(s, i)| Grant::new(s, i, None).unwrap())
            .collect(),
    )
}

fn allowed(set: &GrantSet, class: MethodClass, on: &str, item: Option<&str>) -> bool {
    set.shows(class, &server(on), item)
}

#[test]
fn every_method_has_a_class() {
    let methods = [
        ("tools/call", MethodClass::Tool),
        ("tools/list", MethodClass::Tool),
        ("resources/list", MethodClass::Resource),
        ("resources/templates/list", MethodClass::Resource),
        ("resources/read", MethodClass::Resource),
        ("prompts/list", MethodClass::Prompt),
        ("prompts/get", MethodClass::Prompt),
        ("completion/complete", MethodClass::Completion),
        ("initialize", MethodClass::Lifecycle),
        ("ping", MethodClass::Lifecycle),
        ("server/discover", MethodClass::Lifecycle),
        ("notifications/initialized", MethodClass::Lifecycle),
        ("notifications/cancelled", MethodClass::Lifecycle),
        ("notifications/progress", MethodClass::Lifecycle),
        ("logging/setLevel", MethodClass::Logging),
        ("resources/subscribe", MethodClass::Subscription),
        ("resources/unsubscribe", MethodClass::Subscription),
        ("subscriptions/listen", MethodClass::Subscription),
        ("tasks/get", MethodClass::Task),
        ("tasks/cancel", MethodClass::Task),
        // These go from server to client; a client that sends them gets no further.
        ("sampling/createMessage", MethodClass::Unknown),
        ("elicitation/create", MethodClass::Unknown),
        ("roots/list", MethodClass::Unknown),
        // Names are compared exactly.
        ("Tools/call", MethodClass::Unknown),
        ("tools/call ", MethodClass::Unknown),
        ("", MethodClass::Unknown),
    ];
    for (method, class) in methods {
        assert_eq!(class_of(method), class, "{method}");
    }
}

// row 3.2
#[test]
fn what_no_grant_names_is_unbound() {
    let none = GrantSet::default();
    for class in [
        MethodClass::Tool,
        MethodClass::Lifecycle,
        MethodClass::Unknown,
    ] {
        assert!(!allowed(&none, class, "a", None));
    }
    let set = set(&[("files", "read_*"), ("native", "echo")]);
    assert!(allowed(&set, MethodClass::Tool, "files", Some("read_all")));
    assert!(!allowed(&set, MethodClass::Tool, "files", Some("write")));
    assert!(!allowed(
        &set,
        MethodClass::Tool,
        "files2",
        Some("read_all")
    ));
    assert!(allowed(&set, MethodClass::Tool, "native", Some("echo")));
    // row 2.16: the listing asks without an item.
    assert!(allowed(&set, MethodClass::Tool, "files", None));
    assert!(!allowed(&set, MethodClass::Tool, "other", None));
}

// row 3.2
#[test]
fn a_grant_of_a_tool_opens_no_other_class() {
    let set = set(&[("a", "x")]);
    for class in [
        MethodClass::Resource,
        MethodClass::Prompt,
        MethodClass::Completion,
        MethodClass::Logging,
        MethodClass::Task,
        MethodClass::Unknown,
    ] {
        assert!(!allowed(&set, class, "a", Some("x")), "{class:?}");
        assert!(!allowed(&set, class, "a", None), "{class:?}");
    }
    assert!(!allowed(&set, MethodClass::Subscription, "a", Some("x")));
    assert!(allowed(&set, MethodClass::Subscription, "a", None));
    assert!(allowed(&set, MethodClass::Lifecycle, "a", None));
    assert!(!allowed(&set, MethodClass::Lifecycle, "b", None));
}

#[test]
fn items_say_their_class_and_completions_follow_what_they_complete() {
    let set = set(&[
        ("a", "resource:file:///srv/*"),
        ("a", "prompt:greet"),
        ("b", "tool:prompt:x"),
    ]);
    assert!(allowed(
        &set,
        MethodClass::Resource,
        "a",
        Some("file:///srv/x")
    ));
    assert!(!allowed(
        &set,
        MethodClass::Resource,
        "a",
        Some("file:///etc/x")
    ));
    assert!(allowed(
        &set,
        MethodClass::Subscription,
        "a",
        Some("file:///srv/x")
    ));
    assert!(!allowed(
        &set,
        MethodClass::Subscription,
        "a",
        Some("file:///etc/x")
    ));
    assert!(allowed(&set, MethodClass::Completion, "a", Some("greet")));
    assert!(!allowed(&set, MethodClass::Completion, "a", Some("other")));
    assert!(!allowed(&set, MethodClass::Tool, "a", Some("greet")));
    assert!(allowed(&set, MethodClass::Tool, "b", Some("prompt:x")));
}

#[test]
fn all_of_one_server_is_every_known_class_and_everything_is_the_unknown_too() {
    let one = set(&[("a", "*")]);
    assert!(!one.is_everything());
    for class in [
        MethodClass::Tool,
        MethodClass::Logging,
        MethodClass::Task,
        MethodClass::Prompt,
    ] {
        assert!(allowed(&one, class, "a", Some("x")), "{class:?}");
        assert!(!allowed(&one, class, "b", Some("x")), "{class:?}");
    }
    assert!(!allowed(&one, MethodClass::Unknown, "a", None));
    let all = GrantSet::everything();
    assert!(all.is_everything());
    assert!(allowed(&all, MethodClass::Unknown, "a", None));
    assert!(!set(&[("*", "tool:*")]).is_everything());
    assert!(!allowed(
        &set(&[("*", "**")]),
        MethodClass::Resource,
        "a",
        Some("x")
    ));
}

// row 3.6
#[test]
fn an_alias_belongs_to_one_tool_of_one_server() {
    let alias = |server: &str, item: &str, alias: &str| Grant::new(server, item, Some(alias));
    let set = GrantSet::new(vec![alias("b", "search", "find").unwrap()]);
    assert_eq!(set.alias_of(&server("b"), "search"), Some("find"));
    assert_eq!(set.alias_of(&server("a"), "search"), None);
    assert!(allowed(&set, MethodClass::Tool, "b", Some("search")));
    for (on, item, name) in [
        ("*", "x", "y"),
        ("a", "*", "y"),
        ("a", "x*", "y"),
        ("a", "prompt:x", "y"),
        ("a", "x", ""),
        ("a", "x", "y__z"),
        ("a", "x", "9"),
        ("a", "x", "a:b"),
    ] {
        assert!(alias(on, item, name).is_err(), "{on} {item} {name}");
    }
}

#[test]
fn refuses_what_cannot_be_a_grant_and_gives_back_what_it_took() {
    let long = "x".repeat(2049);
    for (on, item) in [
        ("", "x"),
        ("a b", "x"),
        ("a__b", "x"),
        ("a/*", "x"),
        ("a", ""),
        ("a", "tool:"),
        ("a", "\n"),
        ("a", &long),
    ] {
        assert!(Grant::new(on, item, None).is_err(), "{on} {item}");
    }
    let grant = Grant::new("team-*", "resource:file:///*", None).unwrap();
    assert_eq!(
        (grant.server(), grant.item(), grant.alias()),
        ("team-*", "resource:file:///*", None)
    );
    assert_eq!(grant.to_string(), "resource:file:///* on team-*");
    insta::assert_snapshot!(Grant::new("a b", "x", None).unwrap_err(), @"`a b` cannot be the server of a grant");
}

#[test]
fn the_fingerprint_knows_the_set_and_not_its_order() {
    let one = set(&[("a", "x"), ("b", "y")]);
    assert_eq!(
        one.fingerprint(),
        set(&[("b", "y"), ("a", "x"), ("a", "x")]).fingerprint()
    );
    assert_ne!(one.fingerprint(), set(&[("a", "x")]).fingerprint());
    assert_ne!(
        set(&[("a", "bx")]).fingerprint(),
        set(&[("ab", "x")]).fingerprint()
    );
    // It is a key in stored caches: it must not change between versions.
    assert_eq!(GrantSet::everything().fingerprint(), 0x8ea7_9b3b_372d_d050);
}

/// The textbook's matcher, quadratic and plain.
fn naive(glob: &[u8], name: &[u8]) -> bool {
    match (glob, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            naive(rest, name)
                || name
                    .split_first()
                    .is_some_and(|(_, tail)| naive(glob, tail))
        }
        ([a, glob @ ..], [b, name @ ..]) => a == b && naive(glob, name),
        ([], [_, ..]) | ([_, ..], []) => false,
    }
}

#[test]
fn a_hostile_pattern_costs_no_more_than_its_length() {
    let glob = Pattern::new(&"a*".repeat(1000));
    assert!(!glob.matches(&format!("b{}", "a".repeat(100_000))));
    assert!(!Pattern::new(&format!("*{}b", "a*".repeat(1000))).matches(&"a".repeat(100_000)));
    assert!(Pattern::new("é*").matches("éa"));
    assert!(!Pattern::new("ab*ba").matches("aba"));
}

proptest! {
    #[test]
    fn globs_match_like_the_textbook(glob in "[ab*é]{0,8}", name in "[abé]{0,10}") {
        let expected = naive(glob.as_bytes(), name.as_bytes());
        prop_assert_eq!(Pattern::new(&glob).matches(&name), expected);
    }
}

// row 2.16
#[test]
fn a_filter_narrows_what_is_granted_and_never_widens_it() {
    let server: ServerName = "files".parse().unwrap();
    let all = || vec![Grant::new("*", "*", None).unwrap()];
    let filter = || ToolFilter::new(["files:read_*"], ["*:read_secret"]).unwrap();
    let set = GrantSet::filtered(all(), filter());
    let shows = |class, item| set.shows(class, &server, item);
    assert!(!set.is_everything() && set.filter() == &filter());
    assert!(shows(MethodClass::Tool, Some("read_file")));
    assert!(!shows(MethodClass::Tool, Some("read_secret")));
    assert!(!shows(MethodClass::Tool, Some("write")));
    // It is about tools: lists are asked for, prompts and resources are as granted.
    assert!(shows(MethodClass::Tool, None));
    assert!(shows(MethodClass::Prompt, Some("write")));
    let nothing = GrantSet::filtered(Vec::new(), filter());
    assert!(!nothing.shows(MethodClass::Tool, &server, Some("read_file")));
}

#[test]
fn sets_with_other_filters_have_other_fingerprints() {
    let all = || vec![Grant::new("*", "*", None).unwrap()];
    let of = |include: &[&str], exclude: &[&str]| {
        let filter = ToolFilter::new(include.iter(), exclude.iter()).unwrap();
        GrantSet::filtered(all(), filter).fingerprint()
    };
    let prints = [
        of(&[], &[]),
        of(&["a"], &[]),
        of(&[], &["a"]),
        of(&["a"], &["a"]),
    ];
    for (index, print) in prints.iter().enumerate() {
        assert!(!prints[..index].contains(print));
    }
    assert_eq!(prints[0], GrantSet::everything().fingerprint());
}
