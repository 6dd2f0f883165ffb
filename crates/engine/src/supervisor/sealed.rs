//! The environments of registered servers, sealed in the store: rows hold names and ciphertext, memory
//! holds values. row 1.3, faults K4 and K6

use std::collections::BTreeMap;

use gantry_model::id::ServerName;
use gantry_model::spec::{InactiveReason, Launch, ServerSpec, Source};
use gantry_store::ServerRow;

use super::Supervisor;
use crate::error::EngineError;

impl Supervisor {
    /// Returns the rows of all servers, the environments of registered ones opened.
    pub(super) async fn opened_rows(&self) -> Result<Vec<ServerRow>, EngineError> {
        let rows = self.store.servers(&self.project).await?;
        let opened = rows.into_iter().map(|row| ServerRow {
            spec: self.opened(row.spec),
            ..row
        });
        Ok(opened.collect())
    }

    /// Seals what a stored spec has in its environment.
    pub(super) fn sealed(&self, mut spec: ServerSpec) -> Result<ServerSpec, EngineError> {
        let name = spec.name.clone();
        if spec.source != Source::Api {
            return Ok(spec);
        }
        let vault = &self.context.vault;
        for (variable, value) in environment(&mut spec.launch).into_iter().flatten() {
            *value = vault.seal(&place(&name, variable), value)?;
        }
        Ok(spec)
    }

    /// Seals what a registration asks for while it waits for a second person.
    pub(crate) fn seal_registration(&self, id: &str, text: &str) -> Result<String, EngineError> {
        Ok(self.context.vault.seal(&registration(id), text)?)
    }

    /// Opens what a registration asks for.
    pub(crate) fn unseal_registration(&self, id: &str, sealed: &str) -> Option<String> {
        self.context.vault.unseal(&registration(id), sealed)
    }

    /// Opens the environment of a stored spec. One that cannot be opened is shown and never started.
    fn opened(&self, mut spec: ServerSpec) -> ServerSpec {
        let (name, vault) = (spec.name.clone(), &self.context.vault);
        if spec.source != Source::Api {
            return spec;
        }
        let mut lost = Vec::new();
        for (variable, value) in environment(&mut spec.launch).into_iter().flatten() {
            match vault.unseal(&place(&name, variable), value) {
                Some(plain) => *value = plain,
                None => {
                    lost.push(format!("`{variable}`"));
                    value.clear();
                }
            }
        }
        if !lost.is_empty() {
            spec.inactive = Some(InactiveReason::Misconfigured(format!(
                "the stored values of {} cannot be decrypted with the key of this data folder; register \
                 the server again",
                lost.join(", ")
            )));
        }
        spec
    }
}

fn environment(launch: &mut Launch) -> Option<&mut BTreeMap<String, String>> {
    match launch {
        Launch::Process(process) => Some(&mut process.env),
        Launch::Image(image) => Some(&mut image.env),
        Launch::Remote(_) => None,
    }
}

fn registration(id: &str) -> [&str; 3] {
    ["kb.mcp_registrations", id, "request"]
}

fn place<'a>(server: &'a ServerName, variable: &'a str) -> [&'a str; 3] {
    ["kb.project_mcp_servers", server.as_str(), variable]
}
