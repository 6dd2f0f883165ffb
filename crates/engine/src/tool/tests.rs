//! What of a server's definitions is admitted, shown and hidden.

use super::*;

fn admit(definition: &str) -> Result<Tool, String> {
    Tool::admit(Raw::trusted(definition), 256 << 10)
}

#[test]
fn a_definition_is_kept_byte_for_byte() {
    // row 2.5
    let definition = r#"{ "name" : "a\u0062", "inputSchema": {"type":"object"} , "x":1.50 }"#;
    let tool = admit(definition).unwrap();
    assert_eq!((&*tool.name, tool.definition.text()), ("ab", definition));
    assert_eq!(tool.schema_version().len(), "0-".len() + 12);
}

#[test]
fn names_of_resources_hide_nothing() {
    // fault L2
    let raw = Raw::trusted(
        r#"{"uri":"file:///a","name":"no\u200btes\u001b[31m","title":"a\u202eb","size":1.0}"#,
    );
    for kind in [WireList::Resources, WireList::ResourceTemplates] {
        let raw = match kind == WireList::ResourceTemplates {
            true => raw.text().replace("uri", "uriTemplate"),
            false => raw.text().to_owned(),
        };
        let item = Item::admit(kind, Raw::trusted(&raw), String::new(), 1 << 10).unwrap();
        let shown = item.definition.text();
        let is_clean = shown.contains(r#""name":"notes""#) && shown.contains(r#""title":"ab""#);
        assert!(is_clean && shown.contains(r#""size":1.0"#), "{shown}");
    }
}

#[test]
fn null_members_and_line_breaks_go() {
    let tool =
        admit("{\"name\":\"a\",\"description\":null,\n\"inputSchema\":{\"type\":\"object\"}}");
    let definition = tool.unwrap().definition;
    assert_eq!(
        definition.text(),
        r#"{"name":"a","inputSchema":{"type":"object"}}"#
    );
}

#[test]
fn tools_that_nobody_could_use_are_left_out_with_a_reason() {
    // fault S19
    let long = format!(r#"{{"name":"a","description":"{}"}}"#, "d".repeat(270_000));
    for (definition, part) in [
        (r#"{"inputSchema":{"type":"object"}}"#, "`name` is missing"),
        (r#"{"name":"","inputSchema":{"type":"object"}}"#, "empty"),
        (
            r#"{"name":"a\u0007","inputSchema":{"type":"object"}}"#,
            "control characters",
        ),
        (
            r#"{"name":"a\u202eb","inputSchema":{"type":"object"}}"#,
            "invisible",
        ),
        (r#"{"name":"a"}"#, "`inputSchema` is missing"),
        (r#"{"name":"a","inputSchema":"text"}"#, "must be an object"),
        (
            r#"{"name":"a","inputSchema":{"type":"string"}}"#,
            "not of type `object`",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"x":{"x-mcp-header":7}}}}"#,
            "invalid `x-mcp-header`",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}"#,
            "only as a task",
        ),
        (&long, "longer than 256 KiB"),
    ] {
        let reason = admit(definition).unwrap_err();
        assert!(reason.contains(part), "{reason} should tell: {part}");
    }
    let name = "n".repeat(600);
    let long = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
    assert!(admit(&long).unwrap_err().contains("longer than 512 bytes"));
}

#[test]
fn what_cannot_be_judged_is_told_and_the_tool_is_offered() {
    let told = |definition: &str| {
        let tool = admit(definition).unwrap();
        // What was remembered tells the same.
        let recalled = Tool::recall(tool.definition.as_raw(), "abc", 1).unwrap();
        let parts = |tool: &Tool| -> Vec<String> {
            let parts = tool.unchecked().iter();
            parts
                .map(|part| format!("{}: {}", part.part, part.reason))
                .collect()
        };
        let found = parts(&tool);
        if tool.has_output || !definition.contains("outputSchema") {
            assert_eq!(parts(&recalled), found);
        }
        found.join("; ")
    };
    assert_eq!(
        told(r#"{"name":"a","inputSchema":{"type":"object","required":7}}"#),
        "inputSchema/required: it is not a list of names"
    );
    assert_eq!(
        told(r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"$ref":"http://x/"}}"#),
        "outputSchema/$ref: it refers to another document: `http://x/`"
    );
    assert_eq!(
        told(r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":[]}"#),
        "outputSchema: it is not an object"
    );
    assert_eq!(told(r#"{"name":"a","inputSchema":{"type":"object"}}"#), "");
}

#[test]
fn what_clients_would_refuse_the_list_for_goes() {
    for (definition, shown) in [
        (
            r#"{"name":"a","title":[],"description":7,"inputSchema":{"type":"object"},"icons":{},"_meta":1}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":true,"annotations":"x"}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"annotations":{"title":null,"readOnlyHint":null,"openWorldHint":true,"own":null}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"},"annotations":{"openWorldHint":true,"own":null}}"#,
        ),
    ] {
        let tool = admit(definition).unwrap();
        let shown: serde_json::Value = serde_json::from_str(shown).unwrap();
        let own: serde_json::Value = serde_json::from_str(tool.definition.text()).unwrap();
        assert_eq!(own, shown);
        assert!(!tool.has_output());
    }
    // Arguments are objects, whether the schema says so or not.
    for schema in ["{}", r#"{"type":null}"#, r#"{"type":["object","null"]}"#] {
        let definition = format!(r#"{{"name":"a","inputSchema":{schema}}}"#);
        let tool = admit(&definition).unwrap();
        assert!(
            tool.member("inputSchema")
                .get("type")
                .unwrap()
                .is_string("object")
        );
    }
}

#[tokio::test]
async fn a_remembered_tool_compiles_its_schema_when_it_is_called() {
    let definition = r#"{"name":"a","inputSchema":{"type":"object","required":["x"]}}"#;
    let long = definition.replace("\"a\"", &format!("\"{}\"", "a".repeat(COMPILED_HERE)));
    for definition in [definition, &long] {
        let tool = Tool::recall(Raw::trusted(definition), "abc", 3).map(Arc::new);
        let tool = tool.unwrap();
        assert_eq!(tool.schema_version(), "3-abc");
        let Err(SchemaMismatch::Issues(issues)) =
            tool.check_arguments(None, &Permits::default()).await
        else {
            panic!("a field is missing")
        };
        assert_eq!(issues[0].path, "/x");
    }
}
