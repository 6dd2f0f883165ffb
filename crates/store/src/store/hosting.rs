//! Hosted servers: their workspaces, id ranges and volumes. Statements are in `sql::hosting`.

use gantry_model::event::ServerEvent;
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{Bridge, ImageLaunch, Profile, RestartWhen};
use serde_json::json;
use sqlx::types::Json;

use super::Store;
use crate::clock::now_ms;
use crate::database::query::query;
use crate::database::row::{Row, column, narrow, narrow_option, parsed, unsigned};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::hosting::{VolumeRow, WorkspaceInstance, WorkspaceRow, free_range, status_after};
use crate::row::ServerRow;
use crate::sql::hosting as sql;

impl Store {
    /// Returns the hosted servers of a project, by name. Registering a server creates its row;
    /// events update its status.
    pub async fn workspaces(&self, project: &ProjectName) -> Result<Vec<WorkspaceRow>, StoreError> {
        let all = query(sql::WORKSPACES).bind(project.as_str());
        let database = self.database();
        database.rows("list hosted servers", all, workspace).await
    }

    /// Stores the instance of a hosted server; does nothing if there is no such server.
    pub async fn set_workspace_instance(
        &self,
        project: &ProjectName,
        server: &ServerName,
        instance: &WorkspaceInstance,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "note an instance of a hosted server";
        let set = query(sql::SET_INSTANCE)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(&instance.provider)
            .bind(&instance.instance)
            .bind(instance.image_digest.as_deref())
            .bind(now_ms());
        let set = self.database().execute(WHAT, Durability::Process, set);
        set.await.map(drop)
    }

    /// Returns the first of the 65,536 user and group ids of a server. They are reserved until
    /// released, and afterwards until another server needs them. `seed` is random and determines
    /// where the search for free ids starts.
    pub async fn id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
        seed: u64,
    ) -> Result<u32, StoreError> {
        const WHAT: &str = "allocate ids to a hosted server";
        let first = |row: &Row| narrow::<u32>(row, 0);
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        let known = query(sql::ID_RANGE)
            .bind(project.as_str())
            .bind(server.as_str());
        if let Some(known) = transaction.optional(known, first).await? {
            let again = query(sql::USE_ID_RANGE)
                .bind(project.as_str())
                .bind(server.as_str());
            transaction.execute(again).await?;
            transaction.commit().await?;
            return Ok(known);
        }
        let taken = transaction.rows(query(sql::ID_RANGES), first).await?;
        // First an unused range, then the one that was released longest ago.
        let (free, statement) = match free_range(&taken, seed) {
            Some(free) => (free, sql::PUT_ID_RANGE),
            None => {
                let released = query(sql::RELEASED_ID_RANGE);
                let released = transaction.optional(released, first).await?;
                let released = released.ok_or_else(|| StoreError::Conflict {
                    what: "a server in every range of ids".to_owned(),
                })?;
                (released, sql::TAKE_ID_RANGE)
            }
        };
        let put = query(statement)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(free)
            .bind(now_ms());
        transaction.execute(put).await?;
        transaction.commit().await?;
        Ok(free)
    }

    /// Reserves the ids of a server permanently: files outside its place may belong to them.
    pub async fn keep_id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
    ) -> Result<(), StoreError> {
        let keep = query(sql::KEEP_ID_RANGE)
            .bind(project.as_str())
            .bind(server.as_str());
        let what = "keep the ids of a hosted server";
        let kept = self.database().execute(what, Durability::Power, keep);
        kept.await.map(drop)
    }

    /// Releases the ids of a removed server whose processes have ended and whose files are removed;
    /// returns whether it did. Not while it is registered or has a volume on any gateway.
    pub async fn release_id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
    ) -> Result<bool, StoreError> {
        let release = query(sql::RELEASE_ID_RANGE)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(now_ms());
        let what = "give back the ids of a hosted server";
        let released = self.database().execute(what, Durability::Power, release);
        Ok(released.await? > 0)
    }

    /// Registers a volume of this gateway, and returns the stored row: folder and age of an
    /// existing row are kept.
    pub async fn put_volume(&self, row: &VolumeRow) -> Result<VolumeRow, StoreError> {
        let put = query(sql::PUT_VOLUME)
            .bind(row.project.as_str())
            .bind(row.server.as_str())
            .bind(&row.path)
            .bind(self.number())
            .bind(&row.folder)
            .bind(row.created_ms);
        let database = self.database();
        let put = database.execute("make a volume known", Durability::Power, put);
        put.await?;
        let volumes = self.volumes(&row.project).await?;
        let mut known = volumes.into_iter();
        let known = known.find(|known| known.server == row.server && known.path == row.path);
        known.ok_or_else(|| StoreError::NotFound {
            what: format!("volume `{}` of server `{}`", row.path, row.server),
        })
    }

    /// Returns the volumes of a project on this gateway's disk, by server and path.
    pub async fn volumes(&self, project: &ProjectName) -> Result<Vec<VolumeRow>, StoreError> {
        let all = query(sql::VOLUMES)
            .bind(project.as_str())
            .bind(self.number());
        let volumes = self.database().rows("list volumes", all, |row| {
            Ok(VolumeRow {
                project: project.clone(),
                server: parsed(row, 0)?,
                path: column(row, 1)?,
                folder: column(row, 2)?,
                created_ms: unsigned(row, 3)?,
            })
        });
        volumes.await
    }

    /// Removes a volume of this gateway; returns whether it existed.
    pub async fn remove_volume(
        &self,
        project: &ProjectName,
        server: &ServerName,
        path: &str,
    ) -> Result<bool, StoreError> {
        let remove = query(sql::REMOVE_VOLUME)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(path)
            .bind(self.number());
        let database = self.database();
        let removed = database.execute("forget a volume", Durability::Power, remove);
        Ok(removed.await? > 0)
    }
}

/// Writes the workspace of a server within the transaction that writes the server; a server that is
/// not hosted has none.
pub(super) async fn put_workspace(
    transaction: &mut Transaction<'_>,
    row: &ServerRow,
) -> Result<(), StoreError> {
    let spec = &row.spec;
    let hosting = spec.launch.hosting();
    let hosted = hosting.filter(|_| spec.profile() == Some(Profile::Hosted));
    let Some(hosting) = hosted.filter(|_| spec.inactive.is_none()) else {
        let remove = query(sql::REMOVE_WORKSPACE)
            .bind(row.project.as_str())
            .bind(spec.name.as_str());
        return transaction.execute(remove).await.map(drop);
    };
    let limits = spec.launch.limits();
    let limits = json!({
        "cpu": limits.cpu, "memory": limits.memory_bytes, "pids": limits.pids,
        "disk": limits.disk_bytes,
    });
    let port = match hosting.bridge() {
        Bridge::Http { port, .. } => Some(port),
        Bridge::Stdio => None,
    };
    let policy = match spec.lifecycle.restart_when {
        RestartWhen::Always => "always",
        RestartWhen::OnFailure => "on-failure",
        RestartWhen::Never => "never",
    };
    let image = spec.launch.image().map(|ImageLaunch { image, .. }| image);
    let put = query(sql::PUT_WORKSPACE)
        .bind(row.id.to_string())
        .bind(row.project.as_str())
        .bind(spec.name.as_str())
        .bind(image)
        .bind(port.is_none())
        .bind(port)
        .bind(policy)
        .bind(Json(limits))
        .bind(Json(&hosting.volumes))
        .bind(now_ms());
    transaction.execute(put).await.map(drop)
}

/// Updates the workspace of a server after an event, if it has one.
pub(super) async fn follow_event(
    transaction: &mut Transaction<'_>,
    project: &ProjectName,
    event: &ServerEvent,
) -> Result<(), StoreError> {
    let Some(status) = status_after(event.kind) else {
        return Ok(());
    };
    let set = query(sql::SET_STATUS)
        .bind(project.as_str())
        .bind(event.server.as_str())
        .bind(status)
        .bind(event.at_ms);
    transaction.execute(set).await.map(drop)
}

fn workspace(row: &Row) -> Result<WorkspaceRow, sqlx::Error> {
    let Json(resource_limits) = column(row, 10)?;
    let Json(volumes) = column(row, 11)?;
    Ok(WorkspaceRow {
        server: parsed(row, 0)?,
        name: parsed(row, 1)?,
        status: column(row, 2)?,
        provider: column(row, 3)?,
        image: column(row, 4)?,
        image_digest: column(row, 5)?,
        instance: column(row, 6)?,
        stdio_bridge: column(row, 7)?,
        port: narrow_option(row, 8)?,
        restart_policy: column(row, 9)?,
        resource_limits,
        volumes,
    })
}
