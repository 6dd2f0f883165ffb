//! Names: legal, stable, unique, and back again.

use std::collections::{HashMap, HashSet};

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

const TARGETS: [Target; 4] = [Target::Mcp, Target::Claude, Target::OpenAi, Target::Gemini];

fn id(text: &str) -> ToolId {
    text.parse().unwrap()
}

fn rules(expose: Expose, on_collision: OnCollision) -> Rules {
    Rules {
        form: Form::of(Target::Mcp),
        expose,
        on_collision,
    }
}

/// Shows every exposed name with its tool, then the warnings.
fn check(rules: Rules, tools: &[&str]) -> String {
    let names = Names::build(rules, tools.iter().map(|text| id(text)));
    show(&names)
}

fn show(names: &Names) -> String {
    let mut lines: Vec<String> = names
        .iter()
        .map(|(name, id)| format!("{name} = {id}"))
        .collect();
    lines.extend(
        names
            .warnings()
            .iter()
            .map(|warning| format!("! {warning}")),
    );
    lines.join("\n")
}

// rows 2.14, 2.15
#[test]
fn identities_split_at_the_first_colon() {
    let tool = id("files:read:all");
    assert_eq!((tool.server.as_str(), &*tool.tool), ("files", "read:all"));
    assert_eq!(tool.to_string(), "files:read:all");
    // row 4.4
    assert_eq!(id("native:echo").server, ServerName::native());
    for bad in ["", "x", "x:", ":x", "a b:c", "a__b:c"] {
        assert!(bad.parse::<ToolId>().is_err(), "{bad}");
    }
}

// row 2.15
#[test]
fn each_target_gets_a_name_it_accepts() {
    let long = "x".repeat(300);
    let tools = [
        "brave:search",
        "io.github.x:get.all",
        "9lives:a",
        "a_:b",
        "a:_b",
        "a:say hi",
        "a:größe:2",
    ];
    let mut text = String::new();
    for tool in tools
        .into_iter()
        .map(id)
        .chain([ToolId::new("a".parse().unwrap(), long)])
    {
        for target in TARGETS {
            let name = encode(Form::of(target), &tool.server, &tool.tool);
            assert!(target.accepts(&name), "{name}");
            text += &format!("{target:?} {name}\n");
        }
    }
    insta::assert_snapshot!(text, @r"
    Mcp brave__search
    Claude brave__search
    OpenAi brave__search
    Gemini brave__search
    Mcp io.github.x__get.all
    Claude io_github_x__get_all_62f3af7e
    OpenAi io_github_x__get_all_62f3af7e
    Gemini io.github.x__get.all
    Mcp 9lives__a
    Claude 9lives__a
    OpenAi 9lives__a
    Gemini _9lives__a_9d8b9d0d
    Mcp a___b_2fda5b55
    Claude a___b_2fda5b55
    OpenAi a___b_2fda5b55
    Gemini a___b_2fda5b55
    Mcp a___b
    Claude a___b
    OpenAi a___b
    Gemini a___b
    Mcp a__say_hi_6f539e2e
    Claude a__say_hi_6f539e2e
    OpenAi a__say_hi_6f539e2e
    Gemini a__say_hi_6f539e2e
    Mcp a__gr__e_2_005ff8ed
    Claude a__gr__e_2_005ff8ed
    OpenAi a__gr__e_2_005ff8ed
    Gemini a__gr__e_2_005ff8ed
    Mcp a__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_45ea2580
    Claude a__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_45ea2580
    OpenAi a__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_45ea2580
    Gemini a__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_45ea2580
    ");
}

#[test]
fn names_that_look_hashed_or_empty_are_hashed_too() {
    let server = "a".parse().unwrap();
    let spaced = encode(Form::of(Target::Mcp), &server, "x y");
    let (_, imitation) = split(&spaced).unwrap();
    assert_ne!(encode(Form::of(Target::Mcp), &server, imitation), spaced);
    assert!(Target::Mcp.accepts(&encode_bare(Form::of(Target::Mcp), "")));
    assert_eq!(split("a:b__c"), Some(("a", "b__c")));
    assert_eq!(split("plain"), None);
}

// row 2.15
#[test]
fn qualified_names_do_not_meet() {
    let tools = ["a:x", "b:x", "a_b:c", "a:b_c", "a_:b", "a:_b", "a:x"];
    insta::assert_snapshot!(check(rules(Expose::Qualified, OnCollision::Refuse), &tools), @r"
    a__x = a:x
    b__x = b:x
    a_b__c = a_b:c
    a__b_c = a:b_c
    a___b_2fda5b55 = a_:b
    a___b = a:_b
    ! tool `a:x` was listed twice, the first counts
    ");
}

// row 4.5, fault L4
#[test]
fn of_two_bare_names_the_second_is_refused() {
    let tools = ["a:x", "a:y", "b:x", "b:z", "b:say hi", "c:say hi"];
    insta::assert_snapshot!(check(rules(Expose::Bare, OnCollision::Refuse), &tools), @r"
    x = a:x
    y = a:y
    z = b:z
    say_hi_53eae705 = b:say hi
    ! tool `b:x` is not exposed: `a:x` already has the name `x`
    ! tool `c:say hi` is not exposed: `b:say hi` already has the name `say_hi_53eae705`
    ");
}

// row 4.5
#[test]
fn with_last_wins_the_later_in_the_configuration_has_the_bare_name() {
    let tools = ["a:x", "a:y", "b:x", "c:x"];
    insta::assert_snapshot!(check(rules(Expose::Bare, OnCollision::LastWins), &tools), @r"
    y = a:y
    x = c:x
    ! tool `a:x` is not exposed: the later `b:x` took the name `x`
    ! tool `b:x` is not exposed: the later `c:x` took the name `x`
    ");
}

// row 3.6
#[test]
fn an_alias_comes_before_every_other_name() {
    let tools = [
        ("a:x", None),
        ("b:y", Some("x")),
        ("c:x", None),
        ("d:z", Some("find")),
    ];
    let tools = tools.map(|(tool, alias)| (id(tool), alias.map(Arc::from)));
    for on_collision in [OnCollision::Refuse, OnCollision::LastWins] {
        let names = Names::build_aliased(rules(Expose::Bare, on_collision), tools.clone());
        assert_eq!(names.resolve("x"), Some(&id("b:y")));
        assert_eq!(names.resolve("find"), Some(&id("d:z")));
        assert_eq!(names.resolve("z"), None);
        assert_eq!(names.exposed(&id("a:x")), None);
        assert_eq!(names.warnings().len(), 2, "{}", show(&names));
    }
}

// row 2.15
#[test]
fn either_name_resolves_and_an_identity_reaches_a_tool_that_lost_its_name() {
    let names = Names::build(
        rules(Expose::Bare, OnCollision::Refuse),
        ["a:x", "b:x"].map(id),
    );
    assert_eq!(names.resolve("x"), Some(&id("a:x")));
    assert_eq!(names.resolve("b:x"), Some(&id("b:x")));
    assert_eq!(names.resolve("b__x"), None);
    assert_eq!(names.exposed(&id("b:x")), None);
}

// fault L4
#[test]
fn a_name_made_to_have_the_same_digits_wins_nothing() {
    let characters = || (0x4e00..0x4e00 + 600).filter_map(char::from_u32);
    let mut seen: HashMap<String, String> = HashMap::new();
    let (first, second) = characters()
        .flat_map(|a| characters().map(move |b| format!("{a}{b}")))
        .find_map(|tool| {
            let name = encode_bare(Form::of(Target::Mcp), &tool);
            seen.insert(name, tool.clone()).map(|other| (other, tool))
        })
        .expect("360000 names have a pair with the same 32 bits");
    let server: ServerName = "a".parse().unwrap();
    for on_collision in [OnCollision::Refuse, OnCollision::LastWins] {
        let tools = [&first, &second].map(|tool| ToolId::new(server.clone(), tool.as_str()));
        let names = Names::build(rules(Expose::Bare, on_collision), tools.clone());
        assert!(names.exposed(&tools[0]).is_some());
        assert_eq!(names.exposed(&tools[1]), None);
        assert_eq!(names.warnings()[0].outcome, Outcome::Refused);
    }
}

// row 2.15
#[test]
fn long_names_are_shortened_always_the_same_way() {
    let form = Form {
        target: Target::Mcp,
        longest: LONGEST_EXPOSED,
    };
    let server: ServerName = "weather".parse().unwrap();
    let at_bound = "x".repeat(LONGEST_EXPOSED - "weather__".len());
    assert_eq!(
        encode(form, &server, &at_bound),
        format!("weather__{at_bound}")
    );
    assert_eq!(unshortened(form, &server, &at_bound), None);
    let one = format!("{at_bound}_one");
    let two = format!("{at_bound}_two");
    let names = [&one, &two].map(|tool| encode(form, &server, tool));
    assert!(names.iter().all(|name| name.len() == LONGEST_EXPOSED));
    assert_ne!(names[0], names[1]);
    assert_eq!(names[0], encode(form, &server, &one));
    let plain = Some(format!("weather__{one}"));
    assert_eq!(unshortened(form, &server, &one), plain);
    // What had to be changed for another reason never was exposed so.
    assert_eq!(unshortened(form, &server, &format!("{one} {one}")), None);
    // A long server leaves room for its tool.
    let wordy: ServerName = "a-server-with-a-name-that-nearly-reaches-the-limit-of-sixty-four"
        .parse()
        .unwrap();
    let name = encode(form, &wordy, "echo");
    assert!(
        name.starts_with("a-server-with-a-name-") && name.contains("__echo_"),
        "{name}"
    );
    assert_eq!(name.len(), LONGEST_EXPOSED);
    // A target that takes less has its own bound.
    let narrow = Form {
        target: Target::OpenAi,
        longest: 128,
    };
    assert_eq!(encode(narrow, &server, &two).len(), 64);
    let short = Form {
        target: Target::Mcp,
        longest: 32,
    };
    let names = Names::build(
        Rules {
            form: short,
            ..rules(Expose::Qualified, OnCollision::Refuse)
        },
        [&one, &two].map(|tool| ToolId::new(server.clone(), tool.as_str())),
    );
    for (name, tool) in names.iter() {
        assert!(name.len() == 32 && name.starts_with("weather__x"), "{name}");
        assert_eq!(names.resolve(name), Some(tool));
    }
    assert_eq!(names.iter().count(), 2);
}

#[test]
fn warnings_cannot_carry_control_characters() {
    let tools = ["a:\u{1b}[2Jx", "b:\u{1b}[2Jx"];
    let text = check(rules(Expose::Bare, OnCollision::Refuse), &tools);
    assert!(!text.lines().last().unwrap().contains('\u{1b}'), "{text:?}");
}

fn server_name() -> impl Strategy<Value = ServerName> {
    prop_oneof![
        "[a-c]_?",
        "[a-zA-Z0-9]([._-]?[a-zA-Z0-9]){0,31}",
        "[a-z]{64}"
    ]
    .prop_filter_map("a server's name", |text| text.parse().ok())
}

fn tool_name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "_?[a-c](__?[a-c])?",
        2 => "[a-zA-Z0-9_.-]{1,80}",
        1 => "[a-c]_[0-9a-f]{8}",
        1 => any::<String>(),
        1 => "[a-z:é ]{1,300}",
    ]
}

fn tools() -> impl Strategy<Value = Vec<ToolId>> {
    let tool = (server_name(), tool_name()).prop_map(|(server, tool)| ToolId::new(server, tool));
    proptest::collection::vec(tool, 0..40)
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(TARGETS[0]),
        Just(TARGETS[1]),
        Just(TARGETS[2]),
        Just(TARGETS[3])
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let expose = prop_oneof![Just(Expose::Qualified), Just(Expose::Bare)];
    let on_collision = prop_oneof![Just(OnCollision::Refuse), Just(OnCollision::LastWins)];
    let form = (target(), EXPOSED_LENGTHS);
    (form, expose, on_collision).prop_map(|((target, longest), expose, on_collision)| Rules {
        form: Form { target, longest },
        expose,
        on_collision,
    })
}

proptest! {
    // row 2.15
    #[test]
    fn every_name_is_accepted_unique_and_leads_back(rules in any_rules(), tools in tools()) {
        let names = Names::build(rules, tools.clone());
        let mut seen = HashSet::new();
        for (name, id) in names.iter() {
            prop_assert!(rules.form.accepts(name), "{}", name);
            prop_assert!(seen.insert(name.to_owned()));
            prop_assert_eq!(names.resolve(name), Some(id));
            prop_assert_eq!(names.exposed(id), Some(name));
        }
        let all: HashSet<_> = tools.iter().collect();
        let lost: HashSet<_> =
            all.iter().filter(|id| names.exposed(id).is_none()).copied().collect();
        let told: HashSet<_> = names.warnings().iter()
            .filter(|warning| warning.outcome != Outcome::Repeated)
            .map(|warning| &warning.loser)
            .collect();
        prop_assert_eq!(lost, told);
        for id in &tools {
            prop_assert_eq!(names.resolve(&id.to_string()), Some(id));
        }
        if rules.expose == Expose::Qualified {
            prop_assert_eq!(seen.len(), all.len());
        }
    }

    // row 2.15
    #[test]
    fn a_new_tool_renames_no_other(
        rules in any_rules(),
        tools in tools(),
        server in server_name(),
        tool in tool_name(),
        place in any::<proptest::sample::Index>(),
    ) {
        let new = ToolId::new(server, tool);
        let before = Names::build(rules, tools.clone());
        let mut more = tools;
        more.insert(place.index(more.len() + 1), new.clone());
        let after = Names::build(rules, more);
        let involved = |id: &ToolId| *id == new || (rules.expose == Expose::Bare && id.tool == new.tool);
        for (name, id) in before.iter().filter(|(_, id)| !involved(id)) {
            prop_assert_eq!(after.exposed(id), Some(name));
        }
    }

    #[test]
    fn plain_names_pass_unchanged(server in "s[a-z]{0,19}", tool in "[a-z]{1,20}") {
        let id = ToolId::new(server.parse().unwrap(), tool.as_str());
        for target in TARGETS {
            let name = encode(Form::of(target), &id.server, &id.tool);
            prop_assert_eq!(split(&name), Some((server.as_str(), tool.as_str())));
        }
    }
}
