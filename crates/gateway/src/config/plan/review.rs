//! Which parts of a file are approved, and what differs from the approved version.
//!
//! A part is one server's entry, or `[gateway]`. Its hash covers every member and the files it
//! names; comments, order and layout do not count. Only new or changed parts need approval (fault
//! G5). Entry point: [`Review::of`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use super::asks::{self, Asked, Line};
use super::{Entry, Given};
use crate::config::approval::{ApprovedPart, ApprovedParts, Digest, FileApproval};
use crate::config::document::{Node, Value};
use crate::config::{entry, settings};

/// How an unapproved part differs from the approved version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// No entry of this name was approved.
    New,
    /// Its approved content was different.
    Changed,
}

impl Difference {
    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
        }
    }
}

/// A file that needs approval.
#[derive(Debug, Clone)]
pub struct Unapproved {
    /// The file, as it is shown.
    pub path: PathBuf,
    /// What is stored when it is approved.
    pub approval: FileApproval,
    /// Whether no part of it was ever approved.
    pub is_new: bool,
    /// The servers that need approval, in order.
    pub servers: Vec<(String, Difference)>,
    /// How `[gateway]` differs, if it needs approval.
    pub gateway: Option<Difference>,
    /// Approved servers that the file no longer has.
    pub removed: Vec<String>,
    /// How many parts are approved and unchanged.
    pub unchanged: usize,
    /// The lines of the prompt; details are indented. For a file approved before, only differences,
    /// prefixed with `+`, `-` or two blanks.
    pub asks: Vec<String>,
    /// The variables that would be read.
    pub variables: BTreeSet<String>,
    /// The files that the file names, each with its hash.
    pub files: BTreeMap<PathBuf, Option<Digest>>,
}

impl fmt::Display for Unapproved {
    /// Lists what needs approval: `files (changed), search (new)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gateway = self
            .gateway
            .map(|difference| ("[gateway]".to_owned(), difference));
        let parts = self.servers.iter().cloned().chain(gateway);
        let parts = parts
            .map(|(name, difference)| format!("{} ({})", name.escape_debug(), difference.word()));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

/// The approved parts of a file.
#[derive(Debug, Default)]
pub(super) struct Review {
    waiting: BTreeMap<String, Difference>,
    /// Whether `[gateway]` is not approved.
    pub(super) gateway_waits: bool,
    /// Whether any part is approved.
    pub(super) has_approved: bool,
    /// The file, if it needs approval.
    pub(super) unapproved: Option<Unapproved>,
    /// The parts of a file approved as a whole, by an earlier version.
    pub(super) unrecorded: Option<FileApproval>,
}

impl Review {
    /// Compares a file with its approvals.
    pub(super) fn of(
        given: Given<'_>,
        path: &Path,
        text: &Digest,
        entries: &[Entry],
        gateway: Option<&Node>,
        files: &BTreeMap<PathBuf, Option<Digest>>,
    ) -> Self {
        let absolute = given.folder.join(path);
        let digest = text.clone().with_files(files);
        let is_whole = given.approvals.has(&absolute, &digest);
        let known = given.approvals.parts(&absolute);
        let mut report = Report::new(known, is_whole);
        for entry in entries {
            let asked = asks::of_entry(entry, files, given.values());
            let part = part(&asked, entry_digest(entry, files, given));
            let known = known.and_then(|known| known.servers.get(&entry.name));
            if let Some(difference) = report.compare(known, &part, asked) {
                report.servers.push((entry.name.clone(), difference));
            }
            report.parts.servers.insert(entry.name.clone(), part);
        }
        if let Some(gateway) = gateway {
            let named = with_digests(settings::files(gateway, &absolute), files);
            let asked = asks::of_gateway(gateway, &named);
            if !asked.lines.is_empty() {
                let mut bytes = b"gateway\0".to_vec();
                canonical(gateway, &mut bytes);
                let part = part(&asked, Digest::of(&bytes).with_files(&named));
                let known = known.and_then(|known| known.gateway.as_ref());
                report.gateway = report.compare(known, &part, asked);
                report.parts.gateway = Some(part);
            }
        }
        let approval = FileApproval {
            path: absolute,
            digest,
            parts: report.parts.clone(),
        };
        let unrecorded = (is_whole && known.is_none()).then(|| approval.clone());
        report.finish(path, approval, unrecorded, files)
    }

    /// Returns how a server's entry differs from the approved one; `None` if it is approved.
    pub(super) fn difference(&self, name: &str) -> Option<Difference> {
        self.waiting.get(name).copied()
    }

    /// Returns whether the file was approved before.
    pub(super) fn is_new_file(&self) -> bool {
        self.unapproved.as_ref().is_some_and(|file| file.is_new)
    }
}

/// Collects the review of a file, part by part.
struct Report<'a> {
    known: Option<&'a ApprovedParts>,
    is_whole: bool,
    parts: ApprovedParts,
    servers: Vec<(String, Difference)>,
    gateway: Option<Difference>,
    unchanged: usize,
    asks: Vec<String>,
    variables: BTreeSet<String>,
}

impl<'a> Report<'a> {
    fn new(known: Option<&'a ApprovedParts>, is_whole: bool) -> Self {
        Self {
            known,
            is_whole,
            parts: ApprovedParts::default(),
            servers: Vec::new(),
            gateway: None,
            unchanged: 0,
            asks: Vec::new(),
            variables: BTreeSet::new(),
        }
    }

    /// Adds a part; returns how it differs from the approved one, if it does.
    fn compare(
        &mut self,
        known: Option<&ApprovedPart>,
        part: &ApprovedPart,
        asked: Asked,
    ) -> Option<Difference> {
        if self.is_whole || known.is_some_and(|known| known.sha256 == part.sha256) {
            self.unchanged += 1;
            return None;
        }
        self.variables.extend(asked.variables);
        let difference = match known {
            None if self.known.is_none() => {
                self.asks
                    .extend(asked.lines.into_iter().map(|line| line.shown));
                Difference::New
            }
            None => {
                let lines = asked.lines.into_iter();
                self.asks
                    .extend(lines.map(|line| format!("+ {}", line.shown)));
                Difference::New
            }
            Some(known) => {
                self.asks.extend(changed(&known.lines, &asked.lines));
                Difference::Changed
            }
        };
        Some(difference)
    }

    fn finish(
        mut self,
        path: &Path,
        approval: FileApproval,
        unrecorded: Option<FileApproval>,
        files: &BTreeMap<PathBuf, Option<Digest>>,
    ) -> Review {
        let waiting: BTreeMap<_, _> = self.servers.iter().cloned().collect();
        let gateway_waits = self.gateway.is_some();
        let waits = gateway_waits || !waiting.is_empty();
        let known = self.known.map(|known| known.servers.keys());
        let removed: Vec<String> = known
            .into_iter()
            .flatten()
            .filter(|name| !self.parts.servers.contains_key(*name))
            .cloned()
            .collect();
        let gone = removed.iter();
        let gone = gone.map(|name| format!("- {}: no longer in the file", name.escape_debug()));
        self.asks.extend(gone);
        Review {
            waiting,
            gateway_waits,
            has_approved: self.unchanged > 0,
            unapproved: waits.then(|| Unapproved {
                path: path.to_owned(),
                is_new: self.known.is_none(),
                approval,
                servers: self.servers,
                gateway: self.gateway,
                removed,
                unchanged: self.unchanged,
                asks: self.asks,
                variables: self.variables,
                files: files.clone(),
            }),
            unrecorded,
        }
    }
}

fn part(asked: &Asked, sha256: Digest) -> ApprovedPart {
    ApprovedPart {
        sha256,
        lines: asked.lines.iter().map(|line| line.kept.clone()).collect(),
    }
}

/// Returns the differences, below the part's own line.
fn changed(before: &[String], now: &[Line]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(head) = now.first().filter(|head| before.contains(&head.kept)) {
        lines.push(format!("  {}", head.shown));
    }
    let gone = before
        .iter()
        .filter(|line| !now.iter().any(|now| now.kept == **line));
    lines.extend(gone.map(|line| format!("- {}", asks::shown_again(line))));
    let came = now.iter().filter(|line| !before.contains(&line.kept));
    let came: Vec<String> = came.map(|line| format!("+ {}", line.shown)).collect();
    if came.is_empty() && lines.len() <= 1 {
        // No visible difference: show everything.
        return now.iter().map(|line| format!("+ {}", line.shown)).collect();
    }
    lines.extend(came);
    lines
}

/// Returns the hash of an entry's content, and of the files it names.
fn entry_digest(
    entry: &Entry,
    files: &BTreeMap<PathBuf, Option<Digest>>,
    given: Given<'_>,
) -> Digest {
    let mut bytes = b"server\0".to_vec();
    sized(entry.name.as_bytes(), &mut bytes);
    canonical(&entry.node, &mut bytes);
    let named = with_digests(entry::files(entry, given.values()), files);
    Digest::of(&bytes).with_files(&named)
}

/// Returns files with their hashes, as they were read for the whole file.
fn with_digests(
    named: Vec<PathBuf>,
    files: &BTreeMap<PathBuf, Option<Digest>>,
) -> BTreeMap<PathBuf, Option<Digest>> {
    let named = named.into_iter().map(|path| {
        let digest = files.get(&path).cloned().flatten();
        (path, digest)
    });
    named.collect()
}

/// Writes a value canonically: only order and layout are ignored.
fn canonical(node: &Node, bytes: &mut Vec<u8>) {
    match &node.value {
        Value::Null => bytes.push(b'z'),
        Value::Bool(flag) => bytes.extend(if *flag { b"t" } else { b"f" }),
        Value::Number(text) => {
            bytes.push(b'n');
            sized(text.as_bytes(), bytes);
        }
        Value::Text(text) => {
            bytes.push(b's');
            sized(text.as_bytes(), bytes);
        }
        Value::List(list) => {
            bytes.push(b'l');
            bytes.extend((list.len() as u64).to_le_bytes());
            list.iter().for_each(|inner| canonical(inner, bytes));
        }
        Value::Table(table) => {
            bytes.push(b'm');
            bytes.extend((table.members.len() as u64).to_le_bytes());
            let mut members: Vec<_> = table.members.iter().collect();
            members.sort_by(|one, other| one.key.cmp(&other.key));
            for member in members {
                sized(member.key.as_bytes(), bytes);
                canonical(&member.node, bytes);
            }
        }
    }
}

fn sized(text: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text);
}

#[cfg(test)]
mod tests;
