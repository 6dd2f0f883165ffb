//! Diagnostics of one entry while it is read: errors, warnings, and the values of its variables.

use std::collections::BTreeMap;

use gantry_model::secret::{SecretText, Template};

use super::Owner;
use crate::config::diagnostic::{Diagnostic, Kind};
use crate::config::document::{Document, Node, Span};

/// The diagnostics of one entry.
pub(in crate::config) struct Diagnostics<'d> {
    pub(in crate::config) document: &'d Document,
    pub(in crate::config) owner: Owner,
    server: Option<&'d str>,
    pub(in crate::config) mistakes: Vec<Diagnostic>,
    pub(in crate::config) warnings: Vec<String>,
    /// The original text of expanded fields.
    pub(in crate::config) written: BTreeMap<String, String>,
    pub(in crate::config) variables: BTreeMap<String, SecretText>,
    pub(in crate::config) inputs: BTreeMap<String, SecretText>,
    /// Values of variables and headers with placeholders for the project's secrets.
    pub(in crate::config) templates: BTreeMap<String, Template>,
    /// Where those values stand.
    pub(in crate::config) places: BTreeMap<String, String>,
    /// The first field that points into the folder.
    pub(in crate::config) leads_into_folder: Option<String>,
}

impl<'d> Diagnostics<'d> {
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
            templates: BTreeMap::new(),
            places: BTreeMap::new(),
            leads_into_folder: None,
        }
    }

    /// Creates a diagnostic for this server.
    pub(in crate::config) fn diagnostic(&self, span: &Span, kind: Kind) -> Diagnostic {
        let diagnostic = self.document.diagnostic(span, kind);
        match self.server {
            Some(server) => diagnostic.of_server(server),
            None => diagnostic,
        }
    }

    pub(in crate::config) fn push(&mut self, diagnostic: Diagnostic) {
        self.mistakes.push(diagnostic);
    }

    /// Reports a value of the wrong type.
    pub(in crate::config) fn wrong(&mut self, node: &Node, field: &str, wanted: &str, help: &str) {
        let diagnostic = self.diagnostic(&node.span, Kind::Value);
        self.push(
            diagnostic
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
        if self.owner == Owner::Api {
            self.warnings.push(what.to_owned());
            return;
        }
        let at = self.document.diagnostic(span, Kind::Value).say(what);
        self.warnings.push(match self.server {
            Some(server) => at.of_server(server).to_string(),
            None => at.to_string(),
        });
    }
}

/// `the entry` without backticks, fields with.
pub(super) fn shown(field: &str) -> String {
    if field.contains(' ') {
        return field.to_owned();
    }
    format!("`{}`", field.escape_debug())
}
