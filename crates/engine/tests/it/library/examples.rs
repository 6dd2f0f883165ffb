//! The examples of the library do what they say.

use std::path::PathBuf;
use std::process::Command;

use gantry_testkit::Evilpeer;

/// Runs a built example, which cargo puts beside the tests, and returns what it printed.
fn run(example: &str, arguments: &[String]) -> String {
    let mut folder: PathBuf = std::env::current_exe().unwrap();
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let output = Command::new(folder.join("examples").join(example))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("`cargo build --examples` makes `{example}`: {error}"));
    assert!(
        output.status.success(),
        "{example}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

// row 4.7, row 2.16
#[test]
fn native_offers_one_tool_and_refuses_the_other() {
    insta::assert_snapshot!(run("native", &[]), @r#"
    tools: [{"type":"function","function":{"name":"native__speed","description":"Returns the mean speed of a trip","parameters":{"type":"object","properties":{"kilometres":{"type":"number"},"hours":{"type":"number"}},"required":["kilometres","hours"],"additionalProperties":false},"strict":true}}]
    answer: {"role":"tool","tool_call_id":"call_1","content":"{\"kilometres_per_hour\":60.0}"}
    answer: {"role":"tool","tool_call_id":"call_2","content":"Error: agent `planner` has no grant for `native:reset`\nuse one of the tools that are offered"}
    "#);
}

// row 4.3, row 4.6
#[test]
fn servers_lists_two_servers_and_calls_the_second() {
    let printed = run("servers", &Evilpeer::new().argv());
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[..2], ["one: ready", "two: ready"], "{printed}");
    assert!(lines[2].ends_with(" tools"), "{printed}");
    assert!(lines[3].contains("hello"), "{printed}");
}

// row 4.6, row 4.8
#[test]
fn the_agent_loop_ends_with_the_models_answer() {
    insta::assert_snapshot!(run("agent_loop", &[]), @r#"
    tool: {"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"{\"city\":\"Bergen\",\"celsius\":8.5}"}]}
    tool: {"type":"tool_result","tool_use_id":"toolu_2","content":[{"type":"text","text":"arguments of `native__fahrenheit` do not fit its schema\n- (arguments): has fields the tool does not know: `degrees`\n- /celsius: required field `celsius` is missing\ncorrect the named fields and call again"}],"is_error":true}
    tool: {"type":"tool_result","tool_use_id":"toolu_3","content":[{"type":"text","text":"47.3"}]}
    tool: {"type":"tool_result","tool_use_id":"toolu_4","content":[{"type":"text","text":"Unknown tool: native__teleport"}],"is_error":true}
    model: "No: 47.3 °F, and I cannot take you elsewhere."
    "#);
}
