//! What allow, deny and ask make of each other, with and without conditions.

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;

use super::*;
use crate::jsonrpc::Raw;

fn set(grants: &[&str]) -> GrantSet {
    GrantSet::new(
        grants
            .iter()
            .map(|text| Grant::parse(text).unwrap())
            .collect(),
    )
}

fn called<'s>(set: &'s GrantSet, server: &str, tool: &str, arguments: &str) -> Decision<'s> {
    set.decide(&AccessRequest {
        class: MethodClass::Tool,
        server: &server.parse().unwrap(),
        item: Some(tool),
        arguments: Arguments::Given(Some(Raw::trusted(arguments))),
        hint: ReadOnlyHint::Writes,
    })
}

fn verdict(set: &GrantSet, server: &str, tool: &str, arguments: &str) -> Verdict {
    called(set, server, tool, arguments).verdict
}

const UNBOUND: Verdict = Verdict::Deny(Refusal::Unbound);
const DENIED: Verdict = Verdict::Deny(Refusal::Denied);
const CONDITION: Verdict = Verdict::Deny(Refusal::Condition);

// row 3.2
#[test]
fn deny_wins_over_ask_and_ask_over_allow_and_the_decision_names_the_grant() {
    let set = set(&["files:*", "ask files:write_*", "deny files:write_secret"]);
    assert_eq!(verdict(&set, "files", "read", "{}"), Verdict::Allow);
    assert_eq!(verdict(&set, "files", "write_note", "{}"), Verdict::Ask);
    assert_eq!(verdict(&set, "files", "write_secret", "{}"), DENIED);
    assert_eq!(verdict(&set, "mail", "read", "{}"), UNBOUND);
    let by = |tool| {
        called(&set, "files", tool, "{}")
            .grant
            .map(|by| by.grant.pattern())
    };
    assert_eq!(by("read").as_deref(), Some("files:*"));
    assert_eq!(by("write_note").as_deref(), Some("ask files:write_*"));
    assert_eq!(
        by("write_secret").as_deref(),
        Some("deny files:write_secret")
    );
    assert!(!set.is_everything() && GrantSet::everything().is_everything());
    let server = "files".parse().unwrap();
    assert!(set.shows(MethodClass::Tool, &server, Some("write_note")));
    assert!(!set.shows(MethodClass::Tool, &server, Some("write_secret")));
}

// row 3.2
#[test]
fn a_condition_that_cannot_be_told_does_not_allow_and_does_deny() {
    let allow = set(&["files:read when /path prefix \"/srv/\" and /force absent"]);
    assert_eq!(
        verdict(&allow, "files", "read", r#"{"path":"/srv/a"}"#),
        Verdict::Allow
    );
    for refused in [
        r#"{"path":"/etc/a"}"#,
        r#"{"path":"/srv/a","force":1}"#,
        "{}",
        r#"{"path":1}"#,
        "[]",
    ] {
        assert_eq!(
            verdict(&allow, "files", "read", refused),
            CONDITION,
            "{refused}"
        );
    }
    let server = "files".parse().unwrap();
    assert!(allow.shows(MethodClass::Tool, &server, Some("read")));
    let deny = set(&["files:*", "deny files:read when /path prefix \"/etc/\""]);
    assert_eq!(
        verdict(&deny, "files", "read", r#"{"path":"/srv/a"}"#),
        Verdict::Allow
    );
    for refused in [r#"{"path":"/etc/a"}"#, "{}", r#"{"path":1}"#, "[]"] {
        assert_eq!(
            verdict(&deny, "files", "read", refused),
            DENIED,
            "{refused}"
        );
    }
    assert!(deny.shows(MethodClass::Tool, &server, Some("read")));
    let ask = set(&["files:*", "ask files:read when /path prefix \"/etc/\""]);
    assert_eq!(
        verdict(&ask, "files", "read", r#"{"path":"/srv/a"}"#),
        Verdict::Allow
    );
    assert_eq!(verdict(&ask, "files", "read", "{}"), Verdict::Ask);
}

// row 3.2
#[test]
fn denied_uris_are_denied_in_every_spelling() {
    let set = set(&["files:*", "deny files:resource:file:///secret/*"]);
    let server: ServerName = "files".parse().unwrap();
    let shows = |uri| set.shows(MethodClass::Resource, &server, Some(uri));
    assert!(shows("file:///public/a"));
    for uri in [
        "file:///secret/a",
        "FILE:///secret/a",
        "file:///public/../secret/a",
        "file:///%73ecret/a",
        "file:///public/..%2fsecret/a",
        "file:///secret\\a",
        "file:///secret%2fa",
        "file:/secret/a",
        "file://localhost/secret/a",
        "file://elsewhere/secret/a",
        "/secret/a",
        " file:///secret/a",
    ] {
        assert!(!shows(uri), "{uri}");
        assert!(
            !set.shows(MethodClass::Subscription, &server, Some(uri)),
            "{uri}"
        );
    }
    assert!(!set.has_all(MethodClass::Resource, &server));
    assert!(set.may_read_below(&server, "file:///"));
    assert!(!set.may_read_below(&server, "file:///secret/of/"));
    let completes = |item| set.shows(MethodClass::Completion, &server, Some(item));
    assert!(completes("file:///public/{name}") && completes("greet"));
    assert!(!completes("file:///secret/{name}") && !completes("file:///{+path}"));
    let nothing = self::set(&["files:*", "deny files:resource:*"]);
    assert!(!nothing.may_read_below(&server, "file:///"));
    assert!(!nothing.shows(MethodClass::Resource, &server, None));
    assert!(nothing.shows(MethodClass::Tool, &server, None));
}

#[test]
fn a_server_that_is_denied_as_a_whole_is_not_there() {
    let set = set(&["*", "deny files:*"]);
    let (files, mail) = ("files".parse().unwrap(), "mail".parse().unwrap());
    for class in [
        MethodClass::Lifecycle,
        MethodClass::Tool,
        MethodClass::Subscription,
        MethodClass::Logging,
        MethodClass::Task,
        MethodClass::Completion,
    ] {
        assert!(!set.shows(class, &files, None), "{class:?}");
        assert!(set.shows(class, &mail, None), "{class:?}");
    }
    let one = self::set(&["files:*", "deny files:read"]);
    assert!(one.shows(MethodClass::Lifecycle, &files, None));
    assert!(one.shows(MethodClass::Tool, &files, None));
}

// fault L5
#[test]
fn annotations_count_only_for_trusted_servers_and_approved_versions() {
    let trusted = [Pattern::new("files")];
    let bound = |text| BoundGrant::unstored(Grant::parse(text).unwrap());
    let policy = || Policy {
        trusted: &trusted,
        ..Policy::default()
    };
    let set = GrantSet::under(policy(), vec![bound("*:read_only:*")]);
    let decided = |server: &str, hint, arguments| {
        let server = server.parse().unwrap();
        let request = AccessRequest {
            class: MethodClass::Tool,
            server: &server,
            item: Some("read"),
            arguments,
            hint,
        };
        set.decide(&request).verdict
    };
    let given = Arguments::Given(None);
    assert_eq!(
        decided("files", ReadOnlyHint::ReadOnly, given),
        Verdict::Allow
    );
    assert_eq!(decided("files", ReadOnlyHint::Writes, given), UNBOUND);
    assert_eq!(decided("mail", ReadOnlyHint::ReadOnly, given), UNBOUND);
    // One that is not known yet is looked at again once it is.
    assert_eq!(
        decided("files", ReadOnlyHint::NotKnown, given),
        Verdict::Allow
    );
    assert_eq!(decided("mail", ReadOnlyHint::NotKnown, given), UNBOUND);
    assert_eq!(
        decided("files", ReadOnlyHint::NotKnown, Arguments::Lost),
        Verdict::Undecided
    );
}

#[test]
fn a_group_names_its_servers_and_one_that_is_gone_opens_nothing() {
    let group = ServerGroup::new("data".parse().unwrap(), ["files", "db-*"]).unwrap();
    let bound = |text| BoundGrant::unstored(Grant::parse(text).unwrap());
    let grants = || {
        vec![
            bound("@data:read"),
            bound("mail:*"),
            bound("deny @data:drop"),
        ]
    };
    let groups = [group];
    let set = GrantSet::under(
        Policy {
            groups: &groups,
            ..Policy::default()
        },
        grants(),
    );
    assert_eq!(verdict(&set, "files", "read", "{}"), Verdict::Allow);
    assert_eq!(verdict(&set, "db-1", "read", "{}"), Verdict::Allow);
    assert_eq!(verdict(&set, "db-1", "drop", "{}"), DENIED);
    assert_eq!(verdict(&set, "mail", "drop", "{}"), Verdict::Allow);
    let gone = GrantSet::under(Policy::default(), grants());
    assert_eq!(verdict(&gone, "files", "read", "{}"), UNBOUND);
    assert_eq!(verdict(&gone, "mail", "drop", "{}"), DENIED);
    assert_ne!(set.fingerprint(), gone.fingerprint());
    assert!(set != gone);
}

#[test]
fn texts_of_grants_are_read_as_they_are_written() {
    for text in [
        "*",
        "deny *",
        "files:*",
        "ask files:write_*",
        "@data:read",
        "files:read_only:*",
        "files:search as find",
        "docs:resource:file:///My Docs/*",
        r#"deny files:write when /a equals "x and /b equals 1" and /path prefix "/etc/""#,
        r#"files:write when /n range 1..10"#,
    ] {
        assert_eq!(Grant::parse(text).unwrap().pattern(), text);
    }
    for bad in [
        "",
        "files",
        "files:",
        "permit files:x",
        "deny files:search as find",
        "files:* when /x equals 1",
        "docs:resource:* when /x equals 1",
        "files:x when /x",
        "@:x",
        "@a b:x",
    ] {
        assert!(Grant::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_was_not_kept_is_undecided_unless_it_does_not_matter() {
    let decided = |grants: &[&str]| {
        let server = "files".parse().unwrap();
        let request = AccessRequest {
            class: MethodClass::Tool,
            server: &server,
            item: Some("read"),
            arguments: Arguments::Lost,
            hint: ReadOnlyHint::Writes,
        };
        set(grants).decide(&request).verdict
    };
    assert_eq!(decided(&["*"]), Verdict::Allow);
    assert_eq!(
        decided(&["files:read when /x equals 1"]),
        Verdict::Undecided
    );
    assert_eq!(
        decided(&["*", "files:read when /x equals 1"]),
        Verdict::Allow
    );
    assert_eq!(
        decided(&["*", "deny files:read when /x equals 1"]),
        Verdict::Undecided
    );
    assert_eq!(decided(&["deny files:read when /x equals 1"]), DENIED);
    assert_eq!(
        decided(&["*", "ask files:read when /x equals 1"]),
        Verdict::Undecided
    );
    assert_eq!(
        decided(&["ask files:read", "files:read when /x equals 1"]),
        Verdict::Ask
    );
    assert_eq!(decided(&[]), UNBOUND);
}

fn grants() -> impl Strategy<Value = Vec<Grant>> {
    let effect = select(vec!["allow", "deny", "ask"]);
    let server = select(vec!["a", "b", "*"]);
    let item = select(vec![
        "x",
        "y",
        "tool:*",
        "x*",
        "read_only:*",
        "prompt:x",
        "*",
    ]);
    let condition = prop_oneof![
        Just(""),
        Just(" when /n equals 1"),
        Just(" when /n range 1..2"),
        Just(" when /n absent"),
        Just(" when /s prefix \"p\" and /n absent"),
    ];
    let grant = (effect, server, item, condition).prop_filter_map("no such grant", |parts| {
        let (effect, server, item, condition) = parts;
        Grant::parse(&format!("{effect} {server}:{item}{condition}")).ok()
    });
    proptest::collection::vec(grant, 0..6)
}

fn arguments() -> impl Strategy<Value = &'static str> {
    select(vec![
        "{}",
        r#"{"n":1}"#,
        r#"{"n":2.0}"#,
        r#"{"s":"pq"}"#,
        r#"{"n":"1"}"#,
        "[]",
    ])
}

proptest! {
    // row 3.2
    #[test]
    fn the_order_of_grants_decides_nothing(
        grants in grants(), seed in any::<u64>(), arguments in arguments(), tool in "[xy]",
    ) {
        let mut shuffled = grants.clone();
        let mut state = seed | 1;
        for place in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(place, (state >> 33) as usize % (place + 1));
        }
        let (one, two) = (GrantSet::new(grants), GrantSet::new(shuffled));
        prop_assert!(one == two);
        prop_assert_eq!(one.fingerprint(), two.fingerprint());
        let decided = |set| {
            let decision = called(set, "a", &tool, arguments);
            (decision.verdict, decision.grant.map(|by| by.grant.pattern()))
        };
        prop_assert_eq!(decided(&one), decided(&two));
    }

    // row 3.2
    #[test]
    fn another_deny_never_opens_anything_and_wins_where_it_applies(
        grants in grants(), arguments in arguments(), tool in "[xy]",
    ) {
        let before = verdict(&GrantSet::new(grants.clone()), "a", &tool, arguments);
        let deny = Grant::parse("deny a:x").unwrap();
        let with: Vec<Grant> = grants.into_iter().chain([deny]).collect();
        let after = verdict(&GrantSet::new(with), "a", &tool, arguments);
        match tool.as_str() {
            "x" => prop_assert_eq!(after, DENIED),
            _ => prop_assert_eq!(after, before),
        }
    }

    // row 2.16
    #[test]
    fn what_may_be_called_is_listed(
        grants in grants(), arguments in arguments(), tool in "[xy]", reads in any::<bool>(),
    ) {
        let trusted = [Pattern::new("a")];
        let policy = Policy { trusted: &trusted, ..Policy::default() };
        let grants = grants.into_iter().map(BoundGrant::unstored).collect();
        let set = GrantSet::under(policy, grants);
        let server = "a".parse().unwrap();
        let hint = match reads {
            true => ReadOnlyHint::ReadOnly,
            false => ReadOnlyHint::Writes,
        };
        let listing = AccessRequest::listing(MethodClass::Tool, &server, Some(&tool)).with_hint(hint);
        let call = AccessRequest {
            arguments: Arguments::Given(Some(Raw::trusted(arguments))),
            ..listing
        };
        if set.decide(&call).verdict.is_open() {
            prop_assert!(set.decide(&listing).verdict.is_open());
            prop_assert!(set.shows(MethodClass::Tool, &server, Some(&tool)));
            prop_assert!(set.shows(MethodClass::Tool, &server, None));
            prop_assert!(set.shows(MethodClass::Lifecycle, &server, None));
        }
        // What is decided without the arguments is decided the same with any.
        let lost = set.decide(&AccessRequest { arguments: Arguments::Lost, ..listing }).verdict;
        if lost != Verdict::Undecided {
            prop_assert_eq!(lost.as_str(), set.decide(&call).verdict.as_str());
        }
    }
}
