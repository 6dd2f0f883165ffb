//! Hosted servers: their workspaces, id ranges and volumes. Statements are in `sql::hosting`.

use gantry_model::event::ServerEvent;
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{Bridge, ImageLaunch, Profile, RestartWhen};
use serde_json::json;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;

use super::value::{column, parsed, signed, unsigned};
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::hosting::{VolumeRow, WorkspaceInstance, WorkspaceRow, free_range, status_after};
use crate::row::ServerRow;
use crate::sql::hosting as sql;

impl SqliteStore {
    pub(crate) async fn set_workspace_instance(
        &self,
        project: &ProjectName,
        server: &ServerName,
        instance: &WorkspaceInstance,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "note an instance of a hosted server";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let set = sqlx::query(sql::SET_INSTANCE)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(&instance.provider)
            .bind(&instance.instance)
            .bind(instance.image_digest.as_deref())
            .bind(now_ms());
        let set = set.execute(turn.connection()?).await;
        set.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn workspaces(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<WorkspaceRow>, StoreError> {
        const WHAT: &str = "list hosted servers";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::WORKSPACES).bind(project.as_str());
        let rows = query.fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, workspace)
    }

    pub(crate) async fn id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
        seed: u64,
    ) -> Result<u32, StoreError> {
        const WHAT: &str = "allocate ids to a hosted server";
        let failed = |error| self.failed(WHAT, error);
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        let known = sqlx::query(sql::ID_RANGE)
            .bind(project.as_str())
            .bind(server.as_str());
        let known = known
            .fetch_optional(&mut *transaction)
            .await
            .map_err(failed)?;
        if let Some(row) = known {
            let first = column(&row, 0).map_err(failed)?;
            let again = sqlx::query(sql::USE_ID_RANGE)
                .bind(project.as_str())
                .bind(server.as_str());
            again.execute(&mut *transaction).await.map_err(failed)?;
            self.commit(WHAT, transaction).await?;
            turn.done();
            return Ok(first);
        }
        let taken = sqlx::query(sql::ID_RANGES).fetch_all(&mut *transaction);
        let taken = self.decoded(WHAT, taken.await, |row| column(row, 0))?;
        // One that nobody ever had first, then the one that was given back the longest ago.
        let (first, statement) = match free_range(&taken, seed) {
            Some(first) => (first, sql::PUT_ID_RANGE),
            None => {
                let released = sqlx::query(sql::RELEASED_ID_RANGE);
                let released = released.fetch_optional(&mut *transaction).await;
                let row = released.map_err(failed)?;
                let row = row.ok_or_else(|| StoreError::Conflict {
                    what: "a server in every range of ids".to_owned(),
                })?;
                (column(&row, 0).map_err(failed)?, sql::TAKE_ID_RANGE)
            }
        };
        let put = sqlx::query(statement)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(i64::from(first))
            .bind(now_ms());
        put.execute(&mut *transaction).await.map_err(failed)?;
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(first)
    }

    pub(crate) async fn keep_id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "keep the ids of a hosted server";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let keep = sqlx::query(sql::KEEP_ID_RANGE)
            .bind(project.as_str())
            .bind(server.as_str());
        let kept = keep.execute(turn.connection()?).await;
        kept.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn release_id_range(
        &self,
        project: &ProjectName,
        server: &ServerName,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "give back the ids of a hosted server";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let release = sqlx::query(sql::RELEASE_ID_RANGE)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(now_ms());
        let released = release.execute(turn.connection()?).await;
        let released = released.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(released.rows_affected() > 0)
    }

    pub(crate) async fn put_volume(&self, row: &VolumeRow) -> Result<VolumeRow, StoreError> {
        const WHAT: &str = "make a volume known";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let put = sqlx::query(sql::PUT_VOLUME)
            .bind(row.project.as_str())
            .bind(row.server.as_str())
            .bind(&row.path)
            .bind(self.number())
            .bind(&row.folder)
            .bind(signed(row.created_ms));
        let put = put.execute(turn.connection()?).await;
        put.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        let volumes = self.volumes(&row.project).await?;
        let mut known = volumes.into_iter();
        let known = known.find(|known| known.server == row.server && known.path == row.path);
        known.ok_or_else(|| StoreError::NotFound {
            what: format!("volume `{}` of server `{}`", row.path, row.server),
        })
    }

    pub(crate) async fn volumes(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<VolumeRow>, StoreError> {
        const WHAT: &str = "list volumes";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::VOLUMES)
            .bind(project.as_str())
            .bind(self.number());
        let rows = query.fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, |row| {
            Ok(VolumeRow {
                project: project.clone(),
                server: parsed(row, 0)?,
                path: column(row, 1)?,
                folder: column(row, 2)?,
                created_ms: unsigned(row, 3)?,
            })
        })
    }

    pub(crate) async fn remove_volume(
        &self,
        project: &ProjectName,
        server: &ServerName,
        path: &str,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "forget a volume";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let remove = sqlx::query(sql::REMOVE_VOLUME)
            .bind(project.as_str())
            .bind(server.as_str())
            .bind(path)
            .bind(self.number());
        let removed = remove.execute(turn.connection()?).await;
        let removed = removed.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(removed.rows_affected() > 0)
    }
}

/// Writes the workspace of a server within the transaction that writes the server; one that is not
/// hosted has none.
pub(crate) async fn put_workspace(
    connection: &mut SqliteConnection,
    row: &ServerRow,
) -> Result<(), sqlx::Error> {
    let spec = &row.spec;
    let hosting = spec.launch.hosting();
    let hosted = hosting.filter(|_| spec.profile() == Some(Profile::Hosted));
    let Some(hosting) = hosted.filter(|_| spec.inactive.is_none()) else {
        let remove = sqlx::query(sql::REMOVE_WORKSPACE)
            .bind(row.project.as_str())
            .bind(spec.name.as_str());
        return remove.execute(connection).await.map(drop);
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
    let put = sqlx::query(sql::PUT_WORKSPACE)
        .bind(row.id.to_string())
        .bind(row.project.as_str())
        .bind(spec.name.as_str())
        .bind(image)
        .bind(port.is_none())
        .bind(port.map(i64::from))
        .bind(policy)
        .bind(Json(limits))
        .bind(Json(&hosting.volumes))
        .bind(now_ms());
    put.execute(connection).await.map(drop)
}

/// Carries what happened to a server into its workspace, if it has one.
pub(crate) async fn follow_event(
    connection: &mut SqliteConnection,
    project: &ProjectName,
    event: &ServerEvent,
) -> Result<(), sqlx::Error> {
    let Some(status) = status_after(event.kind) else {
        return Ok(());
    };
    let set = sqlx::query(sql::SET_STATUS)
        .bind(project.as_str())
        .bind(event.server.as_str())
        .bind(status)
        .bind(signed(event.at_ms));
    set.execute(connection).await.map(drop)
}

fn workspace(row: &SqliteRow) -> Result<WorkspaceRow, sqlx::Error> {
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
        port: column(row, 8)?,
        restart_policy: column(row, 9)?,
        resource_limits,
        volumes,
    })
}
