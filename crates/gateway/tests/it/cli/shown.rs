//! Must show 6: which test shows each verb doing what it is asked, and which shows it failing.
//!
//! A verb that the help names and that is not in the table fails, as does an entry whose test is not
//! there, does not run the verb, or shows no output that ends so.

use std::fs;
use std::path::Path;

use super::reference::verbs;

/// Each verb, the test with a snapshot of its success, and the one with a snapshot of its failure.
const SHOWN: [(&str, &str, &str); 41] = [
    (
        "up",
        "cli::starting::up_serves_and_says_how_to_use_it",
        "cli::starting::up_refuses_a_broken_file",
    ),
    (
        "connect",
        "cli::configuring::connect",
        "cli::connecting::connect_over_stdio_needs_no_gateway",
    ),
    (
        "import",
        "cli::configuring::import",
        "cli::connecting::import_takes_everything_that_is_found",
    ),
    (
        "approve",
        "cli::configuring::approve",
        "cli::configuring::approve",
    ),
    (
        "config",
        "cli::explaining::config_explain",
        "cli::configuring::config_check",
    ),
    (
        "add",
        "cli::keeping::a_server_is_added_listed_and_removed",
        "cli::keeping::a_remote_server_is_added_by_its_url",
    ),
    (
        "search",
        "cli::governing::a_registry_is_searched",
        "cli::governing::a_registry_is_searched",
    ),
    (
        "images",
        "cli::verbs::images_and_volumes",
        "cli::verbs::images_and_volumes",
    ),
    (
        "volumes",
        "cli::verbs::images_and_volumes",
        "cli::verbs::images_and_volumes",
    ),
    (
        "secret",
        "cli::governing::secrets_projects_and_products_are_listed",
        "cli::governing::secrets_projects_and_products_are_listed",
    ),
    (
        "auth",
        "oauth::verb::a_person_signs_in_and_out",
        "cli::failing::wrong_usage_exits_with_2",
    ),
    (
        "ls",
        "cli::keeping::a_server_is_added_listed_and_removed",
        "cli::failing::a_wrong_key_exits_with_1",
    ),
    (
        "rm",
        "cli::keeping::a_server_is_added_listed_and_removed",
        "cli::failing::a_wrong_key_exits_with_1",
    ),
    (
        "status",
        "cli::verbs::status",
        "cli::failing::what_the_gateway_refuses_exits_with_1_and_names_the_reason",
    ),
    (
        "open",
        "cli::verbs::open",
        "cli::failing::a_wrong_key_exits_with_1",
    ),
    (
        "logs",
        "cli::verbs::logs",
        "cli::failing::what_the_gateway_refuses_exits_with_1_and_names_the_reason",
    ),
    (
        "events",
        "cli::verbs::events",
        "cli::failing::a_wrong_key_exits_with_1",
    ),
    (
        "restart",
        "cli::verbs::restart",
        "cli::failing::what_the_gateway_refuses_exits_with_1_and_names_the_reason",
    ),
    (
        "tools",
        "cli::verbs::tools",
        "cli::failing::wrong_usage_exits_with_2",
    ),
    (
        "call",
        "cli::verbs::call",
        "cli::failing::what_the_gateway_refuses_exits_with_1_and_names_the_reason",
    ),
    (
        "why",
        "cli::agents::why_names_the_grant_the_filter_or_the_server",
        "cli::agents::why_names_the_grant_the_filter_or_the_server",
    ),
    (
        "calls",
        "cli::verbs::calls",
        "cli::recorded::one_call_is_shown_whole",
    ),
    (
        "audit",
        "cli::audit::acts_are_shown_with_who_and_what_changed",
        "cli::audit::acts_are_shown_with_who_and_what_changed",
    ),
    (
        "key",
        "cli::keeping::keys_are_made_listed_and_revoked",
        "cli::failing::a_wrong_key_exits_with_1",
    ),
    (
        "agent",
        "cli::agents::agents_are_made_listed_and_removed",
        "cli::failing::a_wrong_key_exits_with_1",
    ),
    (
        "grant",
        "cli::governing::grants_groups_and_policies_are_shown",
        "cli::governing::grants_groups_and_policies_are_shown",
    ),
    (
        "group",
        "cli::governing::grants_groups_and_policies_are_shown",
        "cli::governing::grants_groups_and_policies_are_shown",
    ),
    (
        "policy",
        "cli::governing::grants_groups_and_policies_are_shown",
        "cli::governing::grants_groups_and_policies_are_shown",
    ),
    (
        "project",
        "cli::governing::secrets_projects_and_products_are_listed",
        "cli::governing::secrets_projects_and_products_are_listed",
    ),
    (
        "store",
        "cli::store::an_installation_moves_to_postgresql_and_back",
        "cli::store::an_installation_moves_to_postgresql_and_back",
    ),
    (
        "product",
        "cli::governing::secrets_projects_and_products_are_listed",
        "cli::governing::secrets_projects_and_products_are_listed",
    ),
    (
        "suspend",
        "cli::governing::a_server_is_suspended_and_resumed",
        "cli::governing::a_server_is_suspended_and_resumed",
    ),
    (
        "resume",
        "cli::governing::a_server_is_suspended_and_resumed",
        "cli::governing::a_server_is_suspended_and_resumed",
    ),
    (
        "approvals",
        "cli::governing::secrets_projects_and_products_are_listed",
        "cli::governing::secrets_projects_and_products_are_listed",
    ),
    (
        "hook",
        "cli::governing::secrets_projects_and_products_are_listed",
        "cli::governing::secrets_projects_and_products_are_listed",
    ),
    (
        "registration",
        "cli::governing::secrets_projects_and_products_are_listed",
        "cli::governing::secrets_projects_and_products_are_listed",
    ),
    (
        "doctor",
        "cli::doctor::a_healthy_gateway_is_well_and_each_server_has_what_it_needs",
        "cli::doctor::what_keeps_a_server_from_starting_exits_with_1_and_says_what_to_do",
    ),
    (
        "stdio",
        "cli::stdio::spoken::stdio_speaks_and_ends_with_its_client",
        "cli::stdio::failing::a_wrong_key_is_an_answer_and_a_missing_gateway_an_exit_code",
    ),
    (
        "bench",
        "cli::calling::bench_tells_how_fast_the_answers_are",
        "cli::calling::bench_tells_how_fast_the_answers_are",
    ),
    (
        "completions",
        "cli::reference::completions_are_for_three_shells_and_more",
        "cli::reference::completions_are_for_three_shells_and_more",
    ),
    (
        "man",
        "cli::reference::every_verb_has_help_and_a_page",
        "cli::reference::every_verb_has_help_and_a_page",
    ),
];

/// Returns the text of a test by its path.
fn text_of(test: &str) -> String {
    let (module, name) = test.rsplit_once("::").unwrap();
    let file = format!("tests/it/{}.rs", module.replace("::", "/"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("`{test}`: {error}"));
    let head = format!("#[test]\nfn {name}() {{\n");
    let after = text.split_once(&head).map(|(_, after)| after);
    let after = after.unwrap_or_else(|| panic!("there is no test `{test}`"));
    let body = after.split_once("\n}\n").map_or(after, |(body, _)| body);
    body.to_owned()
}

/// Returns how a test's text says that it runs a verb.
fn runs(verb: &str) -> String {
    match verb {
        "up" => "folder.up(".to_owned(),
        "stdio" => "Client::start(".to_owned(),
        _ => format!("[\"{verb}\""),
    }
}

/// Checks that a test runs a verb, and that the next output that it shows ends so.
fn assert_shows(verb: &str, test: &str, ends: &[&str]) {
    let text = text_of(test);
    // A verb is the first of its words, which may stand on the next line.
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let text = lines.join("\n").replace("[\n", "[");
    assert!(text.contains("assert_snapshot!("), "`{test}` shows nothing");
    let named = [runs(verb), format!("[\"{verb}\"")];
    let ended = named.iter().flat_map(|named| text.split(named).skip(1));
    let mut ended = ended.filter_map(|after| {
        let mut exits = after.split("--- exit ").skip(1);
        exits.find(|exit| exit.starts_with(|first: char| first.is_ascii_digit()))
    });
    let shows = ended.any(|after| ends.iter().any(|end| after.starts_with(end)));
    assert!(shows, "`{test}` does not show `{verb}` end with {ends:?}");
}

#[test]
fn every_verb_is_shown_where_it_succeeds_and_where_it_fails() {
    let named: Vec<&str> = SHOWN.iter().map(|(verb, ..)| *verb).collect();
    assert_eq!(verbs(), named, "the verbs of the help, in its order");
    for (verb, success, failure) in SHOWN {
        assert_shows(verb, success, &["0"]);
        assert_shows(verb, failure, &["1", "2", "3"]);
    }
}
