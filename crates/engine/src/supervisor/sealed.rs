//! The encrypted fields of registered servers (`Vault::seal_spec`): decrypted when rows are read,
//! and encrypted at the next start if an earlier release stored them in plain text. row 1.3,
//! faults K4 and K6

use gantry_model::spec::{InactiveReason, ServerSpec};
use gantry_store::ServerRow;
use tracing::{info, warn};

use super::Supervisor;
use crate::credentials::{SignInError, Vault};
use crate::error::EngineError;

impl Supervisor {
    /// Returns the rows of all servers, with the fields of registered ones decrypted. A server
    /// whose fields cannot be decrypted is shown and never started.
    pub(super) async fn opened_rows(&self) -> Result<Vec<ServerRow>, EngineError> {
        let rows = self.store.servers(&self.project).await?;
        let mut opened = Vec::with_capacity(rows.len());
        let mut any_sealed = false;
        for row in rows {
            let (row, is_sealed) = self.opened(row).await;
            opened.push(row);
            any_sealed |= is_sealed;
        }
        if any_sealed {
            self.clean().await;
        }
        Ok(opened)
    }

    /// Overwrites the freed pages of values that were stored in clear.
    async fn clean(&self) {
        match self.store.rewrite().await {
            Ok(true) => info!("rewrote the database without values in clear"),
            Ok(false) => warn!(
                "values that were stored in clear may be left in free pages of the database; vacuum it"
            ),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(
                    error,
                    "values that were stored in clear may be left in free pages of the database"
                );
            }
        }
    }

    /// Encrypts the private fields of a spec for storage.
    pub(super) async fn sealed(&self, spec: ServerSpec) -> Result<ServerSpec, EngineError> {
        let vault = &self.context.vault;
        if Vault::is_private(&spec) {
            vault.take_up().await.map_err(SignInError::from)?;
        }
        Ok(vault.seal_spec(spec).map_err(SignInError::from)?)
    }

    /// Encrypts a registration that waits for approval.
    pub(crate) fn seal_registration(&self, id: &str, text: &str) -> Result<String, EngineError> {
        let sealed = self.context.vault.seal(&registration(id), text);
        Ok(sealed.map_err(SignInError::from)?)
    }

    /// Decrypts a registration.
    pub(crate) fn unseal_registration(&self, id: &str, sealed: &str) -> Option<String> {
        self.context.vault.unseal(&registration(id), sealed).ok()
    }

    async fn opened(&self, mut row: ServerRow) -> (ServerRow, bool) {
        let mut is_sealed = false;
        let stored = row.spec.clone();
        let opened = self.context.vault.open_spec(stored);
        row.spec = opened.spec;
        if let Some((fields, why)) = opened.lost {
            row.spec.inactive = Some(InactiveReason::Misconfigured(format!(
                "the stored values of {} cannot be decrypted ({why}); give the gateway the key that \
                 they were stored with, or register the server again",
                fields.join(", ")
            )));
        } else if opened.is_clear {
            let server = row.spec.name.clone();
            match self.seal_row(&row).await {
                Ok(()) => {
                    info!(%server, "values that were stored in clear are encrypted now");
                    is_sealed = true;
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    warn!(%server, error, "values that are stored in clear cannot be encrypted");
                }
            }
        }
        (row, is_sealed)
    }

    /// Rewrites a row; the old content is overwritten in the file and removed from the write-ahead
    /// log.
    async fn seal_row(&self, row: &ServerRow) -> Result<(), EngineError> {
        let mut sealed = row.clone();
        sealed.spec = self.sealed(sealed.spec).await?;
        Ok(self.store.replace_server(&sealed).await?)
    }
}

fn registration(id: &str) -> [&str; 3] {
    ["kb.mcp_registrations", id, "request"]
}
