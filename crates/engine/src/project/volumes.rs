//! The volumes of a project's servers, for administrators: list, back up, remove, prune. Removal is
//! recorded before its effect.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_model::id::ServerName;
use serde_json::json;

use super::Project;
use crate::acts::{Actor, Draft};
use crate::disk::{Disks, Owner, PrunedVolumes, VolumeError, VolumeView};
use crate::error::EngineError;

impl Project {
    /// Returns all volumes, including those of removed servers.
    pub async fn volumes(&self) -> Result<Vec<VolumeView>, EngineError> {
        let name = self.name.clone();
        self.on_disks(move |disks| disks.volumes(&name)).await
    }

    /// Writes a volume as a tar archive; files that change meanwhile may be in either state. Who
    /// reads what a server keeps is recorded first.
    pub async fn back_up_volume(
        &self,
        by: impl Into<Actor>,
        server: ServerName,
        path: PathBuf,
        to: impl Write + Send + 'static,
    ) -> Result<(), EngineError> {
        let draft = Draft::new("volume.backup", server.as_str());
        let draft = draft.after(json!({ "path": path.display().to_string() }));
        let owner = self.owner(server);
        let work = self.on_disks(move |disks| disks.back_up(&owner, &path, to));
        self.acts.run(&by.into(), draft, work).await
    }

    /// Removes a volume that no instance uses.
    pub async fn remove_volume(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        server: ServerName,
        path: &Path,
    ) -> Result<(), EngineError> {
        let (by, project, path) = (by.into(), Arc::clone(self), path.to_owned());
        self.complete(async move {
            let draft = Draft::new("volume.remove", server.as_str());
            let draft = draft.before(json!({ "path": path.display().to_string() }));
            let owner = project.owner(server.clone());
            let folder = path.clone();
            let remove = async {
                let removing = project.on_disks(move |disks| disks.remove_volume(&owner, &folder));
                removing.await?;
                project.forget_rows(&server, |known| known == path).await;
                project.release_ids(server).await;
                Ok(())
            };
            project.acts.run(&by, draft, remove).await
        })
        .await
    }

    /// Removes the volumes of servers that are no longer registered.
    pub async fn prune_volumes(
        self: &Arc<Self>,
        by: impl Into<Actor>,
    ) -> Result<PrunedVolumes, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("volume.prune", project.name.as_str());
            let act = project.acts.begin(&by, draft).await?;
            let servers = project.supervisor.all();
            let kept: Vec<ServerName> = servers.iter().map(|known| known.name.clone()).collect();
            let name = project.name.clone();
            let gone: Vec<ServerName> = match project.volumes().await {
                Ok(volumes) => volumes.into_iter().map(|view| view.server).collect(),
                Err(_) => Vec::new(),
            };
            let still = kept.clone();
            let pruned = project
                .on_disks(move |disks| disks.prune(&name, &kept))
                .await;
            for server in gone.iter().filter(|server| !still.contains(server)) {
                project.forget_rows(server, |_| true).await;
                project.release_ids(server.clone()).await;
            }
            act.end(&pruned).await;
            pruned
        })
        .await
    }

    /// Removes the place of a removed server; its volumes only on request.
    pub(super) async fn clear_place(&self, server: ServerName, volumes: Volumes) {
        let owner = self.owner(server.clone());
        let cleared = self
            .on_disks(move |disks| disks.forget(&owner, volumes == Volumes::Remove))
            .await;
        if volumes == Volumes::Remove && cleared.is_ok() {
            self.forget_rows(&server, |_| true).await;
        }
        match cleared {
            Ok(()) => self.release_ids(server).await,
            Err(error) => {
                let why = gantry_model::diagnose::chain(&error);
                tracing::warn!(why, "the files of a removed server are still there");
            }
        }
    }

    /// Releases the ids of a removed server if none of its files are left. Its processes have
    /// ended: otherwise its place could not have been removed.
    async fn release_ids(&self, server: ServerName) {
        let owner = self.owner(server.clone());
        let gone = self.on_disks(move |disks| Ok(disks.has_nothing_of(&owner)));
        if !gone.await.unwrap_or(false) {
            return;
        }
        let released = self.machine.store.release_id_range(&self.name, &server);
        match released.await {
            Ok(true) => tracing::debug!(%server, "the ids of a removed server are given back"),
            Ok(false) => {}
            Err(error) => {
                let why = gantry_model::diagnose::chain(&error);
                tracing::warn!(%server, why, "the ids of a removed server are not given back");
            }
        }
    }

    /// Removes missing volumes of a server from the store; the disk is authoritative.
    async fn forget_rows(&self, server: &ServerName, is_gone: impl Fn(&Path) -> bool) {
        let store = &self.machine.store;
        let known = store.volumes(&self.name).await.unwrap_or_default();
        let gone = known.iter().filter(|row| row.server == *server);
        for row in gone.filter(|row| is_gone(Path::new(&row.path))) {
            let removed = store.remove_volume(&self.name, server, &row.path).await;
            if let Err(error) = removed {
                let why = gantry_model::diagnose::chain(&error);
                tracing::warn!(%server, why, "the store still knows a volume that is gone");
            }
        }
    }

    fn owner(&self, server: ServerName) -> Owner {
        Owner {
            project: self.name.clone(),
            server,
        }
    }

    async fn on_disks<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disks) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let disks = self.machine.hosted.disks().clone();
        let working = tokio::task::spawn_blocking(move || work(&disks));
        let worked = working.await.map_err(|_| EngineError::Stopping)?;
        Ok(worked?)
    }
}

/// What happens to the volumes of a removed server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Volumes {
    /// They stay until they are removed explicitly.
    #[default]
    Keep,
    /// They are removed with it.
    Remove,
}
