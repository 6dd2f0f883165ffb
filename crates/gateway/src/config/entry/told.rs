//! What is told about one entry while it is read: mistakes, warnings, and what its variables held.

use std::collections::BTreeMap;

use gantry_model::secret::SecretText;

use super::Owner;
use crate::config::document::{Document, Node, Span};
use crate::config::mistake::{Kind, Mistake};

/// What is told about one entry.
pub(in crate::config) struct Told<'d> {
    pub(in crate::config) document: &'d Document,
    pub(in crate::config) owner: Owner,
    server: Option<&'d str>,
    pub(in crate::config) mistakes: Vec<Mistake>,
    pub(in crate::config) warnings: Vec<String>,
    /// What stands in the fields whose variables were filled.
    pub(in crate::config) written: BTreeMap<String, String>,
    pub(in crate::config) variables: BTreeMap<String, SecretText>,
    pub(in crate::config) inputs: BTreeMap<String, SecretText>,
    /// The first field that leads into the folder, whichever folder that is.
    pub(in crate::config) leads_into_folder: Option<String>,
}

impl<'d> Told<'d> {
    pub(in crate::config) fn new(
        document: &'d Document,
        server: Option<&'d str>,
        owner: Owner,
    ) -> Self {
        Self {
            document,
            owner,
            server,
            mistakes: Vec::new(),
            warnings: Vec::new(),
            written: BTreeMap::new(),
            variables: BTreeMap::new(),
            inputs: BTreeMap::new(),
            leads_into_folder: None,
        }
    }

    /// Begins to tell of a mistake of this server.
    pub(in crate::config) fn mistake(&self, span: &Span, kind: Kind) -> Mistake {
        let mistake = self.document.mistake(span, kind);
        match self.server {
            Some(server) => mistake.of_server(server),
            None => mistake,
        }
    }

    pub(in crate::config) fn push(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// Tells that a value is of the wrong kind.
    pub(in crate::config) fn wrong(&mut self, node: &Node, field: &str, wanted: &str, help: &str) {
        let mistake = self.mistake(&node.span, Kind::Value);
        self.push(
            mistake
                .say(format!(
                    "{} must be {wanted}, not {}",
                    shown(field),
                    node.kind()
                ))
                .label(format!("this is {}", node.kind()))
                .help(help),
        );
    }

    pub(super) fn warn(&mut self, span: &Span, what: &str) {
        let (path, line) = (self.document.path.display(), self.document.line(span));
        self.warnings.push(match self.server {
            Some(server) => format!("{path}:{line}: server `{}`: {what}", server.escape_debug()),
            None => format!("{path}:{line}: {what}"),
        });
    }
}

/// `the entry` is said plainly, fields between ticks.
pub(super) fn shown(field: &str) -> String {
    if field.contains(' ') {
        return field.to_owned();
    }
    format!("`{}`", field.escape_debug())
}
