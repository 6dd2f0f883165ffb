//! What all files together ask for: each name once, the strongest entry as a whole, its spec, and what
//! waits for a person's word.
//!
//! A file that cannot be read as a whole is an error and nothing is planned; a mistake in one entry
//! leaves out that server. What nobody has approved is planned to wait, its variables unfilled and its
//! `[gateway]` without effect. Entry point: [`load`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_model::spec::ServerSpec;

use super::approval::{Approvals, Digest};
use super::clients::ours;
use super::document::{Document, Node, Syntax, Value, read_text};
use super::entry::{self, Entry, Fill};
use super::env::Environment;
use super::expand::{self, Values};
use super::file::{self, Root};
use super::mistake::Mistake;
use super::settings::{self, Settings};
use super::source::{Source, Trust};

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The files, the weakest first.
    pub sources: &'a [Source],
    /// What was approved.
    pub approvals: &'a Approvals,
    /// The environment.
    pub environment: &'a Environment,
    /// The folder whose configuration it is.
    pub folder: &'a Path,
    /// What the person was asked for.
    pub inputs: &'a BTreeMap<String, String>,
}

/// What all files together ask for.
#[derive(Debug, Default)]
pub struct Plan {
    /// The servers that can be had, in order.
    pub servers: Vec<Planned>,
    /// Why others cannot.
    pub mistakes: Vec<Mistake>,
    /// What was read and is of no effect.
    pub warnings: Vec<String>,
    /// What is said of the gateway itself.
    pub settings: Settings,
    /// Files that wait for a person's word.
    pub unapproved: Vec<Unapproved>,
    /// The files that are there.
    pub files: Vec<PathBuf>,
    /// The inputs that approved files ask for.
    pub inputs: BTreeSet<String>,
}

/// A server and where it stands.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its file.
    pub document: Arc<Document>,
    /// Its entry there.
    pub entry: Entry,
    /// What is wanted of it.
    pub spec: ServerSpec,
}

/// A file that waits for a person's word.
#[derive(Debug, Clone)]
pub struct Unapproved {
    /// The file, as it is shown.
    pub path: PathBuf,
    /// The file by its absolute path.
    pub absolute: PathBuf,
    /// The hash of what was read.
    pub digest: Digest,
    /// What it would run, a line each.
    pub asks: Vec<String>,
}

impl Plan {
    /// Returns the specs of all servers.
    pub fn specs(&self) -> Vec<ServerSpec> {
        let specs = self.servers.iter().map(|planned| planned.spec.clone());
        specs.collect()
    }

    /// Tells whether no file names any server.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.mistakes.is_empty()
    }
}

/// One file, read.
struct Read {
    document: Arc<Document>,
    digest: Digest,
}

/// Plans what the files ask for.
pub fn load(given: Given<'_>) -> Result<Plan, Vec<Mistake>> {
    let mut plan = Plan::default();
    let mut read: BTreeMap<&Path, Option<Read>> = BTreeMap::new();
    let mut winners: Vec<(usize, Arc<Document>, Entry)> = Vec::new();
    let mut approved = vec![true; given.sources.len()];
    for (index, source) in given.sources.iter().enumerate() {
        if !read.contains_key(source.path.as_path()) {
            let file = read_file(given.folder, source).map_err(|mistake| vec![mistake])?;
            plan.files
                .extend(file.is_some().then(|| source.path.clone()));
            read.insert(&source.path, file);
        }
        let Some(file) = read.get(source.path.as_path()).and_then(Option::as_ref) else {
            continue;
        };
        let found = file::entries(&file.document, &source.root).map_err(|mistake| vec![mistake])?;
        let said = match source.root {
            Root::Own => settings::read(&file.document)?,
            Root::Servers | Root::MaybeServers | Root::Whole | Root::Project(_) => {
                Settings::default()
            }
        };
        let absolute = given.folder.join(&source.path);
        approved[index] =
            source.trust == Trust::Person || given.approvals.has(&absolute, &file.digest);
        if approved[index] {
            if source.root == Root::Own {
                plan.settings = said;
            }
        } else if !found.is_empty() || said != Settings::default() {
            plan.unapproved.push(Unapproved {
                path: source.path.clone(),
                absolute,
                digest: file.digest.clone(),
                asks: asks(&found, &said),
            });
        }
        for entry in found {
            // What `gantry connect` wrote for a client; taken as a server, the gateway would start itself.
            if ours::way_of(&entry.node.to_json()).is_some() {
                plan.warnings.push(format!(
                    "`{}` in `{}` is Gantry itself, and is left out",
                    entry.name.escape_debug(),
                    source.path.display()
                ));
                continue;
            }
            let winner = (index, Arc::clone(&file.document), entry);
            // The stronger one wins as a whole, in the weaker one's place.
            match winners
                .iter_mut()
                .find(|known| known.2.name == winner.2.name)
            {
                Some(known) => *known = winner,
                None => winners.push(winner),
            }
        }
    }
    for (index, document, entry) in winners {
        let source = &given.sources[index];
        plan.take(given, source, approved[index], document, entry);
    }
    Ok(plan)
}

impl Plan {
    fn take(
        &mut self,
        given: Given<'_>,
        source: &Source,
        approved: bool,
        document: Arc<Document>,
        entry: Entry,
    ) {
        let fill = if approved {
            let texts = entry::texts(&entry);
            let ids = texts.values().flat_map(|text| expand::inputs(text));
            self.inputs.extend(ids.map(str::to_owned));
            Fill::From(Values {
                environment: given.environment,
                folder: given.folder,
                inputs: given.inputs,
            })
        } else {
            Fill::AsWritten {
                folder: given.folder,
            }
        };
        let reading = entry::read(&document, &entry, source.owner(), fill);
        self.mistakes.extend(reading.mistakes);
        self.warnings.extend(reading.warnings);
        if let Some(mut spec) = reading.spec {
            if !approved {
                let path = source.path.display();
                spec.needs_approval = Some(format!(
                    "`{path}` is not approved; look at it and run `gantry approve {path}`"
                ));
            }
            self.servers.push(Planned {
                document,
                entry,
                spec,
            });
        }
    }
}

fn read_file(folder: &Path, source: &Source) -> Result<Option<Read>, Mistake> {
    let text = match read_text(&folder.join(&source.path)) {
        Ok(text) => text,
        Err(mistake) => {
            let gone = std::error::Error::source(&mistake)
                .and_then(|cause| cause.downcast_ref::<io::Error>())
                .is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound);
            if gone && !source.required {
                return Ok(None);
            }
            return Err(mistake.shown_as(&source.path));
        }
    };
    let digest = Digest::of(&text);
    let document = Document::parse(&source.path, &text, Syntax::of(&source.path))?;
    Ok(Some(Read {
        document: Arc::new(document),
        digest,
    }))
}

/// Returns what a file would run, in a person's words: commands, and the names of variables.
fn asks(entries: &[Entry], settings: &Settings) -> Vec<String> {
    let mut lines: Vec<String> = entries
        .iter()
        .map(|entry| format!("{}: {}", entry.name.escape_debug(), wish(&entry.node)))
        .collect();
    let said = settings.origins.iter();
    lines.extend(said.map(|(key, (_, written))| format!("[gateway] {key} = {written}")));
    lines
}

fn wish(node: &Node) -> String {
    let text = |path: &str| node.find(path).and_then(Node::as_text);
    if let Some(url) = text("url").or_else(|| text("httpUrl")) {
        return format!("connects to {}", url.escape_debug());
    }
    let mut words = vec![text("command").unwrap_or("(no command)").to_owned()];
    for word in node
        .find("args")
        .and_then(Node::as_list)
        .unwrap_or_default()
    {
        words.push(word.as_text().unwrap_or("…").to_owned());
    }
    let plain = |word: &String| {
        let odd = word.is_empty() || word.contains(|c: char| c.is_whitespace() || c.is_control());
        if odd {
            format!("'{}'", word.escape_debug())
        } else {
            word.escape_debug().to_string()
        }
    };
    let mut wish = format!(
        "runs {}",
        words.iter().map(plain).collect::<Vec<_>>().join(" ")
    );
    let env = node.find("env").and_then(Node::as_table);
    let names: Vec<&str> = env
        .into_iter()
        .flat_map(|table| table.members.iter().map(|member| member.key.as_str()))
        .collect();
    if !names.is_empty() {
        wish.push_str(&format!(", sets {}", names.join(", ").escape_debug()));
    }
    if let Some(cwd) = text("cwd") {
        wish.push_str(&format!(", in {}", cwd.escape_debug()));
    }
    for key in ["allow_shell", "allow_env"] {
        let allowed = node.find(key).map(|node| &node.value);
        if allowed.is_some_and(|value| !matches!(value, Value::Bool(false))) {
            wish.push_str(&format!(", with `{key}`"));
        }
    }
    wish
}

/// Returns a file's hash, to tell whether it has changed; nothing if it cannot be read.
pub fn fingerprints(folder: &Path, sources: &[Source]) -> Vec<Option<Digest>> {
    let digests = sources.iter().map(|source| {
        let text = read_text(&folder.join(&source.path)).ok()?;
        Some(Digest::of(&text))
    });
    digests.collect()
}
