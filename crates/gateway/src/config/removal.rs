//! Removes one server from a configuration file's text; everything else is kept, comments included.
//!
//! Entry point: [`without`].

use std::path::Path;

use toml_edit::{DocumentMut, Item, TableLike};

use super::clients::ClientError;
use super::clients::document::Document;
use super::document::Syntax;

/// Returns a file's text without a server; `None` if there is none of that name. `project` selects
/// the folder's section of a home file, which takes precedence; other sections under `projects` are
/// ignored.
pub fn without(
    path: &Path,
    text: &str,
    name: &str,
    project: Option<&Path>,
) -> Result<Option<String>, ClientError> {
    match Syntax::of(path) {
        Syntax::Toml => toml(path, text, name),
        // Files with servers are never YAML.
        Syntax::Json | Syntax::Yaml => json(path, text, name, project),
    }
}

fn json(
    path: &Path,
    text: &str,
    name: &str,
    project: Option<&Path>,
) -> Result<Option<String>, ClientError> {
    let document = Document::parse(path, text)?;
    let servers = || "mcpServers".to_owned();
    let project = project.map(|folder| folder.to_string_lossy().into_owned());
    let project = project.map(|folder| vec!["projects".to_owned(), folder, servers()]);
    // Highest precedence first.
    let places = project.into_iter().chain([vec![servers()], Vec::new()]);
    for at in places {
        let has = |known: &str| document.servers(&at).iter().any(|(name, _)| *name == known);
        if has(name) {
            return document.remove(&at, name).map(Some);
        }
        if at.len() == 1 && document.value().get("mcpServers").is_some() {
            // Otherwise the file itself is not a map of servers.
            break;
        }
    }
    Ok(None)
}

fn toml(path: &Path, text: &str, name: &str) -> Result<Option<String>, ClientError> {
    let mut document = text.parse::<DocumentMut>().map_err(|error| {
        let byte = error.span().map_or(0, |span| span.start);
        let detail = error.message().lines().next().unwrap_or_default();
        ClientError::at(path, text, byte, detail)
    })?;
    let servers = document.get_mut("servers");
    let Some(servers) = servers.and_then(Item::as_table_like_mut) else {
        return Ok(None);
    };
    let Some(removed) = servers.remove(name) else {
        return Ok(None);
    };
    let table = removed.as_table();
    let position = table.and_then(toml_edit::Table::position);
    let prefix = table.and_then(|table| table.decor().prefix()?.as_str());
    // Comments directly above the entry belong to it; a blank line separates.
    let kept = prefix.and_then(|prefix| prefix.rfind("\n\n").map(|at| &prefix[..at + 1]));
    let kept = kept
        .filter(|kept| !kept.trim().is_empty())
        .map(str::to_owned);
    if let Some(kept) = kept
        && !hand_on(servers, position, &kept)
    {
        let trailing = document.trailing().as_str().unwrap_or_default();
        let trailing = format!("{kept}{trailing}");
        document.set_trailing(trailing);
    }
    Ok(Some(document.to_string()))
}

/// Moves comments to the next server; returns whether there is one.
fn hand_on(servers: &mut dyn TableLike, position: Option<isize>, kept: &str) -> bool {
    let next = servers
        .iter_mut()
        .filter_map(|(_, item)| item.as_table_mut())
        .filter(|table| table.position() > position)
        .min_by_key(|table| table.position());
    let Some(next) = next else {
        return false;
    };
    let own = next.decor().prefix().and_then(|prefix| prefix.as_str());
    let own = own.unwrap_or_default().to_owned();
    let blank = if own.starts_with('\n') { "" } else { "\n" };
    next.decor_mut().set_prefix(format!("{kept}{blank}{own}"));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(path: &str, text: &str, name: &str) -> Option<String> {
        without(Path::new(path), text, name, None).unwrap()
    }

    #[test]
    fn the_rest_of_a_client_file_stays_byte_for_byte() {
        let text = "{\n  // first\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // one\n    // two\n    \"b\": {\"command\": \"y\"}\n  },\n  \"other\": 1\n}\n";
        let left = out(".mcp.json", text, "a").unwrap();
        assert!(
            left.contains("// two\n    \"b\": {\"command\": \"y\"}\n  },\n  \"other\": 1\n}\n")
        );
        assert!(left.starts_with("{\n  // first\n") && !left.contains("\"a\""));
        assert_eq!(out(".mcp.json", text, "c"), None);
        assert_eq!(out(".mcp.json", text, "other"), None);
        let bare = "{\"a\": {\"command\": \"x\"}, \"b\": {\"command\": \"y\"}}";
        assert_eq!(
            out(".mcprc", bare, "a").unwrap().replace(' ', ""),
            "{\"b\":{\"command\":\"y\"}}"
        );
        let both = r#"{"mcpServers": {"a": {"command": "x"}}, "projects": {"/w": {"mcpServers": {"a": {"command": "z"}}}}}"#;
        let of_home = |folder: &str| {
            let left = without(
                Path::new("/h/.kode.json"),
                both,
                "a",
                Some(Path::new(folder)),
            );
            left.unwrap().unwrap()
        };
        let left = of_home("/w");
        assert!(left.contains("\"x\"") && !left.contains("\"z\""), "{left}");
        // Sections of other folders do not apply, and a folder's own file has none.
        for left in [of_home("/v"), out(".kode.json", both, "a").unwrap()] {
            assert!(!left.contains("\"x\"") && left.contains("\"z\""), "{left}");
        }
    }

    #[test]
    fn comments_of_gantry_toml_stay_but_for_those_of_the_entry() {
        let text = "# my servers\n\n# about a\n[servers.a] # here\ncommand = \"x\"\n[servers.a.env]\nT = \"1\"\n\n# about b\n[servers.b]\ncommand = \"y\"\n\n[gateway]\naudit = \"os\" # safe\n";
        let left = out("gantry.toml", text, "a").unwrap();
        assert_eq!(
            left,
            "# my servers\n\n# about b\n[servers.b]\ncommand = \"y\"\n\n[gateway]\naudit = \"os\" # safe\n"
        );
        let left = out("gantry.toml", &left, "b").unwrap();
        assert!(
            !left.contains("servers.b") && left.contains("# safe"),
            "{left}"
        );
        assert!(left.contains("# my servers"), "{left}");
        assert_eq!(out("gantry.toml", text, "c"), None);
        let inline = "servers = { a = { command = \"x\" }, b = { command = \"y\" } }\n";
        let left = out("gantry.toml", inline, "a").unwrap();
        assert!(!left.contains("\"x\"") && left.contains("\"y\""), "{left}");
    }
}
