//! Merged entries, kept entries, and the export.

use serde_json::json;

use super::super::find;
use super::*;

fn take(
    takeover: &mut Takeover,
    client: &str,
    original: &str,
    entry: &Value,
    differing: Differing,
) -> Done {
    let client = find(client).unwrap();
    let normal = client.dialect.normalise(entry).unwrap();
    let name = name(original).unwrap();
    takeover
        .take(client, &name, original, &normal, differing)
        .unwrap()
}

fn parse(text: &str) -> Takeover {
    Takeover::parse(Path::new("gantry.toml"), text).unwrap()
}

#[test]
fn a_new_file_reads_as_a_person_would_write_it() {
    let mut takeover = parse("");
    let entry = json!({"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"B": "1", "A": "2"}, "envFile": ".env"});
    assert_eq!(
        take(&mut takeover, "cursor", "files", &entry, Differing::Keep),
        Done::Added
    );
    assert_eq!(
        take(
            &mut takeover,
            "cursor",
            "web",
            &json!({"url": "https://x/mcp"}),
            Differing::Keep
        ),
        Done::Added
    );
    insta::assert_snapshot!(takeover.text(), @r#"
    [servers.files]
    command = "npx"
    args = ["-y", "x"]

    [servers.files.env]
    B = "1"
    A = "2"

    [servers.files.x-cursor]
    type = "stdio"
    envFile = ".env"

    [servers.web]
    url = "https://x/mcp"
    "#);
}

#[test]
fn comments_and_order_stay_and_what_is_there_is_kept() {
    let text = "# mine\n[gateway]\nport = 1 # here\n\n[servers.b]\ncommand = \"old\" # why\nstart = \"lazy\"\n\n# end\n";
    let mut takeover = parse(text);
    let entry = json!({"command": "new"});
    assert_eq!(
        take(&mut takeover, "cursor", "b", &entry, Differing::Keep),
        Done::Kept
    );
    assert_eq!(takeover.text(), text, "nothing was touched");
    assert_eq!(
        take(&mut takeover, "cursor", "b", &entry, Differing::Replace),
        Done::Replaced
    );
    let now = takeover.text();
    assert!(
        now.contains("command = \"new\"") && now.contains("start = \"lazy\""),
        "{now}"
    );
    assert!(
        now.starts_with("# mine\n[gateway]\nport = 1 # here\n") && now.contains("# end"),
        "{now}"
    );
    assert_eq!(
        take(&mut takeover, "cursor", "b", &entry, Differing::Keep),
        Done::Same
    );
    assert_eq!(takeover.text(), now);
}

#[test]
fn two_clients_with_one_server_complete_each_other() {
    let mut takeover = parse("");
    let cline = json!({"command": "x", "autoApprove": ["a"]});
    assert_eq!(
        take(
            &mut takeover,
            "cursor",
            "x",
            &json!({"command": "x"}),
            Differing::Keep
        ),
        Done::Added
    );
    assert_eq!(
        take(&mut takeover, "cline", "x", &cline, Differing::Keep),
        Done::Noted
    );
    assert_eq!(
        take(&mut takeover, "cline", "x", &cline, Differing::Keep),
        Done::Same
    );
    assert_eq!(
        takeover.back(find("cline").unwrap())["mcpServers"]["x"],
        cline
    );
    assert_eq!(
        takeover.back(find("cursor").unwrap())["mcpServers"]["x"],
        json!({"command": "x"})
    );
}

#[test]
fn names_that_are_none_here_come_back() {
    // fault G2
    let mut takeover = parse("");
    take(
        &mut takeover,
        "cursor",
        "My Files: é",
        &json!({"command": "x"}),
        Differing::Keep,
    );
    assert_eq!(takeover.names(), ["My-Files"]);
    let back = takeover.back(find("cursor").unwrap());
    assert_eq!(back["mcpServers"], json!({"My Files: é": {"command": "x"}}));
    assert_eq!(name("../.."), None);
    assert_eq!(name("é"), None);
}

#[test]
fn questions_are_kept_once() {
    let client = find("vscode").unwrap();
    let inputs = [json!({"type": "promptString", "id": "key", "password": true})];
    let mut takeover = parse("# top\n");
    takeover.take_inputs(client, &inputs);
    let once = takeover.text();
    takeover.take_inputs(client, &inputs);
    assert_eq!(takeover.text(), once);
    assert_eq!(takeover.back(client)["inputs"], json!(inputs));
}

#[test]
fn a_broken_file_is_refused_with_its_place() {
    let error = Takeover::parse(Path::new("g.toml"), "[servers.a]\ncommand = \n").unwrap_err();
    assert!(error.to_string().starts_with("g.toml:2:11: "), "{error}");
    let mut odd = parse("servers = 1\n");
    let client = find("cursor").unwrap();
    let taken = odd.take(
        client,
        &name("a").unwrap(),
        "a",
        &Normal::default(),
        Differing::Keep,
    );
    assert!(matches!(taken, Err(ClientError::Kind { .. })));
}
