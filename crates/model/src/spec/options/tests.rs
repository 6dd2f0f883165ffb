//! What holds for every option, so that a new one needs no test of its own for this.

use serde_json::{Map, Value as Json, json};

use super::definition::samples;
use super::*;

/// Returns a value that may be written for an option and is not its default.
fn sample(kind: Kind) -> Json {
    match kind {
        Kind::Flag => json!(true),
        Kind::Text | Kind::Template | Kind::Secret => json!("https://example.com/x"),
        Kind::Texts | Kind::Templates => json!(["one"]),
        Kind::Pairs => json!({"A": "1"}),
        Kind::Choice(names) => json!(names.last()),
        Kind::WordOrTexts(_) => json!(["one.example:443"]),
        Kind::Whole(_, most) => json!(most),
        Kind::Cores(_, most) => json!(most),
        Kind::Size(least, _) => json!(least),
        Kind::Period(_) => json!("77s"),
        Kind::Periods => json!(["77s"]),
        Kind::Tools => {
            json!({"search": {"timeout": "5s", "idempotent": true, "output_check": "off"}})
        }
    }
}

#[test]
fn every_option_is_read_back_as_it_was_set_and_changes_nothing_else() {
    for option in options() {
        assert!(!option.doc.is_empty(), "{}", option.name);
        for spec in samples() {
            let mut changed = spec.clone();
            let value = sample(option.kind);
            assert!(option.kind.allows(&value), "{}", option.name);
            let Some(before) = option.get(&mut changed) else {
                continue;
            };
            // What a port does to the bridge and to the transport is its purpose.
            if before == json!("stdio") || option.name == "port" {
                continue;
            }
            option.set(&mut changed, value.clone()).unwrap();
            assert_eq!(option.get(&mut changed), Some(value), "{}", option.name);
            for other in options().filter(|other| other.name != option.name) {
                let unchanged = other.get(&mut changed) == other.get(&mut spec.clone());
                assert!(unchanged, "`{}` changes `{}`", option.name, other.name);
            }
        }
    }
}

#[test]
fn every_choice_can_be_chosen_and_no_name_stands_for_two_options() {
    let mut seen = std::collections::BTreeSet::new();
    for option in options() {
        for name in option.names() {
            assert!(seen.insert(name), "{name}");
        }
        if let Kind::Choice(names) = option.kind {
            let [mut local, _, mut remote, mut image] = samples();
            for name in names.iter().filter(|name| **name != "stdio") {
                option.set(&mut local, json!(name)).unwrap();
                option.set(&mut remote, json!(name)).unwrap();
                option.set(&mut image, json!(name)).unwrap();
            }
        }
    }
}

#[test]
fn a_document_makes_the_same_spec_again() {
    for spec in samples() {
        let mut again = ServerSpec::new(spec.name.clone(), spec.launch.clone());
        for (name, value) in flat("", &document(&spec)) {
            named(&name).unwrap().set(&mut again, value).unwrap();
        }
        assert_eq!(again, spec);
    }
}

fn flat(prefix: &str, document: &Map<String, Json>) -> Vec<(String, Json)> {
    let mut found = Vec::new();
    for (key, value) in document {
        let name = format!("{prefix}{key}");
        match value.as_object().filter(|_| named(&name).is_none()) {
            Some(table) => found.extend(flat(&format!("{name}."), table)),
            None => found.push((name, value.clone())),
        }
    }
    found
}

#[test]
fn defaults_are_told_by_kind_of_server() {
    let told = |name: &str| named(name).unwrap().default_shown();
    assert_eq!(told("concurrency"), "`32`; hosted: `1`");
    assert_eq!(told("handshake_timeout"), "`1m`; remote: `10s`");
    assert_eq!(told("limits.memory"), "unlimited; hosted: 512 MiB");
    assert_eq!(told("reconnect.failures"), "`3`");
    assert_eq!(told("tools.include"), "all");
    assert_eq!(told("command"), "–");
    assert_eq!(named("url").unwrap().drivers(), Drivers::Remote);
    assert_eq!(told("limits.disk"), "unlimited; hosted: 1 GiB");
    assert_eq!(told("network"), "`full`; hosted: `none`");
    assert_eq!(named("restart.ladder").unwrap().drivers(), Drivers::Here);
    assert_eq!(named("image").unwrap().drivers(), Drivers::Image);
    assert_eq!(named("command").unwrap().drivers(), Drivers::Process);
    assert_eq!(named("timeout").unwrap().drivers(), Drivers::All);
}
