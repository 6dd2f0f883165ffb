//! What all files together ask for: each name once, the strongest entry as a whole, its spec, and what
//! waits for a person's word.
//!
//! A file that cannot be read as a whole is an error and nothing is planned; a mistake in one entry
//! leaves out that server. What nobody has approved is inert: it is planned to wait, takes only names
//! that are free, hides nothing, and what is wrong in it spoils nothing. Entry point: [`load`].

mod asks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_model::diagnose::chain;
use gantry_model::spec::ServerSpec;

use super::approval::{Approvals, Digest};
use super::clients::ours;
use super::document::{Document, Syntax, read_text};
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
    /// What holds while an approved file is being written anew and cannot be read.
    pub last_good: &'a LastGood,
}

/// The folder's files that were approved and in force, as they were then.
pub type LastGood = BTreeMap<PathBuf, Arc<Read>>;

/// What all files together ask for.
#[derive(Debug, Default)]
pub struct Plan {
    /// The servers that can be had, in order; those that wait are the last.
    pub servers: Vec<Planned>,
    /// Why others cannot.
    pub mistakes: Vec<Mistake>,
    /// What was read and is of no effect.
    pub warnings: Vec<String>,
    /// What is said of the gateway itself.
    pub settings: Settings,
    /// Files that wait for a person's word.
    pub unapproved: Vec<Unapproved>,
    /// What is wrong in files that nobody has approved, and harms nothing.
    pub ignored: Vec<Ignored>,
    /// Entries that nobody has approved, of names that others have.
    pub shadows: Vec<Shadow>,
    /// The files that are there.
    pub files: Vec<PathBuf>,
    /// The inputs that approved files ask for.
    pub inputs: BTreeSet<String>,
    /// The approved files as they are, for the next plan.
    pub good: LastGood,
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

/// What is wrong in a file that nobody has approved.
#[derive(Debug, Clone)]
pub struct Ignored {
    /// The mistake.
    pub mistake: Mistake,
    /// Whether what was approved of the file before still holds.
    pub last_good_holds: bool,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.last_good_holds {
            true => "not approved, what was approved before holds",
            false => "not approved, left out",
        };
        write!(f, "{what}: {}", chain(&self.mistake))
    }
}

/// An entry that nobody has approved, and the trusted one that has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// The name of both.
    pub name: String,
    /// The file that is not approved.
    pub path: PathBuf,
    /// Where the entry stands, as `file:line`.
    pub place: String,
    /// Where the trusted entry stands, as `file:line`.
    pub by: String,
}

impl fmt::Display for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` at {} is not approved and has no effect: the one at {} counts",
            self.name.escape_debug(),
            self.place,
            self.by
        )
    }
}

impl Plan {
    /// Returns the specs of all servers.
    pub fn specs(&self) -> Vec<ServerSpec> {
        let specs = self.servers.iter().map(|planned| planned.spec.clone());
        specs.collect()
    }

    /// Tells whether no file names any server.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.mistakes.is_empty() && self.ignored.is_empty()
    }
}

/// One file, read.
#[derive(Debug)]
pub struct Read {
    document: Arc<Document>,
    digest: Digest,
}

/// What a source says.
struct Said {
    read: Arc<Read>,
    approved: bool,
    entries: Vec<Entry>,
    settings: Settings,
}

/// An entry and the source that it stands in.
struct Claim<'a> {
    source: &'a Source,
    document: Arc<Document>,
    entry: Entry,
}

impl Claim<'_> {
    fn place(&self) -> String {
        let line = self.document.line(&self.entry.name_span);
        format!("{}:{line}", self.source.path.display())
    }
}

/// Plans what the files ask for.
pub fn load(given: Given<'_>) -> Result<Plan, Vec<Mistake>> {
    let mut plan = Plan::default();
    let mut trusted: Vec<Claim<'_>> = Vec::new();
    let mut waiting: Vec<Claim<'_>> = Vec::new();
    for source in given.sources {
        let Some(said) = plan.hear(given, source)? else {
            continue;
        };
        let Said {
            read,
            approved,
            entries,
            settings,
        } = said;
        if approved {
            if source.root == Root::Own {
                plan.settings = settings;
            }
            if source.trust == Trust::Nobody {
                plan.good.insert(source.path.clone(), Arc::clone(&read));
            }
        } else if !entries.is_empty() || settings != Settings::default() {
            plan.unapproved.push(Unapproved {
                path: source.path.clone(),
                absolute: given.folder.join(&source.path),
                digest: read.digest.clone(),
                asks: asks::asks(&entries, &settings),
            });
        }
        for entry in entries {
            // What `gantry connect` wrote for a client; taken as a server, the gateway would start itself.
            if ours::way_of(&entry.node.to_json()).is_some() {
                plan.warnings.push(format!(
                    "`{}` in `{}` is Gantry itself, and is left out",
                    entry.name.escape_debug(),
                    source.path.display()
                ));
                continue;
            }
            let claim = Claim {
                source,
                document: Arc::clone(&read.document),
                entry,
            };
            if !approved {
                waiting.push(claim);
                continue;
            }
            // The stronger one wins as a whole, in the weaker one's place.
            let known = trusted
                .iter_mut()
                .find(|known| known.entry.name == claim.entry.name);
            match known {
                Some(known) => *known = claim,
                None => trusted.push(claim),
            }
        }
    }
    plan.let_wait(given, waiting, &trusted);
    let last = std::mem::take(&mut plan.servers);
    for claim in trusted {
        plan.take(given, claim);
    }
    plan.servers.extend(last);
    Ok(plan)
}

impl Plan {
    /// Reads a source; a file that is wrong as a whole is an error only if somebody vouches for it.
    fn hear(&mut self, given: Given<'_>, source: &Source) -> Result<Option<Said>, Vec<Mistake>> {
        let text = match read_text(&given.folder.join(&source.path)) {
            Ok(text) => text,
            Err(mistake) => {
                let gone = std::error::Error::source(&mistake)
                    .and_then(|cause| cause.downcast_ref::<io::Error>())
                    .is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound);
                if gone && !source.required {
                    return Ok(None);
                }
                let mistakes = vec![mistake.shown_as(&source.path)];
                return match source.trust {
                    Trust::Person => Err(mistakes),
                    Trust::Nobody => Ok(self.fall_back(given, source, mistakes)),
                };
            }
        };
        if !self.files.contains(&source.path) {
            self.files.push(source.path.clone());
        }
        let digest = Digest::of(&text);
        let absolute = given.folder.join(&source.path);
        let approved = source.trust == Trust::Person || given.approvals.has(&absolute, &digest);
        let document = Document::parse(&source.path, &text, Syntax::of(&source.path));
        let said = document
            .map_err(|mistake| vec![mistake])
            .and_then(|document| {
                let document = Arc::new(document);
                said(Arc::new(Read { document, digest }), source, approved)
            });
        match said {
            Ok(said) => Ok(Some(said)),
            Err(mistakes) if approved => Err(mistakes),
            Err(mistakes) => Ok(self.fall_back(given, source, mistakes)),
        }
    }

    /// Leaves out a file that nobody vouches for; what was approved of it before holds.
    fn fall_back(
        &mut self,
        given: Given<'_>,
        source: &Source,
        mistakes: Vec<Mistake>,
    ) -> Option<Said> {
        let absolute = given.folder.join(&source.path);
        let good = given.last_good.get(&source.path);
        let good = good.filter(|read| given.approvals.has(&absolute, &read.digest));
        let said = good.and_then(|read| said(Arc::clone(read), source, true).ok());
        self.ignored
            .extend(mistakes.into_iter().map(|mistake| Ignored {
                mistake,
                last_good_holds: said.is_some(),
            }));
        said
    }

    /// Plans what nobody has approved: each name that is free, from the strongest file that has it.
    fn let_wait(&mut self, given: Given<'_>, waiting: Vec<Claim<'_>>, trusted: &[Claim<'_>]) {
        for claim in waiting.into_iter().rev() {
            let name = &claim.entry.name;
            if let Some(winner) = trusted.iter().find(|winner| winner.entry.name == *name) {
                self.shadows.push(Shadow {
                    name: name.clone(),
                    path: claim.source.path.clone(),
                    place: claim.place(),
                    by: winner.place(),
                });
                continue;
            }
            let folder = given.folder;
            let reading = entry::read(
                &claim.document,
                &claim.entry,
                claim.source.owner(),
                Fill::AsWritten { folder },
            );
            self.warnings.extend(reading.warnings);
            let ignored = reading.mistakes.into_iter().map(|mistake| Ignored {
                mistake,
                last_good_holds: false,
            });
            self.ignored.extend(ignored);
            let is_free = !self.servers.iter().any(|known| known.entry.name == *name);
            if let Some(mut spec) = reading.spec.filter(|_| is_free) {
                let path = claim.source.path.display();
                spec.needs_approval = Some(format!(
                    "`{path}` is not approved; look at it and run `gantry approve {path}`"
                ));
                self.servers.push(Planned {
                    document: claim.document,
                    entry: claim.entry,
                    spec,
                });
            }
        }
        self.servers.reverse();
        self.shadows.reverse();
    }

    fn take(&mut self, given: Given<'_>, claim: Claim<'_>) {
        let texts = entry::texts(&claim.entry);
        let ids = texts.values().flat_map(|text| expand::inputs(text));
        self.inputs.extend(ids.map(str::to_owned));
        let fill = Fill::From(Values {
            environment: given.environment,
            folder: given.folder,
            inputs: given.inputs,
        });
        let owner = claim.source.owner();
        let reading = entry::read(&claim.document, &claim.entry, owner, fill);
        self.mistakes.extend(reading.mistakes);
        self.warnings.extend(reading.warnings);
        self.servers.extend(reading.spec.map(|spec| Planned {
            document: claim.document,
            entry: claim.entry,
            spec,
        }));
    }
}

/// Finds what a file says at a source's place in it.
fn said(read: Arc<Read>, source: &Source, approved: bool) -> Result<Said, Vec<Mistake>> {
    let found = file::entries(&read.document, &source.root);
    let entries = found.map_err(|mistake| vec![mistake])?;
    let settings = match source.root {
        Root::Own => settings::read(&read.document)?,
        Root::Servers | Root::MaybeServers | Root::Whole | Root::Project(_) => Settings::default(),
    };
    Ok(Said {
        read,
        approved,
        entries,
        settings,
    })
}

/// Returns a file's hash, to tell whether it has changed; nothing if it cannot be read.
pub fn fingerprints(folder: &Path, sources: &[Source]) -> Vec<Option<Digest>> {
    let digests = sources.iter().map(|source| {
        let text = read_text(&folder.join(&source.path)).ok()?;
        Some(Digest::of(&text))
    });
    digests.collect()
}
