//! The offers of a manifest: each package and remote that Gantry can run, or why it cannot, the
//! best first. Entry points: [`Manifest::offers`] and [`Offer::entry`].

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::document::{Manifest, Package, Remote, TransportKind};
use super::inputs::{Answers, Input, Question, Slot};
use super::reader::Wrong;
use super::{command, image};

/// The kind of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An image, which Gantry runs isolated and without further software.
    Oci,
    /// A package of npm, run by `npx`.
    Npm,
    /// A package of PyPI, run by `uvx`.
    PyPi,
    /// A remote server.
    Remote,
}

impl Kind {
    /// Returns the kind as written after `--package`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Oci => "oci",
            Self::Npm => "npm",
            Self::PyPi => "pypi",
            Self::Remote => "remote",
        }
    }

    /// Returns the local program that it needs.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Npm | Self::PyPi => Some(command::runner(self)),
            Self::Oci | Self::Remote => None,
        }
    }
}

/// One way to run a server.
#[derive(Debug, Clone)]
pub struct Offer<'m> {
    /// The kind.
    pub kind: Kind,
    source: Source<'m>,
}

#[derive(Debug, Clone, Copy)]
enum Source<'m> {
    Package(&'m Package),
    Remote(&'m Remote),
}

/// A package or a remote, and whether it can be used.
#[derive(Debug, Clone)]
pub struct Offered<'m> {
    /// A description, such as `npm package \`name\``.
    pub what: String,
    /// The kind; `None` if Gantry does not support it.
    pub kind: Option<Kind>,
    /// The way to run it, or all reasons against it.
    pub offer: Result<Offer<'m>, Vec<Wrong>>,
}

impl Manifest {
    /// Returns all offers of the manifest, the best first: images, then packages, then remote
    /// servers.
    pub fn offers(&self) -> Vec<Offered<'_>> {
        let packages = self.packages.iter().map(offered_package);
        let remotes = self.remotes.iter().map(offered_remote);
        let mut offers: Vec<Offered<'_>> = packages.chain(remotes).collect();
        offers.sort_by_key(|offered| offered.kind.map_or(u8::MAX, |kind| kind as u8));
        offers
    }
}

fn offered_package(package: &Package) -> Offered<'_> {
    let kind = match package.registry_type.as_str() {
        "oci" => Some(Kind::Oci),
        "npm" => Some(Kind::Npm),
        "pypi" => Some(Kind::PyPi),
        _ => None,
    };
    let shown: String = package.identifier.chars().take(120).collect();
    let what = format!("{} package `{shown}`", package.registry_type);
    let mut wrong = Vec::new();
    let Some(kind) = kind else {
        let why = format!(
            "is `{}`, which Gantry does not run: npm, pypi, oci and remotes are",
            package.registry_type
        );
        wrong.push(Wrong::new(format!("{}.registryType", package.at), why));
        return Offered {
            what,
            kind: None,
            offer: Err(wrong),
        };
    };
    match kind {
        Kind::Oci => image::check(package, &mut wrong),
        Kind::Npm | Kind::PyPi | Kind::Remote => command::check(kind, package, &mut wrong),
    }
    let arguments = package.runtime_arguments.iter();
    for argument in arguments.chain(&package.package_arguments) {
        argument.check(&mut wrong);
    }
    let offer = Offer {
        kind,
        source: Source::Package(package),
    };
    if wrong.is_empty() {
        // Forbidden requests of a manifest are refused before the user is asked anything.
        wrong.extend(offer.try_out());
    }
    Offered {
        what,
        kind: Some(kind),
        offer: if wrong.is_empty() {
            Ok(offer)
        } else {
            Err(wrong)
        },
    }
}

fn offered_remote(remote: &Remote) -> Offered<'_> {
    let url = remote.transport.url.as_deref().unwrap_or_default();
    let shown: String = url.chars().take(120).collect();
    let mut wrong = Vec::new();
    if !url.starts_with("https://") && !url.starts_with("http://") && !url.starts_with('{') {
        let why = "must start with `https://`";
        wrong.push(Wrong::new(format!("{}.url", remote.at), why));
    }
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if url.contains("${") || authority.contains('@') {
        let why = "has credentials or a variable of this machine in it";
        wrong.push(Wrong::new(format!("{}.url", remote.at), why));
    }
    let offer = Offer {
        kind: Kind::Remote,
        source: Source::Remote(remote),
    };
    if wrong.is_empty() {
        wrong.extend(offer.try_out());
    }
    Offered {
        what: format!("remote `{shown}`"),
        kind: Some(Kind::Remote),
        offer: if wrong.is_empty() {
            Ok(offer)
        } else {
            Err(wrong)
        },
    }
}

impl Offer<'_> {
    /// Returns the questions to the user, each slot once, required ones first.
    pub fn questions(&self) -> Vec<Question> {
        let mut questions: BTreeMap<Slot, Question> = BTreeMap::new();
        let mut order = Vec::new();
        for question in self.all_questions() {
            match questions.get_mut(&question.slot) {
                Some(known) => {
                    known.input.is_secret |= question.input.is_secret;
                    known.input.is_required |= question.input.is_required;
                    known.is_repeated |= question.is_repeated;
                }
                None => {
                    order.push(question.slot.clone());
                    questions.insert(question.slot.clone(), question);
                }
            }
        }
        let mut questions: Vec<Question> = order
            .into_iter()
            .filter_map(|slot| questions.remove(&slot))
            .collect();
        questions.sort_by_key(|question| !question.needs_answer());
        questions
    }

    fn all_questions(&self) -> Vec<Question> {
        let mut questions = Vec::new();
        match self.source {
            Source::Package(package) => {
                let arguments = package.runtime_arguments.iter();
                for argument in arguments.chain(&package.package_arguments) {
                    let slot = argument.slot();
                    questions.extend(argument.input.questions(&slot, argument.is_repeated));
                }
                for variable in &package.variables {
                    let slot = Slot::Env(variable.name.clone());
                    questions.extend(variable.input.questions(&slot, false));
                }
            }
            Source::Remote(remote) => {
                let url = url_input(remote);
                questions.extend(url.questions(&Slot::Arg("url".to_owned()), false));
                for header in &remote.transport.headers {
                    let slot = Slot::Header(header.name.clone());
                    questions.extend(header.input.questions(&slot, false));
                }
            }
        }
        questions
    }

    /// Returns the members of the server's entry, or all errors in the answers. Paths are relative
    /// to `folder`.
    pub fn entry(
        &self,
        answers: &Answers,
        folder: &Path,
    ) -> Result<Map<String, Value>, Vec<Wrong>> {
        let mut wrong = Vec::new();
        let entry = match (self.source, self.kind) {
            (Source::Package(package), Kind::Oci) => image::plan(package, answers, &mut wrong),
            (Source::Package(package), kind) => {
                command::plan(kind, package, answers, folder, &mut wrong)
            }
            (Source::Remote(remote), _) => remote_entry(remote, answers, &mut wrong),
        };
        match wrong.is_empty() {
            true => Ok(entry),
            false => Err(wrong),
        }
    }

    /// Returns further notes for the user.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Source::Package(package) = self.source {
            if let (Some(url), Some(program)) = (&package.base_url, self.kind.program()) {
                notes.push(format!(
                    "the manifest names the package registry {url}; `{program}` asks the one it is \
                     configured with"
                ));
            }
            let hint = package.runtime_hint.as_deref();
            if let (Some(hint), Some(program)) = (hint, self.kind.program())
                && hint != program
            {
                notes.push(format!(
                    "the manifest suggests `{hint}`; `{program}` is used"
                ));
            }
            let mut arguments = package
                .runtime_arguments
                .iter()
                .chain(&package.package_arguments);
            if arguments.any(|argument| argument.input.is_secret) {
                notes.push(
                    "a secret is an argument of the command: every user who can list processes can \
                     read it"
                        .to_owned(),
                );
            }
        }
        if self.kind == Kind::Oci {
            notes.push(
                "it reaches no network unless `--egress HOST:PORT` or `--network full` says so"
                    .to_owned(),
            );
        }
        notes
    }

    /// Tries made-up answers, to find out whether the offer can work at all.
    fn try_out(&self) -> Vec<Wrong> {
        let mut answers = Answers::default();
        for question in self.questions() {
            let input = &question.input;
            let invented = input.choices.first().cloned().unwrap_or_else(|| {
                let text = match input.format {
                    super::inputs::Format::Number => "1",
                    super::inputs::Format::Boolean => "true",
                    super::inputs::Format::Text | super::inputs::Format::Path => "x",
                };
                text.to_owned()
            });
            if input.default.is_none() && input.is_required {
                answers.give(question.slot, invented);
            }
        }
        self.entry(&answers, Path::new("/"))
            .err()
            .unwrap_or_default()
    }
}

/// Returns the URL of a remote server as an input.
fn url_input(remote: &Remote) -> Input {
    Input {
        is_required: true,
        value: remote.transport.url.clone(),
        variables: remote.variables.clone(),
        at: format!("{}.url", remote.at),
        ..Input::default()
    }
}

fn remote_entry(remote: &Remote, answers: &Answers, wrong: &mut Vec<Wrong>) -> Map<String, Value> {
    let mut entry = Map::new();
    let slot = Slot::Arg("url".to_owned());
    let url = url_input(remote).values(&slot, answers, None, wrong).pop();
    entry.insert("url".to_owned(), url.unwrap_or_default().into());
    let transport = match remote.transport.kind {
        TransportKind::Sse => "sse",
        TransportKind::StreamableHttp | TransportKind::Stdio => "streamable-http",
    };
    entry.insert("transport".to_owned(), transport.into());
    let mut headers = Map::new();
    for header in &remote.transport.headers {
        let slot = Slot::Header(header.name.clone());
        let value = header.input.values(&slot, answers, None, wrong).pop();
        if let Some(value) = value {
            headers.insert(header.name.clone(), value.into());
        }
    }
    entry.insert("headers".to_owned(), headers.into());
    entry
}
