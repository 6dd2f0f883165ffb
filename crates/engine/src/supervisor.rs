//! All servers of the project: which there are, in configuration order, and who runs them. Store
//! first, memory second, event last.

mod spawn;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::id::{ProjectName, ServerId, ServerName};
use gantry_model::spec::{ServerSpec, Source, Start};
use gantry_model::status::State;
use gantry_store::{ServerRow, Store, StoreError};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::access::random;
use crate::catalog::{Catalog, CatalogEntry};
use crate::clock::unix_ms;
use crate::error::EngineError;
use crate::server::handle::{Live, Order, ServerHandle};
use crate::server::runner::Surroundings;

/// What applying a configuration changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Servers that are new.
    pub added: Vec<ServerName>,
    /// Servers whose spec changed, and which were started anew.
    pub changed: Vec<ServerName>,
    /// Servers that are gone.
    pub removed: Vec<ServerName>,
}

pub(crate) struct Supervisor {
    project: ProjectName,
    store: Store,
    around: Arc<Surroundings>,
    catalog: Arc<Catalog>,
    /// In configuration order.
    servers: Arc<Mutex<Vec<ServerHandle>>>,
    /// One change at a time, so that store and memory agree.
    changing: AsyncMutex<()>,
}

impl Supervisor {
    pub(crate) fn new(
        project: ProjectName,
        store: Store,
        around: Arc<Surroundings>,
        catalog: Arc<Catalog>,
        servers: Arc<Mutex<Vec<ServerHandle>>>,
    ) -> Self {
        Self {
            project,
            store,
            around,
            catalog,
            servers,
            changing: AsyncMutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ServerHandle>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the runners of everything that is registered.
    pub(crate) async fn boot(&self) -> Result<(), EngineError> {
        let _one = self.changing.lock().await;
        for row in self.store.servers(&self.project).await? {
            // Servers of files and built-in ones come anew with `apply`.
            if row.enabled && row.spec.source == Source::Api {
                let handle = self.launch(row.id, row.spec, row.created_ms).await?;
                self.lock().push(handle);
            }
        }
        refresh(&self.catalog, &self.servers);
        Ok(())
    }

    /// Registers a server and starts its runner.
    pub(crate) async fn register(&self, spec: ServerSpec) -> Result<ServerHandle, EngineError> {
        spec.check()?;
        let _one = self.changing.lock().await;
        if self.find(spec.name.as_str()).is_some() {
            return Err(EngineError::Conflict { name: spec.name });
        }
        let row = self.row(spec);
        self.store.put_server(&row).await.map_err(|error| {
            if matches!(error, StoreError::Conflict { .. }) {
                EngineError::Conflict {
                    name: row.spec.name.clone(),
                }
            } else {
                EngineError::Store(error)
            }
        })?;
        self.add(row).await
    }

    fn row(&self, spec: ServerSpec) -> ServerRow {
        let now = unix_ms();
        ServerRow {
            id: ServerId::from_random(u128::from_le_bytes(random())),
            project: self.project.clone(),
            spec,
            enabled: true,
            created_ms: now,
            updated_ms: now,
        }
    }

    async fn add(&self, row: ServerRow) -> Result<ServerHandle, EngineError> {
        let name = row.spec.name.clone();
        let handle = self.launch(row.id, row.spec, row.created_ms).await?;
        self.lock().push(handle.clone());
        refresh(&self.catalog, &self.servers);
        self.around
            .events
            .report(&name, EventKind::Registered, "registered");
        Ok(handle)
    }

    /// Makes the servers of files what `specs` says, touching only those that changed.
    pub(crate) async fn apply(&self, specs: Vec<ServerSpec>) -> Result<Applied, EngineError> {
        for spec in &specs {
            spec.check()?;
        }
        let _one = self.changing.lock().await;
        let mut applied = Applied::default();
        let wanted: HashSet<_> = specs.iter().map(|spec| spec.name.clone()).collect();
        let stored = self.store.servers(&self.project).await?;
        for row in &stored {
            if row.spec.source != Source::Api && !wanted.contains(&row.spec.name) {
                self.end(row.id).await?;
                applied.removed.push(row.spec.name.clone());
            }
        }
        for spec in specs {
            let known = stored.iter().find(|row| row.spec.name == spec.name);
            let running = self.find(spec.name.as_str());
            if let Some(handle) = &running
                && *handle.spec == spec
            {
                continue;
            }
            let mut row = self.row(spec);
            if let Some(known) = known {
                row.id = known.id;
                row.created_ms = known.created_ms;
            }
            let list = match running {
                Some(handle) => {
                    self.halt(&handle).await;
                    &mut applied.changed
                }
                None => &mut applied.added,
            };
            list.push(row.spec.name.clone());
            self.store.replace_server(&row).await?;
            self.add(row).await?;
        }
        refresh(&self.catalog, &self.servers);
        Ok(applied)
    }

    /// Removes a server; false if there was none.
    pub(crate) async fn remove(&self, server: &str) -> Result<bool, EngineError> {
        let _one = self.changing.lock().await;
        let Some(handle) = self.find(server) else {
            return Ok(false);
        };
        self.end(handle.id).await?;
        self.around
            .events
            .report(&handle.name, EventKind::Removed, "removed");
        Ok(true)
    }

    async fn end(&self, id: ServerId) -> Result<(), EngineError> {
        self.store.remove_server(&self.project, id).await?;
        let handle = self.lock().iter().find(|handle| handle.id == id).cloned();
        if let Some(handle) = handle {
            self.halt(&handle).await;
        }
        Ok(())
    }

    /// Stops a server's runner and forgets it.
    async fn halt(&self, handle: &ServerHandle) {
        self.lock().retain(|known| known.id != handle.id);
        refresh(&self.catalog, &self.servers);
        handle.stop.cancel();
        handle.stopped.cancelled().await;
    }

    /// Orders a restart; it has begun when this returns.
    pub(crate) async fn restart(&self, server: &str) -> Result<ServerHandle, EngineError> {
        let unknown = || EngineError::UnknownServer {
            name: server.to_owned(),
        };
        let handle = self.find(server).ok_or_else(unknown)?;
        let mut status = handle.status.clone();
        let since = status.borrow_and_update().since_ms;
        handle
            .orders
            .send(Order::Restart)
            .await
            .map_err(|_| EngineError::Stopping)?;
        let begun = async {
            while status.changed().await.is_ok() {
                let now = status.borrow_and_update();
                if now.state == State::Starting || now.since_ms > since && now.state == State::Ready
                {
                    return;
                }
            }
        };
        // Ending the old process is bounded by its own grace; the answer says what was reached.
        let bound = handle.spec.life.stop_grace + Duration::from_secs(2);
        drop(tokio::time::timeout(bound, begun).await);
        Ok(handle)
    }

    /// Finds a server by name or id.
    pub(crate) fn find(&self, server: &str) -> Option<ServerHandle> {
        let servers = self.lock();
        let by_name = servers.iter().find(|handle| handle.name.as_str() == server);
        let found = by_name.or_else(|| {
            let id: ServerId = server.parse().ok()?;
            servers.iter().find(|handle| handle.id == id)
        });
        found.cloned()
    }

    pub(crate) fn all(&self) -> Vec<ServerHandle> {
        self.lock().clone()
    }

    /// Waits until no eager server is on its way up, but not longer than `within`.
    pub(crate) async fn settled(&self, within: Duration) {
        let until = Instant::now() + within;
        for handle in self.all() {
            if handle.spec.start == Start::Lazy {
                continue;
            }
            let mut live = handle.live.clone();
            let coming = |state: &Live| !matches!(state, Live::Starting | Live::Cold);
            // A server that is not there in time is shown as it is.
            drop(tokio::time::timeout_at(until, live.wait_for(coming)).await);
        }
    }

    /// Waits until lazy servers that nobody has listed yet are up, but not longer than `within`.
    pub(crate) async fn warm(&self, handles: &[ServerHandle], within: Duration) {
        let until = Instant::now() + within;
        for handle in handles {
            handle.wake.notify_one();
        }
        for handle in handles {
            let mut live = handle.live.clone();
            let settled = |state: &Live| matches!(state, Live::Ready(_) | Live::Down(..));
            drop(tokio::time::timeout_at(until, live.wait_for(settled)).await);
        }
    }

    /// Stops every server and waits for all of them.
    pub(crate) async fn stop_all(&self) {
        let _one = self.changing.lock().await;
        let all = self.all();
        for handle in &all {
            handle.stop.cancel();
        }
        for handle in &all {
            handle.stopped.cancelled().await;
        }
    }
}

/// Tells the catalog which servers there are and whether their tools can be had now.
pub(crate) fn refresh(catalog: &Catalog, servers: &Mutex<Vec<ServerHandle>>) {
    // Held until the catalog has it, so that an older picture never replaces a newer one.
    let servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
    let entries = servers.iter().map(|handle| CatalogEntry {
        catalog: handle.catalog.load_full(),
        listed: !matches!(&*handle.live.borrow(), Live::Down(..)),
        handle: handle.clone(),
    });
    catalog.update(entries.collect());
}
