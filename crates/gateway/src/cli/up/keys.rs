//! The keys in the data folder: created at the first start, replaced if lost, and revoked if a
//! client was disconnected while no gateway ran.
//!
//! Entry point: [`keep`].

use std::sync::Arc;

use gantry_engine::{Actor, Engine, EngineError, FirstKeys, KeyView, Project};
use gantry_model::caller::{Caller, KeyKind};
use gantry_model::diagnose::chain;
use gantry_model::id::AgentName;

use crate::cli::failure::{Exit, Failure};
use crate::cli::screen::Screen;
use crate::data_folder::DataFolder;

/// The agent whose key a first start creates.
pub(in crate::cli) const DEFAULT_AGENT: &str = "default";

/// Writes the keys of a first start. A lost agent key is replaced on the authority of the stored
/// admin key; a lost admin key is not.
pub(super) async fn keep(
    folder: &DataFolder,
    engine: &Engine,
    screen: &Screen,
) -> Result<(), Failure> {
    let failed = |error| Failure::of(Exit::Failed, &error);
    let (admin, agent) = (folder.admin_key(), folder.agent_key());
    let written = folder.clone();
    let keep = move |keys: &FirstKeys| {
        let written = written.write_first_keys(&keys.admin, &keys.agent);
        written.map_err(std::io::Error::other)
    };
    let project = engine.default_project();
    if project.first_start(keep).await.map_err(failed)?.is_some() {
        return Ok(());
    }
    revoke(folder, &project).await;
    let by = std::fs::read_to_string(&admin).ok();
    let by = by.and_then(|key| engine.authenticate(key.trim()));
    let Some(by) = by.filter(|caller| caller.kind.is_admin()) else {
        tracing::warn!(file = %admin.display(), "no valid admin key is on file; the verbs need `--key-file`");
        return Ok(());
    };
    let restore = screen.command("agent restore");
    let key = std::fs::read_to_string(&agent).ok();
    match key.map(|key| engine.authenticate(key.trim())) {
        None => replace(folder, &project, &by, &restore).await,
        Some(Some(_)) => Ok(()),
        Some(None) => {
            tracing::warn!(file = %agent.display(), "the agent key on file is not valid; `{restore}` makes another");
            Ok(())
        }
    }
}

/// Creates a key in place of a missing file.
async fn replace(
    folder: &DataFolder,
    project: &Arc<Project>,
    by: &Caller,
    restore: &str,
) -> Result<(), Failure> {
    let file = folder.agent_key();
    let name: AgentName = DEFAULT_AGENT
        .parse()
        .expect("the default agent's name is a name");
    if let Err(EngineError::UnknownAgent { .. }) = project.agent(&name).await {
        // A key would recreate the agent, without grants.
        tracing::warn!(file = %file.display(), "there is no agent key, and no agent `{name}`; `{restore}` makes both");
        return Ok(());
    }
    let label = "made by `gantry up`, because the key file was missing";
    let made = project.create_key(by, KeyKind::Agent, &name, label).await;
    let (id, key) = made.map_err(|error| Failure::of(Exit::Failed, &error))?;
    let written = folder.write_key(&file, &key);
    written.map_err(|error| Failure::of(Exit::Failed, &error))?;
    tracing::warn!(%id, file = %file.display(), "the key file was missing, a new key was made");
    Ok(())
}

/// Revokes the keys of clients that were disconnected while no gateway ran.
async fn revoke(folder: &DataFolder, project: &Arc<Project>) {
    let queued = folder.to_revoke();
    if queued.is_empty() {
        return;
    }
    let revoked = async {
        let keys = project.keys().await?;
        // A key created since then is another one, and in use.
        let is_meant = |key: &KeyView| {
            let until = queued.get(&key.label);
            key.kind == KeyKind::Agent && until.is_some_and(|until| key.created_ms <= *until)
        };
        for key in keys.into_iter().filter(is_meant) {
            let by = Actor::files("gantry connect");
            project.revoke_key(by, key.id).await?;
            tracing::info!(id = %key.id, "the key of a client that was disconnected is revoked");
        }
        Ok::<_, EngineError>(())
    };
    match revoked.await {
        Ok(()) => {
            if let Err(error) = folder.no_longer_revoke(&queued) {
                tracing::warn!(error = %chain(&error), "keys were revoked, but are still listed as keys to revoke");
            }
        }
        Err(error) => {
            tracing::error!(error = %chain(&error), "keys of disconnected clients could not be revoked");
        }
    }
}
