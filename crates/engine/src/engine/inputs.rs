//! Answers to the inputs of configuration files (`${input:id}`), stored encrypted, so that a user
//! answers once. For a data folder whose gateway is not started yet. Entry points: [`kept_inputs`]
//! and [`keep_inputs`].

use std::collections::BTreeSet;

use gantry_store::Store;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::rekey::{close, open};
use crate::config::EngineConfig;
use crate::credentials::{SignInError, Vault};
use crate::error::EngineError;

/// An answer, and the input it belongs to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptInput {
    /// The file with the input.
    pub file: String,
    /// Identifies the file and the entry as they were when the input was answered.
    pub scope: String,
    /// The id of the input.
    pub id: String,
    /// The answer.
    pub answer: String,
}

impl std::fmt::Debug for KeptInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptInput")
            .field("file", &self.file)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl KeptInput {
    /// Returns its name in the store, of a fixed length.
    fn name(&self) -> String {
        let text = [self.scope.as_str(), &self.id].join("\0");
        gantry_model::hex::hex(&Sha256::digest(text))
    }
}

/// Returns the stored answers.
pub async fn kept_inputs(config: &EngineConfig) -> Result<Vec<KeptInput>, EngineError> {
    let (folder, store) = open(config).await?;
    let vault = vault(config, folder.path(), &store);
    let kept = read(&vault, &store).await;
    close(&store).await;
    Ok(kept?)
}

/// Stores these answers, and deletes all other answers for the same files.
pub async fn keep_inputs(config: &EngineConfig, answers: &[KeptInput]) -> Result<(), EngineError> {
    let (folder, store) = open(config).await?;
    let vault = vault(config, folder.path(), &store);
    let kept = write(&vault, &store, answers).await;
    close(&store).await;
    Ok(kept?)
}

fn vault(config: &EngineConfig, folder: &std::path::Path, store: &Store) -> Vault {
    let (project, key) = (config.project.clone(), config.master_key.clone());
    Vault::open(folder, project, store.clone(), key)
}

async fn read(vault: &Vault, store: &Store) -> Result<Vec<KeptInput>, SignInError> {
    vault.prepare().await?;
    let mut kept = Vec::new();
    for row in store.all_sealed().await? {
        if vault.is_input(&row) {
            let plain = vault.open_row(&row)?;
            kept.extend(serde_json::from_slice::<KeptInput>(&plain));
        }
    }
    Ok(kept)
}

async fn write(vault: &Vault, store: &Store, answers: &[KeptInput]) -> Result<(), SignInError> {
    let known = read(vault, store).await?;
    let inputs = vault.inputs();
    let files: BTreeSet<&str> = answers.iter().map(|answer| answer.file.as_str()).collect();
    let is_old =
        |known: &&KeptInput| files.contains(known.file.as_str()) && !answers.contains(known);
    for old in known.iter().filter(is_old) {
        inputs.remove(&old.name()).await?;
    }
    for answer in answers.iter().filter(|answer| !known.contains(answer)) {
        inputs.put(&answer.name(), answer).await?;
    }
    Ok(())
}
