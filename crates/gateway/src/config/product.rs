//! The manifest of a product, JSON or YAML: its name and version, and the servers in `mcp.servers`,
//! parsed by the same code and with the same names as a registration. All errors are reported at
//! once, each with its line and column. Entry point: [`Manifest::read`].

use std::path::Path;

use gantry_model::spec::ServerSpec;
use sha2::{Digest as _, Sha256};

use super::diagnostic::{Diagnostic, Kind};
use super::document::{Document, Node, Syntax, Value, place};
use super::entry::{Entry, Fill, Owner, read};
use super::file::repeated;

/// The longest manifest, in bytes.
pub(crate) const LONGEST: usize = 1 << 20;
/// The maximum number of servers of a product.
const MOST_SERVERS: usize = 100;
/// The member of a manifest that is read; others belong to other parts of the product.
const MCP: &str = "mcp";

/// A product, according to its manifest.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its description.
    pub(crate) description: String,
    /// Its servers, in the manifest's order.
    pub(crate) servers: Vec<ServerSpec>,
    /// The SHA-256 of the text.
    pub(crate) hash: String,
}

/// An error in a manifest: a message with line and column, and a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestError {
    /// Its position as a JSON pointer; empty for the whole manifest.
    pub(crate) path: String,
    /// The message, with line and column.
    pub(crate) message: String,
}

impl Manifest {
    /// Parses a manifest: JSON if it begins with `{`, else YAML.
    pub(crate) fn read(text: &str) -> Result<Self, Vec<ManifestError>> {
        let whole = |message: &str| {
            vec![ManifestError {
                path: String::new(),
                message: message.to_owned(),
            }]
        };
        if text.len() > LONGEST {
            return Err(whole("the manifest is longer than 1 MiB"));
        }
        let syntax = match text.trim_start().starts_with('{') {
            true => Syntax::Json,
            false => Syntax::Yaml,
        };
        let path = Path::new("manifest");
        let document = Document::parse(path, text.as_bytes(), syntax)
            .map_err(|error| vec![manifest_error(None, text, &error)])?;
        // What is shown is what everybody reads: of two members others may take the other one.
        if let Some(second) = document.root.repeated() {
            let error = repeated(&document, second);
            return Err(vec![manifest_error(Some(&document), text, &error)]);
        }
        let mut reader = Reader {
            document: &document,
            mistakes: Vec::new(),
        };
        let name = reader.text("name", true);
        let version = reader.text("version", true);
        let description = reader.text("description", false);
        let servers = reader.servers();
        let is_name = name.parse::<gantry_model::id::AgentName>().is_ok();
        if !is_name && reader.mistakes.is_empty() {
            reader.at(
                "name",
                "must be letters, digits, `.`, `_` and `-`, at most 64",
            );
        }
        match reader.mistakes.is_empty() {
            true => Ok(Self {
                name,
                version,
                description,
                servers,
                hash: gantry_model::hex::hex(&Sha256::digest(text.as_bytes())),
            }),
            false => Err(reader.mistakes),
        }
    }
}

struct Reader<'d> {
    document: &'d Document,
    mistakes: Vec<ManifestError>,
}

impl Reader<'_> {
    /// Records an error in a member of the manifest itself.
    fn at(&mut self, member: &str, said: &str) {
        let root = &self.document.root;
        let span = root.find(member).map_or(0..0, |node| node.span.clone());
        let diagnostic = self.document.diagnostic(&span, Kind::Value);
        let diagnostic = diagnostic.say(format!("`{member}` {said}"));
        let mut found = manifest_error(Some(self.document), &self.document.text, &diagnostic);
        found.path = format!("/{member}");
        self.mistakes.push(found);
    }

    fn text(&mut self, member: &str, is_needed: bool) -> String {
        let node = self.document.root.find(member);
        match node.map(|node| &node.value) {
            Some(Value::Text(text) | Value::Number(text)) if (1..=256).contains(&text.len()) => {
                return text.chars().filter(|letter| !letter.is_control()).collect();
            }
            None if !is_needed => {}
            None => self.at(member, "is missing"),
            Some(_) => self.at(member, "must be a text of at most 256 characters"),
        }
        String::new()
    }

    fn servers(&mut self) -> Vec<ServerSpec> {
        let servers = self.document.root.find(MCP);
        let servers = servers.and_then(|mcp| mcp.find("servers"));
        let Some(servers) = servers.cloned() else {
            self.at(MCP, "must have `servers`");
            return Vec::new();
        };
        let entries = self.entries(&servers);
        if entries.len() > MOST_SERVERS {
            self.at(MCP, "has more than 100 servers");
            return Vec::new();
        }
        let mut specs: Vec<ServerSpec> = Vec::new();
        for entry in entries {
            let folder = Path::new("/");
            let reading = read(
                self.document,
                &entry,
                Owner::Api,
                Fill::AsWritten { folder },
            );
            for diagnostic in &reading.mistakes {
                let found = manifest_error(Some(self.document), &self.document.text, diagnostic);
                self.mistakes.push(found);
            }
            match reading.spec {
                Some(spec) if specs.iter().any(|known| known.name == spec.name) => {
                    self.at(MCP, &format!("has two servers `{}`", spec.name));
                }
                spec => specs.extend(spec),
            }
        }
        specs
    }

    /// Returns the entries of a map by name, or of a list whose entries contain their names.
    fn entries(&mut self, servers: &Node) -> Vec<Entry> {
        if let Some(table) = servers.as_table() {
            let members = table.members.iter();
            let entries = members.map(|member| Entry {
                name: member.key.clone(),
                name_span: member.key_span.clone(),
                node: member.node.clone(),
            });
            return entries.collect();
        }
        let Some(list) = servers.as_list() else {
            self.at(MCP, "must have `servers`, a map by name or a list");
            return Vec::new();
        };
        let entries = list.iter().map(|node| {
            let name = node.find("name");
            Entry {
                name: name.and_then(Node::as_text).unwrap_or_default().to_owned(),
                name_span: name.map_or_else(|| node.span.clone(), |name| name.span.clone()),
                node: node.clone(),
            }
        });
        entries.collect()
    }
}

fn manifest_error(
    document: Option<&Document>,
    text: &str,
    diagnostic: &Diagnostic,
) -> ManifestError {
    let (line, column) = place(text, diagnostic.span().start);
    let pointer = document.and_then(|document| document.pointer(diagnostic.span()));
    ManifestError {
        path: pointer.unwrap_or_default(),
        message: format!("line {line}, column {column}: {}", diagnostic.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // row 0.2
    #[test]
    fn json_and_yaml_say_the_same() {
        let yaml = "name: suite\nversion: 1.2\nmcp:\n  servers:\n    search:\n      command: npx\n      \
                    args: [-y, '@acme/search']\n      env: {KEY: '${SEARCH_KEY}'}\n    docs:\n      url: \
                    https://docs.example.com/mcp\n      transport: sse\n";
        let json = r#"{"name": "suite", "version": "1.2", "mcp": {"servers": [
            {"name": "search", "command": "npx", "args": ["-y", "@acme/search"],
             "env": {"KEY": "${SEARCH_KEY}"}},
            {"name": "docs", "url": "https://docs.example.com/mcp", "transport": "sse"}]}}"#;
        let (yaml, json) = (Manifest::read(yaml).unwrap(), Manifest::read(json).unwrap());
        assert_eq!((&yaml.name, &yaml.version), (&json.name, &json.version));
        assert_eq!(yaml.version, "1.2");
        assert_eq!(yaml.servers, json.servers);
        assert_eq!(yaml.servers.len(), 2);
        assert_ne!(yaml.hash, json.hash);
    }

    // fault G1
    #[test]
    fn all_mistakes_are_told_with_their_places() {
        let text =
            "version: 1\nmcp:\n  servers:\n    a:\n      comand: x\n    'b c':\n      command: y\n";
        let mistakes = Manifest::read(text).unwrap_err();
        let told: Vec<&str> = mistakes
            .iter()
            .map(|found| found.message.as_str())
            .collect();
        let has = |said: &str| told.iter().any(|message| message.contains(said));
        assert!(has("`name` is missing"), "{told:?}");
        assert!(has("line 5, column 7"), "{told:?}");
        assert!(told.len() >= 3, "{told:?}");
        let two =
            "name: a\nversion: 1\nmcp: {servers: [{name: x, command: a}, {name: x, command: b}]}\n";
        assert!(
            Manifest::read(two).unwrap_err()[0]
                .message
                .contains("two servers")
        );
        // Of a member that is there twice, another reader takes the other.
        for text in [
            r#"{"name": "x", "name": "y", "version": "1", "mcp": {"servers": {}}}"#,
            r#"{"name": "x", "version": "1", "mcp": {"servers": {"a": {"command": "b", "command": "c"}}}}"#,
        ] {
            let mistakes = Manifest::read(text).unwrap_err();
            let said = &mistakes[0].message;
            assert!(said.contains("is defined twice"), "{said}");
        }
        let long = format!("name: {}", "x".repeat(LONGEST));
        assert!(
            Manifest::read(&long).unwrap_err()[0]
                .message
                .contains("1 MiB")
        );
    }
}
