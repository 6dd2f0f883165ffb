//! All servers of the project, in configuration order, and their runners. Changes are written to
//! the store first, then to memory, then reported. Operations here must run to their end
//! (`Project::complete`).
//!
//! A name never has two processes (fault P10): a removed or replaced server is remembered until its
//! process has ended, and only its own name waits for that. A server that takes the place of another
//! is in all lists at once, and starts when the old process has ended.

mod files;
mod registered;
mod sealed;
mod secrets;
mod spawn;
mod suspended;
mod test_run;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use gantry_model::event::EventKind;
use gantry_model::id::{ProjectName, ServerId, ServerName};
use gantry_model::spec::{InactiveReason, ServerSpec, Source, Start};
use gantry_store::{ServerRow, Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::catalog::{Catalog, CatalogEntry};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};
use crate::leases::Leases;
use crate::pins::Pins;
use crate::random::random;
use crate::server::catalog::ServerCatalog;
use crate::server::handle::{LinkState, RunnerCommand, ServerHandle};
use crate::server::runner::RunnerContext;
use crate::suspended::Suspended;

pub use files::Applied;
pub(crate) use test_run::of_api;

/// How much longer than the last kill to wait for processes that do not end.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// How many registered servers are launched at once when the gateway starts.
const BOOT_AT_ONCE: usize = 16;

pub(crate) struct Supervisor {
    project: ProjectName,
    store: Store,
    leases: Leases,
    context: Arc<RunnerContext>,
    catalog: Arc<Catalog>,
    /// In configuration order.
    servers: Arc<Mutex<Vec<Arc<ServerHandle>>>>,
    /// Removed servers whose processes may still be in their grace period.
    leaving: Mutex<Vec<Arc<ServerHandle>>>,
    /// Allows one change at a time, so that store and memory agree; never held while a process
    /// ends.
    changing: AsyncMutex<()>,
    /// Allows one change of a secret at a time, including the restarts that follow.
    changing_secrets: AsyncMutex<()>,
    /// Cancelled when all servers stop; none is started afterwards.
    stopping: CancellationToken,
    suspended: Arc<Suspended>,
}

impl Supervisor {
    pub(crate) fn new(
        project: ProjectName,
        store: Store,
        context: Arc<RunnerContext>,
        catalog: Arc<Catalog>,
        servers: Arc<Mutex<Vec<Arc<ServerHandle>>>>,
    ) -> Self {
        Self {
            leases: Leases::new(store.clone(), project.clone()),
            project,
            store,
            context,
            catalog,
            servers,
            leaving: Mutex::default(),
            changing: AsyncMutex::new(()),
            changing_secrets: AsyncMutex::new(()),
            stopping: CancellationToken::new(),
            suspended: Arc::default(),
        }
    }

    /// Makes suspended servers and tools held and hidden.
    pub(crate) fn heeding(self, suspended: Arc<Suspended>) -> Self {
        Self { suspended, ..self }
    }

    /// Rebuilds the lists from what the servers offer now.
    pub(crate) fn publish(&self) {
        refresh(
            &self.catalog,
            &self.servers,
            &self.suspended,
            &self.context.pins,
        );
    }

    /// Starts the runners of all registered servers.
    pub(crate) async fn boot(&self) -> Result<(), EngineError> {
        let _one = self.changing.lock().await;
        // Servers of files and built-in ones are loaded from their files again.
        let rows = self.opened_rows().await?.into_iter();
        let rows = rows.filter(|row| row.enabled && row.spec.source == Source::Api);
        // Side by side: no server waits until the catalog of another is recalled.
        let launches: Vec<_> = rows
            .map(|row| self.launch(row.id, row.spec, row.created_ms, None))
            .collect();
        let mut launches = stream::iter(launches).buffered(BOOT_AT_ONCE);
        while let Some(handle) = launches.next().await {
            self.servers.lock().push(handle);
        }
        drop(launches);
        self.publish();
        Ok(())
    }

    /// Registers a server and starts its runner.
    pub(crate) async fn register(
        &self,
        spec: ServerSpec,
    ) -> Result<Arc<ServerHandle>, EngineError> {
        spec.check()?;
        let _one = self.turn_to_register(&spec.name).await?;
        let row = self.new_row(&spec).await?;
        self.store.put_server(&row).await.map_err(|error| {
            if matches!(error, StoreError::Conflict { .. }) {
                EngineError::Conflict {
                    name: row.spec.name.clone(),
                }
            } else {
                EngineError::Store(error)
            }
        })?;
        Ok(self.add(&row, spec).await)
    }

    /// Waits until a name may be given to another server. An unapproved server makes room: it has
    /// no right to the name. fault G5
    async fn turn_to_register(
        &self,
        name: &ServerName,
    ) -> Result<AsyncMutexGuard<'_, ()>, EngineError> {
        loop {
            let turn = self.turn(name).await?;
            let Some(handle) = self.find(name.as_str()) else {
                return Ok(turn);
            };
            if !files::waits(&handle.spec) {
                return Err(EngineError::Conflict { name: name.clone() });
            }
            self.store.remove_server(&self.project, handle.id).await?;
            self.leave(&handle);
            let why = "not approved; its name was given to another server over the API";
            self.context.events.report(name, EventKind::Removed, why);
        }
    }

    /// Waits until a server may be started under a name: no other change is running, no process of
    /// that name is left, and the supervisor is not stopping.
    async fn turn(&self, name: &ServerName) -> Result<AsyncMutexGuard<'_, ()>, EngineError> {
        loop {
            let turn = self.changing.lock().await;
            if self.stopping.is_cancelled() {
                return Err(EngineError::Stopping);
            }
            let Some(leaving) = self.leaving(name.as_str()) else {
                return Ok(turn);
            };
            drop(turn);
            tokio::select! {
                () = leaving.stopped.cancelled() => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }

    async fn new_row(&self, spec: &ServerSpec) -> Result<ServerRow, EngineError> {
        let now = unix_ms();
        Ok(ServerRow {
            id: ServerId::from_random(u128::from_le_bytes(random())),
            project: self.project.clone(),
            spec: self.sealed(files::stored(spec)).await?,
            enabled: true,
            created_ms: now,
            updated_ms: now,
        })
    }

    /// Returns the row of a product's server: a new one, or one that replaces the current one.
    pub(crate) async fn product_row(&self, spec: &ServerSpec) -> Result<ServerRow, EngineError> {
        let mut row = self.new_row(spec).await?;
        if let Some(handle) = self.find(spec.name.as_str()) {
            (row.id, row.created_ms) = (handle.id, handle.created_ms);
        }
        Ok(row)
    }

    /// Starts the runner of a stored server.
    async fn add(&self, row: &ServerRow, spec: ServerSpec) -> Arc<ServerHandle> {
        let handle = self.launch(row.id, spec, row.created_ms, None).await;
        self.servers.lock().push(handle.clone());
        self.publish();
        self.report_registered(&handle);
        handle
    }

    fn report_registered(&self, handle: &ServerHandle) {
        self.context
            .events
            .report(&handle.name, EventKind::Registered, "registered");
    }

    /// Puts a server into the place of another, which is stopped. It starts once the old process has
    /// ended; calls to it wait for that. The caller must hold the change lock.
    async fn succeed(
        &self,
        old: &Arc<ServerHandle>,
        row: &ServerRow,
        spec: ServerSpec,
    ) -> Arc<ServerHandle> {
        let handle = self.launch(row.id, spec, row.created_ms, Some(old));
        let handle = handle.await;
        self.leaving.lock().push(old.clone());
        {
            let mut servers = self.servers.lock();
            match servers.iter_mut().find(|known| Arc::ptr_eq(known, old)) {
                Some(place) => *place = handle.clone(),
                None => servers.push(handle.clone()),
            }
        }
        self.publish();
        old.stop.cancel();
        handle
    }

    /// Waits until a replaced process has ended and its successor may start.
    async fn gone(&self, old: &ServerHandle) -> Result<(), EngineError> {
        old.stopped.cancelled().await;
        match self.stopping.is_cancelled() {
            true => Err(EngineError::Stopping),
            false => Ok(()),
        }
    }

    /// Removes a server and waits until its process has ended; false if there was none.
    pub(crate) async fn remove(&self, server: &str) -> Result<bool, EngineError> {
        loop {
            let turn = self.changing.lock().await;
            if let Some(handle) = self.find(server) {
                self.store.remove_server(&self.project, handle.id).await?;
                self.leave(&handle);
                drop(turn);
                handle.stopped.cancelled().await;
                self.context
                    .events
                    .report(&handle.name, EventKind::Removed, "removed");
                return Ok(true);
            }
            let Some(leaving) = self.leaving(server) else {
                return Ok(false);
            };
            drop(turn);
            leaving.stopped.cancelled().await;
        }
    }

    /// Removes a server from all lists and stops its runner.
    fn leave(&self, handle: &Arc<ServerHandle>) {
        self.leaving.lock().push(handle.clone());
        self.servers.lock().retain(|known| known.id != handle.id);
        self.publish();
        handle.stop.cancel();
    }

    /// Finds a server by name or id among those whose process may not have ended.
    fn leaving(&self, server: &str) -> Option<Arc<ServerHandle>> {
        let mut leaving = self.leaving.lock();
        leaving.retain(|handle| !handle.stopped.is_cancelled());
        named(&leaving, server)
    }

    /// Requests a restart; it has begun when this returns, unless the old process is slow to end.
    pub(crate) async fn restart(&self, server: &str) -> Result<Arc<ServerHandle>, EngineError> {
        let unknown = || EngineError::UnknownServer {
            name: server.to_owned(),
        };
        let handle = self.find(server).ok_or_else(unknown)?;
        let server_name = handle.name.clone();
        match (&handle.spec.inactive, &handle.spec.needs_approval) {
            (Some(InactiveReason::Disabled(reason)), _) => {
                return Err(EngineError::Disabled {
                    server: server_name,
                    reason: reason.clone(),
                });
            }
            (Some(InactiveReason::Misconfigured(reason)), _) => {
                return Err(EngineError::Misconfigured {
                    server: server_name,
                    reason: reason.clone(),
                });
            }
            (Some(InactiveReason::Suspended(why)), _) => {
                let (server, why) = (server_name, why.clone());
                return Err(AdminError::ServerSuspended { server, why }.into());
            }
            (None, Some(reason)) => {
                return Err(EngineError::NeedsApproval {
                    server: server_name,
                    reason: reason.clone(),
                });
            }
            (None, None) => {}
        }
        let mut status = handle.status.clone();
        let before = status.borrow().starts;
        handle.profiles.end_all();
        match handle.commands.try_send(RunnerCommand::Restart) {
            // A pending command is equal to this one.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Closed(_)) if self.stopping.is_cancelled() => {
                return Err(EngineError::Stopping);
            }
            Err(TrySendError::Closed(_)) => return Err(unknown()),
        }
        let begun = status.wait_for(|now| now.starts > before);
        // The old process ends within its own grace period; the response reports the state reached.
        let bound = handle.spec.lifecycle.stop_grace + Duration::from_secs(2);
        drop(tokio::time::timeout(bound, begun).await);
        Ok(handle)
    }

    /// Finds a server by name or id.
    pub(crate) fn find(&self, server: &str) -> Option<Arc<ServerHandle>> {
        named(&self.servers.lock(), server)
    }

    pub(crate) fn all(&self) -> Vec<Arc<ServerHandle>> {
        self.servers.lock().clone()
    }

    /// Waits until no eager server is starting, but not longer than `within`.
    pub(crate) async fn settled(&self, within: Duration) {
        let until = Instant::now() + within;
        for handle in self.all() {
            if handle.spec.start == Start::Lazy {
                continue;
            }
            let mut live = handle.live.clone();
            let coming =
                |state: &LinkState| !matches!(state, LinkState::Starting | LinkState::Cold);
            // A server that is not ready in time is shown in its current state.
            drop(tokio::time::timeout_at(until, live.wait_for(coming)).await);
        }
    }

    /// Waits until lazy servers that were never listed are ready, but not longer than `within`.
    pub(crate) async fn warm(&self, handles: &[Arc<ServerHandle>], within: Duration) {
        let now = Instant::now();
        for handle in handles {
            handle.wake.notify_one();
        }
        for handle in handles {
            let mut live = handle.live.clone();
            // A server that hangs has used up its time and does not slow down further lists.
            // fault P14
            let until = now + within.saturating_sub(handle.coming_for());
            let settled =
                |state: &LinkState| matches!(state, LinkState::Ready(_) | LinkState::Down(..));
            drop(tokio::time::timeout_at(until, live.wait_for(settled)).await);
        }
    }

    /// Stops every server and waits for all of them, but hardly longer than until they are killed.
    pub(crate) async fn stop_all(&self) {
        let kill_at = *self.context.kill_at.borrow();
        let until = kill_at.unwrap_or_else(Instant::now) + AFTER_KILL;
        self.stop_until(until).await;
    }

    /// Stops every server of an unloaded project, each within its own grace period. row 0.5
    pub(crate) async fn unload(&self) {
        let graces = self.all().into_iter();
        let grace = graces.map(|handle| handle.spec.lifecycle.stop_grace).max();
        let until = Instant::now() + grace.unwrap_or_default() + AFTER_KILL;
        self.stop_until(until).await;
    }

    async fn stop_until(&self, until: Instant) {
        self.stopping.cancel();
        let stopped = async {
            // A server that is being started is in the list by then.
            drop(self.changing.lock().await);
            let mut all = self.all();
            all.extend_from_slice(&self.leaving.lock());
            for handle in &all {
                handle.stopped.cancelled().await;
            }
        };
        if timeout_at(until, stopped).await.is_err() {
            warn!("some servers are still there and are left to the kernel");
        } else {
            self.leases.release().await;
        }
    }
}

/// Finds a server by name or id.
fn named(servers: &[Arc<ServerHandle>], server: &str) -> Option<Arc<ServerHandle>> {
    let by_name = servers.iter().find(|handle| handle.name.as_str() == server);
    let found = by_name.or_else(|| {
        let id: ServerId = server.parse().ok()?;
        servers.iter().find(|handle| handle.id == id)
    });
    found.cloned()
}

/// Updates the catalog with the current servers and the availability of their tools.
pub(crate) fn refresh(
    catalog: &Catalog,
    servers: &Mutex<Vec<Arc<ServerHandle>>>,
    suspended: &Suspended,
    pins: &Pins,
) {
    // Held until the catalog is updated, so that an older state never replaces a newer one.
    let servers = servers.lock();
    let entries = servers.iter().map(|handle| {
        let listed = !matches!(&*handle.live.borrow(), LinkState::Down(..));
        let catalog = handle.catalog.load_full();
        let now = suspended.now();
        let withheld: Vec<&str> = now.tools_of(&handle.name).collect();
        let without = |catalog: Arc<ServerCatalog>| match withheld.is_empty() {
            true => catalog,
            false => Arc::new(catalog.without(&withheld)),
        };
        let catalog = without(catalog);
        catalog.mark_unapproved(handle.id, pins);
        let own = handle.profiles.own_lists(&catalog).into_iter();
        let own: Vec<_> = own.map(|(owner, own)| (owner, without(own))).collect();
        let (catalog, own) = match pins.is_open() {
            true => (catalog, own),
            false => {
                let id = handle.id;
                let pinned =
                    |catalog: &ServerCatalog| Arc::new(catalog.without_unapproved(id, pins));
                let own = own.into_iter().map(|(owner, own)| (owner, pinned(&own)));
                (pinned(&catalog), own.collect())
            }
        };
        CatalogEntry::new(handle.clone(), listed, catalog).with_own(own)
    });
    catalog.update(entries.collect());
}

#[cfg(test)]
mod tests;
