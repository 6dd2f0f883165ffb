//! `--json`: every verb that reads prints one JSON value on stdout, and which members it has.

use std::process::Output;

use gantry_testkit::wait::eventually;
use insta::assert_snapshot;
use serde_json::Value;

use super::told;
use crate::config::Folder;
use crate::harness::{Gantry, LONG};

/// Names the members of a value, those of a list by its first item.
fn members(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut names: Vec<String> = members
                .iter()
                .map(|(name, value)| match self::members(value).as_str() {
                    "" => name.clone(),
                    below => format!("{name}{below}"),
                })
                .collect();
            names.sort_unstable();
            format!("{{{}}}", names.join(" "))
        }
        Value::Array(items) => match items.first().map(members).as_deref() {
            None | Some("") => String::new(),
            Some(below) => format!("[{below}]"),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => String::new(),
    }
}

/// Tells what a verb printed, which must be JSON and nothing else.
fn shape(words: &[&str], output: &Output) -> String {
    assert!(output.status.success(), "{words:?}: {}", told(output));
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", told(output)));
    format!("{}: {}", words.join(" "), members(&value))
}

#[test]
fn reading_verbs_print_json() {
    let gantry = Gantry::start(&["a"]);
    gantry.cli(&["call", "a__echo", "text=x"]);
    gantry.cli(&["call", "a__stderr", "text=x"]);
    let logged = || !gantry.cli(&["logs", "a"]).stdout.is_empty();
    assert!(eventually(LONG, logged).is_some(), "the line is logged");
    let verbs: [&[&str]; 13] = [
        &["ls"],
        &["tools"],
        &["why", "default", "a__echo"],
        &["calls"],
        &["key", "ls"],
        &["key", "new", "--label", "json"],
        &["agent", "new", "reader", "--grant", "a:*"],
        &["agent", "ls"],
        &["agent", "rm", "reader"],
        &["logs", "a"],
        &["restart", "a"],
        &["call", "a__add", "a=1", "b=2"],
        &["bench", "--for", "1s", "a__echo", "text=x"],
    ];
    let shapes = verbs.map(|words| shape(words, &gantry.cli(&[words, &["--json"]].concat())));
    // What can be measured depends on the machine.
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r" usage(\{[^}]*\})?", " usage");
    // Every option of a server; `model/spec/options` says which there are.
    settings.add_filter(
        r" spec\{[^{}]*(\{[^{}]*(\{\})?[^{}]*\}[^{}]*)*\} start",
        " spec start",
    );
    settings.bind(|| {
        assert_snapshot!(shapes.join("\n"), @r"
        ls: {items[{command description file health_warning hidden_resources id image image_changed image_digest in_flight name next_try profile reason refused_tools restart_count source start state tools transport unapproved unchecked_tools uptime_ms url waiting}]}
        tools: {items[{definition{description inputSchema{properties{delay_ms{type} nonce{type} text{type}} required type} name} id name server tool version}]}
        why default a__echo: {agent allowed decision policy_revision reasons steps[{check grant result text}] tool}
        calls: {items[{agent attempts code duration_us ended_ms error error_kind grant id input input_bytes input_check key method output output_bytes output_check parent phases{auth_us grant_us output_us queue_us schema_us server_us} policy_revision project repeats run schema_version seq server session started started_ms status step surface tool trace user user_source user_trust}]}
        key ls: {items[{agent created created_ms id kind label last_used last_used_from last_used_ms limits{} role sources}]}
        key new --label json: {agent id key}
        agent new reader --grant a:*: {created created_ms grants keys label limits{} name tools{exclude include} trusted_user_ids}
        agent ls: {items[{created created_ms grants keys[{agent created created_ms id kind label last_used last_used_from last_used_ms limits{} sources}] label limits{} name tools{exclude include} trusted_user_ids}]}
        agent rm reader: {removed}
        logs a: {items[{at at_ms number stream text}]}
        restart a: {attempts[{ended_ms exit_code how number oom_killed pids_limit_hit signal started started_ms stderr was_ready}] breaker{next_try_in_ms state unanswered} command created_ms description dropped_notifications excluded file findings generation health_warning hidden hidden_resources hosting id image image_changed image_digest in_flight instructions isolation[{detail name state}] last_crash late_replies name next_try noise{last lines} pid profile prompts protocol_version provider{name reason} queue{closed_lanes in_flight lanes limit waiting} reason refused_requests refused_tools resources restart_count server_info{name version} sign_in since since_ms source spec start state tools transport unapproved unchecked unchecked_tools uptime_ms url usage_history usage waiting}
        call a__add a=1 b=2: {_meta{io.modelcontextprotocol/serverInfo{name version}} content[{text type}] resultType structuredContent{sum}}
        bench --for 1s a__echo text=x: {calls calls_per_second connections errors max_us p50_us p90_us p99_us seconds tool}
        ");
    });
}

#[test]
fn verbs_over_files_print_json() {
    let folder = Folder::new();
    let verbs: [&[&str]; 5] = [
        &["config", "check"],
        &["config", "explain"],
        &["approve"],
        &["import"],
        &["connect"],
    ];
    let shapes = verbs.map(|words| shape(words, &folder.run(&[words, &["--json"]].concat())));
    assert_snapshot!(shapes.join("\n"), @"
    config check: {files mistakes ok servers warnings}
    config explain: {items[{name values[{from key value}]}]}
    approve: {approved files}
    import: {items}
    connect: {items}
    ");
}
