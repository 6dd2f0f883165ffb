//! Hosted servers, of whatever database: their workspaces, id ranges and volumes.

use gantry_model::id::{ProjectName, ServerName};

use super::{Backend, Store};
use crate::error::StoreError;
use crate::hosting::{VolumeRow, WorkspaceInstance, WorkspaceRow};

impl Store {
    /// Returns the hosted servers of a project, by name. Registering a server makes its row, events about
    /// it carry its status.
    pub async fn workspaces(&self, project: &ProjectName) -> Result<Vec<WorkspaceRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.workspaces(project).await
    }

    /// Remembers what is known of the instance of a hosted server; nothing happens if there is no such
    /// server.
    pub async fn set_workspace_instance(
        &self,
        project: &ProjectName,
        server: &ServerName,
        instance: &WorkspaceInstance,
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store
            .set_workspace_instance(project, server, instance)
            .await
    }

    /// Returns the first of the 65,536 user and group ids that a server owns, which are its own until they
    /// are given back, and after that for as long as nobody else needs them. `seed` is random, and decides
    /// where the search for free ones begins.
    pub async fn id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
        seed: u64,
    ) -> Result<u32, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.id_range(project, server, seed).await
    }

    /// Never gives the ids of a server back: files outside of its place may belong to them.
    pub async fn keep_id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.keep_id_range(project, server).await
    }

    /// Gives back the ids of a server that is gone, whose processes have ended and whose files are removed;
    /// tells whether it was done. Not while it is registered or has a volume on any gateway.
    pub async fn release_id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
    ) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.release_id_range(project, server).await
    }

    /// Makes a volume of this gateway known, and returns it as it was known first: its folder and age are
    /// those of the row that is there.
    pub async fn put_volume(&self, row: &VolumeRow) -> Result<VolumeRow, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.put_volume(row).await
    }

    /// Returns the volumes of a project that lie on this gateway's disk, by server and path.
    pub async fn volumes(&self, project: &ProjectName) -> Result<Vec<VolumeRow>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.volumes(project).await
    }

    /// Forgets a volume of this gateway; tells whether it was known.
    pub async fn remove_volume(
        &self,
        project: &ProjectName,
        server: &ServerName,
        path: &str,
    ) -> Result<bool, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.remove_volume(project, server, path).await
    }
}
