//! Texts that end anywhere and break anywhere, and show nothing private all the same.

use super::*;

/// Checks that of a file nothing is shown that contains `s3cr3t`, and that places stay.
fn check(syntax: Syntax, text: &str, kept: &[&str]) {
    for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
        let part = &text[..end];
        let shown = mask(part, syntax);
        assert_eq!(shown.len(), part.len());
        assert_eq!(
            shown.matches('\n').count(),
            part.matches('\n').count(),
            "{shown}"
        );
        assert!(!shown.contains("s3cr"), "{shown}");
    }
    let shown = mask(text, syntax);
    for kept in kept {
        assert!(shown.contains(kept), "{kept} not in {shown}");
    }
}

#[test]
fn names_and_structure_are_shown_and_values_are_not() {
    let text = r#"{
  // s3cr3t in a comment
  "primaryApiKey": "s3cr3t", "history": ["s3cr3t"], "theme": {"x": "s3cr3t"},
  "mcpServers": {
    "token-counter": {"command": "npx --key s3cr3t", "args": ["-y", "s3cr3t", "--token=s3cr3t", "${TOKEN}", "${T:-s3cr3t}"],
      "env": {"A": "s3cr3t", "B": {"C": 1234567}}, "start": "lazy", "timeout": 30, /* s3cr3t */
      "headers": {"Authorization": "Bearer s3cr3t"}, "url": "https://u:s3cr3t@example.com:80/s3cr3t?x=s3cr3t"}
  }
}"#;
    let kept = [
        "\"token-counter\": {\"command\": \"npx --key ******\", \"args\": [\"-y\", \"******\", \"--token=******\", \"${TOKEN}\", \"${T:-******",
        "\"env\": {\"A\": \"******\", \"B\": {\"C\": *******}}, \"start\": \"lazy\", \"timeout\": 30",
        "\"Authorization\": \"****** ******\"",
        "\"url\": \"https://********@example.com:80*******",
        "\"primaryApiKey\": \"******\"",
    ];
    check(Syntax::Json, text, &kept);
    let text = "# s3cr3t\n[gateway]\nlisten = \"127.0.0.1:1\"\n[servers.\"a b\"]\ncommand = \"x\" # s3cr3t\n\
        args = [\"s3cr3t\",\n  's3cr3t']\nenv = { A = \"s3cr3t\", \"B\" = 's3cr3t' }\nenv.C = \"s3cr3t\"\n\
        [servers.b.env]\nK = \"\"\"\ns3cr3t\n= s3cr3t\"\"\"\nL = 12\n[servers.c]\nstart = \"lazy\"\nlimits.pids = 4\nother = \"s3cr3t\"\n";
    let kept = [
        "listen = \"127.0.0.1:1\"",
        "[servers.\"a b\"]\ncommand = \"x\" #",
        "env = { A = \"******\", \"B\" = '******' }\nenv.C = \"******\"",
        "L = **\n[servers.c]\nstart = \"lazy\"\nlimits.pids = 4\nother = \"******\"",
    ];
    check(Syntax::Toml, text, &kept);
}

#[test]
fn what_is_broken_shows_no_more() {
    for text in [
        r#"{"env": {"A: "s3cr3t", "B": "s3cr3t"}}"#,
        r#"{"env": {"A": s3cr3t", "B": "s3cr3t"}}"#,
        r#"{"env": {"A": "s3cr3t, "B": "s3cr3t"}}"#,
        r#"{"env": "A": "s3cr3t"}"#,
        r#"{"env": {"A" "s3cr3t"}}"#,
        r#"{"env" {"A": "s3cr3t"}}"#,
        r#"{"command": "npx, "env": {"A": "s3cr3t"}}"#,
        r#"{'env': {'A': 's3cr3t'}}"#,
        r#"{env: {A: s3cr3t}}"#,
        "{\"env\": {\"A\": \"s3cr3t\n\"s3cr3t\": \"s3cr3t\"}}",
        r#"{"env": {"A": "x"}} "s3cr3t""#,
    ] {
        check(Syntax::Json, text, &[]);
    }
    for text in [
        "[servers.a]\nenv = { A = s3cr3t }\n",
        "[servers.a.env]\nA = \"s3cr3t\ns3cr3t = \"x\"\n",
        "[servers.a.env]\nA \"s3cr3t\"\nB: s3cr3t\n",
        "[servers.a\nenv = { A = 's3cr3t' \nB = 's3cr3t' }\n",
        "A = \"\"\"s3cr3t\n[servers.a]\ns3cr3t\n",
    ] {
        check(Syntax::Toml, text, &[]);
    }
}

#[test]
fn letters_of_any_width_keep_their_column() {
    let text = "{\"env\": {\"Ä\": \"é漢x\"}, ]";
    assert_eq!(mask(text, Syntax::Json), "{\"env\": {\"Ä\": \"·•*\"}, ]");
}
