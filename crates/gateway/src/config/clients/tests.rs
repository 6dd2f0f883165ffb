//! Where clients keep their files.

use super::*;

fn bases(pairs: &[(&str, &str)]) -> BaseFolders {
    let environment: Environment = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    BaseFolders::new(&environment, Path::new("/srv/shop")).unwrap()
}

#[test]
fn every_client_has_a_file_for_the_person_and_names_are_unique() {
    let at = bases(&[("HOME", "/h")]);
    let mut ids: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
    for client in &CLIENTS {
        let place = client.place(&at, Scope::User);
        assert!(place.is_some(), "{}", client.id);
        assert_eq!(find(client.id).map(|found| found.title), Some(client.title));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), CLIENTS.len());
    assert!(find("emacs").is_none());
}

#[test]
fn what_counts_most_comes_first() {
    let at = bases(&[("HOME", "/h")]);
    for client in &CLIENTS {
        let scopes: Vec<Scope> = client.places(&at).iter().map(|place| place.scope).collect();
        assert!(scopes.is_sorted(), "{}: {scopes:?}", client.id);
    }
    let places = find("claude-code").unwrap().places(&at);
    assert_eq!(places[0].at, ["projects", "/srv/shop", "mcpServers"]);
    assert_eq!(places[1].path, Path::new("/srv/shop/.mcp.json"));
}

#[test]
fn variables_move_the_files() {
    let path = |client: &str, pairs: &[(&str, &str)]| {
        let place = find(client).unwrap().place(&bases(pairs), Scope::User);
        place.unwrap().path
    };
    let home = ("HOME", "/h");
    assert_eq!(
        path("copilot", &[home]),
        Path::new("/h/.copilot/mcp-config.json")
    );
    assert_eq!(
        path("copilot", &[home, ("COPILOT_HOME", "/c")]),
        Path::new("/c/mcp-config.json")
    );
    assert_eq!(
        path("claude-code", &[home, ("CLAUDE_CONFIG_DIR", "/c")]),
        Path::new("/c/.claude.json")
    );
    if cfg!(target_os = "linux") {
        assert_eq!(
            path("vscode", &[home, ("XDG_CONFIG_HOME", "/x")]),
            Path::new("/x/Code/User/mcp.json")
        );
    }
    let error = BaseFolders::new(&Environment::default(), Path::new("/")).unwrap_err();
    assert!(matches!(error, ClientError::NoHome));
}

#[test]
fn a_named_file_is_read_as_its_client_writes_it() {
    let client = |path: &str| of_file(Path::new(path)).id;
    assert_eq!(
        client("/h/.config/Claude/claude_desktop_config.json"),
        "claude-desktop"
    );
    assert_eq!(client(".vscode/mcp.json"), "vscode");
    assert_eq!(client("x/cline_mcp_settings.json"), "cline");
    assert_eq!(client("x/roo-cline/settings/mcp_settings.json"), "roo");
    assert_eq!(client(".kilocode/mcp.json"), "kilo");
    assert_eq!(client("/h/.gemini/settings.json"), "gemini");
    assert_eq!(client(".mcprc"), "kode");
    assert_eq!(client("servers.json"), "claude-code");
}
