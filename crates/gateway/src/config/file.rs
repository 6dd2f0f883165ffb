//! Locates the servers in a file: under `mcpServers`, as the whole file, under one of several
//! projects, or in `gantry.toml`.
//!
//! Does not interpret entries (see `entry`). Entry point: [`entries`].

use std::path::{Path, PathBuf};

use super::diagnostic::{Diagnostic, Kind, meant};
use super::document::{Document, Member, Node, Syntax, Table};
use super::entry::Entry;

/// Where the servers are in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// Under `mcpServers`, which is required.
    Servers,
    /// Under `mcpServers`, if present: the file is mostly about other things.
    MaybeServers,
    /// The whole file is a map of servers.
    Whole,
    /// Under `projects`, the folder's path, `mcpServers`.
    Project(PathBuf),
    /// `gantry.toml`: under `servers`, beside `gateway` and `version`.
    Own,
}

impl Root {
    /// Returns where the servers are in a file named by the user.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy());
        match name.as_deref() {
            Some(".mcprc") => Self::Whole,
            Some(".kode.json") => Self::MaybeServers,
            _ if Syntax::of(path) == Syntax::Toml => Self::Own,
            _ => Self::Servers,
        }
    }
}

/// The keys of `gantry.toml`.
pub const OWN_KEYS: [&str; 3] = ["version", "gateway", "servers"];

/// Other names of the map of servers, for a hint.
const OTHER_ROOTS: [&str; 4] = ["servers", "mcp_servers", "mcpservers", "context_servers"];

/// Returns the entries of a file, in order, and its other errors: with those, no entry may be run,
/// but all can be shown.
pub fn entries(document: &Document, root: &Root) -> (Vec<Entry>, Vec<Diagnostic>) {
    let mut mistakes = match (root, document.root.as_table()) {
        (Root::Own, Some(table)) => check_own(document, table),
        (Root::Own | Root::Servers | Root::MaybeServers | Root::Whole | Root::Project(_), _) => {
            Vec::new()
        }
    };
    match found(document, root) {
        Ok(entries) => (entries, mistakes),
        Err(diagnostic) => {
            mistakes.push(diagnostic);
            (Vec::new(), mistakes)
        }
    }
}

fn found(document: &Document, root: &Root) -> Result<Vec<Entry>, Diagnostic> {
    let Some(table) = document.root.as_table() else {
        return Err(document
            .diagnostic(&document.root.span, Kind::Syntax)
            .say(format!(
                "the file must hold a table, not {}",
                document.root.kind()
            ))
            .label("this")
            .help(shape(root)));
    };
    let servers = match root {
        Root::Servers => {
            let member = only(document, table, "mcpServers")?;
            Some(member.ok_or_else(|| no_servers(document, table))?)
        }
        Root::MaybeServers => only(document, table, "mcpServers")?,
        Root::Own => only(document, table, "servers")?,
        Root::Project(folder) => of_project(document, table, folder)?,
        Root::Whole => match only(document, table, "mcpServers")? {
            Some(member) => Some(member),
            None => return members(document, &document.root),
        },
    };
    servers.map_or(Ok(Vec::new()), |member| members(document, &member.node))
}

fn members(document: &Document, servers: &Node) -> Result<Vec<Entry>, Diagnostic> {
    let Some(table) = servers.as_table() else {
        return Err(document
            .diagnostic(&servers.span, Kind::Syntax)
            .say(format!(
                "servers must be a table by name, not {}",
                servers.kind()
            ))
            .label("this")
            .help("write `{\"NAME\": {\"command\": \"…\", \"args\": []}}`"));
    };
    if let Some(second) = servers.repeated() {
        return Err(repeated(document, second));
    }
    let entries = table.members.iter().map(|member| Entry {
        name: member.key.clone(),
        name_span: member.key_span.clone(),
        node: member.node.clone(),
    });
    Ok(entries.collect())
}

/// Returns a member that may occur once.
fn only<'t>(
    document: &Document,
    table: &'t Table,
    key: &str,
) -> Result<Option<&'t Member>, Diagnostic> {
    let mut all = table.members.iter().filter(|member| member.key == key);
    let first = all.next();
    match all.next() {
        Some(second) => Err(repeated(document, second)),
        None => Ok(first),
    }
}

/// Returns the error of a member that is there twice.
pub(super) fn repeated(document: &Document, second: &Member) -> Diagnostic {
    let name = second.key.escape_debug();
    document
        .diagnostic(&second.key_span, Kind::Repeated)
        .say(format!("`{name}` is defined twice"))
        .label("the second one")
        .help("keep one of them")
}

fn no_servers(document: &Document, table: &Table) -> Diagnostic {
    let similar = table.members.iter().find(|member| {
        let key = member.key.to_lowercase();
        OTHER_ROOTS.contains(&key.as_str()) || meant(&member.key, ["mcpServers"]).is_some()
    });
    let span = similar.map_or(0..0, |member| member.key_span.clone());
    let diagnostic = document
        .diagnostic(&span, Kind::Syntax)
        .say("`mcpServers` is missing");
    match similar {
        Some(_) => diagnostic
            .label("is this it?")
            .help("rename it to `mcpServers`"),
        None => diagnostic.help(shape(&Root::Servers)),
    }
}

fn of_project<'t>(
    document: &Document,
    table: &'t Table,
    folder: &Path,
) -> Result<Option<&'t Member>, Diagnostic> {
    let projects = only(document, table, "projects")?;
    let projects = projects.and_then(|member| member.node.as_table());
    let Some(projects) = projects else {
        return Ok(None);
    };
    let Some(project) = only(document, projects, &folder.to_string_lossy())? else {
        return Ok(None);
    };
    match project.node.as_table() {
        Some(project) => only(document, project, "mcpServers"),
        None => Ok(None),
    }
}

/// Returns all errors at the top level of `gantry.toml`.
fn check_own(document: &Document, table: &Table) -> Vec<Diagnostic> {
    let mut mistakes = Vec::new();
    for member in &table.members {
        // Kept by imports for the export.
        let kept = member.key.starts_with("x-");
        if !OWN_KEYS.contains(&member.key.as_str()) && !kept {
            let diagnostic = document
                .diagnostic(&member.key_span, Kind::UnknownKey)
                .say(format!("`{}` is not known", member.key.escape_debug()))
                .label("not known here");
            mistakes.push(match meant(&member.key, OWN_KEYS) {
                Some(name) => diagnostic.help(format!("did you mean `{name}`?")),
                None => {
                    diagnostic.help("known are `[gateway]`, `[servers.NAME]` and `version = 1`")
                }
            });
        }
    }
    match table.get("version") {
        Some(version) if !matches!(&version.node.value, super::document::Value::Number(number) if number == "1") =>
        {
            mistakes.push(
                document
                    .diagnostic(&version.node.span, Kind::Value)
                    .say("`version` must be 1")
                    .label("this program reads version 1 only")
                    .help("write `version = 1`, or update Gantry"),
            );
        }
        Some(_) | None => {}
    }
    mistakes
}

fn shape(root: &Root) -> &'static str {
    match root {
        Root::Own => "write `[servers.NAME]` and under it `command = \"…\"`",
        Root::Whole => "write `{\"NAME\": {\"command\": \"…\", \"args\": []}}`",
        Root::Servers | Root::MaybeServers | Root::Project(_) => {
            "write `{\"mcpServers\": {\"NAME\": {\"command\": \"…\", \"args\": []}}}`"
        }
    }
}
