//! Changes the master key of a data folder whose gateway is stopped; each change is an administrative
//! act. Entry points: [`rekey`] and [`forget_secrets`].

use gantry_store::Store;
use serde_json::json;

use crate::acts::{Actor, Acts, Draft, OpenAct, Values};
use crate::audit::ActLog;
use crate::config::EngineConfig;
use crate::credentials::{self, MasterKey, Rekeyed, SignInError, Vault};
use crate::error::EngineError;
use crate::folder::DataFolder;

/// Encrypts every secret, token and stored environment with another master key, in one transaction.
/// Without a new key, creates one and replaces `data.key`.
pub async fn rekey(
    config: &EngineConfig,
    by: &Actor,
    new: Option<MasterKey>,
) -> Result<Rekeyed, EngineError> {
    let (folder, store) = open(config).await?;
    let act = begin(config, (&folder, &store), by, "secret.rekey").await?;
    let old = config.master_key.clone();
    let done = credentials::rekey(folder.path(), &store, old, new).await;
    let done = done.map_err(|error| EngineError::from(SignInError::from(error)));
    let after = done
        .as_ref()
        .ok()
        .map(|done| json!({"key_id": done.key_id, "values": done.values, "servers": done.servers}));
    act.end_with(&done, None, after).await;
    close(&store).await;
    done
}

/// Deletes everything that a lost master key had encrypted, so that secrets can be set again;
/// returns how many secrets and tokens were deleted.
pub async fn forget_secrets(config: &EngineConfig, by: &Actor) -> Result<usize, EngineError> {
    let (folder, store) = open(config).await?;
    let act = begin(config, (&folder, &store), by, "secret.forget").await?;
    let given = config.master_key.clone();
    let done = credentials::forget_all(folder.path(), &store, given).await;
    let done = done.map_err(|error| EngineError::from(SignInError::from(error)));
    let after = done
        .as_ref()
        .ok()
        .map(|removed| json!({"removed": removed}));
    act.end_with(&done, None, after).await;
    close(&store).await;
    done
}

/// Records an act before it is done, while no gateway runs.
async fn begin(
    config: &EngineConfig,
    (folder, store): (&DataFolder, &Store),
    by: &Actor,
    act: &'static str,
) -> Result<OpenAct, EngineError> {
    let log = ActLog::open(folder.path(), store.clone())?;
    let project = config.project.clone();
    let key = config.master_key.clone();
    let vault = Vault::open(folder.path(), project.clone(), store.clone(), key);
    let acts = Acts::new((store.clone(), log), project, Values::new(vault));
    acts.begin(by, Draft::new(act, "master key")).await
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
