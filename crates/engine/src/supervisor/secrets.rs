//! Restarts the servers whose secrets have changed, and no others. fault K7

use std::sync::Arc;

use futures_util::future::join_all;
use gantry_model::id::ServerName;
use gantry_model::secret::SecretName;
use gantry_model::spec::ServerSpec;
use gantry_model::status::ServerState;
use tokio::sync::MutexGuard;

use super::Supervisor;
use crate::error::EngineError;
use crate::server::handle::ServerHandle;

impl Supervisor {
    /// Returns the spec of a server as given, with references to secrets.
    pub(crate) fn spec_of(&self, server: &ServerName) -> Option<Arc<ServerSpec>> {
        let handle = self.find(server.as_str())?;
        Some(Arc::clone(&handle.spec))
    }

    /// Locks changes of secrets and the restarts that follow.
    pub(crate) async fn turn_of_secrets(&self) -> MutexGuard<'_, ()> {
        self.changing_secrets.lock().await
    }

    /// Restarts the servers that refer to a secret, or `only` one of them; returns which. A sleeping
    /// server gets it when it wakes.
    pub(crate) async fn restart_users(
        &self,
        secret: &SecretName,
        only: Option<&ServerName>,
    ) -> Vec<ServerName> {
        let is_meant = |name: &ServerName| only.is_none_or(|only| only == name);
        let names = |handle: &Arc<ServerHandle>| {
            let templates = handle.spec.templates();
            let names = templates.iter().flat_map(|(_, template)| template.names());
            names.into_iter().any(|name| name == secret)
        };
        let all = self.all().into_iter();
        let all = all.filter(|handle| is_meant(&handle.spec.name));
        let users: Vec<_> = all.filter(names).filter(is_awake).collect();
        self.restart_all(users).await
    }

    /// Restarts the servers whose secrets another gateway has changed, and those that wait for one.
    pub(super) async fn follow_secrets(&self) -> Result<(), EngineError> {
        let _turn = self.turn_of_secrets().await;
        let users = self.all().into_iter();
        let users: Vec<_> = users
            .filter(|handle| !handle.spec.templates().is_empty())
            .filter(is_awake)
            .collect();
        if users.is_empty() {
            return Ok(());
        }
        let rows = self.store.secrets(&self.project).await?;
        let is_stale = |handle: &Arc<ServerHandle>| {
            let used = handle.secrets_used.lock();
            let waits = handle.status.borrow().state == ServerState::Misconfigured;
            let mut known = used.iter();
            waits
                || known.any(|(name, version)| {
                    let row = rows.iter().find(|row| row.sealed.name == name.as_str());
                    row.is_none_or(|row| row.sealed.version != *version)
                })
        };
        let stale = users.into_iter().filter(is_stale).collect();
        self.restart_all(stale).await;
        Ok(())
    }

    async fn restart_all(&self, servers: Vec<Arc<ServerHandle>>) -> Vec<ServerName> {
        let restarts = servers.iter().map(|handle| async {
            // The secrets already received cause no further restart.
            handle.secrets_used.lock().clear();
            // A server that is held for another reason stays held.
            let restarted = self.restart(handle.name.as_str()).await;
            restarted.is_ok().then(|| handle.name.clone())
        });
        join_all(restarts).await.into_iter().flatten().collect()
    }
}

fn is_awake(handle: &Arc<ServerHandle>) -> bool {
    handle.spec.held().is_none() && handle.status.borrow().state != ServerState::Idle
}
