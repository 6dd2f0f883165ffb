//! The store's interface: one method per query, whatever the database.
//!
//! `Store` is a cheap clone. Methods happen as a whole or not at all; none waits without a bound.
//! What is specific to SQLite is in `sqlite`.

mod hosting;
mod settings;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::event::ServerEvent;
use gantry_model::id::{AgentName, CallId, GatewayId, KeyId, ProjectName, ServerId, ServerName};

use crate::act::{ActEnd, ActFilter, ActRow};
use crate::call::{CallFilter, CallRow, CallStatus, CallUsage, JournalPosition};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::gateway::{Changes, Gateway, Lease};
use crate::journal::{JournalDamage, JournalRun, JournalState};
use crate::row::{AgentRow, CatalogRow, GrantRow, KeyRow, SealedRow, ServerRow};
use crate::sqlite::SqliteStore;

/// A handle on everything that Gantry remembers.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
}

/// Which database is behind the handle.
#[derive(Clone, Debug)]
enum Backend {
    Sqlite(Arc<SqliteStore>),
}

impl Store {
    /// Opens the store for a gateway, making or migrating it first if needed.
    ///
    /// A SQLite file and its folder are made for their owner only. A copy is made before an older file
    /// is migrated. A damaged file is refused and left as it is.
    pub async fn open(config: &StoreConfig, gateway: &Gateway) -> Result<Self, StoreError> {
        match config {
            StoreConfig::Sqlite(path) => {
                let store = SqliteStore::open(path, gateway).await?;
                Ok(Self {
                    backend: Backend::Sqlite(Arc::new(store)),
                })
            }
            StoreConfig::Postgres(url) => Err(StoreError::NotAvailable {
                url: url.to_string(),
            }),
        }
    }

    /// Finishes what is under way, tells other gateways that this one stopped, writes everything
    /// into the file and lets go of it.
    ///
    /// Every later use of any clone answers `Busy`.
    pub async fn close(&self) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.close().await
    }

    /// Makes everything written so far survive the loss of power.
    ///
    /// Servers, keys, grants and administrators' acts do so already when their method returns;
    /// audit rows, events, catalogs and leases survive the end of the process only.
    pub async fn sync(&self) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.sync().await
    }

    /// Makes the project known, if it is not.
    pub async fn ensure_project(&self, project: &ProjectName) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.ensure_project(project).await
    }

    /// Returns the names of all projects.
    pub async fn projects(&self) -> Result<Vec<ProjectName>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.projects().await
    }

    /// Returns all agents of a project, by name.
    pub async fn agents(&self, project: &ProjectName) -> Result<Vec<AgentRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.agents(project).await
    }

    /// Stores a new agent and its grants; `Conflict` if its project has one of that name.
    pub async fn put_agent(&self, row: &AgentRow, grants: &[GrantRow]) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_agent(row, grants).await
    }

    /// Changes an agent and replaces its grants; tells whether it was there.
    pub async fn replace_agent(
        &self,
        row: &AgentRow,
        grants: &[GrantRow],
    ) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.replace_agent(row, grants).await
    }

    /// Removes an agent with its keys and grants; tells whether it was there.
    pub async fn remove_agent(
        &self,
        project: &ProjectName,
        agent: &AgentName,
    ) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.remove_agent(project, agent).await
    }

    /// Registers a server; `Conflict` if its project has one of that name.
    pub async fn put_server(&self, row: &ServerRow) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_server(row).await
    }

    /// Registers a server or replaces the one of that name in the project.
    ///
    /// The row's id becomes the server's; its place in the order and the time of its creation stay.
    /// When id, spec and switch are as they were, nothing is written.
    pub async fn replace_server(&self, row: &ServerRow) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.replace_server(row).await
    }

    /// Removes a server with its catalog, lease and sealed values; tells whether it was there.
    pub async fn remove_server(
        &self,
        project: &ProjectName,
        id: ServerId,
    ) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.remove_server(project, id).await
    }

    /// Returns a project's servers in the order of their configuration: those that are registered, and
    /// those of this gateway's files.
    ///
    /// A row that cannot be read any more is logged and left out, so that it hurts no other.
    pub async fn servers(&self, project: &ProjectName) -> Result<Vec<ServerRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.servers(project).await
    }

    /// Keeps a sealed value, in place of the one of the same scope and name.
    pub async fn put_sealed(&self, row: &SealedRow) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_sealed(row).await
    }

    /// Returns a sealed value.
    pub async fn sealed(
        &self,
        project: &ProjectName,
        scope: &str,
        name: &str,
    ) -> Result<Option<SealedRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.sealed(project, scope, name).await
    }

    /// Removes a sealed value; tells whether it was there.
    pub async fn remove_sealed(
        &self,
        project: &ProjectName,
        scope: &str,
        name: &str,
    ) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.remove_sealed(project, scope, name).await
    }

    /// Stores a key, making its project and agent known.
    pub async fn put_key(&self, row: &KeyRow) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_key(row).await
    }

    /// Stores a data folder's first grant and keys, all of them or none.
    pub async fn put_first(&self, grant: &GrantRow, keys: &[KeyRow]) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_first(grant, keys).await
    }

    /// Returns the keys of all projects that are not revoked, oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.keys().await
    }

    /// Revokes a key; tells whether it was there and not revoked before.
    pub async fn revoke_key(&self, id: KeyId, at_ms: u64) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.revoke_key(id, at_ms).await
    }

    /// Returns all grants of a project.
    pub async fn grants(&self, project: &ProjectName) -> Result<Vec<GrantRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.grants(project).await
    }

    /// Remembers a server's catalog as a whole and returns its rows with their versions.
    ///
    /// The server must be registered. Of two rows with the same kind and name the first counts.
    /// What is not among the rows is gone, but its version goes on counting when it comes back.
    pub async fn save_catalog(
        &self,
        server: ServerId,
        spec_fingerprint: &str,
        hello: &str,
        rows: &[CatalogRow],
    ) -> Result<Vec<CatalogRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store
            .save_catalog(server, spec_fingerprint, hello, rows)
            .await
    }

    /// Returns the fingerprint, the hello and the rows that were saved last, by kind and position.
    pub async fn load_catalog(
        &self,
        server: ServerId,
    ) -> Result<Option<(String, String, Vec<CatalogRow>)>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.load_catalog(server).await
    }

    /// Writes rows of the audit and the journal's position in one transaction.
    ///
    /// Rows are merged by id: an end is never replaced by `running` or `unknown`, and importing the
    /// same rows again changes nothing.
    pub async fn import_calls<T: AsRef<str> + Sync>(
        &self,
        rows: &[CallRow<T>],
        position: JournalPosition,
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.import_calls(rows, position).await
    }

    /// Returns what is known of the journal.
    pub async fn journal_state(&self) -> Result<JournalState, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.journal_state().await
    }

    /// Remembers which journal is written from here on; `position` counts only if there is none.
    pub async fn begin_journal_run(
        &self,
        identity: u32,
        run: JournalRun,
        position: JournalPosition,
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.begin_journal_run(identity, run, position).await
    }

    /// Remembers that the journal was left empty, and where the next one begins.
    pub async fn end_journal_run(&self, position: JournalPosition) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.end_journal_run(position).await
    }

    /// Writes damage of the journal down; what was written down before stays as it is.
    pub async fn put_journal_damage(&self, damage: &[JournalDamage]) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_journal_damage(damage).await
    }

    /// Returns the damage of the journal that nobody has acknowledged, oldest first.
    pub async fn journal_damage(&self) -> Result<Vec<JournalDamage>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.journal_damage().await
    }

    /// Acknowledges all damage of the journal and tells how much there was.
    pub async fn acknowledge_journal_damage(
        &self,
        by: &str,
        at_ms: u64,
    ) -> Result<u64, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.acknowledge_journal_damage(by, at_ms).await
    }

    /// Counts the rows whose `seq` is at least `first` and below `end`.
    pub async fn count_rows_between(&self, first: u64, end: u64) -> Result<u64, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.count_rows_between(first, end).await
    }

    /// Tells whether rows could be written now, as far as locks are concerned.
    pub async fn probe_write(&self) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.probe_write().await
    }

    /// Refuses every write while the file is not where it was: it would be lost with the process.
    pub fn set_gone(&self, gone: bool) {
        let Backend::Sqlite(store) = &self.backend;
        store.set_gone(gone);
    }

    /// Returns the gateway that opened the store.
    pub fn gateway(&self) -> GatewayId {
        let Backend::Sqlite(store) = &self.backend;
        store.id()
    }

    /// Returns the database's file; a server has none.
    pub fn file(&self) -> Option<&Path> {
        let Backend::Sqlite(store) = &self.backend;
        Some(store.path())
    }

    /// Ends every call that a former start of this gateway left running and tells how many there were.
    pub async fn settle_running(
        &self,
        as_status: CallStatus,
        code: &str,
        ended_ms: u64,
    ) -> Result<u64, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.settle_running(as_status, code, ended_ms).await
    }

    /// Returns the calls that pass the filter, newest first.
    pub async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.calls(filter).await
    }

    /// Returns one call.
    pub async fn call(&self, id: CallId) -> Result<Option<CallRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.call(id).await
    }

    /// Counts the calls that pass the filter, whatever its limit.
    pub async fn count_calls(&self, filter: &CallFilter) -> Result<u64, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.count_calls(filter).await
    }

    /// Drops calls that came in before `ms`, oldest first, and tells how many; ask again if it is
    /// `at_most`.
    pub async fn drop_calls_before(&self, ms: u64, at_most: u32) -> Result<u64, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.drop_calls_before(ms, at_most).await
    }

    /// Writes down what happened to servers, keeping the newest thousand events of each.
    pub async fn put_events(
        &self,
        events: &[(ProjectName, ServerEvent)],
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_events(events).await
    }

    /// Returns the newest events before one, newest last, each with its number.
    pub async fn events_before(
        &self,
        project: &ProjectName,
        server: Option<&ServerName>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.events(project, server, before, limit).await
    }

    /// Returns the next events after one, oldest first, each with its number.
    pub async fn events_after(
        &self,
        project: &ProjectName,
        server: Option<&ServerName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.events_after(project, server, after, limit).await
    }

    /// Takes the leases on the registered servers of a project that no other gateway holds, and returns
    /// the leases on all of them.
    ///
    /// A lease that this start of the gateway holds stays as it is. One of another gateway is taken when
    /// it has ended, and not before this gateway was registered for as long as `lasts`.
    pub async fn take_leases(
        &self,
        project: &ProjectName,
        lasts: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.take_leases(project, lasts).await
    }

    /// Returns the leases on the registered servers of a project.
    pub async fn leases(&self, project: &ProjectName) -> Result<Vec<Lease>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.leases(project).await
    }

    /// Renews the leases that this start of the gateway holds.
    pub async fn renew_leases(&self, lasts: Duration) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.renew_leases(lasts).await
    }

    /// Releases the leases of a project that this start of the gateway holds; their generations stay.
    pub async fn release_leases(&self, project: &ProjectName) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.release_leases(project).await
    }

    /// Returns what tells whether anything of a project changed since it was read.
    pub async fn changes(&self, project: &ProjectName) -> Result<Changes, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.changes(project).await
    }

    /// Writes down an administrative act, begun or whole, and returns its number.
    ///
    /// Of refused attempts the newest ten thousand are kept, of all others the newest hundred thousand.
    pub async fn put_act(&self, row: &ActRow) -> Result<u64, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_act(row).await
    }

    /// Writes down how an act ended.
    pub async fn end_act(&self, id: u64, end: &ActEnd) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.end_act(id, end).await
    }

    /// Counts more of the same into an act.
    pub async fn repeat_act(&self, id: u64, more: u64, at_ms: u64) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.repeat_act(id, more, at_ms).await
    }

    /// Returns the acts that pass the filter, newest first.
    pub async fn acts(&self, filter: &ActFilter) -> Result<Vec<ActRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.acts(filter).await
    }

    /// Takes what was removed out of the log of writes, too; tells whether nothing is left of it.
    ///
    /// Methods that remove secrets do so already, unless somebody reads at that moment.
    pub async fn scrub(&self) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.scrub().await
    }

    /// Returns how many calls there are, from when, and what the database takes.
    pub async fn call_usage(&self) -> Result<CallUsage, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.call_usage().await
    }

    /// Returns up to when the clock was believed, if that was ever written down.
    pub async fn clock(&self) -> Result<Option<u64>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.clock().await
    }

    /// Remembers up to when the clock was believed.
    pub async fn put_clock(&self, at_ms: u64) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_clock(at_ms).await
    }
}
