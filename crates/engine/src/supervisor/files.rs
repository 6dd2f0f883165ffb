//! Applies the servers of configuration files, touching only those that changed. They are stored
//! for their identity and order only, without the values of variables: each start reads them from
//! their files again. Entry points: `begin`, then `place` for each.

use std::collections::HashMap;

use gantry_model::id::ServerName;
use gantry_model::spec::{ServerSpec, Source};
use gantry_store::ServerRow;

use super::Supervisor;
use crate::error::EngineError;

/// The changes made by applying a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// New servers.
    pub added: Vec<ServerName>,
    /// Servers whose spec changed, and which were restarted.
    pub changed: Vec<ServerName>,
    /// Removed servers.
    pub removed: Vec<ServerName>,
    /// Unapproved servers that were left out because the API uses their names.
    pub shadowed: Vec<ServerName>,
}

impl Supervisor {
    /// Checks all specs and removes the servers of files that are not among them; returns the rows
    /// stored before. A name that the API uses is refused before anything changes.
    pub(crate) async fn begin(
        &self,
        specs: &[ServerSpec],
        applied: &mut Applied,
    ) -> Result<Vec<ServerRow>, EngineError> {
        // A spec that is only shown may be invalid.
        for spec in specs.iter().filter(|spec| spec.inactive.is_none()) {
            spec.check()?;
        }
        let wanted: HashMap<_, _> = specs.iter().map(|spec| (&spec.name, spec)).collect();
        let turn = self.changing.lock().await;
        if self.stopping.is_cancelled() {
            return Err(EngineError::Stopping);
        }
        let stored = self.store.servers(&self.project).await?;
        let clash = stored.iter().find(|row| {
            row.spec.source == Source::Api
                && wanted
                    .get(&row.spec.name)
                    .is_some_and(|spec| spec.source != Source::Api && !waits(spec))
        });
        if let Some(row) = clash {
            return Err(EngineError::Conflict {
                name: row.spec.name.clone(),
            });
        }
        for row in &stored {
            if row.spec.source == Source::Api || wanted.contains_key(&row.spec.name) {
                continue;
            }
            self.store.remove_server(&self.project, row.id).await?;
            applied.removed.push(row.spec.name.clone());
            if let Some(handle) = self.find(row.spec.name.as_str()) {
                // Only its own name waits for its process to end.
                self.leave(&handle);
            }
        }
        drop(turn);
        Ok(stored)
    }

    /// Returns whether a server of this name runs with another spec.
    pub(crate) fn is_replaced(&self, spec: &ServerSpec) -> bool {
        let running = self.find(spec.name.as_str());
        running.is_some_and(|handle| *handle.spec != *spec)
    }

    /// Applies the spec of one server; `stored` is the result of [`Self::begin`].
    pub(crate) async fn place(
        &self,
        spec: ServerSpec,
        stored: &[ServerRow],
        applied: &mut Applied,
    ) -> Result<(), EngineError> {
        let name = spec.name.clone();
        let turn = self.turn(&name).await?;
        let mut row = self.new_row(&spec).await?;
        if let Some(handle) = self.find(name.as_str()) {
            if *handle.spec == spec {
                return Ok(());
            }
            if handle.spec.source == Source::Api && spec.source != Source::Api {
                if waits(&spec) {
                    applied.shadowed.push(name);
                    return Ok(());
                }
                return Err(EngineError::Conflict { name });
            }
            (row.id, row.created_ms) = (handle.id, handle.created_ms);
            self.store.replace_server(&row).await?;
            applied.changed.push(name);
            let successor = self.succeed(&handle, &row, spec).await;
            drop(turn);
            self.report_registered(&successor);
            return self.gone(&handle).await;
        }
        if let Some(known) = stored.iter().find(|row| row.spec.name == name) {
            if known.spec.source == Source::Api && waits(&spec) {
                applied.shadowed.push(name);
                return Ok(());
            }
            (row.id, row.created_ms) = (known.id, known.created_ms);
        }
        // An unchanged row is not written, since each write waits for the disk.
        let is_stored = |known: &ServerRow| known.spec == row.spec && known.enabled;
        if !stored
            .iter()
            .any(|known| known.id == row.id && is_stored(known))
        {
            self.store.replace_server(&row).await?;
        }
        applied.added.push(name);
        self.add(&row, spec).await;
        drop(turn);
        Ok(())
    }
}

/// Returns whether a server is unapproved or only shown; it reserves no name.
pub(super) fn waits(spec: &ServerSpec) -> bool {
    spec.held().is_some()
}

/// Returns a spec for storage: values from files and built-in servers are read again at each start,
/// so that the values of variables, which may be secrets, stay out of the database.
pub(super) fn stored(spec: &ServerSpec) -> ServerSpec {
    let mut spec = spec.clone();
    if spec.source != Source::Api {
        spec.launch.mask(|_| String::new());
    }
    spec
}
