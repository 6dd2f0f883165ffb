//! Encrypts everything in a store with another master key, or deletes what a lost key had sealed.
//! The gateway of the data folder must be stopped. Entry points: [`rekey`] and [`forget_all`].
//!
//! The store changes in one transaction and records which key it needs. A new key of the data
//! folder is first written beside the old one and replaces it last; the next start completes an
//! interrupted change.

use std::path::Path;

use gantry_model::id::ProjectName;
use gantry_model::spec::Source;
use gantry_store::Store;
use zeroize::Zeroizing;

use super::key::{FILE, Key, MasterKey, NEXT_FILE, VaultError};
use super::{Vault, bound_row, decrypt, encrypt};

/// The result of a change of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// How many secrets and tokens were encrypted again.
    pub values: usize,
    /// How many registered servers were encrypted again.
    pub servers: usize,
    /// The id of the new key.
    pub key_id: String,
}

/// Encrypts everything with `new`, or with a new key of the data folder if it is `None`.
pub(crate) async fn rekey(
    folder: &Path,
    store: &Store,
    old: Option<MasterKey>,
    new: Option<MasterKey>,
) -> Result<Rekeyed, VaultError> {
    let vault = Vault::open(folder, ProjectName::local(), store.clone(), old);
    vault.prepare().await?;
    let of_folder = new.is_none();
    let new = new.unwrap_or_else(MasterKey::random);
    let (from, to) = (vault.key()?, Key::new(&new));
    let mut rows = Vec::new();
    for mut row in store.all_sealed().await? {
        if row.key_id != from.id {
            return Err(from.not(&row.key_id));
        }
        let bound = bound_row(&row);
        let sealed = [&*row.nonce, &*row.ciphertext].concat();
        let plain = decrypt(&from.cipher, &sealed, &bound)?;
        let (nonce, ciphertext) = encrypt(&to.cipher, &plain, &bound)?;
        (row.nonce, row.ciphertext) = (nonce.to_vec(), ciphertext);
        row.key_id.clone_from(&to.id);
        // Fingerprints depend on the key, too; those of named secrets are computed again.
        let print = row
            .scope
            .is_empty()
            .then(|| print_of(&to, &bound, &plain))
            .flatten();
        rows.push((row, print));
    }
    let sealing = Vault::open(
        folder,
        ProjectName::local(),
        store.clone(),
        Some(new.clone()),
    );
    let mut servers = Vec::new();
    for project in store.projects().await? {
        for mut row in store.servers(&project).await? {
            if row.spec.source != Source::Api {
                continue;
            }
            let opened = vault.of(&project).open_spec(row.spec);
            if let Some((_, why)) = opened.lost {
                return Err(why);
            }
            row.spec = sealing.of(&project).seal_spec(opened.spec)?;
            servers.push(row);
        }
    }
    let next = folder.join(NEXT_FILE);
    let file_error = |source| VaultError::File {
        path: next.clone(),
        source,
    };
    if of_folder {
        new.write(&next).map_err(file_error)?;
    }
    store.reseal(&rows, &servers, &to.id).await?;
    if of_folder {
        std::fs::rename(&next, folder.join(FILE)).map_err(file_error)?;
    }
    Ok(Rekeyed {
        values: rows.len(),
        servers: servers.len(),
        key_id: to.id,
    })
}

fn print_of(key: &Key, place: &[u8], plain: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Kept {
        value: String,
    }
    let kept: Kept = serde_json::from_slice(plain).ok()?;
    let value = Zeroizing::new(kept.value);
    Some(key.fingerprint(place, &value))
}

/// Deletes everything that a lost key had sealed, so that a new key can be used; returns how many
/// secrets and tokens were deleted. Secret fields of registered servers stay unreadable until the
/// servers are registered again.
pub(crate) async fn forget_all(
    folder: &Path,
    store: &Store,
    given: Option<MasterKey>,
) -> Result<usize, VaultError> {
    let rows = store.all_sealed().await?;
    for row in &rows {
        store
            .remove_sealed(&row.project, &row.scope, &row.name)
            .await?;
    }
    let new = match given {
        Some(given) => given,
        None => {
            let (new, path) = (MasterKey::random(), folder.join(FILE));
            let written = new.write(&path);
            written.map_err(|source| VaultError::File { path, source })?;
            new
        }
    };
    store.reseal(&[], &[], &new.id()).await?;
    Ok(rows.len())
}
