//! Edits that leave every other byte unchanged, and files that are refused.

use serde_json::json;

use super::*;

fn at(members: &[&str]) -> Vec<String> {
    members.iter().map(|member| (*member).to_owned()).collect()
}

fn parse(text: &str) -> Document {
    Document::parse(Path::new("mcp.json"), text).unwrap()
}

fn entry() -> Map<String, Value> {
    json!({"type": "http", "url": "http://x/mcp", "headers": {"A": "b"}})
        .as_object()
        .unwrap()
        .clone()
}

/// Sets twice and removes an entry, and returns the text before the removal.
fn there_and_back(text: &str, members: &[&str]) -> String {
    let at = at(members);
    let set = parse(text).set(&at, "gantry", &entry(), &[]).unwrap();
    let document = parse(&set);
    let found = document.servers(&at);
    let found = found.iter().find(|(name, _)| *name == "gantry").unwrap();
    assert_eq!(found.1, &Value::Object(entry()));
    assert_eq!(
        document.set(&at, "gantry", &entry(), &[]).unwrap(),
        set,
        "twice is once"
    );
    assert_eq!(document.remove(&at, "gantry").unwrap(), text, "and back");
    set
}

#[test]
fn comments_order_tabs_and_ends_of_lines_stay() {
    for text in [
        "{\n  // first\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"} // last\n  }\n}\n",
        "{\n\t\"z\": 1,\n\t\"mcpServers\": {\n\t\t\"a\": {\n\t\t\t\"command\": \"x\",\n\t\t},\n\t},\n\t/* end */\n}",
        "{\r\n  \"mcpServers\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n",
        "\u{feff}{\n    \"mcpServers\": {\n        \"a\": {}\n    },\n    \"b\": [1,2]\n}\n",
    ] {
        let set = there_and_back(text, &["mcpServers"]);
        assert_eq!(
            text.contains('\t'),
            set.contains("\n\t\t\"gantry\": {\n\t\t\t\"type\"")
        );
        assert_eq!(
            text.contains("\r\n"),
            set.contains("\"gantry\": {\r\n"),
            "{set:?}"
        );
    }
    there_and_back(
        "{\n  \"projects\": {\n    \"/w\": {\n      \"mcpServers\": {\n        \"a\": {}\n      }\n    }\n  }\n}\n",
        &["projects", "/w", "mcpServers"],
    );
    there_and_back("{\n  \"a\": {}\n}\n", &[]);
}

#[test]
fn what_is_missing_is_made() {
    for text in [
        "",
        "{}",
        "// only a comment\n",
        "{\"mcpServers\": {}}",
        "{\n  \"theme\": \"dark\"\n}\n",
    ] {
        let at = at(&["mcpServers"]);
        let set = parse(text).set(&at, "gantry", &entry(), &[]).unwrap();
        let read = parse(&set);
        assert_eq!(read.servers(&at).len(), 1, "{set}");
        assert_eq!(read.value().get("theme").is_some(), text.contains("theme"));
        assert_eq!(set.contains("// only"), text.contains("// only"), "{set}");
    }
    assert_eq!(
        parse("")
            .set(
                &at(&["mcpServers"]),
                "g",
                &json!({"url": "u"}).as_object().unwrap().clone(),
                &[]
            )
            .unwrap(),
        "{\n  \"mcpServers\": {\n    \"g\": {\n      \"url\": \"u\"\n    }\n  }\n}\n"
    );
}

#[test]
fn an_entry_is_brought_up_to_date_and_the_persons_members_stay() {
    let text = "{\"servers\": {\n  \"gantry\": {\n    // mine\n    \"disabled\": true,\n    \"url\": \"http://old/mcp\",\n    \"command\": \"x\"\n  }\n}}";
    let at = at(&["servers"]);
    let set = parse(text)
        .set(&at, "gantry", &entry(), &["command", "args"])
        .unwrap();
    let read = parse(&set);
    let found = read.servers(&at)[0].1;
    assert_eq!(found["disabled"], true);
    assert_eq!(found["url"], "http://x/mcp");
    assert_eq!(found.get("command"), None);
    assert!(set.contains("// mine"), "{set}");
}

#[test]
fn broken_files_are_refused_with_their_place() {
    let refused = |text: &str| {
        Document::parse(Path::new("f"), text)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("{\n  \"a\": {,\n}"),
        "f:2:9: unexpected token in object"
    );
    assert_eq!(
        refused("{\"a\": 1,\n \"a\": 2}"),
        "f:2:2: `a` is defined twice"
    ); // fault G1
    assert_eq!(
        refused("{\n\"é\": 'x'}"),
        "f:2:6: single-quoted strings are not allowed"
    );
    assert_eq!(refused("[1]"), "f:1:1: an object was expected");
    assert!(
        refused("{\"mcpServers\": {").starts_with("f:1:16: unterminated object"),
        "{}",
        refused("{\"mcpServers\": {")
    );
    let list = parse("{\"mcpServers\": []}").set(&at(&["mcpServers"]), "g", &entry(), &[]);
    assert!(list.is_err(), "what is no object is not made one");
}
