//! What `gantry import` lists, merges, keeps and tells.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::{FILES, Home, SECRET};

fn home() -> Home {
    Home::new("/nowhere".into())
}

fn outcomes(report: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(report).unwrap();
    let servers = report["servers"].as_array().unwrap().iter();
    let text =
        |server: &Value, member: &str| server[member].as_str().unwrap_or_default().to_owned();
    servers
        .map(|server| (text(server, "original"), text(server, "outcome")))
        .collect()
}

#[test]
fn without_a_name_what_is_found_is_listed_and_nothing_is_taken() {
    let home = home();
    assert!(
        home.told(&["import"])
            .contains("no client with servers is found")
    );
    home.has("cursor");
    home.has("kode");
    home.write(".gemini/settings.json", "{ \"mcpServers\": { ]");
    let told = home.told(&["import"]);
    assert!(
        told.contains("cursor") && told.contains("postgres, linear"),
        "{told}"
    );
    assert!(
        told.contains("here") && told.contains("everything, sse"),
        "{told}"
    );
    assert!(
        told.contains("cannot be read: ") && told.contains("settings.json:1:19: "),
        "{told}"
    );
    let items: Value = serde_json::from_str(&home.told(&["import", "--json"])).unwrap();
    assert_eq!(items["items"].as_array().unwrap().len(), 4, "{items:#}");
    assert_eq!(home.own(), "");
}

#[test]
fn a_dry_run_shows_the_change_without_values() {
    let home = home();
    home.has("cursor");
    let told = home.told(&["import", "cursor", "--dry-run"]);
    for part in [
        "+[servers.postgres]",
        "+[servers.linear.headers]",
        "+X-Token = \"…\"",
        "\"--token=…\"",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.contains("https://mcp.linear.app/mcp?…"), "{told}");
    assert_eq!(home.own(), "");
}

#[test]
fn what_is_taken_is_private_and_says_so() {
    let home = home();
    home.has("claude-desktop");
    let told = home.told(&["import", "claude-desktop"]);
    assert!(
        told.contains("contains the values of BRAVE_API_KEY, LANG"),
        "{told}"
    );
    assert!(home.own().contains(SECRET));
    let mode = fs::metadata(home.folder().join("gantry.toml"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn comments_and_servers_of_the_own_file_stay() {
    let home = home();
    home.has("claude-desktop");
    let own = "# ours\n[servers.filesystem]\ncommand = \"mine\" # not theirs\nstart = \"lazy\"\n";
    fs::write(home.folder().join("gantry.toml"), own).unwrap();
    let report = home.told(&["import", "claude-desktop", "--json"]);
    let kept = |outcome: &str| {
        vec![
            ("filesystem".to_owned(), outcome.to_owned()),
            ("brave_search".to_owned(), "added".to_owned()),
        ]
    };
    assert_eq!(outcomes(&report), kept("kept"));
    assert!(home.own().starts_with(own), "{}", home.own());
    let backup = home.folder().join("gantry.toml.bak");
    assert_eq!(fs::read_to_string(backup).unwrap(), own);
    let report = home.told(&["import", "claude-desktop", "--replace", "--json"]);
    assert_eq!(outcomes(&report)[0].1, "replaced");
    let now = home.own();
    assert!(
        now.contains("# ours")
            && now.contains("start = \"lazy\"")
            && now.contains("command = \"npx\""),
        "{now}"
    );
}

#[test]
fn the_folder_wins_over_the_home_and_names_are_made_to_fit() {
    let home = home();
    let server = |command: &str| json!({"mcpServers": {"x": {"command": command}}}).to_string();
    home.write(".cursor/mcp.json", &server("home"));
    home.write("shop/.cursor/mcp.json", &server("folder"));
    home.told(&["import", "cursor"]);
    assert!(
        home.own().contains("command = \"folder\""),
        "{}",
        home.own()
    );

    home.has("cline");
    let told = home.told(&["import", "cline"]);
    let name = "github.com-modelcontextprotocol-servers-tree-main-src-puppeteer";
    assert!(told.contains(name) && home.own().contains(name), "{told}"); // fault G2
    let scoped = super::text(&home.run(&["import", "cursor", "--scope", "local"]));
    assert!(
        scoped.contains("no servers of Cursor are found"),
        "{scoped}"
    );
}

#[test]
fn files_are_read_by_name_or_as_the_person_says() {
    let home = home();
    let text = json!({"mcpServers": {"x": {"command": "x", "timeout": 30}}}).to_string();
    home.write("shop/cline_mcp_settings.json", &text);
    home.write("shop/other.json", &text);
    home.told(&["import", "cline_mcp_settings.json", "--into", "a.toml"]);
    home.told(&["import", "other.json", "--form", "roo", "--into", "b.toml"]);
    for own in ["a.toml", "b.toml"] {
        let text = fs::read_to_string(home.folder().join(own)).unwrap();
        assert!(text.contains("timeout = \"30s\""), "{text}");
    }
    home.write("shop/.mcprc", "{\"bare\": {\"command\": \"x\"}}");
    home.told(&["import", ".mcprc", "--into", "c.toml"]);
    assert!(
        fs::read_to_string(home.folder().join("c.toml"))
            .unwrap()
            .contains("[servers.bare]")
    );
}

#[test]
fn everything_can_be_taken_at_once_and_a_second_time_changes_nothing() {
    let home = home();
    for (client, _) in FILES {
        home.has(client);
    }
    home.told(&["import", "--all"]);
    let own = home.own();
    let again = home.told(&["import", "--all", "--json"]);
    assert_eq!(home.own(), own);
    assert!(
        outcomes(&again)
            .iter()
            .all(|(_, outcome)| outcome == "unchanged" || outcome == "kept"),
        "{again}"
    );
    // Two clients have a server of this name, and they differ.
    assert_eq!(own.matches("[servers.github]").count(), 1);
}
