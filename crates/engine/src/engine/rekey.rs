//! Changes the master key of a data folder whose gateway is stopped. Entry points: [`rekey`] and
//! [`forget_secrets`].

use gantry_store::Store;

use crate::config::EngineConfig;
use crate::credentials::{self, MasterKey, Rekeyed, SignInError};
use crate::error::EngineError;
use crate::folder::DataFolder;

/// Encrypts every secret, token and stored environment with another master key, in one transaction.
/// Without a new key, creates one and replaces `data.key`.
pub async fn rekey(config: &EngineConfig, new: Option<MasterKey>) -> Result<Rekeyed, EngineError> {
    let (folder, store) = open(config).await?;
    let old = config.master_key.clone();
    let done = credentials::rekey(folder.path(), &store, old, new).await;
    close(&store).await;
    Ok(done.map_err(SignInError::from)?)
}

/// Deletes everything that a lost master key had encrypted, so that secrets can be set again;
/// returns how many secrets and tokens were deleted.
pub async fn forget_secrets(config: &EngineConfig) -> Result<usize, EngineError> {
    let (folder, store) = open(config).await?;
    let given = config.master_key.clone();
    let done = credentials::forget_all(folder.path(), &store, given).await;
    close(&store).await;
    Ok(done.map_err(SignInError::from)?)
}

pub(super) async fn open(config: &EngineConfig) -> Result<(DataFolder, Store), EngineError> {
    let folder = DataFolder::take(&config.data_dir)?;
    let store = Store::open(&config.store, &folder.gateway()?).await?;
    Ok((folder, store))
}

pub(super) async fn close(store: &Store) {
    if let Err(error) = store.close().await {
        tracing::warn!(%error, "the store is closed later");
    }
}
